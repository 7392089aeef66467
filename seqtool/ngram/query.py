"""Scoring text with a backoff table, compiled by Numba.

All tokens of a block go up the orders together: the row of an n-gram is found among the
continuations of its context, which is the row that the token before it reached one order below.
So a level is one loop over independent searches, and waiting for memory overlaps:

    token      <s>  the  cat  sat
    order 1     V    t    c    s         row = word
    order 2          .    .    .         among the continuations of the row left of it, one line up
    order 3               .    .

A context may have very many continuations. Every 16th word stands in an array of its own, which is
searched first, so that one line of the table itself is read. Nothing here branches on what was read
from the table, as a wrong guess of the processor would make it wait for memory.

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.compiled import compiled
from seqtool.ngram.table import BackoffTable
from seqtool.vocabulary import EOS_ID, Ids

LINE = 16  # words of a cache line
CHUNK = 2048  # tokens whose searches are open at a time: what they need fits into the first cache

_ints = types.Array(types.int32, 1, "C", readonly=True)
_floats = types.Array(types.float32, 1, "C", readonly=True)
_some = types.int32[::1]


@compiled(types.void(_ints, _ints, _some, _some, _some, _some, types.int64))
def _halve(keys, tokens, where, lows, sizes, searched, num_open):  # type: ignore[no-untyped-def]
    """Search for tokens in ranges of sorted keys, all at a time.

    Args:
        keys: what is searched.
        tokens: [T] ids.
        where: which token each search is for.
        lows: where its range begins; becomes the place of the last key up to the token, the first
            place if there is none.
        sizes: of the range; becomes 1.
        searched: which searches are open, of two keys or more; it is overwritten.
        num_open: their number.
    """
    while num_open > 0:
        num_left = np.int64(0)
        for k in range(num_open):
            search = np.uint64(searched[k])
            size, low = np.int64(sizes[search]), np.int64(lows[search])
            half = size >> 1
            lag = np.int64(tokens[np.uint64(where[search])]) - np.int64(keys[np.uint64(low + half)])
            # half, or 0 where the middle is past the token: a shift, as LLVM makes a branch of
            # everything simpler
            lows[search] = low + (half >> ((lag >> 63) & 32))
            size -= half
            sizes[search] = size
            searched[num_left] = search
            num_left += np.int64(size > 1)
        num_open = num_left


@compiled(
    types.void(
        _ints,
        _ints,
        _ints,
        _floats,
        _floats,
        _ints,
        _ints,
        types.int32[::1],
        types.float64[::1],
        types.int16[::1],
        types.int64,
        types.int32[:, ::1],
    )
)
def _extend(  # type: ignore[no-untyped-def]
    words, signs, begins, log_probs, backoffs, tokens, contexts, rows, scores, orders, order, room
):
    """Go from order n - 1 to order n with every token.

    Args:
        words: of order n, as are the next three.
        signs: every `LINE`-th word: few enough to stay in the cache.
        begins: see `TableLevel`.
        log_probs: see `TableLevel`.
        backoffs: of order n - 1.
        tokens: [T] ids.
        contexts: [T] the row at order n - 1 of the n - 1 tokens before each, -1 for none.
        rows: [T] is filled with the row at order n, -1 for none.
        scores: [T] nats; replaced where the n-gram is there, else the backoff is added.
        orders: [T] is n where the n-gram is there.
        order: n.
        room: [6, CHUNK] to work in.
    """
    where, lows, highs, sizes = room[0], room[1], room[2], room[3]
    searched, wide = room[4], room[5]
    none, one = np.int64(0), np.uint64(1)
    for start in range(0, tokens.shape[0], room.shape[1]):
        end = min(start + room.shape[1], tokens.shape[0])
        num = none
        for i in range(start, end):
            rows[i] = -1
            where[num] = i
            num += np.int64(contexts[i] >= 0)
        for j in range(num):
            lows[j] = begins[np.uint64(contexts[np.uint64(where[j])])]
        for j in range(num):
            highs[j] = begins[np.uint64(contexts[np.uint64(where[j])]) + one]
        # words are sorted, so that word w is among the first w + 1; of more than a line of them,
        # those that begin one are searched: low and size count these from here on
        num_open = none
        for j in range(num):
            low = np.int64(lows[j])
            high = min(np.int64(highs[j]), low + tokens[np.uint64(where[j])] + 1)
            highs[j] = high
            first = (low + LINE - 1) // LINE
            sizes[j] = (high - 1) // LINE - first + 1
            searched[num_open] = j
            num_open += np.int64(high - low > LINE)
        num_wide = num_open
        for k in range(num_wide):
            search = np.uint64(searched[k])
            wide[k] = searched[k]
            lows[search] = (np.int64(lows[search]) + LINE - 1) // LINE
        _halve(signs, tokens, where, lows, sizes, searched, num_open)
        for k in range(num_wide):
            search = np.uint64(wide[k])
            low = np.int64(lows[search])
            token = np.uint64(where[search])
            lag = np.int64(tokens[token]) - np.int64(signs[np.uint64(low)])
            # before the first sign, the line begins with the context itself
            begin = np.int64(begins[np.uint64(contexts[token])])
            lows[search] = begin if lag < 0 else low * LINE
        # then the words of one line, in the same way
        num_open = none
        for j in range(num):
            size = min(np.int64(highs[j]) - lows[j], np.int64(LINE))
            sizes[j] = size
            searched[num_open] = j
            num_open += np.int64(size > 1)
        _halve(words, tokens, where, lows, sizes, searched, num_open)
        num_open = none
        for j in range(num):
            searched[num_open] = j
            num_open += np.int64(sizes[j] > 0)
        for k in range(num_open):
            search = np.uint64(searched[k])
            token = np.uint64(where[search])
            low = np.int64(lows[search])
            word = np.int64(words[np.uint64(low)])
            rows[token] = low if np.int64(tokens[token]) == word else np.int64(-1)
        num_found, num_missing = none, none
        for j in range(num):
            i = where[j]
            is_found = np.int64(rows[np.uint64(i)] >= 0)
            searched[num_found] = i
            lows[num_missing] = i
            num_found += is_found
            num_missing += 1 - is_found
        for k in range(num_found):
            token = np.uint64(searched[k])
            scores[token] = log_probs[np.uint64(rows[token])]
            orders[token] = order
        for k in range(num_missing):
            token = np.uint64(lows[k])
            scores[token] += backoffs[np.uint64(contexts[token])]


class Scorer:
    """A table and what is looked at first when it is searched.

    Args:
        table: of V words.
    """

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self._signs = [level.words[::LINE].copy() for level in table.levels]

    def score(self, ids: Ids) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
        """Score whole sentences, each from `<s>`.

        Args:
            ids: [T], each in 0 to V - 1, `EOS_ID` after each sentence.

        Returns:
            The nats and the order matched of every token, [T] each.
        """
        levels, outside = self.table.levels, self.table.vocabulary_size
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < outside:
            raise ValueError("an id is outside the vocabulary")
        ids = np.ascontiguousarray(ids, dtype=np.int32)
        starts = np.concatenate(([0], np.flatnonzero(ids[:-1] == EOS_ID) + 1))[: len(ids)]
        scores = levels[0].log_probs[ids].astype(np.float64)
        orders = np.ones(len(ids), np.int16)
        room = np.empty((6, CHUNK), np.int32)
        rows = ids
        for n in range(2, len(levels) + 1):
            level = levels[n - 1]
            contexts = np.empty_like(ids)
            contexts[1:] = rows[:-1]
            contexts[starts] = outside
            rows, outside = np.empty_like(ids), -1
            _extend(
                level.words,
                self._signs[n - 1],
                level.begins,
                level.log_probs,
                levels[n - 2].backoffs,
                ids,
                contexts,
                rows,
                scores,
                orders,
                n,
                room,
            )
        return scores, orders
