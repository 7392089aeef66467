"""Output layers: what turns hidden states into probabilities of the next token.

    FullSoftmax        softmax over the whole vocabulary
    AdaptiveSoftmax    softmax in clusters by frequency
    NoiseContrastive   full softmax, trained on samples of noise
    BlackOut           the same, with another loss

Dimensions in names: N tokens, H units, V vocabulary.

A layer answers `loss`, which training minimises, `target_log_probs` and `log_probs`, which are
exact whatever the loss. The softmax itself is in `softmax`; a full one with n-grams in `maxent`.

The adaptive softmax (Grave et al. 2017, "Efficient softmax approximation for GPUs"), with S symbols
of the head (the short list, and one for each other cluster): symbols are ranked by frequency and
cut into clusters.

    rank    0 ... cutoffs[0]   ... cutoffs[1]   ... V
            |  short list  |  cluster 1   |  cluster 2  |

A frequent symbol costs the head alone, p(w | h) = head(w | h); the others p(w | h) = head(cluster
of w | h) x cluster(w | h). The c-th cluster reads a projection of the hidden state of H /
div_value^c units. With tied weights it reads the hidden state itself, and its weight is a slice of
the embedding's (Merity et al. 2018, "An analysis of neural language modeling at multiple scales").

Layers that are trained on K noise samples of the vocabulary, which all tokens share: the noise is
q(w), proportional to count(w)^power. In evaluation mode, and for all probabilities, such a layer is
the full softmax.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.arrays import Longs
from seqtool.core.config import Registry
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import NUM_SPECIALS
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.softmax import (
    cross_entropy,
    fused_summaries,
    log_probs,
    read_summaries,
    target_log_probs,
)

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


def count_symbols(
    ids: npt.NDArray[np.unsignedinteger], vocabulary_size: int, part: range | None = None
) -> Longs:
    """Count the symbols of a text, or of a part of it, block by block."""
    part = range(len(ids)) if part is None else part
    counts = np.zeros(vocabulary_size, np.int64)
    for start in range(part.start, part.stop, IDS_PER_BLOCK):  # bincount copies a block to int64
        stop = min(part.stop, start + IDS_PER_BLOCK)
        counts += np.bincount(ids[start:stop], minlength=vocabulary_size)
    return counts


class OutputLayer(nn.Module, ABC):
    """What follows the last hidden layer.

    Args:
        config: its settings.
        around: what it is built into.

    Attributes:
        needs_counts: whether it is built from the counts of the training text.
    """

    needs_counts = False

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__()

    @abstractmethod
    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean loss over the targets not `IGNORED`; zero without any target.

        In nats; in evaluation mode it is the negative log-likelihood.
        """

    @abstractmethod
    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""

    @abstractmethod
    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""

    def summarise(
        self, hidden_NH: Tensor, targets_N: Tensor, class_V: Tensor | None, *, entropy: bool
    ) -> list[Tensor]:
        """Return nats of the targets, of a class of symbols, and the entropies, (N,) each.

        Args:
            hidden_NH: what it reads.
            targets_N: the targets, none ignored.
            class_V: bool, the class; None, and there is no second tensor.
            entropy: whether there is the last one.
        """
        found = read_summaries(
            lambda rows: self.log_probs(hidden_NH[rows]), len(targets_N), class_V, entropy=entropy
        )
        return [self.target_log_probs(hidden_NH, targets_N), *found]

    @abstractmethod
    def matrices(self) -> Iterator[Tensor]:
        """Yield linear maps of its own, to initialise them."""

    @abstractmethod
    def initialise_biases(self) -> None:
        """Set the biases as training is to start with them."""


OUTPUT_LAYERS: Registry[type[OutputLayer]] = Registry(
    "output layer",
    {
        "full": "seqtool.lm.neural.output:FullSoftmax",
        "adaptive": "seqtool.lm.neural.output:AdaptiveSoftmax",
        "nce": "seqtool.lm.neural.output:NoiseContrastive",
        "blackout": "seqtool.lm.neural.output:BlackOut",
        "maxent": "seqtool.lm.neural.maxent:MaxentSoftmax",
    },
)


