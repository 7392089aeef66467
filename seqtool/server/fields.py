"""The fields of a request: of its address, and of a form or a JSON object, in bounded memory."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from itertools import chain
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

MAX_FIELDS = 50
FORM, PARTS, JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
_CHARSET = re.compile(r";\s*charset\s*=[^;]*", re.IGNORECASE)  # parts are UTF-8, whatever it says

Fields = dict[str, str]
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Attributes:
        num_bytes: of its body.
        num_sentences: in its text.
        seconds: until its body is whole, and then until it is answered.
    """

    num_bytes: int = 4 << 20
    num_sentences: int = 10_000
    seconds: float = 60.0


async def read_fields(request: Request, limits: Limits) -> Fields:
    """Return the fields of a request by name, those of its address and those of its body.

    Raises:
        HTTPException: the body is too slow, damaged or of no known type; a field is there twice, or
            is no text in UTF-8.
        ClientDisconnect: the client is gone.
    """
    pairs = _form(request.scope["query_string"])
    if request.method == "POST":
        header = request.headers.get("content-type", "")
        kind = header.partition(";")[0].strip().lower()
        if kind not in (FORM, PARTS, JSON):
            raise HTTPException(
                415, f"a body of type {kind[:80]!r}; send {FORM}, {PARTS} or {JSON}"
            )
        try:
            async with asyncio.timeout(limits.seconds):
                body = await request.body()
        except TimeoutError as error:
            what = f"the body was not whole after {limits.seconds:g} seconds; send it again"
            raise HTTPException(408, what, {"connection": "close"}) from error
        if kind == PARTS:
            pairs += await _parts(request, body)
        else:  # beside the event loop, as a large one takes a while
            pairs += await asyncio.to_thread(_form if kind == FORM else _members, body)
    fields: Fields = {}
    for name, value in pairs:
        if name in fields:
            raise HTTPException(400, f"the field {name[:40]!r} is there twice; send it once")
        if "\0" in value:
            raise HTTPException(400, "a field holds a NUL, so it is no text; send text in UTF-8")
        fields[name] = value.removeprefix("\ufeff")  # a byte order mark, as in files
    return fields


def _form(body: bytes) -> Pairs:
    """Return what is written as `name=value&name=value`, where bytes need not be escaped."""
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise HTTPException(400, f"no form in UTF-8: {error}") from error


async def _parts(request: Request, body: bytes) -> Pairs:
    """Return the parts of a multipart body, those that are files as well."""
    kind = _CHARSET.sub("", request.headers["content-type"])
    parser = MultiPartParser(
        Headers({"content-type": kind}),
        request.stream(),
        max_files=MAX_FIELDS,
        max_fields=MAX_FIELDS,
        max_part_size=len(body),
    )
    parser.spool_max_size = len(body) + 1  # in memory, never on a disk
    try:
        body.decode()
        form = await parser.parse()
    except (UnicodeError, MultiPartException) as error:
        raise HTTPException(400, f"no multipart/form-data in UTF-8: {error}") from error
    pairs = [
        (name, (await part.read()).decode() if isinstance(part, UploadFile) else part)
        for name, part in form.multi_items()
    ]
    await form.close()
    return pairs


def _members(body: bytes) -> Pairs:
    """Return the members of a JSON object of strings."""
    try:
        members = json.loads(body, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"no JSON in UTF-8: {error}") from error
    try:
        if not isinstance(members, tuple):
            raise TypeError
        "".join(chain.from_iterable(members)).encode()  # half of a surrogate pair is no text
    except (TypeError, UnicodeError) as error:
        raise HTTPException(400, "the body is no JSON object of strings; send one") from error
    return list(members)
