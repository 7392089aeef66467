"""What a server answers: UDPipe's REST interface, as far as its clients use it, and a page.

    GET        /health     whether it answers
    GET        /models     the models, and which steps each can do
    GET, POST  /process    a text, or sentences, to tags and trees
    GET, POST  /           a page on which one types a text and sees its trees

The fields of `/process` are those of UDPipe's own service: `data`, `model`, `tokenizer`, `tagger`,
`parser`, `input` and `output`; see https://lindat.mff.cuni.cz/services/udpipe/api-reference.php.
Nobody reads or writes a file through it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from seqtool.core.errors import SeqtoolError, counted, did_you_mean
from seqtool.core.terminal import json_text
from seqtool.core.version import __version__
from seqtool.parsing.segmenter.characters import MAX_SENTENCE, MAX_WORD
from seqtool.parsing.segmenter.documents import Assembly
from seqtool.server.fields import Fields, Limits, read_fields
from seqtool.server.page import MAX_DRAWN, page_of
from seqtool.server.served import OUTPUTS, STEPS, ServedModel, ServedModels, Step
from seqtool.server.worker import Worker
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.layouts import LAYOUTS, read_layout
from seqtool.treebank.sentence import FORM, Sentence

PRESEGMENTED = "presegmented"
INPUTS = ("conllu", *LAYOUTS)
FIELDS = ("data", "model", *STEPS, "input", "output")
METHODS = ("GET", "POST")
LOCAL = ("localhost", "127.0.0.1", "::1")
GONE = 499  # in the log: the client went before there was an answer
MAX_SENTENCE_WORDS = 1000
# characters that are looked at together, those of a text that are split at a time, and of several
PIECE, BATCH, FULL = 1 << 14, 1 << 12, 1 << 14
SLICE_WORDS = 1024  # that are annotated together, about

T = TypeVar("T")


class Service:
    """The application, which an ASGI server runs.

    Args:
        models: that it has.
        limits: of a request.
        log: called with a line on each request: who asked what, and what became of it; no text.
        names: of hosts that it answers to, beside this machine's own for itself.
    """

    def __init__(
        self,
        models: ServedModels,
        limits: Limits,
        log: Callable[[str], object] = lambda line: None,
        names: Iterable[str] = (),
    ) -> None:
        self._models, self._limits, self._log = models, limits, log
        self._names = {*LOCAL, *(name.lower() for name in names)}
        self._worker = Worker()
        self._app = Starlette(
            routes=[
                Route("/health", self._health, methods=METHODS),
                Route("/models", self._list, methods=METHODS),
                Route("/process", self._process, methods=METHODS),
                Route("/", self._page, methods=METHODS),
            ],
            exception_handlers={
                HTTPException: _refused,
                SeqtoolError: _refused,
                ClientDisconnect: lambda request, error: Response(status_code=GONE),
                Exception: _refused,
            },
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
                what = f"{client} {request.method} {_path(request)} {message['status']}"
                milliseconds = 1000 * (time.monotonic() - begin)
                reason = getattr(request.state, "reason", "")
                self._log(f"{what} {milliseconds:.1f} ms{reason}")
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
        """Refuse a request whose end is not certain, and one that a page from elsewhere sends.

        Such a page can have a name of its own lead to this machine (DNS rebinding), and so read
        what is answered to it. An address that the client has reached is no such name.

        Raises:
            HTTPException: it is such a request, or too large.
        """
        headers = request.headers
        if "content-length" in headers and "transfer-encoding" in headers:
            what = "a request has a Content-Length or a Transfer-Encoding, and not both"
            raise HTTPException(400, what, {"connection": "close"})
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
        models = {name: list(model.steps) for name, model in self._models.by_name.items()}
        return _json({"models": models, "default_model": self._models.default.name})

    async def _process(self, request: Request) -> Response:
        fields = await read_fields(request, self._limits)
        for field in fields:
            _check_known("field", field, FIELDS)
        model = self._model(fields.get("model", ""))
        output = fields.get("output", "") or "conllu"
        _check_known("output", output, OUTPUTS)
        for step in ("tagger", "parser"):
            if fields.get(step):
                raise HTTPException(400, f"{step}={fields[step][:40]} is not known; leave it empty")
        if "data" not in fields:
            raise HTTPException(400, "the field data is missing; it holds the text")
        texts = await self._annotate(request, model, fields, OUTPUTS[output])
        answer = {
            "model": model.name,
            "acknowledgements": [f"seqtool {__version__}"],
            "result": "".join(texts),
        }
        return _json(answer)

    def _model(self, name: str) -> ServedModel:
        model = self._models.find(name)
        if model is None:
            hint = did_you_mean(name, self._models.by_name)
            raise HTTPException(400, f"no model is called {name[:80]!r}; {hint}")
        return model

    async def _annotate(
        self,
        request: Request,
        model: ServedModel,
        fields: Fields,
        write: Callable[[Sentence], T],
        *,
        max_sentences: int | None = None,
    ) -> list[T]:
        """Return what is asked for, each sentence as `write` gives it.

        Raises:
            HTTPException: the model cannot do it, nobody knows such an input, or it is too much.
            DataError: the input is damaged.
            ClientDisconnect: the client is gone.
        """
        steps: frozenset[Step] = frozenset(step for step in STEPS if step in fields)
        for step in steps:
            if step not in model.steps:
                able = ", ".join(model.steps)
                raise HTTPException(400, f"model {model.name} has no {step}; it has: {able}")
        max_sentences = max_sentences or self._limits.num_sentences
        done: list[T] = []
        part: list[Sentence] = []

        async def do_part() -> None:
            annotated = await self._worker.do(
                (len(done), len(fields["data"])), model.annotate, steps, part, SLICE_WORDS
            )
            done.extend(map(write, annotated))
            part.clear()

        sentences = self._split(model, fields) if "tokenizer" in steps else _read(fields)
        try:
            async with asyncio.timeout(self._limits.seconds), aclosing(sentences):
                async for sentence in sentences:
                    part.append(sentence)
                    _check_sentence(sentence, len(done) + len(part), max_sentences)
                    if sum(map(len, part)) >= SLICE_WORDS:
                        await do_part()
                        if await request.is_disconnected():
                            raise ClientDisconnect
                await do_part()
        except TimeoutError as error:
            what = f"not done within {self._limits.seconds:g} seconds; send less text at a time"
            raise HTTPException(413, what) from error
        return done

    async def _split(self, model: ServedModel, fields: Fields) -> AsyncGenerator[Sentence]:
        """Give the sentences of plain text."""
        text = fields["data"]
        options = [option for option in fields["tokenizer"].split(";") if option]
        for option in options:
            _check_known("tokenizer", option, (PRESEGMENTED,))
        if max(map(len, text.split()), default=0) > MAX_SENTENCE:
            most = f"{MAX_SENTENCE:,} characters"
            raise HTTPException(413, f"the text has more than {most} without a space; split it")
        # not all at once, as looking for paragraphs in all of it would take its time
        pieces = (text[i : i + PIECE] for i in range(0, len(text), PIECE))
        assembly = Assembly(pieces, unit="line" if options else "paragraph", batch=BATCH)
        num_done = 0
        while not assembly.is_done:
            rank, stretches = (num_done, len(text)), assembly.take()
            spans = await self._worker.do(rank, model.split, bool(options), stretches, FULL)
            for sentence in assembly.give(spans):
                num_done += 1
                yield sentence

    async def _page(self, request: Request) -> Response:
        fields = await read_fields(request, self._limits)
        text, name = fields.get("data", ""), fields.get("model", "")
        able = [
            key
            for key, model in self._models.by_name.items()
            if {"tokenizer", "parser"} <= set(model.steps)
        ]
        sentences: list[Sentence] = []
        reason, status = "", 200
        try:
            if text.strip():
                if not able:
                    raise HTTPException(400, "no model here splits and parses text")
                model = self._model(name or able[0])
                asked = {"data": text, "tokenizer": "", "parser": ""}
                sentences = await self._annotate(
                    request, model, asked, lambda sentence: sentence, max_sentences=MAX_DRAWN
                )
        except HTTPException as error:
            reason, status = error.detail, error.status_code
        pieces = page_of(sentences, text, able, name, reason)
        return HTMLResponse(await asyncio.to_thread("".join, pieces), status)


def _name_of(host: str) -> str:
    """Return the name or address of a host, without its port; "" where there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if "@" not in host else ""
    except ValueError:
        return ""