class FullSoftmax(OutputLayer):
    """Softmax over the whole vocabulary.

    Attributes:
        weight: (V, H).
    """

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__(config, around)
        shape, weight = (around.vocabulary_size, around.hidden_size), around.tied_weight
        self.is_tied = weight is not None
        self.weight = nn.Parameter(torch.empty(shape)) if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(around.vocabulary_size))

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        return cross_entropy(hidden_NH, self.weight, self.bias, targets_N)

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        return log_probs(hidden_NH, self.weight, self.bias)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        return target_log_probs(hidden_NH, self.weight, self.bias, targets_N)

    def summarise(
        self, hidden_NH: Tensor, targets_N: Tensor, class_V: Tensor | None, *, entropy: bool
    ) -> list[Tensor]:
        """Return nats of the targets, of a class of symbols, and the entropies, (N,) each."""
        if hidden_NH.device.type != "cpu":
            return super().summarise(hidden_NH, targets_N, class_V, entropy=entropy)
        return fused_summaries(
            hidden_NH,
            self.weight,
            self.bias,
            targets_N,
            class_V,
            entropy=entropy,
            log_probs_of=lambda rows: self.log_probs(hidden_NH[rows]),
        )

    def matrices(self) -> Iterator[Tensor]:
        """Yield the weight, unless it is the embedding's."""
        if not self.is_tied:
            yield self.weight

    def initialise_biases(self) -> None:
        """Start at zero."""
        nn.init.zeros_(self.bias)


DIV_VALUE = 4.0


