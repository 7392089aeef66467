"""The socket of a server, and how it runs until a signal ends it."""

from __future__ import annotations

import socket
from threading import Thread
from typing import Any

import uvicorn

from seqtool.core.errors import ConfigError
from seqtool.core.signals import Interruption

MAX_CONNECTIONS = 256  # each may hold a request of the largest size
# of every answer, whoever asked; a page that is elsewhere cannot read it, nor show it in a frame
HEADERS = {
    "x-content-type-options": "nosniff",
    # no address goes elsewhere; to the server itself the page tells its origin, which is checked
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
}


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: a name or address of this machine.
        port: 0 for any that is free.

    Raises:
        ConfigError: it cannot.
    """
    sock = None
    try:
        # asyncio sends what is short at once only where it sees that the protocol is TCP
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen()
    except OSError as error:
        if sock is not None:
            sock.close()
        what = f"nothing can listen on port {port} of {host}: {error.strerror or error}"
        hint = "choose another --port (0 is any that is free) or --host"
        raise ConfigError(what, hint=hint) from error
    return sock


def server_of(app: Any, *, seconds: float) -> uvicorn.Server:
    """Return a server that runs an application.

    Args:
        app: by ASGI.
        seconds: for which the end waits for requests that have come.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=list(HEADERS.items()),
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=round(seconds),
    )
    return uvicorn.Server(config)


def run_until_signal(server: uvicorn.Server, sock: socket.socket) -> None:
    """Run a server; a first signal ends it once all requests are answered, a second one raises."""
    interruption = Interruption()
    # uvicorn handles signals by itself where it runs in the main thread, and sends them again
    thread = Thread(target=server.run, args=([sock],), daemon=True)
    with interruption.listening():
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            server.should_exit |= interruption.requested
