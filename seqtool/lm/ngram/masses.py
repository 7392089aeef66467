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

Many contexts go together: their followers are listed, looked up after c', made probabilities by
NumPy, and summed, each in one pass over what the second cache holds.

The masses are kept in 8 bytes for each row that is a context; pages that no text came to take no
memory.

Shapes: T places of a text, C contexts, P words that follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.instructions import fetch
from seqtool.core.jit import compiled
from seqtool.lm.array_file import read_only
from seqtool.lm.ngram.table import BackoffTable, Int32, TableLevel

UNKNOWN = 0.0  # a mass that was not asked for yet: so new memory, of zeros, stays untouched
WHOLE = -1.0  # one that only the whole distribution tells: it is lost, or nearly zero
LEAST = 1e-4  # of what is subtracted from, what has to be left, or too many digits are lost
FOLLOWERS = 1 << 14  # that are looked up together, within the second cache
CONTEXTS = 1 << 12  # whose followers these are, at most
AHEAD = 16  # contexts for whose rows memory is asked before they are read
CHUNK = 1024  # places whose masses are asked for before one is read
WORDS_PER_SEARCH = 16  # that are laid out in the time of one binary search

_TINY = float(np.finfo(np.float64).tiny)
_ints = types.Array(types.int32, 1, "C", readonly=True)
_floats = types.Array(types.float32, 1, "C", readonly=True)


class Followers(NamedTuple):
    """The words of the class that follow C contexts, one context after another, by their ids.

    Attributes:
        ends: [C + 1], those of context c are ends[c] to ends[c + 1] - 1.
        words: [P].
        probs: [P], of each after its context: nats at first.
        lower_probs: [P], of each after the next shorter context: nats at first, as far as they
            were found.
        is_open: [P], whether the latter is still to be looked up at lower orders.
    """

    ends: Longs
    words: Int32
    probs: Doubles
    lower_probs: Doubles
    is_open: Bools

    @classmethod
    def with_room(cls, num: int) -> Followers:
        """Return room for this many words, and one more."""
        ends, words = np.empty(CONTEXTS + 1, np.int64), np.empty(num + 1, np.int32)
        probs, lower_probs = np.empty((2, num + 1))
        return cls(ends, words, probs, lower_probs, np.empty(num + 1, np.bool_))


_followers = types.NamedTuple(
    (
        types.int64[::1],
        types.int32[::1],
        types.float64[::1],
        types.float64[::1],
        types.boolean[::1],
    ),
    Followers,
)


@compiled(
    types.void(
        types.float64[::1], types.int64[::1], types.int32[:, ::1], types.int64[::1],
        types.int64[:, :, ::1], types.int64[::1],
    )
)  # fmt: skip
def _list_unknown(masses, starts, contexts, numbers, listed, nums):  # type: ignore[no-untyped-def]
    """Number the longest context of each place, and list the contexts whose mass is unknown.

    Args:
        masses: of all contexts, by their numbers.
        starts: [N - 1], the number of the first context of each order.
        contexts: [T, N - 1].
        numbers: [T] is filled, with 0 for no context.
        listed: [N - 1, 3, T] is filled for each order: a place of each context, its number, and
            that of the next shorter one.
        nums: [N - 1], zeros, is filled with how many there are.
    """
    pending = np.empty(CHUNK, np.int64)
    for first in range(0, contexts.shape[0], CHUNK):
        last = min(first + CHUNK, contexts.shape[0])
        for place in range(np.uint64(first), np.uint64(last)):
            number = np.int64(0)
            for column in range(np.uint64(contexts.shape[1])):
                row = np.int64(contexts[place, column])
                number = starts[column] + row if row >= 0 else number
            numbers[place] = number
            fetch(masses, np.uint64(number))
        num = np.int64(0)
        for place in range(np.uint64(first), np.uint64(last)):
            pending[num] = place
            num += np.int64(masses[np.uint64(numbers[place])] == UNKNOWN)
        for place in pending[:num]:
            longer = np.int64(-1)  # the order that was listed last
            for column in range(contexts.shape[1] - 1, -1, -1):
                row = np.int64(contexts[place, column])
                if row < 0:
                    continue
                number = starts[column] + row
                if longer >= 0:
                    listed[longer, 2, nums[longer] - 1] = number
                longer = np.int64(-1)
                if masses[number] != UNKNOWN:
                    break  # and those of all shorter contexts are known, too
                masses[number] = WHOLE  # until it is found; so each is listed once
                listed[column, 0, nums[column]] = place
                listed[column, 1, nums[column]] = number
                nums[column] += 1
                longer = np.int64(column)
            if longer >= 0:
                listed[longer, 2, nums[longer] - 1] = 0


