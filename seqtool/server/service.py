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
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from seqtool.core.errors import counted, did_you_mean
from seqtool.core.terminal import json_text
from seqtool.core.version import __version__
from seqtool.parsing.segmenter.characters import MAX_SENTENCE
from seqtool.server.fields import Fields, read_fields
from seqtool.server.jobs import Job, Limits, Rounds
from seqtool.server.page import MAX_DRAWN, Typed, page_of
from seqtool.server.refusal import Refusal
from seqtool.server.served import OUTPUTS, STEPS, ServedModel, ServedModels, Step
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.layouts import LAYOUTS, read_layout
from seqtool.treebank.sentence import Sentence

PRESEGMENTED = "presegmented"
INPUTS = ("conllu", *LAYOUTS)
FIELDS = ("data", "model", *STEPS, "input", "output")
METHODS = ("GET", "POST")
LOCAL = ("localhost", "127.0.0.1", "::1")
GONE = 499  # in the log: the client went before there was an answer


@dataclass(frozen=True)
class Answered:
    """What became of a request.

    Attributes:
        client: its address.
        method, path: of the request; no fields, as texts may be private.
        status: of HTTP.
        num_sentences, num_words: that were worked on.
        seconds: until there was an answer.
        reason: why there is none, else "".
    """

    client: str
    method: str
    path: str
    status: int
    num_sentences: int
    num_words: int
    seconds: float
    reason: str = ""

    def line(self) -> str:
        """Return it as a line of a log."""
        work = f"{counted(self.num_sentences, 'sentence')}, {counted(self.num_words, 'word')}, "
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{self.client} {self.method} {self.path} {self.status} "
            f"{work if self.num_words else ''}{1000 * self.seconds:.1f} ms{reason}"
        )


OnAnswer = Callable[[Answered], None]
Handler = Callable[[Request, Fields], Awaitable[Response]]


