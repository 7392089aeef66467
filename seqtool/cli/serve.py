"""`seqtool serve`: models that answer over HTTP."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from seqtool.cli.models import default_model
from seqtool.cli.options import JsonOption, emit, note, option
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

PORT = 8001
NEEDED = ("starlette", "uvicorn", "python_multipart")


@examples(
    "seqtool serve -m runs/mine",
    "seqtool serve -m runs/english -m runs/korean --port 0",
)
def serve(
    model: list[Path] | None = option(
        None, "A parser, tagger or segmenter, repeatable; the first is the default.", "DIR", "-m"
    ),
    host: str = option("127.0.0.1", "Where to listen; nothing is encrypted.", "NAME"),
    port: int = option(PORT, "The port; 0 is any that is free.", "N", min=0, max=65535),
    allow_host: list[str] | None = option(
        None, "A name by which requests may ask; repeatable.", "NAME"
    ),
    max_request: int = option(4, "The largest request.", "MB", min=1, max=1024),
    max_sentences: int = option(10_000, "The most sentences of a request.", "N", min=1),
    max_seconds: int = option(60, "The most time that a request may take.", "N", min=1),
    verbose: bool = option(False, "Print a line for each request; no text.", "", "-v"),
    as_json: JsonOption = False,
) -> None:
    """Let programs and people parse over HTTP, with models that are loaded once.

    It answers as UDPipe's service does (/models, /process), so that its clients need nothing but
    the address, and has a page on which one types a text and sees its trees. Ctrl-C ends it, once
    all requests that have come are answered. It reads and writes no files for anybody.
    """
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            what = f"serve needs {name.replace('_', '-')}, which is not installed"
            hint = "pip install starlette uvicorn python-multipart, which are the extra `serve`"
            raise ConfigError(what, hint=hint)
    from seqtool.server.connection import listening, server_of
    from seqtool.server.served import open_models
    from seqtool.server.service import LOCAL, Limits, Service

    paths = model or [default_model("parser")]
    limits = Limits(max_request << 20, max_sentences, max_seconds)
    with listening(host, port) as sock:
        models = open_models(paths)
        shown, number = sock.getsockname()[:2]
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{number}"
        if shown not in LOCAL:
            note(f"warning: {shown} can be reached from other machines, by anybody, unencrypted")
        names = list(models)
        if as_json:
            emit({"url": url, "port": number, "models": names})
        note(f"{', '.join(names)}: {url} (Ctrl-C ends it)")
        num_answered = 0

        def log(line: str) -> None:
            nonlocal num_answered
            num_answered += 1
            if verbose:
                note(line)

        service = Service(models, limits, log, [host, *(allow_host or ())])
        server = server_of(service, seconds=2 * limits.seconds)
        try:
            server.run([sock])
        except KeyboardInterrupt:  # uvicorn sends itself again what has ended it
            if server.force_exit:  # a second Ctrl-C
                raise
        note(f"ended after {counted(num_answered, 'request')}")
