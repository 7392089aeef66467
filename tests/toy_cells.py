"""Cells for tests, and names for the cases that make them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from seqtool.lm.neural.cells import CELLS, Cell
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
