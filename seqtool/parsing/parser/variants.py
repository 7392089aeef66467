"""Variants of a treebank's sentences: words of others in them.

A word of an open class gives way to one with the same tags (nonce sentences: Gulordava et al. 2018;
as training data, Vania et al. 2019). The sentence has a tree, and often no meaning. For teachers to
parse it is text of the treebank's own kind, with its tags, that they have not learnt by heart.

    his dog sleeps on the sofa   ->   his cat sleeps on the table
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from seqtool.core.arrays import Doubles
from seqtool.treebank.sentence import DEPREL, FEATS, FORM, ID, LEMMA, UPOS, XPOS, Sentence

VARIANT = "# variant = yes"  # the comment of each
OPEN_CLASSES = frozenset(["ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "SYM", "VERB", "X"])
COUNT_POWER = 0.75  # a word that occurs n times is drawn in proportion to n to this power
DRAWN = 256  # words that are drawn at a time

Row = list[str]


class _Words:
    """The words of open classes, by their tags."""

    def __init__(self, treebank: Sequence[Sentence], generator: np.random.Generator) -> None:
        counts: defaultdict[tuple[str, ...], Counter[tuple[str, str]]] = defaultdict(Counter)
        for sentence in treebank:
            for place, row in enumerate(sentence.rows):
                # the first word of a sentence may be written with a capital for that alone
                if row[UPOS] in OPEN_CLASSES and (place or row[UPOS] == "PROPN"):
                    counts[_tags(row)][row[FORM], row[LEMMA]] += 1
        self._generator = generator
        self._words: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        self._shares: dict[tuple[str, ...], Doubles] = {}
        self._waiting: dict[tuple[str, ...], list[int]] = {}
        for tags, words in counts.items():
            self._words[tags] = list(words)
            weights = np.asarray(list(words.values())) ** COUNT_POWER
            self._shares[tags] = weights / weights.sum()

    def another(self, row: Row, *, is_first: bool) -> Row:
        """Return a word with the tags of one, which may be the same; without any, the word."""
        tags = _tags(row)
        words = self._words.get(tags)
        if words is None:
            return row
        waiting = self._waiting.get(tags)
        if not waiting:  # drawn one by one they would take most of the time
            drawn = self._generator.choice(len(words), DRAWN, p=self._shares[tags])
            waiting = self._waiting[tags] = drawn.tolist()
        form, lemma = words[waiting.pop()]
        if is_first and row[FORM][:1].isupper():
            form = form[:1].upper() + form[1:]
        return [row[ID], form, lemma, *row[UPOS:]]


def variants(
    treebank: Iterable[Sentence], num: int, seed: int, *, words: float
) -> Iterator[Sentence]:
    """Give variants of all sentences of a treebank, one of each and then the next one of each.

    Of each they have the words in order, the tree, one comment, and no multiword tokens or empty
    nodes. Where no word has a UPOS tag of an open class, there are none.

    Args:
        treebank: sentences with trees.
        num: variants of each sentence.
        seed: of what is drawn.
        words: the share of the words of open classes that give way.
    """
    treebank = list(treebank) if num else []
    if not any(row[UPOS] in OPEN_CLASSES for sentence in treebank for row in sentence.rows):
        return
    generator = np.random.default_rng((seed, 2))
    others_of_words = _Words(treebank, generator)
    for _ in range(num):
        for sentence in treebank:
            rows = [[*row[: DEPREL + 1], "_", "_"] for row in sentence.rows]
            gives_way = generator.random(len(rows)) < words
            yield Sentence(
                [VARIANT],
                [
                    others_of_words.another(row, is_first=not place) if gives_way[place] else row
                    for place, row in enumerate(rows)
                ],
                [],
            )


def _tags(row: Row) -> tuple[str, ...]:
    return row[UPOS], row[XPOS], row[FEATS]
