"""The socket of a server, and what runs the application on it."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from seqtool.core.errors import ConfigError

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
    """Return a socket that listens on a name or address of this machine; port 0 is any free one.

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
    """Return what runs an ASGI application; its end waits so long for requests that have come."""
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
