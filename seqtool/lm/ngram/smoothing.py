"""Smoothings: how counts become the probabilities and backoff weights of a table.

A smoothing is one function of `Counted` and one line in `config.SMOOTHINGS`. Its loop gives ratios
for every n-gram that was counted; pruning, logarithms and statistics are the same for all of them.
The loop runs over whole orders in memory (`estimate`), or over some contexts of one order at a time
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Bools, Doubles, Floats, Ints
from seqtool.core.jit import compiled
from seqtool.lm.ngram.backoff import with_words
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.counts import CountLevel, Counts
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
class Counted:
    """What a smoothing knows of the counts of a text.

    Attributes:
        config: the settings; their order is that of the counts.
        vocabulary_size: V.
        counts_of_counts: per order n1 to n4, from occurrences.
        adjusted_counts_of_counts: per order n1 to n4, from adjusted counts.
    """

    config: NgramConfig
    vocabulary_size: int
    counts_of_counts: Sequence[Sequence[int]]
    adjusted_counts_of_counts: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Part:
    """C contexts of one order, which a loop runs over, with their R n-grams.

    Attributes:
        order: n.
        level: the n-grams; `begins` are of these contexts.
        num_inside: how many of the contexts do not begin with `<s>`; they come first.
        context_suffixes: int32 [C], the row of each context's suffix in `lower_sums`.
        lower_sums: float64, the sums Z of the order below, see `back_off`.
        sums: float64 [C], room for those of these contexts.
    """

    order: int
    level: CountLevel
    num_inside: int
    context_suffixes: Ints
    lower_sums: Doubles
    sums: Doubles


@dataclass(frozen=True)
class Smoothing:
    """A compiled loop over contexts, and what it takes beside counts and ratios.

    Attributes:
        loop: the loop.
        arguments: gives its own arguments.
        discounts: per order, if the smoothing has any.
    """

    loop: Callable[..., None]
    arguments: Callable[[Part], tuple[Any, ...]]
    discounts: tuple[Discounts, ...] = ()

    def run(
        self, part: Part, raw: Ints, threshold: int, lower: Floats, threads: int = 1
    ) -> tuple[Floats, Floats]:
        """Estimate the contexts of a part, in threads on ranges of about as many rows each.

        Args:
            part: the contexts.
            raw: int32 [R], the occurrences that pruning goes by.
            threshold: rows that occur this often, or less, are pruned.
            lower: float32, the probabilities of the order below, read by suffix.
            threads: how many to use.

        Returns:
            The probabilities, [R], and the backoff weight of each context, [C], as ratios.
        """
        begins = part.level.begins
        ratios = Ratios(
            lower, np.empty(len(part.level), np.float32), np.empty(len(begins) - 1, np.float32)
        )
        order = Order(begins, part.level.suffixes, raw, threshold)
        arguments = order, ratios, *self.arguments(part)
        num_parts = max(1, min(threads, int(begins[-1]) // ROWS_PER_THREAD))
        # cut between contexts: what one thread writes, no other reads or writes
        shares = np.linspace(0, begins[-1], num_parts + 1, dtype=begins.dtype)[1:-1]
        edges = [0, *np.searchsorted(begins, shares).tolist(), len(begins) - 1]
        with ThreadPoolExecutor(num_parts) as pool:
            list(pool.map(lambda *ends: self.loop(*ends, *arguments), edges, edges[1:]))
        return ratios.probabilities, ratios.weights


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
        file: of the arrays of the table, where they are mapped from a temporary one.
    """

    table: BackoffTable
    statistics: list[dict[str, Any]]
    warnings: list[str]
    file: Path | None = None


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
    size, kept_counts = counts.vocabulary_size, _kept_counts(counts, allowed)
    # order 1 like the others: its only context, the empty one, has all words but `<s>`, and all
    # their suffixes are row 0 of an order 0 that holds the uniform distribution
    first, *others = counts.levels
    children = np.array([0, size], np.int32)
    levels = [replace(first, begins=children, suffixes=np.zeros_like(first.words)), *others]
    counted = Counted(
        config,
        size,
        [_counts_of_counts(level, level.counts).tolist() for level in levels],
        _adjusted_counts_of_counts(levels, counts.last_in_suffix_order, config),
    )
    smoothing: Smoothing = SMOOTHINGS[config.smoothing](counted)
    num_words = size if allowed is None else int(np.count_nonzero(allowed)) - 1  # without <s>
    lower = np.full(1, 1 / num_words, np.float32)
    suffixes, sums, num_inside = np.zeros(1, np.int32), np.ones(1), 1
    probabilities: list[Float32] = []
    weights: list[Float32] = []
    for n, level in enumerate(levels, start=1):
        part = Part(n, level, num_inside, suffixes, sums, np.empty(len(level.begins) - 1))
        threshold = config.thresholds[n - 1]
        lower, weight = smoothing.run(part, kept_counts[n - 1], threshold, lower, threads)
        probabilities.append(lower)
        weights.append(weight)
        # `<s>` has the last row, so what begins with it is last in each order
        suffixes, sums, num_inside = level.suffixes, part.sums, int(level.begins[num_inside])
    weights = [*weights[1:], np.empty(0, np.float32)]  # of n-grams as contexts
    table = _table(counts, config, kept_counts, probabilities, weights, allowed)
    used: Sequence[Discounts | None] = smoothing.discounts or [None] * counts.order
    statistics = [
        statistics_of(n, len(counts.levels[n - 1]), len(level), of_counts, discounts)
        for n, (level, of_counts, discounts) in enumerate(
            zip(table.levels, counted.counts_of_counts, used, strict=True), start=1
        )
    ]
    return Estimate(table, statistics, fallback_warnings(smoothing.discounts))


