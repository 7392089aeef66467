"""Smoothings: how counts become the probabilities and backoff weights of a table.

A smoothing is one function of `Counted` and one line in `config.SMOOTHINGS`. It gives ratios for
every n-gram that was counted; pruning, logarithms and statistics are the same for all of them. What
is counted may be all in memory (`Estimator`), or some contexts of one order at a time
(`engine.contexts`).

n_c is the number of n-grams of one order that occur c times (or, for Kneser-Ney, that have c
different words before them); D_c is what each of them gives away to n-grams never seen.

The compiled loops take the contexts from `first` to `last - 1`, each with its children, so that
threads can share them. Rows are those of `counts.CountLevel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Bools, Doubles, Floats, Ints
from seqtool.core.jit import compiled
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.counts import CountLevel, Counts
from seqtool.lm.ngram.suffixes import with_words
from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, Float32, Int32, TableLevel

_int32s, _float32s = types.int32[::1], types.float32[::1]


class Order(NamedTuple):
    """What was counted of one order, N rows; the order below has M.

    Attributes:
        begins: int32 [M + 1], the rows of each context.
        suffixes: int32 [N], of each row its suffix in the order below.
        raw: int32 [N], occurrences; 0 for n-grams with words that are left out.
        threshold: rows that occur this often, or less, are pruned.
    """

    begins: Ints
    suffixes: Ints
    raw: Ints
    threshold: int


class Ratios(NamedTuple):
    """What is estimated of one order.

    Attributes:
        lower: float32, the probabilities of the order below, read by suffix.
        probabilities: float32 [N], written; those that are pruned hold anything.
        weights: float32 [M], written: the backoff weight of each context, 1 without children.
    """

    lower: Floats
    probabilities: Floats
    weights: Floats


class Rows(NamedTuple):
    """An estimated order, as `table.TableLevel` has it; no weights at the highest order."""

    begins: Ints
    words: Ints
    probabilities: Floats
    weights: Floats


_order = types.NamedTuple((_int32s, _int32s, _int32s, types.int64), Order)
_ratios = types.NamedUniTuple(_float32s, 3, Ratios)
_rows = types.NamedTuple((_int32s, _int32s, _float32s, _float32s), Rows)
_part = types.int64, types.int64, _order, _ratios  # first, last, and what all loops take


@compiled(types.void(_int32s, types.int64[::1]))
def count_counts(counts, counts_of_counts):  # type: ignore[no-untyped-def]
    """Add up how many of the counts are 0, 1, 2, 3, 4, and more, in an array of six."""
    for row in range(counts.shape[0]):
        counts_of_counts[min(counts[row], 5)] += 1


@compiled(types.void(*_part, _int32s, types.float64[::1], types.float64))
def interpolate(first, last, order, ratios, numerators, discounts, per_type):  # type: ignore[no-untyped-def]
    """Estimate p(w | h) = (c(hw) - D(c(hw))) / d(h) + g(h) p(w | h') for h' without h's first word.

    d(h) is the sum of the numerators c(hw), with `per_type` added for each different w, and g(h)
    what makes the sum 1: discounts, `per_type` and the counts of pruned n-grams. `discounts` holds
    D(0) = 0, D(1), D(2), D(3+).
    """
    begins, suffixes, raw, threshold = order
    lower, probabilities, weights = ratios
    # a loop of its own, so that the waits for memory overlap: suffixes lie anywhere
    for row in range(begins[first], begins[last]):
        probabilities[row] = lower[suffixes[row]]
    for context in range(first, last):
        begin, end = begins[context], begins[context + 1]
        total = 0
        num_types = 0
        given_away = 0.0
        for row in range(begin, end):
            count = numerators[row]
            total += count
            if raw[row] > threshold:
                given_away += discounts[min(count, 3)]
            else:
                given_away += count  # pruned: all of it goes to the order below
            # adjusted counts may be 0: a word of the vocabulary that the text does not have
            if count > 0:
                num_types += 1
        denominator = total + per_type * num_types
        if denominator == 0:  # nothing follows: the order below answers alone
            # the rows have the probabilities of the order below, from the first loop
            weights[context] = 1
            continue
        weight = (given_away + per_type * num_types) / denominator
        weights[context] = weight
        for row in range(begin, end):
            count = numerators[row]
            own = (count - discounts[min(count, 3)]) / denominator
            probabilities[row] = own + weight * probabilities[row]


@compiled(types.void(*_part, types.int64, types.float64, types.int64))
def add(first, last, order, ratios, first_context, addend, vocabulary_size):  # type: ignore[no-untyped-def]
    """Estimate p(w | h) = (c(hw) + k) / (c(h) + k V), backing off to the uniform distribution.

    Contexts before `first_context` are themselves what others back off to: uniform.
    """
    begins, _, raw, threshold = order
    _, probabilities, weights = ratios
    for context in range(first, last):
        begin, end = begins[context], begins[context + 1]
        if context < first_context:
            weights[context] = 1
            for row in range(begin, end):
                probabilities[row] = 1 / vocabulary_size
            continue
        total = 0
        pruned = 0
        num_kept = 0
        for row in range(begin, end):
            total += raw[row]
            if raw[row] > threshold:
                num_kept += 1
            else:
                pruned += raw[row]
        denominator = total + addend * vocabulary_size
        # the words without a row share what is left evenly: each is uniform times the weight
        num_left = vocabulary_size - num_kept
        weights[context] = 0
        if num_left > 0:
            left = (pruned + addend * num_left) / denominator
            weights[context] = left * vocabulary_size / num_left
        for row in range(begin, end):
            probabilities[row] = (raw[row] + addend) / denominator


@compiled(types.void(*_part, _int32s, types.float64[::1], types.float64, types.float64[::1]))
def back_off(first, last, order, ratios, context_suffixes, lower_sums, factor, sums):  # type: ignore[no-untyped-def]
    """Estimate S(w | h) / Z(h), with S = c(hw) / c(h) if that is kept, else `factor` S(w | h').

    Z(h) is the sum of S(w | h) over all words. With s(h) the sum of c(hw) / c(h) over the words
    kept, and P(h') that of S(w | h') / Z(h') over the same words, it is
    s(h) + factor Z(h') (1 - P(h')), and the backoff weight is factor Z(h') / Z(h).
    `sums` receives Z(h), `lower_sums` holds Z(h').
    """
    begins, suffixes, raw, threshold = order
    lower, probabilities, weights = ratios
    for row in range(begins[first], begins[last]):  # as in `interpolate`
        probabilities[row] = lower[suffixes[row]]
    for context in range(first, last):
        begin, end = begins[context], begins[context + 1]
        total = 0
        kept = 0
        lower_kept = 0.0
        for row in range(begin, end):
            total += raw[row]
            if raw[row] > threshold:
                kept += raw[row]
                lower_kept += probabilities[row]
        # where nothing follows, the sum is this alone, and the weight 1
        scale = factor * lower_sums[context_suffixes[context]]
        sum_ = scale * max(0.0, 1 - lower_kept)  # below 0 by rounding only
        if kept > 0:
            sum_ += kept / total
        sums[context] = sum_
        weights[context] = scale / sum_
        for row in range(begin, end):
            probabilities[row] = raw[row] / (total * sum_)


@compiled(types.void(_int32s, types.int64, _int32s, types.int64, _rows, _rows))
def prune(raw, threshold, context_raw, context_threshold, level, kept):  # type: ignore[no-untyped-def]
    """Copy n-grams that occur more often than the threshold, and the begins of contexts that do.

    A pruned context has pruned children only. The weights are those of the n-grams themselves as
    contexts, [N], or none at the highest order.
    """
    num_contexts = 0
    num_kept = 0
    for context in range(level.begins.shape[0] - 1):
        if context_raw[context] <= context_threshold:
            continue
        kept.begins[num_contexts] = num_kept
        num_contexts += 1
        for row in range(level.begins[context], level.begins[context + 1]):
            if raw[row] > threshold:
                kept.words[num_kept] = level.words[row]
                kept.probabilities[num_kept] = level.probabilities[row]
                if level.weights.shape[0] > 0:
                    kept.weights[num_kept] = level.weights[row]
                num_kept += 1
    kept.begins[num_contexts] = num_kept


ROWS_PER_THREAD = 1 << 16  # fewer are done sooner than a thread is started

Formula = Callable[[Sequence[int]], tuple[float, float, float] | None]

# what a loop takes beside counts and ratios, from an order and its level
Arguments = Callable[[int, CountLevel], tuple[Any, ...]]


@dataclass(frozen=True)
class Discounts:
    """Discounts of one order: what is subtracted from a count, for unseen n-grams.

    Attributes:
        values: D1, D2 and D3+, of n-grams with a count of 1, of 2, and of 3 or more.
        is_fallback: whether they are the stated ones, as the counts gave none.
        counts_of_counts: n1, n2, n3 and n4, which they are made from.
    """

    values: tuple[float, float, float]
    is_fallback: bool
    counts_of_counts: tuple[int, ...]


def single_discount(counts_of_counts: Sequence[int]) -> tuple[float, float, float] | None:
    """Return D = n1 / (n1 + 2 n2) for every count (Ney, Essen & Kneser 1994), or None.

    None where n1 or n2 is zero: D would be 0 or 1, which keeps nothing for the unseen or leaves
    nothing to what was seen once.
    """
    n1, n2 = counts_of_counts[:2]
    if n1 == 0 or n2 == 0:
        return None
    discount = n1 / (n1 + 2 * n2)
    return discount, discount, discount


def modified_discounts(counts_of_counts: Sequence[int]) -> tuple[float, float, float] | None:
    """Return D_c = c - (c + 1) Y n_(c+1) / n_c with Y = n1 / (n1 + 2 n2), or None.

    Chen & Goodman 1999, eq. 26. None where n1, n2 or n3 is zero or a D_c is not in [0, c], as in
    KenLM.
    """
    n1, n2, n3, n4 = counts_of_counts
    if 0 in (n1, n2, n3):
        return None
    y = n1 / (n1 + 2 * n2)
    values = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    if any(not 0 <= value <= count for count, value in enumerate(values, start=1)):
        return None
    return values


def discounts_of(
    formula: Formula, counts_of_counts: Sequence[int], fallback: tuple[float, ...]
) -> Discounts:
    """Return what the formula makes of the counts of counts, or else the fallback.

    Args:
        formula: `single_discount` or `modified_discounts`.
        counts_of_counts: n1 to n4.
        fallback: D1, D2 and D3+; of these, `single_discount` takes the first for all counts.
    """
    values = formula(counts_of_counts)
    is_fallback = values is None
    if values is None:
        d1, d2, d3 = fallback[:1] * 3 if formula is single_discount else fallback
        values = d1, d2, d3
    return Discounts(values, is_fallback, tuple(counts_of_counts))


@dataclass(frozen=True)
class Smoothed:
    """Estimates of a smoothing: ratios, not logarithms.

    Attributes:
        probabilities: per order, of every n-gram that was counted, [N].
        weights: per order below the highest, of every n-gram as a context, [N].
        discounts: per order, if the smoothing has any.
    """

    probabilities: list[Float32]
    weights: list[Float32]
    discounts: tuple[Discounts, ...] = ()


class Counted(Protocol):
    """Counts and settings, and how a smoothing runs a compiled loop over them."""

    @property
    def config(self) -> NgramConfig:
        """The settings; their order is that of the counts."""

    @property
    def vocabulary_size(self) -> int:
        """V."""

    @property
    def counts_of_counts(self) -> Sequence[Sequence[int]]:
        """Per order n1 to n4, from occurrences."""

    @property
    def adjusted_counts_of_counts(self) -> Sequence[Sequence[int]]:
        """Per order n1 to n4, from adjusted counts."""

    def num_inside(self, n: int, level: CountLevel) -> int:
        """Return how many contexts of an order do not begin with `<s>`; they come first."""

    def context_sums(self, n: int, level: CountLevel) -> tuple[Ints, Doubles, Doubles]:
        """Return those arguments of `back_off` that are sums of contexts.

        int32 [M], the row of each context's suffix among the sums of the order below; float64, Z
        of the order below; float64 [M], room for Z of this order.
        """

    def by_order(self, loop: Callable[..., None], arguments: Arguments) -> Smoothed:
        """Run a loop over each order, from 1 up.

        Args:
            loop: the compiled loop.
            arguments: gives those of its own, from the order and its level.
        """


@dataclass(frozen=True)
class Estimator:
    """All counts in memory; see `Counted`.

    Attributes:
        counts: as they were counted.
        config: the settings; its order is that of the counts.
        threads: how many to use.
        allowed: [V + 1], the words whose n-grams are kept, `<s>` the last; all when None.
    """

    counts: Counts
    config: NgramConfig
    threads: int = 1
    allowed: Bools | None = None

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.counts.vocabulary_size

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
    def kept_counts(self) -> list[Int32]:
        """Per order the occurrences that pruning goes by: 0 of n-grams with other words."""
        if self.allowed is None:
            return [level.counts for level in self.levels]
        is_kept, result = np.ones(1, np.bool_), []
        for n, level in enumerate(self.counts.levels, start=1):
            allowed = self.allowed[level.words]
            is_kept = allowed if n == 1 else np.repeat(is_kept, np.diff(level.begins)) & allowed
            result.append(np.where(is_kept, level.counts, np.int32(0)))
        return result

    @cached_property
    def counts_of_counts(self) -> list[list[int]]:
        """Per order n1 to n4, from occurrences."""
        return [_counts_of_counts(level, level.counts).tolist() for level in self.levels]

    @cached_property
    def adjusted_counts_of_counts(self) -> list[list[int]]:
        """Per order n1 to n4, from adjusted counts.

        KenLM's slip: of the n-grams of each order below the highest, the one that is the last to be
        adjusted has its occurrences counted instead.
        """
        orders = [_counts_of_counts(level, level.adjusted) for level in self.levels]
        if self.config.discounts == "kenlm":
            last_rows = self.counts.last_in_suffix_order
            assert last_rows or self.counts.order == 1
            for row, level, numbers in zip(last_rows, self.levels, orders, strict=False):
                count_as_kenlm(numbers, int(level.adjusted[row]), int(level.counts[row]))
        return [numbers.tolist() for numbers in orders]

    @cached_property
    def _from_bos(self) -> list[int]:
        """Per order from 0, the first row that begins with `<s>`."""
        result = [1, self.vocabulary_size]
        # `<s>` has the last row, so what begins with it is last in each order: from its children on
        for level in self.levels[1:]:
            result.append(int(level.begins[result[-1]]))
        return result

    def num_inside(self, n: int, level: CountLevel) -> int:
        """Return how many contexts of an order do not begin with `<s>`; they come first."""
        return self._from_bos[n - 1]

    @cached_property
    def _sums(self) -> list[Doubles]:
        """Per order from -1, the sum of every context, as far as it is known."""
        return [np.ones(1)]

    def context_sums(self, n: int, level: CountLevel) -> tuple[Ints, Doubles, Doubles]:
        """Return the rows of suffixes, and the sums of the order below and of this one."""
        self._sums.append(np.empty(len(level.begins) - 1))
        suffixes = np.zeros(1, np.int32) if n == 1 else self.levels[n - 2].suffixes
        return suffixes, self._sums[-2], self._sums[-1]

    def by_order(self, loop: Callable[..., None], arguments: Arguments) -> Smoothed:
        """Run a loop over each order, from 1 up; see `Counted`."""
        probabilities: list[Float32] = []
        weights: list[Float32] = []
        num_words = self.counts.vocabulary_size
        if self.allowed is not None:
            num_words = int(np.count_nonzero(self.allowed)) - 1  # without <s>
        lower = np.full(1, 1 / num_words, np.float32)
        for n, level in enumerate(self.levels, start=1):
            probabilities.append(np.empty(len(level), np.float32))
            weights.append(np.empty(len(level.begins) - 1, np.float32))
            kept, threshold = self.kept_counts[n - 1], self.config.thresholds[n - 1]
            order = Order(level.begins, level.suffixes, kept, threshold)
            ratios = Ratios(lower, probabilities[-1], weights[-1])
            self._spread(loop, level.begins, (order, ratios, *arguments(n, level)))
            lower = probabilities[-1]
        return Smoothed(probabilities, weights[1:])

    def _spread(self, loop: Callable[..., None], begins: Int32, arguments: tuple[Any, ...]) -> None:
        """Run a loop in threads, on ranges of contexts that have about as many rows each."""
        num_parts = max(1, min(self.threads, int(begins[-1]) // ROWS_PER_THREAD))
        # cut between contexts: what one thread writes, no other reads or writes
        shares = np.linspace(0, begins[-1], num_parts + 1, dtype=begins.dtype)[1:-1]
        edges = [0, *np.searchsorted(begins, shares).tolist(), len(begins) - 1]
        with ThreadPoolExecutor(num_parts) as pool:
            list(pool.map(lambda *ends: loop(*ends, *arguments), edges, edges[1:]))


def count_as_kenlm(numbers: Any, adjusted: int, raw: int) -> None:
    """Count an n-gram among n1 to n4 by its occurrences in place of its adjusted count."""
    for count, change in ((adjusted, -1), (raw, 1)):
        if 0 < count < 5:  # n5 and beyond, and n0, are not kept
            numbers[count - 1] += change


def _counts_of_counts(level: CountLevel, counts: Int32) -> npt.NDArray[np.int64]:
    """Return n1 to n4 of a level, `<s>` itself not counted."""
    numbers = np.zeros(6, np.int64)
    count_counts(counts[: level.begins[-1]], numbers)
    return numbers[1:5]


_NO_DISCOUNT = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Estimate:
    """An estimated model.

    Attributes:
        table: probabilities and backoff weights.
        statistics: per order: `order`, `counted` and `ngrams` (before and after pruning),
            `singletons` (occurring once), `counts_of_counts` (n1 to n4), `discounts` (D1, D2, D3+;
            empty if the smoothing has none) and `fallback` (whether they are the stated ones).
        warnings: one sentence for each order whose counts gave no discounts.
    """

    table: BackoffTable
    statistics: list[dict[str, Any]]
    warnings: list[str]


def estimate(
    counts: Counts, config: NgramConfig, *, threads: int = 1, allowed: Bools | None = None
) -> Estimate:
    """Estimate a model; the result does not depend on the number of threads.

    Args:
        counts: n-grams of the order that the configuration names, with `last_in_suffix_order` for
            its `discounts: kenlm`.
        config: the smoothing, its settings, and what is pruned.
        threads: how many to use.
        allowed: [V + 1], the words that the table may have, `<s>` the last; all when None. All
            n-grams count for discounts, and what those with other words had goes to the order
            below, as with lmplz's `--limit_vocab_file`.
    """
    assert counts.order == config.order
    estimator = Estimator(counts, config, threads, allowed)
    smoothed = SMOOTHINGS[config.smoothing](estimator)
    table = _table(estimator, smoothed)
    discounts: Sequence[Discounts | None] = smoothed.discounts or [None] * counts.order
    statistics = [
        statistics_of(
            n, len(counts.levels[n - 1]), len(level), estimator.counts_of_counts[n - 1], used
        )
        for n, (level, used) in enumerate(zip(table.levels, discounts, strict=True), start=1)
    ]
    return Estimate(table, statistics, fallback_warnings(smoothed.discounts))


def fallback_warnings(discounts: Sequence[Discounts]) -> list[str]:
    """Return one sentence for each order whose counts gave no discounts."""
    return [
        f"order {n}: the counts give no valid discounts (n1 to n4 are "
        f"{', '.join(map(str, used.counts_of_counts))}); "
        f"used {', '.join(f'{value:g}' for value in used.values)}"
        for n, used in enumerate(discounts, start=1)
        if used.is_fallback
    ]


def maximum_likelihood(counted: Counted) -> Smoothed:
    """Relative frequencies.

    A context that was seen keeps nothing for other words, but for the share of pruned ones; one
    that was not seen leaves the word to the shorter context.
    """
    return _interpolated(counted, adjusted=False)


def witten_bell(counted: Counted) -> Smoothed:
    """Interpolated: as much for new words as different words were seen (Witten & Bell 1991)."""
    return _interpolated(counted, adjusted=False, per_type=1)


def absolute_discounting(counted: Counted) -> Smoothed:
    """Interpolated, one discount per order (Ney, Essen & Kneser 1994)."""
    return _interpolated(counted, adjusted=False, formula=single_discount)


def kneser_ney(counted: Counted) -> Smoothed:
    """Interpolated Kneser-Ney (Kneser & Ney 1995; Chen & Goodman 1999), one discount per order."""
    return _interpolated(counted, adjusted=True, formula=single_discount)


def modified_kneser_ney(counted: Counted) -> Smoothed:
    """Interpolated Kneser-Ney with three discounts per order (Chen & Goodman 1999).

    Adjusted counts below the highest order, but true ones for n-grams that begin with `<s>`; order
    1 is interpolated with the uniform distribution over V words, `<unk>` and `</s>` among them
    (Heafield et al. 2013).
    """
    return _interpolated(counted, adjusted=True, formula=modified_discounts)


def add_k(counted: Counted) -> Smoothed:
    """(c(hw) + k) / (c(h) + k V) in the longest context; uniform if that was never seen.

    As a table: contexts of full length, or from `<s>` on, hold these; all shorter n-grams are
    uniform, to be backed off to.
    """

    def arguments(n: int, level: CountLevel) -> tuple[Any, ...]:
        first_context = 0 if n == counted.config.order else counted.num_inside(n, level)
        return first_context, counted.config.add, counted.vocabulary_size

    return counted.by_order(add, arguments)


def stupid_backoff(counted: Counted) -> Smoothed:
    """S(w | h) = c(hw) / c(h), or a constant times S(w | h') if hw was not seen.

    Brants et al. 2007; but each context is divided by its sum, so that these are probabilities.
    """

    def arguments(n: int, level: CountLevel) -> tuple[Any, ...]:
        suffixes, lower_sums, sums = counted.context_sums(n, level)
        # nothing is below the relative frequencies of words
        return suffixes, lower_sums, counted.config.backoff if n > 1 else 0.0, sums

    return counted.by_order(back_off, arguments)


def _interpolated(
    counted: Counted, *, adjusted: bool, formula: Formula | None = None, per_type: float = 0
) -> Smoothed:
    """Estimate by interpolation with the order below.

    Args:
        counted: the counts and settings.
        adjusted: use adjusted counts, not occurrences.
        formula: of the discounts; without one nothing is discounted.
        per_type: what is added to the count of a context for each word that follows it.
    """
    discounts: tuple[Discounts, ...] = ()
    if formula is not None:
        by_order = counted.adjusted_counts_of_counts if adjusted else counted.counts_of_counts
        fallback = counted.config.fallback
        discounts = tuple(discounts_of(formula, counts, fallback) for counts in by_order)

    def arguments(n: int, level: CountLevel) -> tuple[Any, ...]:
        values = discounts[n - 1].values if discounts else _NO_DISCOUNT
        numerators = level.adjusted if adjusted else level.counts
        return numerators, np.array([0, *values]), per_type

    return replace(counted.by_order(interpolate, arguments), discounts=discounts)


def _table(estimator: Estimator, smoothed: Smoothed) -> BackoffTable:
    """Leave out what is pruned, and take logarithms; the arrays of `smoothed` are overwritten."""
    counts = estimator.counts
    smoothed.probabilities[0][counts.vocabulary_size] = 1  # <s>: to be replaced
    no_weights = np.empty(0, np.float32)
    levels: list[TableLevel] = []
    for n, (level, threshold) in enumerate(
        zip(counts.levels, estimator.config.thresholds, strict=True), start=1
    ):
        weights = smoothed.weights[n - 1] if n < counts.order else no_weights
        kept = TableLevel(level.words, level.begins, smoothed.probabilities[n - 1], weights)
        if threshold > 0 or (n > 1 and estimator.allowed is not None):
            kept = _pruned(estimator, n, kept)
        take_logarithms(kept.log_probs)
        take_logarithms(kept.backoffs)
        levels.append(kept)
    levels[0].log_probs[counts.vocabulary_size] = BOS_NATS
    table = BackoffTable(tuple(levels), counts.vocabulary_size)
    return table if estimator.allowed is None else with_words(table, estimator.allowed)


def _pruned(estimator: Estimator, n: int, level: TableLevel) -> TableLevel:
    """Return the rows of order n > 1 that are kept.

    Thresholds never decrease, so the context and the suffix of what is kept are kept.
    """
    thresholds, raw = estimator.config.thresholds, estimator.kept_counts[n - 1]
    context_raw = estimator.kept_counts[n - 2]
    # all words are rows, those too that never occurred
    context_threshold = thresholds[n - 2] if n > 2 else -1
    num_contexts = np.count_nonzero(context_raw > context_threshold)
    num_kept = np.count_nonzero(raw > thresholds[n - 1])
    kept = TableLevel(
        np.empty(num_kept, np.int32),
        np.empty(num_contexts + 1, np.int32),
        np.empty(num_kept, np.float32),
        np.empty(num_kept if len(level.backoffs) else 0, np.float32),
    )
    prune(
        raw,
        thresholds[n - 1],
        context_raw,
        context_threshold,
        Rows(level.begins, level.words, level.log_probs, level.backoffs),
        Rows(kept.begins, kept.words, kept.log_probs, kept.backoffs),
    )
    return kept


def take_logarithms(ratios: Float32) -> None:
    """Replace ratios, [N], by their natural logarithms; -inf of 0."""
    with np.errstate(divide="ignore"):  # -inf is the logarithm of nothing
        # computed in float64: the result is rounded once
        np.log(ratios, out=ratios, dtype=np.float64, casting="unsafe")


def statistics_of(
    n: int,
    counted: int,
    ngrams: int,
    counts_of_counts: Sequence[int],
    discounts: Discounts | None,
) -> dict[str, Any]:
    """Return what is told of one order; see `Estimate`.

    Args:
        n: the order.
        counted: its n-grams before pruning.
        ngrams: those that are kept.
        counts_of_counts: n1 to n4, from occurrences.
        discounts: if the smoothing has any.
    """
    of = discounts.counts_of_counts if discounts else counts_of_counts
    return {
        "order": n,
        "counted": counted,
        "ngrams": ngrams,
        "singletons": counts_of_counts[0],
        "counts_of_counts": list(of),
        "discounts": list(discounts.values) if discounts else [],
        "fallback": discounts is not None and discounts.is_fallback,
    }