@compiled(
    types.int64(
        _ints, _ints, _floats, types.boolean[::1], types.int64[::1], _followers,
    )
)  # fmt: skip
def _follow(words, begins, log_probs, class_, rows, found):  # type: ignore[no-untyped-def]
    """Fill in the words of the class that follow the first contexts; return of how many contexts.

    That is 0 where there is no room for what follows the first one.
    """
    num = np.int64(0)
    found.ends[0] = 0
    num_contexts = min(rows.shape[0], found.ends.shape[0] - 1)
    for c in range(num_contexts):
        if c + AHEAD < num_contexts:
            fetch(begins, np.uint64(rows[c + AHEAD]))
            first = np.uint64(begins[rows[c + AHEAD // 2]])
            fetch(words, first)
            fetch(log_probs, first)
        begin, end = np.int64(begins[rows[c]]), np.int64(begins[rows[c] + 1])
        if num + end - begin >= found.words.shape[0]:
            return np.int64(c)
        for k in range(np.uint64(begin), np.uint64(end)):
            # one that is not of the class is written, too, and the next one over it: no branch
            word, at = words[k], np.uint64(num)
            found.words[at] = word
            found.probs[at] = log_probs[k]
            num += np.int64(class_[np.uint64(word)])
        found.ends[c + 1] = num
    return np.int64(num_contexts)


@compiled(
    types.int64(
        _ints, _ints, _floats, _floats, types.int64[::1], _followers, types.int32[::1],
    )
)  # fmt: skip
def _back_off(words, begins, log_probs, backoffs, rows, found, laid_out):  # type: ignore[no-untyped-def]
    """Look open words up after the contexts of a lower order; return how many are open then.

    Args:
        words: of the order above the lower one.
        begins: of the contexts of the lower order, among these.
        log_probs: nats of these.
        backoffs: of the contexts of the lower order.
        rows: [C] of this order, -1 where there is no context; equal ones stand together.
        found: the words that follow the contexts above.
        laid_out: [V + 1], rows at which words were found, of whatever context.
    """
    num_open, last = np.int64(0), np.int64(-1)
    is_laid_out, same_end = False, 0  # of the contexts with one row
    for c in range(rows.shape[0]):
        if c + AHEAD < rows.shape[0]:
            fetch(begins, np.uint64(max(rows[c + AHEAD], 0)))
            first = np.uint64(begins[max(rows[c + AHEAD // 2], 0)])
            fetch(words, first)
            fetch(log_probs, first)
        row = rows[c]
        if row < 0:
            num_open += found.ends[c + 1] - found.ends[c]
            continue
        low, end = np.int64(begins[row]), np.int64(begins[row + 1])
        if row != last:
            last, same_end = row, c + 1
            while same_end < rows.shape[0] and rows[same_end] == row:
                same_end += 1
            is_laid_out = end - low <= WORDS_PER_SEARCH * (found.ends[same_end] - found.ends[c])
            for k in range(np.uint64(low), np.uint64(end if is_laid_out else low)):
                laid_out[np.uint64(words[k])] = k
        backoff = np.float64(backoffs[row])
        for p in range(np.uint64(found.ends[c]), np.uint64(found.ends[c + 1])):
            if not found.is_open[p]:
                continue
            word = found.words[p]
            place, size = low, end - low
            if is_laid_out:
                place = np.int64(laid_out[np.uint64(word)])
            while size > 1 and not is_laid_out:
                half = size >> 1
                place += half if words[np.uint64(place + half)] <= word else np.int64(0)
                size -= half
            # what was laid out for another context is outside, or is another word
            is_there = low <= place and place < end and words[np.uint64(place)] == word
            found.lower_probs[p] += np.float64(log_probs[np.uint64(place)]) if is_there else backoff
            found.is_open[p] = not is_there
            num_open += np.int64(not is_there)
    return num_open


@compiled(
    types.int64(
        types.float64[::1], types.int64, _floats, types.int64, types.int64[::1], types.int64[::1],
        _followers, types.int64[::1],
    )
)  # fmt: skip
def _sum_up(masses, start, backoffs, size, numbers, shorter, found, lost):  # type: ignore[no-untyped-def]
    """Write the masses of contexts of an order from those of the next shorter ones.

    Args:
        masses: of all contexts.
        start: the number of the first context of the order.
        backoffs: of the contexts of the order.
        size: how many words the class has.
        numbers: of C contexts.
        shorter: the numbers of the next shorter ones.
        found: the words of the class that follow them.
        lost: [C] is filled with those whose mass cannot be told so.

    Returns:
        How many these are.
    """
    num_lost = np.int64(0)
    for c in range(numbers.shape[0]):
        if c + AHEAD < numbers.shape[0]:
            fetch(backoffs, np.uint64(numbers[c + AHEAD] - start))
            fetch(masses, np.uint64(numbers[c + AHEAD]))
            fetch(masses, np.uint64(shorter[c + AHEAD]))
        before = masses[shorter[c]]
        begin, end = np.uint64(found.ends[c]), np.uint64(found.ends[c + 1])
        total, rest = 0.0, before
        for p in range(begin, end):
            total += found.probs[p]
            rest -= found.lower_probs[p]
        is_lost = False
        # if every word of the class follows, nothing is left to back off to
        if found.ends[c + 1] - found.ends[c] < size:
            weight = exp(np.float64(backoffs[numbers[c] - start]))
            total += weight * max(rest, 0.0)
            is_lost = before == WHOLE or total < LEAST * weight * before
        if is_lost or total < _TINY:
            lost[num_lost] = c
            num_lost += 1
        else:
            masses[numbers[c]] = total
    return num_lost


class ClassMasses:
    """The probabilities of a class of words in the contexts of a table; they are kept.

    Contexts are numbered from 1, one order after another; 0 stands for none.

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
        sizes = [len(level) for level in table.levels[:-1]]
        self._starts = np.array([1, *sizes], np.int64).cumsum()[:-1]
        self._masses = np.zeros(1 + sum(sizes))
        of_class = table.levels[0].log_probs[:-1][class_V].astype(np.float64)
        total = float(np.exp(of_class).sum())
        self._masses[0] = total if total >= _TINY else WHOLE
        self._laid_out = np.zeros(len(self._class), np.int32)
        self._found = Followers.with_room(FOLLOWERS)
        self._lost = np.empty(CONTEXTS, np.int64)

    def log_probs(self, contexts_TN: Int32) -> Doubles:
        """Return the log-probability (nats) of the class in contexts, [T].

        Args:
            contexts_TN: [T, N - 1], in column n - 1 the row of order n, -1 where there is none; in
                C order.
        """
        found_T = self._masses.take(self._find(contexts_TN))
        is_zero_T = found_T == WHOLE  # or nearly so
        found_T[is_zero_T] = 1.0
        nats_T: Doubles = np.log(found_T, out=found_T)
        if is_zero_T.any():
            nats_T[is_zero_T] = self._sum_whole(contexts_TN[is_zero_T])
        return nats_T

    def _find(self, contexts_TN: Int32) -> Longs:
        """Find the masses that are unknown, of the shortest contexts first.

        Returns:
            The numbers of the longest contexts, [T].
        """
        num_places, num_orders = contexts_TN.shape
        numbers_T = np.empty(num_places, np.int64)
        listed = np.empty((num_orders, 3, num_places), np.int64)
        nums = np.zeros(num_orders, np.int64)
        _list_unknown(self._masses, self._starts, contexts_TN, numbers_T, listed, nums)
        for column, num in enumerate(nums.tolist()):
            after, start = self._levels[column + 1], self._starts[column]
            those = listed[column, :, :num]
            if column:  # so that those with one shorter context stand together
                those = those.take(np.argsort(those[2]), axis=1)
            places_C, numbers_C, shorter_C = those
            rows_C = numbers_C - start
            first = 0
            while first < num:
                follows = after.words, after.begins, after.log_probs, self._class
                some = slice(first, first + _follow(*follows, rows_C[first:], self._found))
                if some.stop == first:
                    begin, end = after.begins[rows_C[first] :][:2].tolist()
                    self._found = Followers.with_room(end - begin)
                    continue
                contexts_CN = contexts_TN.take(places_C[some], axis=0)
                self._find_some(column, contexts_CN, numbers_C[some], shorter_C[some])
                first = some.stop
        return numbers_T

    def _find_some(
        self, column: int, contexts_CN: Int32, numbers_C: Longs, shorter_C: Longs
    ) -> None:
        """Find the masses of contexts of an order, whose followers are listed."""
        found = self._found
        num_open = num = int(found.ends[len(numbers_C)])
        words, nats = found.words[:num], found.probs[:num]
        lower_nats, is_open = found.lower_probs[:num], found.is_open[:num]
        lower_nats[:], is_open[:] = 0.0, True
        for lower in reversed(range(column)):
            if not num_open:
                break
            level, backoffs = self._levels[lower + 1], self._levels[lower].backoffs
            rows_C = contexts_CN[:, lower].astype(np.int64)
            after = level.words, level.begins, level.log_probs, backoffs
            num_open = _back_off(*after, rows_C, found, self._laid_out)
        if num_open:
            np.add(lower_nats, self._levels[0].log_probs[words], out=lower_nats, where=is_open)
        np.exp(nats, out=nats)  # of many at once, a fifth of the time
        np.exp(lower_nats, out=lower_nats)
        start, backoffs = int(self._starts[column]), self._levels[column].backoffs
        general = self._masses, start, backoffs, self._size
        num_lost = _sum_up(*general, numbers_C, shorter_C, found, self._lost)
        if num_lost:
            lost_C = self._lost[:num_lost]
            chosen = contexts_CN[lost_C]
            chosen[:, column + 1 :] = -1
            sums = np.exp(self._sum_whole(chosen))
            self._masses[numbers_C[lost_C]] = np.where(sums >= _TINY, sums, WHOLE)


def _read_only(level: TableLevel) -> TableLevel:
    arrays = level.words, level.begins, level.log_probs, level.backoffs
    return TableLevel(*map(read_only, arrays))
