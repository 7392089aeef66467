"""`seqtool parse`: give sentences their trees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seqtool.cli.models import default_model, open_model
from seqtool.cli.options import takes_options
from seqtool.cli.sentences import (
    AnnotatedFilesArgument,
    RawTextOptions,
    TargetOption,
    noted,
    sample_trees,
)
from seqtool.core.errors import ConfigError

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Item, Sentence

    Items = Iterator[Item]

FORMATS = ("conllu", "tree", "svg", "html", "json")


@takes_options()
def parse(
    files: AnnotatedFilesArgument = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="DIR", help="A parser; runs/parser if not given."),
    ] = None,
    output: TargetOption = "-",
    beam: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Hypotheses per sentence: 4 is better and slower than 1."
        ),
    ] = 1,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="|".join(FORMATS), help="What to write.")
    ] = "conllu",
    gold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Mark wrong arcs in drawings by the trees of this CoNLL-U file, which may be FILE "
            "itself; repeatable.",
            show_default=False,
        ),
    ] = None,
    retag: Annotated[
        bool,
        typer.Option("--retag", help="Predict also the tags and lemmas that the file has."),
    ] = False,
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid", help="Write broken sentences as they are; leave them out of drawings."
        ),
    ] = False,
    clear_deps: Annotated[
        bool,
        typer.Option("--clear-deps", help="Leave out the enhanced graph, which is not parsed."),
    ] = False,
    *,
    text: RawTextOptions,
) -> None:
    """Parse sentences, or plain text.

    Of CoNLL-U only HEAD and DEPREL are written anew, and by a model of `train-parser --raw` the
    tags and lemmas that are `_`: comments, multiword tokens, empty nodes and all other columns come
    back as they were. Plain text needs such a model. Memory is bounded however long the input is.
    """
    from seqtool.core.registry import did_you_mean
    from seqtool.treebank.conllu import read_batches, write_conllu
    from seqtool.treebank.gold import read_beside_gold

    if format_ not in FORMATS:
        raise ConfigError(f"no format is called {format_!r}", hint=did_you_mean(format_, FORMATS))
    given = files or [sample_trees()]
    _check_options(format_, given, gold or [], clear_deps=clear_deps)
    path = model or default_model("parser")
    parser = open_model(path, "parser")
    parse_all = _with_options(parser, path, beam=beam, retag=retag)
    fate = "passed through" if format_ == "conllu" else "left out"
    gold_trees = None
    if text.are_for(given):
        items: Items = text.read(given, parser, path)
        if gold:
            raise ConfigError("--gold is for CoNLL-U", hint="score text with seqtool eval-parser")
    elif gold:
        items, gold_trees = read_beside_gold(given, gold, skip_invalid=skip_invalid)
    else:
        items = read_batches(given, skip_invalid=skip_invalid)
    if format_ == "conllu":
        write_conllu(parse_all(noted(items, fate)), output, clear_deps=clear_deps)
        return
    _draw(parse_all(noted(items, fate)), format_, output, gold=gold_trees)


def _with_options(parser: Any, path: Path, *, beam: int, retag: bool) -> Callable[[Items], Items]:
    """Return the parser's `parse_stream` with the options that it has.

    Raises:
        ModelError: --retag of a parser without a tagger.
    """
    if not hasattr(parser, "tag_stream"):
        if retag:
            from seqtool.core.errors import ModelError

            raise ModelError(
                "has no tagger, so there is no --retag",
                hint="train one with `seqtool train-parser --raw`, or tag with `seqtool tag`",
                path=path,
            )
        return partial(parser.parse_stream, beam=beam)
    return partial(parser.parse_stream, beam=beam, retag=retag)


def _check_options(format_: str, files: list[str], gold: list[str], *, clear_deps: bool) -> None:
    """Refuse options that do not go together.

    Raises:
        ConfigError: they do not.
    """
    if clear_deps and format_ != "conllu":
        raise ConfigError("--clear-deps is for CoNLL-U", hint="leave it out, or --format conllu")
    if gold and format_ == "conllu":
        raise ConfigError(
            "--gold is for drawings",
            hint="add --format tree, svg, html or json; for scores, seqtool eval-parser GOLD",
        )
    if gold != files and [*files, *gold].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")


def _draw(
    parsed: Items, format_: str, output: str, *, gold: Iterator[Sentence] | None = None
) -> None:
    """Write trees for people, or JSON; broken sentences have none."""
    from seqtool.core.storage import atomic_file
    from seqtool.treebank.conllu import Sentence, sentences_of
    from seqtool.treebank.drawing.rendering import render

    trees = (item for item in sentences_of(parsed) if isinstance(item, Sentence))
    colour = output == "-" and sys.stdout.isatty()
    pieces = render(trees, cast(Any, format_), gold=gold, colour=colour)
    if output == "-":
        for piece in pieces:
            sys.stdout.write(piece)
        return
    with atomic_file(output) as stream:
        for piece in pieces:
            stream.write(piece.encode())
