"""n-grams with their counts, the most frequent first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from seqtool.core.errors import ConfigError
from seqtool.core.registry import did_you_mean
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, Vocabulary
from seqtool.lm.ngram.counts import Counts, Int32

Sort = Literal["frequency", "text"]


@dataclass(frozen=True)
class Listing:
    """n-grams of one order that were chosen from those of a text.

    Attributes:
        words: int32 [R, order], ids; `<s>` is V.
        counts: int32 [R], how often each occurred.
        distinct: how many there were to choose from, without those that hold `<s>` or `</s>` when
            these were not asked for.
        total: how often they occurred in all.
    """

    words: Int32
    counts: Int32
    distinct: int
    total: int


def list_ngrams(
    counts: Counts,
    vocabulary: Vocabulary,
    *,
    top: int | None = None,
    min_count: int = 1,
    sort: Sort = "frequency",
    filters: Sequence[str] = (),
    boundaries: bool = False,
) -> Listing:
    """Return the n-grams of the highest order of `counts`.

    Args:
        counts: what was counted.
        vocabulary: of the words.
        top: how many to keep, the most frequent; all when None.
        min_count: leave out those that are rarer.
        sort: "frequency" puts the most frequent first, "text" goes by code points of the words;
            ties are in the order of the words' ids.
        filters: words that must all occur in an n-gram.
        boundaries: keep n-grams with `<s>` or `</s>`.

    Raises:
        ConfigError: a filter that is no word of the text.
    """
    level = counts.levels[-1]
    size = counts.vocabulary_size
    rows = np.flatnonzero(level.counts > 0)
    words = _words_of(counts, rows)
    if not boundaries:
        inside = ~((words == size) | (words == EOS_ID)).any(axis=1)
        rows, words = rows[inside], words[inside]
    distinct, total = len(rows), int(level.counts[rows].sum(dtype=np.int64))
    kept = level.counts[rows] >= min_count
    for text in filters:
        kept &= (words == _id_of(text, vocabulary, boundaries)).any(axis=1)
    rows, words = rows[kept], words[kept]
    order = np.argsort(-level.counts[rows], kind="stable")[:top]
    if sort == "text":
        names = [*vocabulary.symbols, BOS]
        ranks = np.empty(len(names), np.int64)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        order = order[np.lexsort(ranks[words[order]].T[::-1])]
    return Listing(words[order], level.counts[rows[order]], distinct, total)


def _words_of(counts: Counts, rows: npt.NDArray[np.intp]) -> Int32:
    """Return the words of n-grams of the highest order, [R, order]."""
    words = np.empty((len(rows), counts.order), np.int32)
    for n in range(counts.order, 0, -1):
        level = counts.levels[n - 1]
        words[:, n - 1] = level.words[rows]
        rows = np.searchsorted(level.begins, rows, side="right") - 1
    return words


def _id_of(text: str, vocabulary: Vocabulary, boundaries: bool) -> int:
    special = text in (BOS, EOS)
    if special and not boundaries:
        raise ConfigError(
            f"n-grams with {text} are left out, so none can be chosen",
            hint="add --boundaries to keep them",
        )
    if text == BOS:
        return vocabulary.bos_id
    if text not in vocabulary:
        near = vocabulary.nearest(text)
        raise ConfigError(
            f"the word {text!r} does not occur in the text",
            hint=did_you_mean(text, near) if near else "check its spelling and its case",
        )
    return vocabulary.id(text)
