"""What is fitted to the validation part: temperatures of beams, and calibrated arc probabilities.

A classifier that learnt single transitions is too sure of them, so its scores are divided by a
temperature before they are normalised (Guo et al. 2017). Some temperatures are tried, and a curve
through the words that they bring is followed to its highest point.

The probabilities of arcs (`decoder.ArcTable`) are calibrated by isotonic regression, of all
functions that never fall the nearest one (Zadrozny & Elkan 2002), by pooling neighbours that are
out of order (Ayer et al. 1955): of arcs with 0.9, nine in ten are then right. Arcs are sorted by
probability and divided into groups of as many; between the means of groups the function is a
straight line. Each beam has a calibration of its own. The expected calibration error of a `fast`
parser on French-Sequoia, greedy and with a beam of 4, falls from 0.064 and 0.072 to 0.007 and
0.004; by a logistic regression (Platt 1999), to 0.012 and 0.013.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Floats
from seqtool.parsing.parser.config import ParserConfig

# of beams where none is fitted; EWT dev, `fast`, beam of 4: LAS 89.0 with 1, 89.2 with 1.25, 89.4
# to 89.6 with 1.4 to 2, 89.1 with 2.5 (`accurate`: 90.3, best about 1.4)
TEMPERATURE = 1.5
TEMPERATURES = (1.0, 1.5, 2.0, 2.5, 3.0)  # that are tried
CURVE_POINTS = 65  # at which the curve is looked at, between the lowest and the highest tried
# hypotheses; a wider beam has more to lose by a wrong temperature, so that it shows more
TEMPERATURE_BEAM = 8
PRIOR_WORDS = 150.0  # that have to be gained for a temperature e times as high, or as low

CALIBRATED_BEAMS = (1, 4)
NUM_GROUPS = 20
SMALLEST_GROUP = 40  # arcs; of fewer, the share that is right says little
CALIBRATIONS = "calibrations"  # their name where they are stored


def temperature_of(config: ParserConfig) -> float:
    """Return the temperature of a parser that learns single transitions: its own, or the usual."""
    return config.learning.beam_temperature or TEMPERATURE


def needs_temperature(config: ParserConfig) -> bool:
    """Return whether the temperature of a parser is to be fitted.

    Global training makes one needless, and a linear classifier's scores are already multiplied by
    what makes gold transitions most likely; with that, 1 is best for its beams too.
    """
    family = config.model.decoder, config.model.classifier, config.learning.loss
    return family == ("transition", "neural", "local") and not config.learning.beam_temperature


def fit_temperature(num_right: Sequence[int]) -> float:
    """Return the temperature at which the most words are expected to be right.

    What is gained over `TEMPERATURE` is taken for a cubic function of the logarithm of the
    temperature, the nearest one by least squares; and `PRIOR_WORDS` pull towards `TEMPERATURE`,
    which a small validation part does not overcome.

    Args:
        num_right: words with the right head and label, with each of `TEMPERATURES`.
    """
    logs = np.log(np.asarray(TEMPERATURES) / TEMPERATURE)
    gains = np.asarray(num_right, np.float64) - num_right[TEMPERATURES.index(TEMPERATURE)]
    curve = np.linalg.lstsq(_powers(logs), gains, rcond=None)[0]
    ends = math.log(TEMPERATURES[0]), math.log(TEMPERATURES[-1])
    points = np.linspace(*ends, CURVE_POINTS) - math.log(TEMPERATURE)
    points = np.append(0.0, points)  # where all are alike, the first one stands
    expected = _powers(points) @ curve - PRIOR_WORDS * points**2
    return round(TEMPERATURE * math.exp(points[int(np.argmax(expected))]), 3)


def _powers(logs: Doubles) -> Doubles:
    """Return the first three powers of numbers, [N, 3]."""
    return np.stack((logs, logs**2, logs**3), axis=1)


class Calibration(NamedTuple):
    """A function of the probability of an arc that never falls, by its knots.

    Attributes:
        inputs: probabilities, rising.
        outputs: how often arcs of these probabilities are right.
    """

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]

    def __call__(self, probabilities: Floats | Doubles) -> Doubles:
        """Return the probabilities that arcs are right."""
        result: Doubles = np.interp(probabilities, self.inputs, self.outputs)
        return result


def fit_calibration(probabilities: Floats | Doubles, are_right: Bools) -> Calibration:
    """Return the calibration of arcs.

    Args:
        probabilities: of arcs, [N], one or more.
        are_right: whether each is right, [N]. An arc that is as right as all of them together is
            added to each group, so that none is called certain.
    """
    inputs = np.clip(probabilities.astype(np.float64), 0.0, 1.0)  # rounding may lead beyond 1
    order = np.argsort(inputs, kind="stable")
    num_groups = max(1, min(NUM_GROUPS, len(order) // SMALLEST_GROUP))
    prior = (int(are_right.sum()) + 1) / (len(order) + 2)
    pools: list[tuple[float, float, int]] = []  # mean input, arcs that are right, arcs
    for group in np.array_split(order, num_groups):
        mean, num_right = float(inputs[group].mean()), int(are_right[group].sum()) + prior
        num = len(group) + 1
        while pools:
            last_mean, last_right, last_num = pools[-1]
            if last_mean < mean and last_right / last_num < num_right / num:
                break
            mean = (last_mean * last_num + mean * num) / (last_num + num)
            num_right, num = last_right + num_right, last_num + num
            pools.pop()
        pools.append((mean, num_right, num))
    return Calibration(
        tuple(mean for mean, _, _ in pools), tuple(right / num for _, right, num in pools)
    )


def mean_calibrations(
    calibrations: Sequence[Mapping[int, Calibration]],
) -> dict[int, Calibration]:
    """Return the means of the functions of several parsers, of the beams that all have one for."""
    means = {}
    for beam in sorted(set(calibrations[0]).intersection(*calibrations[1:])):
        of_beam = [of_parser[beam] for of_parser in calibrations]
        inputs = np.unique(np.concatenate([one.inputs for one in of_beam]))
        outputs = np.mean([one(inputs) for one in of_beam], axis=0)
        means[beam] = Calibration(tuple(inputs.tolist()), tuple(outputs.tolist()))
    return means


def calibrated(
    probabilities: Floats | Doubles, calibrations: Mapping[int, Calibration], beam: int
) -> Floats | Doubles:
    """Return probabilities by the calibration of the nearest beam; as they are, without any."""
    if not calibrations:
        return probabilities
    nearest = min(calibrations, key=lambda fitted: abs(math.log(fitted / beam)))
    return calibrations[nearest](probabilities)


def calibrations_to_json(calibrations: Mapping[int, Calibration]) -> dict[str, list[list[float]]]:
    """Return calibrations as JSON holds them, by beam: inputs and outputs."""
    return {str(beam): list(map(list, one)) for beam, one in calibrations.items()}


def calibrations_from_json(stored: Any) -> dict[int, Calibration]:
    """Return what `calibrations_to_json` stored; nothing of None.

    Raises:
        ValueError: it is something else.
    """
    try:
        return {
            int(beam): Calibration(*(tuple(map(float, column)) for column in columns))
            for beam, columns in (stored or {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"calibrations are {stored}") from error
