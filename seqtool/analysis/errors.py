"""Where parsers err: by relation, length of the arc, place in the tree, length of the sentence.

Trees are over the same words, so every word has a gold arc and a predicted one. At a distance, the
recall is the share of gold arcs of this distance that were found, the precision that of predicted
arcs that are right; so transition-based and graph-based parsers can be told apart (McDonald & Nivre
2007, "Characterizing the errors of data-driven dependency parsing models", section 3). Relations
are compared without their subtypes. All figures count punctuation, in percent.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Bools, Longs
from seqtool.core.errors import ConfigError, DataError
from seqtool.parsing.missing_columns import naming_reader
from seqtool.treebank.alignment import universal_relation
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import DEPREL, Sentence

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20)  # a band is from one to before the next
DEPTHS = (1, 2, 3, 4, 5, 6, 7)
SENTENCES = (1, 11, 21, 31, 41, 51)
RELATIONS_SHOWN = 15
CONFUSED = 12  # pairs of the table


@dataclass(frozen=True)
class Arcs:
    """The trees of N words, one after another.

    Attributes:
        heads: [N] the number of each word's head, 0 for the root.
        relations: [N] without subtypes.
        lengths: [N] words from head to dependent; 0 for the root.
        depths: [N] arcs from the root; 1 for the root itself.
        crossing: [N] whether the arc is non-projective: a word between its ends does not depend on
            its head, directly or not.
    """

    heads: Longs
    relations: npt.NDArray[np.object_]
    lengths: Longs
    depths: Longs
    crossing: Bools


def arcs_of(sentences: Iterable[Sentence]) -> Arcs:
    """Return the arcs of sentences with trees."""
    words: list[tuple[int, str, int, int, bool]] = []
    for sentence in sentences:
        heads = sentence.heads()
        above = [_ancestors(heads, word) for word in range(1, len(heads) + 1)]
        relations = map(universal_relation, sentence.column(DEPREL))
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True), start=1):
            low, high = sorted((word, head))
            crosses = head > 0 and any(head not in above[one - 1] for one in range(low + 1, high))
            words.append((head, relation, high - low if head else 0, len(above[word - 1]), crosses))
    columns = zip(*words, strict=True) if words else [()] * 5
    kinds = np.int64, object, np.int64, np.int64, bool
    return Arcs(*(np.array(cells, kind) for cells, kind in zip(columns, kinds, strict=True)))


def _ancestors(heads: Sequence[int], word: int) -> list[int]:
    """Return all words that a word depends on, the nearest first, the root's 0 last."""
    above = [heads[word - 1]]
    while above[-1]:
        above.append(heads[above[-1] - 1])
    return above


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    beam: int = 1,
) -> Report:
    """Parse a treebank's words, and show where the trees are not those of the treebank.

    Args, beside those of `seqtool.analysis`:
        models: names and loaded parsers, side by side.
        text: a treebank with gold trees.
        beam: hypotheses that a parser follows at once.
    """
    for name, parser in models:
        if not hasattr(parser, "parse_stream"):
            raise ConfigError(f"{name} is no parser", hint="name one that train-parser made")
    sentences: list[Sentence] = list(read_conllu(text, skip_option=""))
    if not any(map(len, sentences)):
        raise DataError("the treebank is empty", hint="give one with a sentence", path=text)
    gold, sizes = arcs_of(sentences), list(map(len, sentences))
    predicted: dict[str, Arcs] = {}
    for name, parser in models:
        parsed = parser.parse_stream((copy.deepcopy(one) for one in sentences), beam=beam)
        with naming_reader(name if len(models) > 1 else None):
            predicted[name] = arcs_of(item for item in parsed if isinstance(item, Sentence))
    right = {
        name: (arcs.heads == gold.heads) & (arcs.relations == gold.relations)
        for name, arcs in predicted.items()
    }
    las = {name: _percent(correct) for name, correct in right.items()}
    crossing = gold.crossing
    of_arcs = {
        name: [_percent(correct[~crossing]), _percent(correct[crossing])]
        for name, correct in right.items()
    }
    report = Report("Where parsers err", values={"words": len(gold.heads)})
    columns = ["parser", "words", "UAS", "LAS", "LAS of non-projective arcs", "of the others"]
    overall: list[list[Cell]] = [
        [name, len(gold.heads), _percent(arcs.heads == gold.heads), las[name], *of_arcs[name][::-1]]
        for name, arcs in predicted.items()
    ]
    report.tables.append(Table("All words", columns, overall))
    _add_relations(report, gold, predicted, right)
    lengths = {name: arcs.lengths for name, arcs in predicted.items()}
    label = "words from head to dependent"
    _add_distances(report, "length", label, LENGTHS, gold.lengths, lengths, right)
    depths = {name: arcs.depths for name, arcs in predicted.items()}
    label = "arcs to the root"
    _add_distances(report, "distance to the root", label, DEPTHS, gold.depths, depths, right)
    _add_sentence_lengths(report, np.repeat(sizes, sizes), right)
    report.values["projective"] = {"non_projective_arcs": int(crossing.sum()), **of_arcs}
    for name, arcs in predicted.items():
        _add_confusions(report, name, gold, arcs, f", {name}" if len(models) > 1 else "")
    if len(models) == 2:
        _add_both(report, right)
    report.values["LAS"] = las
    return report


