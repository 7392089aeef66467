"""Smoothing of some contexts of one order at a time, in the compiled loops of `smoothing`.

What follows a context is all that its estimates need, beside the order below. So an engine gives
the n-grams of an order in trie order, each with its counts and the probability of its suffix, and
takes back those that are kept, in the same order. It may do so in several parts at a time, if no
context is in two of them. Everything here can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, Doubles, Floats, Ints, Longs
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.counts import CountLevel
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.lm.ngram.smoothing import Arguments, Discounts, Order, Ratios, Smoothed

if TYPE_CHECKING:
    import pyarrow as pa

GIVEN = 1 << 17  # n-grams that are smoothed and given at once, about


@dataclass(frozen=True)
class Words:
    """What is estimated of order 1.

    Attributes:
        probabilities: float32 [V + 1].
        sums: float64 [1], the sum of the empty context, of stupid backoff; 1 of the others.
    """

    probabilities: Floats
    sums: Doubles


def whole_contexts(
    batches: Iterable[pa.RecordBatch], keys: Keys, order: int
) -> Iterator[pa.RecordBatch]:
    """Cut n-grams in trie order anew, so that no context is in two batches."""
    import pyarrow as pa

    open_: list[pa.RecordBatch] = []  # of which the last context may go on
    for batch in batches:
        open_.append(batch)
        if sum(part.num_rows for part in open_) < GIVEN:
            continue
        whole = pa.concat_batches(open_)
        columns = [whole.column(name).to_numpy() for name in keys.columns(order)]
        changes = np.flatnonzero(keys.new_context(columns))
        open_ = [whole]
        if len(changes):
            # change i is between rows i and i + 1
            cut = int(changes[-1]) + 1
            yield whole[:cut]
            open_ = [whole[cut:]]
    if sum(part.num_rows for part in open_):
        yield pa.concat_batches(open_)


def contexts_in(batch: pa.RecordBatch, keys: Keys, order: int) -> tuple[list[Longs], Longs]:
    """Return the columns of n-grams in trie order, and where each context begins, [C + 1]."""
    columns = [batch.column(name).to_numpy() for name in keys.columns(order)]
    begins = np.flatnonzero(np.concatenate(([True], keys.new_context(columns), [True])))
    return columns, begins


@dataclass(frozen=True)
class ContextSmoother:
    """Smooths contexts of order n.

    Attributes:
        order: n.
        keys: how n-grams stand in columns.
        config: the smoothing, its settings, and what is pruned.
        counts_of_counts: per order n1 to n4, from occurrences.
        adjusted_counts_of_counts: the same from adjusted counts.
        allowed: [V + 1], the words whose n-grams are kept, `<s>` the last; all when None.
        words: of order 1, if n is 2.
    """

    order: int
    keys: Keys
    config: NgramConfig
    counts_of_counts: Sequence[Sequence[int]]
    adjusted_counts_of_counts: Sequence[Sequence[int]]
    allowed: Bools | None = None
    words: Words | None = None

    @property
    def has_sums(self) -> bool:
        """Whether n-grams are given the sum of their context, which the next order asks for."""
        return self.config.smoothing == "stupid-backoff"

    def schema(self) -> pa.Schema:
        """Return the columns that are given: of the n-gram, p and g, and z if there are sums.

        p is its probability, g the backoff weight of its context, and z the sum of that.
        """
        import pyarrow as pa

        columns = [(name, pa.int64()) for name in self.keys.columns(self.order)]
        columns += [("p", pa.float32()), ("g", pa.float32())]
        return pa.schema([*columns, ("z", pa.float64())] if self.has_sums else columns)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give what is kept of n-grams in trie order, whole contexts.

        Args:
            batches: with the columns of the n-gram, `raw`, `adjusted`, and from order 3 on `p` of
                the suffix, 0 where that was pruned; and its `z`.
        """
        for whole in whole_contexts(batches, self.keys, self.order):
            yield self._smooth(whole)

    def _smooth(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns, begins = contexts_in(batch, self.keys, self.order)
        num = batch.num_rows
        ngrams = None
        raw = pruned_by = own(batch.column("raw"), np.int32)
        if self.allowed is not None:
            ngrams = self.keys.words(columns, self.order)
            pruned_by = np.where(self.allowed[ngrams].all(axis=0), raw, np.int32(0))
        lasts = (columns[-1] & ((1 << self.keys.bits) - 1)).astype(np.int32)
        level = CountLevel(
            words=lasts,
            begins=begins.astype(np.int32),
            # the suffix of a bigram is a word; of longer ones the join has brought p to each row
            suffixes=lasts if self.words is not None else np.arange(num, dtype=np.int32),
            counts=raw,
            adjusted=own(batch.column("adjusted"), np.int32),
        )
        if self.words is not None:
            lower, lower_sums = self.words.probabilities, np.repeat(self.words.sums, len(begins))
        else:
            lower = own(batch.column("p"), np.float32)
            # the suffixes of a context's n-grams have one context; 0 of those that were pruned
            lower_sums = np.ones(len(begins))
            if self.has_sums:
                lower_sums = np.maximum.reduceat(batch.column("z").to_numpy(), begins[:-1])
                lower_sums[lower_sums == 0] = 1
        first_words = self.keys.words(columns, self.order)[0] if ngrams is None else ngrams[0]
        is_inside = first_words[begins[:-1]] != self.keys.vocabulary_size
        num_inside = int(np.count_nonzero(is_inside))
        smoothed, sums = self._run(level, pruned_by, lower, lower_sums, num_inside)
        kept = pruned_by > self.config.thresholds[self.order - 1]
        context = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
        given: list[npt.NDArray[Any]] = [*columns]
        given += [smoothed.probabilities[0], smoothed.weights[0][context]]
        if self.has_sums:
            given.append(sums[context])
        arrays = [pa.array(values[kept]) for values in given]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema())

    def smooth_words(self, level: CountLevel) -> tuple[Words, tuple[Discounts, ...]]:
        """Return order 1, and the discounts of all orders, if the smoothing has any.

        Args:
            level: all words, `<s>` the last, which follow the empty context.
        """
        size = len(level) if self.allowed is None else int(np.count_nonzero(self.allowed))
        pruned_by = level.counts
        if self.allowed is not None:
            pruned_by = np.where(self.allowed, level.counts, np.int32(0))
        lower = np.full(1, 1 / (size - 1), np.float32)  # without `<s>`
        smoothed, sums = self._run(level, pruned_by, lower, np.ones(1), 1)
        words = Words(smoothed.probabilities[0], sums)
        return words, smoothed.discounts

    def _run(
        self,
        level: CountLevel,
        pruned_by: Ints,
        lower: Floats,
        lower_sums: Doubles,
        num_inside: int,
    ) -> tuple[Smoothed, Doubles]:
        """Return the estimates of some contexts, and their sums.

        Args:
            level: their n-grams; `begins` are of these contexts alone, `suffixes` rows of `lower`.
            pruned_by: the occurrences that pruning goes by: 0 of n-grams with other words.
            lower: probabilities of the order below.
            lower_sums: of each context, the sum of its suffix.
            num_inside: the contexts that do not begin with `<s>`, which come first.
        """
        counted = _Contexts(self, level, pruned_by, lower, lower_sums, num_inside)
        return SMOOTHINGS[self.config.smoothing](counted), counted.sums


