"""What every output layer promises; the adaptive softmax by its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.errors import ConfigError
from seqtool.lm.neural import softmax as module
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import (
    OUTPUT_LAYERS,
    AdaptiveSoftmax,
    OutputLayer,
    Surroundings,
    count_symbols,
)

HIDDEN, VOCABULARY = 6, 40
# the order of the symbols is not that of their counts
COUNTS = np.random.default_rng(0).permutation(np.arange(VOCABULARY) ** 2)
LAYERS: dict[str, dict[str, Any]] = {
    "full": {"layer": "full"},
    "adaptive": {"layer": "adaptive", "cutoffs": (5, 11, 30)},
    "nce": {"layer": "nce", "noise_samples": 7},
    "blackout": {"layer": "blackout", "noise_samples": 7},
}
AROUND = Surroundings(HIDDEN, VOCABULARY)
every_layer = pytest.mark.parametrize("name", LAYERS)
tied_or_not = pytest.mark.parametrize("tied", [False, True])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)  # 16 rows


def make(
    name: str,
    *,
    tied: bool = False,
    dtype: torch.dtype = torch.float64,
    scale: float = 1.0,
    **settings: Any,
) -> OutputLayer:
    """Return a layer with drawn weights, in evaluation mode."""
    weight = nn.Parameter(torch.empty(VOCABULARY, HIDDEN)) if tied else None
    config = OutputConfig(**{**LAYERS[name], **settings})
    layer = OUTPUT_LAYERS[name](config, Surroundings(HIDDEN, VOCABULARY, weight, COUNTS))
    layer = layer.to(dtype).eval()
    generator = torch.Generator().manual_seed(3)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=scale, generator=generator)
    return layer


def batch(num: int = 37, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return hidden states and targets, two of which are ignored, and all symbols at least once."""
    generator = torch.Generator().manual_seed(num)
    hidden_NH = torch.randn(num, HIDDEN, generator=generator, dtype=dtype)
    targets_N = torch.randperm(VOCABULARY, generator=generator).repeat(-(-num // VOCABULARY))[:num]
    targets_N[num // 3] = targets_N[num // 2] = IGNORED
    return hidden_NH.requires_grad_(), targets_N


def nll(log_probs_NV: Tensor, targets_N: Tensor) -> Tensor:
    return functional.nll_loss(log_probs_NV, targets_N, ignore_index=IGNORED)


def gradients(loss: Tensor, layer: OutputLayer, hidden_NH: Tensor) -> list[Tensor]:
    grads = torch.autograd.grad(loss, [hidden_NH, *layer.parameters()], materialize_grads=True)
    return list(grads)


def assert_near(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


# What all promise.


@every_layer
@tied_or_not
def test_probabilities_sum_to_one(name: str, tied: bool) -> None:
    for dtype in (torch.float64, torch.float32):
        layer = make(name, tied=tied, dtype=dtype)
        log_probs_NV = layer.log_probs(batch(dtype=dtype)[0])
        assert log_probs_NV.dtype == torch.float64
        assert log_probs_NV.shape == (37, VOCABULARY)
        sums_N = log_probs_NV.exp().sum(dim=1)
        torch.testing.assert_close(sums_N, torch.ones_like(sums_N), rtol=0, atol=1e-13)


@every_layer
@tied_or_not
@pytest.mark.parametrize("num", [6, 16, 17, 37, 80])
def test_scores_loss_and_gradients_are_those_of_all_probabilities(
    name: str, tied: bool, num: int
) -> None:
    layer = make(name, tied=tied)
    hidden_NH, targets_N = batch(num)
    log_probs_NV = layer.log_probs(hidden_NH)
    chosen_N = log_probs_NV.gather(1, targets_N.clamp(min=0)[:, None])[:, 0]
    chosen_N = chosen_N.masked_fill(targets_N == IGNORED, 0.0)
    with torch.no_grad():
        scores_N = layer.target_log_probs(hidden_NH, targets_N)
    torch.testing.assert_close(scores_N, chosen_N, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        layer.target_log_probs(hidden_NH, targets_N), chosen_N, rtol=0, atol=1e-12
    )
    loss, expected = layer.loss(hidden_NH, targets_N), nll(log_probs_NV, targets_N)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    assert_near(
        gradients(loss * 0.5, layer, hidden_NH), gradients(expected * 0.5, layer, hidden_NH), 1e-12
    )


@every_layer
@tied_or_not
def test_single_precision_and_bfloat16_are_near(name: str, tied: bool) -> None:
    exact = make(name, tied=tied, scale=0.3)
    hidden_NH, targets_N = batch()
    expected = exact.loss(hidden_NH, targets_N)
    theirs = [grad.float() for grad in gradients(expected, exact, hidden_NH)]
    single = make(name, tied=tied, dtype=torch.float32)
    single.load_state_dict(exact.state_dict())
    hidden_single_NH = hidden_NH.detach().float().requires_grad_()
    # u is the unit of rounding, 2^-8 for bfloat16: errors are some u times the numbers, below 3
    for half, tolerance in ((False, 1e-6), (True, 3 * 2.0**-8)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            loss = single.loss(hidden_single_NH, targets_N)
        assert loss.dtype == torch.float32
        assert (loss.item() == pytest.approx(expected.item(), abs=1e-6)) is not half
        ours = gradients(loss, single, hidden_single_NH)
        assert all(grad.dtype == torch.float32 for grad in ours)
        assert_near([loss, *ours], [expected.float(), *theirs], tolerance)


@every_layer
@pytest.mark.parametrize("training", [False, True])
def test_without_targets_loss_and_gradients_are_zero(name: str, training: bool) -> None:
    layer = make(name).train(training)
    hidden_NH, targets_N = batch()
    loss = layer.loss(hidden_NH, torch.full_like(targets_N, IGNORED))
    assert loss.item() == 0.0
    assert not any(bool(grad.any()) for grad in gradients(loss, layer, hidden_NH))


@every_layer
def test_every_matrix_is_initialised_once(name: str) -> None:
    layer = make(name)
    weights = [p for key, p in layer.named_parameters() if "bias" not in key]
    assert sum(matrix.numel() for matrix in layer.matrices()) == sum(map(Tensor.numel, weights))
    layer.initialise_biases()
    for key, parameter in layer.named_parameters():
        assert bool(parameter.any()) is ("bias" not in key), key
    tied = make(name, tied=True)
    own = [p for key, p in tied.named_parameters() if "bias" not in key and key != "weight"]
    assert sum(matrix.numel() for matrix in tied.matrices()) == sum(map(Tensor.numel, own))


def test_counts_of_a_text() -> None:
    ids = np.array([3, 0, 3, 1, 3], dtype=np.uint16)
    assert count_symbols(ids, 5).tolist() == [1, 1, 0, 3, 0]


# The adaptive softmax.


def test_adaptive_softmax_is_that_of_torch() -> None:
    theirs = nn.AdaptiveLogSoftmaxWithLoss(
        HIDDEN, VOCABULARY, [5, 11], div_value=2.0, head_bias=True, dtype=torch.float64
    )
    config = OutputConfig(layer="adaptive", cutoffs=(5, 11), div_value=2.0)
    ours = AdaptiveSoftmax(config, AROUND).double()
    weights = {"head_weight": theirs.head.weight, "head_bias": theirs.head.bias}
    tails = dict(theirs.tail.named_parameters())
    for number in range(2):
        weights[f"clusters.{number}.projection.weight"] = tails[f"{number}.0.weight"]
        weights[f"clusters.{number}.weight"] = tails[f"{number}.1.weight"]
        weights[f"clusters.{number}.bias"] = torch.zeros(len(tails[f"{number}.1.weight"]))
    ours.load_state_dict({**ours.state_dict(), **weights})
    hidden_NH, targets_N = batch()
    targets_N = targets_N.clamp(min=0)  # torch's knows no ignored target
    torch.testing.assert_close(
        ours.log_probs(hidden_NH), theirs.log_prob(hidden_NH), rtol=0, atol=1e-12
    )
    loss, expected = ours.loss(hidden_NH, targets_N), theirs(hidden_NH, targets_N).loss
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    inner = [weights[name] for name, _ in ours.named_parameters() if "clusters" not in name]
    assert_near(
        gradients(loss, ours, hidden_NH)[:3],
        list(torch.autograd.grad(expected, [hidden_NH, *inner])),
        1e-12,
    )


@tied_or_not
def test_adaptive_softmax_by_its_definition(tied: bool) -> None:
    # ranks: <unk>, </s>, then the others by count; clusters at ranks 5, 11 and 30
    layer = make("adaptive", tied=tied)
    assert isinstance(layer, AdaptiveSoftmax)
    order = [0, 1, *sorted(range(2, VOCABULARY), key=lambda symbol: -COUNTS[symbol])]
    state = dict(layer.named_parameters())
    (hidden_H,) = batch(6)[0][:1].detach()
    rows = [state["weight"][symbol] for symbol in order] if tied else []
    head = [*rows[:5], *state["head_weight"]]
    head_S = torch.stack(head) @ hidden_H + state["head_bias"]
    expected = torch.empty(VOCABULARY, dtype=torch.float64)
    for rank, symbol in enumerate(order):
        number = sum(rank >= border for border in (5, 11, 30))
        if number == 0:
            expected[symbol] = head_S.log_softmax(0)[rank]
            continue
        begin, end = [5, 11, 30, 40][number - 1 : number + 1]
        prefix, inner_H = f"clusters.{number - 1}", hidden_H
        if not tied:
            inner_H = state[f"{prefix}.projection.weight"] @ hidden_H
            assert len(inner_H) == max(1, int(6 / 4**number))
        inner = torch.stack(rows[begin:end]) if tied else state[f"{prefix}.weight"]
        inside = (inner @ inner_H + state[f"{prefix}.bias"]).log_softmax(0)
        expected[symbol] = head_S.log_softmax(0)[5 + number - 1] + inside[rank - begin]
    ours_V = layer.log_probs(hidden_H[None])[0]
    torch.testing.assert_close(ours_V, expected, rtol=0, atol=1e-12)


def test_a_cutoff_outside_the_vocabulary_is_refused() -> None:
    for cutoffs in ((40,), (5, 50)):
        with pytest.raises(ConfigError, match="but the vocabulary has 40 symbols") as caught:
            AdaptiveSoftmax(OutputConfig(layer="adaptive", cutoffs=cutoffs), AROUND)
        assert caught.value.hint == "give smaller cutoffs, or leave them out"


@tied_or_not
def test_ranks_are_saved_with_the_weights(tied: bool) -> None:
    layer = make("adaptive", tied=tied)
    weight = nn.Parameter(torch.empty(VOCABULARY, HIDDEN)) if tied else None
    # opened without the counts
    config = OutputConfig(layer="adaptive", cutoffs=(5, 11, 30))
    opened = AdaptiveSoftmax(config, Surroundings(HIDDEN, VOCABULARY, weight)).double()
    opened.load_state_dict(layer.state_dict())
    hidden_NH, _ = batch()
    assert torch.equal(opened.log_probs(hidden_NH), layer.log_probs(hidden_NH))


# The full softmax, against torch's own.
