"""`seqtool inspect`: what a model or a prepared corpus is; `seqtool pack`: a model as one file.

What is inspected gives an object for `--json` and sections, each a title with names and values, or
with rows of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from seqtool.cli import options as cli
from seqtool.cli.models import default_model
from seqtool.cli.usage import examples
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, ModelError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.lm.ngram.table import OrderSize

Row = Mapping[str, Any]
Section = tuple[str, Row | Sequence[Row]]

NGRAMS = ("ngram", "class-ngram")
CONTEXT = 30  # characters of a line on each side of a word


@examples(
    "seqtool inspect runs/my",
    "seqtool inspect runs/my --plot curve.svg",
    "seqtool inspect train.conllu --where 'upos=VERB > deprel=obj & feats.Case=Acc'",
)
def inspect(
    paths: list[Path] | None = cli.argument(
        None, "A model, corpus or treebank; with --plot several runs.", "MODEL"
    ),
    plot: Path | None = cli.option(
        None, "Draw learning curves of runs, or sizes of an n-gram model's orders.", "FILE"
    ),
    where: list[str] | None = cli.option(
        None, "Show the words that are so, as deprel=nsubj; repeatable.", "QUERY"
    ),
    strict: cli.StrictOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Show what a model, a prepared corpus or a treebank is: sizes, configuration, data, scores.

    Every file of a model is checked against the sum that its header records.

    A QUERY is a condition of a word (upos=VERB, deprel==nsubj, lemma=buy|sell, form=un*,
    feats.Case!=Nom, or * for any word), several (& and |, parentheses), or relations to other
    words: 'upos=VERB > deprel=obj' is a verb with an object. A > B: B is a child of A; A < B: B is
    the head of A; >> and <<: however far down or up; A + B: B is the next word; A - B: the one
    before; ++ and --: however far. A >++ B: a child that comes later; A !> B: no such child.
    """
    from seqtool.cli.prepare import check_treebanks
    from seqtool.core.reading import holds_treebanks, is_corpus

    if not paths:
        paths = [default_model("lm", "ngram", "parser", "tagger", "segmenter", "classifier")]
    if len(paths) > 1 and plot is None:
        raise ConfigError("several models are for --plot", hint="name one, or a picture")
    path = paths[0]
    is_treebank = holds_treebanks(path)
    for option, value in (("--where", where), ("--strict", strict)):
        if value and not is_treebank:
            raise ConfigError(f"{option} is for treebanks", hint="name a .conllu file")
    if bool(where) + bool(strict) + (plot is not None) > 1:
        what = "--where, --plot and --strict exclude each other"
        raise ConfigError(what, hint="give only one")
    if where:
        return _show_words(path, where, as_json)
    if plot is not None:
        return _plot(paths, plot, as_json)
    if is_treebank:
        return check_treebanks([str(path)], as_json, strict=strict)
    describe = _file if checkpoint.is_foreign(path) else _corpus if is_corpus(path) else _model
    content, sections = describe(path)
    if as_json:
        return cli.emit(content)
    echo(content["path"])
    for title, section in sections:
        _show(title, section)


def _file(path: Path) -> tuple[dict[str, Any], list[Section]]:
    """Describe an ARPA file, with the bytes that its orders take as a model of our own."""
    sizes = _sizes(path)
    size = path.stat().st_size
    about = {"kind": "ARPA file", "vocabulary": sizes[0].ngrams - 1}  # without <s>
    content = {"vocabulary_size": about["vocabulary"], "bytes": size, "orders": sizes}
    return {"path": str(path), "kind": "ARPA file", **content}, [
        ("", {**about, "size": _megabytes(size)}),
        ("Orders", _order_rows(sizes)),
    ]


def _corpus(path: Path) -> tuple[dict[str, Any], list[Section]]:
    from seqtool.text.prepared import PreparedCorpus

    info = PreparedCorpus.open(path).info
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    about: Section = ("", {"kind": "prepared corpus", "size": _megabytes(size)})
    return {"path": str(path), "kind": "prepared corpus", **info}, [about, *_data_sections(info)]


def _model(path: Path) -> tuple[dict[str, Any], list[Section]]:
    from seqtool.parsing.parser.config import KIND
    from seqtool.parsing.parser.families import settings_read

    given, path, header = path, checkpoint.find(path), checkpoint.read_header(path)
    checkpoint.verify(path, header, sums=True)
    file_sizes = checkpoint.file_sizes(path, header)
    size = sum(file_sizes.values())
    sizes = _sizes(path) if header.kind in NGRAMS else []
    features = header.statistics.get("kinds")  # a stranger's header may hold anything
    kinds: list[Row] = features if _are_rows(features) else []
    more = ({"orders": sizes} if sizes else {}) | ({"kinds": kinds} if kinds else {})
    content = asdict(header)
    del content["statistics"]  # the orders and kinds say it
    about = {
        "kind": header.kind,
        "parameters": header.num_parameters,
        "size": _megabytes(size),
        "made by": header.command or "the Python library",
        "versions": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
    }
    settings = settings_read(header) if header.kind == KIND else header.config
    shown = given if checkpoint.is_packed(given) else path
    return {"path": str(shown), **content, "bytes": size, **more}, [
        ("", about),
        ("Orders", _order_rows(sizes)),
        ("Features", kinds),
        ("Scores", header.scores),
        *_data_sections(header.data),
        ("Tokenizer", header.tokenizer),
        ("Configuration", settings),
        ("Files", [{"file": name, "size": _megabytes(num)} for name, num in file_sizes.items()]),
    ]


