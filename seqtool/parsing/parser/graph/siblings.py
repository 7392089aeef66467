"""The best projective tree by scores of arcs and of adjacent siblings (McDonald & Pereira 2006).

Siblings are dependents of one head on the same side of it, adjacent if none stands between them.
To the spans of `eisner` there is one more,

    siblings     complete spans of i over i..k and of j over k+1..j, where i and j are adjacent
                 siblings, whose head is outside

and an incomplete span is the incomplete span of the head with the nearer sibling, and the siblings'
span, or, for the first dependent on a side, the complete span of the dependent alone.

The sibling scores of a sentence of n words are a table [n, 1 + n, 1 + n] of the dependent, its head
(0 is ROOT) and its adjacent sibling on the side of the head, 0 where there is none. Those of
sentences stand one after another in one flat array.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.parser.graph.eisner import (
    highest_sum,
    place_in_complete,
    place_of_highest,
)
from seqtool.parsing.parser.graph.spanning import check_sizes, finite_weights

# sibling scores beyond count as this; it leaves the digits of the others
FARTHEST = 1e9

_floats = types.float32[::1]
_doubles = types.float64[::1]
_ints = types.int32[::1]
_int = types.int64


@compiled(types.float64(types.float32))
def _bounded(score):  # type: ignore[no-untyped-def]
    """Return a sibling score as a finite number; NaN is the lowest."""
    if score > -FARTHEST:
        return min(np.float64(score), FARTHEST)
    return -FARTHEST


@compiled(_int(_doubles, _doubles, _floats))
def _nearer_sibling(spans, siblings, scores):  # type: ignore[no-untyped-def]
    """Return the place of the sibling with the highest sum; of equal ones the first."""
    best, highest = -1, -np.inf
    for place in range(spans.shape[0]):
        value = spans[place] + siblings[place] + _bounded(scores[place])
        if value > highest:
            best, highest = place, value
    return best


@compiled(_int(_doubles, _doubles, _doubles, _floats, _int, _int, _int))
def _best_sibling(  # type: ignore[no-untyped-def]
    incomplete, between, complete, scores, size, head, dependent
):
    """Return the nearer sibling of a dependent in its best incomplete span, or -1 for none.

    `scores` are those of siblings for this head and dependent.
    """
    in_head, in_dependent = head * size, dependent * size
    low, high = min(head, dependent) + 1, max(head, dependent)
    # the dependent's complete span, up to the word beside the head
    alone = complete[in_dependent + (low if head < dependent else high - 1)] + _bounded(scores[0])
    # of no word between it is -1, which falls below `low`; sibling scores have column 0 for none
    best = low + _nearer_sibling(
        incomplete[in_head + low : in_head + high],
        between[in_dependent + low : in_dependent + high],
        scores[low + 1 : high + 1],
    )
    if best >= low:
        value = incomplete[in_head + best] + between[in_dependent + best]
        if value + _bounded(scores[best + 1]) > alone:
            return best
    return -1


@compiled(types.void(_doubles, _floats, _int, _doubles, _doubles, _doubles, _doubles, _ints))
def _sibling_tree(  # type: ignore[no-untyped-def]
    weights, scores, num_words, incomplete, between, complete, by_end, heads
):
    """Write the heads of the best tree of one sentence, in O(n^3); see `eisner`.

    `between` are the spans of siblings, by either of them first.
    """
    size, width = num_words, num_words + 1
    for j in range(size):
        complete[j * size + j] = by_end[j * size + j] = 0.0
        for i in range(j - 1, -1, -1):
            in_i, in_j = i * size, j * size
            # in two places, so that the row of either sibling can be read from left to right
            between[in_i + j] = between[in_j + i] = highest_sum(
                complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1]
            )
            for head, dependent in ((i, j), (j, i)):
                arc = dependent * width + head + 1
                of_arc = scores[arc * width : (arc + 1) * width]
                sibling = _best_sibling(
                    incomplete, between, complete, of_arc, size, head, dependent
                )
                if sibling < 0:
                    end = i + 1 if head == i else j - 1
                    inner = complete[dependent * size + end]
                else:
                    inner = incomplete[head * size + sibling]
                    inner += between[dependent * size + sibling]
                of_siblings = _bounded(of_arc[sibling + 1])
                incomplete[head * size + dependent] = inner + of_siblings + weights[arc]
            complete[in_i + j] = by_end[in_j + i] = highest_sum(
                incomplete[in_i + i + 1 : in_i + j + 1], by_end[in_j + i + 1 : in_j + j + 1]
            )
            complete[in_j + i] = by_end[in_i + j] = highest_sum(
                incomplete[in_j + i : in_j + j], by_end[in_i + i : in_i + j]
            )
    root, highest = 0, -np.inf
    for word in range(size):
        score = weights[word * width] + _bounded(scores[word * width * width])
        score += complete[word * size] + complete[word * size + size - 1]
        if score > highest:
            root, highest = word, score
    heads[root] = 0
    # spans that are to be taken apart: their kind, head (of siblings the left one), other end
    is_siblings, is_incomplete, is_complete = 0, 1, 2
    waiting = np.empty((num_words + 2, 3), np.int64)
    waiting[0, 0] = waiting[1, 0] = is_complete
    waiting[0, 1] = waiting[1, 1] = root
    waiting[0, 2], waiting[1, 2] = 0, size - 1
    # never above num_words + 1, as in `eisner`: of a span over m words, m spans wait at most
    depth = 2
    while depth > 0:
        depth -= 1
        kind, head, end = waiting[depth]
        i, j = min(head, end), max(head, end)
        if i == j:
            continue
        in_i, in_j = i * size, j * size
        first, second = waiting[depth], waiting[depth + 1]
        if kind == is_siblings:
            k = i + place_of_highest(
                complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1]
            )
            first[0], first[1], first[2] = is_complete, i, k
            second[0], second[1], second[2] = is_complete, j, k + 1
        elif kind == is_incomplete:
            heads[end] = head + 1
            arc = end * width + head + 1
            of_arc = scores[arc * width : (arc + 1) * width]
            sibling = _best_sibling(incomplete, between, complete, of_arc, size, head, end)
            if sibling < 0:
                first[0], first[1], first[2] = is_complete, end, i + 1 if head == i else j - 1
                depth -= 1  # one span only
            else:
                first[0], first[1], first[2] = is_incomplete, head, sibling
                second[0], second[1] = is_siblings, min(sibling, end)
                second[2] = max(sibling, end)
        else:
            k = place_in_complete(incomplete, by_end, size, head, end)
            first[0], first[1], first[2] = is_incomplete, head, k
            second[0], second[1], second[2] = is_complete, k, end
        depth += 2


@compiled(types.void(_floats, _floats, _ints, _ints))
def _sibling_trees(scores, siblings, lengths, heads):  # type: ignore[no-untyped-def]
    longest = np.int64(0)
    for length in lengths:
        if length > longest:
            longest = np.int64(length)
    weights = np.empty(longest * (longest + 1), np.float64)
    incomplete = np.empty(longest * longest, np.float64)
    between, complete = np.empty_like(incomplete), np.empty_like(incomplete)
    by_end = np.empty_like(incomplete)
    at = begin = of_siblings = np.int64(0)
    for length in lengths:
        num_words = np.int64(length)
        num_arcs = num_words * (num_words + 1)
        end = of_siblings + num_arcs * (num_words + 1)
        of_arcs = scores[begin : begin + num_arcs]
        low = high = 0.0  # of sibling scores, which count where an arc is forbidden or demanded
        if not np.isfinite(of_arcs).all():
            for score in siblings[of_siblings:end]:
                low, high = min(low, _bounded(score)), max(high, _bounded(score))
        finite_weights(of_arcs, weights, num_words, high - low)
        _sibling_tree(
            weights,
            siblings[of_siblings:end],
            num_words,
            incomplete,
            between,
            complete,
            by_end,
            heads[at : at + num_words],
        )
        at, begin, of_siblings = at + num_words, begin + num_arcs, end


def sibling_trees(scores: Floats, siblings: Floats, lengths: Ints) -> Ints:
    """Return the best projective trees of sentences, each with exactly one arc from ROOT.

    Takes O(n^3) for a sentence of n words, and 40 n^2 bytes for the longest one, beside the sibling
    scores, which have 4 n^3 bytes: 4 MB of 100 words, 4 GB of 1,000.

    Args:
        scores: of arcs, float32, flat; see `spanning`.
        siblings: of adjacent siblings, float32, flat; see above. Where the sibling is not between
            the head and the dependent, they are not read; of arcs from ROOT only those without a
            sibling are. NaN is the lowest score.
        lengths: of the sentences, in words, int32 [B]; 1 or more.

    Returns:
        Heads, int32 [sum of the lengths]; 0 is ROOT.

    Raises:
        ValueError: there are not as many scores as arcs, or as siblings.
    """
    check_sizes(scores, lengths)
    num_words = lengths.astype(np.int64)
    if siblings.size != (num_words * (num_words + 1) ** 2).sum():
        raise ValueError(f"{siblings.size} are not the sibling scores of {lengths} words")
    heads = np.empty(num_words.sum(), np.int32)
    _sibling_trees(scores, siblings, lengths, heads)
    return heads
