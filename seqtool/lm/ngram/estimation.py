"""Compiled loops of estimation: from the counts of one order to its probabilities and weights.

Rows are those of `counts.CountLevel`. All loops take the contexts from `first` to `last - 1`, each
with its children, so that threads can share them. They write ratios, not logarithms.

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.compiled import compiled

_int32s, _float32s = types.int32[::1], types.float32[::1]


class Order(NamedTuple):
    """What was counted of one order, N rows; the order below has M.

    Attributes:
        begins: int32 [M + 1], the rows of each context.
        suffixes: int32 [N], of each row its suffix in the order below.
        raw: int32 [N], occurrences.
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


_order = types.NamedTuple((_int32s, _int32s, _int32s, types.int64), Order)  # type: ignore[no-untyped-call]
_ratios = types.NamedUniTuple(_float32s, 3, Ratios)  # type: ignore[no-untyped-call]
_rows = types.NamedTuple((_int32s, _int32s, _float32s, _float32s), Rows)  # type: ignore[no-untyped-call]
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
