"""How a layer's output is joined to its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqtool.lm.neural.config import ModelConfig


class Highway(nn.Module):
    """Joins a layer's output f(x) to its input: t * f(x) + (1 - t) * x (Srivastava et al. 2015)."""

    def __init__(self, size: int, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(size, size)
        self._bias = config.transform_bias

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the gated sum of two (T, B, H)."""
        return torch.lerp(inputs, outputs, torch.sigmoid(self.gate(inputs)))

    def initialise_biases(self) -> None:
        """Start by carrying the input, as the transform bias says."""
        nn.init.constant_(self.gate.bias, self._bias)
