"""Cells for tests, and names for the cases that make them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqtool.lm.neural.cells import CELLS, Cell, State
from seqtool.lm.neural.config import ModelConfig


def ids(value: object) -> str | None:
    if isinstance(value, dict):
        return "-".join(str(part) for part in value.values()) or "default"
    return "x".join(map(str, value)) if isinstance(value, tuple) else None


def make(name: str, input_size: int, hidden_size: int, **settings: Any) -> Cell:
    """Return a cell in float64 with weights large enough for its gates to move."""
    config = ModelConfig(cell=name, hidden_size=hidden_size, **settings)
    cell = CELLS[name](input_size, hidden_size, config).double()
    generator = torch.Generator().manual_seed(hidden_size)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8, generator=generator)
    return cell


def draw(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def draw_state(cell: Cell, batch: int) -> State:
    return tuple(draw(*part.shape, seed=7) for part in cell.initial_state(batch))


def results(cell: Cell, outputs: Tensor, state: State, leaves: list[Tensor]) -> list[Tensor]:
    """Return everything that comes out, and the gradients of a random weighting of it."""
    parts = [outputs, *state]
    total = torch.stack([(part * draw(*part.shape, seed=3).detach()).sum() for part in parts]).sum()
    return [*parts, *torch.autograd.grad(total, [*leaves, *cell.parameters()])]


def assert_same(one: list[Tensor], other: list[Tensor], tolerance: float = 1e-10) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)
