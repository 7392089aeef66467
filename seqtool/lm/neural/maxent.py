"""Direct connections from n-grams to the output: RNN + maximum entropy (Mikolov et al. 2011).

The paper is "Strategies for training large scale neural network language models".

Dimensions in names: N tokens, H units, V vocabulary, K contexts of a token (its last word, its last
two words, ...), R rows of one chunk, M entries found for a batch.

    logit(w | h) = W_w h + b_w + sum over k of weight(last k words, w)

The weights stand in one hash table. As in other maximum entropy models, there is one for each
n-gram that training has met: a slot belongs to the first n-gram that claims it (the paper's are
shared by all that are hashed to them, which needs classes of words to be bearable). So few of the
vocabulary have a weight after a given context, gradients are sparse, and no n-gram disturbs
another. On a GPU the same is computed by plain operations, which take more memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.errors import ConfigError
from seqtool.lm.neural import cross_entropy
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.direct_connections import DirectConnections, FoundNgrams
from seqtool.lm.neural.output import Surroundings
from seqtool.lm.neural.output_config import OutputConfig
from seqtool.lm.neural.softmax import FullSoftmax


class NgramLogits:
    """What the n-grams of a batch add to its logits: see `cross_entropy.Additions`."""

    def __init__(self, direct: DirectConnections, found: FoundNgrams) -> None:
        self._found = found
        slots_M = torch.from_numpy(found.slots_M)
        self.weights_M = functional.embedding(slots_M, direct.weight, sparse=True)[:, 0]
        self._values_M = self.weights_M.detach().numpy()
        self._grad_M = np.zeros_like(self._values_M)

    def add_to(self, logits_RV: Tensor, rows_R: Tensor) -> None:
        """Add the weights of the n-grams that each row's contexts make."""
        from seqtool.lm.neural import hashed_ngrams

        found = self._found
        hashed_ngrams.add(
            logits_RV.numpy(),
            rows_R.numpy(),
            found.contexts_NK,
            found.begins,
            found.words_M,
            self._values_M,
        )

    def collect(self, grads_RV: Tensor, shares_R1: Tensor, rows_R: Tensor) -> None:
        """Take the gradients of the rows, each times its share."""
        from seqtool.lm.neural import hashed_ngrams

        found = self._found
        hashed_ngrams.collect(
            grads_RV.numpy(),
            shares_R1[:, 0].contiguous().numpy(),
            rows_R.numpy(),
            found.contexts_NK,
            found.begins,
            found.words_M,
            self._grad_M,
        )

    def gradient(self) -> Tensor:
        """Return the gradient of the weights, (M,)."""
        return torch.from_numpy(self._grad_M)


class MaxentSoftmax(FullSoftmax):
    """The full softmax with direct connections from n-grams.

    Args:
        hidden_size: H.
        vocabulary_size: V.
        order: the longest n-grams.
        size: slots of the hash table.
        rate: learning rate of the n-grams.
        weight: the embedding's weight (V, H), when tied.
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary_size: int,
        order: int,
        size: int,
        *,
        rate: float = 0.3,
        weight: Tensor | None = None,
    ) -> None:
        super().__init__(hidden_size, vocabulary_size, weight)
        self.direct = DirectConnections(vocabulary_size, order, size, rate=rate)

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> MaxentSoftmax:
        """Build it as configured."""
        return cls(
            around.hidden_size,
            around.vocabulary_size,
            config.direct_order,
            config.direct_size,
            rate=config.direct_rate,
            weight=around.tied_weight,
        )

    def after(self, hashes_NK: Tensor) -> AfterContexts:
        """Return the layer for tokens whose contexts have these hashes."""
        return AfterContexts(self, hashes_NK.reshape(-1, self.direct.num_contexts))

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Refuse: the contexts are missing; see `after`."""
        raise ConfigError(
            "a model with direct connections from n-grams cannot be used in this way",
            hint="take one with another output layer",
        )

    log_probs = loss  # type: ignore[assignment]
    target_log_probs = loss

    def initialise_biases(self) -> None:
        """Start at zero, the n-grams too."""
        super().initialise_biases()
        nn.init.zeros_(self.direct.weight)


@dataclass(frozen=True)
class AfterContexts:
    """A softmax with direct connections, for tokens with given contexts."""

    softmax: MaxentSoftmax
    hashes_NK: Tensor

    def _additions(self, targets_N: Tensor | None = None) -> NgramLogits | None:
        """Return what is added by the compiled loops, None where they do not run."""
        if self.hashes_NK.device.type != "cpu":
            return None
        direct = self.softmax.direct
        return NgramLogits(direct, direct.find(self.hashes_NK, targets_N))

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`.

        In training, n-grams that are met for the first time get their weights.
        """
        softmax = self.softmax
        claiming_N = targets_N if softmax.training else None
        additions = self._additions(claiming_N)
        if additions is not None:
            return cross_entropy.cross_entropy(
                hidden_NH,
                softmax.weight,
                softmax.bias,
                targets_N,
                softmax.workspace,
                additions=additions,
            )
        logits_NV = functional.linear(hidden_NH, softmax.weight, softmax.bias).float()
        logits_NV = logits_NV + softmax.direct.logits(self.hashes_NK, claiming_N)
        total = functional.cross_entropy(
            logits_NV, targets_N, ignore_index=IGNORED, reduction="sum"
        )
        return total / (targets_N != IGNORED).sum().clamp(min=1)

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        softmax = self.softmax
        logits_NV = functional.linear(
            hidden_NH.to(softmax.weight.dtype), softmax.weight, softmax.bias
        )
        logits_NV = logits_NV + softmax.direct.logits(self.hashes_NK)
        return functional.log_softmax(logits_NV.double(), dim=1)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        additions = None if torch.is_grad_enabled() else self._additions()
        if additions is None:
            log_probs_NV = self.log_probs(hidden_NH)
            chosen_N = log_probs_NV.gather(1, targets_N.clamp(min=0)[:, None])[:, 0]
            return chosen_N.to(hidden_NH.dtype).masked_fill(targets_N == IGNORED, 0.0)
        softmax = self.softmax
        return cross_entropy.target_log_probs(
            hidden_NH, softmax.weight, softmax.bias, targets_N, softmax.workspace, additions
        )