def choose_cutoffs(vocabulary_size: int) -> tuple[int, ...]:
    """Return the cutoffs where none are given: a sixteenth and a quarter of the vocabulary.

    By Zipf's law the three clusters then have some 75, 15 and 10% of the text. Below 1,000 symbols
    there are two clusters, of about the same size.
    """
    if vocabulary_size < 1000:
        return (max(NUM_SPECIALS, vocabulary_size // 2),)
    return vocabulary_size // 16, vocabulary_size // 4


def rank_by_count(vocabulary_size: int, counts: Longs | None) -> Tensor:
    """Return the rank of each symbol by frequency, (V,), `<unk>` and `</s>` first.

    A vocabulary of words or characters is in that order already; one of subwords need not be.
    """
    ranks = np.arange(vocabulary_size)
    if counts is not None:
        # argsort gives the symbol of each rank, and this its inverse
        ranks[NUM_SPECIALS + np.argsort(-counts[NUM_SPECIALS:], kind="stable")] = np.arange(
            NUM_SPECIALS, vocabulary_size
        )
    return torch.from_numpy(ranks)


class Cluster(nn.Module):
    """The softmax over the symbols of one cluster, after a projection.

    Args:
        hidden_size: H.
        size: units that the hidden state is projected to; None leaves out the projection, and the
            weight too, which is then a slice of the embedding's.
        num_symbols: of the cluster.
    """

    def __init__(self, hidden_size: int, size: int | None, num_symbols: int) -> None:
        super().__init__()
        self.projection = None
        if size is not None:
            self.projection = nn.Linear(hidden_size, size, bias=False)
            self.weight = nn.Parameter(torch.empty(num_symbols, size))
        self.bias = nn.Parameter(torch.empty(num_symbols))

    def project(self, hidden_NH: Tensor) -> Tensor:
        """Return what the cluster reads."""
        if self.projection is None:
            return hidden_NH
        projected: Tensor = self.projection(hidden_NH)
        return projected


class AdaptiveSoftmax(OutputLayer):
    """Softmax in clusters by frequency.

    Raises:
        ConfigError: a cutoff is not in the vocabulary.
    """

    needs_counts = True
    ranks_V: Tensor
    cutoffs: Tensor

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__(config, around)
        hidden_size, vocabulary_size = around.hidden_size, around.vocabulary_size
        cutoffs = config.cutoffs or choose_cutoffs(vocabulary_size)
        if cutoffs[-1] >= vocabulary_size:
            raise ConfigError(
                f"cutoffs has {cutoffs[-1]:,}, but the vocabulary has {vocabulary_size:,} symbols",
                hint="give smaller cutoffs, or leave them out",
            )
        starts = [*cutoffs, vocabulary_size]
        self.sizes = [cutoffs[0], *(end - start for start, end in itertools.pairwise(starts))]
        num_clusters, div_value = len(cutoffs), config.div_value or DIV_VALUE
        self.weight = around.tied_weight
        is_tied = self.weight is not None
        # the short list's, unless tied, then one row for each cluster
        rows = num_clusters + (0 if is_tied else cutoffs[0])
        self.head_weight = nn.Parameter(torch.empty(rows, hidden_size))
        self.head_bias = nn.Parameter(torch.empty(cutoffs[0] + num_clusters))
        self.clusters = nn.ModuleList(
            Cluster(
                hidden_size,
                None if is_tied else max(1, int(hidden_size / div_value**number)),
                self.sizes[number],
            )
            for number in range(1, num_clusters + 1)
        )
        self.register_buffer("cutoffs", torch.tensor(cutoffs), persistent=False)
        # saved with the weights: a model that is opened knows no counts to rank by
        self.register_buffer("ranks_V", rank_by_count(vocabulary_size, around.counts))
        self._note_ranks()

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        num_targets = max(1, int((targets_N != IGNORED).sum()))
        parts = self._parts(hidden_NH, targets_N)
        # each part by the number of all targets, so that the sum of the parts is the mean
        return reduce(add, (cross_entropy(*part, num_targets=num_targets) for _, part in parts))

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        head_SH, weights = self._weights()
        head_NS = log_probs(hidden_NH, head_SH, self.head_bias)
        parts = [head_NS[:, : self.sizes[0]]]
        for number, (cluster, weight) in enumerate(zip(self._clusters(), weights, strict=True)):
            inside = log_probs(cluster.project(hidden_NH), weight, cluster.bias)
            parts.append(head_NS[:, self.sizes[0] + number, None] + inside)
        return torch.cat(parts, dim=1)[:, self.ranks_V]

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        parts = self._parts(hidden_NH, targets_N)
        log_probs_N = target_log_probs(*next(parts)[1])
        for rows, part in parts:
            log_probs_N = log_probs_N.index_add(0, rows, target_log_probs(*part))
        return log_probs_N

    def _parts(
        self, hidden_NH: Tensor, targets_N: Tensor
    ) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]]:
        """Yield the rows of the head and of each cluster, and what it reads, weight, bias, targets.

        Cluster 0 is the short list; an ignored target is in none.
        """
        ranks_N = self.ranks_V[targets_N.clamp(min=0)]
        is_ignored_N = targets_N == IGNORED
        # right: the rank that is a cutoff is the first of the next cluster
        numbers_N = torch.bucketize(ranks_N, self.cutoffs, right=True)
        numbers_N = numbers_N.masked_fill(is_ignored_N, 0)
        head_N = torch.where(numbers_N == 0, ranks_N, self.sizes[0] - 1 + numbers_N)
        head_SH, weights = self._weights()
        head_N = head_N.masked_fill(is_ignored_N, IGNORED)
        yield torch.arange(len(head_N)), (hidden_NH, head_SH, self.head_bias, head_N)
        for number, (cluster, weight) in enumerate(zip(self._clusters(), weights, strict=True)):
            rows = (numbers_N == number + 1).nonzero()[:, 0]
            read, ranks = cluster.project(hidden_NH[rows]), ranks_N[rows] - self.cutoffs[number]
            yield rows, (read, weight, cluster.bias, ranks)

    def _weights(self) -> tuple[Tensor, list[Tensor]]:
        """Return the weights of the head (S, H), and of each cluster."""
        if self.weight is None:
            return self.head_weight, [cluster.weight for cluster in self._clusters()]
        ranked_VH = self.weight
        if not self._is_ranked:
            ranked_VH = ranked_VH[torch.argsort(self.ranks_V)]
        short_list, *others = torch.split(ranked_VH, self.sizes)
        return torch.cat([short_list, self.head_weight]), others

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._note_ranks()

    def _note_ranks(self) -> None:
        """Note whether symbols have their ids for ranks: then none need be moved."""
        ranks_V = self.ranks_V
        ids_V = torch.arange(len(ranks_V), device=ranks_V.device)
        self._is_ranked = torch.equal(ranks_V, ids_V)
        if not self._is_ranked and not torch.equal(ranks_V.sort().values, ids_V):
            raise ValueError("the ranks are not each symbol's own")

    def _clusters(self) -> list[Cluster]:
        return [cluster for cluster in self.clusters if isinstance(cluster, Cluster)]

    def matrices(self) -> Iterator[Tensor]:
        """Yield the weights and projections, but for what is the embedding's."""
        yield self.head_weight
        for cluster in self._clusters():
            if cluster.projection is not None:
                yield cluster.projection.weight
            if self.weight is None:
                yield cluster.weight

    def initialise_biases(self) -> None:
        """Start at zero."""
        nn.init.zeros_(self.head_bias)
        for cluster in self._clusters():
            nn.init.zeros_(cluster.bias)


