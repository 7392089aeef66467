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
    """Predicted labels beside the gold ones; all scores are in percent.

    Attributes:
        labels: those of the classifier, then those that only the gold labels have.
        confusion: texts by gold label (rows) and predicted label (columns), [K, K].
        accuracy: the share of texts whose label is right.
        macro_f1: the mean F1 of the labels that are gold or predicted somewhere.
        majority: the accuracy of the label that is the commonest in training, the first one.
        by_label: the scores of each label; 0 where precision or recall is of no texts.
    """

    shown = ("num_texts", "scores")

    labels: tuple[str, ...]
    confusion: Longs
    accuracy: float
    macro_f1: float
    majority: float
    by_label: list[LabelScores]

    @property
    def num_texts(self) -> int:
        """N."""
        return int(self.confusion.sum())

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
    for right, given in zip(gold, predicted, strict=True):
        confusion[places[right], places[given]] += 1
    hits, num_gold, num_given = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    f1 = _percent(2 * hits, num_gold + num_given)
    scores = (_percent(hits, num_given), _percent(hits, num_gold), f1, num_gold)
    rows = zip(all_labels, *(column.tolist() for column in scores), strict=True)
    num, of_used = max(1, len(gold)), f1[num_gold + num_given > 0]
    return Evaluation(
        all_labels,
        confusion,
        accuracy=100.0 * float(hits.sum()) / num,
        macro_f1=sum(of_used.tolist()) / max(1, len(of_used)),
        majority=100.0 * float(num_gold[0]) / num,
        by_label=[LabelScores(*row) for row in rows],
    )


def _percent(part: Longs, whole: Longs) -> Doubles:
    return np.where(whole > 0, 100.0 * part / np.maximum(whole, 1), 0.0)
