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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from server.running import ALL, LIMITS, PIPELINE, Running, running

from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM, HEAD, UPOS

TEXT = "The dog sees a cat. Two cats sleep."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    for name in ("english-a-1", "parser"):
        source = PIPELINE if name != "parser" else PIPELINE / "parser"
        os.symlink(source, folder / name)
    # the name of a link is that of the model
    with running(folder / "english-a-1", folder / "parser") as found:
        yield found


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


def test_the_models_are_told(server: Running) -> None:
    found = udpipe_client(server.url, "models", {})
    steps = ["tokenizer", "tagger", "parser"]
    assert found["models"] == {"english-a-1": steps, "parser": ["parser"]}
    assert found["default_model"] == "english-a-1"
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}


def test_a_text_is_parsed_as_the_model_does(server: Running) -> None:
    model = server.models.default.model
    text = f"{TEXT}\n\nCafé, naïve? 개가 잔다."
    wanted = model(text).to_conllu()
    fields = {"data": text, "input": "conllu", "output": "conllu", **ALL}
    answer = udpipe_client(server.url, "process", fields)
    assert set(answer) == {"model", "acknowledgements", "result"}
    assert answer["model"] == "english-a-1"
    # a client that sends a form of parts ends lines as mail does
    assert answer["result"] == model(text.replace("\n", "\r\n")).to_conllu()
    assert server.result(data=text, **ALL) == wanted
    # a prefix of the name, up to a hyphen; a file as curl -F data=@letter.txt sends it; GET
    assert server.result(data=text, model="english", **ALL) == wanted
    files = {"data": ("letter.txt", text.encode(), "application/octet-stream")}
    sent = httpx.post(f"{server.url}/process", data=ALL, files=files)
    assert sent.json()["result"] == wanted
    got = httpx.get(f"{server.url}/process", params={"data": text, **ALL})
    assert got.json()["result"] == wanted


def test_each_step_does_its_own(server: Running) -> None:
    first, *_ = read_conllu(server.result(data=TEXT, tokenizer=""), check="columns")
    assert {row[UPOS] for row in first.rows} | {row[HEAD] for row in first.rows} == {"_"}
    first, *_ = read_conllu(server.result(data=TEXT, tokenizer="", tagger=""), check="columns")
    assert "_" not in first.column(UPOS)
    assert set(first.column(HEAD)) == {"_"}
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


def test_an_answer_is_sent_at_once(server: Running) -> None:
    """Not when the client has said that it got the head, which it says 40 ms later."""
    assert server.protocol == socket.IPPROTO_TCP
    with httpx.Client() as client:
        seconds = []
        for _ in range(20):
            begin = time.perf_counter()
            client.get(f"{server.url}/models")
            seconds.append(time.perf_counter() - begin)
    assert min(seconds[1:]) < 0.03


def test_many_at_once_get_what_is_theirs(server: Running) -> None:
    texts = [f"{word} sleeps. " * (1 + 9 * (place % 3)) for place, word in enumerate("abcdefghij")]
    with ThreadPoolExecutor(len(texts)) as clients:
        found = list(clients.map(lambda text: server.result(data=text, **ALL), texts * 3))
    for text, result in zip(texts * 3, found, strict=True):
        sentences = list(read_conllu(result))
        assert "".join(sentence.written() for sentence in sentences) == text
        assert {sentence.column(FORM)[0] for sentence in sentences} == {text[0]}


