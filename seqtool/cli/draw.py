"""Drawings of trees, which `draw` and `parse` write by one road, and how trees are built."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seqtool.cli import options as cli
from seqtool.cli.usage import WIDEST, examples
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, DataError, OutputError, counted, did_you_mean
from seqtool.core.reading import unpacked_name
from seqtool.core.storage import atomic_directory

if TYPE_CHECKING:
    from seqtool.parsing.annotation import Annotation
    from seqtool.treebank.conllu import Item
    from seqtool.treebank.derivation import Trace
    from seqtool.treebank.drawing.marked import Group

T = TypeVar("T")

DRAWINGS = ("tree", "svg", "html", "tikz", "json")
FORMATS = ("conllu", *DRAWINGS)  # of `parse`
SUFFIXES = {
    ".conllu": "conllu",
    ".parquet": "parquet",
    ".svg": "svg",
    ".html": "html",
    ".htm": "html",
    ".tex": "tikz",
    ".json": "json",
    ".jsonl": "json",
}
NOT_DRAWN = (".pdf", ".png")
# of which a sentence can be a file, with the end of its name
SINGLE = {"svg": ".svg", "tikz": ".tex"}
NAME_LENGTH = 60  # of a file, in letters of the sentence's own name
# an option of `parse` -> in which formats what it asks for can be shown
SHOWN_AS = {
    "--trace": ("tree", "html", "json"),
    "--nbest": ("conllu", "tree", "html", "json", "parquet"),
    "--scores": ("conllu", "json", "parquet"),
    "--gold": DRAWINGS,
    "--jobs": ("conllu", "parquet"),
    "--clear-deps": ("conllu", "parquet"),
}


def check_name(kind: str, name: str, known: Collection[str]) -> str:
    """Return a name of this kind.

    Raises:
        ConfigError: it is not known.
    """
    if name not in known:
        raise ConfigError(f"no {kind} is called {name!r}", hint=did_you_mean(name, known))
    return name


def format_of(name: str | None, output: str, known: Collection[str], default: str) -> str:
    """Return what is to be written: as named, else by the end of the output's name.

    Raises:
        ConfigError: there is no such format.
    """
    if name is not None:
        return check_name("format", name, known)
    suffix = Path(unpacked_name(output)).suffix
    if suffix in NOT_DRAWN:
        hint = "name a .svg file, or print the page of a .html file"
        raise ConfigError(f"trees are not drawn as {suffix} files", hint=hint)
    by_name = SUFFIXES.get(suffix, "")
    if cli.is_folder(output) and by_name != "parquet":  # which is a directory where Spark writes it
        return default
    return by_name if by_name in known else default


def check_drawing(format_: str, output: str) -> None:
    """Refuse what drawings cannot be written to, before anything is read.

    Raises:
        ConfigError: the format is one for all sentences, and the output a directory.
        OutputError: the directory is not there, or one that gets files is not empty.
    """
    from seqtool.cli.reports import check_folders

    path = Path(output)
    if output == "-":
        return
    if not cli.is_folder(output):
        return check_folders(path)
    if format_ not in SINGLE:
        hint = f"name a file, or choose --format {' or '.join(SINGLE)}"
        raise ConfigError(f"{format_} has no file for each sentence", hint=hint)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise OutputError("is there, and not empty", hint="name a new directory", path=path)


def draw_groups(
    groups: Iterable[Group], format_: str, output: str, *, beside: bool = False, down: bool = False
) -> None:
    """Draw sentences into a file or to stdout, or each into a file of a directory: all, or none.

    Args:
        groups: as `grouped` gives them.
        format_: one of `DRAWINGS`.
        output: see `check_drawing`.
        beside: several analyses stand side by side.
        down: words stand below one another.
    """
    from seqtool.treebank.drawing.rendering import render_groups

    kind: Any = format_
    colour = format_ == "tree" and is_terminal(output)

    def drawn(groups: Iterable[Group]) -> Iterator[str]:
        return render_groups(groups, kind, beside=beside, down=down, colour=colour)

    if not cli.is_folder(output):
        return write_text(drawn(begun(groups)), output, colour=colour)
    number = 0
    with atomic_directory(output) as folder:
        for number, group in enumerate(groups, start=1):
            own = re.sub(r"[^\w.-]+", "_", group[0].name)[:NAME_LENGTH]
            name = f"{number:04d}{f'-{own}' if own else ''}{SINGLE[format_]}"
            (folder / name).write_bytes("".join(drawn([group])).encode())
    cli.note(f"{Path(output)}: {counted(number, 'picture')}")


@dataclass(frozen=True)
class TreeOptions:
    """What `parse` writes of a tree, or beyond one tree of each sentence."""

    format_: str | None = cli.option(
        None,
        "What to write; as -o ends, else conllu, and tree with --trace.",
        "|".join(FORMATS),
        "-f",
    )
    gold: list[str] | None = cli.option(
        None, "Mark wrong arcs in drawings by these trees; repeatable.", "FILE"
    )
    trace: bool = cli.option(
        False, "Show how each tree is built, step by step, as tree, html or json."
    )
    nbest: int | None = cli.option(
        None, "Give the N best trees of each sentence, with their scores.", "N", min=1, max=1000
    )
    scores: bool = cli.option(
        False, "Write how probable it is that each head is right: MISC, Score=0.987."
    )

    def format_for(self, output: str, known: Collection[str], others: Sequence[str]) -> str:
        """Return the format to write, after all checks that need no model.

        Args:
            output: see `draw_groups`.
            known: formats.
            others: options of `SHOWN_AS` that are given beside these.

        Raises:
            ConfigError: options that do not go together, or no such format.
            OutputError: see `check_drawing`.
        """
        format_ = format_of(self.format_, output, known, "tree" if self.trace else "conllu")
        named = [option for option in SHOWN_AS if getattr(self, option.lstrip("-"), None)]
        if len(named) > 1:
            raise ConfigError(f"{named[0]} and {named[1]} do not go together", hint="leave out one")
        for option in (*named, *others):
            if format_ not in SHOWN_AS[option]:
                formats = [name for name in SHOWN_AS[option] if name in known]
                hint = f"choose --format {' or '.join(formats)}"
                raise ConfigError(f"{option} does not go with {format_}", hint=hint)
        if format_ in DRAWINGS:
            check_drawing(format_, output)
        return format_

    def draw(
        self, annotation: Annotation, parser: Any, items: Iterator[Item], format_: str, output: str
    ) -> None:
        """Parse sentences and draw them; broken ones are left out."""
        from seqtool.treebank.conllu import Broken, read_conllu, sentences_of
        from seqtool.treebank.drawing.rendering import grouped, ranked_json

        def whole(items: Iterable[T]) -> Iterator[T]:
            return (item for item in items if not isinstance(item, Broken))

        if self.trace:
            traces = whole(parser.traces(items, **annotation.options))
            return _write_traces(begun(traces), format_, output)
        if self.nbest and format_ == "json":
            ranked = whole(parser.nbest(items, self.nbest, **annotation.options))
            return write_text(ranked_json(ranked), output)
        gold = read_conllu(self.gold, skip_option="") if self.gold else None
        trees: Iterator[Any] = whole(sentences_of(annotation.annotated(items, parser)))
        draw_groups(grouped([trees], [""], gold), format_, output)


def begun(items: Iterable[T]) -> Iterator[T]:
    """Return items, the first of them made now: no page begins before an error of input."""
    items = iter(items)
    return chain(list(islice(items, 1)), items)


def _write_traces(traces: Iterator[Trace], format_: str, output: str) -> None:
    from seqtool.treebank.drawing.trace_page import trace_page
    from seqtool.treebank.drawing.trace_text import WIDTH, trace_json, trace_text

    if format_ == "html":
        return write_text(trace_page(traces), output)
    if format_ == "json":
        return write_text(trace_json(traces), output)
    colour = is_terminal(output)
    width = min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns) if colour else WIDTH
    write_text(trace_text(traces, width=width, colour=colour), output, colour=colour)


def is_terminal(output: str) -> bool:
    """Whether what is written goes to a terminal."""
    return output == "-" and terminal.stream().isatty()


def write_text(pieces: Iterable[str], output: str, *, colour: bool = False) -> None:
    """Write pieces of text to a file, which appears when it is complete, or to stdout."""
    from seqtool.treebank.conllu import open_target

    if output == "-":
        shown = terminal.stream(draws=colour)
        shown.writelines(pieces)
        shown.flush()
        return
    with open_target(output) as stream:
        for piece in pieces:
            stream.write(piece.encode())


@dataclass(frozen=True)
class ChoiceOptions:
    """Which sentences are drawn."""

    where: list[str] | None = cli.option(
        None, "Only sentences with such a word, as of inspect --where; repeatable.", "QUERY"
    )
    differing: bool = cli.option(False, "Only sentences with errors, or in which analyses differ.")

    def chosen(self, groups: Iterator[Group]) -> Iterator[Group]:
        """Give the sentences that are asked for.

        Raises:
            ConfigError: when iterated: of a query that is none.
            DataError: when iterated: there are none.
        """
        from seqtool.treebank.queries import Query

        query = Query(self.where or [])
        is_empty = True
        for group in groups:
            if self.differing and not any(each.num_marked() for each in group):
                continue
            if self.where and not any(query.words(each.sentence) for each in group):
                continue
            is_empty = False
            yield group
        if is_empty and (self.where or self.differing):
            what = "no trees differ in heads or relations, subtypes apart"
            if self.where:
                what = "no sentence has a word that --where asks for"
            options = ["--where"] * bool(self.where) + ["--differing"] * self.differing
            raise DataError(what, hint=f"leave out {' or '.join(options)}")


@examples(
    "seqtool draw dev.conllu",
    "seqtool draw dev.conllu -o trees.html",
    "seqtool draw parsed.conllu --gold dev.conllu --differing -o errors.html",
    "seqtool draw first.conllu second.conllu --beside",
    "seqtool draw dev.conllu --where deprel=csubj -f svg -o pictures/",
)
def draw(
    files: list[str] | None = cli.argument(
        None, "CoNLL-U with trees; where several differ is marked; else the sample.", "FILE"
    ),
    output: str = cli.option(
        "-", "Where to write; DIR/ gets a file for each sentence.", "FILE|DIR/", "-o"
    ),
    format_: str | None = cli.option(
        None, "If not given, as -o ends, else tree; svg for a directory.", "|".join(DRAWINGS), "-f"
    ),
    gold: str | None = cli.option(
        None, "Mark what is wrong by the trees of this CoNLL-U file.", "FILE"
    ),
    beside: bool = cli.option(
        False, "Several analyses stand side by side, not one over the other."
    ),
    down: bool = cli.option(False, "Words stand below one another, arcs beside them (svg, html)."),
    *,
    choice: ChoiceOptions,
) -> None:
    """Draw trees that exist: in the terminal, as pictures, for LaTeX, or as a page to search.

    With --gold, wrong arcs are red and the gold ones green; without it, what not all analyses of a
    sentence have is orange.
    """
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.drawing.rendering import grouped

    format_ = format_of(format_, output, DRAWINGS, "svg" if cli.is_folder(output) else "tree")
    given = files or [cli.stdin_or_sample("FILE", "trees")]
    if [*given, gold].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="name a file for the others")
    hint = "name several files of the same sentences"
    if beside and (len(given) == 1 or format_ == "json"):
        raise ConfigError("--beside draws several analyses", hint=f"{hint}, and no --format json")
    if choice.differing and len(given) == 1 and gold is None:
        raise ConfigError("--differing has nothing to compare", hint=f"{hint}, or --gold FILE")
    if down and format_ not in ("svg", "html"):
        raise ConfigError(f"{format_} has no --down", hint="choose --format svg or html")
    check_drawing(format_, output)
    groups = grouped(
        [read_conllu(path, skip_option="") for path in given],
        _names(given),
        None if gold is None else read_conllu(gold, skip_option=""),
    )
    draw_groups(choice.chosen(groups), format_, output, beside=beside, down=down)


def _names(files: Sequence[str]) -> list[str]:
    """Return what the analyses are called: their files, without folders where that is enough."""
    short = ["stdin" if file == "-" else Path(file).name for file in files]
    return short if len(set(short)) == len(short) else list(files)
