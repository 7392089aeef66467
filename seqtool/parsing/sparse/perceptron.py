"""Learning transitions from configurations, one after another, by the averaged perceptron.

In a configuration some of the legal transitions are free: they cost nothing (see
`transition.oracles`). With x the features that are there and w(t) the weights of transition t:

    where the best transition p is not free, w(f) += x and w(p) -= x, for the free one f of the
    highest score (Collins 2002; Goldberg & Nivre 2012, algorithm 3)

Most features are there in one configuration of the treebank, and help no other: those that the
first epoch sees less often than `least` are left out, so that they take no place from others.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled
from seqtool.parsing.sparse.engine import add, averaged_type, sum_rows

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[::1]
_bytes = types.uint8[::1]
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


@compiled(
    types.Tuple((types.float64, _int, _ints, _ints))(
        *(_table, _bytes, _table, _ints, types.boolean, averaged_type, _bytes, _int),
        types.boolean,
    )
)
def learn(  # type: ignore[no-untyped-def]
    rows, legal, free, segments, learns, weights, counts, least, counting
):
    """Go through configurations, and learn each before the next is looked at.

    Args:
        rows: of the features of each, int32 [N, F].
        legal: its legal actions, as bits.
        free: of each action the transition that costs nothing, or -1, int32 [N, 5]. Where there is
            none, nothing is learnt, and it counts for nothing.
        segments: of the labels.
        learns: whether weights are changed.
        weights: that are learnt.
        counts: uint8, at the row of each feature how often it was seen, up to `least`.
        least: how often a feature has to be seen before it is learnt.
        counting: whether features are counted.

    Returns:
        The sum of the losses, 1 for a mistake, and of how many; then int32 [N] the transition of
        the highest score, and the same among the free ones, -1 without any.
    """
    scores = np.empty(segments[segments.shape[0] - 1], np.float32)
    own, best = np.empty(rows.shape[0], np.int32), np.empty(rows.shape[0], np.int32)
    loss, num_items = 0.0, 0
    for place in range(rows.shape[0]):
        sum_rows(rows, place, weights.values, scores)
        highest = _best_legal(scores, legal[place], segments)
        wanted = _best_free(scores, free[place])
        own[place], best[place] = highest, wanted
        if wanted < 0:
            continue
        num_items += 1
        # also where one that is not free comes first of equal scores
        loss += highest != wanted
        if not learns:
            continue
        for row in rows[place]:
            # no further, as a byte would wrap around
            if counting and counts[row] < least:
                counts[row] += 1
        for row in rows[place]:
            if highest != wanted and counts[row] >= least:
                add(weights, row + wanted, np.float32(1.0))
                add(weights, row + highest, np.float32(-1.0))
        weights.num[0] += 1
    return loss, num_items, own, best
