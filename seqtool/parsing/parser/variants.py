"""Variants of a treebank's sentences: words and subtrees of others in them.

A word of an open class gives way to one with the same tags (nonce sentences: Gulordava et al. 2018;
as training data, Vania et al. 2019), a subtree to one of the same label, tags and side of its head
(subtree swapping: Dehouck & Gómez-Rodríguez 2020). What comes out has a tree, and often no meaning.
For teachers to parse it is text of the treebank's own kind, with its tags, that they have not
learnt by heart.

    his dog sleeps on [the sofa]   ->   his cat sleeps on [the table of the king]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Doubles
from seqtool.treebank.sentence import DEPREL, FEATS, FORM, HEAD, ID, LEMMA, UPOS, XPOS, Sentence

VARIANT = "# variant = yes"  # the comment of each
OPEN_CLASSES = frozenset(["ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "SYM", "VERB", "X"])
TOPS = OPEN_CLASSES | {"PRON"}  # of subtrees
LONGEST_SUBTREE = 15  # words
COUNT_POWER = 0.75  # a word that occurs n times is drawn in proportion to n to this power
DRAWN = 256  # words that are drawn at a time

Row = list[str]


class _Subtree(NamedTuple):
    """A subtree whose words stand next to each other.

    Attributes:
        rows: all words of its sentence.
        first, last: its words, from 0.
        top: that whose head is outside.
    """

    rows: list[Row]
    first: int
    last: int
    top: int


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
    treebank: Iterable[Sentence], num: int, seed: int, *, words: float, subtrees: float
) -> Iterator[Sentence]:
    """Give variants of all sentences of a treebank, one of each and then the next one of each.

    Of each they have the words in order, the tree, one comment, and no multiword tokens or empty
    nodes. Where no word has a UPOS tag of an open class, there are none.

    Args:
        treebank: sentences with trees.
        num: variants of each sentence.
        seed: of what is drawn.
        words: the share of the words of open classes that give way.
        subtrees: the share of the subtrees that do, from the root downwards.
    """
    treebank = list(treebank) if num else []
    if not any(row[UPOS] in OPEN_CLASSES for sentence in treebank for row in sentence.rows):
        return
    generator = np.random.default_rng((seed, 2))
    others_of_words = _Words(treebank, generator)
    of_sentences = [
        _subtrees(sentence.rows, sentence.heads()) if subtrees else {} for sentence in treebank
    ]
    others: defaultdict[tuple[str, ...], list[_Subtree]] = defaultdict(list)
    for found in of_sentences:
        for subtree in found.values():
            others[_kind(subtree)].append(subtree)
    for _ in range(num):
        for sentence, found in zip(treebank, of_sentences, strict=True):
            chosen = _chosen(sentence.heads(), found, others, subtrees, generator)
            rows = _put_together(sentence.rows, chosen)
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


def _kind(subtree: _Subtree) -> tuple[str, ...]:
    """Return what subtrees that may be exchanged have in common."""
    row = subtree.rows[subtree.top]
    side = "left" if subtree.top + 1 < int(row[HEAD]) else "right"
    return row[DEPREL], *_tags(row), side


def _subtrees(rows: list[Row], heads: Sequence[int]) -> dict[int, _Subtree]:
    """Return the subtrees that can be exchanged, by their tops, from 0; that of the root cannot."""
    first, last = list(range(len(heads))), list(range(len(heads)))
    sizes, waiting = [1] * len(heads), [0] * len(heads)
    for head in heads:
        if head:
            waiting[head - 1] += 1
    # from the leaves upwards: a word whose children are done is added to its head
    done = [word for word, num in enumerate(waiting) if not num]
    for word in done:
        head = heads[word] - 1
        if head < 0:
            continue
        first[head], last[head] = min(first[head], first[word]), max(last[head], last[word])
        sizes[head] += sizes[word]
        waiting[head] -= 1
        if not waiting[head]:
            done.append(head)
    return {
        word: _Subtree(rows, first[word], last[word], word)
        for word, head in enumerate(heads)
        if head
        and rows[word][UPOS] in TOPS
        and sizes[word] <= LONGEST_SUBTREE
        and last[word] - first[word] + 1 == sizes[word]
    }


def _chosen(
    heads: Sequence[int],
    subtrees: dict[int, _Subtree],
    others: dict[tuple[str, ...], list[_Subtree]],
    share: float,
    generator: np.random.Generator,
) -> dict[int, tuple[_Subtree, _Subtree]]:
    """Return subtrees that give way to others, by their first words; none lies within another."""
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads):
        children[head].append(word)
    drawn = generator.random((len(heads), 2)).tolist()
    chosen: dict[int, tuple[_Subtree, _Subtree]] = {}
    left = list(children[0])
    while left:
        word = left.pop()
        subtree = subtrees.get(word)
        if subtree is None or drawn[word][0] >= share:
            left += children[word + 1]
            continue
        alike = others[_kind(subtree)]  # itself is among them
        chosen[subtree.first] = subtree, alike[int(drawn[word][1] * len(alike))]
    return chosen


def _put_together(rows: list[Row], chosen: dict[int, tuple[_Subtree, _Subtree]]) -> list[Row]:
    """Return the words of a sentence in which some subtrees have given way to others."""
    # the words that stay or come, each with the number that its head has in its own sentence
    parts: list[tuple[Row, int]] = []
    places = [0] * (len(rows) + 1)  # of the sentence's words, their new numbers; 0 is ROOT
    came: set[int] = set()  # places among `parts` of those that come
    place = 0
    while place < len(rows):
        if place not in chosen:
            parts.append((rows[place], int(rows[place][HEAD])))
            places[place + 1] = len(parts)
            place += 1
            continue
        own, other = chosen[place]
        begin = len(parts)
        shift = begin - other.first
        for word in range(other.first, other.last + 1):
            parts.append((other.rows[word], int(other.rows[word][HEAD]) + shift))
        places[own.top + 1] = other.top + 1 + shift
        # the top has the head of the one before, whose number is not known yet
        parts[other.top + shift] = (other.rows[other.top], -int(rows[own.top][HEAD]))
        came.update(range(begin, len(parts)))
        place = own.last + 1
    found: list[Row] = []
    for place, (row, head) in enumerate(parts):
        new = head if place in came and head > 0 else places[abs(head)]
        found.append([str(place + 1), *row[FORM:HEAD], str(new), row[DEPREL], "_", "_"])
    return found
