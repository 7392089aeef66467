"""Losses of whole trees for training: the negative log-likelihood of the gold one.

Dimensions: B sentences, D words of the longest, H = 1 + D heads (0 is ROOT), S arcs of all
sentences, one after another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqtool.parsing.parser.graph.partition import marginals


class _TreeLoss(torch.autograd.Function):
    """The log-partition function less the score of the gold tree, in float64 inside."""

    @staticmethod
    def forward(
        ctx: Any, scores_S: Tensor, is_gold_S: Tensor, lengths_B: Tensor, projective: bool
    ) -> Tensor:
        scores = scores_S.detach().double().cpu()
        is_gold_S, lengths = is_gold_S.cpu(), lengths_B.int().cpu()
        arcs_B = lengths.long() * (lengths.long() + 1)
        log_partitions, probabilities = marginals(scores.numpy(), lengths.numpy(), projective)
        gold_S = torch.where(is_gold_S, scores, 0.0)
        gold_B = torch.segment_reduce(gold_S, "sum", lengths=arcs_B)
        # the probability of an arc, less 1 if it is gold
        slopes_S = torch.from_numpy(probabilities) - is_gold_S.double()
        ctx.save_for_backward(slopes_S.to(scores_S), arcs_B.to(scores_S.device))
        return (torch.from_numpy(log_partitions) - gold_B).to(scores_S)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope_B: Tensor) -> tuple[Tensor | None, ...]:
        slopes_S, arcs_B = ctx.saved_tensors
        return slopes_S * slope_B.repeat_interleave(arcs_B), None, None, None


def tree_loss(scores_BDH: Tensor, lengths_B: Tensor, heads_BD: Tensor, projective: bool) -> Tensor:
    """Return the negative log-likelihood of the gold tree of each sentence, in nats, [B].

    The gradient is that of `partition.marginals`: the probability of each arc, less 1 if it is gold
    (Koo et al. 2007; Zhang, Li & Zhang 2020 for projective trees). It cannot be differentiated
    again.

    Args:
        scores_BDH: of arcs. Those of a word with itself, and of padding, are not read.
        lengths_B: words of each sentence.
        heads_BD: gold trees with one arc from ROOT, in padding anything; projective ones, if
            `projective` is given, else the likelihood of what is no such tree has no meaning.
        projective: among projective trees, or among all with one arc from ROOT.
    """
    heads_H = torch.arange(scores_BDH.shape[2], device=scores_BDH.device)
    is_word_BD = heads_H[:-1] < lengths_B[:, None]
    inside_BDH = is_word_BD[:, :, None] & (heads_H <= lengths_B[:, None])[:, None]
    is_gold_BDH = heads_BD[:, :, None] == heads_H
    loss_B: Tensor = _TreeLoss.apply(  # type: ignore[no-untyped-call]
        scores_BDH[inside_BDH], is_gold_BDH[inside_BDH], lengths_B, projective
    )
    return loss_B
