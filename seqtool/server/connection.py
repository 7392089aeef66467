"""The connections of a server: what a client may keep waiting, and how all of it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seqtool.core.errors import ConfigError
from seqtool.core.signals import Interruption
from seqtool.server.service import HEADERS

IDLE_SECONDS = 15  # between two requests of a client
BACKLOG = 128  # connections that nobody has taken yet


class Connection(H11Protocol):
    """A connection whose client sends each request, and reads each answer, within some time.

    uvicorn waits for the end of a request's head, and for a client to read, as long as it takes.

    Attributes:
        seconds: for a head, and for the last answer to be read; of a class of its own, as uvicorn
            is given no more than the class.
    """

    seconds = 30.0

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take some more of a request."""
        super().data_received(data)
        self._watch()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a client that sends no more: half a request is none, a whole one is answered.

        Returns:
            Whether the connection stays open, until there is an answer.
        """
        if self._waits_for_head:
            if self.conn.trailing_data[0]:
                self._refuse(400, "the head of the request is not whole; send it again")
            return None
        if self.cycle.more_body:
            self._refuse(400, "the body of the request is not whole; send it again")
            return None
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait until the client has read the answer."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.seconds, self._abort_if_unread)

    def _watch(self) -> None:
        """Set a time for the head of a request that has begun, and no other."""
        if not self._waits_for_head:
            self._forget_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._head_is_late)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        if self._waits_for_head and not self.transport.is_closing():
            most = f"{self.seconds:g} seconds"
            self._refuse(408, f"no request within {most}; send it again")

    def _refuse(self, status: int, message: str) -> None:
        """Send the line of a refusal past uvicorn, which knows of no request, and close."""
        body = f"{message}\n".encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{name}: {value}" for name, value in HEADERS.items()),
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()

    def _abort_if_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()


class Server(uvicorn.Server):
    """uvicorn's server, which a first signal ends once all requests are answered.

    A second one raises, as everywhere.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._interruption = Interruption()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Note a first signal while the block runs."""
        with self._interruption.listening():
            yield

    async def on_tick(self, counter: int) -> bool:
        """Whether the server is to end."""
        return await super().on_tick(counter) or self._interruption.requested


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: a name or address of this machine.
        port: 0 for any that is free.

    Raises:
        ConfigError: it cannot.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # asyncio sends what is short at once only where it sees that the protocol is TCP
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        what = f"nothing can listen on {host}: {error.strerror or error}"
        raise ConfigError(what, hint="leave --host out for this machine alone") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        what = f"nothing can listen on port {port} of {host}: {error.strerror or error}"
        raise ConfigError(what, hint="choose another --port; 0 is any that is free") from error
    return sock


def server_of(app: Any, *, body_seconds: float, seconds: float) -> Server:
    """Return a server that runs an application.

    Args:
        app: by ASGI.
        body_seconds: in which a client must send a request, or read an answer.
        seconds: in which a request is answered; so long is its end waited for.
    """

    class Bounded(Connection):
        seconds = body_seconds

    config = uvicorn.Config(
        app,
        http=Bounded,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=round(seconds + body_seconds),
    )
    return Server(config)
