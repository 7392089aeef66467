"""`seqtool draw`: pictures of trees that exist, of one analysis or of several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from seqtool.cli.options import UNNAMED, is_folder, note, note_letters, stdin_or_sample
from seqtool.cli.reports import check_folders
from seqtool.cli.trees import is_terminal, write_pieces
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, DataError, OutputError, counted, did_you_mean
from seqtool.core.storage import atomic_directory, atomic_file

if TYPE_CHECKING:
    from seqtool.treebank.drawing.marked import Group
    from seqtool.treebank.drawing.rendering import Format

SUFFIXES = {
    ".txt": "tree",
    ".svg": "svg",
    ".pdf": "pdf",
    ".tex": "tikz",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".jsonl": "json",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
# of which a sentence can be a file, with the end of its name
SINGLE = {"svg": ".svg", "pdf": ".pdf", "tikz": ".tex"}
LAID_OUT = ("svg", "pdf")
NAME_LENGTH = 60  # of a file, in letters of the sentence's own name


@examples(
    "seqtool draw dev.conllu",
    "seqtool draw dev.conllu -o trees.html",
    "seqtool draw parsed.conllu --gold dev.conllu --differing -o errors.html",
    "seqtool draw first.conllu second.conllu --beside",
    "seqtool draw dev.conllu --where deprel=csubj -f svg -o pictures/",
)
def draw(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="CoNLL-U with trees (also packed), a directory, - for stdin; of several, each "
            "has its own analysis of the same sentences, and where they differ is marked. "
            f"{UNNAMED} the shipped sample's English test treebank.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR/",
            help="Where to write; a directory (new, or empty) gets a file for each sentence.",
        ),
    ] = "-",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(FORMATS),
            help="If not given, what the name after -o ends in: .svg, .pdf, .tex (tikz), .html, "
            ".json, .txt (tree); svg for a directory; tree on stdout.",
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Mark what is wrong by the trees of this CoNLL-U file."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Only sentences with a word that has this in a column, as deprel=nsubj or "
            "feats.Case=Nom, see `seqtool inspect --where`; repeatable: one word must have all.",
        ),
    ] = None,
    differing: Annotated[
        bool,
        typer.Option(
            "--differing",
            help="Only sentences with errors, or in which analyses differ: in heads, or in "
            "relations without their subtypes.",
        ),
    ] = False,
    beside: Annotated[
        bool,
        typer.Option(
            "--beside", help="Several analyses stand side by side, not one over the other."
        ),
    ] = False,
    down: Annotated[
        bool,
        typer.Option(
            "--down",
            help="Words stand below one another, arcs beside them: for long sentences (svg, pdf; "
            "a page of HTML has a switch).",
        ),
    ] = False,
) -> None:
    """Draw trees that exist: in the terminal, as pictures, for LaTeX, or as a page to search.

    With --gold, wrong arcs are red and the gold ones green; without it, what not all analyses of a
    sentence have is orange.
    """
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.drawing.rendering import grouped, render_groups

    format_ = _format_of(format_, output)
    given = files or [stdin_or_sample("FILE", "trees")]
    _check(given, gold, format_, output, differing=differing, beside=beside, down=down)
    groups = grouped(
        [read_conllu(path, skip_option="") for path in given],
        _names(given),
        None if gold is None else read_conllu(gold, skip_option=""),
    )
    groups = _chosen(groups, where or [], differing=differing)
    if is_folder(output):
        _write_files(groups, format_, Path(output), beside=beside, down=down)
    elif format_ == "pdf":
        with atomic_file(output) as stream:
            _write_pdf(groups, stream, beside=beside, down=down)
    else:
        colour = format_ == "tree" and is_terminal(output)
        text = render_groups(
            groups, cast("Format", format_), beside=beside, down=down, colour=colour
        )
        write_pieces(text, output, colour=colour)


def _format_of(name: str | None, output: str) -> str:
    """Return the format as it is named, else by what the output is called.

    Raises:
        ConfigError: there is no such format.
    """
    if name is not None:
        if name not in FORMATS:
            hint = did_you_mean(name, FORMATS)
            raise ConfigError(f"no format is called {name!r}", hint=hint)
        return name
    if output == "-":
        return "tree"
    if is_folder(output):
        return "svg"
    suffix = Path(output).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise ConfigError(
            f"{output} does not say what to draw",
            hint=f"name a file that ends in {known}, or a directory with / behind it",
        )
    return SUFFIXES[suffix]


def _check(
    files: Sequence[str],
    gold: str | None,
    format_: str,
    output: str,
    *,
    differing: bool,
    beside: bool,
    down: bool,
) -> None:
    """Refuse options that do not go together, before anything is read.

    Raises:
        ConfigError: there are such.
        OutputError: the output cannot be written.
    """
    if [*files, gold].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="name a file for the others")
    if len(files) == 1:
        hint = "name several files of the same sentences"
        if beside:
            raise ConfigError("--beside is for several analyses", hint=hint)
        if differing and gold is None:
            raise ConfigError("--differing has nothing to compare", hint=f"{hint}, or --gold FILE")
    if beside and format_ == "json":
        raise ConfigError("json has no --beside", hint="leave it out, or choose svg or html")
    if down and format_ not in LAID_OUT:
        raise ConfigError(f"{format_} has no --down", hint="leave it out, or choose svg or pdf")
    if format_ == "pdf":
        from seqtool.treebank.drawing.pdf import require_matplotlib

        require_matplotlib()
    if output == "-":
        if format_ == "pdf":
            raise ConfigError("a PDF is not for stdout", hint="name a file: -o trees.pdf")
    elif not is_folder(output):
        check_folders(Path(output))
    else:
        if format_ not in SINGLE:
            hint = f"choose --format {', '.join(SINGLE)}, or name a file"
            raise ConfigError(f"{format_} has no file for each sentence", hint=hint)
        path = Path(output)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise OutputError("is there, and not empty", hint="name a new directory", path=path)


def _names(files: Sequence[str]) -> list[str]:
    """Return what the analyses are called: their files, without folders where that is enough."""
    short = ["stdin" if file == "-" else Path(file).name for file in files]
    return short if len(set(short)) == len(short) else list(files)


def _chosen(groups: Iterator[Group], where: Sequence[str], *, differing: bool) -> Iterator[Group]:
    """Give the sentences that are asked for.

    Raises:
        ConfigError: of a query that is none.
        DataError: when iterated: there are none.
    """
    from seqtool.treebank.queries import parse_query, wants

    wanted = wants(parse_query(where))

    def chosen() -> Iterator[Group]:
        is_empty = True
        for group in groups:
            if differing and not any(each.num_marked() for each in group):
                continue
            if where and not any(wanted(word) for each in group for word in each.sentence):
                continue
            is_empty = False
            yield group
        if is_empty and (where or differing):
            options = [*(["--where"] if where else []), *(["--differing"] if differing else [])]
            what = "no trees differ in heads or relations, subtypes apart"
            if where:
                what = "no sentence has a word that --where asks for"
            raise DataError(what, hint=f"leave out {' or '.join(options)}")

    return chosen()


def _write_pdf(groups: Iterable[Group], stream: BinaryIO, *, beside: bool, down: bool) -> None:
    from seqtool.treebank.drawing.grouped import draw_group
    from seqtool.treebank.drawing.pdf import write_pdf

    pictures = (draw_group(group, beside=beside, is_down=down) for group in groups)
    if missing := write_pdf(pictures, stream):
        note_letters(missing)


def _write_files(
    groups: Iterable[Group], format_: str, directory: Path, *, beside: bool, down: bool
) -> None:
    """Write a file for each sentence: all of them, or none."""
    from seqtool.treebank.drawing.rendering import render_groups

    num_written = 0
    with atomic_directory(directory) as folder:
        for num_written, group in enumerate(groups, start=1):
            own = re.sub(r"[^\w.-]+", "_", group[0].name)[:NAME_LENGTH]
            name = f"{num_written:04d}{f'-{own}' if own else ''}{SINGLE[format_]}"
            with (folder / name).open("wb") as stream:
                if format_ == "pdf":
                    _write_pdf([group], stream, beside=beside, down=down)
                else:
                    text = render_groups([group], cast("Format", format_), beside=beside, down=down)
                    stream.writelines(map(str.encode, text))
    note(f"{directory}: {counted(num_written, 'picture')}")
