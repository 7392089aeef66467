"""The output layer: projection to the vocabulary and cross-entropy, fused.

Dimensions in names: N tokens, H units, V vocabulary, R rows of one chunk.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.corpora.batching import IGNORED

# elements of one chunk of logits: 48 MB of float32; with smaller chunks, adding up the gradient of
# the weight takes longer than what the cache saves
CHUNK_ELEMENTS = 12_000_000


class FullSoftmax(nn.Module):
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
        if weight is None:
            weight = nn.Parameter(torch.empty(vocabulary_size, hidden_size))
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`.

        Without any target it is zero.
        """
        if hidden_NH.device.type == "cpu":
            half = torch.is_autocast_enabled("cpu")
            with torch.autocast("cpu", enabled=False):
                loss: Tensor = _FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
                    hidden_NH.to(self.weight.dtype), self.weight, self.bias, targets_N, half
                )
            return loss
        logits_NV = functional.linear(hidden_NH, self.weight, self.bias)
        total = functional.cross_entropy(
            logits_NV.float(), targets_N, ignore_index=IGNORED, reduction="sum"
        )
        return total / (targets_N != IGNORED).sum().clamp(min=1)

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, (N, V)."""
        logits_NV = functional.linear(hidden_NH, self.weight, self.bias)
        return functional.log_softmax(logits_NV, dim=1)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        parts = []
        rows = max(1, CHUNK_ELEMENTS // len(self.weight))
        for hidden_RH, targets_R in zip(
            torch.split(hidden_NH, rows), torch.split(targets_N, rows), strict=True
        ):
            logits_RV = functional.linear(hidden_RH, self.weight, self.bias)
            parts.append(
                -functional.cross_entropy(
                    logits_RV, targets_R, ignore_index=IGNORED, reduction="none"
                )
            )
        return torch.cat(parts)


class _FusedCrossEntropy(torch.autograd.Function):
    """Linear layer, softmax and mean cross-entropy, chunk by chunk, never holding all logits.

    The gradients are computed in the forward pass, where each chunk's probabilities are at hand:
    with p = softmax(logits), d loss / d logits = (p - onehot(target)) / number of targets.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        half: bool,
    ) -> Tensor:
        """Return the mean loss in nats; with `half`, products are made in bfloat16."""
        needs_grad = any(ctx.needs_input_grad)
        kept_N1 = (targets_N != IGNORED)[:, None]
        targets_N1 = targets_N[:, None].clamp(min=0)
        num_targets = max(1, int(kept_N1.sum()))
        rows = max(16, CHUNK_ELEMENTS // len(weight_VH))
        total = hidden_NH.new_zeros((), dtype=torch.float64)
        grad_hidden = torch.empty_like(hidden_NH)
        grad_weight = torch.zeros_like(weight_VH) if needs_grad else None
        grad_bias = torch.zeros_like(bias_V)
        buffer = hidden_NH.new_empty(min(rows, len(hidden_NH)), len(weight_VH))
        product = torch.bfloat16 if half else hidden_NH.dtype
        factor_VH, factor_NH = weight_VH.to(product), hidden_NH.to(product)
        # the mean's 1 / number of targets goes into the small factor
        scaled_NH = (hidden_NH / num_targets).to(product)
        for start in range(0, len(hidden_NH), rows):
            chunk = slice(start, start + rows)
            hidden_RH, targets_R1, kept_R1 = factor_NH[chunk], targets_N1[chunk], kept_N1[chunk]
            logits_RV = buffer[: len(hidden_RH)]
            if half:
                logits_RV.copy_(torch.mm(hidden_RH, factor_VH.t()))
                logits_RV += bias_V
            else:
                torch.addmm(bias_V, hidden_RH, factor_VH.t(), out=logits_RV)
            probs_RV = torch.softmax(logits_RV, dim=1, out=logits_RV)
            losses_R1 = -probs_RV.gather(1, targets_R1).log()
            lost_R = losses_R1[:, 0] > -math.log(torch.finfo(losses_R1.dtype).tiny)
            if bool(lost_R.any()):  # probabilities that round to zero, though their logs do not
                exact_LV = torch.addmm(bias_V, hidden_NH[chunk][lost_R], weight_VH.t())
                losses_R1[lost_R, 0] = functional.cross_entropy(
                    exact_LV, targets_R1[lost_R, 0], reduction="none"
                )
            total += (losses_R1 * kept_R1).sum(dtype=torch.float64)
            if grad_weight is None:
                continue
            probs_RV.scatter_add_(
                1, targets_R1, probs_RV.new_full((1, 1), -1).expand_as(targets_R1)
            )
            if not bool(kept_R1.all()):
                probs_RV *= kept_R1
            grad_bias += probs_RV.sum(dim=0)
            grads_RV = probs_RV.to(product)
            if half:
                grad_hidden[chunk] = torch.mm(grads_RV, factor_VH)
                grad_weight += torch.mm(grads_RV.t(), scaled_NH[chunk]).to(grad_weight.dtype)
            else:
                torch.mm(grads_RV, factor_VH, out=grad_hidden[chunk])
                grad_weight.addmm_(grads_RV.t(), scaled_NH[chunk])
        ctx.save_for_backward(grad_hidden / num_targets, grad_weight, grad_bias / num_targets)
        return (total / num_targets).to(hidden_NH.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the hidden states, the weight and the bias."""
        grads: tuple[Tensor, ...] = ctx.saved_tensors
        if grad.item() != 1.0:  # the loss itself is nearly always what is differentiated
            grads = tuple(part * grad for part in grads)
        return *grads, None, None
