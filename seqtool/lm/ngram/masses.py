"""The probability of a class of words in the contexts of a backoff table, compiled by Numba.

What follows a word ends it (`lm.words`): of models of subwords, characters and bytes, the
probability of such symbols is asked for once for each word. A sum over the vocabulary would do it.
A backoff table says it in as many steps as a context has continuations: with M(c) the mass of the
class in context c, c' the next shorter context of the table, b(c) the backoff weight, and sums over
the words w of the class that follow c in the table,

    M(c) = sum p(w | c) + b(c) (M(c') - sum p(w | c'))

M is found for each context when a text comes to it first, and kept. Contexts with the same c' are
found one after another: what follows c' is laid out by its words once, where that is less work
than to search among it for each word. Where the difference is lost to rounding, the whole
distribution is summed after all.

The masses are kept in 8 bytes for each row that is a context; pages that no text came to take no
memory.

Shapes: T places of a text, C contexts, P words that follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import exp
from typing import NamedTuple

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.compiled import compiled
from seqtool.core.instructions import fetch
from seqtool.lm.ngram.table import BackoffTable, Int32, TableLevel, read_only

UNKNOWN = 0.0  # a mass that was not asked for yet: so new memory, of zeros, stays untouched
WHOLE = -1.0  # one that only the whole distribution tells: it is lost, or nearly zero
LEAST = 1e-4  # of what is subtracted from, what has to be left, or too many digits are lost
AT_ONCE = 1 << 16  # followers that are looked up together, within the second cache
AHEAD = 8  # contexts for whose rows memory is asked before they are read
CHUNK = 1024  # places whose masses are asked for before one is read
SEARCH = 16  # words are laid out in the time of this many times less searches

_TINY = float(np.finfo(np.float64).tiny)
_ints = types.Array(types.int32, 1, readonly=True)
_floats = types.Array(types.float32, 1, readonly=True)


class Followers(NamedTuple):
    """The words of the class that follow C contexts, one context after another, by their ids.

    Attributes:
        ends: [C + 1], those of context c are ends[c] to ends[c + 1] - 1.
        words: [P].
        nats: [P], of each after the next shorter context, as far as it was found.
        is_open: [P], whether its probability is still to be looked up at lower orders.
        sums: [C], of the probabilities after the contexts themselves.
    """

    ends: Longs
    words: Int32
    nats: Doubles
    is_open: Bools
    sums: Doubles


class LaidOut(NamedTuple):
    """What follows a context, by its words.

    Attributes:
        contexts: [V + 1], the context that a word was laid out for last.
        nats: [V + 1], of the word after this context.
    """

    contexts: Longs
    nats: Doubles


_laid_out = types.NamedTuple((types.int64[::1], types.float64[::1]), LaidOut)
_followers = types.NamedTuple(
    (
        types.int64[::1],
        types.int32[::1],
        types.float64[::1],
        types.boolean[::1],
        types.float64[::1],
    ),
    Followers,
)


@compiled(types.void(types.float64[::1], types.int64[::1], types.int32[:, ::1], types.float64[::1]))
def _look_up(masses, starts, contexts, found):  # type: ignore[no-untyped-def]
    """Write the mass of the longest context of each place, if there is one, [T].

    `starts` is where the masses of each order begin.
    """
    places = np.empty(CHUNK, np.int64)
    for first in range(0, found.shape[0], CHUNK):
        last = min(first + CHUNK, found.shape[0])
        for t in range(first, last):
            place = np.int64(-1)
            for column in range(contexts.shape[1] - 1, -1, -1):
                if contexts[t, column] >= 0:
                    place = starts[column] + contexts[t, column]
                    fetch(masses, np.uint64(place))
                    break
            places[t - first] = place
        for t in range(first, last):
            if places[t - first] >= 0:
                found[t] = masses[places[t - first]]


@compiled(
    types.void(
        types.float64[::1], types.int64[::1], types.int32[:, ::1], types.int32[:, ::1],
        types.int64[::1],
    )
)  # fmt: skip
def _list_unknown(masses, starts, contexts, listed, nums):  # type: ignore[no-untyped-def]
    """List a place of each context whose mass is unknown, by orders.

    Args:
        masses: of all contexts.
        starts: [N - 1], where the masses of each order begin.
        contexts: [T, N - 1].
        listed: [N - 1, T] is filled with places.
        nums: [N - 1], zeros, is filled with how many there are.
    """
    for place in range(contexts.shape[0]):
        for column in range(contexts.shape[1] if place + AHEAD < contexts.shape[0] else 0):
            row = max(contexts[place + AHEAD, column], 0)
            fetch(masses, np.uint64(starts[column] + row))
        for column in range(contexts.shape[1] - 1, -1, -1):
            row = contexts[place, column]
            if row < 0:
                continue
            if masses[starts[column] + row] != UNKNOWN:
                break  # and those of all shorter contexts are known, too
            masses[starts[column] + row] = WHOLE  # until it is found; so each is listed once
            listed[column, nums[column]] = place
            nums[column] += 1


@compiled(
    types.int64(
        _ints, _ints, _floats, types.boolean[::1], types.int32[:, ::1], types.int64,
        types.int32[::1], _followers,
    )
)  # fmt: skip
def _follow(words, begins, log_probs, class_, contexts, column, places, found):  # type: ignore[no-untyped-def]
    """Fill in the words of the class that follow the contexts of some places; return P."""
    num = 0
    found.ends[0] = 0
    for c in range(places.shape[0]):
        if c + AHEAD < places.shape[0]:
            fetch(begins, np.uint64(contexts[places[c + AHEAD], column]))
            first = np.uint64(begins[contexts[places[c + AHEAD // 2], column]])
            fetch(words, first)
            fetch(log_probs, first)
        row = contexts[places[c], column]
        total = 0.0
        for k in range(begins[row], begins[row + 1]):
            if class_[words[k]]:
                found.words[num] = words[k]
                found.nats[num] = 0.0
                found.is_open[num] = True
                total += exp(np.float64(log_probs[k]))
                num += 1
        found.ends[c + 1] = num
        found.sums[c] = total
    return num


@compiled(
    types.int64(
        _ints, _ints, _floats, _floats, types.int32[:, ::1], types.int64, types.int32[::1],
        _followers, types.int64, _laid_out,
    )
)  # fmt: skip
def _back_off(  # type: ignore[no-untyped-def]
    words, begins, log_probs, backoffs, contexts, column, places, found, start, laid_out
):
    """Look open words up after the contexts of a lower order; return how many are open then.

    Args:
        words: of the order above the lower one.
        begins: of the contexts of the lower order, among these.
        log_probs: nats of these.
        backoffs: of the contexts of the lower order.
        contexts: [T, N - 1].
        column: of the lower order.
        places: of C contexts; those with one context of the lower order stand together.
        found: the words that follow them.
        start: where the contexts of the lower order begin in the numbering of all.
        laid_out: what follows a context of a lower order.
    """
    num_open, last = 0, -1
    is_laid_out, next_row = False, 0  # of the contexts with one row
    for c in range(places.shape[0]):
        if c + AHEAD < places.shape[0]:
            fetch(begins, np.uint64(max(contexts[places[c + AHEAD], column], 0)))
            first = np.uint64(begins[max(contexts[places[c + AHEAD // 2], column], 0)])
            fetch(words, first)
            fetch(log_probs, first)
        row = contexts[places[c], column]
        if row < 0:
            num_open += found.ends[c + 1] - found.ends[c]
            continue
        low, end = np.int64(begins[row]), np.int64(begins[row + 1])
        if row != last:
            last, next_row = row, c + 1
            while next_row < places.shape[0] and contexts[places[next_row], column] == row:
                next_row += 1
            is_laid_out = end - low <= SEARCH * (found.ends[next_row] - found.ends[c])
            for k in range(low, end if is_laid_out else low):
                laid_out.nats[words[k]] = log_probs[k]
                laid_out.contexts[words[k]] = start + row
        backoff = np.float64(backoffs[row])
        for p in range(found.ends[c], found.ends[c + 1]):
            if not found.is_open[p]:
                continue
            word = found.words[p]
            if is_laid_out:
                is_there = laid_out.contexts[word] == start + row
                found.nats[p] += laid_out.nats[word] if is_there else backoff
            else:
                high = end
                while low < high:  # words go up, so the next search begins where this one ends
                    middle = (low + high) >> 1
                    if words[middle] < word:
                        low = middle + 1
                    else:
                        high = middle
                is_there = low < end and words[low] == word
                found.nats[p] += np.float64(log_probs[low]) if is_there else backoff
            found.is_open[p] = not is_there
            num_open += not is_there
    return num_open


@compiled(
    types.void(
        types.float64[::1], types.int64[::1], types.float64, _floats, _floats, types.int64,
        types.int32[:, ::1], types.int64, types.int32[::1], _followers,
    )
)  # fmt: skip
def _sum_up(  # type: ignore[no-untyped-def]
    masses, starts, of_all, unigrams, backoffs, size, contexts, column, places, found
):
    """Write the masses of contexts of an order, from those of the next shorter ones; or `WHOLE`.

    Args:
        masses: of all contexts.
        starts: [N - 1], where the masses of each order begin.
        of_all: the mass without a context.
        unigrams: nats of each word.
        backoffs: of the contexts of the order.
        size: how many words the class has.
        contexts: of each place.
        column: of the order.
        places: of C contexts.
        found: the words of the class that follow them.
    """
    for c in range(places.shape[0]):
        place = places[c]
        if c + AHEAD < places.shape[0]:
            ahead = np.uint64(contexts[places[c + AHEAD], column])
            fetch(backoffs, ahead)
            fetch(masses, np.uint64(starts[column]) + ahead)
        row, before = contexts[place, column], of_all
        for shorter in range(column - 1, -1, -1):
            if contexts[place, shorter] >= 0:
                before = masses[starts[shorter] + contexts[place, shorter]]
                break
        begin, end = found.ends[c], found.ends[c + 1]
        total = found.sums[c]
        if end - begin < size:
            if before == WHOLE:
                continue
            rest = before
            for p in range(begin, end):
                nats = found.nats[p]
                if found.is_open[p]:
                    nats += np.float64(unigrams[found.words[p]])
                rest -= exp(nats)
            weight = exp(np.float64(backoffs[row]))
            total += weight * max(rest, 0.0)
            if total < LEAST * weight * before:
                continue
        if total >= _TINY:
            masses[starts[column] + row] = total


class ClassMasses:
    """The probabilities of a class of words in the contexts of a table; they are kept.

    Args:
        table: of V words.
        class_V: which words, [V].
        sum_whole: what sums whole distributions: takes contexts as `log_probs` does, and returns
            the nats of the class.
    """

    def __init__(
        self, table: BackoffTable, class_V: Bools, sum_whole: Callable[[Int32], Doubles]
    ) -> None:
        self._levels = [_read_only(level) for level in table.levels]
        self._class = np.append(class_V, False)  # `<s>` is of no class
        self._size = int(class_V.sum())
        self._sum_whole = sum_whole
        of_class = table.levels[0].log_probs[:-1][class_V].astype(np.float64)
        total = float(np.exp(of_class).sum())
        self._of_all = total if total >= _TINY else WHOLE
        sizes = [len(level) for level in table.levels[:-1]]
        self._starts = np.array([0, *sizes], np.int64).cumsum()[:-1]
        self._masses = np.zeros(sum(sizes))
        size = len(self._class)
        self._laid_out = LaidOut(np.full(size, -1, np.int64), np.empty(size))

    def log_probs(self, contexts_TN: Int32) -> Doubles:
        """Return the log-probability (nats) of the class in contexts, [T].

        Args:
            contexts_TN: [T, N - 1], in column n - 1 the row of order n, -1 where there is none; in
                C order.
        """
        self._find(contexts_TN)
        found_T = np.full(len(contexts_TN), self._of_all)
        _look_up(self._masses, self._starts, contexts_TN, found_T)
        is_zero_T = found_T == WHOLE  # or nearly so
        found_T[is_zero_T] = 1.0
        nats_T: Doubles = np.log(found_T)
        if is_zero_T.any():
            nats_T[is_zero_T] = self._sum_whole(contexts_TN[is_zero_T])
        return nats_T

    def _find(self, contexts_TN: Int32) -> None:
        """Find the masses of all contexts of some places that are unknown, the shortest first."""
        listed = np.empty(contexts_TN.T.shape, np.int32)
        nums = np.zeros(len(listed), np.int64)
        _list_unknown(self._masses, self._starts, contexts_TN, listed, nums)
        for column, (places, num) in enumerate(zip(listed, nums.tolist(), strict=True)):
            if not num:
                continue
            places_C = places[:num]
            if column:  # so that those with one shorter context stand together
                places_C = places_C[np.argsort(contexts_TN[places_C, column - 1])]
            rows_C = contexts_TN[places_C, column]
            begins = self._levels[column + 1].begins
            ends_C = np.cumsum(begins[rows_C + 1] - begins[rows_C], dtype=np.int64)
            cuts = np.searchsorted(ends_C, np.arange(AT_ONCE, ends_C[-1], AT_ONCE)).tolist()
            for first, last in pairwise(sorted({0, *cuts, num})):
                most = int(ends_C[last - 1]) - (int(ends_C[first - 1]) if first else 0)
                self._find_some(column, contexts_TN, places_C[first:last], rows_C[first:last], most)

    def _find_some(
        self, column: int, contexts_TN: Int32, places_C: Int32, rows_C: Int32, most: int
    ) -> None:
        """Find the masses of contexts of an order, with `most` words after all of them."""
        after = self._levels[column + 1]
        found = Followers(
            ends=np.empty(len(rows_C) + 1, np.int64),
            words=np.empty(most, np.int32),
            nats=np.empty(most),
            is_open=np.empty(most, np.bool_),
            sums=np.empty(len(rows_C)),
        )
        where = contexts_TN, column, places_C, found
        num_open = _follow(after.words, after.begins, after.log_probs, self._class, *where)
        for lower in reversed(range(column)):
            if not num_open:
                break
            level, backoffs = self._levels[lower + 1], self._levels[lower].backoffs
            num_open = _back_off(
                *(level.words, level.begins, level.log_probs, backoffs),
                *(contexts_TN, lower, places_C, found, int(self._starts[lower]), self._laid_out),
            )
        unigrams, backoffs = self._levels[0].log_probs, self._levels[column].backoffs
        general = self._starts, self._of_all, unigrams, backoffs, self._size
        _sum_up(self._masses, *general, *where)
        numbers_C = self._starts[column] + rows_C
        lost_C = np.flatnonzero(self._masses[numbers_C] == WHOLE)
        if len(lost_C):
            chosen = contexts_TN[places_C[lost_C]]
            chosen[:, column + 1 :] = -1
            sums = np.exp(self._sum_whole(chosen))
            self._masses[numbers_C[lost_C]] = np.where(sums >= _TINY, sums, WHOLE)


def _read_only(level: TableLevel) -> TableLevel:
    arrays = level.words, level.begins, level.log_probs, level.backoffs
    return TableLevel(*map(read_only, arrays))
