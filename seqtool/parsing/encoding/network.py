"""The network of forms by their characters, for training.

Dimensions: U forms, L characters of the longest, F filters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqtool.parsing.encoding.characters import PAD


class CharacterNetwork(nn.Module):
    """Filters over the characters of a form, the strongest answer of each (Ma & Hovy 2016).

    The names of its weights in a model's file, behind `characters.`:

        embedding.weight                  [num_symbols, C]
        filters.weight, filters.bias      [F, C, K], [F]

    Args:
        num_symbols: of characters.
        size: C, the width of a character's vector.
        num_filters: F.
        filter_width: K, the characters that a filter sees; odd.
    """

    def __init__(self, num_symbols: int, size: int, num_filters: int, filter_width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_symbols, size, padding_idx=PAD)
        self.filters = nn.Conv1d(size, num_filters, filter_width, padding=filter_width // 2)

    def forward(self, symbols_UL: Tensor) -> Tensor:
        """Return the vectors of forms, [U, F]; those of forms without characters are zeros."""
        answers_UFL = self.filters(self.embedding(symbols_UL).transpose(1, 2))
        beyond_U1L = (symbols_UL == PAD).unsqueeze(1)
        strongest_UF: Tensor = answers_UFL.masked_fill(beyond_U1L, -torch.inf).amax(2)
        return strongest_UF.relu()
