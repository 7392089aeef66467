"""Output layers that are trained on samples of the vocabulary instead of all of it.

Dimensions in names: N tokens, H units, V vocabulary, K noise samples, which all tokens share.

The noise is q(w), proportional to count(w)^power. In evaluation mode, and for all probabilities,
the layer is the full softmax.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from seqtool.core.arrays import Longs
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import FullSoftmax, Surroundings

# the largest logarithm of a sample's probability
NEARLY_ONE = -1e-6


class SampledSoftmax(FullSoftmax):
    """What sampled losses share: the noise, and the logits of targets and samples.

    Args:
        hidden_size: H.
        vocabulary_size: V.
        num_samples: K.
        power: of the counts, for the noise.
        weight: the embedding's weight (V, H), when tied.
        counts: of the symbols in the training text [V]; without them there is no training.
        sparse: the weight's gradient is sparse (for SparseAdam).
    """

    needs_counts = True
    noise_power = 1.0
    log_noise_V: Tensor
    cumulated_V: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocabulary_size: int,
        num_samples: int,
        *,
        power: float | None = None,
        weight: Tensor | None = None,
        counts: Longs | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__(hidden_size, vocabulary_size, weight)
        self.num_samples = num_samples
        self.sparse = sparse
        noise_V = torch.ones(0, dtype=torch.float64)
        if counts is not None:
            # what the text never has is drawn as if it had it once
            seen_V = torch.from_numpy(counts).double().clamp(min=1)
            noise_V = seen_V ** (self.noise_power if power is None else power)
            noise_V /= noise_V.sum()
        self.register_buffer("log_noise_V", noise_V.log().float(), persistent=False)
        self.register_buffer("cumulated_V", noise_V.cumsum(0), persistent=False)

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> SampledSoftmax:
        """Build it as configured."""
        return cls(
            around.hidden_size,
            around.vocabulary_size,
            config.noise_samples,
            power=config.noise_power,
            weight=around.tied_weight,
            counts=around.counts,
            sparse=around.sparse,
        )

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean sampled loss; in evaluation mode the negative log-likelihood in nats."""
        if not self.training:
            return super().loss(hidden_NH, targets_N)
        samples_K = self.draw()
        kept_N = targets_N != IGNORED
        targets_N = targets_N.clamp(min=0)
        num_samples = len(samples_K)
        both = torch.cat([samples_K, targets_N])
        rows_H = functional.embedding(both, self.weight, sparse=self.sparse)
        biases = self.bias[both]
        # products in bfloat16 where that is asked for; what follows is in the weight's type
        noise_NK = functional.linear(hidden_NH, rows_H[:num_samples]).to(biases.dtype)
        target_N = (hidden_NH * rows_H[num_samples:]).sum(dim=1) + biases[num_samples:]
        losses_N = self.losses(target_N, noise_NK + biases[:num_samples], targets_N, samples_K)
        return (losses_N * kept_N).sum() / kept_N.sum().clamp(min=1)

    def draw(self) -> Tensor:
        """Return K symbols of the noise, with replacement, from torch's random state."""
        if not len(self.cumulated_V):
            raise ConfigError(
                "no counts of the training text are known, so no noise can be drawn",
                hint="train on a prepared corpus",
            )
        drawn_K = torch.rand(self.num_samples, dtype=torch.float64, device=self.cumulated_V.device)
        last = len(self.cumulated_V) - 1
        return torch.searchsorted(self.cumulated_V, drawn_K, right=True).clamp(max=last)

    def losses(
        self, target_N: Tensor, noise_NK: Tensor, targets_N: Tensor, samples_K: Tensor
    ) -> Tensor:
        """Return the loss of each token from the logits of its target and of the samples, (N,)."""
        raise TypeError(f"{type(self).__name__} is an interface")


class NoiseContrastive(SampledSoftmax):
    """Noise-contrastive estimation (Mnih & Teh 2012), with a constant ln Z (Chen et al. 2015).

    With p(w) = exp(logit) / Z, a symbol is data rather than noise with the probability
    sigmoid(ln p(w) - ln K q(w)); the loss is the negative log-likelihood of telling the target from
    the K samples. What is learnt is nearly normalised, with the constant for Z.

    Attributes:
        log_normaliser: ln Z; ln V, that of logits near zero, unless it is set.
    """

    log_normaliser: float

    def __init__(self, hidden_size: int, vocabulary_size: int, *args: Any, **options: Any) -> None:
        super().__init__(hidden_size, vocabulary_size, *args, **options)
        self.log_normaliser = math.log(vocabulary_size)

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> NoiseContrastive:
        """Build it as configured."""
        layer = super().make(config, around)
        assert isinstance(layer, NoiseContrastive)
        if config.log_normaliser is not None:
            layer.log_normaliser = config.log_normaliser
        return layer

    def losses(
        self, target_N: Tensor, noise_NK: Tensor, targets_N: Tensor, samples_K: Tensor
    ) -> Tensor:
        """Return -ln P(data | target) - sum of ln P(noise | sample), (N,)."""
        log_noise_V = self.log_noise_V + (self.log_normaliser + math.log(len(samples_K)))
        told_N = functional.logsigmoid(target_N - log_noise_V[targets_N])
        told_NK = functional.logsigmoid(log_noise_V[samples_K] - noise_NK)
        return -told_N - told_NK.sum(dim=1)


class BlackOut(SampledSoftmax):
    """BlackOut (Ji et al. 2016): discriminates the target from samples by a weighted softmax.

    With u(w) = logit - ln q(w), over the target and those samples that are not the target:

        p(w) = exp(u(w)) / sum of exp(u);  loss = -ln p(target) - sum over samples of ln(1 - p(w))
    """

    noise_power = 0.4

    def losses(
        self, target_N: Tensor, noise_NK: Tensor, targets_N: Tensor, samples_K: Tensor
    ) -> Tensor:
        """Return the loss of each token, (N,)."""
        others_NK = targets_N[:, None] != samples_K
        target_N1 = (target_N - self.log_noise_V[targets_N])[:, None]
        noise_NK = noise_NK - self.log_noise_V[samples_K]
        noise_NK = noise_NK.masked_fill(~others_NK, -math.inf)
        log_sum_N1 = torch.cat([target_N1, noise_NK], dim=1).logsumexp(dim=1, keepdim=True)
        # a sample that has everything is left just below 1
        log_probs_NK = (noise_NK - log_sum_N1).clamp(max=NEARLY_ONE)
        return -(target_N1 - log_sum_N1)[:, 0] - _log_of_rest(log_probs_NK).sum(dim=1)


def _log_of_rest(log_probs: Tensor) -> Tensor:
    """Return ln(1 - p), exact for small p and for p near 1 (Maechler 2012)."""
    is_large = log_probs > -math.log(2)
    # each formula is given only what it is meant for: where() lets NaN gradients through
    near_one = torch.where(is_large, log_probs, -1.0).expm1().neg().log()
    near_zero = torch.where(is_large, -1.0, log_probs).exp().neg().log1p()
    return torch.where(is_large, near_one, near_zero)
