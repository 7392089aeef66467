"""Probabilities of arcs that mean what they say: of those with 0.9, nine in ten are right.

What a decoder thinks of an arc (`decoder.ArcTable`) is mostly too sure. On the validation part, a
logistic regression learns from it how often such arcs are right:

    P(head is right) = 1 / (1 + exp(-(slope * log(p / (1 - p)) + bias)))

It is Platt's (1999) with the log-odds of p for the score, and has temperature scaling (Guo et al.
2017) in it, where the bias is 0. Beams have a fit of their own, as their probabilities are others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Floats, Ints
from seqtool.parsing.parser.decoder import ArcTable

BEAMS = (1, 4)  # for which a fit is made
LEAST = 1e-4  # probabilities are taken for no nearer to 0 or 1: log-odds from -9.2 to 9.2
UNCHANGED = np.asarray((1.0, 0.0))  # slope and bias that leave probabilities as they are
_MAX_STEPS, _TOLERANCE = 100, 1e-12


class Calibration(NamedTuple):
    """A logistic regression on the log-odds of a probability; see above."""

    slope: float
    bias: float

    def __call__(self, probabilities: Floats | Doubles) -> Doubles:
        """Return the probabilities that arcs are right."""
        return _logistic(self.slope * log_odds(probabilities) + self.bias)


def log_odds(probabilities: Floats | Doubles) -> Doubles:
    """Return log(p / (1 - p)), bounded by `LEAST`."""
    bounded = np.clip(probabilities.astype(np.float64), LEAST, 1 - LEAST)
    odds: Doubles = np.log(bounded) - np.log1p(-bounded)
    return odds


def _logistic(values: Doubles) -> Doubles:
    result: Doubles = 0.5 + 0.5 * np.tanh(0.5 * values)
    return result


def fit(probabilities: Floats | Doubles, are_right: Bools) -> Calibration:
    """Return the most probable calibration, by Newton's method.

    Slope and bias have normal distributions around 1 and 0, of variance 1: few arcs change little,
    and the fit is finite where all are right.

    Args:
        probabilities: of arcs, [N].
        are_right: whether each is right, [N].
    """
    inputs = np.stack((log_odds(probabilities), np.ones(len(probabilities))), axis=1)
    targets = are_right.astype(np.float64)
    weights = UNCHANGED.copy()
    loss = _loss(inputs, targets, weights)
    for _ in range(_MAX_STEPS):
        predicted = _logistic(inputs @ weights)
        gradient = inputs.T @ (predicted - targets) + weights - UNCHANGED
        curvature = inputs.T @ (inputs * (predicted * (1 - predicted))[:, None]) + np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        # the whole step may lead too far where all predictions are near 0 or 1
        while (following := _loss(inputs, targets, weights - step)) > loss and step.any():
            step /= 2
        weights = weights - step
        if loss - following < _TOLERANCE * (1 + loss):
            break
        loss = following
    slope, bias = weights.tolist()
    if slope < 0:  # more probable arcs are not called less probable: all have the same then
        rate = np.asarray([(targets.sum() + 1) / (len(targets) + 2)])
        slope, bias = 0.0, float(log_odds(rate)[0])
    return Calibration(slope, bias)


def _loss(inputs: Doubles, targets: Doubles, weights: Doubles) -> float:
    """Return the cross-entropy of targets and the penalty of weights, in nats."""
    values = inputs @ weights
    penalty = 0.5 * np.sum((weights - UNCHANGED) ** 2)
    return float(np.sum(np.logaddexp(0.0, values) - targets * values) + penalty)


def judged(
    tables: Iterable[ArcTable], found: Iterable[Sequence[int]], gold: Iterable[Sequence[int]]
) -> Iterator[tuple[Floats, Bools]]:
    """Give what is thought of the arcs of each tree, and which of them are those of the gold one.

    Args:
        tables: of sentences.
        found: the heads of their words.
        gold: those of the gold trees.
    """
    for table, heads, wanted in zip(tables, found, gold, strict=True):
        yield of_heads(table, heads), np.asarray(heads) == np.asarray(wanted)


def of_heads(table: ArcTable, heads: Sequence[int] | Ints) -> Floats:
    """Return what is thought of the arcs of a tree, [n]."""
    chosen: Floats = table.probabilities[np.arange(len(heads)), np.asarray(heads, np.int64)]
    return chosen


def nearest(calibrations: Mapping[int, Calibration], beam: int) -> Calibration | None:
    """Return the calibration of the beam that is most like one; None without any."""
    if not calibrations:
        return None
    return calibrations[min(calibrations, key=lambda fitted: abs(math.log(fitted / beam)))]


def to_json(calibrations: Mapping[int, Calibration]) -> dict[str, list[float]]:
    """Return calibrations as JSON holds them, by beam."""
    return {str(beam): list(calibration) for beam, calibration in calibrations.items()}


def from_json(stored: Any) -> dict[int, Calibration]:
    """Return what `to_json` stored; nothing of None, as older models have none.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = {int(beam): Calibration(*map(float, both)) for beam, both in (stored or {}).items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"calibrations are {stored}") from error
    if any(beam < 1 or not np.isfinite(both).all() for beam, both in found.items()):
        raise ValueError(f"calibrations are {stored}")
    return found
