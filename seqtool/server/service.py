"""What a server answers: UDPipe's REST interface, as far as its clients use it, and a page.

    GET        /health     whether it answers
    GET        /models     the models, and which steps each can do
    GET, POST  /process    a text, or sentences, to tags and trees
    GET, POST  /           a page on which one types a text and sees its trees

The fields of `/process` are those of UDPipe's own service: `data`, `model`, `tokenizer`, `tagger`,
`parser`, `input` and `output`; see https://lindat.mff.cuni.cz/services/udpipe/api-reference.php.
Nobody reads or writes a file through it.

One thread works for all: on a slice of one request's text, then on one of the next request's. So a
long text keeps no short one waiting.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from seqtool.core.errors import SeqtoolError, counted, did_you_mean
from seqtool.core.terminal import json_text
from seqtool.core.version import __version__
from seqtool.server.page import MAX_DRAWN, page_of
from seqtool.server.served import OUTPUTS, STEPS, ServedModel, find_model
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.layouts import LAYOUTS, read_layout
from seqtool.treebank.sentence import Sentence

PRESEGMENTED = "presegmented"
INPUTS = ("conllu", *LAYOUTS)
FIELDS = ("data", "model", *STEPS, "input", "output")
MAX_FIELDS = 50
METHODS = ("GET", "POST")
LOCAL = ("localhost", "127.0.0.1", "::1")
MAX_SENTENCE_WORDS = 1000
PIECE, BATCH = 1 << 14, 1 << 12  # characters that are looked at, and split, together
SLICE_WORDS = 1024  # that are annotated together, about
MultiPartParser.spool_max_size = 1 << 30  # what is sent stays in memory, never on a disk

Fields = dict[str, str]
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Attributes:
        num_bytes: of its body.
        num_sentences: in its text.
        seconds: until it is answered.
    """

    num_bytes: int = 4 << 20
    num_sentences: int = 10_000
    seconds: float = 60.0


