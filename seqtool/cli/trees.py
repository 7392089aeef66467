"""What `seqtool parse` writes: CoNLL-U, drawings, JSON; how trees are built, the best ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from seqtool.cli.options import is_folder
from seqtool.cli.usage import WIDEST
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.core.reading import unpacked_name

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Broken, Item
    from seqtool.treebank.derivation import Trace
    from seqtool.treebank.sentence import Sentence

T = TypeVar("T")

FORMATS = ("conllu", "tree", "svg", "html", "json")
# which of them show how trees are built, several trees of a sentence, and probabilities of arcs
OF_TRACES = ("tree", "html", "json")
OF_RANKED = ("conllu", "tree", "html", "json")
OF_SCORES = ("conllu", "json")
# ends of names that tell a format, beside its own; and those that promise another kind of picture
ENDINGS = {"htm": "html", "jsonl": "json"}
OTHER_PICTURES = ("pdf", "tex", "png")


@dataclass(frozen=True)
class DetailOptions:
    """What is told beyond one tree of each sentence."""

    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Show how each tree is built, step by step: stack, buffer, what is looked at, "
            "transition, probability, and the beam; --format tree (in the terminal), html or json.",
        ),
    ] = False
    nbest: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            metavar="N",
            help="Give the N best trees of each sentence, with their rank and score in comments.",
        ),
    ] = None
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Write how probable it is that each head is right: MISC, Score=0.987."
        ),
    ] = False

    def format_of(self, name: str | None, output: str) -> str:
        """Return what is to be written: as named, else by the name of the output.

        Raises:
            ConfigError: there is no such format, or none of what is asked for.
        """
        if name is not None and name not in FORMATS:
            hint = did_you_mean(name, FORMATS)
            raise ConfigError(f"no format is called {name!r}", hint=hint)
        if name is None:
            suffix = Path(unpacked_name(output)).suffix.lstrip(".")
            if suffix in OTHER_PICTURES:
                hint = "name a .svg file, or a .conllu file, which `seqtool draw` makes others of"
                raise ConfigError(f"parse makes no .{suffix} files", hint=hint)
            default = "tree" if self.trace else "conllu"
            name = ENDINGS.get(suffix, suffix if suffix in FORMATS else default)
        option, known = (
            ("--trace", OF_TRACES)
            if self.trace
            else ("--nbest", OF_RANKED)
            if self.nbest
            else ("--scores", OF_SCORES)
            if self.scores
            else ("", FORMATS)
        )
        if name not in known:
            hint = f"choose --format {', '.join(known[:-1])} or {known[-1]}"
            raise ConfigError(f"{option} cannot be shown as {name}", hint=hint)
        if name != "conllu" and is_folder(output):
            what = f"{output} is a directory, which only CoNLL-U is written into"
            hint = "name a file; `seqtool draw` writes a picture of each sentence into a directory"
            raise ConfigError(what, hint=hint)
        return name

    def check(self, gold: object) -> None:
        """Refuse options that do not go together.

        Raises:
            ConfigError: there are such; `gold` is that of --gold.
        """
        named = [
            option
            for option, given in (
                ("--trace", self.trace),
                ("--nbest", self.nbest),
                ("--scores", self.scores),
                ("--gold", gold),
            )
            if given
        ]
        if len(named) > 1:
            raise ConfigError(f"{named[0]} and {named[1]} do not go together", hint="leave out one")

    def write(
        self,
        parser: Any,
        items: Iterator[Item],
        format_: str,
        output: str,
        *,
        gold: Iterator[Sentence] | None,
        **options: Any,
    ) -> None:
        """Parse, and write what is asked for, but CoNLL-U.

        Args:
            parser: one, a pipeline, or several as one.
            items: sentences; broken ones are left out.
            format_: one of `FORMATS`.
            output: a file, or `-`.
            gold: the gold trees of the sentences, to compare drawings with.
            options: of `parse_stream`.
        """
        from seqtool.treebank.conllu import Broken, sentences_of
        from seqtool.treebank.drawing.rendering import ranked_json, render

        if self.trace:
            traces = _begun(parser.traces(items, **options))
            _write_traces(
                (item for item in traces if not isinstance(item, Broken)), format_, output
            )
            return
        parsed: Iterator[Item]
        if self.nbest:
            ranked = _begun(parser.nbest(items, self.nbest, **options))
            if format_ == "json":
                groups = (trees for trees in ranked if not isinstance(trees, Broken))
                return write_pieces(ranked_json(groups), output)
            parsed = _flat(ranked)
        else:
            parsed = _begun(parser.parse_stream(items, **options))
        trees = (item for item in sentences_of(parsed) if not isinstance(item, Broken))
        colour = format_ == "tree" and is_terminal(output)
        write_pieces(
            render(trees, cast(Any, format_), gold=gold, colour=colour), output, colour=colour
        )


def _begun(found: Iterable[T]) -> Iterator[T]:
    """Return what is found, the first of it found now: no page begins before an error of input."""
    found = iter(found)
    return chain(list(islice(found, 1)), found)


def _flat(ranked: Iterable[list[Sentence] | Broken]) -> Iterator[Sentence | Broken]:
    """Give the best trees of all sentences one after another."""
    for trees in ranked:
        if isinstance(trees, list):
            yield from trees
        else:
            yield trees


def _write_traces(traces: Iterator[Trace], format_: str, output: str) -> None:
    from seqtool.treebank.drawing.trace_page import trace_page
    from seqtool.treebank.drawing.trace_text import WIDTH, trace_json, trace_text

    if format_ == "html":
        return write_pieces(trace_page(traces), output)
    if format_ == "json":
        return write_pieces(trace_json(traces), output)
    colour = is_terminal(output)
    width = min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns) if colour else WIDTH
    write_pieces(trace_text(traces, width=width, colour=colour), output, colour=colour)


def is_terminal(output: str) -> bool:
    """Whether what is written goes to a terminal."""
    return output == "-" and terminal.stream().isatty()


def write_pieces(pieces: Iterable[str], output: str, *, colour: bool = False) -> None:
    """Write pieces of text to a file, which appears when it is complete, or to stdout."""
    from seqtool.treebank.conllu import open_target

    if output == "-":
        shown = terminal.drawn() if colour else terminal.stream()
        shown.writelines(pieces)
        shown.flush()
        return
    with open_target(output) as stream:
        for piece in pieces:
            stream.write(piece.encode())
