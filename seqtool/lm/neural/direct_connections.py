"""The hash table of direct connections from n-grams to the output: see `maxent`.

Dimensions in names: T steps, B streams, N tokens, K contexts of a token (its last word, its last
two words, ...), C different contexts of a batch, V vocabulary, S slots, M entries found for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.errors import ConfigError, counted
from seqtool.lm.neural.data import IGNORED

NOTHING = -1
_LARGEST_MARK = 2**15 - 1
# odd constants near 2^64 times the golden ratio and its like (Steele et al. 2014)
_MULTIPLIERS = (-7046029254386353131, -4658895280553007687)


def mixed(hashes: Tensor) -> Tensor:
    """Spread the bits of 64-bit numbers (after SplitMix64)."""
    hashes = (hashes ^ ((hashes >> 30) & (2**34 - 1))) * _MULTIPLIERS[1]
    return hashes ^ ((hashes >> 27) & (2**37 - 1))


@dataclass(frozen=True)
class FoundNgrams:
    """The n-grams that may follow the contexts of a batch.

    Attributes:
        contexts_NK: which of the different contexts each token has.
        begins: where the entries of each context begin, [C + 1].
        words_M: the word of each entry.
        slots_M: its slot.
    """

    contexts_NK: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    words_M: npt.NDArray[np.int32]
    slots_M: npt.NDArray[np.int64]


class DirectConnections(nn.Module):
    """The hash table of n-gram weights.

    Args:
        vocabulary_size: V.
        order: the longest n-grams; K is one less.
        size: S.
        rate: its learning rate.

    Attributes:
        sparse: the weight's gradient is sparse, as `seqtool.training.optimisers` asks.
        own_rate: the weight's learning rate, as `seqtool.training.optimisers` asks.

    Raises:
        ConfigError: the table has fewer slots than the vocabulary symbols.
    """

    sparse = True
    marks_S: Tensor

    def __init__(self, vocabulary_size: int, order: int, size: int, *, rate: float = 0.3) -> None:
        super().__init__()
        if size < vocabulary_size:
            raise ConfigError(
                f"direct_size is {size:,}, but the vocabulary has "
                f"{counted(vocabulary_size, 'symbol')}",
                hint="make direct_size several times the number of different n-grams",
            )
        self.vocabulary_size, self.num_contexts = vocabulary_size, order - 1
        self.weight = nn.Parameter(torch.zeros(size, 1))
        self.own_rate = rate
        self.register_buffer("marks_S", torch.zeros(size, dtype=torch.int16))

    def initial_history(self, batch: int) -> Tensor:
        """Return the words before the text, (B, K): none."""
        return torch.full((batch, self.num_contexts), NOTHING, device=self.weight.device)

    def read(self, ids_TB: Tensor, history_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hash of each token's contexts, (T, B, K), and the last K words after them.

        A context that would begin before the text has the hash 0.
        """
        num_steps = len(ids_TB)
        words = torch.cat([history_BK.t(), ids_TB])  # (K + T, B)
        hashes_TB = torch.zeros_like(ids_TB)
        is_whole_TB = torch.ones_like(ids_TB, dtype=torch.bool)
        contexts = []
        for k in range(self.num_contexts):
            start = self.num_contexts - k
            last_TB = words[start : start + num_steps]
            is_whole_TB = is_whole_TB & (last_TB != NOTHING)
            hashes_TB = mixed((hashes_TB + last_TB + 1) * _MULTIPLIERS[0])
            contexts.append(torch.where(is_whole_TB, hashes_TB, 0))
        return torch.stack(contexts, dim=2), words[num_steps:].t()

    def places(self, hashes: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the n-grams of each context start, and its mark, -1 of no context."""
        starts = torch.remainder(hashes >> 15, len(self.weight))
        marks = torch.remainder(hashes, _LARGEST_MARK) + 1
        return starts, marks.masked_fill(hashes == 0, -1).to(torch.int16)

    def find(self, hashes_NK: Tensor, targets_N: Tensor | None = None) -> FoundNgrams:
        """Find the n-grams that a batch needs; those that `targets` make claim a slot first."""
        from seqtool.lm.neural import hashed_ngrams

        hashes_C, contexts_NK = torch.unique(hashes_NK, return_inverse=True)
        starts_C, marks_C = (part.numpy() for part in self.places(hashes_C))
        marks_S, contexts = self.marks_S.numpy(), contexts_NK.numpy()
        if targets_N is not None:
            hashed_ngrams.claim(marks_S, starts_C, marks_C, contexts, targets_N.numpy())
        found = hashed_ngrams.find(marks_S, starts_C, marks_C, self.vocabulary_size)
        return FoundNgrams(contexts, *found)

    def logits(self, hashes_NK: Tensor, targets_N: Tensor | None = None) -> Tensor:
        """Return what is added to the logits, (N, V), by plain operations, on any device."""
        words_V = torch.arange(self.vocabulary_size, device=hashes_NK.device)
        starts_NK, marks_NK = self.places(hashes_NK)
        if targets_N is not None:
            self._claim(starts_NK, marks_NK, targets_N)
        total_NV = self.weight.new_zeros(len(hashes_NK), self.vocabulary_size)
        for starts_N, marks_N in zip(starts_NK.unbind(1), marks_NK.unbind(1), strict=True):
            slots_NV = torch.remainder(starts_N[:, None] + words_V, len(self.weight))
            at = (self.marks_S[slots_NV] == marks_N[:, None]).nonzero(as_tuple=True)
            weights_M = functional.embedding(slots_NV[at], self.weight, sparse=True)[:, 0]
            total_NV = total_NV.index_put(at, weights_M, accumulate=True)
        return total_NV

    def _claim(self, starts_NK: Tensor, marks_NK: Tensor, targets_N: Tensor) -> None:
        """Let n-grams have their slots, if free; of several for one slot, that of the least row."""
        slots_NK = torch.remainder(starts_NK + targets_N[:, None], len(self.weight))
        claims = (marks_NK > 0) & (targets_N != IGNORED)[:, None]
        slots, marks = slots_NK[claims], marks_NK[claims]
        different, inverse = torch.unique(slots, return_inverse=True)
        rows = torch.arange(len(slots), device=slots.device)
        first = torch.full_like(different, len(slots)).scatter_reduce(0, inverse, rows, "amin")
        is_free = self.marks_S[different] == 0
        self.marks_S[different[is_free]] = marks[first[is_free]]