def _kept_counts(counts: Counts, allowed: Bools | None) -> list[Int32]:
    """Return per order the occurrences that pruning goes by: 0 of n-grams with other words."""
    if allowed is None:
        return [level.counts for level in counts.levels]
    is_kept, result = np.ones(1, np.bool_), []
    for n, level in enumerate(counts.levels, start=1):
        is_allowed = allowed[level.words]
        is_kept = is_allowed if n == 1 else np.repeat(is_kept, np.diff(level.begins)) & is_allowed
        result.append(np.where(is_kept, level.counts, np.int32(0)))
    return result


def _adjusted_counts_of_counts(
    levels: Sequence[CountLevel], last_rows: Sequence[int], config: NgramConfig
) -> list[list[int]]:
    """Return per order n1 to n4, from adjusted counts.

    KenLM's slip: of the n-grams of each order below the highest, the one that is the last to be
    adjusted has its occurrences counted instead.
    """
    orders = [_counts_of_counts(level, level.adjusted) for level in levels]
    if config.discounts == "kenlm":
        for row, level, numbers in zip(last_rows, levels, orders, strict=False):
            for count, change in ((int(level.adjusted[row]), -1), (int(level.counts[row]), 1)):
                if 0 < count < 5:  # n5 and beyond, and n0, are not kept
                    numbers[count - 1] += change
    return [numbers.tolist() for numbers in orders]


def fallback_warnings(discounts: Sequence[Discounts]) -> list[str]:
    """Return one sentence for each order whose counts gave no discounts."""
    return [
        f"order {n}: the counts give no valid discounts (n1 to n4 are "
        f"{', '.join(map(str, used.counts_of_counts))}); "
        f"used {', '.join(f'{value:g}' for value in used.values)}"
        for n, used in enumerate(discounts, start=1)
        if used.is_fallback
    ]


def maximum_likelihood(counted: Counted) -> Smoothing:
    """Relative frequencies.

    A context that was seen keeps nothing for other words, but for the share of pruned ones; one
    that was not seen leaves the word to the shorter context.
    """
    return _interpolated(counted, adjusted=False)


def witten_bell(counted: Counted) -> Smoothing:
    """Interpolated: as much for new words as different words were seen (Witten & Bell 1991)."""
    return _interpolated(counted, adjusted=False, per_type=1)


def absolute_discounting(counted: Counted) -> Smoothing:
    """Interpolated, one discount per order (Ney, Essen & Kneser 1994)."""
    return _interpolated(counted, adjusted=False, formula=single_discount)


