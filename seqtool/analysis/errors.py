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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.analysis.report import Cell, Chart, HeatMap, Report, Series, Table
from seqtool.core.arrays import Bools, Longs
from seqtool.core.errors import ConfigError, DataError
from seqtool.parsing.parser.columns import naming_reader
from seqtool.treebank.alignment import universal_relation
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import DEPREL, Sentence

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20)  # a band is from one to before the next
DEPTHS = (1, 2, 3, 4, 5, 6, 7)
SENTENCES = (1, 11, 21, 31, 41, 51)
RELATIONS_SHOWN = 15
CONFUSED = 12  # relations of the heat map


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
    heads: list[int] = []
    relations: list[str] = []
    lengths: list[int] = []
    depths: list[int] = []
    crossing: list[bool] = []
    for sentence in sentences:
        own = sentence.heads()
        heads += own
        relations += map(universal_relation, sentence.column(DEPREL))
        lengths += [abs(head - word) if head else 0 for word, head in enumerate(own, start=1)]
        above = [_ancestors(own, word) for word in range(1, len(own) + 1)]
        depths += map(len, above)
        crossing += [
            head > 0
            and any(head not in above[between - 1] for between in range(min(word, head) + 1,
                                                                         max(word, head)))
            for word, head in enumerate(own, start=1)
        ]  # fmt: skip
    return Arcs(
        np.asarray(heads, np.int64),
        np.asarray(relations, object),
        np.asarray(lengths, np.int64),
        np.asarray(depths, np.int64),
        np.asarray(crossing, bool),
    )


def _ancestors(heads: Sequence[int], word: int) -> list[int]:
    """Return all words that a word depends on, the nearest first, the root's 0 last."""
    found = [heads[word - 1]]
    while found[-1]:
        found.append(heads[found[-1] - 1])
    return found


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    seed: int = 1,
    beam: int = 1,
) -> Report:
    """Parse a treebank's words, and show where the trees are not those of the treebank.

    Args:
        models: names and loaded parsers, side by side.
        text: a treebank with gold trees.
        seed: nothing is drawn; every analysis has one.
        beam: hypotheses that a parser follows at once.

    Raises:
        ConfigError: a model is no parser.
        DataError: a treebank that cannot be used.
    """
    for name, parser in models:
        if not hasattr(parser, "parse_stream"):
            raise ConfigError(f"{name} is no parser", hint="name one that train-parser made")
    sentences: list[Sentence] = list(read_conllu(text, skip_option=""))
    if not any(map(len, sentences)):
        raise DataError("the treebank is empty", hint="give one with a sentence", path=text)
    gold = arcs_of(sentences)
    sizes = np.repeat(list(map(len, sentences)), list(map(len, sentences)))
    predicted: dict[str, Arcs] = {}
    for name, parser in models:
        given = (copy.deepcopy(sentence) for sentence in sentences)
        parsed = parser.parse_stream(given, beam=beam)
        with naming_reader(name if len(models) > 1 else None):
            predicted[name] = arcs_of(item for item in parsed if isinstance(item, Sentence))
    right = {
        name: (arcs.heads == gold.heads) & (arcs.relations == gold.relations)
        for name, arcs in predicted.items()
    }
    builder = _Builder(gold, predicted, right)
    overall: list[list[Cell]] = [
        [name, len(gold.heads), _percent(arcs.heads == gold.heads), _percent(right[name]),
         _percent(right[name][gold.crossing]), _percent(right[name][~gold.crossing])]
        for name, arcs in predicted.items()
    ]  # fmt: skip
    builder.tables.append(
        Table(
            "All words",
            ["parser", "words", "UAS", "LAS", "LAS of non-projective arcs", "of the others"],
            overall,
        )
    )
    builder.relations()
    builder.by_distance("length", "words from head to dependent", LENGTHS, lambda a: a.lengths)
    builder.by_distance("distance to the root", "arcs to the root", DEPTHS, lambda a: a.depths)
    builder.by_sentence_length(sizes)
    builder.projective()
    for name, arcs in predicted.items():
        builder.confusions(name, arcs)
    if len(models) == 2:
        builder.both()
    builder.values["LAS"] = {name: _percent(found) for name, found in right.items()}
    return Report(
        "Where parsers err", builder.remarks, builder.tables, builder.charts, builder.values
    )


