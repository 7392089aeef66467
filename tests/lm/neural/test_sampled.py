"""Losses on samples, against the equations of their papers, and what they converge to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import (
    BlackOut,
    NoiseContrastive,
    SampledSoftmax,
    Surroundings,
)

COUNTS = np.array([4, 3, 0, 2, 6, 1])
HIDDEN, VOCABULARY = 3, len(COUNTS)
KINDS: dict[str, type[SampledSoftmax]] = {
    "nce": NoiseContrastive,
    "blackout": BlackOut,
}
every_kind = pytest.mark.parametrize("name", KINDS)


def make(name: str, num_samples: int = 4, **settings: Any) -> SampledSoftmax:
    config = OutputConfig(layer=name, noise_samples=num_samples, **settings)  # type: ignore[arg-type]
    layer = KINDS[name](config, Surroundings(HIDDEN, VOCABULARY, counts=COUNTS)).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    return layer.train()


def batch(num: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    hidden_NH = torch.randn(num, HIDDEN, generator=generator, dtype=torch.float64)
    return hidden_NH.requires_grad_(), torch.tensor([4, 0, IGNORED, 2, 4])[:num]


def fix_samples(monkeypatch: pytest.MonkeyPatch, layer: SampledSoftmax, samples: list[int]) -> None:
    monkeypatch.setattr(layer, "draw", lambda: torch.tensor(samples))


def noise(power: float) -> list[float]:
    """q(w): counts to a power; what the text never has counts once."""
    powers = [max(1, int(count)) ** power for count in COUNTS]
    return [value / sum(powers) for value in powers]


@pytest.mark.parametrize("log_z", [None, 2.5])
@pytest.mark.parametrize("power", [None, 0.5, 0.0])
def test_nce_by_its_equations(
    monkeypatch: pytest.MonkeyPatch, power: float | None, log_z: float | None
) -> None:
    # Mnih & Teh (2012), eq. 8 and 10: P(D = 1 | w) = p(w) / (p(w) + k q(w)), p(w) = exp(s(w)) / Z
    layer = make("nce", noise_power=power, log_normaliser=log_z)
    samples = [4, 4, 0, 5]
    fix_samples(monkeypatch, layer, samples)
    hidden_NH, targets_N = batch()
    q = noise(1.0 if power is None else power)
    z = VOCABULARY if log_z is None else math.exp(log_z)
    total = 0.0
    for hidden_H, target in zip(hidden_NH.tolist(), targets_N.tolist(), strict=True):
        if target == IGNORED:
            continue
        scores = [
            sum(h * w for h, w in zip(hidden_H, row, strict=True)) + bias
            for row, bias in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        ]
        data = [
            math.exp(score) / z / (math.exp(score) / z + 4 * share)
            for score, share in zip(scores, q, strict=True)
        ]
        total -= math.log(data[target]) + sum(math.log(1 - data[sample]) for sample in samples)
    # the noise is kept in single precision
    assert layer.loss(hidden_NH, targets_N).item() == pytest.approx(total / 4, rel=1e-6)


@pytest.mark.parametrize("power", [None, 1.0])
def test_blackout_by_its_equations(monkeypatch: pytest.MonkeyPatch, power: float | None) -> None:
    # Ji et al. (2016), eq. 6 and 7: q_i = 1 / Q(w_i); p(w) = q_w exp(s_w) / (q_t exp(s_t) + sum
    # over samples of q_j exp(s_j)); J = log p(target) + sum over samples of log(1 - p(w_j))
    layer = make("blackout", noise_power=power)
    samples = [4, 4, 0, 5]
    fix_samples(monkeypatch, layer, samples)
    hidden_NH, targets_N = batch()
    q = noise(0.4 if power is None else power)
    total = 0.0
    for hidden_H, target in zip(hidden_NH.tolist(), targets_N.tolist(), strict=True):
        if target == IGNORED:
            continue
        exps = [
            math.exp(sum(h * w for h, w in zip(hidden_H, row, strict=True)) + bias) / share
            for row, bias, share in zip(layer.weight.tolist(), layer.bias.tolist(), q, strict=True)
        ]
        others = [sample for sample in samples if sample != target]
        whole = exps[target] + sum(exps[sample] for sample in others)
        total -= math.log(exps[target] / whole)
        total -= sum(math.log(1 - exps[sample] / whole) for sample in others)
    assert layer.loss(hidden_NH, targets_N).item() == pytest.approx(total / 4, rel=1e-6)


@every_kind
def test_noise_is_drawn_as_the_counts_say(name: str) -> None:
    torch.manual_seed(0)
    layer = make(name, num_samples=200_000, noise_power=0.7)
    drawn_V = torch.bincount(layer.draw(), minlength=VOCABULARY) / 200_000
    for share, expected in zip(drawn_V.tolist(), noise(0.7), strict=True):
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / 200_000)


@every_kind
@pytest.mark.parametrize("sparse", [False, True])
def test_only_rows_of_targets_and_samples_have_gradients(
    monkeypatch: pytest.MonkeyPatch, name: str, sparse: bool
) -> None:
    layer = make(name)
    layer.sparse = sparse
    fix_samples(monkeypatch, layer, [3, 3])
    layer.loss(*batch(2)).backward()  # type: ignore[no-untyped-call]  # targets 4 and 0
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse is sparse
    assert layer.weight.grad.to_dense().any(dim=1).nonzero()[:, 0].tolist() == [0, 3, 4]
