"""How good predicted labels are: accuracy, F1 of each label and their mean, confusions.

Shapes: N texts, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Doubles, Longs
from seqtool.core.one_line import OneLine


class LabelScores(NamedTuple):
    """The scores of one label, in percent, and how many texts have it."""

    label: str
    precision: float
    recall: float
    f1: float
    texts: int


@dataclass(frozen=True)
class Evaluation(OneLine):
    """Predicted labels beside the gold ones.

    Attributes:
        labels: those of the classifier, then those that only the gold labels have.
        confusion: texts by gold label (rows) and predicted label (columns), [K, K].
    """

    shown = ("num_texts", "scores")

    labels: tuple[str, ...]
    confusion: Longs

    @property
    def num_texts(self) -> int:
        """N."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """The share of texts whose label is right, in percent."""
        return 100.0 * float(np.trace(self.confusion)) / max(1, self.num_texts)

    @property
    def majority(self) -> float:
        """The accuracy of the label that is the commonest in training, in percent.

        It is the first of the labels.
        """
        return 100.0 * float(self.confusion[0].sum()) / max(1, self.num_texts)

    @property
    def by_label(self) -> list[LabelScores]:
        """The scores of each label; 0 where precision or recall is of no texts."""
        right = np.diag(self.confusion).astype(np.float64)
        gold, found = self.confusion.sum(1), self.confusion.sum(0)
        columns = (_percent(right, found), _percent(right, gold), _percent(2 * right, gold + found))
        rows = zip(*(column.tolist() for column in columns), gold.tolist(), strict=True)
        return [LabelScores(label, *row) for label, row in zip(self.labels, rows, strict=True)]

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels that are gold or predicted somewhere, in percent."""
        occurs = (self.confusion.sum(0) + self.confusion.sum(1)) > 0
        f1 = [scores.f1 for scores, is_met in zip(self.by_label, occurs, strict=True) if is_met]
        return sum(f1) / max(1, len(f1))

    @property
    def scores(self) -> dict[str, float]:
        """Accuracy, macro F1, and the accuracy of the majority label."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "majority_accuracy": self.majority,
        }

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            **self.scores,
            "labels": [scores._asdict() for scores in self.by_label],
            "confusion": self.confusion.tolist(),
        }


def evaluate(labels: Sequence[str], gold: Sequence[str], predicted: Sequence[str]) -> Evaluation:
    """Compare predicted labels with gold ones.

    Args:
        labels: of the classifier, the commonest one of training first.
        gold: of N texts; may be others.
        predicted: of the same texts.
    """
    all_labels = tuple(dict.fromkeys([*labels, *gold]))
    places = {label: place for place, label in enumerate(all_labels)}
    confusion = np.zeros((len(all_labels), len(all_labels)), np.int64)
    for wanted, found in zip(gold, predicted, strict=True):
        confusion[places[wanted], places[found]] += 1
    return Evaluation(all_labels, confusion)


def _percent(part: Doubles, whole: Longs) -> Doubles:
    return np.where(whole > 0, 100.0 * part / np.maximum(whole, 1), 0.0)