def _percent(right: Bools) -> float:
    return 100 * float(right.mean()) if len(right) else float("nan")


class _Builder:
    """Tables and charts as they are made, one after another."""

    def __init__(self, gold: Arcs, predicted: dict[str, Arcs], right: dict[str, Bools]) -> None:
        self.gold, self.predicted, self.right = gold, predicted, right
        self.remarks: list[str] = []
        self.tables: list[Table] = []
        self.charts: list[Chart | HeatMap] = []
        self.values: dict[str, Any] = {"words": len(gold.heads)}

    def relations(self) -> None:
        """Add labelled F1 by relation, the commonest first."""
        gold = Counter(self.gold.relations.tolist())
        names = sorted(gold, key=lambda name: (-gold[name], name))
        rows: list[list[Cell]] = []
        found: dict[str, list[float]] = {}
        for parser, arcs in self.predicted.items():
            of_parser = Counter(arcs.relations.tolist())
            correct = Counter(self.gold.relations[self.right[parser]].tolist())
            found[parser] = [200 * correct[name] / (gold[name] + of_parser[name]) for name in names]
        for i, name in enumerate(names):
            rows.append([name, gold[name], *(found[parser][i] for parser in found)])
        columns = ["relation", "words", *(f"{parser}, F1" for parser in found)]
        self.tables.append(Table("Labelled attachment by relation", columns, rows))
        shown = names[:RELATIONS_SHOWN]
        title = "Labelled attachment by relation"
        if len(names) > len(shown):
            title += f", the {len(shown)} commonest"
        series = [Series(parser, shown, values[: len(shown)]) for parser, values in found.items()]
        self.charts.append(Chart(title, "bars", "relation", "F1 (percent)", series))
        self.values["relations"] = {
            name: {parser: found[parser][i] for parser in found} for i, name in enumerate(names)
        }

    def by_distance(
        self, what: str, x_label: str, starts: Sequence[int], measure: Callable[[Arcs], Longs]
    ) -> None:
        """Add recall by a gold arc's distance, precision by a predicted arc's."""
        farthest = max(int(measure(a).max()) for a in (self.gold, *self.predicted.values()))
        names = band_names(starts)[: np.searchsorted(starts, farthest, side="right")]
        found: dict[str, dict[str, list[float]]] = {"recall": {}, "precision": {}}
        gold_bands = np.searchsorted(starts, measure(self.gold), side="right") - 1
        nums = [int((gold_bands == band).sum()) for band in range(len(names))]
        for parser, arcs in self.predicted.items():
            for kind, distances in (("recall", measure(self.gold)), ("precision", measure(arcs))):
                bands = np.searchsorted(starts, distances, side="right") - 1
                found[kind][parser] = [
                    _percent(self.right[parser][bands == band]) for band in range(len(names))
                ]
        for kind, of_parsers in found.items():
            series = [Series(parser, names, values) for parser, values in of_parsers.items()]
            title = f"Labelled {kind} by {what}"
            arcs_are = "gold arcs" if kind == "recall" else "predicted arcs"
            note = f"Of the {arcs_are} of each distance, the share that is right."
            label = f"labelled {kind} (percent)"
            self.charts.append(Chart(title, "lines", x_label, label, series, note=note))
        columns = [x_label, "gold arcs"]
        for parser in self.predicted:
            columns += [f"{parser}, recall", "precision"]
        rows: list[list[Cell]] = [
            [name, nums[i], *(found[kind][one][i] for one in self.predicted for kind in found)]
            for i, name in enumerate(names)
        ]
        self.tables.append(Table(f"Labelled attachment by {what}", columns, rows))
        self.values[what.replace(" ", "_")] = {"bands": names, "gold_arcs": nums, **found}

    def by_sentence_length(self, sizes: Longs) -> None:
        """Add LAS by the number of words of the sentence."""
        names = band_names(SENTENCES)[: np.searchsorted(SENTENCES, sizes.max(), side="right")]
        bands = np.searchsorted(SENTENCES, sizes, side="right") - 1
        found = {
            parser: [_percent(right[bands == band]) for band in range(len(names))]
            for parser, right in self.right.items()
        }
        series = [Series(parser, names, values) for parser, values in found.items()]
        title, label = "LAS by the length of the sentence", "LAS (percent)"
        self.charts.append(Chart(title, "lines", "words of the sentence", label, series))
        self.values["sentence_length"] = {"bands": names, **found}

    def projective(self) -> None:
        """Add LAS of arcs that are projective, and of those that are not."""
        names = ["projective", "non-projective"]
        crossing = self.gold.crossing
        found = {
            parser: [_percent(right[~crossing]), _percent(right[crossing])]
            for parser, right in self.right.items()
        }
        num = int(crossing.sum())
        note = f"{num:,} of {len(crossing):,} gold arcs are non-projective."
        series = [Series(parser, names, values) for parser, values in found.items()]
        title = "LAS of projective and non-projective arcs"
        self.charts.append(Chart(title, "bars", "gold arc", "LAS (percent)", series, note=note))
        self.values["projective"] = {"non_projective_arcs": num, **found}

    def confusions(self, parser: str, arcs: Arcs) -> None:
        """Add a heat map of the relations that a parser takes for others."""
        wrong = self.gold.relations != arcs.relations
        pairs = Counter(
            zip(self.gold.relations[wrong].tolist(), arcs.relations[wrong].tolist(), strict=True)
        )
        where = f", {parser}" if len(self.predicted) > 1 else ""
        self.values.setdefault("confusions", {})[parser] = [
            {"gold": one, "predicted": other, "words": num}
            for (one, other), num in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
        ]
        if not pairs:
            self.remarks.append(f"{parser} takes no relation for another.")
            return
        sums: Counter[str] = Counter()
        for pair, num in pairs.items():
            for name in pair:
                sums[name] += num
        names = sorted(sums, key=lambda name: (-sums[name], name))[:CONFUSED]
        values = [
            [float(pairs[one, other]) if one != other else float("nan") for other in names]
            for one in names
        ]
        self.charts.append(
            HeatMap(f"Relations taken for others{where}", "predicted", "gold", names, names,
                    values, "words", "The diagonal is left out.")
        )  # fmt: skip

    def both(self) -> None:
        """Add how many words both parsers, one of them, or none gets right."""
        first, second = self.right
        one, other = self.right[first], self.right[second]
        counts = {
            "both": int((one & other).sum()),
            f"{first} alone": int((one & ~other).sum()),
            f"{second} alone": int((~one & other).sum()),
            "neither": int((~one & ~other).sum()),
        }
        rows: list[list[Cell]] = [
            [name, num, 100 * num / max(1, len(one))] for name, num in counts.items()
        ]
        columns = ["right head and relation", "words", "share (percent)"]
        self.tables.append(Table("Two parsers on the same words", columns, rows))
        best = 100 * float((one | other).mean())
        self.remarks.append(
            f"Whoever chose the better of {first} and {second} at each word would have an LAS of "
            f"{best:.2f}."
        )
        self.values["two_parsers"] = counts


def band_names(starts: Sequence[int]) -> list[str]:
    """Return how bands are called that begin at these numbers: 1, 2, 3-5, 6+."""
    names = [
        str(start) if after == start + 1 else f"{start}-{after - 1}"
        for start, after in pairwise(starts)
    ]
    return [*names, f"{starts[-1]}+"]