def _data_sections(data: Row) -> Iterator[Section]:
    """Give the description of a corpus: rows of splits and of sources, then everything else."""
    rest = dict(data)
    splits, sources, config = (rest.pop(name, None) for name in ("splits", "sources", "config"))
    if isinstance(splits, dict) and _are_rows([*splits.values()]):
        rows = [{"split": name, **split} for name, split in splits.items()]
        yield "Data", [{k: v for k, v in row.items() if not isinstance(v, list)} for row in rows]
    if _are_rows(sources):
        yield "Sources", sources
    yield "About the data", rest
    yield "How it was prepared", config if isinstance(config, dict) else {}


def _are_rows(values: object) -> TypeGuard[list[Row]]:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _sizes(path: Path) -> list[OrderSize]:
    """Return the sizes of the orders of an n-gram model, or of an ARPA file."""
    from seqtool.lm.array_file import map_arrays
    from seqtool.lm.ngram.table import order_sizes

    def nbytes(arrays: Mapping[str, Any]) -> dict[str, int]:
        return {name: array.nbytes for name, array in arrays.items()}

    if path.is_file():
        return order_sizes(nbytes(checkpoint.load(path).table.arrays()))
    try:
        sizes = nbytes(map_arrays(path / checkpoint.WEIGHTS))
        return order_sizes(sizes, checkpoint.read_header(path).statistics)
    except (ValueError, KeyError, TypeError, OSError) as error:
        hint = "copy the model again, or train it again"
        raise ModelError(f"damaged weights: {error}", hint=hint, path=path) from error


def _order_rows(sizes: Sequence[OrderSize]) -> list[Row]:
    """Return a row per order, without the columns that no order has anything for."""
    rows = []
    for size in sizes:
        discounts = " ".join(f"{discount:.4f}" for discount in size.discounts)
        row = {
            "order": size.order,
            "n-grams": size.ngrams,
            "pruned": size.pruned,
            "singletons": size.singletons,
            "discounts": discounts + (" (fallback)" if size.fallback else ""),
            "size": _megabytes(size.bytes),
            "up to here": _megabytes(size.total_bytes),
        }
        rows.append({name: "" if value is None else value for name, value in row.items()})
    empty = {name for row in rows for name in row if all(other[name] == "" for other in rows)}
    return [{name: row[name] for name in row if name not in empty} for row in rows]


def _show(title: str, section: Row | Sequence[Row]) -> None:
    """Print rows as a table; names and values in two columns, where sections are dotted names."""
    if not section:
        return
    if title:
        echo()
    if not isinstance(section, Mapping):
        cells = [[_text(row.get(name, "")) for name in section[0]] for row in section]
        return cli.show_table(title, [name.replace("_", " ") for name in section[0]], cells)
    if title:
        echo(title)
    pairs = [(name, _text(value)) for name, value in cli.flattened(section)]
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        echo(f"  {name:<{width}}  {text}".rstrip())


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    return str(value)


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 100_000 else f"{num_bytes:,} bytes"


def _plot(paths: Sequence[Path], output: Path, as_json: bool) -> None:
    from seqtool.analysis.drawing import check_picture
    from seqtool.analysis.learning import LOG, find_logs, learning_curves
    from seqtool.analysis.report import Report
    from seqtool.analysis.sparsity import sizes_chart
    from seqtool.cli.reports import check_folders, save_picture, to_json

    check_picture(output)
    check_folders(output)
    path = checkpoint.find(paths[0]) if checkpoint.is_packed(paths[0]) else paths[0]
    is_model = not path.is_file() and (path / checkpoint.HEADER).is_file()
    has_orders = is_model and checkpoint.read_header(path).kind in NGRAMS
    if has_orders or (path.is_file() and path.name != LOG):
        sizes = _sizes(path)
        report = Report("Size by order", charts=[sizes_chart(sizes)], values={"orders": sizes})
    else:
        logs = [log for path in paths for log in find_logs(path)]
        report = learning_curves(logs, settings=False)
    picture = save_picture(report.charts, output)
    if as_json:
        return cli.emit(to_json(report))
    echo(picture)


def _show_words(path: Path, where: Sequence[str], as_json: bool) -> None:
    """Print the words of a treebank that a query asks for: a line for each, or one object."""
    from rich.cells import set_cell_size

    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.queries import Query, QueryHints, matches

    query = Query(where)
    hints = QueryHints(query)
    words: list[dict[str, Any]] = []
    num_words = num_with = num_sentences = 0
    for sentence in read_conllu(path, check="columns", skip_option=""):
        here = matches(sentence, query)
        num_words += len(here)
        num_with += bool(here)
        num_sentences += 1
        if not num_words:
            hints.add(sentence)
        if as_json:
            words += [match.to_json() for match in here]
            continue
        for match in here:
            before = set_cell_size(match.before[::-1], CONTEXT)[::-1]
            after = set_cell_size(match.after, CONTEXT)  # as wide in every line
            echo(f"{before}[{match.written}]{after}  {match.place}")
    if as_json:
        cli.emit({"path": str(path), "where": query.to_json(), "words": words})
    for hint in () if num_words else hints.lines():
        cli.note(f"note: {hint}")
    if not as_json:
        total = counted(num_sentences, "sentence")
        cli.note(f"{counted(num_words, 'word')} in {num_with:,} of {total}")


@examples("seqtool pack runs/mine -o mine.zip", "seqtool parse letter.txt -m mine.zip")
def pack(
    model: Path = cli.argument(..., "A model directory, but for a mixture.", "MODEL"),
    output: Path = cli.option(..., "The file, which is replaced.", "FILE", "-o", "--output"),
) -> None:
    """Write a model as one file, which every -m and seqtool.load take in place of the directory.

    What training left, and needs for --resume, stays out. The file is a zip of the model's files as
    they are; it holds their sums and no code.
    """
    checkpoint.pack(model, output)
    cli.note(f"{output.stat().st_size:,} bytes")
    echo(output)
