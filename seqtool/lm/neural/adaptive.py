"""The adaptive softmax (Grave et al. 2017, "Efficient softmax approximation for GPUs").

Dimensions in names: N tokens, H units, V vocabulary, S symbols of the head (the short list, and one
for each other cluster).

Symbols are ranked by frequency and cut into clusters:

    rank    0 ... cutoffs[0]   ... cutoffs[1]   ... V
            |  short list  |  cluster 1   |  cluster 2  |

A frequent symbol costs the head alone, p(w | h) = head(w | h); the others p(w | h) = head(cluster
of w | h) x cluster(w | h). The c-th cluster reads a projection of the hidden state of H /
div_value^c units. With tied weights it reads the hidden state itself, and its weight is a slice of
the embedding's (Merity et al. 2018, "An analysis of neural language modeling at multiple scales").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqtool.core.arrays import Longs
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import NUM_SPECIALS
from seqtool.lm.neural import cross_entropy
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import OutputLayer, Surroundings

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
        ranks[NUM_SPECIALS + np.argsort(-counts[NUM_SPECIALS:], kind="stable")] = np.arange(
            NUM_SPECIALS, vocabulary_size
        )
    return torch.from_numpy(ranks)


class Cluster(nn.Module):
    """The softmax over the symbols of one cluster, after a projection.

    Args:
        hidden_size: H.
        size: units that the hidden state is projected to; None leaves out the projection.
        num_symbols: of the cluster.
        weight: as wide as the projection; None where the caller gives it at each call.
    """

    def __init__(
        self, hidden_size: int, size: int | None, num_symbols: int, *, has_weight: bool = True
    ) -> None:
        super().__init__()
        self.projection = None
        if size is not None:
            self.projection = nn.Linear(hidden_size, size, bias=False)
        if has_weight:
            self.weight = nn.Parameter(torch.empty(num_symbols, size or hidden_size))
        self.bias = nn.Parameter(torch.empty(num_symbols))

    def project(self, hidden_NH: Tensor) -> Tensor:
        """Return what the cluster reads."""
        if self.projection is None:
            return hidden_NH
        projected: Tensor = self.projection(hidden_NH)
        return projected


class AdaptiveSoftmax(OutputLayer):
    """Softmax in clusters by frequency.

    Args:
        hidden_size: H.
        vocabulary_size: V.
        cutoffs: ranks at which a cluster begins, ascending, between 0 and V; none as
            `choose_cutoffs` chooses.
        div_value: each cluster reads so many times fewer units than the one before.
        weight: the embedding's weight (V, H), when tied.
        counts: of the symbols [V], to rank them; None takes their order.

    Raises:
        ConfigError: a cutoff is not in the vocabulary.
    """

    needs_counts = True
    ranks_V: Tensor
    cutoffs: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocabulary_size: int,
        cutoffs: tuple[int, ...] | None = None,
        *,
        div_value: float = DIV_VALUE,
        weight: Tensor | None = None,
        counts: Longs | None = None,
    ) -> None:
        super().__init__()
        cutoffs = cutoffs or choose_cutoffs(vocabulary_size)
        if cutoffs[-1] >= vocabulary_size:
            raise ConfigError(
                f"cutoffs has {cutoffs[-1]:,}, but the vocabulary has {vocabulary_size:,} symbols",
                hint="give smaller cutoffs, or leave them out",
            )
        starts = [*cutoffs, vocabulary_size]
        self.sizes = [cutoffs[0], *(end - start for start, end in itertools.pairwise(starts))]
        num_clusters = len(cutoffs)
        self.weight = weight
        # the short list's, unless tied, then one row for each cluster
        rows = num_clusters + (0 if weight is not None else cutoffs[0])
        self.head_weight = nn.Parameter(torch.empty(rows, hidden_size))
        self.head_bias = nn.Parameter(torch.empty(cutoffs[0] + num_clusters))
        self.clusters = nn.ModuleList(
            Cluster(
                hidden_size,
                None if weight is not None else max(1, int(hidden_size / div_value**number)),
                self.sizes[number],
                has_weight=weight is None,
            )
            for number in range(1, num_clusters + 1)
        )
        self.register_buffer("cutoffs", torch.tensor(cutoffs), persistent=False)
        self.register_buffer("ranks_V", rank_by_count(vocabulary_size, counts))
        self._note_ranks()

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> AdaptiveSoftmax:
        """Build it as configured."""
        return cls(
            around.hidden_size,
            around.vocabulary_size,
            config.cutoffs,
            div_value=config.div_value or DIV_VALUE,
            weight=around.tied_weight,
            counts=around.counts,
        )

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        numbers_N, head_targets_N, ranks_N = self._split(targets_N)
        head_SH, weights = self._weights()
        num_targets = max(1, int((targets_N != IGNORED).sum()))
        loss = cross_entropy.cross_entropy(
            hidden_NH,
            head_SH,
            self.head_bias,
            head_targets_N,
            num_targets=num_targets,
        )
        for number, (cluster, weight) in enumerate(zip(self._clusters(), weights, strict=True)):
            rows = (numbers_N == number + 1).nonzero()[:, 0]
            loss = loss + cross_entropy.cross_entropy(
                cluster.project(hidden_NH[rows]),
                weight,
                cluster.bias,
                ranks_N[rows] - self.cutoffs[number],
                num_targets=num_targets,
            )
        return loss

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        head_SH, weights = self._weights()
        head_NS = cross_entropy.log_probs(hidden_NH, head_SH, self.head_bias)
        parts = [head_NS[:, : self.sizes[0]]]
        for number, (cluster, weight) in enumerate(zip(self._clusters(), weights, strict=True)):
            inside = cross_entropy.log_probs(cluster.project(hidden_NH), weight, cluster.bias)
            parts.append(head_NS[:, self.sizes[0] + number, None] + inside)
        return torch.cat(parts, dim=1)[:, self.ranks_V]

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        numbers_N, head_targets_N, ranks_N = self._split(targets_N)
        head_SH, weights = self._weights()
        log_probs_N = cross_entropy.target_log_probs(
            hidden_NH, head_SH, self.head_bias, head_targets_N
        )
        for number, (cluster, weight) in enumerate(zip(self._clusters(), weights, strict=True)):
            rows = (numbers_N == number + 1).nonzero()[:, 0]
            inside = cross_entropy.target_log_probs(
                cluster.project(hidden_NH[rows]),
                weight,
                cluster.bias,
                ranks_N[rows] - self.cutoffs[number],
            )
            log_probs_N = log_probs_N.index_add(0, rows, inside)
        return log_probs_N

    def _split(self, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return each target's cluster (0 is the short list), target of the head, and rank."""
        ranks_N = self.ranks_V[targets_N.clamp(min=0)]
        is_ignored_N = targets_N == IGNORED
        numbers_N = torch.bucketize(ranks_N, self.cutoffs, right=True)
        numbers_N = numbers_N.masked_fill(is_ignored_N, 0)
        head_N = torch.where(numbers_N == 0, ranks_N, self.sizes[0] - 1 + numbers_N)
        return numbers_N, head_N.masked_fill(is_ignored_N, IGNORED), ranks_N

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
        self._is_ranked = torch.equal(ranks_V, torch.arange(len(ranks_V), device=ranks_V.device))

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