class Service:
    """The application, which an ASGI server runs.

    Args:
        models: that it has.
        limits: of a request.
        on_answer: called with what became of each request.
        names: of hosts that it answers to, beside this machine's own for itself.
    """

    def __init__(
        self,
        models: ServedModels,
        limits: Limits,
        on_answer: OnAnswer = lambda _: None,
        names: Iterable[str] = (),
    ) -> None:
        self._models, self._limits, self._on_answer = models, limits, on_answer
        self._names = {*LOCAL, *(name.lower() for name in names)}
        self._rounds = Rounds(limits)
        routes = [
            Route("/health", self._bounded(self._health), methods=METHODS),
            Route("/models", self._bounded(self._list), methods=METHODS),
            Route("/process", self._bounded(self._process), methods=METHODS),
            Route("/", self._bounded(self._page), methods=METHODS),
        ]
        self._app = Starlette(
            routes=routes, exception_handlers={HTTPException: self._no_such_address}
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless it is not for this server."""
        request = Request(scope)
        try:
            self._check(request)
        except Refusal as refusal:
            self._note(request, refusal.status, 0.0, refusal.message)
            await _refused(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        """Refuse a request whose end is not certain, and one that a page from elsewhere sends.

        Such a page can have a name of its own lead to this machine (DNS rebinding), and so read
        what is answered to it. An address that the client has reached is no such name.

        Raises:
            Refusal: it is such a request.
        """
        headers = request.headers
        if "content-length" in headers and "transfer-encoding" in headers:
            what = "a request has a Content-Length or a Transfer-Encoding, and not both"
            raise Refusal(400, what, closes=True)
        names = {*self._names, (request.scope["server"] or ("",))[0]}
        host, origin = headers.get("host", ""), headers.get("origin")
        if _name_of(host) not in names:
            what = f"this server is not asked as {host[:80]!r}; start it with --allow-host NAME"
            raise Refusal(400, what)
        if origin is not None and _name_of(origin.partition("://")[2]) not in names:
            raise Refusal(403, f"pages of {origin[:80]!r} may not ask this server")

    def _bounded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers a request by a handler, or with the line of a refusal."""

        async def answer(request: Request) -> Response:
            begin = time.monotonic()
            reason = ""
            try:
                response = await handler(request, await read_fields(request, self._limits))
            except Refusal as refusal:
                reason = refusal.message
                response = _refused(refusal)
            except ClientDisconnect:
                response, reason = Response(status_code=GONE), "the client went"
            except Exception as error:  # of whatever a model does: the others go on
                reason = f"{type(error).__name__}: {error}; this is a bug of seqtool"
                response = _refused(Refusal(500, reason))
            self._note(request, response.status_code, time.monotonic() - begin, reason)
            return response

        return answer

    def _note(self, request: Request, status: int, seconds: float, reason: str) -> None:
        """Tell what became of a request."""
        work = getattr(request.state, "job", None)
        client = request.client.host if request.client else "-"
        self._on_answer(
            Answered(
                client,
                request.method,
                _path(request),
                status,
                num_sentences=work.num_sentences if work else 0,
                num_words=work.num_words if work else 0,
                seconds=seconds,
                reason=reason,
            )
        )

    async def _no_such_address(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reason = f"{_path(request)} is not here; ask /process, /models or /"
        if error.status_code == 405:
            reason = f"{request.method[:20]} is not answered; send {' or '.join(METHODS)}"
        self._note(request, error.status_code, 0.0, "")
        response = _refused(Refusal(error.status_code, reason))
        response.headers.update(error.headers or {})
        return response

    async def _health(self, request: Request, fields: Fields) -> Response:
        return _json({"status": "ok"})

    async def _list(self, request: Request, fields: Fields) -> Response:
        models = {name: list(model.steps) for name, model in self._models.by_name.items()}
        return _json({"models": models, "default_model": self._models.default.name})

    async def _process(self, request: Request, fields: Fields) -> Response:
        for field in fields:
            if field not in FIELDS:
                hint = did_you_mean(field[:40], FIELDS)
                raise Refusal(400, f"the field {field[:40]!r} is not known; {hint}")
        model = self._model(fields.get("model", ""))
        steps = frozenset(step for step in STEPS if step in fields)
        output = fields.get("output", "") or "conllu"
        _check_known("output", output, OUTPUTS)
        for step in ("tagger", "parser"):
            if fields.get(step):
                raise Refusal(400, f"{step}={fields[step][:40]} is not known; leave it empty")
        if "data" not in fields:
            raise Refusal(400, "the field data is missing; it holds the text")
        write, pieces = OUTPUTS[output], list[str]()
        job = self._job(model, steps, fields, keep=lambda sentence: pieces.append(write(sentence)))
        await self._do(request, job)
        answer = {
            "model": model.name,
            "acknowledgements": [f"seqtool {__version__}"],
            "result": "".join(pieces),
        }
        return _json(answer)

    def _model(self, name: str) -> ServedModel:
        model = self._models.find(name)
        if model is None:
            hint = did_you_mean(name, self._models.by_name)
            raise Refusal(400, f"no model is called {name[:80]!r}; {hint}")
        return model

    def _job(
        self,
        model: ServedModel,
        steps: frozenset[Step],
        fields: Fields,
        *,
        keep: Callable[[Sentence], object],
        limits: Limits | None = None,
    ) -> Job:
        """Return what is to be done.

        Raises:
            Refusal: the model cannot do a step, or nobody knows such an input.
        """
        for step in steps:
            if step not in model.steps:
                able = ", ".join(model.steps)
                raise Refusal(400, f"model {model.name} has no {step}; it has: {able}")
        data = fields["data"]
        limits = limits or self._limits
        if "tokenizer" in steps:
            options = [option for option in fields["tokenizer"].split(";") if option]
            for option in options:
                _check_known("tokenizer", option, (PRESEGMENTED,))
            if max(map(len, data.split()), default=0) > MAX_SENTENCE:
                most = f"{MAX_SENTENCE:,} characters"
                raise Refusal(413, f"the text has more than {most} without a space; split it")
            is_presegmented = bool(options)
            return Job(model, steps, data, keep, limits, presegmented=is_presegmented)
        layout = fields.get("input", "") or "conllu"
        _check_known("input", layout, INPUTS)
        source: Iterable[Sentence]
        if layout in LAYOUTS:
            source = read_layout(data.split("\n"), LAYOUTS[layout])
        else:
            source = read_conllu(data.encode(), check="columns", skip_option="")
        return Job(model, steps, source, keep, limits)

    async def _do(self, request: Request, job: Job) -> None:
        """Wait until a job is done, or its client is gone.

        Raises:
            Refusal: it cannot be done.
            ClientDisconnect: the client is gone.
        """
        request.state.job = job
        answer = self._rounds.submit(job)
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            answer.result()
        finally:
            answer.cancel()
            gone.cancel()

    async def _page(self, request: Request, fields: Fields) -> Response:
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
                    raise Refusal(400, "no model here splits and parses text")
                model = self._model(name or able[0])
                limits = replace(self._limits, num_sentences=MAX_DRAWN)
                steps: frozenset[Step] = frozenset(("tokenizer", "parser"))
                given = {"data": text, "tokenizer": ""}
                job = self._job(model, steps, given, keep=sentences.append, limits=limits)
                await self._do(request, job)
        except Refusal as refusal:
            reason, status, sentences = refusal.message, refusal.status, []
        pieces: list[str] = []
        for piece in page_of(sentences, Typed(text, able, name, reason)):
            pieces.append(piece)
            await asyncio.sleep(0)  # drawing takes its time, too: others have theirs between
        return HTMLResponse("".join(pieces), status)


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


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_known(field: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise Refusal(400, f"{field}={name[:40]} is not known; {did_you_mean(name[:40], known)}")


def _json(value: Any) -> Response:
    return Response(json_text(value) + "\n", media_type="application/json")


def _refused(refusal: Refusal) -> Response:
    headers = {"connection": "close"} if refusal.closes else {}
    if refusal.status == 429:
        headers["retry-after"] = "1"
    return PlainTextResponse(refusal.message + "\n", refusal.status, headers=headers)
