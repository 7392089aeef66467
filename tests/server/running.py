"""A server that runs beside the test, on a port of its own, and ways to ask it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from seqtool.server.connection import listening, server_of
from seqtool.server.fields import Limits
from seqtool.server.served import ServedModels
from seqtool.server.service import Service

PIPELINE = Path(__file__).resolve().parents[1] / "kept" / "pipeline"
LIMITS = Limits(num_bytes=100_000, num_sentences=50, seconds=20)
ALL = {"tokenizer": "", "tagger": "", "parser": ""}


class Running:
    """A server at `url`; `log` has a line for each request."""

    def __init__(self, url: str, sock: socket.socket, models: ServedModels) -> None:
        self.url, self.models = url, models
        self.port = sock.getsockname()[1]
        self.log: list[str] = []

    def post(self, **fields: str) -> httpx.Response:
        return httpx.post(f"{self.url}/process", data=fields, timeout=60)

    def result(self, **fields: str) -> str:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return str(answer["result"])


@contextmanager
def running(*models: Path, limits: Limits = LIMITS) -> Iterator[Running]:
    served = ServedModels(models)
    with listening("127.0.0.1", 0) as sock:
        started = Running(f"http://127.0.0.1:{sock.getsockname()[1]}", sock, served)
        service = Service(served, limits, started.log.append, ["parser.example"])
        server = server_of(service, seconds=limits.seconds)
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield started
        finally:
            server.should_exit = True
            thread.join()
