"""The softmax over a vocabulary with its loss; on a CPU fused with the projection before it.

Dimensions in names: N tokens, H units, V vocabulary, R rows of one chunk.

A training step of the recipe `wikitext2-lstm-cpu` was 2.6 times as long without fusing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.core.runtime import one_blas_thread
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.products import factor_type, product

# of one chunk of logits; with smaller chunks, adding up the gradient of the weight takes longer
# than what the cache saves
CHUNK_BYTES = 48_000_000
# of what is done element by element before the next rows, to stay in a core's own cache; several
# threads wait for each other after each operation, so they are given more at once
NEAR_BYTES = 1_000_000
NEAR_BYTES_SHARED = 8_000_000

# is shown some rows and the probabilities of all symbols there (R, V), which it must not keep
Reader = Callable[[slice, Tensor], None]


class Additions(Protocol):
    """What is added to the logits of some rows, with weights (M,) of its own."""

    weights_M: Tensor

    def add_to(self, logits_RV: Tensor, rows_R: Tensor) -> None:
        """Add to the logits of the rows with these numbers."""

    def collect(self, grads_RV: Tensor, shares_R1: Tensor, rows_R: Tensor) -> None:
        """Take the gradients of those logits, each row of them times its share."""

    def gradient(self) -> Tensor:
        """Return the gradient of the weights, (M,), of all that was collected."""


def rows_per_chunk(num_symbols: int, dtype: torch.dtype) -> int:
    """Return R."""
    return max(16, CHUNK_BYTES // (dtype.itemsize * num_symbols))


_ALIGNED = 64  # bytes


class _Room(threading.local):
    """Memory for one chunk of logits, which every call of a thread uses again.

    Memory fresh from the system is mapped page by page at its first touch. With 33,278 words, that
    is 11 of the 340 milliseconds that a step of the recipe `wikitext2-lstm-cpu` takes in bfloat16.
    """

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def tensor(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor, valid until the next one is asked for."""
        size = rows * columns * dtype.itemsize
        if len(self._bytes) < size:
            room = np.empty(size + _ALIGNED, np.uint8)
            # as torch's own memory is: the bits of its products may depend on it
            self._bytes = room[-room.ctypes.data % _ALIGNED :][:size]
        # made of the array each time: one made in inference mode could not be used in training
        return torch.from_numpy(self._bytes[:size]).view(dtype).view(rows, columns)


_room = _Room()