def _percent(right: Bools) -> float:
    return 100 * float(right.mean()) if len(right) else float("nan")


def _add_relations(
    report: Report, gold: Arcs, predicted: Mapping[str, Arcs], right: Mapping[str, Bools]
) -> None:
    """Add labelled F1 by relation, the commonest first."""
    counts = Counter(gold.relations.tolist())
    names = sorted(counts, key=lambda name: (-counts[name], name))
    f1: dict[str, list[float]] = {}
    for parser, arcs in predicted.items():
        of_parser = Counter(arcs.relations.tolist())
        correct = Counter(gold.relations[right[parser]].tolist())
        f1[parser] = [200 * correct[name] / (counts[name] + of_parser[name]) for name in names]
    title = "Labelled attachment by relation"
    columns = ["relation", "words", *(f"{parser}, F1" for parser in f1)]
    rows: list[list[Cell]] = [
        [name, counts[name], *(values[i] for values in f1.values())] for i, name in enumerate(names)
    ]
    report.tables.append(Table(title, columns, rows))
    shown = names[:RELATIONS_SHOWN]
    if len(names) > len(shown):
        title += f", the {len(shown)} commonest"
    series = [Series(parser, shown, values[: len(shown)]) for parser, values in f1.items()]
    report.charts.append(Chart(title, "bars", "relation", "F1 (percent)", series))
    report.values["relations"] = {
        name: {parser: values[i] for parser, values in f1.items()} for i, name in enumerate(names)
    }


def _add_distances(
    report: Report,
    what: str,
    x_label: str,
    starts: Sequence[int],
    gold: Longs,
    predicted: Mapping[str, Longs],
    right: Mapping[str, Bools],
) -> None:
    """Add recall by a gold arc's distance, precision by a predicted arc's."""
    names = _names(starts, gold, *predicted.values())
    scores: dict[str, dict[str, list[float]]] = {"recall": {}, "precision": {}}
    for parser, distances in predicted.items():
        scores["recall"][parser] = _by_band(right[parser], gold, starts, names)
        scores["precision"][parser] = _by_band(right[parser], distances, starts, names)
    for kind, of_parsers in scores.items():
        series = [Series(parser, names, values) for parser, values in of_parsers.items()]
        arcs_are = "gold arcs" if kind == "recall" else "predicted arcs"
        note = f"Of the {arcs_are} of each distance, the share that is right."
        title, label = f"Labelled {kind} by {what}", f"labelled {kind} (percent)"
        report.charts.append(Chart(title, "lines", x_label, label, series, note=note))
    nums = [int(in_band.sum()) for in_band in _bands(gold, starts, names)]
    columns = [x_label, "gold arcs"]
    for parser in predicted:
        columns += [f"{parser}, recall", "precision"]
    figures = [of_parsers[parser] for parser in predicted for of_parsers in scores.values()]
    rows: list[list[Cell]] = [list(row) for row in zip(names, nums, *figures, strict=True)]
    report.tables.append(Table(f"Labelled attachment by {what}", columns, rows))
    report.values[what.replace(" ", "_")] = {"bands": names, "gold_arcs": nums, **scores}


