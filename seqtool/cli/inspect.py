"""`seqtool inspect`: what a model or a prepared corpus is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.models import default_model
from seqtool.cli.options import (
    JsonOption,
    StrictOption,
    emit,
    flattened,
    note,
    show_table,
)
from seqtool.cli.usage import examples
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, ModelError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.core.checkpoint import Header
    from seqtool.lm.ngram.table import OrderSize
    from seqtool.treebank.queries import Match

NGRAMS = ("ngram", "class-ngram")
CONTEXT = 36  # characters of a line on each side of a word
LEAST_CONTEXT = 16  # after it, beside the place, on a narrow terminal
SECTIONS = ("splits", "config")  # of the data of a header


@examples(
    "seqtool inspect runs/my",
    "seqtool inspect runs/my --plot curve.svg",
    "seqtool inspect train.conllu --json",
)
def inspect(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL",
            help="A model (an ARPA file too), a prepared corpus or a treebank; the default output "
            "of a training command if not given. With --plot, runs beside each other.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the learning curves of runs, or an n-gram model's size against its order "
            "(.png, .svg, .pdf), and stop.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Show the words of a treebank whose column is so, each in its sentence: "
            "deprel=nsubj (also nsubj:pass; deprel==nsubj does not), feats.Case=Nom, form=un*, "
            "xpos=_ (none); repeatable, all must hold.",
        ),
    ] = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a model, a prepared corpus or a treebank is: sizes, configuration, data, scores.

    Every file of a model is checked against the sum that its header records.
    """
    from seqtool.cli.prepare import check_treebanks
    from seqtool.core.reading import holds_treebanks, is_corpus

    if not paths:
        paths = [default_model("lm", "ngram", "parser", "tagger", "segmenter", "classifier")]
    if len(paths) > 1 and plot is None:
        raise ConfigError("several models are for --plot", hint="name one, or a picture")
    path = paths[0]
    is_treebank = holds_treebanks(path)
    if strict and not is_treebank:
        raise ConfigError("--strict is for treebanks", hint="leave --strict out")
    if where and not is_treebank:
        what = "--where is for treebanks"
        raise ConfigError(what, hint="name a .conllu file, or a directory of such files")
    chosen = [("--where", where), ("--plot", plot), ("--strict", strict), ("--json", as_json)]
    given = [option for option, value in chosen if value]
    if len(given) > 1 and (given[-1] != "--json" or len(given) > 2):
        raise ConfigError(f"{' and '.join(given)} exclude each other", hint="give only one")
    if where:
        _show_words(path, where, as_json)
    elif plot is not None:
        _plot(paths, plot, as_json)
    elif is_treebank:
        check_treebanks([str(path)], as_json, strict=strict)
    elif path.is_file():
        _inspect_file(path, as_json)
    elif is_corpus(path):
        _inspect_corpus(path, as_json)
    else:
        _inspect_model(path, as_json)


def _show_words(path: Path, where: Sequence[str], as_json: bool) -> None:
    """Print the words of a treebank that a query asks for: a line for each, or one object."""
    from seqtool.core.progress import open_console
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.queries import Contracted, Values, matches, parse_query, wants

    query = parse_query(where)
    wanted, values, contracted = wants(query), Values(query), Contracted(query)
    width = None if as_json or not terminal.stream().isatty() else open_console().width
    found: list[dict[str, Any]] = []
    num_words = num_with = num_sentences = 0
    for sentence in read_conllu(path, check="columns", skip_option=""):
        here = matches(sentence, wanted)
        num_words += len(here)
        num_with += bool(here)
        num_sentences += 1
        values.add(sentence)
        contracted.add(sentence)
        for match in here:
            if as_json:
                found.append(match.to_json())
            else:
                echo(_line(match, width))
    if as_json:
        emit({"path": str(path), "where": query, "words": found})
    for hint in (*([] if num_words else values.hints()), contracted.hint()):
        if hint:
            note(f"note: {hint}")
    if as_json:
        return
    note(f"{counted(num_words, 'word')} in {num_with:,} of {counted(num_sentences, 'sentence')}")


