"""The distribution over trees by arc scores: its partition function, and how likely each arc is.

The probability of a tree is the exponential of the sum of the scores of its arcs, divided by that
of all trees with exactly one arc from ROOT, or of all projective ones of these: the partition
function. The derivative of its logarithm by the score of an arc is the probability that a tree has
this arc, its marginal. Scores are flat, as in `trees`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Doubles, Ints, Reals
from seqtool.core.jit import compiled
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE, check_sizes, highest_sum

# by how many nats the arcs of a word may differ in the matrix-tree theorem: in doubles, products
# of two such weights can still be told from nothing
WIDEST = 300.0


class Charts(NamedTuple):
    """The spans of a sentence, [head, other end], as in `trees`; `by_end` is [other end, head]."""

    incomplete: Doubles
    complete: Doubles
    by_end: Doubles


_doubles = types.float64[::1]
_double = types.float64
_int = types.int64
_charts = types.NamedUniTuple(_doubles, 3, Charts)


@compiled(types.boolean(_doubles, _int))
def _has_bad_score(scores, num_words):  # type: ignore[no-untyped-def]
    """Return whether the score of an arc is NaN or plus infinity."""
    width = num_words + 1
    for word in range(num_words):
        for head in range(width):
            # `not <` finds a NaN, too
            if head != word + 1 and not scores[word * width + head] < np.inf:
                return True
    return False


@compiled(_double(_doubles, _doubles))
def _log_sum(left, right):  # type: ignore[no-untyped-def]
    """Return the logarithm of the sum of the products of what two rows are the logarithms of."""
    highest = highest_sum(left, right)
    # there is no way at all; below, -inf less -inf would be a NaN
    if highest == -np.inf:
        return highest
    total = 0.0
    for place in range(left.shape[0]):
        total += np.exp(left[place] + right[place] - highest)
    return highest + np.log(total)


@compiled(types.void(_double, _double, _doubles, _doubles, _doubles, _doubles))
def _pass_down(probability, total, left, right, of_left, of_right):  # type: ignore[no-untyped-def]
    """Add the probability of a span to the spans that it is made of, by their shares in `total`."""
    # a span that cannot be has a total of -inf, from which no share can be told
    if probability > 0.0:
        for place in range(left.shape[0]):
            share = probability * np.exp(left[place] + right[place] - total)
            of_left[place] += share
            of_right[place] += share


@compiled(_double(_doubles, _int, _charts, _charts, _doubles))
def _inside_outside(scores, num_words, inside, outside, marginals):  # type: ignore[no-untyped-def]
    """Write the marginals over projective trees; return the logarithm of the partition function.

    The inside algorithm is Eisner's with sums of products instead of maxima of sums, as every tree
    is put together in one way only. Going back through it gives the probability of every span, in
    `outside`; an incomplete span stands for an arc.
    """
    size, width = num_words, num_words + 1
    incomplete, complete, by_end = inside.incomplete, inside.complete, inside.by_end
    for j in range(size):
        complete[j * size + j] = by_end[j * size + j] = 0.0
        for i in range(j - 1, -1, -1):
            in_i, in_j = i * size, j * size
            joined = _log_sum(complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1])
            incomplete[in_i + j] = joined + scores[j * width + i + 1]
            incomplete[in_j + i] = joined + scores[i * width + j + 1]
            complete[in_i + j] = by_end[in_j + i] = _log_sum(
                incomplete[in_i + i + 1 : in_i + j + 1], by_end[in_j + i + 1 : in_j + j + 1]
            )
            complete[in_j + i] = by_end[in_i + j] = _log_sum(
                incomplete[in_j + i : in_j + j], by_end[in_i + i : in_i + j]
            )
    of_incomplete, of_complete, of_by_end = outside.incomplete, outside.complete, outside.by_end
    of_incomplete[: size * size] = 0.0
    of_complete[: size * size] = 0.0
    of_by_end[: size * size] = 0.0
    highest, total = -np.inf, 0.0
    for word in range(size):
        score = scores[word * width] + complete[word * size] + complete[word * size + size - 1]
        # it waits where its probability will stand, until the total is known
        marginals[word * width] = score
        marginals[word * width + word + 1] = 0.0
        highest = max(highest, score)
    if highest == -np.inf:
        marginals[: size * width] = 0.0
        return highest
    for word in range(size):
        total += np.exp(marginals[word * width] - highest)
    log_partition = highest + np.log(total)
    for word in range(size):
        probability = np.exp(marginals[word * width] - log_partition)
        marginals[word * width] = probability
        of_complete[word * size] += probability
        of_complete[word * size + size - 1] += probability
    # the spans in the opposite order, so that all that a span is part of was there before
    for j in range(size - 1, 0, -1):
        for i in range(j):
            in_i, in_j = i * size, j * size
            _pass_down(
                # a span was read from either of two charts: its probability is the sum of both
                of_complete[in_j + i] + of_by_end[in_i + j],
                complete[in_j + i],
                incomplete[in_j + i : in_j + j],
                by_end[in_i + i : in_i + j],
                of_incomplete[in_j + i : in_j + j],
                of_by_end[in_i + i : in_i + j],
            )
            _pass_down(
                of_complete[in_i + j] + of_by_end[in_j + i],
                complete[in_i + j],
                incomplete[in_i + i + 1 : in_i + j + 1],
                by_end[in_j + i + 1 : in_j + j + 1],
                of_incomplete[in_i + i + 1 : in_i + j + 1],
                of_by_end[in_j + i + 1 : in_j + j + 1],
            )
            to_right, to_left = of_incomplete[in_i + j], of_incomplete[in_j + i]
            marginals[j * width + i + 1], marginals[i * width + j + 1] = to_right, to_left
            # the sum of the halves was not kept: it is an incomplete span less its arc, if that is
            # not forbidden; if both arcs are, their probability is 0, and nothing is passed down
            score, joined = scores[j * width + i + 1], incomplete[in_i + j]
            if score == -np.inf:
                score, joined = scores[i * width + j + 1], incomplete[in_j + i]
            _pass_down(
                to_right + to_left,
                joined - score,
                complete[in_i + i : in_i + j],
                complete[in_j + i + 1 : in_j + j + 1],
                of_complete[in_i + i : in_i + j],
                of_complete[in_j + i + 1 : in_j + j + 1],
            )
    return log_partition


@compiled(_double(_doubles, _int, _doubles, _doubles, _doubles))
def _matrix_tree(scores, num_words, weights, slopes, marginals):  # type: ignore[no-untyped-def]
    """Write the marginals over all trees; return the logarithm of the partition function.

    By the matrix-tree theorem it is a determinant (Koo et al. 2007, their single-root variant).
    Words are eliminated from the last one on: whoever had word k as its head gets the heads of k
    instead. A heads of k among the words left add up to the pivot, which is taken from their sum
    and not from the diagonal (Grassmann, Taksar & Heyman 1985). ROOT is never eliminated nor part
    of a sum, so that one word alone, the last that is left, has it as its head.

    So nothing is subtracted, and where cycles are far likelier than trees no digits are lost, as
    they are in a determinant by LU. `slopes` are the derivatives of the logarithm by the weights;
    they come from going back through the elimination.
    """
    width = num_words + 1
    log_partition = 0.0
    for word in range(num_words):
        row, score = weights[word * width : (word + 1) * width], scores[word * width :]
        highest = -np.inf
        for head in range(width):
            if head != word + 1:
                highest = max(highest, score[head])
        if highest == -np.inf:
            marginals[: num_words * width] = 0.0
            return highest
        # every tree has one arc of the row, so that its largest weight can be taken out as a factor
        log_partition += highest
        for head in range(width):
            row[head] = np.exp(max(score[head] - highest, -WIDEST))
        row[word + 1] = 0.0
    # kept: in the end a marginal is a weight times its slope, and `weights` changes
    marginals[: num_words * width] = weights[: num_words * width]
    pivots = np.zeros(num_words, np.float64)
    for last in range(num_words - 1, 0, -1):
        heads = weights[last * width : last * width + last + 1]  # ROOT and the words before
        pivots[last] = heads[1:].sum()
        log_partition += np.log(pivots[last])
        for word in range(last):
            row = weights[word * width : (word + 1) * width]
            # never by 0: no weight begins below exp(-WIDEST), and none shrinks
            through = row[last + 1] / pivots[last]
            for head in range(last + 1):
                row[head] += through * heads[head]
            row[word + 1] = 0.0
    log_partition += np.log(weights[0])
    slopes[: num_words * width] = 0.0
    slopes[0] = 1.0 / weights[0]
    # the last word eliminated comes first; a word's row still is as it was at its elimination
    for last in range(1, num_words):
        heads = weights[last * width : last * width + last + 1]
        of_heads = slopes[last * width : last * width + last + 1]
        through_all = 0.0
        for word in range(last):
            weight = weights[word * width + last + 1]
            of_row = slopes[word * width : (word + 1) * width]
            slope = 0.0
            for head in range(last + 1):
                of_heads[head] += of_row[head] * weight / pivots[last]
                slope += of_row[head] * heads[head] / pivots[last]
            of_row[last + 1] = slope
            through_all += slope * weight
        # by the pivot, the sum of these heads: its logarithm was added, and it divides in `through`
        of_heads[1:] += (1.0 - through_all) / pivots[last]
    for place in range(num_words * width):
        marginals[place] = max(marginals[place] * slopes[place], 0.0)  # not -1e-17
    return log_partition


@compiled(
    types.void(
        _doubles,
        types.int32[::1],
        types.boolean,
        _charts,
        _charts,
        _doubles,
        _doubles,
    )
)
def _marginals(  # type: ignore[no-untyped-def]
    scores, lengths, projective, inside, outside, log_partitions, marginals
):
    begin = np.int64(0)
    for place in range(lengths.shape[0]):
        num_words = np.int64(lengths[place])
        end = begin + num_words * (num_words + 1)
        given, into = scores[begin:end], marginals[begin:end]
        begin = end
        if _has_bad_score(given, num_words):
            log_partitions[place] = np.nan
            into[:] = np.nan
        elif projective and num_words <= LONGEST_PROJECTIVE:
            log_partitions[place] = _inside_outside(given, num_words, inside, outside, into)
        else:
            log_partitions[place] = _matrix_tree(
                given, num_words, inside.complete, outside.complete, into
            )


def marginals(scores: Reals, lengths: Ints, projective: bool) -> tuple[Doubles, Doubles]:
    """Return the partition functions of sentences, and how likely each arc is.

    Minus infinity forbids an arc; where no tree is left, all marginals are 0. Over all trees, not
    over projective ones, it counts as `WIDEST` nats less than the best arc of the word, and so does
    any score below that. A sentence with another score that is not finite gets NaN everywhere.

    Takes O(n^3) for a sentence of n words, and 64 n^2 bytes for the longest one.

    Args:
        scores: flat; see `trees`.
        lengths: of the sentences, in words, int32 [B]; 1 or more.
        projective: over projective trees, or over all trees with one arc from ROOT; over all in
            any case, if there are more than `LONGEST_PROJECTIVE` words.

    Returns:
        The natural logarithms of the partition functions, [B], and the probabilities of the arcs,
        as the scores lie; those of a word add up to 1. Both are float64.

    Raises:
        ValueError: there are not as many scores as arcs.
    """
    check_sizes(scores, lengths)
    log_partitions, probabilities = np.empty(len(lengths)), np.empty(len(scores))
    longest = int(lengths.max(initial=0))
    # wider than charts by one column: `_matrix_tree` has tables of arcs in the same memory
    inside, outside = (
        Charts(*(np.empty(longest * (longest + 1)) for _ in range(3))) for _ in range(2)
    )
    given = np.ascontiguousarray(scores, np.float64)
    _marginals(given, lengths, projective, inside, outside, log_partitions, probabilities)
    return log_partitions, probabilities
