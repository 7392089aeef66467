"""A text as words, and as a bag of the n-grams that it has.

An n-gram counts once, however often it occurs: for labels of short texts that is as good as counts
(Wang & Manning 2012, sec. 2.2). The values of a text are scaled to length 1, so that a long one
weighs no more than a short one.

    text                "Not good!"
    words               not  good  !
    n-grams of words    "not"  "good"  "!"  "not good"  "good !"
    of characters       "  n"  " no"  "not" ... of " not ", with one more blank in front
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np

from seqtool.classification.config import ModelConfig
from seqtool.core.arrays import Floats, Longs
from seqtool.text.marks import continuing_class

_PLAIN_WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")
SHORTEST = 2  # characters of an n-gram of these


@cache
def _word() -> re.Pattern[str]:
    marks = continuing_class()
    word = rf"\w[\w{marks}]*"
    return re.compile(rf"{word}(?:['\u2019]{word})*|[^\w\s][{marks}]*")


def words_of(text: str, config: ModelConfig) -> list[str]:
    """Return the words of a text, punctuation apart if `split`; contractions stay whole.

    A combining mark belongs to the word before it: vowel signs of Hindi and Thai, points of Hebrew,
    accents that are characters of their own.
    """
    if not config.split:
        return text.split()
    # in ASCII there are no marks
    return (_PLAIN_WORD if text.isascii() else _word()).findall(text)


def ngrams_of(text: str, config: ModelConfig) -> Iterator[str]:
    """Return the n-grams of a text; those of characters begin with a blank, no others do."""
    words = words_of(text.lower() if config.lowercase else text, config)
    for order in range(1, 1 + config.word_order):
        for begin in range(len(words) - order + 1):
            yield " ".join(words[begin : begin + order])
    for word in words:
        padded = f" {word} "
        for order in range(SHORTEST, 1 + config.character_order):
            for begin in range(len(padded) - order + 1):
                yield f" {padded[begin : begin + order]}"


class Bags:
    """Texts as bags: which n-grams they have.

    Args:
        config: which n-grams there are.
        known: those of training, in the order of their numbers.

    Shapes: N texts, E n-grams of all of them.
    """

    def __init__(self, config: ModelConfig, known: Sequence[str]) -> None:
        self._config, self.known = config, tuple(known)
        self._ids = {ngram: number for number, ngram in enumerate(self.known)}

    @classmethod
    def build(cls, config: ModelConfig, texts: Iterable[str]) -> Bags:
        """Return the bags of n-grams that enough texts have, the most frequent first."""
        counts = Counter(ngram for text in texts for ngram in set(ngrams_of(text, config)))
        kept = [ngram for ngram, count in counts.items() if count >= config.min_count]
        return cls(config, sorted(kept, key=lambda ngram: (-counts[ngram], ngram)))

    def ids(self, text: str) -> list[int]:
        """Return the numbers of the n-grams of a text, each once, in order."""
        ngrams = ngrams_of(text, self._config)
        return sorted({self._ids[ngram] for ngram in ngrams if ngram in self._ids})


def laid_out(rows: Sequence[Sequence[int]]) -> tuple[Longs, Floats, Longs]:
    """Return the n-grams of texts, as `Bags.ids` gives them, one after another.

    Returns:
        Their numbers, [E]; their values, [E]; where each text begins, [N].
    """
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = np.array([number for row in rows for number in row], np.int64)
    values = np.repeat(1.0 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    return ids, values, np.cumsum(lengths) - lengths
