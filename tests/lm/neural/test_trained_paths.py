"""Fifty training steps from one seed: by the fast paths, and by plain loops and a plain softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.lm.neural import cells, highway
from seqtool.lm.neural.cells import Cell
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork, detach

NUM_STEPS, VOCABULARY = 50, 23
CASES: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm", "layers": 2},
    "lstm-projected": {"cell": "lstm", "layers": 2, "projection_size": 7},
    "lstm-dropped": {"cell": "lstm", "dropout_weights": 0.3, "dropout_input": 0.2},
    "gru": {"cell": "gru", "layers": 2},
    "rhn": {"cell": "rhn", "depth": 4},
    "rhn-separate": {"cell": "rhn", "depth": 2, "carry": "separate"},
    "rhn-dropped": {"cell": "rhn", "depth": 3, "dropout_state": 0.2, "dropout_weights": 0.2},
}


def plain_masks(cell: Cell, inputs_TBE: Tensor, like: Tensor) -> tuple[Tensor | None, Tensor]:
    """Update masks of ones, for which a cell runs its plain loop; state masks as ever."""
    num_steps, batch, _ = inputs_TBE.shape
    mask = None
    if cell.training and cell.hidden_size and (share := plain_masks.share):  # type: ignore[attr-defined]
        mask = torch.empty(batch, cell.output_size).bernoulli_(1 - share).div_(1 - share)
    return mask, torch.ones(num_steps * cell.num_updates, batch, cell.hidden_size)


def text() -> Iterator[tuple[Tensor, Tensor]]:
    """Windows of 3 streams in which every symbol tells the next but for some noise."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.zeros(NUM_STEPS * 9 + 1, 3, dtype=torch.int64)
    for t in range(1, len(ids)):
        noise = torch.randint(3, (3,), generator=generator)
        ids[t] = (5 * ids[t - 1] + noise) % VOCABULARY
    for start in range(0, NUM_STEPS * 9, 9):
        yield ids[start : start + 9], ids[start + 1 : start + 10]


def train(
    settings: dict[str, Any], *, plain: bool = False, half: bool = False
) -> tuple[list[float], list[Tensor]]:
    """Draw a network and train it; return the losses and the weights in the end."""
    torch.manual_seed(1)
    config = ModelConfig(hidden_size=16, init_range=0.5, **settings)
    network = NeuralNetwork(config, VOCABULARY).train()
    if plain:
        plain_masks.share = settings.get("dropout_state", 0.0)  # type: ignore[attr-defined]
        network._masks = plain_masks  # type: ignore[method-assign]
        # updates of ones are read by the fast loops too, but where NumPy is slow
        with pytest.MonkeyPatch.context() as patch:
            for module in (cells, highway):
                patch.setattr(module, "numpy_is_fast", lambda: False)
            return run(network, plain=True, half=half)
    return run(network, plain=False, half=half)


def run(network: NeuralNetwork, *, plain: bool, half: bool) -> tuple[list[float], list[Tensor]]:
    """Train a network; return the losses and the weights in the end."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    state = network.initial_state(3)
    losses = []
    for inputs_TB, targets_TB in text():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            hidden_TBH, state = network(inputs_TB, state)
            state = detach(state)
            hidden_NH, targets_N = hidden_TBH.flatten(0, 1), targets_TB.flatten()
            if plain:
                softmax: Any = network.softmax
                logits_NV = functional.linear(hidden_NH, softmax.weight, softmax.bias)
                loss = functional.cross_entropy(logits_NV, targets_N)
            else:
                loss = network.softmax.loss(hidden_NH, targets_N)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in network.parameters()]


def distance(one: list[Tensor], other: list[Tensor]) -> float:
    """Return the norm of the difference of two sets of weights, in that of the first."""
    pairs = list(zip(one, other, strict=True))
    apart = sum(float((a - b).double().square().sum()) for a, b in pairs)
    return (apart / sum(float(a.double().square().sum()) for a, _ in pairs)) ** 0.5


@pytest.mark.parametrize("name", CASES)
def test_fast_and_plain_paths_train_alike(name: str) -> None:
    plain_losses, plain_weights = train(CASES[name], plain=True)
    losses, weights = train(CASES[name])
    assert losses[-1] < 0.8 * losses[0]  # there was something to learn
    # roundings of float32, 6e-8 each, that 50 steps have carried on
    assert distance(plain_weights, weights) < 1e-5
    assert losses == pytest.approx(plain_losses, rel=1e-5)


@pytest.mark.parametrize("name", ["rhn", "rhn-separate", "rhn-dropped"])
def test_both_loops_of_the_highway_cell_train_alike(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, weights = train(CASES[name])
    monkeypatch.setattr(highway, "FEWEST_STEPS", 1_000_000)
    others, other_weights = train(CASES[name])
    assert distance(weights, other_weights) < 1e-5
    assert losses == pytest.approx(others, rel=1e-5)


@pytest.mark.parametrize("name", ["lstm", "rhn"])
def test_bfloat16_learns_as_much(name: str) -> None:
    losses, weights = train(CASES[name])
    half_losses, half_weights = train(CASES[name], half=True)
    assert distance(weights, half_weights) > 0  # something was rounded
    last, half_last = (sum(values[-10:]) / 10 for values in (losses, half_losses))
    assert half_last == pytest.approx(last, rel=0.01)
