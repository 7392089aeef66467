"""Whether one annotation is better than another, or only luckier with its sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqtool.core.arrays import Doubles, Longs

NUM_SAMPLES = 10_000
SEED = 1

_BLOCK = 1 << 22  # draws held at a time


@dataclass(frozen=True)
class Significance:
    """How a difference of two F1 scores stands against chance.

    Attributes:
        difference: F1 of the second less that of the first, in percentage points.
        p_value: how probable a difference as large, in either direction, is of two annotations
            that are equally good.
        low, high: the 95% interval of the difference over the samples.
        samples: treebanks drawn.
    """

    difference: float
    p_value: float
    low: float
    high: float
    samples: int


def paired_bootstrap(
    first: Mapping[str, Longs],
    second: Mapping[str, Longs],
    *,
    samples: int = NUM_SAMPLES,
    seed: int = SEED,
) -> dict[str, Significance]:
    """Compare two annotations of the same gold sentences by their F1 in each metric.

    Treebanks of as many sentences are drawn from the gold one with replacement, and both are scored
    on each (Koehn 2004). The p-value is the share of treebanks whose difference is as far from the
    observed one as that is from 0 (Berg-Kirkpatrick et al. 2012, section 3, in both directions),
    the observed treebank counted as one of them, so that it is never 0.

    Args:
        first: metric -> (S, 3) words right, in gold and predicted, of each sentence.
        second: the same of the other annotation.
        samples: treebanks to draw; all metrics see the same ones.
        seed: of the draws.
    """
    # float64 holds the sums exactly, so that they do not depend on the order of adding
    counts_SM = np.concatenate(
        [counts[metric] for metric in first for counts in (first, second)], axis=1
    ).astype(np.float64)
    num_sentences = len(counts_SM)
    observed = _differences(counts_SM.sum(axis=0, keepdims=True))[0]
    generator = np.random.default_rng(seed)
    per_block = max(1, _BLOCK // num_sentences)
    drawn = []
    for done in range(0, samples, per_block):
        num = min(per_block, samples - done)
        picks = generator.integers(num_sentences, size=(num, num_sentences))
        picks += np.arange(num)[:, None] * num_sentences
        times = np.bincount(picks.ravel(), minlength=num * num_sentences)
        drawn.append(_differences(times.reshape(num, num_sentences).astype(np.float64) @ counts_SM))
    differences = np.concatenate(drawn)
    # of differences that are equal on paper, rounding must not make the one the larger
    extreme = np.sum(np.abs(differences - observed) >= np.abs(observed) - 1e-9, axis=0)
    low, high = np.quantile(differences, (0.025, 0.975), axis=0)
    return {
        metric: Significance(
            difference=float(observed[i]),
            p_value=(1 + int(extreme[i])) / (1 + samples),
            low=float(low[i]),
            high=float(high[i]),
            samples=samples,
        )
        for i, metric in enumerate(first)
    }


def _differences(sums: Doubles) -> Doubles:
    """Return F1 of the second less that of the first, in percent.

    Args:
        sums: (N, 6 metrics) sums of counts: three of the first and three of the second each.
    """
    counts = sums.reshape(len(sums), -1, 2, 3)
    f1 = 200 * counts[..., 0] / np.maximum(counts[..., 1] + counts[..., 2], 1)
    return np.asarray(f1[..., 1] - f1[..., 0], np.float64)
