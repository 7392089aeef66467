"""Compiled loops of estimation: from the counts of one order to its probabilities and weights.

Rows are those of `counts.CountLevel`. All loops take the contexts from `first` to `last - 1`, each
with its children, so that threads can share them. They write ratios, not logarithms:

    probabilities  float32 [N]   of each n-gram; those that are pruned hold anything
    weights        float32 [M]   the backoff weight of each context; 1 if it has no children
    lower          float32 [...] the probabilities of the order below, read by suffix
    raw            int32 [N]     occurrences; up to `threshold` an n-gram is pruned

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

from numba import types

from seqtool.core.compiled import compiled

_int32s, _float32s = types.int32[::1], types.float32[::1]


@compiled(types.void(_int32s, types.int64[::1]))
def tally(counts, counts_of_counts):  # type: ignore[no-untyped-def]
    """Add up how many of the counts are 0, 1, 2, 3, 4, and more, in an array of six."""
    for row in range(counts.shape[0]):
        counts_of_counts[min(counts[row], 5)] += 1


@compiled(
    types.void(
        types.int64,
        types.int64,
        _int32s,
        _int32s,
        types.int64,
        _int32s,
        _int32s,
        _float32s,
        types.float64[::1],
        types.float64,
        _float32s,
        _float32s,
    )
)
def interpolate(  # type: ignore[no-untyped-def]
    first,
    last,
    begins,
    raw,
    threshold,
    numerators,
    suffixes,
    lower,
    discounts,
    per_type,
    probabilities,
    weights,
):
    """Estimate p(w | h) = (c(hw) - D(c(hw))) / d(h) + g(h) p(w | h') for h' without h's first word.

    d(h) is the sum of the numerators c(hw), with `per_type` added for each different w, and g(h)
    what makes the sum 1: discounts, `per_type` and the counts of pruned n-grams. `discounts` holds
    D(0) = 0, D(1), D(2), D(3+).
    """
    for row in range(begins[first], begins[last]):  # apart, so that cache misses overlap
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
                given_away += count
            if count > 0:
                num_types += 1
        denominator = total + per_type * num_types
        if denominator == 0:
            weights[context] = 1
            continue
        weight = (given_away + per_type * num_types) / denominator
        weights[context] = weight
        for row in range(begin, end):
            count = numerators[row]
            own = (count - discounts[min(count, 3)]) / denominator
            probabilities[row] = own + weight * probabilities[row]


@compiled(
    types.void(
        types.int64,
        types.int64,
        _int32s,
        _int32s,
        types.int64,
        types.int64,
        types.float64,
        types.int64,
        _float32s,
        _float32s,
    )
)
def add(  # type: ignore[no-untyped-def]
    first,
    last,
    begins,
    raw,
    threshold,
    first_context,
    addend,
    vocabulary_size,
    probabilities,
    weights,
):
    """Estimate p(w | h) = (c(hw) + k) / (c(h) + k V), backing off to the uniform distribution.

    Contexts before `first_context` are themselves what others back off to: uniform.
    """
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
        num_left = vocabulary_size - num_kept
        weights[context] = 0
        if num_left > 0:
            left = (pruned + addend * num_left) / denominator
            weights[context] = left * vocabulary_size / num_left
        for row in range(begin, end):
            probabilities[row] = (raw[row] + addend) / denominator


@compiled(
    types.void(
        types.int64,
        types.int64,
        _int32s,
        _int32s,
        types.int64,
        _int32s,
        _int32s,
        _float32s,
        types.float64[::1],
        types.float64,
        types.float64[::1],
        _float32s,
        _float32s,
    )
)
def back_off(  # type: ignore[no-untyped-def]
    first,
    last,
    begins,
    raw,
    threshold,
    suffixes,
    context_suffixes,
    lower,
    lower_sums,
    factor,
    sums,
    probabilities,
    weights,
):
    """Estimate S(w | h) / Z(h), with S = c(hw) / c(h) if that is kept, else `factor` S(w | h').

    Z(h) is the sum of S(w | h) over all words. With s(h) the sum of c(hw) / c(h) over the words
    kept, and P(h') that of S(w | h') / Z(h') over the same words, it is
    s(h) + factor Z(h') (1 - P(h')), and the backoff weight is factor Z(h') / Z(h).
    `sums` holds Z(h), `lower_sums` Z(h').
    """
    for row in range(begins[first], begins[last]):
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
        sum_ = scale * max(0.0, 1 - lower_kept)
        if kept > 0:
            sum_ += kept / total
        sums[context] = sum_
        weights[context] = scale / sum_
        for row in range(begin, end):
            probabilities[row] = raw[row] / (total * sum_)


@compiled(
    types.void(
        _int32s,
        _int32s,
        types.int64,
        _int32s,
        types.int64,
        _int32s,
        _float32s,
        _float32s,
        _int32s,
        _int32s,
        _float32s,
        _float32s,
    )
)
def prune(  # type: ignore[no-untyped-def]
    begins,
    raw,
    threshold,
    context_raw,
    context_threshold,
    words,
    probabilities,
    weights,
    kept_begins,
    kept_words,
    kept_probabilities,
    kept_weights,
):
    """Copy n-grams that occur more often than the threshold, and the begins of contexts that do.

    A pruned context has pruned children only. `weights` are those of the n-grams themselves as
    contexts, [N], or none at the highest order.
    """
    num_contexts = 0
    num_kept = 0
    for context in range(begins.shape[0] - 1):
        if context_raw[context] <= context_threshold:
            continue
        kept_begins[num_contexts] = num_kept
        num_contexts += 1
        for row in range(begins[context], begins[context + 1]):
            if raw[row] > threshold:
                kept_words[num_kept] = words[row]
                kept_probabilities[num_kept] = probabilities[row]
                if weights.shape[0] > 0:
                    kept_weights[num_kept] = weights[row]
                num_kept += 1
    kept_begins[num_contexts] = num_kept
