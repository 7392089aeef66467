"""`seqtool parse`: give sentences their trees."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seqtool.cli.options import default_model, note

if TYPE_CHECKING:
    from seqtool.corpora.conllu import Broken, Sentence

MAX_SHOWN = 5  # broken sentences named on stderr
FORMATS = ("conllu", "tree", "svg", "html", "json")


def parse(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="CoNLL-U files (also .gz, .zst), directories, or - for stdin; HEAD and DEPREL may "
            "be anything. The shipped sample's English test trees if not given.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="DIR", help="A parser; runs/parser if not given."),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout."),
    ] = "-",
    beam: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Hypotheses per sentence: 4 is better and slower than 1."
        ),
    ] = 1,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="|".join(FORMATS), help="What to write.")
    ] = "conllu",
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Write broken sentences as they are."),
    ] = False,
    clear_deps: Annotated[
        bool,
        typer.Option("--clear-deps", help="Leave out the enhanced graph, which is not parsed."),
    ] = False,
) -> None:
    """Parse sentences that are split into words and tagged.

    Only HEAD and DEPREL are written anew: comments, multiword tokens, empty nodes and all other
    columns come back as they were, in bounded memory however long the input is.
    """
    from seqtool.cli.models import open_parser
    from seqtool.errors import ConfigError
    from seqtool.registry import did_you_mean

    if format_ not in FORMATS:
        raise ConfigError(f"no format is called {format_!r}", hint=did_you_mean(format_, FORMATS))
    path = model or default_model("parser")
    parser = open_parser(path)
    # what is loaded stays, so the collector of cycles need not look at it again and again
    gc.freeze()
    parsed = parser.parse_stream(_items(files or [_sample()], skip_invalid=skip_invalid), beam=beam)
    if format_ == "conllu":
        from seqtool.corpora.conllu import write_conllu

        write_conllu(parsed, output, clear_deps=clear_deps)
        return
    if clear_deps:
        raise ConfigError("--clear-deps is for CoNLL-U", hint="leave it out, or --format conllu")
    _draw(parsed, format_, output)


def _sample() -> str:
    from seqtool.corpora.sample import sample_treebank

    path = sample_treebank("en", "test")
    note(f"no FILE given: using the shipped sample, {path}")
    return str(path)


def _items(files: list[str], *, skip_invalid: bool) -> Iterator[Sentence | Broken]:
    """The sentences to parse; broken ones too, if they are to be passed on."""
    from seqtool.corpora.conllu import Broken, read_conllu, read_items
    from seqtool.errors import counted

    if not skip_invalid:
        yield from read_conllu(files, check="columns")
        return
    num_broken = 0
    for item in read_items(files, check="columns"):
        if isinstance(item, Broken):
            num_broken += 1
            if num_broken <= MAX_SHOWN:
                note(f"passed through: {item.error}")
        yield item
    if num_broken > MAX_SHOWN:
        note(f"{counted(num_broken, 'broken sentence')} passed through in all")


def _draw(parsed: Iterator[Sentence | Broken], format_: str, output: str) -> None:
    """Write trees for people, or JSON; broken sentences have none."""
    from seqtool.corpora.conllu import Sentence
    from seqtool.parsing.render import render
    from seqtool.storage import atomic_file

    trees = (item for item in parsed if isinstance(item, Sentence))
    colour = output == "-" and sys.stdout.isatty()
    pieces = render(trees, cast(Any, format_), colour=colour)
    if output == "-":
        for piece in pieces:
            sys.stdout.write(piece)
        return
    with atomic_file(output) as stream:
        for piece in pieces:
            stream.write(piece.encode())
