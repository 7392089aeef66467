"""Pruning by relative entropy: n-grams go whose loss changes the model's distribution least.

Stolcke, A. (1998), Entropy-based pruning of backoff language models. For one n-gram h w of the
model p, and the model p' that lacks it and has the backoff b'(h) that this gives,

    D = - P(h) { p(w | h) [log p'(w | h) - log p(w | h)]
                 + (1 - sum p(v | h)) [log b'(h) - log b(h)] }

with the sum over the words v that follow h in the table, and P(h) by the chain rule from shorter
n-grams; the `<s>` at the beginning of a context counts as `</s>`. The perplexity of the model grows
by the share exp(D) - 1, and where that is below a threshold the n-gram goes, as with `-prune` of
SRILM: each is judged as if all others stayed, from the longest to bigrams, and one that longer ones
begin with stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numba import types

from seqtool.core.arrays import Bools
from seqtool.core.jit import compiled
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.array_file import read_only
from seqtool.lm.ngram.suffixes import (
    BackingOff,
    contexts_of,
    left_over,
    left_over_below,
    select,
    with_weights,
)
from seqtool.lm.ngram.table import BackoffTable

_read_ints = types.Array(types.int32, 1, "C", readonly=True)
_read_floats = types.Array(types.float32, 1, "C", readonly=True)
_doubles = types.float64[::1]


@compiled(
    types.void(
        _read_ints,
        _read_floats,
        _doubles,
        _read_floats,
        _doubles,
        types.float64,
        types.boolean[::1],
    )
)
def _judge(begins, log_probs, lower, backoffs, contexts, threshold, kept):  # type: ignore[no-untyped-def]
    """Find the n-grams of one order that are worth their place.

    Args:
        begins: [C + 1], the rows of each context.
        log_probs: [N], log p(w | h), nats.
        lower: [N], log p(w | h'), nats.
        backoffs: [C], log b(h).
        contexts: [C], log P(h).
        threshold: least growth of the perplexity, a share of it.
        kept: [N], written.
    """
    for context in range(begins.shape[0] - 1):
        begin, end = begins[context], begins[context + 1]
        left = left_over(begin, end, log_probs)
        left_below = left_over_below(begin, end, lower)
        weight = np.exp(contexts[context])
        backoff = backoffs[context]
        for row in range(begin, end):
            probability = np.exp(np.float64(log_probs[row]))
            # as if this n-gram alone went: its share joins what is unused
            rest, rest_below = left + probability, left_below + np.exp(lower[row])
            loss = 0.0
            # a word without probability, or a context that never comes, costs nothing
            if rest > 0 and weight > 0:
                new = np.log(rest) - np.log(rest_below) if rest_below > 0 else -np.inf
                if probability > 0:
                    loss -= probability * (lower[row] + new - log_probs[row])
                if left > 0 and backoff > -np.inf:
                    loss -= left * (new - backoff)
            kept[row] = np.expm1(weight * loss) >= threshold  # exp(1e-17) - 1 would be 0


def prune_by_entropy(table: BackoffTable, threshold: float) -> BackoffTable:
    """Return a table without the n-grams that change its perplexity by less than a share of it.

    Single words stay. The backoffs are those that follow from what is left.

    Args:
        table: what to prune.
        threshold: such as 1e-8; 0 keeps all that there is.
    """
    if not threshold:  # rounding may make a loss of nothing less than that
        return table
    log_contexts = table.levels[0].log_probs.astype(np.float64)
    log_contexts[-1] = log_contexts[EOS_ID]  # as many sentences begin as end
    backing = BackingOff(table.levels[0])
    judged: list[Bools] = []
    for below, level in zip(table.levels, table.levels[1:], strict=False):
        lower, suffixes = backing.lower(level.begins, level.words)
        kept = np.empty(len(level), np.bool_)
        arrays = map(read_only, (level.begins, level.log_probs))
        _judge(*arrays, lower, read_only(below.backoffs), log_contexts, threshold, kept)
        judged.append(kept)
        log_contexts = log_contexts[contexts_of(level)] + level.log_probs
        backing.append(level, suffixes)
    # from the longest: one that stays keeps its context, and that again its own
    for n in range(len(judged) - 1, 0, -1):
        level, is_kept = table.levels[n + 1], judged[n]
        sums = np.zeros(len(level) + 1, np.int32)
        np.cumsum(is_kept, out=sums[1:])
        judged[n - 1] |= np.diff(sums[level.begins]) > 0
    return with_weights(select(table, judged))


def with_sizes(
    statistics: Sequence[Mapping[str, Any]], table: BackoffTable
) -> list[dict[str, Any]]:
    """Return the statistics of each order, with the n-grams that a pruned table has."""
    sizes = [*map(len, table.levels), *[0] * len(statistics)]
    return [{**of_order, "ngrams": size} for of_order, size in zip(statistics, sizes, strict=False)]
