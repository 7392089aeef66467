"""The softmax over the whole vocabulary.

Dimensions in names: N tokens, H units, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from seqtool.lm.neural import cross_entropy
from seqtool.lm.neural.output import OutputLayer, Surroundings
from seqtool.lm.neural.output_config import OutputConfig
from seqtool.lm.neural.workspace import Workspace


class FullSoftmax(OutputLayer):
    """Softmax over the whole vocabulary.

    Args:
        hidden_size: H.
        vocabulary_size: V.
        weight: the embedding's weight (V, H), when tied.
    """

    def __init__(
        self, hidden_size: int, vocabulary_size: int, weight: Tensor | None = None
    ) -> None:
        super().__init__()
        self.is_tied = weight is not None
        if weight is None:
            weight = nn.Parameter(torch.empty(vocabulary_size, hidden_size))
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.workspace = Workspace()

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> FullSoftmax:
        """Build it as configured."""
        return cls(around.hidden_size, around.vocabulary_size, around.tied_weight)

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        return cross_entropy.cross_entropy(
            hidden_NH, self.weight, self.bias, targets_N, self.workspace
        )

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        return cross_entropy.log_probs(hidden_NH, self.weight, self.bias)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        return cross_entropy.target_log_probs(
            hidden_NH, self.weight, self.bias, targets_N, self.workspace
        )

    def matrices(self) -> Iterator[Tensor]:
        """Yield the weight, unless it is the embedding's."""
        if not self.is_tied:
            yield self.weight

    def initialise_biases(self) -> None:
        """Start at zero."""
        nn.init.zeros_(self.bias)
