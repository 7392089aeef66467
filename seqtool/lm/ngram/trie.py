"""The rows of a table from the words of its n-grams, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram import arpa_lines
from seqtool.lm.ngram.table import Float32, Int32, TableLevel

if TYPE_CHECKING:
    from seqtool.lm.ngram.counts import CountLevel


def word_columns(
    levels: Sequence[TableLevel | CountLevel], order: int, first: int, last: int
) -> Int32:
    """Return the words of the n-grams of an order from row `first` to row `last - 1`.

    They are int32 [order, rows].
    """
    columns = np.empty((order, last - first), np.int32)
    rows = np.arange(first, last, dtype=np.int32)
    columns[order - 1] = levels[order - 1].words[first:last]
    for n in range(order - 1, 0, -1):
        begins = levels[n].begins
        # contexts without rows begin where the next one does: the last that begins here has the row
        context = int(np.searchsorted(begins, rows[0], side="right")) - 1
        arpa_lines.climb(context, begins, rows)
        columns[n - 1] = rows if n == 1 else levels[n - 1].words[rows]
    return columns


def context_rows(levels: Sequence[TableLevel], columns: Int32, vocabulary_size: int) -> Int32:
    """Return the row of the context of each of R n-grams, -1 where there is none.

    Args:
        levels: the orders below.
        columns: int32 [order, R], the words.
        vocabulary_size: V.

    Returns:
        int32 [R]; one past the last row for n-grams that no sentence holds.
    """
    order = columns.shape[0]
    rows: Int32 = columns[0].copy()
    for n in range(1, order - 1):
        arpa_lines.descend(levels[n].begins, levels[n].words, columns[n], rows)
    # after the search, as their contexts may be missing, and that is no error in them
    odd = (columns[1:] == vocabulary_size).any(axis=0) | (columns[:-1] == EOS_ID).any(axis=0)
    rows[odd] = len(levels[order - 2])
    return rows


# context rows, last words, log-probabilities and backoffs of some n-grams
Found = tuple[Int32, Int32, Float32, Float32]


def sorted_level(
    found: Sequence[Found], num_contexts: int, vocabulary_size: int
) -> tuple[TableLevel, int, int | None]:
    """Return the n-grams of an order in trie order.

    Args:
        found: the n-grams, in any order; at least one entry.
        num_contexts: rows of the order below.
        vocabulary_size: V.

    Returns:
        The level; how many n-grams were left out, as no sentence holds them; and where one stands
        that is there for a second time.
    """
    contexts, words, log_probs, backoffs = (
        np.concatenate(part) for part in zip(*found, strict=True)
    )
    keys = contexts.astype(np.int64) * (vocabulary_size + 1) + words
    again = None
    # files that seqtool wrote are in this order already
    if not np.all(keys[1:] > keys[:-1]):
        # stable: of two equal n-grams the later one is told as the second
        order = np.argsort(keys, kind="stable")
        keys, contexts, words = keys[order], contexts[order], words[order]
        log_probs, backoffs = log_probs[order], backoffs[order]
        twice = np.flatnonzero((keys[1:] == keys[:-1]) & (contexts[1:] < num_contexts))
        again = int(order[twice + 1].min()) if len(twice) else None
    # what no sentence holds was given a context that is none, so it is last
    kept = int(np.searchsorted(contexts, num_contexts))
    begins = np.zeros(num_contexts + 1, np.int32)
    np.cumsum(np.bincount(contexts[:kept], minlength=num_contexts), out=begins[1:])
    level = TableLevel(words[:kept], begins, log_probs[:kept], backoffs[:kept])
    return level, len(contexts) - kept, again
