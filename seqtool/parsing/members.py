"""Several models that work as one, by the mean of their scores."""

from __future__ import annotations

from collections.abc import Sequence

from seqtool.core.arrays import Floats


def mean(scores: Sequence[Floats]) -> Floats:
    """The mean of arrays; the first one is changed."""
    total, *others = scores
    for more in others:
        total += more
    if others:
        total /= len(scores)
    return total
