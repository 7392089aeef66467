"""The loops of the recurrent highway cell, against its equations step by step in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtool.core.runtime import one_blas_thread
from seqtool.lm.neural import highway
from seqtool.lm.neural.cells import RecurrentHighwayCell
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.products import product

# (T, B, I, H): too few steps for the loop of the CPU, one stream, odd sizes, enough for threads
SIZES = [(3, 2, 3, 4), (4, 1, 1, 1), (5, 1, 7, 19), (9, 3, 5, 33), (4, 50, 6, 300)]
# each factor, and each product, is rounded by 2^-9 of itself on average; over depth and time this
# adds up, but stays below a few times as much in the norm of everything that comes out
ERRORS = {"float64": 1e-12, "float32": 1e-6, "bf16": 8 * 2.0**-8}


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


class Case:
    """A cell, and what it is given: all drawn in float64."""

    def __init__(self, sizes: tuple[int, ...], carry: str, depth: int, masked: str) -> None:
        steps, batch, inputs, units = sizes
        config = ModelConfig(cell="rhn", hidden_size=units, depth=depth, carry=carry)  # type: ignore[arg-type]
        self.cell, self.generator = RecurrentHighwayCell(inputs, units, config).double(), None
        self.generator = torch.Generator().manual_seed(units)
        for parameter in self.cell.parameters():
            scale = 1.5 / units**0.5
            parameter.data.uniform_(-scale, scale, generator=self.generator)
        self.inputs, self.state = self.draw(steps, batch, inputs), self.draw(batch, units)
        self.mask = (self.draw(batch, units) > 0) * 2.0 if "state" in masked else None
        num = 1 if "shared" in masked else steps * depth
        self.update = (self.draw(num, batch, units) > 0) * 2.0 if "update" in masked else None
        self.weights = self.draw(steps, batch, units)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def run(self, kind: str) -> list[Tensor]:
        """Return outputs, last state and all gradients; of plain steps, or of loops of a type."""
        dtype = torch.float64 if kind in ("plain", "float64") else torch.float32
        cell = self.cell.to(dtype)
        inputs, state = (part.to(dtype).requires_grad_() for part in (self.inputs, self.state))
        mask = None if self.mask is None else self.mask.to(dtype)
        update = self.update
        if update is not None:
            update = update.to(dtype).expand(len(inputs) * cell.depth, -1, -1)
        if kind == "plain":
            last, steps, rows = state, [], itertools.count()
            for entering in inputs:
                for level in range(cell.depth):
                    dropped = None if update is None else update[next(rows)]
                    last, _ = cell.micro_step(level, entering, last, None, mask, dropped)
                steps.append(last)
            outputs = torch.stack(steps)
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "bf16"):
                outputs, (last,) = cell(inputs, (state,), mask, update)
                with torch.no_grad():  # where every step overwrites the one before
                    without, _ = cell(inputs, (state,), mask, update)
            torch.testing.assert_close(without, outputs, rtol=0, atol=0)
        total = (outputs * self.weights.to(dtype)).sum() + last.square().sum()
        leaves = [inputs, state, *cell.parameters()]
        found = [outputs.detach(), last.detach(), *torch.autograd.grad(total, leaves)]
        assert torch.equal(state, self.state.to(dtype))
        self.cell.double()
        return found


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("masked", ["", "state", "update", "state, shared update"])
@pytest.mark.parametrize("carry", ["coupled", "separate"])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.usefixtures("num_threads")
def test_loops_are_the_equations(
    sizes: tuple[int, ...], carry: str, masked: str, kind: str
) -> None:
    case = Case(sizes, carry, 2, masked)
    found, expected = case.run(kind), case.run("plain")
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == (torch.float64 if kind == "float64" else torch.float32)
        error = torch.linalg.vector_norm(one.double() - other)
        assert error <= ERRORS[kind] * torch.linalg.vector_norm(other)


def test_factors_are_rounded_as_torch_does() -> None:
    generator = np.random.default_rng(1)
    patterns = generator.integers(0, 2**32, 4096, dtype=np.uint32)
    patterns[::2] = patterns[::2] & 0xFFFF0000 | 0x8000  # ties
    special = [0, 0x80000000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF]
    patterns[: len(special)] = special
    states = patterns.view(np.float32).reshape(1, 1, 64, 64)
    factors, kept = np.empty((64, 64), np.uint16), np.empty((1, 64, 1, 64), np.uint16)
    highway.write_entering(states, np.ones((64, 64), np.float32), 0, 0, factors, kept)
    expected = torch.from_numpy(states[0, 0]).bfloat16()
    found = torch.from_numpy(factors).view(torch.bfloat16)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert np.array_equal(kept[0, :, 0], factors)


def test_graphs_that_live_together_do_not_share_memory() -> None:
    cell = Case((5, 2, 3, 4), "coupled", 2, "").cell
    inputs = [torch.full((5, 2, 3), float(n), dtype=torch.float64) for n in (1, 2, 3)]
    together = [cell(part, cell.initial_state(2))[0] for part in inputs]
    for outputs, part in zip(together, inputs, strict=True):
        alone, _ = cell(part, cell.initial_state(2))
        assert torch.equal(outputs, alone)
        grads = [torch.autograd.grad(each.sum(), cell.bias)[0] for each in (outputs, alone)]
        assert torch.equal(*grads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 64), (500, 400, 60), (60, 400, 500)])
@pytest.mark.usefixtures("num_threads")
def test_products_are_exact(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    # small whole numbers, so that every sum is exact, in whatever order and however divided
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(rows)
    left = torch.randint(-1, 2, (rows, inner), generator=generator)
    right = torch.randint(-1, 2, (columns, inner), generator=generator).t()
    out = torch.empty(rows, columns, dtype=dtype)
    with one_blas_thread():
        assert product(left.to(dtype), right.to(dtype), out) is out
    assert torch.equal(out, (left @ right).to(dtype))
