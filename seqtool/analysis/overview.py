"""All analyses that fit the models of a directory: what was trained, how well, and what it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from seqtool.analysis.learning import learning_curves, logs_of, shown_name
from seqtool.analysis.passage import read_passage, surprisals
from seqtool.analysis.report import Cell, Report, Table
from seqtool.core import checkpoint
from seqtool.core.checkpoint import LM_KINDS
from seqtool.core.errors import DataError, ModelError, SeqtoolError
from seqtool.core.vocabulary import UNK_ID
from seqtool.text.datasets import sample_text, sample_treebank

LANGUAGES = ("en", "ko")  # of the sample
TRIED = 2000  # tokens by which the text of a model is chosen
MOST_UNKNOWN = 0.3  # a model that knows fewer words of a text is of another language
SIDE_BY_SIDE = 6  # models of one chart
PARSED = ("parser", "pipeline")

OnAnalysis = Callable[[str], object]


RECURRENT = "recurrent"  # a neural language model, but for those of a window
# of language models that read one text, in this order: the module of the analysis, kinds of models,
# and options where a page wants others than the defaults
OF_TEXT: tuple[tuple[str, tuple[str, ...], dict[str, int]], ...] = (
    ("gradients", (RECURRENT,), {"num_positions": 32, "num_jacobians": 2}),
    ("spectra", (RECURRENT,), {"num_positions": 1}),
    ("gates", (RECURRENT,), {}),
    ("dynamics", (RECURRENT,), {"num_starts": 10, "num_newton": 2}),
    ("context", LM_KINDS[:-1], {"num_targets": 150}),  # no mixture
    ("surprisal", LM_KINDS, {"num_tokens": 10_000}),
    ("sparsity", ("ngram",), {}),
)


class Entry(NamedTuple):
    """A model of a directory.

    Attributes:
        name: its path below the directory.
        path: where it is.
        header: its header.
    """

    name: str
    path: Path
    header: checkpoint.Header


def find_models(directory: Path) -> list[Entry]:
    """Return the models of a directory, and of the folders in it; not the parts of a model.

    Raises:
        DataError: there is none.
        ModelError: the header of one is damaged.
    """
    entries = []
    for path in sorted((*directory.glob("*"), *directory.glob("*/*"))):
        is_part = path.parent != directory and (path.parent / checkpoint.HEADER).is_file()
        if (path / checkpoint.HEADER).is_file() and not is_part:
            name = path.relative_to(directory).as_posix()
            entries.append(Entry(name, path, checkpoint.read_header(path)))
    if not entries:
        hint = "train one with `seqtool ngram train` or `seqtool train-lm`, or name another one"
        raise DataError("there is no model in it", hint=hint, path=directory)
    return entries


def overview(
    directory: Path,
    *,
    text: Path | None = None,
    treebank: Path | None = None,
    seed: int = 1,
    threads: int | None = None,
    on_analysis: OnAnalysis = lambda _: None,
) -> Iterator[Report]:
    """Give the reports on the models of a directory, one after another.

    Each language model is shown on the text of the sample that it knows best, and so is each
    parser; models of one text stand side by side. An analysis that a model cannot have is told of
    in its place, as are networks without PyTorch.

    Args:
        directory: of models; the parts of pipelines and mixtures are not shown by themselves.
        text: what language models are shown on; a text of the sample where none is given.
        treebank: what parsers are shown on, in the same way.
        seed: of all that is drawn.
        threads: of networks.
        on_analysis: called with what comes next.

    Raises:
        DataError: there is no model.
        ModelError: a model is damaged, but for a mixture whose parts are gone or others.
    """
    models = find_models(directory)
    yield _trained(models)
    logs = []
    for one in models:
        for log in logs_of(one.path):  # of a pipeline, those of its parts
            is_own = log.parent == one.path
            logs.append((one.name if is_own else f"{one.name}/{log.parent.name}", log))
    if logs:
        on_analysis("learning curves")
        yield _or_reason("Learning curves", lambda: learning_curves(logs))
    opened: list[tuple[Entry, Any]] = []
    remarks = []
    for one in models:
        if one.header.kind not in (*LM_KINDS, *PARSED, "tagger"):
            continue
        try:
            opened.append((one, _open(one, threads)))
        except ModuleNotFoundError as error:
            remarks.append(f"{one.name}: left out, {_no_torch(error)}")
        except ModelError as error:
            if one.header.kind != "mixture":
                raise
            remarks.append(f"{one.name}: left out: {error}. {error.hint}".strip())
    if remarks:
        yield Report("Models that were left out", remarks)
    yield from _of_language_models(opened, text, seed, on_analysis)
    yield from _of_parsers(opened, treebank, on_analysis)
    for one, model in opened:
        if one.header.kind in ("neural-lm", *PARSED, "tagger"):
            on_analysis(f"embeddings: {one.name}")
            yield _analysed("embeddings", one.name, [(one.name, model)], seed=seed)


def _open(entry: Entry, threads: int | None) -> Any:
    if entry.header.kind not in LM_KINDS:
        return checkpoint.load(entry.path)
    from seqtool.lm.mixture.model import open_language_model

    return open_language_model(entry.path, threads=threads)


def _no_torch(error: ModuleNotFoundError) -> str:
    """Return why something is left out; raise what is not that PyTorch is missing."""
    if (error.name or "").partition(".")[0] != "torch":
        raise error
    return "as this needs PyTorch, which is not installed."


def _trained(models: Sequence[Entry]) -> Report:
    """Return what the headers tell."""
    rows: list[list[Cell]] = []
    for one in models:
        header = one.header
        scores = ", ".join(
            f"{shown_name(name)} {value:,.2f}"
            for name, value in header.scores.items()
            if isinstance(value, int | float) and math.isfinite(value) and "second" not in name
        )
        size = sum(checkpoint.file_sizes(one.path, header).values()) / 1e6
        rows.append([one.name, _kind(header), header.num_parameters, size, scores, header.command])
    columns = ["model", "kind", "parameters", "size (MB)", "scores", "made by"]
    values = {"models": [dict(zip(columns, row, strict=True)) for row in rows]}
    tables = [Table("Models", columns, rows)]
    return Report("What was trained, and how well", tables=tables, values=values)


def _kind(header: checkpoint.Header) -> str:
    model = header.config.get("model")
    cell = model.get("cell") if isinstance(model, dict) else None
    return f"{header.kind} ({cell})" if isinstance(cell, str) else header.kind


def _of_language_models(
    opened: Sequence[tuple[Entry, Any]], text: Path | None, seed: int, on_analysis: OnAnalysis
) -> Iterator[Report]:
    """Give the reports on language models, those that read the same text side by side."""
    groups: dict[tuple[str, Path], list[tuple[Entry, Any]]] = {}
    texts = [text] if text else [sample_text(language, "test") for language in LANGUAGES]
    for one, model in opened:
        if one.header.kind not in LM_KINDS:
            continue
        (unknown, _), chosen = min((_strangeness(model, path), path) for path in texts)
        if unknown > MOST_UNKNOWN:
            remark = f"{one.name} does not know the words of {chosen}; give a text with --text."
            yield Report(f"{one.name} on {chosen.name}", [remark])
        else:
            groups.setdefault((model.tokenizer.unit, chosen), []).append((one, model))
    for (unit, chosen), members in groups.items():
        where = f"{unit}s of {'/'.join(chosen.parts[-2:])}"
        for module, kinds, settings in OF_TEXT:
            fitting = [each for each in members if _fits(each[1], kinds)][:SIDE_BY_SIDE]
            if not fitting:
                continue
            on_analysis(f"{module}: {where}")
            options: dict[str, Any] = {"seed": seed, **settings}
            if module == "sparsity":
                options["statistics"] = {one.name: one.header.statistics for one, _ in fitting}
            pairs = [(one.name, model) for one, model in fitting]
            yield _analysed(module, where, pairs, chosen, **options)


def _fits(model: Any, kinds: Sequence[str]) -> bool:
    """Return whether an analysis of models of these kinds is for a model."""
    is_recurrent = model.kind == "neural-lm" and model.network.config.cell != "window"
    return model.kind in kinds or (is_recurrent and RECURRENT in kinds)


def _strangeness(model: Any, text: Path) -> tuple[float, float]:
    """Return the share of a text's tokens that a model does not know, and its mean surprisal."""
    passage = read_passage(model, text, num_tokens=TRIED)
    unknown = round(float((passage.ids == UNK_ID).mean()), 2)
    return unknown, float(surprisals(model, passage).mean())


