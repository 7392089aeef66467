"""Class-based softmax (Goodman 2001, "Classes for fast maximum entropy training").

    p(w | h) = p(class of w | h) p(w | class of w, h)

Each word belongs to one class. A token costs the logits of all classes and of the words of its own:
with classes of about the same share of the text, C + V / C in place of V in the mean. Classes are
cut by falling frequency (Mikolov et al. 2011, "Extensions of recurrent neural network language
model"), or read from a file.

Dimensions in names: N tokens, H units, V vocabulary, C classes, K targets in the order of their
classes, R rows of one class, S its words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.core.arrays import Longs
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import (
    FullSoftmax,
    OutputLayer,
    Surroundings,
    cross_entropy,
    log_probs,
    target_log_probs,
)
from seqtool.lm.neural.softmaxes import rank_by_count

Members = slice | Tensor  # of one class: a range of ids where they have one, else the ids


def classes_by_count(vocabulary_size: int, num_classes: int, counts: Longs) -> Longs:
    """Return the class of each symbol, [V], by falling frequency.

    Each class takes symbols until it has its share of what is left of the text, one at least.
    """
    order_V = torch.argsort(rank_by_count(vocabulary_size, counts)).numpy()
    # what the text never has takes room as if it came once
    sums_V = np.cumsum(np.maximum(counts[order_V], 1))
    class_V, begin, done = np.empty(vocabulary_size, np.int64), 0, 0
    for number in range(num_classes):
        left = num_classes - number
        wanted = done + (sums_V[-1] - done) / left
        # with the symbol that reaches the share; each class after it is left one at least
        end = int(np.searchsorted(sums_V, wanted)) + 1
        end = vocabulary_size if left == 1 else min(end, vocabulary_size - left + 1)
        class_V[order_V[begin:end]] = number
        begin, done = end, int(sums_V[end - 1])
    return class_V


class ClassSoftmax(FullSoftmax):
    """Softmax over classes, and within each over its words.

    Attributes:
        class_V: the class of each word.
        class_weight: (C, H).
        class_bias: (C,).

    Raises:
        ConfigError: there are more classes than symbols.
    """

    needs_counts = True
    class_V: Tensor

    def __init__(self, config: OutputConfig, around: Surroundings) -> None:
        super().__init__(config, around)
        size = around.vocabulary_size
        num = config.num_classes or round(size**0.5)
        if num > size:
            raise ConfigError(
                f"num_classes is {num:,}, but the vocabulary has {size:,} symbols",
                hint="give a smaller number, or leave it out",
            )
        if around.classes is not None:
            class_V = around.classes.astype(np.int64)
        else:  # of a model that is opened, they are read with the weights
            counts = np.ones(size, np.int64) if around.counts is None else around.counts
            class_V = classes_by_count(size, num, counts)
        self.register_buffer("class_V", torch.from_numpy(class_V))
        self.class_weight = nn.Parameter(torch.empty(num, around.hidden_size))
        self.class_bias = nn.Parameter(torch.zeros(num))
        if not self.class_weight.is_meta:  # which has shapes alone
            self._note_members()

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        num_targets = (targets_N != IGNORED).sum().clamp(min=1)
        of_classes = cross_entropy(
            hidden_NH, self.class_weight, self.class_bias, self._classes(targets_N)
        )
        return of_classes - self._within(hidden_NH, targets_N).sum() / num_targets

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        class_NC = log_probs(hidden_NH, self.class_weight, self.class_bias)
        hidden_NH = hidden_NH.to(self.weight.dtype)
        logits_NV = functional.linear(hidden_NH, self.weight, self.bias).double()
        class_NV = self.class_V.expand_as(logits_NV)
        largest_NC = torch.full_like(class_NC, -torch.inf).scatter_reduce(
            1, class_NV, logits_NV.detach(), "amax"
        )
        # less the largest of its class: no exp overflows, and no class has a sum of zero
        logits_NV = logits_NV - largest_NC.gather(1, class_NV)
        sums_NC = torch.zeros_like(class_NC).scatter_add(1, class_NV, logits_NV.exp())
        return logits_NV + (class_NC - sums_NC.log()).gather(1, class_NV)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        classes_N = self._classes(targets_N)
        of_classes_N = target_log_probs(hidden_NH, self.class_weight, self.class_bias, classes_N)
        return of_classes_N + self._within(hidden_NH, targets_N)

    def summarise(
        self, hidden_NH: Tensor, targets_N: Tensor, class_V: Tensor | None, *, entropy: bool
    ) -> list[Tensor]:
        """Return nats of the targets, of a class of symbols, and the entropies, (N,) each."""
        return OutputLayer.summarise(self, hidden_NH, targets_N, class_V, entropy=entropy)

    def _classes(self, targets_N: Tensor) -> Tensor:
        """Return the classes of targets; that of an `IGNORED` one is `IGNORED`."""
        classes_N = self.class_V[targets_N.clamp(min=0)]
        return classes_N.masked_fill(targets_N == IGNORED, IGNORED)

    def _within(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return ln p(target | its class, h), (N,), 0 for `IGNORED` ones."""
        classes_N = self._classes(targets_N)
        num_ignored = int((targets_N == IGNORED).sum())
        order_K = torch.argsort(classes_N, stable=True)[num_ignored:]  # IGNORED is below zero
        places_K = self._places_V[targets_N[order_K]]
        nums_C = torch.bincount(classes_N[order_K], minlength=len(self.class_bias)).tolist()
        read_KH = hidden_NH[order_K].to(self.weight.dtype)
        with torch.autocast(hidden_NH.device.type, enabled=False):
            log_probs_K: Tensor = _WithinClasses.apply(  # type: ignore[no-untyped-call]
                read_KH, self.weight, self.bias, places_K, nums_C, self._members
            )
        return log_probs_K.new_zeros(len(targets_N)).index_copy(0, order_K, log_probs_K)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._note_members()

    def _note_members(self) -> None:
        """Note the words of each class, and each word's place among them."""
        class_V, num = self.class_V.cpu(), len(self.class_bias)
        # a class beyond the last counts in one bin too many, which is refused
        nums_C = torch.bincount(class_V.clamp(0, num), minlength=num)
        if int(class_V.min()) < 0 or len(nums_C) > num or not bool(nums_C.all()):
            raise ValueError("the classes are not numbered one after another")
        ids_V = torch.argsort(class_V, stable=True)
        places_V = torch.empty_like(ids_V)
        members: list[Members] = []
        for ids_S in torch.split(ids_V, nums_C.tolist()):
            places_V[ids_S] = torch.arange(len(ids_S))
            # the sort is stable, so that ids ascend: first and last tell whether they are a range
            first, last = int(ids_S[0]), int(ids_S[-1])
            is_range = last - first + 1 == len(ids_S)
            members.append(slice(first, last + 1) if is_range else ids_S.to(self.class_V.device))
        self._noted = members
        self.register_buffer("_places_V", places_V.to(self.class_V.device), persistent=False)

    _places_V: Tensor

    @property
    def _members(self) -> list[Members]:
        """Return the words of each class, on the device that the layer was moved to.

        They are no buffers, which a saved state of a run would have to hold.
        """
        device = self.class_V.device
        if any(isinstance(ids, Tensor) and ids.device != device for ids in self._noted):
            self._noted = [ids if isinstance(ids, slice) else ids.to(device) for ids in self._noted]
        return self._noted

    def matrices(self) -> Iterator[Tensor]:
        """Yield the weight of the classes, and that of the words, unless it is the embedding's."""
        yield self.class_weight
        yield from super().matrices()

    def initialise_biases(self) -> None:
        """Start at zero."""
        super().initialise_biases()
        nn.init.zeros_(self.class_bias)


