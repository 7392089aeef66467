"""Smoothing of some contexts of one order at a time, in the compiled loops of `smoothing`.

What follows a context is all that its estimates need, beside the order below. So an engine gives
the n-grams of an order in trie order, each with its counts and the probability of its suffix, and
takes back those that are kept, in the same order. It may do so in several parts at a time, if no
context is in two of them. Everything here can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, Doubles, Floats
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.counts import CountLevel
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.lm.ngram.smoothing import Counted, Discounts, Part, Smoothing

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
        """Return what is kept of R n-grams of C whole contexts."""
        import pyarrow as pa

        keys, num = self.keys, batch.num_rows
        columns = [batch.column(name).to_numpy() for name in keys.columns(self.order)]
        begins = np.flatnonzero(np.concatenate(([True], keys.new_context(columns), [True])))
        raw = pruned_by = _owned(batch, "raw", np.int32)
        ngrams = keys.words(columns, self.order)
        if self.allowed is not None:
            pruned_by = np.where(self.allowed[ngrams].all(axis=0), raw, np.int32(0))
        level = CountLevel(
            words=ngrams[-1],
            begins=begins.astype(np.int32),
            # the suffix of a bigram is a word; of longer ones the join has brought p to each row
            suffixes=ngrams[-1] if self.words is not None else np.arange(num, dtype=np.int32),
            counts=raw,
            adjusted=_owned(batch, "adjusted", np.int32),
        )
        lower_sums = np.ones(len(begins) - 1)
        if self.words is not None:
            lower = self.words.probabilities
            lower_sums *= self.words.sums
        else:
            lower = _owned(batch, "p", np.float32)
            if self.has_sums:
                # the suffixes of a context's n-grams have one context; 0 of those that were pruned
                lower_sums = np.maximum.reduceat(batch.column("z").to_numpy(), begins[:-1])
                lower_sums[lower_sums == 0] = 1
        num_inside = int(np.count_nonzero(ngrams[0][begins[:-1]] != keys.vocabulary_size))
        part = self._part(level, lower_sums, num_inside)
        threshold = self.config.thresholds[self.order - 1]
        probabilities, weights = self._smoothing().run(part, pruned_by, threshold, lower)
        context = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
        columns += [probabilities, weights[context]]
        if self.has_sums:
            columns.append(part.sums[context])
        kept = pruned_by > threshold
        arrays = [pa.array(column[kept]) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema())

    def smooth_words(self, level: CountLevel) -> tuple[Words, tuple[Discounts, ...]]:
        """Return order 1, and the discounts of all orders, if the smoothing has any.

        Args:
            level: all words, `<s>` the last, which follow the empty context.
        """
        raw, size = level.counts, len(level)
        if self.allowed is not None:
            raw, size = np.where(self.allowed, raw, np.int32(0)), int(self.allowed.sum())
        lower = np.full(1, 1 / (size - 1), np.float32)  # without `<s>`
        part, smoothing = self._part(level, np.ones(1), 1), self._smoothing()
        probabilities, _ = smoothing.run(part, raw, self.config.thresholds[0], lower)
        return Words(probabilities, part.sums), smoothing.discounts

    def _smoothing(self) -> Smoothing:
        of_orders = self.counts_of_counts, self.adjusted_counts_of_counts
        counted = Counted(self.config, self.keys.vocabulary_size, *of_orders)
        smoothing: Smoothing = SMOOTHINGS[self.config.smoothing](counted)
        return smoothing

    def _part(self, level: CountLevel, lower_sums: Doubles, num_inside: int) -> Part:
        rows = np.arange(len(lower_sums), dtype=np.int32)
        sums = np.ones(len(lower_sums))
        return Part(self.order, level, num_inside, rows, lower_sums, sums)


def _owned(batch: pa.RecordBatch, name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return a column as an array that compiled code takes: one of its own."""
    return np.array(batch.column(name).to_numpy(), dtype)