def in_chunks(
    num_rows: int, num_symbols: int, dtype: torch.dtype
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of each chunk, and room for their logits, (R, V).

    The room is the next caller's afterwards: nothing of it may be kept.
    """
    rows = min(num_rows, rows_per_chunk(num_symbols, dtype))
    room_RV = _room.tensor(rows, num_symbols, dtype)
    for start in range(0, num_rows, max(1, rows)):  # range() takes no step of 0
        yield slice(start, start + rows), room_RV[: num_rows - start]


def softmax_(
    logits_RV: Tensor,
    bias_V: Tensor,
    targets_R: Tensor,
    shares_R1: Tensor | None = None,
    grad_bias_V: Tensor | None = None,
    *,
    additions: Additions | None = None,
    first_row: int = 0,
    reader: Reader | None = None,
) -> Tensor:
    """Add the bias and return the log-probabilities of the targets, (R,).

    A probability that rounds to zero has the logarithm -inf. With shares, the logits become
    p - onehot(target), and their sum, weighted by the shares, is added to `grad_bias`. Additions
    and reader know the first row as `first_row`.
    """
    num_symbols = len(bias_V)
    near_bytes = NEAR_BYTES if torch.get_num_threads() == 1 else NEAR_BYTES_SHARED
    rows = max(1, near_bytes // (bias_V.itemsize * num_symbols))
    # logits in bfloat16 are read into room of the bias's type, in which the softmax is made
    is_rounded = logits_RV.dtype != bias_V.dtype
    if is_rounded:
        room_RV = bias_V.new_empty(min(rows, len(logits_RV)), num_symbols)
    sums_1V = bias_V.new_empty(1, num_symbols)
    # an ignored target is read as symbol 0; the callers' shares, or masks, leave it out
    targets_R1 = targets_R[:, None].clamp(min=0)
    probs_R1 = bias_V.new_empty(len(logits_RV), 1)
    minus_1 = bias_V.new_full((1, 1), -1.0)
    for start in range(0, len(logits_RV), rows):
        near = slice(start, start + rows)
        logits, targets = logits_RV[near], targets_R1[near]
        probs = room_RV[: len(logits)].copy_(logits) if is_rounded else logits
        probs += bias_V
        numbers_R = torch.arange(start, start + len(probs)) + first_row
        if additions is not None:
            additions.add_to(probs, numbers_R)
        # the gradient is made of probabilities; logarithms are taken of those of the targets alone
        torch.softmax(probs, dim=1, out=probs)
        torch.gather(probs, 1, targets, out=probs_R1[near])
        if reader is not None:
            reader(slice(start + first_row, start + first_row + len(probs)), probs)
        if shares_R1 is None or grad_bias_V is None:
            continue
        near_shares = shares_R1[near]
        probs.scatter_add_(1, targets, minus_1.expand_as(targets))
        # the weighted sum of the rows as a product: no weighted copy of them is made
        grad_bias_V += product(near_shares.t(), probs, sums_1V)[0]
        if additions is not None:
            additions.collect(probs, near_shares, numbers_R)
        if is_rounded:
            logits.copy_(probs)
    return probs_R1[:, 0].log()


def add_weight_gradient(
    grads_RV: Tensor, hidden_RH: Tensor, grad_weight_VH: Tensor, *, is_first: bool
) -> None:
    """Add a chunk's share, in blocks of the vocabulary, so that sums stay near."""
    # nothing is there to be added to: the first chunk's product is written in its place
    if is_first and grads_RV.dtype == grad_weight_VH.dtype:
        product(grads_RV.t(), hidden_RH, grad_weight_VH)
        return
    num_symbols, size = grad_weight_VH.shape
    step = max(1, min(num_symbols, 4 * NEAR_BYTES // (grads_RV.itemsize * size)))
    room_BH = grads_RV.new_empty(step, size)
    for start in range(0, num_symbols, step):
        block = slice(start, min(start + step, num_symbols))
        added = product(grads_RV[:, block].t(), hidden_RH, room_BH[: block.stop - start])
        if is_first:
            grad_weight_VH[block].copy_(added)
        else:
            grad_weight_VH[block].add_(added)


def make_exact(
    log_probs_N: Tensor,
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    additions: Additions | None = None,
) -> None:
    """Compute anew the logarithms of probabilities that round to zero, or nearly."""
    # below the smallest normal number, a probability has lost bits that its logarithm needs
    lost_N = log_probs_N < math.log(torch.finfo(log_probs_N.dtype).tiny)
    if bool(lost_N.any()):
        logits_LV = torch.addmm(bias_V, hidden_NH[lost_N], weight_VH.t())
        if additions is not None:
            additions.add_to(logits_LV, lost_N.nonzero()[:, 0])
        log_probs_N[lost_N] = -functional.cross_entropy(
            logits_LV, targets_N[lost_N].clamp(min=0), reduction="none"
        )


def cross_entropy(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    *,
    num_targets: int | None = None,
    additions: Additions | None = None,
) -> Tensor:
    """Return the mean negative log-likelihood in nats over the targets not `IGNORED`.

    Without any target it is zero. With `num_targets`, the sum is divided by that instead. On a CPU
    alone, there may be additions to the logits.
    """
    if hidden_NH.device.type == "cpu":
        factor = factor_type(weight_VH)
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            loss: Tensor = _FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
                hidden_NH.to(weight_VH.dtype),
                weight_VH,
                bias_V,
                None if additions is None else additions.weights_M,
                targets_N,
                num_targets,
                factor,
                torch.is_grad_enabled(),
                additions,
            )
        return loss
    logits_NV = functional.linear(hidden_NH, weight_VH, bias_V)
    total = functional.cross_entropy(
        logits_NV.float(), targets_N, ignore_index=IGNORED, reduction="sum"
    )
    return total / (
        (targets_N != IGNORED).sum().clamp(min=1) if num_targets is None else num_targets
    )


def log_probs(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, added_NV: Tensor | None = None
) -> Tensor:
    """Return natural-log probabilities of every symbol, normalised in float64, (N, V)."""
    logits_NV = functional.linear(hidden_NH.to(weight_VH.dtype), weight_VH, bias_V)
    logits_NV = logits_NV if added_NV is None else logits_NV + added_NV
    return functional.log_softmax(logits_NV.double(), dim=1)


def target_log_probs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    additions: Additions | None = None,
    reader: Reader | None = None,
) -> Tensor:
    """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones.

    With additions or a reader, on a CPU without gradients alone.
    """
    if hidden_NH.device.type == "cpu" and not torch.is_grad_enabled():
        log_probs_N = hidden_NH.new_empty(len(hidden_NH))
        chunks = in_chunks(len(hidden_NH), len(weight_VH), hidden_NH.dtype)
        with one_blas_thread():
            for chunk, logits_RV in chunks:
                product(hidden_NH[chunk], weight_VH.t(), logits_RV)
                log_probs_N[chunk] = softmax_(
                    logits_RV,
                    bias_V,
                    targets_N[chunk],
                    additions=additions,
                    first_row=chunk.start,
                    reader=reader,
                )
        make_exact(log_probs_N, hidden_NH, weight_VH, bias_V, targets_N, additions)
        return log_probs_N.masked_fill_(targets_N == IGNORED, 0.0)
    # on another device, or with gradients, whose logits are kept: no room is used again
    parts = []
    rows = rows_per_chunk(len(weight_VH), weight_VH.dtype)
    for hidden_RH, targets_R in zip(
        torch.split(hidden_NH, rows), torch.split(targets_N, rows), strict=True
    ):
        logits_RV = functional.linear(hidden_RH, weight_VH, bias_V)
        parts.append(
            -functional.cross_entropy(logits_RV, targets_R, ignore_index=IGNORED, reduction="none")
        )
    return torch.cat(parts)


ROWS_READ = 256  # at a time, of whole distributions in float64


def read_summaries(
    log_probs_of: Callable[[slice], Tensor],
    num_rows: int,
    class_V: Tensor | None,
    *,
    entropy: bool,
) -> list[Tensor]:
    """Return the nats of a class and the entropies, (N,) each, where they are asked for.

    They are found from the log-probabilities (R, V) that `log_probs_of` gives of some rows.
    """
    parts: list[list[Tensor]] = []
    for start in range(0, num_rows, ROWS_READ):
        log_probs_RV = log_probs_of(slice(start, start + ROWS_READ))
        found = [] if class_V is None else [log_probs_RV[:, class_V].logsumexp(dim=1)]
        if entropy:
            found.append(torch.special.entr(log_probs_RV.exp()).sum(dim=1))
        parts.append(found)
    return [torch.cat(rows) for rows in zip(*parts, strict=True)]


def fused_summaries(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    class_V: Tensor | None,
    *,
    entropy: bool,
    log_probs_of: Callable[[Tensor], Tensor],
    additions: Additions | None = None,
) -> list[Tensor]:
    """Return what `OutputLayer.summarise` does, on a CPU, in the pass that scores the targets.

    Args:
        hidden_NH: what the softmax reads.
        weight_VH: its weight.
        bias_V: its bias.
        targets_N: the targets, none ignored.
        class_V: the class.
        entropy: whether it is asked for.
        log_probs_of: gives the log-probabilities of all symbols for the rows of these numbers.
        additions: to the logits.
    """
    classes_N, entropies_N = torch.empty_like(hidden_NH[:, 0]), torch.empty_like(hidden_NH[:, 0])
    share_V = None if class_V is None else class_V.to(weight_VH.dtype)

    def read(rows: slice, probs_RV: Tensor) -> None:
        if share_V is not None:
            torch.mv(probs_RV, share_V, out=classes_N[rows])
        if entropy:
            torch.sum(torch.special.entr(probs_RV), dim=1, out=entropies_N[rows])

    found = [target_log_probs(hidden_NH, weight_VH, bias_V, targets_N, additions, reader=read)]
    if class_V is not None:
        lost_N = classes_N < torch.finfo(classes_N.dtype).tiny  # it rounds to zero, or nearly
        classes_N.log_()
        if bool(lost_N.any()):
            exact_LV = log_probs_of(lost_N.nonzero()[:, 0])
            classes_N[lost_N] = exact_LV[:, class_V].logsumexp(dim=1).to(classes_N.dtype)
        found.append(classes_N)
    return [*found, *([entropies_N] if entropy else [])]


class _FusedCrossEntropy(torch.autograd.Function):
    """Linear layer, softmax and mean cross-entropy, chunk by chunk, never holding all logits.

    The gradients are computed in the forward pass, where each chunk's probabilities are at hand:
    with p = softmax(logits), they are p - onehot(target) by the logits. With factors of
    bfloat16, products are rounded to it; sums and the softmax are not.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        added_M: Tensor | None,
        targets_N: Tensor,
        num_targets: int | None,
        factor: torch.dtype,
        needs_grad: bool,
        additions: Additions | None,
    ) -> Tensor:
        """Return the mean loss in nats."""
        dtype = hidden_NH.dtype
        kept_N1 = (targets_N != IGNORED)[:, None]
        num_targets = num_targets or max(1, int(kept_N1.sum()))
        shares_N1 = kept_N1.to(dtype) / num_targets  # the weight of each token in the mean
        factor_VH, factor_NH = weight_VH.to(factor), hidden_NH.to(factor)
        log_probs_N = hidden_NH.new_empty(len(hidden_NH))
        grad_bias, grad_hidden = torch.zeros_like(bias_V), torch.empty_like(hidden_NH)
        # without a chunk nothing is written
        grad_weight = torch.empty_like(weight_VH) if len(hidden_NH) else torch.zeros_like(weight_VH)
        for chunk, probs_RV in in_chunks(len(hidden_NH), len(weight_VH), factor):
            product(factor_NH[chunk], factor_VH.t(), probs_RV)
            log_probs_N[chunk] = softmax_(
                probs_RV,
                bias_V,
                targets_N[chunk],
                shares_N1[chunk] if needs_grad else None,
                grad_bias,
                additions=additions,
                first_row=chunk.start,
            )
            if not needs_grad:
                continue
            grads_RV = probs_RV  # they are p - onehot(target) now
            grad_hidden[chunk] = product(grads_RV, factor_VH, torch.empty_like(factor_NH[chunk]))
            # the shares go into the small factors
            shared_RH = (hidden_NH[chunk] * shares_N1[chunk]).to(factor)
            add_weight_gradient(grads_RV, shared_RH, grad_weight, is_first=chunk.start == 0)
        make_exact(log_probs_N, hidden_NH, weight_VH, bias_V, targets_N, additions)
        if needs_grad:
            grad_hidden *= shares_N1  # a factor of each row, so that once at the end is enough
            grad_added = None if additions is None else additions.gradient()
            ctx.save_for_backward(grad_hidden, grad_weight, grad_bias, grad_added)
        return -(log_probs_N[:, None] * kept_N1).sum(dtype=torch.float64).to(dtype) / num_targets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the hidden states, the weight, the bias and the additions."""
        grads: tuple[Tensor | None, ...] = ctx.saved_tensors
        if grad.item() != 1.0:  # the loss itself is nearly always what is differentiated
            grads = tuple(None if part is None else part * grad for part in grads)
        return *grads, *[None] * 5
