"""The paired bootstrap: how a difference that was measured on sentences stands against chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqtool.core.arrays import Doubles

NUM_SAMPLES = 10_000
SEED = 1
_BLOCK = 1 << 22  # draws held at a time


@dataclass(frozen=True)
class Significance:
    """How a difference of two scores stands against chance.

    Attributes:
        difference: score of the second less that of the first.
        p_value: how probable a difference as large, in either direction, is of two that are equally
            good.
        low, high: the 95% interval of the difference over the samples.
        samples: texts drawn.
    """

    difference: float
    p_value: float
    low: float
    high: float
    samples: int


def bootstrap(
    counts_SM: Doubles,
    differences_of: Callable[[Doubles], Doubles],
    *,
    samples: int = NUM_SAMPLES,
    seed: int = SEED,
) -> list[Significance]:
    """Judge differences of two systems on the same S sentences.

    Texts of as many sentences are drawn from the given one with replacement, and both systems are
    scored on each (Koehn 2004). The p-value is the share of texts whose difference is as far from
    the observed one as that is from 0 (Berg-Kirkpatrick et al. 2012, section 3, in both
    directions), the observed text counted as one of them, so that it is never 0.

    Args:
        counts_SM: of each sentence, M figures of both systems that are added up over a text.
        differences_of: sums over texts, [N, M], to D differences of scores of each, [N, D].
        samples: texts to draw; all differences see the same ones.
        seed: of the draws.
    """
    num_sentences = len(counts_SM)
    observed = differences_of(counts_SM.sum(axis=0, keepdims=True))[0]
    generator = np.random.default_rng(seed)
    per_block = max(1, _BLOCK // num_sentences)
    drawn = []
    for done in range(0, samples, per_block):
        num = min(per_block, samples - done)
        picks = generator.integers(num_sentences, size=(num, num_sentences))
        picks += np.arange(num)[:, None] * num_sentences
        times = np.bincount(picks.ravel(), minlength=num * num_sentences)
        drawn.append(
            differences_of(times.reshape(num, num_sentences).astype(np.float64) @ counts_SM)
        )
    differences = np.concatenate(drawn)
    # of differences that are equal on paper, rounding must not make the one the larger
    extreme = np.sum(np.abs(differences - observed) >= np.abs(observed) - 1e-9, axis=0)
    low, high = np.quantile(differences, (0.025, 0.975), axis=0)
    return [
        Significance(
            difference=float(observed[i]),
            p_value=(1 + int(extreme[i])) / (1 + samples),
            low=float(low[i]),
            high=float(high[i]),
            samples=samples,
        )
        for i in range(len(observed))
    ]
