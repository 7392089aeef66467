"""The downloader against a local HTTP server that misbehaves in the ways real ones do."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from seqtool.core.errors import DownloadError, OutputError
from seqtool.text import download as download_module
from seqtool.text.download import download

CONTENT = bytes(range(256)) * 1200  # 307,200 bytes: several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()
Script = Callable[["Handler"], None]


@dataclass
class Server:
    """A server that answers with `scripts` in turn, and with the last of them from then on."""

    url: str
    scripts: list[Script]
    requests: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    body_bytes: int = 0


class Handler(BaseHTTPRequestHandler):
    """Runs the next script of its server and counts the bytes of the bodies."""

    state: Server

    def do_GET(self) -> None:
        number = len(self.state.requests)
        self.state.requests.append(dict(self.headers.items()))
        self.state.paths.append(self.path)
        self.state.scripts[min(number, len(self.state.scripts) - 1)](self)

    def start(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def body(self, data: bytes) -> None:
        self.state.body_bytes += len(data)  # first: the client may be done before we go on
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    """Does not report clients that hang up, which is what these tests make them do."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def whole(content: bytes = CONTENT, etag: str = '"v1"') -> Script:
    """Serve the file without support for ranges."""

    def script(handler: Handler) -> None:
        handler.start(200, Content_Length=len(content), ETag=etag)
        handler.body(content)

    return script


def ranged(content: bytes = CONTENT, etag: str = '"v1"') -> Script:
    """Serve the file or the rest of it, as RFC 9110 has it for Range and If-Range."""

    def script(handler: Handler) -> None:
        wanted = handler.headers.get("Range")
        if wanted is None or handler.headers.get("If-Range", etag) != etag:
            return whole(content, etag)(handler)
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            return handler.start(416, Content_Range=f"bytes */{len(content)}", Content_Length=0)
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.start(206, Content_Length=len(content) - start, Content_Range=span, ETag=etag)
        return handler.body(content[start:])

    return script


def dropped(count: int, content: bytes = CONTENT, etag: str = '"v1"') -> Script:
    """Announce the whole file and end the connection after `count` bytes."""

    def script(handler: Handler) -> None:
        handler.start(200, Content_Length=len(content), ETag=etag)
        handler.body(content[:count])

    return script


def status(code: int, **headers: object) -> Script:
    """Answer with an error and a short page."""

    def script(handler: Handler) -> None:
        handler.start(code, Content_Length=4, **headers)
        handler.body(b"page")

    return script


def stalled(count: int, released: threading.Event) -> Script:
    """Serve `count` bytes and then nothing until the test is over."""

    def script(handler: Handler) -> None:
        handler.start(200, Content_Length=len(CONTENT), ETag='"v1"')
        handler.body(CONTENT[:count])
        released.wait(20)

    return script


