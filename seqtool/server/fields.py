"""The fields of a request: of its address, and of a form or a JSON object, in bounded memory.

What a client sends as a file of a form is a field like any other: nothing is written to a disk, and
no name of a file is looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote_to_bytes

from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File, parse_options_header
from starlette.requests import Request

from seqtool.server.jobs import Limits
from seqtool.server.refusal import Refusal

MAX_FIELDS = 50
SMALL = 1 << 16  # bytes of a body; a larger one is looked at beside the rounds, one at a time

Fields = dict[str, str]
Pairs = list[tuple[bytes, bytes]]

_beside = ThreadPoolExecutor(1)


async def read_fields(request: Request, limits: Limits) -> Fields:
    """Return the fields of a request by name, those of its address and those of its body.

    Raises:
        Refusal: the body is too large, too slow, or of no known type; there are too many fields;
            one is there twice, or is not UTF-8.
        ClientDisconnect: the client is gone.
    """
    pairs = _pairs(request.scope["query_string"], {})
    if request.method == "POST":
        header = request.headers.get("content-type", "")
        kind, options = parse_options_header(header)
        parse = PARSERS.get(kind.decode("latin-1"))
        if parse is None:
            what = f"a body of type {header[:80]!r}" if header else "a body without a type"
            raise Refusal(415, f"{what} is no form; send {', '.join(PARSERS)}")
        body = await _body(request, limits)
        if len(body) > SMALL:
            loop = asyncio.get_running_loop()
            pairs += await loop.run_in_executor(_beside, parse, body, options)
        else:
            pairs += parse(body, options)
    if len(pairs) > MAX_FIELDS:
        raise Refusal(400, f"the request has more than {MAX_FIELDS} fields")
    fields: Fields = {}
    for key, value in pairs:
        name = _text(key, b"its name")
        if name in fields:
            raise Refusal(400, f"the field {name[:40]!r} is there twice; send it once")
        fields[name] = _text(value, key)
    return fields


async def _body(request: Request, limits: Limits) -> bytes:
    most = f"{limits.num_bytes / (1 << 20):g} MB"
    # what waits for leave to send its body is not to send it
    refusal = Refusal(
        413,
        f"the request has more than {most}; send the text in parts",
        closes="expect" in request.headers,
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.num_bytes:
        raise refusal
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.num_bytes:
                    raise refusal
    except TimeoutError as error:
        what = f"the body was not whole after {limits.body_seconds:g} seconds; send it again"
        raise Refusal(408, what, closes=True) from error
    return bytes(body)


def _pairs(body: bytes, _: Mapping[bytes, bytes]) -> Pairs:
    """Return names and values of what is written as `name=value&name=value`."""
    texts = [text for text in body.split(b"&", MAX_FIELDS) if text]
    pairs = (text.replace(b"+", b" ").partition(b"=") for text in texts)
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in pairs]


def _parts(body: bytes, options: Mapping[bytes, bytes]) -> Pairs:
    """Return names and values of the parts of a multipart body."""
    pairs: Pairs = []
    ends: list[bool] = []

    def keep(name: bytes | None, value: bytes | None) -> None:
        pairs.append((name or b"", value or b""))
        if len(pairs) > MAX_FIELDS:
            raise FormParserError(f"more than {MAX_FIELDS} parts")

    def keep_file(file: File) -> None:
        file.file_object.seek(0)
        keep(file.field_name, file.file_object.read())

    try:
        parser = FormParser(
            "multipart/form-data",
            lambda field: keep(field.field_name, field.value),
            keep_file,
            lambda: ends.append(True),
            options.get(b"boundary", b""),
            config={"MAX_MEMORY_FILE_SIZE": len(body) + 1},  # in memory, never on a disk
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise Refusal(400, f"the body is no multipart/form-data: {error}") from error
    if not ends:
        raise Refusal(400, "the body is no whole multipart/form-data; its end is missing")
    return pairs


def _members(body: bytes, _: Mapping[bytes, bytes]) -> Pairs:
    """Return names and values of a JSON object of strings."""
    try:
        found = json.loads(body, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON: {error}") from error
    if not isinstance(found, tuple) or not all(isinstance(value, str) for _, value in found):
        raise Refusal(400, "the body is no JSON object of strings")
    return [(k.encode(errors="surrogatepass"), v.encode(errors="surrogatepass")) for k, v in found]


PARSERS: Mapping[str, Callable[[bytes, Mapping[bytes, bytes]], Pairs]] = {
    "application/x-www-form-urlencoded": _pairs,
    "multipart/form-data": _parts,
    "application/json": _members,
}


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