def _path(request: Request) -> str:
    """Return the path of a request as it was sent, so that it is part of one line."""
    path: bytes = request.scope["raw_path"]
    return path.decode("ascii", "backslashreplace")[:80]


async def _read(fields: Fields) -> AsyncGenerator[Sentence]:
    """Give sentences that are split already."""
    data, layout = fields["data"], fields.get("input", "") or "conllu"
    _check_known("input", layout, INPUTS)
    if layout in LAYOUTS:
        sentences = read_layout(data.split("\n"), LAYOUTS[layout])
    else:
        sentences = read_conllu(data.encode(), check="columns", skip_option="")
    for sentence in sentences:
        yield sentence


def _check_sentence(sentence: Sentence, number: int, max_sentences: int) -> None:
    if number > max_sentences:
        most = counted(max_sentences, "sentence")
        raise HTTPException(413, f"the text has more than {most}; send it in parts")
    if len(sentence) > MAX_SENTENCE_WORDS:
        most = counted(MAX_SENTENCE_WORDS, "word")
        raise HTTPException(413, f"sentence {number} has more than {most}; split it")
    if max(map(len, sentence.column(FORM))) > MAX_WORD:
        most = f"a word of more than {counted(MAX_WORD, 'character')}"
        raise HTTPException(413, f"sentence {number} has {most}; leave it out")


def _check_known(field: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        what = f"{field}={name[:40]} is not known; {did_you_mean(name[:40], known)}"
        raise HTTPException(400, what)


def _json(value: Any) -> Response:
    return Response(json_text(value) + "\n", media_type="application/json")


def _refused(request: Request, error: Exception) -> Response:
    """Return one line that says what happened, and the next step."""
    status, headers = 400, None
    if isinstance(error, HTTPException):
        status, reason, headers = error.status_code, error.detail, error.headers
        if status == 404:
            reason = f"{_path(request)} is not here; ask /process, /models or /"
        elif status == 405:
            reason = f"{request.method[:20]} is not answered; send {' or '.join(METHODS)}"
    elif isinstance(error, SeqtoolError):
        reason = f"{error}; {error.hint}" if error.hint else f"{error}"
    else:
        status, reason = 500, f"{type(error).__name__}: {error}; this is a bug of seqtool"
    reason = " ".join(reason.split())
    request.state.reason = f": {reason}"
    return PlainTextResponse(f"{reason}\n", status, headers)