LONG = "1\t{}\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
# fields, status, and the one line
REFUSED: list[tuple[dict[str, str], int, str]] = [
    ({**ALL}, 400, "the field data is missing"),
    ({"data": "x", "tokenizer": "", "taggr": ""}, 400, "the field 'taggr' is not known"),
    ({"data": "x", "model": "englis"}, 400, "no model is called 'englis'; did you mean"),
    ({"data": "x", "model": "parser", **ALL}, 400, "model parser has no t"),
    ({"data": "x", "output": "matxin", **ALL}, 400, "output=matxin is not known; choose one of"),
    ({"data": "x", "input": "text"}, 400, "input=text is not known"),
    ({"data": "x", "tokenizer": "ranges"}, 400, "tokenizer=ranges is not known"),
    ({"data": "x", "tokenizer": "", "tagger": "none"}, 400, "tagger=none is not known"),
    ({"data": "x", "parser": ""}, 400, "<text>:1: 1 column, where CoNLL-U has 10"),
    ({"data": "", "parser": ""}, 400, "<text>: the file is empty"),
    ({"data": "a\0b", **ALL}, 400, "a field holds a NUL"),
    ({"data": "a\n" * 51, "input": "horizontal"}, 413, "the text has more than 50 sentences"),
    ({"data": "a " * 41, "input": "horizontal"}, 413, "sentence 1 has more than 40 words"),
    ({"data": LONG.format("a" * 1001)}, 413, "sentence 1 has a word of more than 1,000 char"),
    (
        {"data": "a" * 40_000, **ALL},
        413,
        "the text has more than 32,768 characters without a space",
    ),
    ({"data": "a" * 100_000}, 413, "the request has more than 0.0953674 MB"),
]


@pytest.mark.parametrize(("fields", "status", "line"), REFUSED)
def test_a_request_that_is_wrong_is_told_so_in_one_line(
    server: Running, fields: dict[str, str], status: int, line: str
) -> None:
    response = server.post(**fields)
    assert response.status_code == status
    assert response.text.startswith(line)
    assert response.text.count("\n") == 1
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert server.answered[-1].status == status


def test_bodies_that_are_no_forms(server: Running) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    parts = {"content-type": "multipart/form-data; boundary=x"}
    body = '--x\r\nContent-Disposition: form-data; name="data"\r\n\r\nabc'
    for content, headers, status, line in (
        (b"data=%ff", form, 400, "field data is not UTF-8 at byte 0"),
        (b"data=" + "é".encode("latin-1"), form, 400, "field data is not UTF-8 at byte 0"),
        (
            b"".join(b"%d=b&" % i for i in range(51)),
            form,
            400,
            "the request has more than 50 fields",
        ),
        (b"abc", {"content-type": "text/plain"}, 415, "a body of type 'text/plain' is no form"),
        (b"abc", {}, 415, "a body without a type is no form"),
        (b"abc", parts, 400, "the body is no multipart/form-data"),
        (body.encode(), parts, 400, "the body is no whole multipart/form-data"),
    ):
        response = httpx.post(f"{server.url}/process", content=content, headers=headers)
        assert response.status_code == status
        assert response.text.startswith(line)
        assert response.text.count("\n") == 1