class _WithinClasses(torch.autograd.Function):
    """ln p(target | its class, h) of targets in the order of their classes.

    The products of a class are made at once for all of its targets, in the weight's own type: they
    are small. What is kept for the gradient are the probabilities within the classes alone.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        places_K: Tensor,
        nums_C: Sequence[int],
        members: Sequence[Members],
    ) -> Tensor:
        """Return them, (K,).

        Args:
            ctx: of the function.
            hidden_KH: what the softmaxes read.
            weight_VH: of all words.
            bias_V: theirs.
            places_K: where each target stands in its class.
            nums_C: how many targets are of each class.
            members: the words of each class.
        """
        log_probs_K = hidden_KH.new_empty(len(hidden_KH))
        ctx.blocks = []
        for rows, ids in _blocks(nums_C, members):
            logits_RS = torch.addmm(bias_V[ids], hidden_KH[rows], weight_VH[ids].t())
            log_probs_RS = torch.log_softmax(logits_RS, dim=1)
            places_R1 = places_K[rows, None]
            log_probs_K[rows] = log_probs_RS.gather(1, places_R1)[:, 0]
            # the gradient of ln p by the logits is onehot(target) - p
            grads_RS = log_probs_RS.exp_().neg_()
            grads_RS.scatter_add_(1, places_R1, grads_RS.new_ones(1, 1).expand_as(places_R1))
            ctx.blocks.append((rows, ids, grads_RS))
        ctx.save_for_backward(hidden_KH, weight_VH)
        return log_probs_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_K: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of what was read, the weight and the bias."""
        hidden_KH, weight_VH = ctx.saved_tensors
        grad_hidden_KH, grad_weight_VH = torch.empty_like(hidden_KH), torch.zeros_like(weight_VH)
        grad_bias_V = weight_VH.new_zeros(len(weight_VH))
        for rows, ids, kept_RS in ctx.blocks:
            grads_RS = kept_RS * grad_K[rows, None]
            # rows are slices, so that `out` is a view; a class is one block: no row comes twice
            torch.mm(grads_RS, weight_VH[ids], out=grad_hidden_KH[rows])
            grad_weight_VH[ids] = torch.mm(grads_RS.t(), hidden_KH[rows])
            grad_bias_V[ids] = grads_RS.sum(dim=0)
        return grad_hidden_KH, grad_weight_VH, grad_bias_V, None, None, None


def _blocks(nums_C: Sequence[int], members: Sequence[Members]) -> Iterator[tuple[slice, Members]]:
    """Yield the rows of each class that has some, and its words."""
    ends = itertools.accumulate(nums_C)
    for end, num, ids in zip(ends, nums_C, members, strict=True):
        if num:
            yield slice(end - num, end), ids
