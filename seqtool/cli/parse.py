"""`seqtool parse`: give sentences their trees."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seqtool.cli.options import default_model
from seqtool.cli.raw_text import (
    PresegmentedOption,
    PretokenizedOption,
    RawOption,
    RulesOption,
    is_raw,
    read_raw,
)
from seqtool.cli.treebanks import noted, read_treebank, sample_trees

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Item, Sentence

    Items = Iterator[Item]

FORMATS = ("conllu", "tree", "svg", "html", "json")


def parse(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="CoNLL-U (HEAD and DEPREL may be anything) or plain text, see --raw; files (also "
            ".gz, .zst), directories, or - for stdin. The shipped sample's English test trees if "
            "not given.",
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
    gold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Mark wrong arcs in drawings by the trees of this CoNLL-U file, which may be FILE "
            "itself; repeatable.",
            show_default=False,
        ),
    ] = None,
    raw: RawOption = False,
    rules: RulesOption = False,
    presegmented: PresegmentedOption = False,
    pretokenized: PretokenizedOption = False,
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
) -> None:
    """Parse sentences, or plain text.

    Of CoNLL-U only HEAD and DEPREL are written anew, and by a model of `train-parser --raw` the
    tags and lemmas that are `_`: comments, multiword tokens, empty nodes and all other columns come
    back as they were. Plain text needs such a model. Memory is bounded however long the input is.
    """
    from seqtool.cli.models import open_parser
    from seqtool.core.errors import ConfigError
    from seqtool.core.registry import did_you_mean

    if format_ not in FORMATS:
        raise ConfigError(f"no format is called {format_!r}", hint=did_you_mean(format_, FORMATS))
    given = files or [sample_trees()]
    right = gold or []
    _check_options(format_, given, right, clear_deps=clear_deps)
    path = model or default_model("parser")
    parser = open_parser(path)
    parse_all = _with_options(parser, path, beam=beam, retag=retag)
    if is_raw(given, raw=raw, rules=rules, given=presegmented or pretokenized):
        read: Items = read_raw(
            given,
            parser,
            path,
            rules=rules,
            presegmented=presegmented,
            pretokenized=pretokenized,
        )
        if right:
            raise ConfigError("--gold is for CoNLL-U", hint="score text with seqtool eval-parser")
    elif not right:
        from seqtool.treebank.conllu import read_batches

        fate = "passed through" if format_ == "conllu" else "left out"
        read = noted(read_batches(given, skip_invalid=skip_invalid), fate)
    # what is loaded stays, so the collector of cycles need not look at it again and again
    gc.freeze()
    if format_ == "conllu":
        from seqtool.treebank.conllu import write_conllu

        write_conllu(parse_all(read), output, clear_deps=clear_deps)
        return
    if not right:
        _draw(parse_all(read), format_, output)
        return
    waiting: deque[Sentence] = deque()
    items: Items = noted(_beside_gold(given, right, waiting, skip_invalid=skip_invalid), "left out")
    _draw(parse_all(items), format_, output, gold=_taken(waiting))


def _with_options(parser: Any, path: Path, *, beam: int, retag: bool) -> Callable[[Items], Items]:
    """The parser's `parse_stream` with the options that it has.

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
    from seqtool.core.errors import ConfigError

    if clear_deps and format_ != "conllu":
        raise ConfigError("--clear-deps is for CoNLL-U", hint="leave it out, or --format conllu")
    if gold and format_ == "conllu":
        raise ConfigError(
            "--gold is for drawings",
            hint="add --format tree, svg, html or json; for scores, seqtool eval-parser GOLD",
        )
    if gold != files and [*files, *gold].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")


def _beside_gold(
    files: list[str], gold: list[str], waiting: deque[Sentence], *, skip_invalid: bool
) -> Items:
    """The sentences to parse; the right tree of each waits in `waiting`, in the same order.

    Where one of the two is broken, that one is given and nothing waits.
    """
    from seqtool.treebank.conllu import Broken

    if gold == files:
        for item in read_treebank(files, "tree", skip_invalid=skip_invalid):
            if not isinstance(item, Broken):
                waiting.append(_copy(item))
            yield item
        return
    for item, right in zip_longest(
        read_treebank(files, "columns", skip_invalid=skip_invalid),
        read_treebank(gold, "tree", skip_invalid=skip_invalid),
    ):
        if isinstance(item, Broken) or isinstance(right, Broken):
            yield item if isinstance(item, Broken) else right
            continue
        if right is not None:
            waiting.append(right)
        if item is not None:
            yield item


def _copy(sentence: Sentence) -> Sentence:
    """A sentence that keeps its tree when that of the other is written anew."""
    from seqtool.treebank.conllu import Sentence

    rows = [list(row) for row in sentence.rows]
    return Sentence(sentence.comments, rows, sentence.extras, sentence.path, sentence.line)


def _taken(waiting: deque[Sentence]) -> Iterator[Sentence]:
    while waiting:
        yield waiting.popleft()


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
