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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import types
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.arrays import Ints, Longs, Shorts
from seqtool.core.errors import ConfigError, counted
from seqtool.core.jit import compiled
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import FullSoftmax, Surroundings
from seqtool.lm.neural.softmax import (
    cross_entropy,
    fused_summaries,
    log_probs,
    read_summaries,
    target_log_probs,
)

_marks = types.int16[::1]
_ids = types.int64[::1]
_entries = types.int32[::1]


@compiled(types.void(_marks, _ids, _marks, types.int64[:, ::1], _ids))
def claim_slots(marks_S, starts_C, marks_C, contexts_NK, targets_N):  # type: ignore[no-untyped-def]
    """Let the n-gram of each target have its slot, if it is free; mark -1 is no context."""
    size = len(marks_S)
    # in the order of the text: where two n-grams want one slot, the first keeps it in every run
    for token in range(len(targets_N)):
        if targets_N[token] < 0:  # a target that is ignored
            continue
        for k in range(contexts_NK.shape[1]):
            context = contexts_NK[token, k]
            slot = starts_C[context] + targets_N[token]
            if slot >= size:  # V is at most S, so once around is enough, and cheaper than %
                slot -= size
            if marks_C[context] > 0 and marks_S[slot] == 0:
                marks_S[slot] = marks_C[context]


@compiled(types.int64(_marks, types.int64, types.int64, types.int16))
def _count(marks_S, begin, end, mark):  # type: ignore[no-untyped-def]
    """Return how many slots of a range have a mark."""
    found = 0
    for slot in range(begin, end):  # without a branch, so that it becomes vector instructions
        found += marks_S[slot] == mark
    return found


@compiled(types.void(_marks, _ids, _marks, types.int64, _ids))
def _count_entries(marks_S, starts_C, marks_C, num_words, begins):  # type: ignore[no-untyped-def]
    """Note where the entries of each context begin, and where the last ones end, [C + 1]."""
    size = len(marks_S)
    begins[0] = 0
    for context in range(len(starts_C)):
        # V slots in a row; those beyond the end of the table are at its beginning
        start, end = starts_C[context], starts_C[context] + num_words
        found = _count(marks_S, start, min(end, size), marks_C[context])
        found += _count(marks_S, 0, max(0, end - size), marks_C[context])
        begins[context + 1] = begins[context] + found


@compiled(types.void(_marks, _ids, _marks, _ids, _entries, _ids))
def _note_entries(marks_S, starts_C, marks_C, begins, words, slots):  # type: ignore[no-untyped-def]
    """Note the word and the slot of each entry, [M]."""
    for context in range(len(starts_C)):
        entry, slot, word = begins[context], starts_C[context], 0
        # frequent words have low ids, so the last entry is often found early
        while entry < begins[context + 1]:
            if slot == len(marks_S):
                slot = 0
            if marks_S[slot] == marks_C[context]:
                words[entry], slots[entry] = word, slot
                entry += 1
            slot += 1
            word += 1


def find_entries(
    marks_S: Shorts, starts_C: Longs, marks_C: Shorts, num_words: int
) -> tuple[Longs, Ints, Longs]:
    """Return where each context's entries begin, [C + 1], and of each its word and slot, [M]."""
    # counted first: counting is fast, and the second pass can then stop at the last entry
    begins = np.empty(len(starts_C) + 1, np.int64)
    _count_entries(marks_S, starts_C, marks_C, num_words, begins)
    words, slots = np.empty(begins[-1], np.int32), np.empty(begins[-1], np.int64)
    _note_entries(marks_S, starts_C, marks_C, begins, words, slots)
    return begins, words, slots


def _signatures(*names: str) -> list[Any]:
    """Return the signatures of a loop over logits, in single and in double precision."""
    fixed = {"rows": _ids, "contexts": types.int64[:, ::1], "begins": _ids, "words": _entries}
    signatures = []
    for kind in (types.float32, types.float64):
        of_kind = {"logits": kind[:, ::1], "vector": kind[::1]}
        signatures.append(types.void(*({**fixed, **of_kind}[name] for name in names)))
    return signatures


@compiled(_signatures("logits", "rows", "contexts", "begins", "words", "vector"))
def add_weights(logits_RV, rows_R, contexts_NK, begins, words_M, weights_M):  # type: ignore[no-untyped-def]
    """Add the weights of the n-grams to the logits of the tokens `rows`."""
    # by row, whose V logits are in the cache; entries of a context are in the order of words
    for r in range(len(rows_R)):
        for k in range(contexts_NK.shape[1]):
            context = contexts_NK[rows_R[r], k]
            for entry in range(begins[context], begins[context + 1]):
                logits_RV[r, words_M[entry]] += weights_M[entry]


@compiled(_signatures("logits", "vector", "rows", "contexts", "begins", "words", "vector"))
def collect_gradients(grads_RV, shares_R, rows_R, contexts_NK, begins, words_M, grad_M):  # type: ignore[no-untyped-def]
    """Add the gradients of logits, each row times its share, to those of the n-grams' weights."""
    # one thread: two tokens with the same context add to the same entries
    for r in range(len(rows_R)):
        share = shares_R[r]  # 1 / number of targets, or 0 for a target that is ignored
        for k in range(contexts_NK.shape[1]):
            context = contexts_NK[rows_R[r], k]
            for entry in range(begins[context], begins[context + 1]):
                grad_M[entry] += share * grads_RV[r, words_M[entry]]


NOTHING = -1
_LARGEST_MARK = 2**15 - 1
# odd constants near 2^64 times the golden ratio and its like (Steele et al. 2014)
_MULTIPLIERS = (-7046029254386353131, -4658895280553007687)


