"""The probability of a class of words in the contexts of a backoff table.

What follows a word ends it (`lm.words`): of models of subwords, characters and bytes, the
probability of such symbols is asked for once for each word. A sum over the vocabulary would do it.
A backoff table says it in as many steps as a context has continuations: with M(c) the probability
of the class in context c, c' the next shorter context of the table, b(c) the backoff weight, and
sums over the words w of the class that follow c in the table,

    M(c) = sum p(w | c) + b(c) (M(c') - sum p(w | c'))

M is found for each context when a text comes to it first, and kept: 8 bytes for each row that is a
context; pages that no text came to take no memory. Where the difference is lost to rounding, the
whole distribution is summed after all.

Shapes: T places of a text, C contexts, N the order, P words that follow contexts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.jit import compiled
from seqtool.lm.array_file import read_only
from seqtool.lm.ngram.table import BackoffTable, Int32

UNKNOWN = 0.0  # not asked for yet: so new memory, of zeros, stays untouched
WHOLE = -1.0  # what only the whole distribution tells: it is lost, or nearly zero
LEAST = 1e-4  # of what is subtracted from, what has to be left, or too many digits are lost
CONTEXTS = 512  # whose followers are looked up together

_TINY = float(np.finfo(np.float64).tiny)
_ints = types.Array(types.int32, 1, "C", readonly=True)
_floats = types.Array(types.float32, 1, "C", readonly=True)


@compiled(
    types.void(
        *[_ints] * 2,
        *[_floats] * 2,
        types.int32[::1],
        types.int64[::1],
        types.int32[::1],
        types.float64[::1],
        types.boolean[::1],
    )
)
def _look_up(words, begins, log_probs, backoffs, rows, context, wanted, nats, is_open):  # type: ignore[no-untyped-def]
    """Look words up after the contexts of a lower order.

    Args:
        words: of the order above the lower one.
        begins: of the contexts of the lower order, among these.
        log_probs: nats of these.
        backoffs: of the contexts of the lower order.
        rows: [C] of this order, -1 where there is no context.
        context: [P], of each word.
        wanted: [P], the words.
        nats: [P], added to.
        is_open: [P], whether a word is still to be found; changed.
    """
    for p in range(wanted.shape[0]):
        row = rows[context[p]]
        if row < 0 or not is_open[p]:
            continue
        place, size = np.int64(begins[row]), np.int64(begins[row + 1]) - begins[row]
        while size > 1:
            half = size >> 1
            place += half if words[place + half] <= wanted[p] else np.int64(0)
            size -= half
        is_open[p] = size < 1 or words[place] != wanted[p]
        nats[p] += backoffs[row] if is_open[p] else log_probs[place]


class ClassProbabilities:
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
        self._levels = table.levels
        self._class = np.append(class_V, False)  # `<s>` is of no class
        self._size = int(class_V.sum())
        self._sum_whole = sum_whole
        sizes = [len(level) for level in table.levels[:-1]]
        self._starts = np.array([1, *sizes], np.int64).cumsum()[:-1]
        self._kept = np.zeros(1 + sum(sizes))
        of_class = table.levels[0].log_probs[:-1][class_V].astype(np.float64)
        total = float(np.exp(of_class).sum())
        self._kept[0] = total if total >= _TINY else WHOLE

    def log_probs(self, contexts_TN: Int32) -> Doubles:
        """Return the log-probability (nats) of the class in contexts, [T].

        Args:
            contexts_TN: [T, N - 1], in column n - 1 the row of order n, -1 where there is none.
        """
        numbers_T = np.zeros(len(contexts_TN), np.int64)
        for column, start in enumerate(self._starts):  # a context needs the shorter ones
            rows_T, shorter_T = contexts_TN[:, column], numbers_T
            numbers_T = np.where(rows_T >= 0, start + rows_T, shorter_T)
            unknown = np.flatnonzero(self._kept[numbers_T] == UNKNOWN)
            places = unknown[np.unique(numbers_T[unknown], return_index=True)[1]]
            for begin in range(0, len(places), CONTEXTS):
                some = places[begin : begin + CONTEXTS]
                self._find(column, contexts_TN[some], numbers_T[some], shorter_T[some])
        found_T = self._kept[numbers_T]
        is_whole_T = found_T == WHOLE
        found_T[is_whole_T] = 1.0
        nats_T: Doubles = np.log(found_T)
        if is_whole_T.any():
            nats_T[is_whole_T] = self._sum_whole(contexts_TN[is_whole_T])
        return nats_T

    def _find(self, column: int, contexts_CN: Int32, numbers_C: Longs, shorter_C: Longs) -> None:
        """Find and keep the probabilities of contexts of an order, from the next shorter ones."""
        level, rows_C, num = self._levels[column + 1], contexts_CN[:, column], len(contexts_CN)
        begins_C = level.begins[rows_C].astype(np.int64)
        sizes_C = level.begins[rows_C + 1] - begins_C
        context_P = np.repeat(np.arange(num), sizes_C)
        at_P = np.arange(len(context_P)) + np.repeat(begins_C - sizes_C.cumsum() + sizes_C, sizes_C)
        of_class = self._class[level.words[at_P]]
        context_P, at_P = context_P[of_class], at_P[of_class]
        words_P, lower_P = level.words[at_P], np.zeros(len(at_P))
        is_open_P = np.ones(len(at_P), np.bool_)
        for lower in reversed(range(column)):
            above, backoffs = self._levels[lower + 1], self._levels[lower].backoffs
            arrays = map(read_only, (above.words, above.begins, above.log_probs, backoffs))
            rows = np.ascontiguousarray(contexts_CN[:, lower])
            _look_up(*arrays, rows, context_P, words_P, lower_P, is_open_P)
        lower_P[is_open_P] += self._levels[0].log_probs[words_P[is_open_P]]
        nats_P = level.log_probs[at_P].astype(np.float64)
        total_C = np.bincount(context_P, np.exp(nats_P), num)
        shorter_probs_C = self._kept[shorter_C]
        rest_C = shorter_probs_C - np.bincount(context_P, np.exp(lower_P), num)
        weight_C = np.exp(self._levels[column].backoffs[rows_C].astype(np.float64))
        # if every word of the class follows, nothing is left to back off to
        weight_C[np.bincount(context_P, minlength=num) == self._size] = 0.0
        total_C = total_C + weight_C * np.maximum(rest_C, 0.0)
        is_lost_C = (total_C < LEAST * weight_C * shorter_probs_C) | (total_C < _TINY)
        is_lost_C |= (shorter_probs_C == WHOLE) & (weight_C > 0)
        if is_lost_C.any():
            whole = contexts_CN[is_lost_C]
            whole[:, column + 1 :] = -1
            sums = np.exp(self._sum_whole(whole))
            total_C[is_lost_C] = np.where(sums >= _TINY, sums, WHOLE)
        self._kept[numbers_C] = total_C
