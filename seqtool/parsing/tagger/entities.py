"""Entities: spans of words with a type, as labels write them, and how well they are found.

    word     Anna   Berg   sees   New    York   .
    label    B-PER  I-PER  O      B-LOC  I-LOC  O
    spans    PER: words 0 and 1;  LOC: words 3 and 4

B begins an entity, I goes on with it, O is outside of all (IOB2: Tjong Kim Sang & Veenstra 1999);
E and S of other schemes, the last word of an entity and its only one, are understood, too. Labels
that break the scheme are read as conlleval and seqeval do: an I that goes on with nothing begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seqtool.core.arrays import Bools

OUTSIDE = "O"
_LABEL = re.compile(r"([BIES])-(.+)")


class Entity(NamedTuple):
    """Words `begin` to `end`, the latter not among them, that are of a type."""

    type: str
    begin: int
    end: int


def are_entities(labels: Iterable[str]) -> bool:
    """Whether labels are those of entities: O, and B-, I-, E- or S- before a type."""
    return all(label == OUTSIDE or _LABEL.fullmatch(label) for label in labels)


def is_begun(before: str, label: str) -> bool:
    """Whether a label may follow another, or the begin of a sentence (O), in BIO.

    I-PER stands after B-PER and I-PER only; all else stands anywhere.
    """
    return not label.startswith("I-") or before in (f"B-{label[2:]}", label)


def keeps_to_bio(sentences: Iterable[Sequence[str]]) -> bool:
    """Whether the labels of sentences are BIO throughout, with some entity among them."""
    found = False
    for labels in sentences:
        for before, label in zip([OUTSIDE, *labels], labels, strict=False):
            if label == OUTSIDE:
                continue
            if label[:2] not in ("B-", "I-") or len(label) < 3 or not is_begun(before, label):
                return False
            found = True
    return found


def allowed_pairs(labels: Sequence[str]) -> Bools:
    """Return which label may follow which, [1 + L, L]; row L is of the begin of a sentence."""
    import numpy as np

    rows = [[is_begun(before, label) for label in labels] for before in (*labels, OUTSIDE)]
    return np.array(rows, np.bool_)


def entities_of(labels: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order."""
    found: list[Entity] = []
    begin, open_type, before = 0, "", OUTSIDE
    for place, label in enumerate((*labels, OUTSIDE)):
        match = _LABEL.fullmatch(label)
        prefix, type_ = (match[1], match[2]) if match else (OUTSIDE, "")
        begins = prefix in "BS" or (
            prefix in "IE" and (before in "OES" or (open_type != "" and type_ != open_type))
        )
        if open_type and (prefix == OUTSIDE or begins):
            found.append(Entity(open_type, begin, place))
            open_type = ""
        if begins:
            begin, open_type = place, type_
        before = prefix
    return found


class EntityScores(NamedTuple):
    """The scores of entities of a type, in percent, and how many there are."""

    precision: float
    recall: float
    f1: float
    entities: int


@dataclass
class LabelCounts:
    """Counts of words and entities, gold and predicted.

    Attributes:
        words, right: words, and those whose label is right.
        gold, found, both: entities by type; those of `both` have the same words and type.
        sentences, labelled: sentences that a labeller got, and those that had labels before.
    """

    words: int = 0
    right: int = 0
    gold: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    both: Counter[str] = field(default_factory=Counter)
    sentences: int = 0
    labelled: int = 0

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """Count a sentence."""
        self.words += len(gold)
        self.right += sum(map(str.__eq__, gold, predicted))
        wanted, given = set(entities_of(gold)), set(entities_of(predicted))
        for counts, spans in (
            (self.gold, wanted),
            (self.found, given),
            (self.both, wanted & given),
        ):
            counts.update(span.type for span in spans)

    @property
    def accuracy(self) -> float:
        """The share of words whose label is right, in percent."""
        return 100.0 * self.right / max(1, self.words)

    @property
    def total(self) -> EntityScores:
        """The scores of all entities together."""
        return _scores(self.both.total(), self.found.total(), self.gold.total())

    @property
    def by_type(self) -> dict[str, EntityScores]:
        """The scores of each type that is gold or predicted somewhere."""
        return {
            name: _scores(self.both[name], self.found[name], self.gold[name])
            for name in sorted({*self.gold, *self.found})
        }


def _scores(both: int, found: int, gold: int) -> EntityScores:
    precision, recall = 100.0 * both / max(1, found), 100.0 * both / max(1, gold)
    return EntityScores(precision, recall, 200.0 * both / max(1, found + gold), gold)
