"""The LSTM's loop of the CPU against plain steps, and its gradient against numerical ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from toy_cells import assert_same, draw, draw_state, ids, make, results

from seqtool.lm.neural import cells, recurrent_products
from seqtool.lm.neural.products import has_bf16_dot_products

# (T, B, I, H): one of everything, and odd sizes
SIZES = [(1, 1, 1, 2), (7, 1, 3, 5), (5, 3, 6, 4)]
LSTMS: list[dict[str, Any]] = [{}, {"projection_size": 1}]


@pytest.fixture
def plain_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(cells, "numpy_is_fast", lambda: False)


@pytest.mark.parametrize("settings", LSTMS, ids=ids)
def test_gradient_is_the_numerical_one(settings: dict[str, Any]) -> None:
    cell = make("lstm", 2, 3, **settings)
    inputs, state = draw(3, 2, 2, seed=1), draw_state(cell, 2)
    mask = torch.full_like(state[0], 2.0).detach()
    update = torch.tensor([[2.0, 0.0, 2.0], [0.0, 2.0, 2.0]], dtype=torch.float64).expand(3, -1, -1)
    names = [name for name, _ in cell.named_parameters()]

    def run(inputs: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        outputs, last = functional_call(
            cell, dict(zip(names, weights, strict=True)), (inputs, (h, c), mask, update)
        )
        return outputs, *last

    assert torch.autograd.gradcheck(run, (inputs, *state, *cell.parameters()))


@pytest.mark.parametrize("masked", ["state", "update", "both", "shared update"])
@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize("settings", LSTMS, ids=ids)
def test_the_loop_of_the_cpu_is_the_plain_steps(
    settings: dict[str, Any], sizes: tuple[int, ...], masked: str, plain_steps: Callable[[], None]
) -> None:
    num_steps, batch, input_size, hidden_size = sizes
    cell = make("lstm", input_size, hidden_size, **settings)
    inputs, state = draw(num_steps, batch, input_size, seed=1), draw_state(cell, batch)
    mask = update = None
    if masked in ("state", "both"):
        mask = draw(*state[0].shape, seed=4).detach()
    if masked in ("update", "both"):
        update = draw(num_steps, *state[1].shape, seed=5).detach()
    if masked == "shared update":
        update = draw(*state[1].shape, seed=5).detach().expand(num_steps, -1, -1)
    leaves = [inputs, *state]
    fast = results(cell, *cell(inputs, state, mask, update), leaves)
    with torch.no_grad():  # and where nothing is kept for a gradient
        outputs, last = cell(inputs, state, mask, update)
    assert_same([outputs, *last], fast[:3])
    plain_steps()
    assert_same(fast, results(cell, *cell(inputs, state, mask, update), leaves))


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("sizes", SIZES[1:], ids=ids)
@pytest.mark.parametrize("settings", LSTMS, ids=ids)
@pytest.mark.parametrize("pairs", [False, True], ids=["torch", "pairs"])
def test_bfloat16_rounds_products_only(
    settings: dict[str, Any],
    sizes: tuple[int, ...],
    masked: bool,
    pairs: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if pairs and not has_bf16_dot_products():
        pytest.skip("the processor has no dot products of bfloat16")
    monkeypatch.setattr(recurrent_products, "has_bf16_dot_products", lambda: pairs)
    num_steps, batch, input_size, hidden_size = sizes
    cell = make("lstm", input_size, hidden_size, **settings).float()
    inputs = draw(num_steps, batch, input_size, seed=1).float().detach().requires_grad_()
    state = tuple(part.float().detach().requires_grad_() for part in draw_state(cell, batch))
    mask = update = None
    if masked:
        mask = draw(*state[0].shape, seed=4).float().detach()
        update = draw(num_steps, *state[1].shape, seed=5).float().detach()
    leaves = [inputs, *state]
    exact = results(cell, *cell(inputs, state, mask, update), leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        after = cell(inputs, state, mask, update)
    half = results(cell, *after, leaves)
    assert not torch.equal(exact[0], half[0]), "products were not made in bfloat16"
    assert all(one.dtype == torch.float32 for one in half)
    # each factor, and each product, is rounded by 2^-9 of itself on average; over time this adds
    # up, but stays below a few times as much in the norm of what comes out, and of the gradients
    for part in (slice(0, 3), slice(3, None)):
        one, other = (torch.cat([x.flatten() for x in found[part]]) for found in (half, exact))
        error = torch.linalg.vector_norm(one - other)
        assert error <= 8 * 2.0**-8 * torch.linalg.vector_norm(other)


def test_bfloat16_is_exact_where_nothing_is_rounded() -> None:
    # with zero weights no product is rounded: what is left are the biases, in float32
    cell = make("lstm", 3, 4, projection_size=2).float()
    with torch.no_grad():
        for name, weight in cell.named_parameters():
            if "bias" not in name:
                weight.zero_()
    inputs = draw(6, 2, 3, seed=1).float()
    state = tuple(part.float() for part in draw_state(cell, 2))
    mask = torch.ones_like(state[0])
    exact = cell(inputs, state, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = cell(inputs, state, mask)
    assert torch.equal(exact[0], half[0])
    assert torch.equal(exact[1][1], half[1][1])


def test_the_state_before_is_left_as_it_is() -> None:
    cell = make("lstm", 3, 4)
    inputs, state = draw(5, 1, 3, seed=1), draw_state(cell, 1)  # one stream: both orders are one
    before = [part.detach().clone() for part in (inputs, *state)]
    outputs, _ = cell(inputs, state, torch.ones_like(state[0]))
    outputs.sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(before, (inputs, *state), strict=True))


@pytest.mark.parametrize("masked", [False, True], ids=["compiled", "steps"])
@pytest.mark.parametrize("sizes", SIZES, ids=ids)
def test_projection_agrees_with_torch(sizes: tuple[int, ...], masked: bool) -> None:
    num_steps, batch, input_size, hidden_size = sizes
    cell = make("lstm", input_size, hidden_size, projection_size=hidden_size - 1)
    inputs, state = draw(num_steps, batch, input_size, seed=1), draw_state(cell, batch)
    mask = torch.ones_like(state[0]) if masked else None
    judge = nn.LSTM(input_size, hidden_size, proj_size=hidden_size - 1).double()
    with torch.no_grad():
        for ours, theirs in zip(cell.parameters(), judge.parameters(), strict=True):
            theirs.copy_(ours)
    outputs, (output, memory) = judge(inputs, (state[0][None], state[1][None]))
    expected = results(judge, outputs, (output[0], memory[0]), [inputs, *state])  # type: ignore[arg-type]
    assert_same(results(cell, *cell(inputs, state, mask), [inputs, *state]), expected)