# the largest logarithm of a sample's probability
NEARLY_ONE = -1e-6


class SampledSoftmax(FullSoftmax):
    """What sampled losses share: the noise, and the logits of targets and samples.

    Without counts of the training text there is no training.
    """

    needs_counts = True
    noise_power = 1.0
    log_noise_V: Tensor
    cumulated_V: Tensor

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__(config, around)
        self.num_samples, self.sparse = config.noise_samples, around.sparse
        noise_V = torch.ones(0, dtype=torch.float64)
        if around.counts is not None:
            # what the text never has is drawn as if it had it once
            seen_V = torch.from_numpy(around.counts).double().clamp(min=1)
            power = self.noise_power if config.noise_power is None else config.noise_power
            noise_V = seen_V**power
            noise_V /= noise_V.sum()
        self.register_buffer("log_noise_V", noise_V.log().float(), persistent=False)
        # in float64: next to 1, a step of float32, 6e-8, may be more than the share of a rare word
        self.register_buffer("cumulated_V", noise_V.cumsum(0), persistent=False)

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
        # the last sum may be rounded to below 1, and a number drawn between the two
        last = len(self.cumulated_V) - 1
        return torch.searchsorted(self.cumulated_V, drawn_K, right=True).clamp(max=last)

    @abstractmethod
    def losses(
        self, target_N: Tensor, noise_NK: Tensor, targets_N: Tensor, samples_K: Tensor
    ) -> Tensor:
        """Return the loss of each token from the logits of its target and of the samples, (N,)."""


class NoiseContrastive(SampledSoftmax):
    """Noise-contrastive estimation (Mnih & Teh 2012), with a constant ln Z (Chen et al. 2015).

    With p(w) = exp(logit) / Z, a symbol is data rather than noise with the probability
    sigmoid(ln p(w) - ln K q(w)); the loss is the negative log-likelihood of telling the target from
    the K samples. What is learnt is nearly normalised, with the constant for Z.

    Attributes:
        log_normaliser: ln Z; ln V, that of logits near zero, unless it is set.
    """

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__(config, around)
        given = config.log_normaliser
        self.log_normaliser = math.log(around.vocabulary_size) if given is None else given

    def losses(
        self, target_N: Tensor, noise_NK: Tensor, targets_N: Tensor, samples_K: Tensor
    ) -> Tensor:
        """Return -ln P(data | target) - sum of ln P(noise | sample), (N,)."""
        # ln(Z K q): logit - ln Z is compared with ln(K q)
        log_noise_V = self.log_noise_V + (self.log_normaliser + math.log(len(samples_K)))
        of_target_N = functional.logsigmoid(target_N - log_noise_V[targets_N])
        of_noise_NK = functional.logsigmoid(log_noise_V[samples_K] - noise_NK)
        return -of_target_N - of_noise_NK.sum(dim=1)


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
        noise_NK = (noise_NK - self.log_noise_V[samples_K]).masked_fill(~others_NK, -math.inf)
        log_sum_N1 = torch.cat([target_N1, noise_NK], dim=1).logsumexp(dim=1, keepdim=True)
        log_prob_N, log_probs_NK = (target_N1 - log_sum_N1)[:, 0], noise_NK - log_sum_N1
        # a sample that has everything is left just below 1
        return -log_prob_N - _log_of_rest(log_probs_NK.clamp(max=NEARLY_ONE)).sum(dim=1)


def _log_of_rest(log_probs: Tensor) -> Tensor:
    """Return ln(1 - p), exact for small p and for p near 1 (Maechler 2012)."""
    is_large = log_probs > -math.log(2)
    # each formula is given only what it is meant for: where() lets NaN gradients through
    near_one = torch.where(is_large, log_probs, -1.0).expm1().neg().log()
    near_zero = torch.where(is_large, -1.0, log_probs).exp().neg().log1p()
    return torch.where(is_large, near_one, near_zero)
