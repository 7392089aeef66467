"""A softmax chunk by chunk, in place, with its gradients: what the fused losses are made of.

Dimensions in names: N tokens, H units, V vocabulary, R rows of one chunk, L rows that are computed
anew, B symbols of one block, M added weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from seqtool.lm.neural.products import product
from seqtool.lm.neural.workspace import Workspace

# of one chunk of logits; with smaller chunks, adding up the gradient of the weight takes longer
# than what the cache saves
CHUNK_BYTES = 48_000_000
# of what is done element by element before the next rows, to stay in a core's own cache; several
# threads wait for each other after each operation, so they are given more at once
NEAR_BYTES = 1_000_000
NEAR_BYTES_SHARED = 8_000_000

# of some rows, given the probabilities of their targets (R, 1): the factors of their gradients
SharesOf = Callable[[slice, Tensor], Tensor]


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


def in_chunks(
    num_rows: int, num_symbols: int, dtype: torch.dtype, workspace: Workspace, *, group: int = 1
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of each chunk, and room for their logits, (R, V).

    Groups of rows are kept together.
    """
    rows = rows_per_chunk(num_symbols, dtype)
    rows = min(num_rows, -(-rows // group) * group)
    room_RV = workspace.tensor("chunk", (rows, num_symbols), dtype)
    for start in range(0, num_rows, max(1, rows)):
        yield slice(start, start + rows), room_RV[: num_rows - start]


def softmax_(
    logits_RV: Tensor,
    bias_V: Tensor,
    targets_R: Tensor,
    workspace: Workspace,
    shares_of: SharesOf | None = None,
    grad_bias_V: Tensor | None = None,
    *,
    group: int = 1,
    additions: Additions | None = None,
    first_row: int = 0,
) -> Tensor:
    """Add the bias and return the log-probabilities of the targets, (R,).

    A probability that rounds to zero has the logarithm -inf. With `shares_of`, the logits become
    p - onehot(target), and their sum, weighted by the shares, is added to `grad_bias`. Groups of
    rows are kept together. Additions know the first row as `first_row`.
    """
    num_symbols = len(bias_V)
    near_bytes = NEAR_BYTES if torch.get_num_threads() == 1 else NEAR_BYTES_SHARED
    rows = max(1, near_bytes // (bias_V.itemsize * num_symbols * group)) * group
    is_rounded = logits_RV.dtype != bias_V.dtype
    if is_rounded:
        room_RV = workspace.tensor("near", (min(rows, len(logits_RV)), num_symbols), bias_V.dtype)
    sums_1V = workspace.tensor("bias", (1, num_symbols), bias_V.dtype)
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
        torch.softmax(probs, dim=1, out=probs)
        torch.gather(probs, 1, targets, out=probs_R1[near])
        if shares_of is None or grad_bias_V is None:
            continue
        shares_R1 = shares_of(near, probs_R1[near])
        probs.scatter_add_(1, targets, minus_1.expand_as(targets))
        grad_bias_V += product(shares_R1.t(), probs, sums_1V)[0]
        if additions is not None:
            additions.collect(probs, shares_R1, numbers_R)
        if is_rounded:
            logits.copy_(probs)
    return probs_R1[:, 0].log()


def add_weight_gradient(
    grads_RV: Tensor,
    hidden_RH: Tensor,
    grad_weight_VH: Tensor,
    workspace: Workspace,
    *,
    is_first: bool,
) -> None:
    """Add a chunk's share, in blocks of the vocabulary, so that sums stay near."""
    if is_first and grads_RV.dtype == grad_weight_VH.dtype:
        product(grads_RV.t(), hidden_RH, grad_weight_VH)
        return
    num_symbols, size = grad_weight_VH.shape
    step = max(1, min(num_symbols, 4 * NEAR_BYTES // (grads_RV.itemsize * size)))
    room_BH = workspace.tensor("block", (step, size), grads_RV.dtype)
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
    lost_N = log_probs_N < math.log(torch.finfo(log_probs_N.dtype).tiny)
    if bool(lost_N.any()):
        logits_LV = torch.addmm(bias_V, hidden_NH[lost_N], weight_VH.t())
        if additions is not None:
            additions.add_to(logits_LV, lost_N.nonzero()[:, 0])
        log_probs_N[lost_N] = -functional.cross_entropy(
            logits_LV, targets_N[lost_N].clamp(min=0), reduction="none"
        )
