"""Learning transitions from configurations, one after another: perceptron, logistic regression.

In a configuration some of the legal transitions are free: they cost nothing (see
`transition.oracles`). With x the features that are there and w(t) the weights of transition t:

    perceptron  where the best transition p is not free, w(f) += x and w(p) -= x, for the free one f
                of the highest score (Collins 2002; Goldberg & Nivre 2012, algorithm 3)
    logistic    w(t) -= rate * g(t) x / sqrt(sum of the g(t)^2 x so far), with the gradient
                g(t) = P(t | legal) - P(t | free) of the loss -log P(free) (AdaGrad: Duchi et al.
                2011); where it is below `LEAST_GRADIENT`, nothing is learnt

Most features are there in one configuration of the treebank, and help no other: those that the
first epoch sees less often than `least` are left out, so that they take no place from others.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled
from seqtool.parsing.encoding.averages import add, averaged_type
from seqtool.parsing.encoding.sparse import sum_rows

PERCEPTRON, LOGISTIC = range(2)
LEARNERS = {"perceptron": PERCEPTRON, "logistic": LOGISTIC}
# a gradient that changes nothing soon: most labels are never likely, and their rows stay zero
LEAST_GRADIENT = 1e-3

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[::1]
_int = types.int64


@compiled(_int(_floats, types.uint8, _ints))
def _best_legal(scores, mask, segments):  # type: ignore[no-untyped-def]
    """Return the legal transition of the highest score, the first of equal ones."""
    best = -1
    for action in range(segments.shape[0] - 1):
        if mask >> action & 1:
            for transition in range(segments[action], segments[action + 1]):
                if best < 0 or scores[transition] > scores[best]:
                    best = transition
    return best


@compiled(_int(_floats, _ints))
def _best_free(scores, free):  # type: ignore[no-untyped-def]
    """Return the free transition of the highest score, the first of equal ones; -1 without any."""
    best = -1
    for transition in free:
        if transition >= 0 and (best < 0 or scores[transition] > scores[best]):
            best = transition
    return best


@compiled(types.void(_table, _int, types.uint8[::1], _int))
def _count(rows, place, counts, least):  # type: ignore[no-untyped-def]
    """Count the features of a configuration, each up to `least`."""
    for feature in range(rows.shape[1]):
        # no further, as a byte would wrap around
        if counts[rows[place, feature]] < least:
            counts[rows[place, feature]] += 1


@compiled(types.void(_table, _int, _int, _int, averaged_type, types.uint8[::1], _int))
def _correct(rows, place, wanted, wrong, weights, counts, least):  # type: ignore[no-untyped-def]
    """Change the weights of all features of a configuration after a mistake."""
    for feature in range(rows.shape[1]):
        row = rows[place, feature]
        if counts[row] >= least:
            add(weights, row + wanted, np.float32(1.0))
            add(weights, row + wrong, np.float32(-1.0))


@compiled(types.float64(_floats, types.uint8, _ints, _ints, _int, _floats))
def _gradients(scores, mask, segments, free, best, gradients):  # type: ignore[no-untyped-def]
    """Fill in the gradient of each score; return the loss in nats. `best` is the best legal one."""
    gradients[:] = 0.0
    total = 0.0
    for action in range(segments.shape[0] - 1):
        if mask >> action & 1:
            for transition in range(segments[action], segments[action + 1]):
                gradients[transition] = np.exp(scores[transition] - scores[best])
                total += gradients[transition]
    free_total = 0.0
    for transition in free:
        if transition >= 0:
            free_total += gradients[transition]
    # of scores far below the best one, the exponential may be 0
    free_total = max(free_total, 1e-30)
    for transition in free:
        if transition >= 0:
            # P(t | legal) - P(t | free), when it is divided by the total below
            gradients[transition] -= gradients[transition] * total / free_total
    for transition in range(gradients.shape[0]):
        gradients[transition] /= total
    return np.log(total) - np.log(free_total)


@compiled(
    types.void(
        _table,
        _int,
        _floats,
        types.float32,
        averaged_type,
        _floats,
        types.uint8[::1],
        _int,
    )
)
def _descend(  # type: ignore[no-untyped-def]
    rows, place, gradients, rate, weights, squares, counts, least
):
    """Take a step of AdaGrad; `squares` are the sums of the squared gradients of all weights."""
    for feature in range(rows.shape[1]):
        row = rows[place, feature]
        if counts[row] < least:
            continue
        for transition in range(gradients.shape[0]):
            gradient = gradients[transition]
            if abs(gradient) >= LEAST_GRADIENT:
                squares[row + transition] += gradient * gradient
                # the sum is not 0: it holds the square of this gradient
                change = -rate * gradient / np.sqrt(squares[row + transition])
                add(weights, row + transition, change)


@compiled(
    types.Tuple((types.float64, _int))(
        _int,
        _table,
        types.uint8[::1],
        _table,
        _ints,
        types.float32,
        averaged_type,
        _floats,
        types.uint8[::1],
        _int,
        types.boolean,
        _ints,
        _ints,
    )
)
def learn(  # type: ignore[no-untyped-def]
    learner, rows, legal, free, segments, rate, weights, squares, counts, least, counting, own, best
):
    """Go through configurations, and learn each before the next is looked at.

    Args:
        learner: a number of `LEARNERS`.
        rows: of the features of each, int32 [N, F].
        legal: its legal actions, as bits.
        free: of each action the transition that costs nothing, or -1, int32 [N, 5]. Where there is
            none, nothing is learnt, and it counts for nothing.
        segments: of the labels.
        rate: of learning; below 0, nothing is changed.
        weights: that are learnt.
        squares: of logistic regression, see `_descend`.
        counts: uint8, at the row of each feature how often it was seen, up to `least`.
        least: how often a feature has to be seen before it is learnt.
        counting: whether features are counted.
        own: int32 [N], to be filled: the transition of the highest score.
        best: int32 [N], to be filled: the same among the free ones, -1 without any.

    Returns:
        The sum of the losses, and of how many. The perceptron's loss is 1 for a mistake.
    """
    num = segments[segments.shape[0] - 1]
    scores, gradients = np.empty(num, np.float32), np.empty(num, np.float32)
    loss, num_items = 0.0, 0
    for place in range(rows.shape[0]):
        sum_rows(rows, place, weights.values, scores)
        highest = _best_legal(scores, legal[place], segments)
        wanted = _best_free(scores, free[place])
        own[place], best[place] = highest, wanted
        if wanted < 0:
            continue
        num_items += 1
        if counting and rate >= 0.0:
            _count(rows, place, counts, least)
        if learner == LOGISTIC:
            loss += _gradients(scores, legal[place], segments, free[place], highest, gradients)
            if rate >= 0.0:
                _descend(rows, place, gradients, rate, weights, squares, counts, least)
        # also where one that is not free comes first of equal scores
        elif highest != wanted:
            loss += 1.0
            if rate >= 0.0:
                _correct(rows, place, wanted, highest, weights, counts, least)
        if rate >= 0.0:
            weights.num[0] += 1
    return loss, num_items
