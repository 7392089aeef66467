"""Fetching one file: resumed where it stopped, checked by its SHA-256, renamed when complete.

While a file comes in, two files lie beside its destination:

    NAME.part       the bytes so far
    NAME.part.json  their URL and the validator (ETag or date) under which the server gave them

A later call sends the validator in `If-Range`, so that a server whose file has changed starts anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any

from seqtool.core.errors import DownloadError, from_os_error
from seqtool.core.version import __version__

Progress = Callable[[int, int | None], None]

_CHUNK_BYTES = 1 << 16
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_NO_NETWORK = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_NETWORK_HINT = "check the network and the proxy settings, then run the command again"


class _Transient(Exception):
    """A failure that may pass: the download goes on after a pause of at least `pause` seconds."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class _Restart(Exception):
    """The partial file is of no use: the download starts at the first byte."""


@dataclass
class _Request:
    url: str
    part: Path
    size: int | None
    timeout: float
    on_progress: Progress
    received: int = 0  # bytes that came in during this call
    resumed: bool = False  # whether the partial file holds bytes of more than one answer

    @property
    def state_path(self) -> Path:
        return self.part.with_name(self.part.name + ".json")

    def error(self, message: str, hint: str) -> DownloadError:
        return DownloadError(message, hint=hint, path=self.url)


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(
    url: str,
    destination: str | Path,
    *,
    sha256: str,
    size: int | None = None,
    on_progress: Progress | None = None,
    timeout: float = 30.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch `url` to the file `destination`, unless the right file is there already.

    An interrupted download goes on where it stopped. After a failure that may pass (a dropped
    connection, a time-out, 503) it is tried again, five times in all, with growing pauses. Proxies
    are taken from the environment. The file is verified and flushed before it gets its name.

    Args:
        url: http or https.
        destination: the file to write; its directory is made.
        sha256: the expected SHA-256, in hexadecimal.
        size: the expected size in bytes, where known.
        on_progress: called with the bytes so far and the total in bytes, or None if it is unknown.
        timeout: seconds without any data after which the connection counts as broken.
        sleep: waits for a number of seconds.

    Raises:
        DownloadError: no network, an answer such as 404, or a file that is not the expected one.
        OutputError: the file cannot be written (a full disk).
    """
    if not url.startswith(("http://", "https://")):
        raise DownloadError("not an http or https address", hint="check it", path=url)
    target = Path(destination)
    sha256 = sha256.lower()
    part = target.with_name(target.name + ".part")
    request = _Request(url, part, size, timeout, on_progress or (lambda done, total: None))
    try:
        if target.is_file() and sha256_of(target) == sha256:
            request.on_progress(target.stat().st_size, target.stat().st_size)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch_verified(request, sha256, sleep)
        _flush(part)
        os.replace(part, target)
        request.state_path.unlink(missing_ok=True)
    except OSError as error:
        # The unfinished file would only keep a full disk full.
        with contextlib.suppress(OSError):
            _discard(request)
        error.filename = error.filename or str(part)
        raise from_os_error(error) from error
    return target


def _fetch_verified(request: _Request, sha256: str, sleep: Callable[[float], None]) -> None:
    """Complete the partial file and verify it; a bad one that was resumed is fetched once more."""
    _fetch(request, sleep)
    found = sha256_of(request.part)
    if found != sha256 and request.resumed:
        _discard(request)
        _fetch(request, sleep)
        found = sha256_of(request.part)
    if found != sha256:
        _discard(request)
        raise request.error(
            f"not the expected file: its SHA-256 is {found}, expected {sha256}",
            "run the command again; if this stays, the file has changed at its source",
        )


def _fetch(request: _Request, sleep: Callable[[float], None]) -> None:
    """Fetch until the partial file is complete."""
    pause = _FIRST_PAUSE_S
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch_rest(request)
            return
        except _Restart:
            _discard(request)
        except _Transient as error:
            if attempt == _ATTEMPTS:
                raise request.error(f"{error} (tried {_ATTEMPTS} times)", _NETWORK_HINT) from error
            sleep(max(pause, min(error.pause, _LONGEST_PAUSE_S)))
            pause *= 2
    raise request.error("the server's file keeps changing", "run the command again later")


def _fetch_rest(request: _Request) -> None:
    """Ask for what is missing and append it to the partial file.

    Raises:
        _Transient: the connection broke; what came in is kept.
        _Restart: what is there does not fit the server's file.
        DownloadError: the server's answer is final.
    """
    start = _resume_point(request)
    request.resumed = start > 0
    if request.size is not None and start == request.size:
        return
    with _open(request, start) as response:
        total = _expected_total(request, response, start)
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
            request.resumed = False
        request.part.touch()
        _write_state(request, response.headers)
        with open(request.part, "r+b") as part:
            part.truncate(start)
            part.seek(start)
            done = start
            request.on_progress(done, total)
            while chunk := _read(response):
                done += len(chunk)
                request.received += len(chunk)
                if total is not None and done > total:
                    raise _unexpected_size(request, f"more than {total}", total)
                part.write(chunk)
                request.on_progress(done, total)
    if total is not None and done < total:
        raise _Transient(f"the connection ended after {done} of {total} bytes")


def _open(request: _Request, start: int) -> Any:
    headers = {"User-Agent": f"seqtool/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator := _read_state(request).get("validator"):
            headers["If-Range"] = validator
    try:
        # A new opener takes the proxies that the environment names now; urlopen keeps the first.
        return urllib.request.build_opener().open(
            urllib.request.Request(request.url, headers=headers), timeout=request.timeout
        )
    except urllib.error.HTTPError as error:
        with error:
            raise _from_status(request, error) from error
    except urllib.error.URLError as error:
        cause = error.reason if isinstance(error.reason, Exception) else error
        raise _from_network_error(request, cause) from error
    except (OSError, http.client.HTTPException) as error:
        raise _from_network_error(request, error) from error


def _read(response: IO[bytes]) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except http.client.IncompleteRead as error:
        raise _Transient("the connection ended early") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Transient(_describe(error)) from error


def _expected_total(request: _Request, response: Any, start: int) -> int | None:
    """Return the size of the whole file in bytes, as known beforehand or as the server says it."""
    total: int | None = None
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        match = re.match(r"bytes (\d+)-\d+/(\d+|\*)$", response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start:
            raise _Restart
        total = None if match[2] == "*" else int(match[2])
    elif (length := response.headers.get("Content-Length", "")).isdigit():
        total = int(length)
    if request.size is None:
        return total
    if total is not None and total != request.size:
        raise _unexpected_size(request, str(total), request.size)
    return request.size


def _unexpected_size(request: _Request, found: str, expected: int) -> DownloadError:
    _discard(request)
    return request.error(
        f"not the expected file: it has {found} bytes, expected {expected}",
        "a login page of the network may stand in between; open the address in a browser",
    )


def _from_status(request: _Request, error: urllib.error.HTTPError) -> Exception:
    reason = f"the server answered {error.code} {error.reason}".rstrip()
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return _Restart()
    if error.code in _TRANSIENT_STATUS:
        wait = error.headers.get("Retry-After", "")
        return _Transient(reason, float(wait) if wait.isdigit() else 0.0)
    hint = "the file may have moved; take it from a local copy or another source"
    if error.code == http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        hint = "set the user and password of the proxy in https_proxy"
    return request.error(reason, hint)


def _from_network_error(request: _Request, error: Exception) -> Exception:
    """Tell a machine without network (final) from a connection that broke (may pass)."""
    reason = _describe(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return request.error(reason, "check the clock and the certificates of this machine")
    absent = isinstance(error, socket.gaierror) or getattr(error, "errno", None) in _NO_NETWORK
    if absent and not request.received:
        return request.error(f"no connection: {reason}", _NETWORK_HINT)
    return _Transient(reason)


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the server was silent for too long"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason[:1].lower() + reason[1:])


def _resume_point(request: _Request) -> int:
    """Return how many bytes of the partial file can be kept."""
    try:
        start = request.part.stat().st_size
    except FileNotFoundError:
        return 0
    too_long = request.size is not None and start > request.size
    if too_long or _read_state(request).get("url") != request.url:
        _discard(request)
        return 0
    return start


def _read_state(request: _Request) -> dict[str, str]:
    try:
        state = json.loads(request.state_path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _write_state(request: _Request, headers: Message) -> None:
    # If-Range takes strong validators only.
    etag = headers.get("ETag", "")
    validator = etag if etag.startswith('"') else headers.get("Last-Modified", "")
    state = {"url": request.url, "validator": validator}
    request.state_path.write_text(json.dumps(state), encoding="utf-8")


def _discard(request: _Request) -> None:
    request.part.unlink(missing_ok=True)
    request.state_path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
