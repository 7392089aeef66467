"""What a server answers: as UDPipe's clients ask, and to requests that are wrong."""

from __future__ import annotations

import email.mime.multipart
import email.mime.nonmultipart
import email.policy
import json
import os
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx
import pytest
from server.running import ALL, PIPELINE, Running, running

from seqtool.server.service import Limits
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM, HEAD, UPOS

TEXT = "The dog sees a cat. Two cats sleep."
FORM_TYPE = {"content-type": "application/x-www-form-urlencoded"}
PARTS_TYPE = {"content-type": "multipart/form-data; boundary=x"}
JSON_TYPE = {"content-type": "application/json; charset=utf-8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    os.symlink(PIPELINE, folder / "english-a-1")  # the name of a link is that of the model
    os.symlink(PIPELINE / "parser", folder / "parser")
    with running(folder / "english-a-1", folder / "parser") as started:
        yield started


def udpipe_client(server: str, method: str, fields: dict[str, str]) -> dict[str, object]:
    """Ask as the client of UDPipe 2 does: a multipart form of parts of text, 8 bits each."""
    form = email.mime.multipart.MIMEMultipart("form-data", policy=email.policy.HTTP)
    for name, value in fields.items():
        part = email.mime.nonmultipart.MIMENonMultipart("text", "plain")
        part.add_header("Content-Disposition", f'form-data; name="{name}"')
        part.add_header("Content-Transfer-Encoding", "8bit")
        part.set_payload(value, charset="utf-8")
        form.attach(part)
    body = form.as_bytes().split(b"\r\n\r\n", maxsplit=1)[1] if fields else None
    headers = {"Content-Type": form["Content-Type"]} if fields else {}
    request = urllib.request.Request(f"{server}/{method}", headers=headers, data=body)
    with urllib.request.urlopen(request) as response:
        answer: dict[str, object] = json.loads(response.read())
    return answer


def test_the_models_are_listed(server: Running) -> None:
    answer = udpipe_client(server.url, "models", {})
    steps = ["tokenizer", "tagger", "parser"]
    assert answer["models"] == {"english-a-1": steps, "parser": ["parser"]}
    assert answer["default_model"] == "english-a-1"
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}


def test_a_text_is_parsed_as_the_model_does(server: Running) -> None:
    model, url = server.model, f"{server.url}/process"
    text = f"{TEXT}\n\nCafé, naïve? 개가 잔다."
    answer = udpipe_client(server.url, "process", {"data": text, "output": "conllu", **ALL})
    assert set(answer) == {"model", "acknowledgements", "result"}
    assert answer["model"] == "english-a-1"
    # a client that sends a form of parts ends lines as mail does
    assert answer["result"] == model(text.replace("\n", "\r\n")).to_conllu()
    raw = f"data={text}&tokenizer&tagger=&parser=".encode()  # as curl -d sends it
    file = {"data": ("letter.txt", text.encode(), "application/octet-stream")}
    for response in (
        server.post(data=text, model="english", **ALL),  # a name's beginning, up to a hyphen
        httpx.get(url, params={"data": text, **ALL}),
        httpx.post(url, json={"data": f"\ufeff{text}", **ALL}),  # a byte order mark is no text
        httpx.post(url, json={"data": text, **dict.fromkeys(ALL, True)}),
        httpx.post(url, content=raw, headers=FORM_TYPE),
        httpx.post(url, data=ALL, files=file),  # as curl -F data=@letter.txt sends it
    ):
        assert response.json()["result"] == model(text).to_conllu()


