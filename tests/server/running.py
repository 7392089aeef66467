"""A server that runs beside the test, on a port of its own, and ways to ask it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from seqtool.server.connection import listening, server_of
from seqtool.server.served import open_models
from seqtool.server.service import Limits, Service

PIPELINE = Path(__file__).resolve().parents[1] / "kept" / "pipeline"
LIMITS = Limits(num_bytes=100_000, num_sentences=50, seconds=20)
ALL = {"tokenizer": "", "tagger": "", "parser": ""}


class Running:
    """A server at `url`; `log` has a line for each request, `model` is the first one."""

    def __init__(self, port: int, model: Any) -> None:
        self.url, self.port, self.model = f"http://127.0.0.1:{port}", port, model
        self.log: list[str] = []

    def post(self, **fields: str) -> httpx.Response:
        return httpx.post(f"{self.url}/process", data=fields, timeout=60)

    def result(self, **fields: str) -> str:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return str(answer["result"])


@contextmanager
def running(*paths: Path, limits: Limits = LIMITS) -> Iterator[Running]:
    models = open_models(paths)
    with listening("127.0.0.1", 0) as sock:
        started = Running(sock.getsockname()[1], next(iter(models.values())).model)
        service = Service(models, limits, started.log.append, ["parser.example"])
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
