"""Weights of sparse features: their sums, and their averages over all examples learnt.

Where a feature has a weight for each of several outcomes (transitions, tags, labels), these are a
row that begins at its place:

    weights  float32 [2^bits + T - 1]
             ...|w(f, 0) w(f, 1) ... w(f, T-1)|...      rows of other features overlap with it

Most of a row is zero: a feature has weights with the few outcomes that it was ever right or wrong
about. So rows share places with little harm, as single weights do.

The average is kept lazily (Daumé 2006, section 2.1; the perceptron's is that of Collins 2002): an
update changes a few weights, and notes beside each the update times the number of examples before
it. With w after n examples and the sum u of what was noted, the average over the weights after each
of the n examples is w - u / n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Doubles, Floats, Longs
from seqtool.core.instructions import fetch, real
from seqtool.core.jit import compiled

SEEN = "sparse.seen"  # the array of a model that is bytes: bits of the places that were learnt
TOGETHER = 4  # rows that are added at once

_int = types.int64
_table = types.int32[:, ::1]
_weights = (types.float32[::1], types.uint16[::1])  # as they are learnt, and as they are read


class Averaged(NamedTuple):
    """Weights, as compiled code reads and changes them.

    Attributes:
        values: float32 [N], the weights as they are.
        noted: float64 [N], of each weight the sum of its updates times `num` at that time.
        num: int64 [1], the examples so far, those without an update too.
    """

    values: Floats
    noted: Doubles
    num: Longs

    def average(self) -> Floats:
        """Return the average of the weights over all examples so far, float32 [N]."""
        return (self.values - self.noted / max(1, int(self.num[0]))).astype(np.float32)


averaged_type = types.NamedTuple(
    (types.float32[::1], types.float64[::1], types.int64[::1]), Averaged
)


@compiled(types.void(averaged_type, types.int64, types.float32))
def add(weights, place, change):  # type: ignore[no-untyped-def]
    """Change one weight; `num` counts an example only after all its changes."""
    weights.values[place] += change
    weights.noted[place] += np.float64(change) * weights.num[0]


@compiled([types.void(_table, _int, kind, types.float32[::1]) for kind in _weights])
def sum_rows(rows, place, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores of all outcomes in one place, by the rows of its features.

    Weights are float32, or halves as their bits: fewer lines of memory, and the sums are the same.
    """
    num_rows, num = rows.shape[1], scores.shape[0]
    scores[:] = 0.0
    at = 0
    while at + TOGETHER <= num_rows:
        # rows are far from each other, and memory takes longer than adding: the next are asked for
        for ahead in range(at + TOGETHER, min(at + 2 * TOGETHER, num_rows)):
            for line in range(0, num, 16):  # 16 floats are a line of the cache
                fetch(weights, rows[place, ahead] + line)
        a, b = rows[place, at], rows[place, at + 1]
        c, d = rows[place, at + 2], rows[place, at + 3]
        for outcome in range(num):
            scores[outcome] += (real(weights, a + outcome) + real(weights, b + outcome)) + (
                real(weights, c + outcome) + real(weights, d + outcome)
            )
        at += TOGETHER
    while at < num_rows:
        a = rows[place, at]
        for outcome in range(num):
            scores[outcome] += real(weights, a + outcome)
        at += 1


@compiled([types.void(_table, kind, types.float32[:, ::1]) for kind in _weights])
def score_rows(rows, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores of the outcomes in all places, [N, T]; see `sum_rows`."""
    for place in range(rows.shape[0]):
        sum_rows(rows, place, weights, scores[place])