def kneser_ney(counted: Counted) -> Smoothing:
    """Interpolated Kneser-Ney (Kneser & Ney 1995; Chen & Goodman 1999), one discount per order."""
    return _interpolated(counted, adjusted=True, formula=single_discount)


def modified_kneser_ney(counted: Counted) -> Smoothing:
    """Interpolated Kneser-Ney with three discounts per order (Chen & Goodman 1999).

    Adjusted counts below the highest order, but true ones for n-grams that begin with `<s>`; order
    1 is interpolated with the uniform distribution over V words, `<unk>` and `</s>` among them
    (Heafield et al. 2013).
    """
    return _interpolated(counted, adjusted=True, formula=modified_discounts)


def add_k(counted: Counted) -> Smoothing:
    """(c(hw) + k) / (c(h) + k V) in the longest context; uniform if that was never seen.

    As a table: contexts of full length, or from `<s>` on, hold these; all shorter n-grams are
    uniform, to be backed off to.
    """

    def arguments(part: Part) -> tuple[Any, ...]:
        first_context = 0 if part.order == counted.config.order else part.num_inside
        return first_context, counted.config.add, counted.vocabulary_size

    return Smoothing(add, arguments)


def stupid_backoff(counted: Counted) -> Smoothing:
    """S(w | h) = c(hw) / c(h), or a constant times S(w | h') if hw was not seen.

    Brants et al. 2007; but each context is divided by its sum, so that these are probabilities.
    """

    def arguments(part: Part) -> tuple[Any, ...]:
        # nothing is below the relative frequencies of words
        factor = counted.config.backoff if part.order > 1 else 0.0
        return part.context_suffixes, part.lower_sums, factor, part.sums

    return Smoothing(back_off, arguments)


def _interpolated(
    counted: Counted, *, adjusted: bool, formula: Formula | None = None, per_type: float = 0
) -> Smoothing:
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

    def arguments(part: Part) -> tuple[Any, ...]:
        values = discounts[part.order - 1].values if discounts else _NO_DISCOUNT
        numerators = part.level.adjusted if adjusted else part.level.counts
        return numerators, np.array([0, *values]), per_type

    return Smoothing(interpolate, arguments, discounts)


def _table(
    counts: Counts,
    config: NgramConfig,
    kept_counts: Sequence[Int32],
    probabilities: Sequence[Float32],
    weights: Sequence[Float32],
    allowed: Bools | None,
) -> BackoffTable:
    """Leave out what is pruned, and take logarithms; the arrays of ratios are overwritten.

    Thresholds never decrease, so the context and the suffix of what is kept are kept.
    """
    probabilities[0][counts.vocabulary_size] = 1  # <s>: to be replaced
    levels: list[TableLevel] = []
    context_raw, context_threshold = np.zeros(1, np.int32), -1
    for n, level in enumerate(counts.levels, start=1):
        kept = TableLevel(level.words, level.begins, probabilities[n - 1], weights[n - 1])
        raw, threshold = kept_counts[n - 1], config.thresholds[n - 1]
        if threshold > 0 or (n > 1 and allowed is not None):
            num_contexts = np.count_nonzero(context_raw > context_threshold)
            num_kept = np.count_nonzero(raw > threshold)
            rows = Rows(level.begins, level.words, kept.log_probs, kept.backoffs)
            kept = TableLevel(
                np.empty(num_kept, np.int32),
                np.empty(num_contexts + 1, np.int32),
                np.empty(num_kept, np.float32),
                np.empty(num_kept if n < counts.order else 0, np.float32),
            )
            to = Rows(kept.begins, kept.words, kept.log_probs, kept.backoffs)
            prune(raw, threshold, context_raw, context_threshold, rows, to)
        # all words are rows, those too that never occurred
        context_raw, context_threshold = raw, threshold if n > 1 else -1
        take_logarithms(kept.log_probs)
        take_logarithms(kept.backoffs)
        levels.append(kept)
    levels[0].log_probs[counts.vocabulary_size] = BOS_NATS
    table = BackoffTable(tuple(levels), counts.vocabulary_size)
    return table if allowed is None else with_words(table, allowed)


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
