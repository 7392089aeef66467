"""The best projective tree by arc scores, of those with exactly one arc from ROOT (Eisner 1996).

A tree is put together from spans of words, i..j, whose head is one of both ends:

    incomplete   with an arc from i to j (or from j to i): complete spans of i over i..k and of j
                 over k+1..j, which have nothing more on the sides where they meet
    complete     with all that is below the head on this side: an incomplete span from i to k, and
                 the complete one of k over k..j (or, from j, mirrored)
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.parser.graph.spanning import best_trees, finite_weights, spanning_tree

# in words; charts and weights of so long a sentence take 32 MB and half a second. A longer one gets
# its best spanning tree, projective or not
LONGEST_PROJECTIVE = 1000

_floats = types.float32[::1]
_doubles = types.float64[::1]
_ints = types.int32[::1]
_int = types.int64


# no number is a NaN, and the highest of them is the same in any order: several at a time
@compiled(types.float64(_doubles, _doubles), fastmath={"nnan", "nsz", "reassoc"})
def highest_sum(left, right):  # type: ignore[no-untyped-def]
    """Return the highest of the sums of two numbers at the same place."""
    highest = left[0] + right[0]
    for place in range(1, left.shape[0]):
        highest = max(highest, left[place] + right[place])
    return highest


@compiled(_int(_doubles, _doubles))
def place_of_highest(left, right):  # type: ignore[no-untyped-def]
    """Return the place of the highest sum; of equal ones the first."""
    best = 0
    for place in range(1, left.shape[0]):
        if left[place] + right[place] > left[best] + right[best]:
            best = place
    return best


@compiled(_int(_doubles, _doubles, _int, _int, _int))
def place_in_complete(incomplete, by_end, size, head, end):  # type: ignore[no-untyped-def]
    """Return where the best complete span of a head consists of an incomplete and a complete one.

    `by_end` are the charts of complete spans turned around, see `fill_charts`.
    """
    of_head, of_end = head * size, end * size
    # the split is where the incomplete span ends: at `end` at the farthest, and never at the head
    first, last = (head + 1, end + 1) if head < end else (end, head)
    return first + place_of_highest(
        incomplete[of_head + first : of_head + last], by_end[of_end + first : of_end + last]
    )


@compiled(types.void(_doubles, _int, _doubles, _doubles, _doubles))
def fill_charts(weights, num_words, incomplete, complete, by_end):  # type: ignore[no-untyped-def]
    """Write the sums of the best spans of one sentence, in O(n^3).

    Words are 0..n-1 here. The charts are tables [head, other end]; `by_end` is `complete` turned
    around, so that every row is read from left to right. ROOT is in no span: the root word is the
    head of all others, on both of its sides.
    """
    size, width = num_words, num_words + 1
    # no span is much longer than those before it, so that the rows that are read stay in the cache
    for j in range(size):
        complete[j * size + j] = by_end[j * size + j] = 0.0
        # downwards: a span over i..j is made of such as begin after i, or end before j
        for i in range(j - 1, -1, -1):
            in_i, in_j = i * size, j * size
            # an arc in either direction joins the same two halves, so that one maximum serves both
            joined = highest_sum(
                complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1]
            )
            incomplete[in_i + j] = joined + weights[j * width + i + 1]
            incomplete[in_j + i] = joined + weights[i * width + j + 1]
            # after the incomplete spans, as one over all of i..j is among the splits
            complete[in_i + j] = by_end[in_j + i] = highest_sum(
                incomplete[in_i + i + 1 : in_i + j + 1], by_end[in_j + i + 1 : in_j + j + 1]
            )
            complete[in_j + i] = by_end[in_i + j] = highest_sum(
                incomplete[in_j + i : in_j + j], by_end[in_i + i : in_i + j]
            )


@compiled(types.void(_doubles, _int, _doubles, _doubles, _doubles, _ints))
def _projective_tree(  # type: ignore[no-untyped-def]
    weights, num_words, incomplete, complete, by_end, heads
):
    """Write the heads of the best projective tree of one sentence."""
    fill_charts(weights, num_words, incomplete, complete, by_end)
    size, width = num_words, num_words + 1
    root, highest = 0, -np.inf
    for word in range(size):
        score = weights[word * width] + complete[word * size] + complete[word * size + size - 1]
        if score > highest:
            root, highest = word, score
    heads[root] = 0
    # what the best spans were made of is found again, which is cheaper than to keep it
    waiting = np.empty((num_words + 2, 3), np.int32)  # complete or not, head, other end
    waiting[0, 0] = waiting[1, 0] = 1
    waiting[0, 1] = waiting[1, 1] = root
    waiting[0, 2], waiting[1, 2] = 0, size - 1
    # never above num_words + 1: taken apart, a span over m words is m spans that wait at most
    depth = 2
    while depth > 0:
        depth -= 1
        is_complete, head, end = waiting[depth]
        i, j = min(head, end), max(head, end)
        if i == j:
            continue
        in_i, in_j = np.int64(i) * size, np.int64(j) * size
        if not is_complete:
            heads[end] = head + 1
            k = i + place_of_highest(
                complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1]
            )
            waiting[depth, 0], waiting[depth, 1], waiting[depth, 2] = 1, i, k
            waiting[depth + 1, 0], waiting[depth + 1, 1], waiting[depth + 1, 2] = 1, j, k + 1
        else:
            k = place_in_complete(incomplete, by_end, size, head, end)
            waiting[depth, 0], waiting[depth, 1], waiting[depth, 2] = 0, head, k
            waiting[depth + 1, 0], waiting[depth + 1, 1], waiting[depth + 1, 2] = 1, k, end
        depth += 2


@compiled(types.void(_floats, _ints, _ints))
def _projective_trees(scores, lengths, heads):  # type: ignore[no-untyped-def]
    longest = longest_chart = np.int64(0)
    for length in lengths:
        if length > longest:
            longest = np.int64(length)
        if longest_chart < length <= LONGEST_PROJECTIVE:
            longest_chart = np.int64(length)
    weights = np.empty(longest * (longest + 1), np.float64)
    # of spanning trees alone, if there are any
    ends = np.empty(longest * (longest + 1) if longest > longest_chart else 0, np.int32)
    parents, gains = np.empty(2 * longest, np.int32), np.empty(2 * longest, np.float64)
    # charts have the size of the longest sentence that is parsed by them, not of the longest of all
    incomplete = np.empty(longest_chart * longest_chart, np.float64)
    complete, by_end = np.empty_like(incomplete), np.empty_like(incomplete)
    at = begin = np.int64(0)
    for length in lengths:
        num_words = np.int64(length)
        end = begin + num_words * (num_words + 1)
        finite_weights(scores[begin:end], weights, num_words, 0.0)
        into = heads[at : at + num_words]
        if num_words <= LONGEST_PROJECTIVE:
            _projective_tree(weights, num_words, incomplete, complete, by_end, into)
        else:
            spanning_tree(weights, num_words, ends, parents, gains, into)
        at, begin = at + num_words, end


def projective_trees(scores: Floats, lengths: Ints) -> Ints:
    """Return the best projective trees of sentences, each with exactly one arc from ROOT.

    Takes O(n^3) for a sentence of n words, and 32 n^2 bytes for the longest one. A sentence of more
    than `LONGEST_PROJECTIVE` words gets its best spanning tree, which may not be projective.

    Args:
        scores: float32, flat; see `spanning`.
        lengths: of the sentences, in words, int32 [B]; 1 or more.

    Returns:
        Heads, int32 [sum of the lengths]; 0 is ROOT.

    Raises:
        ValueError: there are not as many scores as arcs.
    """
    return best_trees(_projective_trees, scores, lengths)
