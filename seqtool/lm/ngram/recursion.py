"""What a smoothing estimates from, and the way from one order to the next that all share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import CountLevel, Counts
from seqtool.lm.ngram.discounts import Discounts
from seqtool.lm.ngram.table import Float32, Int32

ROWS_PER_THREAD = 1 << 16  # fewer are done sooner than a thread is started

# from an order, its level, and the probabilities of the order below
Arguments = Callable[[int, CountLevel, Float32], tuple[Any, ...]]


@dataclass(frozen=True)
class Smoothed:
    """What a smoothing gives: ratios, not logarithms.

    Attributes:
        probabilities: per order, of every n-gram that was counted, [N].
        weights: per order below the highest, of every n-gram as a context, [N].
        discounts: per order, if the smoothing has any.
    """

    probabilities: list[Float32]
    weights: list[Float32]
    discounts: tuple[Discounts, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What a smoothing estimates from.

    Attributes:
        counts: as they were counted.
        config: the settings; its order is that of the counts.
        threads: how many to use.
    """

    counts: Counts
    config: NgramConfig
    threads: int = 1

    @cached_property
    def levels(self) -> list[CountLevel]:
        """The levels, order 1 made like the others.

        Its only context, the empty one, has all words but `<s>` as children, and all their
        suffixes are row 0 of an order 0 that holds the uniform distribution.
        """
        first, *others = self.counts.levels
        children = np.array([0, self.counts.vocabulary_size], np.int32)
        return [replace(first, begins=children, suffixes=np.zeros_like(first.words)), *others]

    @cached_property
    def raw_tallies(self) -> list[list[int]]:
        """Per order n1 to n4, from occurrences."""
        return [_counts_of_counts(level, level.counts).tolist() for level in self.levels]

    @cached_property
    def adjusted_tallies(self) -> list[list[int]]:
        """Per order n1 to n4, from adjusted counts.

        KenLM's slip: of the n-grams of each order below the highest, the one that is the last to be
        adjusted has its occurrences counted instead.
        """
        tallies = [_counts_of_counts(level, level.adjusted) for level in self.levels]
        if self.config.discounts == "kenlm":
            last_rows = self.counts.last_in_suffix_order
            assert last_rows or self.counts.order == 1
            for row, level, numbers in zip(last_rows, self.levels, tallies, strict=False):
                for count, change in ((level.adjusted[row], -1), (level.counts[row], 1)):
                    if row >= 0 and count < 5:
                        numbers[count - 1] += change
        return [numbers.tolist() for numbers in tallies]

    def by_order(self, loop: Callable[..., None], arguments: Arguments) -> Smoothed:
        """Run a loop of `estimation` over each order, from 1 up.

        Args:
            loop: the compiled loop.
            arguments: gives those of its own, from the order, its level and the probabilities of
                the order below.
        """
        probabilities: list[Float32] = []
        weights: list[Float32] = []
        lower = np.full(1, 1 / self.counts.vocabulary_size, np.float32)
        for n, level in enumerate(self.levels, start=1):
            own = arguments(n, level, lower)
            lower = np.empty(len(level), np.float32)
            probabilities.append(lower)
            weights.append(np.empty(len(level.begins) - 1, np.float32))
            self._spread(
                loop,
                level.begins,
                (level.counts, self.config.thresholds[n - 1], *own, lower, weights[-1]),
            )
        return Smoothed(probabilities, weights[1:])

    def _spread(self, loop: Callable[..., None], begins: Int32, arguments: tuple[Any, ...]) -> None:
        """Run a loop in threads, on ranges of contexts that have about as many rows each."""
        num_parts = max(1, min(self.threads, int(begins[-1]) // ROWS_PER_THREAD))
        shares = np.linspace(0, begins[-1], num_parts + 1, dtype=begins.dtype)[1:-1]
        edges = [0, *np.searchsorted(begins, shares).tolist(), len(begins) - 1]
        with ThreadPoolExecutor(num_parts) as pool:
            list(pool.map(lambda *ends: loop(*ends, begins, *arguments), edges, edges[1:]))


def _counts_of_counts(level: CountLevel, counts: Int32) -> npt.NDArray[np.int64]:
    """Return n1 to n4 of a level, `<s>` itself not counted."""
    from seqtool.lm.ngram.estimation import tally

    numbers = np.zeros(6, np.int64)
    tally(counts[: level.begins[-1]], numbers)
    return numbers[1:5]