def _names(starts: Sequence[int], *measured: Longs) -> list[str]:
    """Return the names of the bands up to that of the largest value."""
    farthest = max(int(values.max()) for values in measured)
    return band_names(starts)[: np.searchsorted(starts, farthest, side="right")]


def _bands(values: Longs, starts: Sequence[int], names: Sequence[str]) -> list[Bools]:
    """Return for each band which values are in it."""
    places = np.searchsorted(starts, values, side="right") - 1
    return [places == band for band in range(len(names))]


def _by_band(
    right: Bools, values: Longs, starts: Sequence[int], names: Sequence[str]
) -> list[float]:
    """Return the percentage of words that are right, of each band."""
    return [_percent(right[in_band]) for in_band in _bands(values, starts, names)]


def _add_sentence_lengths(report: Report, sizes: Longs, right: Mapping[str, Bools]) -> None:
    """Add LAS by the number of words of the sentence."""
    names = _names(SENTENCES, sizes)
    las = {parser: _by_band(correct, sizes, SENTENCES, names) for parser, correct in right.items()}
    series = [Series(parser, names, values) for parser, values in las.items()]
    title, label = "LAS by the length of the sentence", "words of the sentence"
    report.charts.append(Chart(title, "lines", label, "LAS (percent)", series))
    rows: list[list[Cell]] = [list(row) for row in zip(names, *las.values(), strict=True)]
    report.tables.append(Table(title, [label, *(f"{parser}, LAS" for parser in las)], rows))
    report.values["sentence_length"] = {"bands": names, **las}


def _add_confusions(report: Report, parser: str, gold: Arcs, arcs: Arcs, where: str) -> None:
    """Add the relations that a parser takes for others."""
    wrong = gold.relations != arcs.relations
    gold_N, taken_N = gold.relations[wrong].tolist(), arcs.relations[wrong].tolist()
    pairs = Counter(zip(gold_N, taken_N, strict=True))
    ordered = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    rows: list[list[Cell]] = [[one, other, num] for (one, other), num in ordered]
    keys = "gold", "predicted", "words"
    report.values.setdefault("confusions", {})[parser] = [
        dict(zip(keys, row, strict=True)) for row in rows
    ]
    if not pairs:
        report.remarks.append(f"{parser} takes no relation for another.")
        return
    title = f"Relations taken for others{where}"
    report.tables.append(Table(f"{title}, the commonest", keys, rows[:CONFUSED]))


def _add_both(report: Report, right: Mapping[str, Bools]) -> None:
    """Add how many words both parsers, one of them, or none gets right."""
    (first, one), (second, other) = right.items()
    counts = {
        "both": int((one & other).sum()),
        f"{first} alone": int((one & ~other).sum()),
        f"{second} alone": int((~one & other).sum()),
        "neither": int((~one & ~other).sum()),
    }
    rows: list[list[Cell]] = [[name, num, 100 * num / len(one)] for name, num in counts.items()]
    columns = ["right head and relation", "words", "share (percent)"]
    report.tables.append(Table("Two parsers on the same words", columns, rows))
    report.remarks.append(
        f"Whoever chose the better of {first} and {second} at each word would have an LAS of "
        f"{_percent(one | other):.2f}."
    )
    report.values["two_parsers"] = counts


def band_names(starts: Sequence[int]) -> list[str]:
    """Return how bands are called that begin at these numbers: 1, 2, 3-5, 6+."""
    names = [
        str(start) if after == start + 1 else f"{start}-{after - 1}"
        for start, after in pairwise(starts)
    ]
    return [*names, f"{starts[-1]}+"]