def _of_parsers(
    opened: Sequence[tuple[Entry, Any]], treebank: Path | None, on_analysis: OnAnalysis
) -> Iterator[Report]:
    groups: dict[Path, list[tuple[str, Any]]] = {}
    samples = [sample_treebank(language, "test") for language in LANGUAGES]
    for one, model in opened:
        if one.header.kind in PARSED:
            chosen = treebank or min((_unknown_share(model, path), path) for path in samples)[1]
            groups.setdefault(chosen, []).append((one.name, model))
    for chosen, members in groups.items():
        where = "/".join(chosen.parts[-2:])
        on_analysis(f"errors: {where}")
        yield _analysed("errors", where, members[:SIDE_BY_SIDE], chosen)


def _unknown_share(model: Any, treebank: Path) -> float:
    """Return the share of the words of a treebank's beginning that a parser does not know."""
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.sentence import FORM

    beginning = islice(read_conllu(treebank, check="columns"), 100)
    share = model.known.share_of(form for sentence in beginning for form in sentence.column(FORM))
    return share or 0.0  # None: it reads no forms


def _analysed(module: str, where: str, *inputs: object, **options: Any) -> Report:
    """Return the report of an analysis under a title that names what it is on."""
    name = f"seqtool.analysis.{module}"
    report = _or_reason(module, lambda: import_module(name).analyse(*inputs, **options))
    report.title += f": {where}"
    return report


def _or_reason(name: str, make: Callable[[], Report]) -> Report:
    """Return a report, or one that says why there is none: a page shows the others all the same."""
    try:
        return make()
    except ModelError:
        raise
    except ModuleNotFoundError as error:
        return Report(name, [f"Left out, {_no_torch(error)}"])
    except SeqtoolError as error:
        return Report(name, [f"Left out: {error}. {error.hint}".strip()])
