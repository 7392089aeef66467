"""The recurrent highway loop of the CPU in float32 and bfloat16, beside the one of every device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqtool.lm.neural import highway
from seqtool.lm.neural.cells import RecurrentHighwayCell
from seqtool.lm.neural.config import ModelConfig

# (T, B, I, H): one stream, odd sizes, columns beyond one register
SIZES = [(4, 1, 1, 1), (5, 1, 7, 19), (9, 3, 5, 33), (6, 37, 16, 17)]


def make(
    sizes: tuple[int, ...], depth: int, carry: str, dtype: torch.dtype = torch.float32
) -> RecurrentHighwayCell:
    _, _, input_size, hidden_size = sizes
    config = ModelConfig(cell="rhn", hidden_size=hidden_size, depth=depth, carry=carry)
    cell = RecurrentHighwayCell(input_size, hidden_size, config)
    generator = torch.Generator().manual_seed(hidden_size)
    scale = 1.5 / hidden_size**0.5
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -scale, scale, generator=generator)
    return cell.to(dtype)


def run(
    cell: RecurrentHighwayCell, sizes: tuple[int, ...], *, masked: bool, half: bool = False
) -> list[Tensor]:
    """Return outputs, last state and all gradients of a random weighting of both."""
    num_steps, batch, input_size, hidden_size = sizes
    generator = torch.Generator().manual_seed(num_steps)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(cell.bias.dtype)

    inputs = draw(num_steps, batch, input_size).requires_grad_()
    state = draw(batch, hidden_size).requires_grad_()
    mask = (draw(batch, hidden_size) > 0).to(cell.bias.dtype) * 2 if masked else None
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        outputs, (last,) = cell(inputs, (state,), mask)
    total = (outputs * draw(*outputs.shape)).sum() + (last * draw(*last.shape)).sum()
    gradients = torch.autograd.grad(total, [inputs, state, *cell.parameters()])
    return [outputs.detach(), last.detach(), *gradients]


@pytest.fixture
def torch_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(highway, "FEWEST_STEPS", 1_000_000)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("carry", ["coupled", "separate"])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_float32_errs_by_its_rounding(
    sizes: tuple[int, ...],
    depth: int,
    carry: str,
    masked: bool,
    torch_loop: Callable[[], None],
) -> None:
    ours = run(make(sizes, depth, carry), sizes, masked=masked)
    torch_loop()
    exact = run(make(sizes, depth, carry, torch.float64), sizes, masked=masked)
    for one, other in zip(ours, exact, strict=True):
        assert one.dtype == torch.float32
        error = torch.linalg.vector_norm(one.double() - other)
        assert error <= 1e-6 * torch.linalg.vector_norm(other)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("carry", ["coupled", "separate"])
@pytest.mark.parametrize("sizes", SIZES[1:], ids=lambda sizes: "x".join(map(str, sizes)))
def test_bfloat16_rounds_products_only(
    sizes: tuple[int, ...],
    carry: str,
    masked: bool,
) -> None:
    cell = make(sizes, 2, carry)
    exact = run(cell, sizes, masked=masked)
    half = run(cell, sizes, masked=masked, half=True)
    assert not torch.equal(exact[0], half[0]), "products were not made in bfloat16"
    # each factor, and each product, is rounded by 2^-9 of itself on average; over depth and time
    # this adds up, but stays below a few times as much in the norm of everything that comes out
    for one, other in zip(half, exact, strict=True):
        assert one.dtype == torch.float32
        error = torch.linalg.vector_norm(one - other)
        assert error <= 8 * 2.0**-8 * torch.linalg.vector_norm(other)


def test_factors_are_rounded_as_torch_does() -> None:
    generator = np.random.default_rng(1)
    patterns = generator.integers(0, 2**32, 4096, dtype=np.uint32)
    patterns[::2] = patterns[::2] & 0xFFFF0000 | 0x8000  # ties
    special = [0, 0x80000000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF]
    patterns[: len(special)] = special
    states = patterns.view(np.float32).reshape(1, 1, 64, 64)
    factors = np.empty((64, 64), np.uint16)
    kept = np.empty((1, 64, 1, 64), np.uint16)
    highway.write_entering(states, np.ones((64, 64), np.float32), 0, 0, factors, kept)
    expected = torch.from_numpy(states[0, 0]).bfloat16()
    found = torch.from_numpy(factors).view(torch.bfloat16)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert np.array_equal(kept[0, :, 0], factors)


def test_graphs_that_live_together_do_not_share_memory() -> None:
    sizes = (5, 2, 3, 4)
    cell = make(sizes, 2, "coupled")
    inputs = [torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 3)]
    alone = []
    for part in inputs:
        outputs, _ = cell(part, cell.initial_state(2))
        alone.append((outputs.detach().clone(), torch.autograd.grad(outputs.sum(), cell.bias)[0]))
    alone = [(outputs, gradient.clone()) for outputs, gradient in alone]
    together = [cell(part, cell.initial_state(2))[0] for part in inputs]
    for outputs, (expected, gradient) in zip(together, alone, strict=True):
        assert torch.equal(outputs, expected)
        assert torch.equal(torch.autograd.grad(outputs.sum(), cell.bias)[0], gradient)


@pytest.mark.parametrize("carry", ["coupled", "separate"])
def test_without_gradients_the_outputs_are_the_same(carry: str) -> None:
    sizes = (9, 3, 4, 5)
    cell = make(sizes, 3, carry)
    inputs = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(1))
    expected, _ = cell(inputs, cell.initial_state(3))
    with torch.inference_mode():
        outputs, (last,) = cell(inputs, cell.initial_state(3))
    assert torch.equal(outputs, expected.detach())
    assert torch.equal(last, expected[-1].detach())
