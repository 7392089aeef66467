"""What an evaluation of a parser gives: scores, tables of errors, counts of each sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqtool.treebank.alignment import Ints


@dataclass(frozen=True, slots=True)
class Score:
    """How much of one annotation is in the other.

    Attributes:
        correct: what both agree in.
        gold: how many there are in the gold annotation.
        predicted: how many in the other one.
        aligned: how many of the gold ones match a word; None where nothing is matched by words.
    """

    correct: int
    gold: int
    predicted: int
    aligned: int | None = None

    @property
    def precision(self) -> float:
        """Percent of what is predicted."""
        return _percent(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """Percent of what is in the gold annotation."""
        return _percent(self.correct, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, in percent."""
        return _percent(2 * self.correct, self.gold + self.predicted)

    @property
    def aligned_accuracy(self) -> float | None:
        """Percent of the words that match."""
        return None if self.aligned is None else _percent(self.correct, self.aligned)

    def to_json(self) -> dict[str, float | None]:
        """Return the four figures in percent."""
        return {
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "aligned_accuracy": self.aligned_accuracy,
        }


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Confusion:
    """A relation taken for another.

    Attributes:
        gold: the relation in the gold annotation.
        predicted: the one in the other.
        count: words.
        right_head: how many of them have the right head.
    """

    gold: str
    predicted: str
    count: int
    right_head: int


@dataclass(frozen=True)
class ParserEvaluation:
    """The scores of an annotation.

    Attributes:
        scores: metric -> score, in the order of this module's table.
        relations: relation without subtype -> labelled attachments of it, the commonest first.
        lengths: distance from head to dependent in words -> labelled attachments of it, as named in
            `LENGTHS`.
        confusions: relations taken for others, the commonest first.
        sentences: of the gold annotation.
        words: of the gold annotation.
        punctuation: whether UAS, LAS, relations, lengths and confusions count it.
        by_sentence: metric -> (S, 3) words right, in gold, and predicted, of each gold sentence;
            for every metric of words.
    """

    scores: dict[str, Score]
    relations: dict[str, Score]
    lengths: dict[str, Score]
    confusions: list[Confusion]
    sentences: int
    words: int
    punctuation: bool
    by_sentence: dict[str, Ints]

    def __getitem__(self, metric: str) -> Score:
        return self.scores[metric]

    def to_json(self) -> dict[str, Any]:
        """Return metric -> precision, recall, F1 and accuracy of aligned words, in percent."""
        return {metric: score.to_json() for metric, score in self.scores.items()}

    def details_to_json(
        self, *, relations: bool = False, lengths: bool = False, confusions: int = 0
    ) -> dict[str, Any]:
        """Return the tables asked for; of confusions, as many of the commonest."""
        tables: dict[str, Any] = {}
        for name, table, wanted in (
            ("relations", self.relations, relations),
            ("lengths", self.lengths, lengths),
        ):
            if wanted:
                tables[name] = {
                    key: {
                        "gold": score.gold,
                        "predicted": score.predicted,
                        "correct": score.correct,
                        "precision": score.precision,
                        "recall": score.recall,
                        "f1": score.f1,
                    }
                    for key, score in table.items()
                }
        if confusions:
            tables["confusions"] = [asdict(pair) for pair in self.confusions[:confusions]]
        return tables