def mixed(hashes: Tensor) -> Tensor:
    """Spread the bits of 64-bit numbers (after SplitMix64)."""
    hashes = (hashes ^ ((hashes >> 30) & (2**34 - 1))) * _MULTIPLIERS[1]
    return hashes ^ ((hashes >> 27) & (2**37 - 1))


class FoundNgrams(NamedTuple):
    """The n-grams that may follow the contexts of a batch.

    Attributes:
        contexts_NK: which of the different contexts each token has.
        begins: where the entries of each context begin, [C + 1].
        words_M: the word of each entry.
        slots_M: its slot.
    """

    contexts_NK: Longs
    begins: Longs
    words_M: npt.NDArray[np.int32]
    slots_M: Longs


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

    def history_after(self, ids_TB: Tensor, history_BK: Tensor) -> Tensor:
        """Return the last K words after a window, (B, K)."""
        return torch.cat([history_BK.t(), ids_TB])[len(ids_TB) :].t()

    def context_hashes(self, ids_TB: Tensor, history_BK: Tensor) -> Tensor:
        """Return the hash of each token's contexts, (T, B, K).

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
            # from the last word backwards: each context's hash goes into that of the next longer
            hashes_TB = mixed((hashes_TB + last_TB + 1) * _MULTIPLIERS[0])
            contexts.append(torch.where(is_whole_TB, hashes_TB, 0))
        return torch.stack(contexts, dim=2)

    def places(self, hashes: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the n-grams of each context start, and its mark, -1 of no context."""
        # of other bits than the mark's: contexts that start at one slot are still told apart
        starts = torch.remainder(hashes >> 15, len(self.weight))
        marks = torch.remainder(hashes, _LARGEST_MARK) + 1
        return starts, marks.masked_fill(hashes == 0, -1).to(torch.int16)

    def find(self, hashes_NK: Tensor, targets_N: Tensor | None = None) -> FoundNgrams:
        """Find the n-grams that a batch needs; those that `targets` make claim a slot first."""
        # most contexts recur in a batch, and each is looked up once
        hashes_C, contexts_NK = torch.unique(hashes_NK, return_inverse=True)
        starts_C, marks_C = (part.numpy() for part in self.places(hashes_C))
        marks_S, contexts = self.marks_S.numpy(), contexts_NK.numpy()
        if targets_N is not None:
            claim_slots(marks_S, starts_C, marks_C, contexts, targets_N.numpy())
        found = find_entries(marks_S, starts_C, marks_C, self.vocabulary_size)
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


class NgramLogits:
    """What the n-grams of a batch add to its logits: see `softmax.Additions`."""

    def __init__(self, direct: DirectConnections, found: FoundNgrams) -> None:
        self._found = found[:-1]
        slots_M = torch.from_numpy(found.slots_M)
        self.weights_M = functional.embedding(slots_M, direct.weight, sparse=True)[:, 0]
        self._values_M = self.weights_M.detach().numpy()
        self._grad_M = np.zeros_like(self._values_M)

    def add_to(self, logits_RV: Tensor, rows_R: Tensor) -> None:
        """Add the weights of the n-grams that each row's contexts make."""
        add_weights(logits_RV.numpy(), rows_R.numpy(), *self._found, self._values_M)

    def collect(self, grads_RV: Tensor, shares_R1: Tensor, rows_R: Tensor) -> None:
        """Take the gradients of the rows, each times its share."""
        shares_R = shares_R1[:, 0].contiguous().numpy()
        collect_gradients(grads_RV.numpy(), shares_R, rows_R.numpy(), *self._found, self._grad_M)

    def gradient(self) -> Tensor:
        """Return the gradient of the weights, (M,)."""
        return torch.from_numpy(self._grad_M)


class MaxentSoftmax(FullSoftmax):
    """The full softmax with direct connections from n-grams."""

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__(config, around)
        self.direct = DirectConnections(
            around.vocabulary_size, config.direct_order, config.direct_size, rate=config.direct_rate
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
            return cross_entropy(
                hidden_NH, softmax.weight, softmax.bias, targets_N, additions=additions
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
        added_NV = softmax.direct.logits(self.hashes_NK)
        return log_probs(hidden_NH, softmax.weight, softmax.bias, added_NV)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        additions = None if torch.is_grad_enabled() else self._additions()
        if additions is None:
            log_probs_NV = self.log_probs(hidden_NH)
            chosen_N = log_probs_NV.gather(1, targets_N.clamp(min=0)[:, None])[:, 0]
            return chosen_N.to(hidden_NH.dtype).masked_fill(targets_N == IGNORED, 0.0)
        softmax = self.softmax
        return target_log_probs(hidden_NH, softmax.weight, softmax.bias, targets_N, additions)

    def summarise(
        self, hidden_NH: Tensor, targets_N: Tensor, class_V: Tensor | None, *, entropy: bool
    ) -> list[Tensor]:
        """Return nats of the targets, of a class of symbols, and the entropies, (N,) each."""

        def log_probs_of(rows: slice | Tensor) -> Tensor:
            return self.softmax.after(self.hashes_NK[rows]).log_probs(hidden_NH[rows])

        additions = None if torch.is_grad_enabled() else self._additions()
        if additions is None:
            found = read_summaries(log_probs_of, len(targets_N), class_V, entropy=entropy)
            return [self.target_log_probs(hidden_NH, targets_N), *found]
        softmax = self.softmax
        return fused_summaries(
            hidden_NH,
            softmax.weight,
            softmax.bias,
            targets_N,
            class_V,
            entropy=entropy,
            log_probs_of=log_probs_of,
            additions=additions,
        )
