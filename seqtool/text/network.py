"""Filters over the characters of forms, for training.

Dimensions: U forms, L characters of the longest, S symbols of characters that they have, C width of
a character's vector, K characters that a filter sees, F filters.

What a filter makes of K characters is a sum of K products, each of which depends on one character
and its place under the filter alone. On the CPU, a table of these is made, and compiled code adds
its rows: for characters that occur again and again, these are far fewer multiplications than those
of a convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqtool.core.arrays import Ints
from seqtool.text.characters import PAD, differentiate_strongest, strongest


class _Strongest(torch.autograd.Function):
    """The strongest answers (U, F) from products (K, S, F) and bias (F)."""

    @staticmethod
    def forward(
        ctx: Any, products_KSF: Tensor, bias_F: Tensor, symbols: Ints, lengths_U: Ints
    ) -> Tensor:
        """Return the answers; symbols, of S, and lengths are as `Characters.rows` gives them."""
        answers_UF = bias_F.new_empty(len(lengths_U), len(bias_F))
        places_UF = np.empty(answers_UF.shape, np.int32)
        read = products_KSF.numpy(), bias_F.numpy(), symbols, lengths_U
        strongest(*read, answers_UF.numpy(), places_UF)
        ctx.shape, ctx.found = products_KSF.shape, (places_UF, symbols, lengths_U)
        return answers_UF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads_UF: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the products and of the bias."""
        grad_products, grad_bias = grads_UF.new_zeros(ctx.shape), grads_UF.new_zeros(ctx.shape[2])
        written = grad_products.numpy(), grad_bias.numpy()
        differentiate_strongest(grads_UF.contiguous().numpy(), *ctx.found, *written)
        return grad_products, grad_bias, None, None


class Filters(nn.Conv1d):
    """Filters of one width, the strongest answer of each to a form.

    Beyond a form there is nothing, and a filter stands over each of its characters, with K // 2 of
    the others before it.

    Args:
        size: C.
        num_filters: F.
        width: K.
    """

    def __init__(self, size: int, num_filters: int, width: int) -> None:
        super().__init__(size, num_filters, width, padding=width // 2)

    def strongest(self, embedding: nn.Embedding, symbols_UL: Tensor) -> Tensor:
        """Return the strongest answers, [U, F]; -inf to forms without characters.

        Args:
            embedding: of characters, zeros for PAD.
            symbols_UL: characters of forms, PAD at their ends.
        """
        beyond_UL = symbols_UL == PAD
        if symbols_UL.device.type == "cpu":
            there_UL = ~beyond_UL.numpy()
            symbols = symbols_UL.numpy()[there_UL]
            lengths_U = there_UL.sum(axis=1, dtype=np.int32)
            present, places = np.unique(symbols, return_inverse=True)
            with torch.autocast("cpu", enabled=False):
                vectors_SC = embedding.weight[torch.from_numpy(present)]
                products_KSF = torch.einsum("sc,fck->ksf", vectors_SC, self.weight).contiguous()
                answers_UF: Tensor = _Strongest.apply(  # type: ignore[no-untyped-call]
                    products_KSF, self.bias, places.astype(np.int32), lengths_U
                )
            return answers_UF
        answers_UFL = self(embedding(symbols_UL).transpose(1, 2))[:, :, : symbols_UL.shape[1]]
        strongest_UF: Tensor = answers_UFL.masked_fill(beyond_UL[:, None], -torch.inf).amax(2)
        return strongest_UF


class CharacterNetwork(nn.Module):
    """Filters over the characters of a form, the strongest answer of each (Ma & Hovy 2016).

    The names of its weights in a model's file, behind `characters.`:

        embedding.weight                  [num_symbols, C]
        filters.weight, filters.bias      [F, C, K], [F]

    Args:
        num_symbols: of characters.
        size: C, the width of a character's vector.
        num_filters: F.
        filter_width: K.
    """

    def __init__(self, num_symbols: int, size: int, num_filters: int, filter_width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_symbols, size, padding_idx=PAD)
        self.filters = Filters(size, num_filters, filter_width)

    def forward(self, symbols_UL: Tensor) -> Tensor:
        """Return the vectors of forms, [U, F]; those of forms without characters are zeros."""
        return self.filters.strongest(self.embedding, symbols_UL).relu()
