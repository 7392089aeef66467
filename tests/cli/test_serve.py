"""`seqtool serve` as a user meets it: what it says, how it ends, what it refuses."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.running import ALL, PIPELINE

Run = Callable[..., Any]


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Give a server in a process of its own, and its address."""
    command = [sys.executable, "-m", "seqtool", "serve", "-m", str(PIPELINE), "--port", "0"]
    with subprocess.Popen(
        [*command, "--json", *arguments], stdout=-1, stderr=-1, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told["models"] == ["pipeline"]
            assert told["url"].endswith(f":{told['port']}")
            yield process, f"http://127.0.0.1:{told['port']}"
        finally:
            process.kill()


def test_a_signal_ends_it_once_all_requests_are_answered() -> None:
    with started("--verbose") as (process, url):
        body = b"data=The+dog+sleeps.&tokenizer=&parser="
        head = (
            "POST /process HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
            f"{len(body)}\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
        ).encode()
        assert httpx.post(f"{url}/process", data={"data": "Hi", **ALL}).status_code == 200
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(head + body[:10])
            assert httpx.get(f"{url}/models").status_code == 200  # it has come by then
            process.send_signal(signal.SIGTERM)
            connection.sendall(body[10:])
            answer = b""
            while piece := connection.recv(1 << 16):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200 ")
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert stdout == ""
    first, *requests, last = stderr.splitlines()
    assert first == f"pipeline: {url} (Ctrl-C ends it)"
    assert last == "ended after 3 requests"
    # what was asked, and no text
    assert re.fullmatch(r"127.0.0.1 POST /process 200 [0-9.]+ ms", requests[0])
    assert len(requests) == 3


def test_a_second_signal_ends_it_at_once() -> None:
    with (
        started("--host", "0.0.0.0") as (process, url),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection,
    ):
        connection.sendall(b"POST /process HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n")
        connection.sendall(b"Content-Type: application/x-www-form-urlencoded\r\n\r\n")
        assert httpx.get(f"{url}/models").status_code == 200
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    warning, address, *interrupted = stderr.splitlines()
    assert warning.startswith("warning: 0.0.0.0 can be reached from other machines")
    assert address == f"pipeline: {url.replace('127.0.0.1', '0.0.0.0')} (Ctrl-C ends it)"
    assert [line.partition(":")[0] for line in interrupted] == ["interrupted", "hint"]


@pytest.mark.parametrize(
    ("models", "host", "word"),
    [
        ([PIPELINE], "192.0.2.1", "of 192.0.2.1: "),
        ([PIPELINE, PIPELINE], "127.0.0.1", "two models are called pipeline"),
        ([PIPELINE.parent / "ngram"], "127.0.0.1", "ngram"),
    ],
)
def test_mistakes(refused: Callable[..., str], models: list[Path], host: str, word: str) -> None:
    given = " ".join(f"-m {path}" for path in models)
    refused(f"serve {given} --host {host} --port 0", word)
