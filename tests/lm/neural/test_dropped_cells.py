"""Cells whose recurrent weights, states and updates are masked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from toy_cells import assert_same, draw, draw_state, ids, make, results

from seqtool.lm.neural.cells import Cell

# (T, B, I, H): one of everything, and odd sizes
SIZES = [(1, 1, 1, 2), (7, 1, 3, 5), (5, 3, 4, 7)]
SHARE = 0.4
RECURRENT: list[tuple[str, dict[str, Any]]] = [
    ("rnn", {}),
    ("rnn", {"activation": "relu"}),
    ("lstm", {}),
    ("lstm", {"projection_size": 3}),
    ("gru", {}),
    ("rhn", {"depth": 3}),
    ("rhn", {"depth": 2, "carry": "separate"}),
]
WITH_MEMORY = [case for case in RECURRENT if case[0] != "rnn"]


def draw_binary(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.empty(shape, dtype=torch.float64).bernoulli_(1 - SHARE, generator=generator)
    return mask / (1 - SHARE)


# Recurrent weights.


def recurrent_parameter(cell: Cell) -> nn.Parameter:
    names = {"inner.weight_hh_l0", "weight_state"}
    (found,) = (value for name, value in cell.named_parameters() if name in names)
    return found


@pytest.mark.parametrize("masked", [False, True], ids=["compiled", "steps"])
@pytest.mark.parametrize("sizes", SIZES[1:], ids=ids)
@pytest.mark.parametrize(("name", "settings"), RECURRENT, ids=ids)
def test_dropped_weights_are_weights_times_one_mask_per_window(
    name: str, settings: dict[str, Any], sizes: tuple[int, ...], masked: bool
) -> None:
    num_steps, batch, input_size, hidden_size = sizes
    cell = make(name, input_size, hidden_size, dropout_weights=SHARE, **settings).train()
    inputs, state = draw(num_steps, batch, input_size, seed=1), draw_state(cell, batch)
    mask = draw_binary(*state[0].shape, seed=4) if masked else None
    leaves = [inputs, *state]
    torch.manual_seed(5)
    ours = results(cell, *cell(inputs, state, mask), leaves)
    torch.manual_seed(5)
    kept = functional.dropout(torch.ones_like(recurrent_parameter(cell)), SHARE)
    assert {0.0, 1 / (1 - SHARE)} == set(kept.flatten().tolist())
    # an ordinary cell that has the remaining weights; the gradient of a dropped one is zero
    judge = make(name, input_size, hidden_size, **settings)
    with torch.no_grad():
        recurrent_parameter(judge).mul_(kept)
    expected = results(judge, *judge(inputs, state, mask), leaves)
    place = [id(value) for value in judge.parameters()].index(id(recurrent_parameter(judge)))
    expected[len(expected) - len(list(judge.parameters())) + place] *= kept
    assert_same(ours, expected)


# Updates of the memory.


@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize(("name", "settings"), WITH_MEMORY, ids=ids)
def test_a_whole_update_changes_nothing(
    name: str, settings: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    # a loop with updates is the reference of the others, forward and backward
    num_steps, batch, input_size, hidden_size = sizes
    if settings.get("projection_size", 0) >= hidden_size:
        settings = {"projection_size": hidden_size - 1}
    cell = make(name, input_size, hidden_size, **settings)
    inputs, state = draw(num_steps, batch, input_size, seed=1), draw_state(cell, batch)
    ones = torch.ones(num_steps * cell.num_updates, batch, hidden_size, dtype=torch.float64)
    for mask in (None, draw_binary(*state[0].shape, seed=4)):
        leaves = [inputs, *state]
        plain = results(cell, *cell(inputs, state, mask), leaves)
        assert_same(results(cell, *cell(inputs, state, mask, ones), leaves), plain)


def test_lstm_drops_what_is_added_to_the_memory() -> None:
    """Semeniuta et al. (2016), eqs. 12-13: c' = f * c + i * d(g)."""
    cell = make("lstm", 3, 5)
    inputs, (h, c) = draw(6, 2, 3, seed=1), draw_state(cell, 2)
    update = draw_binary(6, 2, 5, seed=4)
    outputs, (_, memory) = cell(inputs, (h, c), None, update)
    weights = dict(cell.named_parameters())
    for t in range(6):
        sums = inputs[t] @ weights["inner.weight_ih_l0"].T + weights["inner.bias_ih_l0"]
        sums = sums + h @ weights["inner.weight_hh_l0"].T + weights["inner.bias_hh_l0"]
        i, f, g, o = sums.split(5, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * (update[t] * torch.tanh(g))
        h = torch.sigmoid(o) * torch.tanh(c)
        torch.testing.assert_close(outputs[t], h, rtol=0, atol=1e-12)
    torch.testing.assert_close(memory, c, rtol=0, atol=1e-12)


def test_gru_drops_its_candidate() -> None:
    """Semeniuta et al. (2016), eq. 15: h' = (1 - z) * h + z * d(g), here with z as torch has it."""
    cell = make("gru", 3, 5)
    inputs, (h,) = draw(6, 2, 3, seed=1), draw_state(cell, 2)
    update = draw_binary(6, 2, 5, seed=4)
    outputs, _ = cell(inputs, (h,), None, update)
    weights = dict(cell.named_parameters())
    for t in range(6):
        below = inputs[t] @ weights["inner.weight_ih_l0"].T + weights["inner.bias_ih_l0"]
        state = h @ weights["inner.weight_hh_l0"].T + weights["inner.bias_hh_l0"]
        r, z = (torch.sigmoid(below[:, at] + state[:, at]) for at in (slice(5), slice(5, 10)))
        candidate = torch.tanh(below[:, 10:] + r * state[:, 10:])
        h = z * h + (1 - z) * (update[t] * candidate)
        torch.testing.assert_close(outputs[t], h, rtol=0, atol=1e-12)