def test_a_field_is_there_once(server: Running) -> None:
    url, once = f"{server.url}/process", {"data": "a"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    for response in (
        httpx.get(f"{url}?data=a&data=b"),
        httpx.post(f"{url}?data=a", data=once),
        httpx.post(url, content=b"data=a&d%61ta=b", headers=form),
        httpx.post(url, files=[("data", ("x", b"a")), ("data", ("y", b"b"))]),
        httpx.post(url, content=b'{"data": "a", "data": "b"}', headers=JSON),
    ):
        assert response.status_code == 400
        assert response.text == "the field 'data' is there twice; send it once\n"


JSON = {"content-type": "application/json; charset=utf-8"}


def test_json(server: Running) -> None:
    url, long = f"{server.url}/process", {"data": ("a" * 25_000 + "\n\n개 ") * 3}
    long |= {"tokenizer": "", "output": "plaintext"}
    for fields in ({"data": TEXT, **ALL}, long):
        response = httpx.post(url, json=fields)
        assert response.status_code == 200
        assert response.text == httpx.post(url, data=fields).text
    for body in (b"", b"[]", b'["data"]', b'{"data": 1}', b'{"data": {}}', b"[" * 9999, b"\xff",
                 b'{"data": "\\ud800"}', b'{"data": "\\u0000"}'):  # fmt: skip
        response = httpx.post(url, content=body, headers=JSON)
        assert (response.status_code, response.text.count("\n")) == (400, 1), body


def test_a_byte_order_mark_is_not_text(server: Running) -> None:
    for asked in ({"tokenizer": ""}, {}):
        answers = [
            server.post(data=text, **asked).text for text in ("\ufeff# a\nYes.", "# a\nYes.")
        ]
        assert answers[0] == answers[1]
        assert "\ufeff" not in answers[0]


def test_other_addresses(server: Running) -> None:
    for method, path, status, line in (
        ("GET", "/nothing", 404, "/nothing is not here; ask /process"),
        ("GET", "/models/", 404, "/models/ is not here"),
        ("GET", "//evil.example/models/", 404, "//evil.example/models/ is not here"),
        ("GET", "/..%2f..%2fetc%0apasswd", 404, "/..%2f..%2fetc%0apasswd is not here"),
        ("DELETE", "/process", 405, "DELETE is not answered; send GET or POST"),
    ):
        response = httpx.request(method, f"{server.url}{path}")
        assert response.status_code == status
        assert response.text.startswith(line)
        assert response.text.count("\n") == 1
        assert ("POST" in response.headers.get("allow", "")) == (status == 405)
    assert server.answered[-1].line().startswith("127.0.0.1 DELETE /process 405 ")


def test_a_hundred_megabytes_are_refused_and_cost_no_memory(server: Running) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"data="
        for _ in range(60):  # of so many, that no buffer of the system takes them all
            yield b"a" * 100_000

    form = {"content-type": "application/x-www-form-urlencoded"}
    response = httpx.post(f"{server.url}/process", content=pieces(), headers=form)
    assert response.status_code == 413
    # what announces its size and waits for leave to send it is answered at once
    told = ask(
        server,
        b"POST /process HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n",
    )
    assert told.startswith(b"HTTP/1.1 413 ")


def ask(server: Running, sent: bytes, *, ends: bool = False) -> bytes:
    """Send bytes, say that no more come or say nothing, and return all that is answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(sent)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while piece := connection.recv(1 << 16):
            found += piece
    return found


HEAD_OF_FORM = (
    b"POST /process HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
)


def test_half_a_request(server: Running) -> None:
    """A client that goes on waiting for its body is told after some time."""
    begin = time.monotonic()
    told = ask(server, HEAD_OF_FORM % 100 + b"data=x")
    assert time.monotonic() - begin > 0.9 * LIMITS.body_seconds
    assert told.startswith(b"HTTP/1.1 408 ")
    assert told.partition(b"\r\n\r\n")[2].count(b"\n") == 1
    for sent in (HEAD_OF_FORM % 100 + b"data=x", HEAD_OF_FORM[:30]):
        assert ask(server, sent, ends=True) == b""  # nobody waits for an answer
    assert ask(server, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_request_of_two_lengths_ends_the_connection(server: Running) -> None:
    """What a proxy takes for the body would else be another request."""
    for path in (b"/process", b"/nothing"):
        told = ask(
            server,
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
            b"0\r\n\r\nGET /models HTTP/1.1\r\nHost: localhost\r\n\r\n" % path,
        )
        assert told.startswith(b"HTTP/1.1 400 ")
        assert told.count(b"HTTP/1.1") == 1
        assert b"x-content-type-options: nosniff" in told


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
        assert response.headers["x-content-type-options"] == "nosniff"


def test_clients_that_hang_cost_the_others_nothing(server: Running) -> None:
    wanted = server.result(data=TEXT, **ALL)
    waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(20)]
    try:
        for place, connection in enumerate(waiting):
            connection.sendall((HEAD_OF_FORM % 100)[: 20 * (place % 9)])
        assert server.result(data=TEXT, **ALL) == wanted
    finally:
        for connection in waiting:
            connection.close()
    assert server.result(data=TEXT, **ALL) == wanted


def test_too_many_that_wait(tmp_path: Path) -> None:
    limits = LIMITS.__class__(num_jobs=0)
    with running(PIPELINE, limits=limits) as server:
        response = server.post(data=TEXT, **ALL)
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")


def test_nobody_else_may_show_or_read_an_answer(server: Running) -> None:
    for path in ("/", "/models", "/nothing"):
        headers = httpx.get(f"{server.url}{path}").headers
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "frame-ancestors 'none'"
