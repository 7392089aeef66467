"""The output layer: what turns hidden states into probabilities of the next token.

Dimensions in names: N tokens, H units, V vocabulary.

An output layer answers `loss`, which training minimises, `target_log_probs` and `log_probs`, which
are exact whatever the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from seqtool.core.arrays import Longs
from seqtool.core.config import Registry
from seqtool.lm.neural import cross_entropy
from seqtool.lm.neural.config import OutputConfig

IDS_PER_BLOCK = 1 << 22


@dataclass(frozen=True)
class Surroundings:
    """What an output layer is built into.

    Attributes:
        hidden_size: H, the width of what it reads.
        vocabulary_size: V.
        tied_weight: the embedding's weight, when the output's is to be the same.
        counts: how often each symbol occurs in the training text [V]; None where that is not known,
            as when a model is opened.
        sparse: gradients of weights of which a batch uses some rows only are sparse.
    """

    hidden_size: int
    vocabulary_size: int
    tied_weight: Tensor | None = None
    counts: Longs | None = None
    sparse: bool = False


def count_symbols(ids: npt.NDArray[np.unsignedinteger], vocabulary_size: int) -> Longs:
    """Count the symbols of a text, which may be a memory map, block by block."""
    counts = np.zeros(vocabulary_size, np.int64)
    for start in range(0, len(ids), IDS_PER_BLOCK):
        counts += np.bincount(ids[start : start + IDS_PER_BLOCK], minlength=vocabulary_size)
    return counts


class OutputLayer(nn.Module):
    """What follows the last hidden layer.

    Attributes:
        needs_counts: whether it is built from the counts of the training text.
    """

    needs_counts = False

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> OutputLayer:
        """Build it as configured."""
        raise TypeError(f"{cls.__name__} is an interface")

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean loss over the targets not `IGNORED`; zero without any target.

        In nats; in evaluation mode it is the negative log-likelihood.
        """
        raise TypeError(f"{type(self).__name__} is an interface")

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def matrices(self) -> Iterator[Tensor]:
        """Yield linear maps of its own, to initialise them."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def initialise_biases(self) -> None:
        """Set the biases as training is to start with them."""
        raise TypeError(f"{type(self).__name__} is an interface")


OUTPUT_LAYERS: Registry[type[OutputLayer]] = Registry(
    "output layer",
    {
        "full": "seqtool.lm.neural.output:FullSoftmax",
        "adaptive": "seqtool.lm.neural.adaptive:AdaptiveSoftmax",
        "nce": "seqtool.lm.neural.sampled:NoiseContrastive",
        "blackout": "seqtool.lm.neural.sampled:BlackOut",
        "mixture": "seqtool.lm.neural.mixture_of_softmaxes:MixtureOfSoftmaxes",
        "maxent": "seqtool.lm.neural.maxent:MaxentSoftmax",
    },
)


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

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> FullSoftmax:
        """Build it as configured."""
        return cls(around.hidden_size, around.vocabulary_size, around.tied_weight)

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        return cross_entropy.cross_entropy(hidden_NH, self.weight, self.bias, targets_N)

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        return cross_entropy.log_probs(hidden_NH, self.weight, self.bias)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        return cross_entropy.target_log_probs(hidden_NH, self.weight, self.bias, targets_N)

    def matrices(self) -> Iterator[Tensor]:
        """Yield the weight, unless it is the embedding's."""
        if not self.is_tied:
            yield self.weight

    def initialise_biases(self) -> None:
        """Start at zero."""
        nn.init.zeros_(self.bias)
