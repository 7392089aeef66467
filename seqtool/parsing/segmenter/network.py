"""The networks of a segmenter for training.

    characters -> LSTM in both directions -> is it the last one of a token?
    tokens (the states at their ends, their form) -> LSTM in both directions
        -> does a sentence end here? is it several words?
        -> part of speech and relation: only to teach the layers below what words do

Dimensions: C characters, U types of characters, D width of a character's vector, N tokens, F width
of a form's vector, H and G units of a direction over characters and tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from seqtool.parsing.encoding.encoder import ContextEncoder, Dropout, Linear, as_it_is
from seqtool.parsing.segmenter.config import SegmenterModelConfig


class SegmenterNetwork(nn.Module):
    """The networks; the names of their weights are those of the model's file.

        symbols.weight                 [symbols, D], summed to the vector of a character
        characters...                  `encoder.ContextEncoder` of H units
        token_ends.weight, .bias       [1, 2H], [1]
        forms.weight                   [1 + forms, F]
        tokens...                      `encoder.ContextEncoder` of G units, over [4H + F]
        decisions.weight, .bias        [2, 2G], [2]: the sentence ends; several words
        tags.weight, .bias             [tags, 2G], [tags]: while training, not in the file

    Args:
        config: sizes.
        num_symbols: of characters; row 0 is nothing.
        num_forms: of the lexicon; row 0 is a form that is not in it.
        num_tags: parts of speech and relations.
    """

    def __init__(
        self, config: SegmenterModelConfig, num_symbols: int, num_forms: int, num_tags: int
    ) -> None:
        super().__init__()
        self.symbols = nn.EmbeddingBag(
            num_symbols, config.character_size, mode="sum", padding_idx=0
        )
        self.characters = ContextEncoder(
            config.character_size, config.character_units, config.character_layers
        )
        self.token_ends = Linear(2 * config.character_units, 1)
        self.forms = nn.Embedding(1 + num_forms, config.form_size)
        self.tokens = ContextEncoder(
            4 * config.character_units + config.form_size, config.token_units, config.token_layers
        )
        self.decisions = Linear(2 * config.token_units, 2)
        self.tags = Linear(2 * config.token_units, num_tags)
        nn.init.normal_(self.symbols.weight, std=0.3)
        nn.init.normal_(self.forms.weight, std=0.3)
        with torch.no_grad():
            self.symbols.weight[0] = 0.0
            self.forms.weight[0] = 0.0

    def character_states(
        self, symbols_U3: Tensor, types_C: Tensor, lengths_W: Tensor, drop_inputs: Dropout
    ) -> Tensor:
        """Return the states of characters, [C, 2H], of windows, one after another.

        Characters are given by the symbols of their types; `drop_inputs` is applied to vectors.
        """
        vectors_CD = self.symbols(symbols_U3)[types_C]
        states_CH: Tensor = self.characters(drop_inputs(vectors_CD), lengths_W)
        return states_CH

    def token_states(
        self,
        states_CH: Tensor,
        firsts_N: Tensor,
        lasts_N: Tensor,
        forms_N: Tensor,
        lengths_W: Tensor,
        dropout: Dropout = as_it_is,
    ) -> Tensor:
        """Return the states of tokens, [N, 2G], of windows, one after another.

        Tokens are given by the characters that they begin and end with, and by their forms;
        `dropout` is applied to what the layers after the first one read.
        """
        inputs_NI = torch.cat((states_CH[firsts_N], states_CH[lasts_N], self.forms(forms_N)), dim=1)
        states_NG: Tensor = self.tokens(inputs_NI, lengths_W, dropout)
        return states_NG

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights as the model's file holds them."""
        return {
            name: value.detach().cpu().numpy()
            for name, value in self.state_dict().items()
            if not name.startswith("tags.")
        }