class Service:
    """The application, which an ASGI server runs.

    Args:
        models: by name; the first one is the default.
        limits: of a request.
        log: called with a line on each request: who asked what, and what became of it; no text.
        names: of hosts that it answers to, beside this machine's own for itself.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        limits: Limits,
        log: Callable[[str], object] = lambda line: None,
        names: Iterable[str] = (),
    ) -> None:
        self._models, self._limits, self._log = models, limits, log
        self._names = {*LOCAL, *(name.lower() for name in names)}
        self._worker = ThreadPoolExecutor(1)
        errors = (HTTPException, SeqtoolError, TimeoutError, ClientDisconnect, Exception)
        self._app = Starlette(
            routes=[
                Route("/health", self._health, methods=METHODS),
                Route("/models", self._list, methods=METHODS),
                Route("/process", self._process, methods=METHODS),
                Route("/", self._page, methods=METHODS),
            ],
            exception_handlers=dict.fromkeys(errors, _refused),
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless it is not for this server."""
        request, begin, size = Request(scope), time.monotonic(), 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            self._check_size(request, size)
            return message

        async def logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                client = request.client.host if request.client else "-"
                path = scope["raw_path"].decode("ascii", "backslashreplace")[:80]
                what = f"{client} {request.method} {path} {message['status']}"
                self._log(f"{what} {1000 * (time.monotonic() - begin):.1f} ms")
            await send(message)

        try:
            self._check(request)
        except HTTPException as error:
            await _refused(request, error)(scope, receive, logged)
        else:
            await self._app(scope, limited, logged)

    def _check_size(self, request: Request, num_bytes: int) -> None:
        """Raise an HTTPException if a request is too large."""
        if num_bytes > self._limits.num_bytes:
            most = f"{self._limits.num_bytes / (1 << 20):g} MB"
            # what waits for leave to send its body is not to send it
            headers = {"connection": "close"} if "expect" in request.headers else None
            what = f"the request has more than {most}; send the text in parts"
            raise HTTPException(413, what, headers)

    def _check(self, request: Request) -> None:
        """Raise an HTTPException if a request is too large, or a page from elsewhere sends it.

        Such a page can have a name of its own lead to this machine (DNS rebinding), and so read
        what is answered to it. An address that the client has reached is no such name.
        """
        headers = request.headers
        # no origin ("null") and no host have the name ""
        names = {*self._names, (request.scope["server"] or ("",))[0]} - {""}
        host, origin = headers.get("host", ""), headers.get("origin")
        if _name_of(host) not in names:
            what = f"this server is not asked as {host[:80]!r}; start it with --allow-host NAME"
            raise HTTPException(400, what)
        if origin is not None and _name_of(origin.partition("://")[2]) not in names:
            raise HTTPException(403, f"pages of {origin[:80]!r} may not ask this server")
        self._check_size(request, int(headers.get("content-length", 0)))

    async def _health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def _list(self, request: Request) -> Response:
        models = {name: model.steps for name, model in self._models.items()}
        return _json({"models": models, "default_model": next(iter(models))})

    async def _process(self, request: Request) -> Response:
        fields = await self._read(request)
        for field in fields:
            _check_known("field", field, FIELDS)
        model = self._model(fields.get("model", ""))
        output = fields.get("output", "") or "conllu"
        _check_known("output", output, OUTPUTS)
        if "data" not in fields:
            raise HTTPException(400, "the field data is missing; it holds the text")
        sentences = await self._annotate(request, model, fields, self._limits.num_sentences)
        text = "".join(map(OUTPUTS[output], sentences))
        made_by = [f"seqtool {__version__}"]
        return _json({"model": model.name, "acknowledgements": made_by, "result": text})

    async def _page(self, request: Request) -> Response:
        fields = await self._read(request)
        text, name = fields.get("data", ""), fields.get("model", "")
        able = [key for key, one in self._models.items() if {"tokenizer", "parser"} <= {*one.steps}]
        sentences: list[Sentence] = []
        reason, status = "", 200
        try:
            if text.strip():
                if not able:
                    raise HTTPException(400, "no model here splits and parses text")
                wanted = {"data": text, "tokenizer": "", "parser": ""}
                model = self._model(name or able[0])
                sentences = await self._annotate(request, model, wanted, MAX_DRAWN)
        except HTTPException as error:
            reason, status = error.detail, error.status_code
        pieces = page_of(sentences, text, able, name, reason)
        return HTMLResponse(await asyncio.to_thread("".join, pieces), status)

    async def _read(self, request: Request) -> Fields:
        """Return the fields of a request, or raise HTTPException of what is no form or JSON."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                pairs = await _pairs(request)
            fields = dict(pairs)
            "".join(fields.values()).encode()  # half of a surrogate pair is no text
        except (ValueError, RecursionError) as error:
            what = f"no form and no JSON, in UTF-8: {error}"
            raise HTTPException(400, what) from error
        if len(fields) < len(pairs):
            raise HTTPException(400, "a field is there twice; send each once")
        if any("\0" in value for value in fields.values()):
            raise HTTPException(400, "a field holds a NUL, so it is no text; send text in UTF-8")
        # a byte order mark, as in files
        return {name: value.removeprefix("\ufeff") for name, value in fields.items()}

    def _model(self, name: str) -> ServedModel:
        model = find_model(self._models, name)
        if model is None:
            hint = did_you_mean(name, self._models)
            raise HTTPException(400, f"no model is called {name[:80]!r}; {hint}")
        return model

    async def _annotate(
        self, request: Request, model: ServedModel, fields: Fields, max_sentences: int
    ) -> list[Sentence]:
        """Return the sentences that are asked for.

        Raises:
            HTTPException: the model cannot do it, nobody knows such an input, or it is too much.
            DataError: the input is damaged.
            ClientDisconnect: the client is gone.
        """
        slices = _slices(model, fields, max_sentences)
        sentences: list[Sentence] = []
        part: list[Sentence]
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limits.seconds):
            while True:
                part = await loop.run_in_executor(self._worker, next, slices, [])
                sentences += part
                if sum(map(len, part)) < SLICE_WORDS:  # it was the last
                    return sentences
                if await request.is_disconnected():
                    raise ClientDisconnect


async def _pairs(request: Request) -> Pairs:
    """Return names and values of fields, those of the address first."""
    pairs: Pairs = _form(request.scope["query_string"].decode())
    if request.method != "POST":
        return pairs
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    text = body.decode()
    if kind == "application/x-www-form-urlencoded":
        # bytes need not be escaped, which Starlette's own parser asks for
        return pairs + _form(text)
    if kind == "application/json":
        return pairs + _object(text)
    if kind != "multipart/form-data":
        raise HTTPException(415, f"a body of type {kind[:80]!r}; send a form or JSON")
    most = {"max_files": MAX_FIELDS, "max_fields": MAX_FIELDS, "max_part_size": len(body)}
    async with request.form(**most) as form:
        for name, part in form.multi_items():
            if isinstance(part, UploadFile):
                part = (await part.read()).decode()
            pairs.append((name, part))
    return pairs


def _object(text: str) -> Pairs:
    """Return the fields of a JSON object, in which a step may also be true or false."""
    pairs = json.loads(text, object_pairs_hook=tuple)  # to see a field that is there twice
    if not isinstance(pairs, tuple):
        raise HTTPException(400, 'the JSON is no object; send one, as {"data": "A text."}')
    fields = []
    for name, value in pairs:
        if name in STEPS and isinstance(value, bool):
            fields += [(name, "")] * value
        elif isinstance(value, str):
            fields.append((name, value))
        else:
            what = f"the field {name[:40]} of the JSON object is no text; send a string"
            raise HTTPException(400, what)
    return fields


_form = partial(parse_qsl, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)


def _slices(model: ServedModel, fields: Fields, max_sentences: int) -> Iterator[list[Sentence]]:
    """Give annotated sentences, about SLICE_WORDS at a time; see `Service._annotate`."""
    steps = [step for step in STEPS if step in fields]
    for step in steps:
        if step not in model.steps:
            able = ", ".join(model.steps)
            raise HTTPException(400, f"model {model.name} has no {step}; it has: {able}")
        known = ("", PRESEGMENTED) if step == "tokenizer" else ("",)
        _check_known(step, fields[step].strip(";"), known)
    part: list[Sentence] = []
    sentences = _split(model, fields) if "tokenizer" in steps else _sentences(fields)
    for number, sentence in enumerate(sentences, start=1):
        if number > max_sentences:
            most = counted(max_sentences, "sentence")
            raise HTTPException(413, f"the text has more than {most}; send it in parts")
        if len(sentence) > MAX_SENTENCE_WORDS:
            most = counted(MAX_SENTENCE_WORDS, "word")
            raise HTTPException(413, f"sentence {number} has more than {most}; split it")
        part.append(sentence)
        if sum(map(len, part)) >= SLICE_WORDS:
            yield list(model.annotate(part, steps))
            part = []
    if part:
        yield list(model.annotate(part, steps))


def _split(model: ServedModel, fields: Fields) -> Iterator[Sentence]:
    """Return the sentences of plain text."""
    text = fields["data"]
    # not all at once, as looking for paragraphs in all of it would take its time
    pieces = (text[i : i + PIECE] for i in range(0, len(text), PIECE))
    unit = "line" if PRESEGMENTED in fields["tokenizer"] else "paragraph"
    sentences: Iterator[Sentence] = model.model.segment(pieces, unit=unit, batch=BATCH)
    return sentences


def _sentences(fields: Fields) -> Iterator[Sentence]:
    """Return sentences that are split already."""
    data, layout = fields["data"], fields.get("input", "") or "conllu"
    _check_known("input", layout, INPUTS)
    if layout in LAYOUTS:
        return read_layout(data.split("\n"), LAYOUTS[layout])
    return iter(read_conllu(data.encode(), check="columns", skip_option=""))


def _check_known(field: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        what = f"{field}={name[:40]} is not known; {did_you_mean(name[:40], known)}"
        raise HTTPException(400, what)


def _name_of(host: str) -> str:
    """Return the name or address of a host, without its port; "" where there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if "@" not in host else ""
    except ValueError:
        return ""


def _json(value: Any) -> Response:
    return Response(json_text(value) + "\n", media_type="application/json")


def _refused(request: Request, error: Exception) -> Response:
    """Return one line that says what happened, and the next step."""
    status, headers = 400, None
    if isinstance(error, HTTPException):
        status, reason, headers = error.status_code, error.detail, error.headers
    elif isinstance(error, SeqtoolError):
        reason = f"{error}; {error.hint}" if error.hint else f"{error}"
    elif isinstance(error, TimeoutError):
        status, reason = 413, "not done in time (--max-seconds); send less text at a time"
    elif isinstance(error, ClientDisconnect):
        status, reason = 499, "the client is gone"  # for the log
    else:
        status, reason = 500, f"{type(error).__name__}: {error}; this is a bug of seqtool"
    return PlainTextResponse(" ".join(reason.split()) + "\n", status, headers)
