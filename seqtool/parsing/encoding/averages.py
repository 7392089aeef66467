"""Weights that are learnt one example after another, and their average over all examples.

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
from seqtool.core.jit import compiled


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