def test_each_step_does_its_own(server: Running) -> None:
    first, *_ = read_conllu(server.result(data=TEXT, tokenizer=""), check="columns")
    assert {row[UPOS] for row in first.rows} | {row[HEAD] for row in first.rows} == {"_"}
    first, *_ = read_conllu(server.result(data=TEXT, tokenizer="", tagger=""), check="columns")
    assert "_" not in first.column(UPOS)
    assert set(first.column(HEAD)) == {"_"}
    asked = {"data": TEXT, "tokenizer": True, "tagger": True, "parser": False}
    answer = httpx.post(f"{server.url}/process", json=asked).json()["result"]
    assert answer == server.result(data=TEXT, tokenizer="", tagger="")
    (whole,) = read_conllu(
        server.result(data="a b\n", tokenizer="presegmented", parser=""), check="tree"
    )
    assert whole.text == "a b"
    # what is asked for without a tagger keeps the tags that are there
    given = "# own\n1\tdogs\t_\tX\t_\t_\t_\t_\t_\tA=b\n2\tsleep\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    (kept,) = read_conllu(server.result(data=given, parser=""))
    assert (kept.comments, kept.rows[0][UPOS], kept.rows[0][9]) == (["# own"], "X", "A=b")
    assert kept.rows[1][UPOS] != "_"
    (new,) = read_conllu(server.result(data=given, tagger="", parser=""))
    assert new.rows[0][UPOS] != "X"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"data": "a b\u00a0c\nd", "input": "horizontal", "output": "vertical"}, "a\nb c\n\nd\n\n"),
        (
            {"data": "a\tx\nb c\n\nd", "input": "vertical", "output": "horizontal"},
            "a b\u00a0c\nd\n",
        ),
        ({"data": "Cats  sleep.\n", "tokenizer": "", "output": "plaintext"}, "Cats  sleep.\n"),
        ({"data": "", "tokenizer": "", "tagger": "", "parser": ""}, ""),
    ],
)
def test_inputs_and_outputs(server: Running, fields: dict[str, str], wanted: str) -> None:
    assert server.result(**fields) == wanted


def test_many_at_once_get_what_is_theirs_and_a_short_text_waits_for_no_long_one() -> None:
    with running(PIPELINE, limits=Limits()) as server, ThreadPoolExecutor(9) as clients:
        texts = [f"{word} sleeps.{end}" * 2000 for word in "abcd" for end in (" ", "\n\n")]
        long = [clients.submit(server.result, data=text, **ALL) for text in texts]
        time.sleep(0.2)
        short = clients.submit(server.result, data="Good morning.", **ALL)
        assert wait([short, *long], return_when=FIRST_COMPLETED).done == {short}
        for text, future in zip(texts, long, strict=True):
            sentences = list(read_conllu(future.result()))
            assert "".join(sentence.written() for sentence in sentences) == text
            forms = {form for sentence in sentences for form in sentence.column(FORM)}
            assert forms <= {text[0], "sleeps", ".", "sleeps."}


def test_a_text_that_takes_too_long() -> None:
    with running(PIPELINE, limits=Limits(seconds=0.1)) as server:
        response = server.post(data=TEXT * 5000, **ALL)
        assert (response.status_code, response.text[:8]) == (413, "not done")
        assert ask(server, HEAD_OF_FORM % 100 + b"data=x").startswith(b"HTTP/1.1 413 ")


# fields, status, and what the one line says
REFUSED: list[tuple[dict[str, str], int, str]] = [
    ({**ALL}, 400, "field data is missing"),
    ({"data": "x", "tokenizer": "", "taggr": ""}, 400, "field=taggr is not known"),
    ({"data": "x", "model": "englis"}, 400, "'englis'; did you mean"),
    ({"data": "x", "model": "parser", **ALL}, 400, "model parser has no t"),
    ({"data": "x", "output": "matxin", **ALL}, 400, "output=matxin is not known; choose one of"),
    ({"data": "x", "input": "text"}, 400, "input=text is not known"),
    ({"data": "x", "tokenizer": "ranges"}, 400, "tokenizer=ranges is not known"),
    ({"data": "x", "tokenizer": "", "tagger": "none"}, 400, "tagger=none is not known"),
    ({"data": "x", "parser": ""}, 400, "<text>:1: 1 column"),
    ({"data": "", "parser": ""}, 400, "<text>: the file is empty"),
    ({"data": "a\0b", **ALL}, 400, "NUL"),
    ({"data": "a\n" * 51, "input": "horizontal"}, 413, "more than 50 sentences"),
    ({"data": "a " * 1001, "input": "horizontal"}, 413, "more than 1,000 words"),
    ({"data": "a" * 100_000}, 413, "more than 0.0953674 MB"),
]


