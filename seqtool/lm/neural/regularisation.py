"""Dropout masks, and the penalties of activations.

Dimensions in names: T steps, B streams, H units of a layer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from seqtool.lm.neural.config import ModelConfig


def draw_mask(like: Tensor, shape: tuple[int, ...], share: float) -> Tensor:
    """Return a mask of zeros (`share` of it) and 1 / (1 - share): its mean is 1."""
    return (
        torch.empty(shape, dtype=like.dtype, device=like.device)
        .bernoulli_(1.0 - share)
        .div_(1.0 - share)
    )


def drop_units(inputs_TBH: Tensor, share: float, *, variational: bool) -> Tensor:
    """Drop units: for each token anew (plain), or the same over the window (variational)."""
    if share == 0.0:
        return inputs_TBH
    if not variational:
        return functional.dropout(inputs_TBH, share)
    return inputs_TBH * draw_mask(inputs_TBH, (1, *inputs_TBH.shape[1:]), share)


def draw_update_mask(
    like: Tensor, shape: tuple[int, int, int], share: float, *, variational: bool
) -> Tensor:
    """Return a mask (S, B, H) of what is added to the memory: anew each time, or all the same."""
    if variational:
        return draw_mask(like, (1, *shape[1:]), share).expand(shape)
    return draw_mask(like, shape, share)


def activation_penalties(read_TBH: Tensor, last_TBH: Tensor, config: ModelConfig) -> Tensor:
    """Return what is added to the loss for large and for changing activations, in nats.

    AR is alpha times the mean square of what the output layer reads, and TAR is beta times the mean
    square of h(t + 1) - h(t) within the window (Merity, McCann & Socher 2017).

    Args:
        read_TBH: the last layer's output after dropout.
        last_TBH: the same before dropout.
        config: names alpha and beta.
    """
    penalty = read_TBH.new_zeros((), dtype=torch.float32)
    if config.activation_penalty:
        penalty = penalty + config.activation_penalty * read_TBH.float().square().mean()
    if config.temporal_penalty and len(last_TBH) > 1:
        change_SBH = last_TBH[1:].float() - last_TBH[:-1].float()
        penalty = penalty + config.temporal_penalty * change_SBH.square().mean()
    return penalty
