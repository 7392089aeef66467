"""The temperature of a beam: what scores of transitions are divided by before they are normalised.

A classifier that learnt single transitions is too sure of them, and a sum of its log-probabilities
then goes by the first mistake. How far too sure depends on the treebank and on the training, so the
temperature is fitted on the validation part: some are tried, and a curve through what they bring
is followed to its highest point, see `fit`.

Where the validation part is small, noise decides which of those tried is the best. LAS gained over
a temperature of 1.5 on the sentences of the dev part that are not fitted on, the mean of beams of 4
and 8, and of 200 draws of the sentences (2026-11-22):

                                        fitted on   the best tried   the curve   with the prior
    Korean-Kaist, `fast`                      100            -0.45       -0.38            -0.04
    French-Sequoia, `fast`                    200            -0.12       -0.09            -0.01
    English-EWT, `fast`                       100             0.00        0.00             0.03
                                            1,000             0.10        0.14             0.09
    English-EWT, `accurate`                   100            -0.01       -0.02             0.01
                                            1,000             0.10        0.07             0.05
    English-EWT, distilled (best at 1.5)      100            -0.15       -0.15            -0.02
                                            1,000            -0.04       -0.03            -0.02
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seqtool.core.arrays import Doubles
from seqtool.parsing.parser.config import ParserConfig

# where nothing is fitted; EWT dev, `fast`, beam of 4: LAS 89.0 with 1, 89.2 with 1.25, 89.4 to 89.6
# with 1.4 to 2, 89.1 with 2.5 (`accurate`: 90.3, best about 1.4)
TEMPERATURE = 1.5
TRIED = (1.0, 1.5, 2.0, 2.5, 3.0)
STEPS = 65  # points at which the curve is looked at, between the lowest and the highest tried
# hypotheses; a wider beam has more to lose by a wrong temperature, so that it tells more
BEAM = 8
PRIOR = 150.0  # words that have to be gained for a temperature e times as high, or as low


def of(config: ParserConfig) -> float:
    """Return the temperature of a parser that learns single transitions: its own, or the usual."""
    return config.learning.beam_temperature or TEMPERATURE


def fits(config: ParserConfig) -> bool:
    """Return whether the temperature of a parser is to be fitted.

    Global training makes one needless, and a linear classifier's scores are already multiplied by
    what makes gold transitions most likely; with that, 1 is best for its beams too.
    """
    family = config.model.decoder, config.model.classifier, config.learning.loss
    return family == ("transition", "neural", "local") and not config.learning.beam_temperature


def fit(num_right: Sequence[int]) -> float:
    """Return the temperature at which the most words are expected to be right.

    What is gained over `TEMPERATURE` is taken for a cubic function of the logarithm of the
    temperature, the nearest one by least squares; and `PRIOR` pulls towards `TEMPERATURE`, which a
    small validation part does not overcome.

    Args:
        num_right: words with the right head and label, with each of `TRIED`.
    """
    logs = np.log(np.asarray(TRIED) / TEMPERATURE)
    gains = np.asarray(num_right, np.float64) - num_right[TRIED.index(TEMPERATURE)]
    curve = np.linalg.lstsq(_powers(logs), gains, rcond=None)[0]
    points = np.linspace(math.log(TRIED[0]), math.log(TRIED[-1]), STEPS) - math.log(TEMPERATURE)
    points = np.append(0.0, points)  # where all are alike, the first one stands
    expected = _powers(points) @ curve - PRIOR * points**2
    return round(TEMPERATURE * math.exp(points[int(np.argmax(expected))]), 3)


def _powers(logs: Doubles) -> Doubles:
    """Return the first three powers of numbers, [N, 3]."""
    return np.stack((logs, logs**2, logs**3), axis=1)