Serve = Callable[..., Server]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[ThreadingHTTPServer] = []

    def start(*scripts: Script) -> Server:
        handler = type("BoundHandler", (Handler,), {})
        http_server = QuietServer(("127.0.0.1", 0), handler)
        server = Server(f"http://127.0.0.1:{http_server.server_port}/file.bin", list(scripts))
        handler.state = server  # type: ignore[attr-defined]
        threading.Thread(
            target=http_server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        servers.append(http_server)
        return server

    yield start
    for http_server in servers:
        http_server.shutdown()
        http_server.server_close()


@dataclass
class Pauses:
    """Stands for `time.sleep` and records what it was asked for."""

    seconds: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


def interrupt(_seconds: float) -> None:
    raise KeyboardInterrupt


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_comes_with_progress_and_leaves_nothing_beside_it(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve(whole())
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "deep" / "file.bin"
    path = download(
        server.url, target, sha256=SHA256.upper(), on_progress=lambda *args: seen.append(args)
    )
    assert path == target
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == {"file.bin"}
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert server.requests[0]["User-Agent"].startswith("seqtool/")


def test_the_right_file_is_not_fetched_again_and_a_wrong_one_is(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve(whole())
    target = tmp_path / "file.bin"
    target.write_bytes(CONTENT)
    download(server.url, target, sha256=SHA256)
    assert server.requests == []
    target.write_bytes(CONTENT[:-1] + b"?")
    download(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_a_dropped_connection_goes_on_with_the_missing_bytes_only(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    server = serve(dropped(100_000), ranged())
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.requests[1]["Range"] == "bytes=100000-"
    assert server.requests[1]["If-Range"] == '"v1"'
    assert server.body_bytes == len(CONTENT)
    assert len(pauses.seconds) == 1


def test_a_killed_download_goes_on_in_the_next_call(serve: Serve, tmp_path: Path) -> None:
    server = serve(dropped(200_000), ranged())
    target = tmp_path / "file.bin"
    with pytest.raises(KeyboardInterrupt):
        download(server.url, target, sha256=SHA256, sleep=interrupt)
    assert names(tmp_path) == {"file.bin.part", "file.bin.part.json"}
    seen: list[tuple[int, int | None]] = []
    download(server.url, target, sha256=SHA256, on_progress=lambda *args: seen.append(args))
    assert seen[0] == (200_000, len(CONTENT))
    assert server.body_bytes == len(CONTENT)
    assert names(tmp_path) == {"file.bin"}


def test_without_ranges_the_download_starts_anew(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    server = serve(dropped(100_000), whole())
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.body_bytes == 100_000 + len(CONTENT)


def test_a_file_that_changed_meanwhile_is_fetched_whole(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    old = CONTENT[::-1]
    server = serve(dropped(100_000, old, '"v1"'), ranged(CONTENT, '"v2"'))
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.body_bytes == 100_000 + len(CONTENT)
    assert len(server.requests) == 2


def test_a_shorter_file_leaves_nothing_of_a_longer_part(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    server = serve(dropped(300_000), whole(CONTENT[:1000], '"v2"'))
    expected = hashlib.sha256(CONTENT[:1000]).hexdigest()
    download(server.url, tmp_path / "file.bin", sha256=expected, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT[:1000]


def test_a_wrong_file_that_came_in_one_answer_is_not_asked_for_again(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    server = serve(dropped(100_000), whole(CONTENT[::-1]))
    with pytest.raises(DownloadError, match="not the expected file"):
        download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert len(server.requests) == 2


def test_a_server_that_sends_another_range_than_asked_is_not_believed(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    def from_the_start(handler: Handler) -> None:
        span = f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"
        handler.start(206, Content_Length=len(CONTENT), Content_Range=span)
        handler.body(CONTENT)

    server = serve(dropped(100_000), from_the_start, whole())
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert "Range" not in server.requests[2]
    assert len(server.requests) == 3


def test_a_change_that_no_validator_tells_is_found_by_the_checksum(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    old = CONTENT[::-1]
    server = serve(dropped(100_000, old, 'W/"v1"'), ranged(CONTENT, 'W/"v1"'))
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert "If-Range" not in server.requests[1]
    assert server.body_bytes == 2 * len(CONTENT)


def test_a_complete_part_needs_no_second_download(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    def unlucky(handler: Handler) -> None:
        # Everything arrives, but the announced size says that one byte is missing.
        handler.start(200, Content_Length=len(CONTENT) + 1, ETag='"v1"')
        handler.body(CONTENT)

    server = serve(unlucky, ranged())
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    # 416 for the range beyond the end: the part is given up, since it cannot be told to be whole.
    assert [request.get("Range") for request in server.requests] == [None, "bytes=307200-", None]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT

    server = serve(dropped(100_000), dropped(0))
    target = tmp_path / "other.bin"
    with pytest.raises(KeyboardInterrupt):
        download(server.url, target, sha256=SHA256, size=len(CONTENT), sleep=interrupt)
    (tmp_path / "other.bin.part").write_bytes(CONTENT)
    download(server.url, target, sha256=SHA256, size=len(CONTENT))
    assert len(server.requests) == 1


def test_the_part_of_another_address_is_not_used(serve: Serve, tmp_path: Path) -> None:
    first, second = serve(dropped(100_000, CONTENT[::-1])), serve(ranged())
    target = tmp_path / "file.bin"
    with pytest.raises(KeyboardInterrupt):
        download(first.url, target, sha256=SHA256, sleep=interrupt)
    download(second.url, target, sha256=SHA256)
    assert "Range" not in second.requests[0]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_wrong_checksum_names_both_sums_and_leaves_nothing(
    serve: Serve, tmp_path: Path, size: int | None
) -> None:
    wrong = CONTENT[:-1] + b"?"
    server = serve(whole(wrong))
    with pytest.raises(DownloadError) as caught:
        download(server.url, tmp_path / "file.bin", sha256=SHA256, size=size)
    assert SHA256 in str(caught.value)
    assert hashlib.sha256(wrong).hexdigest() in str(caught.value)
    assert server.url in str(caught.value)
    assert caught.value.hint
    assert names(tmp_path) == set()
    assert len(server.requests) == 1


def test_a_file_of_another_size_is_refused_before_it_comes(serve: Serve, tmp_path: Path) -> None:
    server = serve(whole(b"<html>please log in</html>"))
    with pytest.raises(DownloadError, match="it has 26 bytes, expected 307200"):
        download(server.url, tmp_path / "file.bin", sha256=SHA256, size=len(CONTENT))
    assert names(tmp_path) == set()


def test_a_body_without_end_stops_at_the_expected_size(serve: Serve, tmp_path: Path) -> None:
    def endless(handler: Handler) -> None:
        handler.start(200)
        while True:
            handler.body(CONTENT)

    server = serve(endless)
    with pytest.raises(DownloadError, match="more than 307200"):
        download(server.url, tmp_path / "file.bin", sha256=SHA256, size=len(CONTENT))
    assert names(tmp_path) == set()


def test_a_missing_file_is_told_at_once(serve: Serve, tmp_path: Path, pauses: Pauses) -> None:
    server = serve(status(404))
    with pytest.raises(DownloadError, match="404 Not Found"):
        download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert len(server.requests) == 1
    assert pauses.seconds == []
    assert names(tmp_path) == set()


def test_a_busy_server_is_asked_again_after_growing_pauses(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    server = serve(status(503), status(503), status(429, Retry_After=7), whole())
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert pauses.seconds == [0.5, 1.0, 7.0]


def test_a_server_that_stays_busy_ends_the_download(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    server = serve(status(503, Retry_After=100_000))
    with pytest.raises(DownloadError, match=r"503 Service Unavailable \(tried 5 times\)"):
        download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert len(server.requests) == 5
    assert pauses.seconds == [30.0] * 4
    assert names(tmp_path) == set()


def test_a_silent_server_counts_as_a_broken_connection(
    serve: Serve, tmp_path: Path, pauses: Pauses
) -> None:
    released = threading.Event()
    server = serve(stalled(65_536, released), ranged())
    download(server.url, tmp_path / "file.bin", sha256=SHA256, timeout=0.2, sleep=pauses)
    released.set()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.body_bytes == len(CONTENT)
    assert len(pauses.seconds) == 1


def test_no_network_is_told_at_once(tmp_path: Path, pauses: Pauses) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/file.bin"
    with pytest.raises(DownloadError, match="no connection: connection refused") as caught:
        download(url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert "network" in caught.value.hint
    assert pauses.seconds == []
    assert names(tmp_path) == set()


def test_a_network_lost_midway_is_waited_for_and_the_bytes_are_kept(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: Pauses
) -> None:
    server = serve(dropped(100_000), ranged())
    real, calls = urllib.request.OpenerDirector.open, []

    def flaky(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) in (2, 3):
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        return real(*args, **kwargs)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", flaky)
    download(server.url, tmp_path / "file.bin", sha256=SHA256, sleep=pauses)
    assert server.body_bytes == len(CONTENT)
    assert pauses.seconds == [0.5, 1.0, 2.0]


def test_a_proxy_of_the_environment_is_used(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(whole())
    monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/file.bin"))
    download("http://corpus.invalid/text", tmp_path / "file.bin", sha256=SHA256)
    assert proxy.paths == ["http://corpus.invalid/text"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_told_and_the_unfinished_file_removed(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(whole())
    real_open = open

    def full(path: Any, mode: str = "r", **kwargs: Any) -> Any:
        if str(path).endswith(".part") and "+" in mode:
            file = real_open("/dev/full", "r+b", buffering=0)
            return Unseekable(file)
        return real_open(path, mode, **kwargs)

    monkeypatch.setattr(download_module, "open", full, raising=False)
    with pytest.raises(OutputError, match="no space left on device") as caught:
        download(server.url, tmp_path / "file.bin", sha256=SHA256)
    assert caught.value.path == str(tmp_path / "file.bin.part")
    assert names(tmp_path) == set()


class Unseekable:
    """A device that ignores where it is written to."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __enter__(self) -> Unseekable:
        return self

    def __exit__(self, *args: object) -> None:
        self.file.close()

    def truncate(self, size: int) -> None:
        pass

    def seek(self, position: int) -> None:
        pass

    def write(self, data: bytes) -> int:
        return int(self.file.write(data))


def test_an_output_folder_that_is_a_file_is_refused(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OutputError):
        download(serve(whole()).url, tmp_path / "taken" / "file.bin", sha256=SHA256)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "corpus.txt"])
def test_only_web_addresses_are_taken(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="not an http or https address"):
        download(url, tmp_path / "file.bin", sha256=SHA256)