@pytest.mark.parametrize(("fields", "status", "line"), REFUSED)
def test_a_request_that_is_wrong_gets_one_line(
    server: Running, fields: dict[str, str], status: int, line: str
) -> None:
    response = server.post(**fields)
    assert response.status_code == status
    assert line in response.text
    assert response.text.count("\n") == 1
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert f" {status} " in server.log[-1]


def test_bodies_that_are_no_forms(server: Running) -> None:
    part = '--x\r\nContent-Disposition: form-data; name="data"\r\n\r\n{}\r\n--x--'
    for content, headers, status in (
        (b"data=%ff", FORM_TYPE, 400),
        ("data=é".encode("latin-1"), FORM_TYPE, 400),
        (b"".join(b"%d=b&" % i for i in range(51)), FORM_TYPE, 400),
        (b"abc", {"content-type": "text/plain"}, 415),
        (b"abc", PARTS_TYPE, 400),
        (part.format("é").encode("latin-1"), PARTS_TYPE, 400),
        (part.removesuffix("--x--").encode(), PARTS_TYPE, 400),
        *((body, JSON_TYPE, 400) for body in (
            b"", b"[]", b'{"data": 1}', b'{"data": true}', b'{"tagger": null}', b"3", b"[" * 9999,
            b'{"data": "\\ud800"}',
        )),
    ):  # fmt: skip
        response = httpx.post(f"{server.url}/process", content=content, headers=headers)
        assert (response.status_code, response.text.count("\n")) == (status, 1), content[:40]


def test_a_field_is_there_once(server: Running) -> None:
    url, once = f"{server.url}/process", {"data": "a"}
    for response in (
        httpx.get(f"{url}?data=a&data=b"),
        httpx.post(f"{url}?data=a", data=once),
        httpx.post(url, content=b"data=a&d%61ta=b", headers=FORM_TYPE),
        httpx.post(url, files=[("data", ("x", b"a")), ("data", ("y", b"b"))]),
        httpx.post(url, content=b'{"data": "a", "data": "b"}', headers=JSON_TYPE),
    ):
        assert (response.status_code, "twice" in response.text) == (400, True)


def test_other_addresses(server: Running) -> None:
    for method, path, status in (
        ("GET", "/models/", 404),
        ("GET", "//evil.example/models/", 404),
        ("GET", "/..%2f..%2fetc%0apasswd", 404),
        ("DELETE", "/process", 405),
    ):
        response = httpx.request(method, f"{server.url}{path}")
        assert (response.status_code, response.text.count("\n")) == (status, 1)


def test_a_large_body_is_refused_before_it_is_whole(server: Running) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"data="
        for _ in range(60):  # of so many, that no buffer of the system takes them all
            yield b"a" * 100_000

    response = httpx.post(f"{server.url}/process", content=pieces(), headers=FORM_TYPE)
    assert response.status_code == 413
    # what announces its size and waits for leave to send it is answered at once
    told = ask(server, HEAD_OF_FORM % (100 << 20), b"Expect: 100-continue\r\n")
    assert told.startswith(b"HTTP/1.1 413 ")


def ask(server: Running, sent: bytes, header: bytes = b"", *, ends: bool = False) -> bytes:
    """Send bytes, say that no more come or say nothing, and return all that is answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(sent.replace(b"\r\n", b"\r\n" + header, 1))
        if ends:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    return answer


HEAD_OF_FORM = (
    b"POST /process HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
)


def test_names_that_it_answers_to(server: Running) -> None:
    local = ("127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:8001", "parser.example:80")
    for host, origin, status in (
        *((host, None, 200) for host in local),
        *(("localhost", f"http://{name}", 200) for name in local),
        *((host, None, 400) for host in ("evil.example", "evil.example:8001", "x@localhost", "[")),
        *(("localhost", name, 403) for name in ("http://evil.example", "null", "https://[", "")),
    ):
        headers = {"host": host} | ({} if origin is None else {"origin": origin})
        response = httpx.get(f"{server.url}/models", headers=headers)
        assert response.status_code == status, headers
        # nobody else may show or read an answer
        assert "access-control-allow-origin" not in response.headers
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == "frame-ancestors 'none'"
