"""The fields of a request: of its address, and of a form, in bounded memory and time.

A form is `application/x-www-form-urlencoded` or `multipart/form-data`. What a client sends as a
file is a field like any other: nothing is written to a disk, and no name of a file is looked at.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from seqtool.server.jobs import Limits
from seqtool.server.refusal import Refusal

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_FIELDS = 50
# of a body that is too large, so much is read, in bodies of the largest size: a client that is
# answered before it has sent all may see a broken connection, and no answer
DRAINED = 64

Fields = dict[str, str]


class Held:
    """How many bytes of bodies all requests hold, and how many they may.

    Args:
        limits: see `Limits`.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.num_bytes = 0


class Reserve:
    """The bytes that one request holds; as a context manager, until the end of the block."""

    def __init__(self, held: Held) -> None:
        self._held, self._num_bytes = held, 0
        self.limits = held.limits

    def __enter__(self) -> Reserve:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def add(self, num_bytes: int) -> None:
        """Count more bytes.

        Raises:
            Refusal: there are too many, in this request or in all.
        """
        self._num_bytes += num_bytes
        self._held.num_bytes += num_bytes
        if self._num_bytes > self.limits.num_bytes:
            raise too_large(self.limits)
        if self._held.num_bytes > self.limits.held_bytes:
            raise Refusal(429, "the requests that wait are too large; try again in a second")

    def clear(self) -> None:
        """Count none."""
        self._held.num_bytes -= self._num_bytes
        self._num_bytes = 0


def too_large(limits: Limits) -> Refusal:
    """Return the refusal of a body of too many bytes."""
    most = f"{limits.num_bytes / (1 << 20):g} MB"
    return Refusal(413, f"the request has more than {most}; send the text in parts")


async def read_fields(request: Request, reserve: Reserve) -> Fields:
    """Return the fields of a request by name; those of a form come before those of its address.

    Raises:
        Refusal: the body is too large, too slow, not whole, or no form; a field is not UTF-8.
        ClientDisconnect: the client is gone.
    """
    pairs = _pairs(request.scope["query_string"])
    if request.method == "POST":
        header = request.headers.get("content-type", "")
        kind, options = parse_options_header(header)
        if kind not in (FORM.encode(), MULTIPART.encode()):
            what = f"a body of type {header[:80]!r}" if header else "a body without a type"
            raise Refusal(415, f"{what} is no form; send {FORM} or {MULTIPART}")
        body = await _body(request, reserve)
        is_whole = kind == MULTIPART.encode()
        pairs += _parts(body, options.get(b"boundary", b"")) if is_whole else _pairs(body)
    return {_text(name, b"its name"): _text(value, name) for name, value in pairs}


async def _body(request: Request, reserve: Reserve) -> bytes:
    limits = reserve.limits
    length = request.headers.get("content-length", "")
    is_announced = length.isdecimal() and int(length) > limits.num_bytes
    refusal = too_large(limits) if is_announced else None
    if refusal is not None and "expect" in request.headers:  # it waits for leave to send the body
        raise refusal
    pieces: list[bytes] = []
    num_drained = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for piece in request.stream():
                if refusal is None:
                    try:
                        reserve.add(len(piece))
                        pieces.append(piece)
                    except Refusal as error:
                        refusal = error
                        pieces.clear()
                        reserve.clear()
                num_drained += len(piece)
                if num_drained > DRAINED * limits.num_bytes:
                    break
    except TimeoutError as error:
        most = f"{limits.body_seconds:g} seconds"
        raise Refusal(408, f"the body was not whole after {most}; send it again") from error
    if refusal is not None:
        raise refusal
    return b"".join(pieces)


def _pairs(query: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values of what is written as `name=value&name=value`."""
    texts = [text for text in query.split(b"&") if text]
    if len(texts) > MAX_FIELDS:
        raise _too_many()
    pairs = (text.replace(b"+", b" ").partition(b"=") for text in texts)
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in pairs]


def _too_many() -> Refusal:
    return Refusal(400, f"the request has more than {MAX_FIELDS} fields")


def _parts(body: bytes, boundary: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values of the parts of a multipart body."""
    pairs: list[tuple[bytes, bytes]] = []
    headers: dict[bytes, bytes] = {}
    name, header, value = b"", bytearray(), bytearray()
    is_whole = False

    def on_header_field(data: bytes, begin: int, end: int) -> None:
        nonlocal name
        name += data[begin:end]

    def on_header_value(data: bytes, begin: int, end: int) -> None:
        header.extend(data[begin:end])

    def on_header_end() -> None:
        nonlocal name
        headers[name.lower()] = bytes(header)
        name = b""
        header.clear()

    def on_part_data(data: bytes, begin: int, end: int) -> None:
        value.extend(data[begin:end])

    def on_part_end() -> None:
        _, options = parse_options_header(headers.get(b"content-disposition", b""))
        if b"name" not in options:
            raise Refusal(400, "a part of the form has no name")
        if len(pairs) == MAX_FIELDS:
            raise _too_many()
        pairs.append((options[b"name"], bytes(value)))
        headers.clear()
        value.clear()

    def on_end() -> None:
        nonlocal is_whole
        is_whole = True

    try:
        parser = MultipartParser(
            boundary,
            {
                "on_header_field": on_header_field,
                "on_header_value": on_header_value,
                "on_header_end": on_header_end,
                "on_part_data": on_part_data,
                "on_part_end": on_part_end,
                "on_end": on_end,
            },
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise Refusal(400, f"the body is no {MULTIPART}: {error}") from error
    if not is_whole:
        raise Refusal(400, f"the body is no whole {MULTIPART}; its last boundary is missing")
    return pairs


def _text(value: bytes, name: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        shown = name[:40].decode("ascii", "backslashreplace")
        what = f"field {shown} is not UTF-8 at byte {error.start}"
        raise Refusal(400, f"{what}; send the text in UTF-8") from error
    if "\0" in text:
        raise Refusal(400, "a field holds a NUL, so it is no text; send the text in UTF-8")
    return text.removeprefix("\ufeff")  # a byte order mark, as in files
