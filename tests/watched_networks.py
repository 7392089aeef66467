"""Networks in float64, and what can be seen of them from outside."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from seqtool.lm.neural.cells import Cell
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork

VOCABULARY = 50
SHARE = 0.4
KEPT = 1 / (1 - SHARE)


def make(vocabulary_size: int = VOCABULARY, **settings: Any) -> NeuralNetwork:
    torch.manual_seed(0)
    return NeuralNetwork(ModelConfig(**settings), vocabulary_size).double()


def batch(num_steps: int = 6, num_streams: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCABULARY, (num_steps, num_streams), generator=generator)


def cells(network: NeuralNetwork) -> list[Cell]:
    return [cell for cell in network.cells if isinstance(cell, Cell)]


class Observed:
    """One pass, with what every cell was given and gave."""

    def __init__(self, network: NeuralNetwork, ids_TB: Tensor) -> None:
        self.given: list[tuple[Tensor, Tensor | None]] = []
        self.gave: list[Tensor] = []

        def note(cell: nn.Module, args: tuple[Any, ...], result: tuple[Tensor, Any]) -> None:
            self.given.append((args[0], args[2]))
            self.gave.append(result[0])

        hooks = [cell.register_forward_hook(note) for cell in cells(network)]
        self.hidden, _ = network(ids_TB, network.initial_state(ids_TB.shape[1]))
        for hook in hooks:
            hook.remove()


def mask_of(after: Tensor, before: Tensor) -> Tensor:
    """Return after / before, every element of which must be 0 or 1 / (1 - share)."""
    ratio = after / before
    mask = KEPT * (ratio != 0).double()
    torch.testing.assert_close(ratio, mask, rtol=0, atol=1e-12)
    return mask


def assert_mean_is_one(mask: Tensor) -> None:
    # a kept unit has the value k = 1 / (1 - p) with probability 1 / k: variance k - 1
    assert (mask.mean() - 1).abs() < 4 * math.sqrt((KEPT - 1) / mask.numel())