def own(column: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return a column as an array that compiled code takes: one of its own."""
    return np.array(column.to_numpy(), dtype)


class _Contexts:
    """Some contexts of one order, as a smoothing wants them; see `smoothing.Counted`."""

    def __init__(
        self,
        smoother: ContextSmoother,
        level: CountLevel,
        pruned_by: Ints,
        lower: Floats,
        lower_sums: Doubles,
        num_inside: int,
    ) -> None:
        self.config = smoother.config
        self.vocabulary_size = smoother.keys.vocabulary_size
        self.counts_of_counts = smoother.counts_of_counts
        self.adjusted_counts_of_counts = smoother.adjusted_counts_of_counts
        self._order, self._level, self._lower = smoother.order, level, lower
        self._pruned_by = pruned_by
        self._lower_sums, self._num_inside = lower_sums, num_inside
        self.sums = np.ones(len(level.begins) - 1)

    def num_inside(self, n: int, level: CountLevel) -> int:
        return self._num_inside

    def context_sums(self, n: int, level: CountLevel) -> tuple[Ints, Doubles, Doubles]:
        return np.arange(len(self.sums), dtype=np.int32), self._lower_sums, self.sums

    def by_order(self, loop: Callable[..., None], arguments: Arguments) -> Smoothed:
        level, n = self._level, self._order
        probabilities = np.empty(len(level), np.float32)
        weights = np.empty(len(self.sums), np.float32)
        threshold = self.config.thresholds[n - 1]
        order = Order(level.begins, level.suffixes, self._pruned_by, threshold)
        ratios = Ratios(self._lower, probabilities, weights)
        own: tuple[Any, ...] = arguments(n, level)
        loop(0, len(self.sums), order, ratios, *own)
        return Smoothed([probabilities], [weights])