def _line(match: Match, width: int | None) -> str:
    """Return a word with the text around it and its place, on a line of a terminal that is so wide.

    Where the width is not known, or is large, there is as much text on both sides; a place that is
    long has a line of its own.
    """
    from rich.cells import cell_len

    left = right = CONTEXT
    place = f"  {match.place}"
    if width is not None:
        left = min(CONTEXT, width // 3)
        room = width - left - cell_len(f"[{match.written}]")
        right = min(CONTEXT, room - cell_len(place))
        if right < LEAST_CONTEXT:
            right, place = max(0, min(CONTEXT, room)), f"\n{place}"
    before = _cut(match.before, left, at_end=False)
    return f"{before}[{match.written}]{_cut(match.after, right, at_end=True)}{place}"


def _cut(text: str, width: int, *, at_end: bool) -> str:
    """Return what a line has room for of the text beside a word, as wide in every line."""
    from rich.cells import cell_len

    while cell_len(text) > width:
        text = text[:-1] if at_end else text[1:]
    blank = " " * (width - cell_len(text))
    return text + blank if at_end else blank + text


def _plot(paths: Sequence[Path], output: Path, as_json: bool) -> None:
    from seqtool.analysis.drawing import check_picture
    from seqtool.analysis.learning import LOG, find_logs, learning_curves
    from seqtool.analysis.report import Report
    from seqtool.analysis.sparsity import sizes_chart
    from seqtool.cli.reports import check_folders, save_picture, to_json
    from seqtool.core import checkpoint

    check_picture(output)
    check_folders(output)
    path = paths[0]
    is_arpa = path.is_file() and path.name != LOG
    is_model = not path.is_file() and (path / checkpoint.HEADER).is_file()
    if is_arpa or (is_model and checkpoint.read_header(path).kind in NGRAMS):
        sizes = _sizes_of_file(path) if is_arpa else _sizes(path, checkpoint.read_header(path))
        report = Report("Size by order", charts=[sizes_chart(sizes)], values={"orders": sizes})
    else:
        report = learning_curves([log for path in paths for log in find_logs(path)])
    picture = save_picture(report.charts, output)
    if as_json:
        return emit(to_json(report))
    echo(picture)


def _sizes(directory: Path, header: Header) -> list[OrderSize]:
    from seqtool.core.checkpoint import WEIGHTS
    from seqtool.lm.array_file import array_sizes
    from seqtool.lm.ngram.table import order_sizes

    try:
        return order_sizes(array_sizes(directory / WEIGHTS), header.statistics)
    except (ValueError, KeyError, TypeError, OSError) as error:
        hint = "copy the model again, or train it again"
        raise ModelError(f"damaged weights: {error}", hint=hint, path=directory) from error


def _sizes_of_file(path: Path) -> list[OrderSize]:
    """Return what an ARPA file holds, by the bytes that it takes as a model of our own."""
    from seqtool.core import checkpoint
    from seqtool.lm.ngram.table import order_sizes

    table = checkpoint.load(path).table
    return order_sizes({name: array.nbytes for name, array in table.arrays().items()})


def _inspect_file(path: Path, as_json: bool) -> None:
    sizes = _sizes_of_file(path)
    vocabulary_size = sizes[0].ngrams - 1  # without <s>
    size = path.stat().st_size
    if as_json:
        numbers = {"vocabulary_size": vocabulary_size, "bytes": size, "orders": sizes}
        return emit({"path": str(path), "kind": "ARPA file", **numbers})
    echo(path)
    _show_pairs("", {"kind": "ARPA file", "vocabulary": vocabulary_size, "size": _megabytes(size)})
    _show_sizes(sizes)


def _show_sizes(sizes: Sequence[OrderSize]) -> None:
    """Show a row per order, without the columns that no order has anything for."""
    columns = {
        "order": [str(size.order) for size in sizes],
        "n-grams": [_text(size.ngrams) for size in sizes],
        "pruned": ["" if size.pruned is None else _text(size.pruned) for size in sizes],
        "singletons": ["" if size.singletons is None else _text(size.singletons) for size in sizes],
        "discounts": [
            " ".join(f"{discount:.4f}" for discount in size.discounts)
            + (" (fallback)" if size.fallback else "")
            for size in sizes
        ],
        "size": [_megabytes(size.bytes) for size in sizes],
        "up to here": [_megabytes(size.total_bytes) for size in sizes],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    echo()
    show_table("Orders", list(shown), list(zip(*shown.values(), strict=True)))


def _inspect_model(path: Path, as_json: bool) -> None:
    from seqtool.core import checkpoint

    directory, header = checkpoint.find(path), checkpoint.read_header(path)
    checkpoint.verify(directory, header, sums=True)
    sizes = _sizes(directory, header) if header.kind in NGRAMS else []
    kinds = header.statistics.get("kinds")  # of features; a stranger's header may hold anything
    kinds = kinds if _are_sections(kinds) else []
    file_sizes = checkpoint.file_sizes(directory, header)
    size = sum(file_sizes.values())
    if as_json:
        content = asdict(header)
        del content["statistics"]  # `orders` and `kinds` say it
        more = ({"orders": sizes} if sizes else {}) | ({"kinds": kinds} if kinds else {})
        return emit({"path": str(directory), **content, "bytes": size, **more})
    versions = ", ".join(f"{name} {version}" for name, version in header.versions.items())
    echo(directory)
    _show_pairs(
        "",
        {
            "kind": header.kind,
            "parameters": header.num_parameters,
            "size": _megabytes(size),
            **_language_model(header),
            "made by": header.command or "the Python library",
            "versions": versions,
        },
    )
    if sizes:
        _show_sizes(sizes)
    if kinds:
        columns = list(kinds[0])
        rows = [[_text(kind.get(column, "")) for column in columns] for kind in kinds]
        echo()
        show_table("Features", columns, rows)
    _show_pairs("Scores", header.scores)
    _show_data(header.data)
    _show_pairs("Tokenizer", header.tokenizer)
    _show_pairs("Configuration", _settings(header))
    files = [(name, _megabytes(num_bytes)) for name, num_bytes in file_sizes.items()]
    echo()
    show_table("", ["file", "size"], files)


def _settings(header: Header) -> Mapping[str, Any]:
    """Return the settings of a model; of a parser those that its family reads."""
    from seqtool.parsing.parser import families
    from seqtool.parsing.parser.config import KIND

    return families.settings_read(header) if header.kind == KIND else header.config


def _language_model(header: Header) -> dict[str, str]:
    """Return a row about the language model that a model reads or began as, if there is one."""
    from seqtool.classification.config import KIND as CLASSIFIER
    from seqtool.classification.config import LM

    data = header.data
    if not all(isinstance(data.get(name), int) for name in ("lm_bytes", "lm_parameters")):
        return {}
    size = f"{data['lm_parameters']:,} parameters, {_megabytes(data['lm_bytes'])}"
    has_its_layers = header.kind == CLASSIFIER and header.config["model"]["encoder"] == LM
    return {
        "began as"
        if has_its_layers
        else "reads": f"a language model of {data.get('lm_unit')} units: {size} more"
    }


def _inspect_corpus(path: Path, as_json: bool) -> None:
    from seqtool.text.prepared import PreparedCorpus

    corpus = PreparedCorpus.open(path)
    if as_json:
        return emit({"path": str(path), "kind": "prepared corpus", **corpus.info})
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    echo(path)
    _show_pairs("", {"kind": "prepared corpus", "size": _megabytes(size)})
    _show_data(corpus.info)


def _show_data(data: Mapping[str, Any]) -> None:
    """Show what a corpus is: one line per split, one per source, then everything else."""
    rest = dict(data)
    # a stranger's header may hold anything under these names
    splits, config = (rest.pop(name) if _is_section(rest.get(name)) else {} for name in SECTIONS)
    sources = rest.pop("sources") if _are_sections(rest.get("sources")) else []
    if splits and _are_sections(list(splits.values())):
        first = next(iter(splits.values()))
        names = [name for name, value in first.items() if type(value) in (int, float)]
        rows = [
            [split, *(_text(counts.get(name, "")) for name in names)]
            for split, counts in splits.items()
        ]
        echo()
        show_table("Data", ["split", *(name.replace("_", " ") for name in names)], rows)
    if sources:
        columns = list(sources[0])
        rows = [[_text(source.get(column, "")) for column in columns] for source in sources]
        echo()
        show_table("Sources", columns, rows)
    _show_pairs("About the data", rest)
    _show_pairs("How it was prepared", config)


def _is_section(value: object) -> bool:
    return isinstance(value, dict)


def _are_sections(values: object) -> bool:
    return isinstance(values, list) and all(map(_is_section, values))


def _show_pairs(title: str, values: Mapping[str, Any]) -> None:
    """Show names and values in two columns; sections become dotted names."""
    pairs = [(name, _text(value)) for name, value in flattened(values)]
    if not pairs:
        return
    width = max(len(name) for name, _ in pairs)
    if title:
        echo(f"\n{title}")
    for name, text in pairs:
        echo(f"  {name:<{width}}  {text}".rstrip())


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 100_000 else f"{num_bytes:,} bytes"
