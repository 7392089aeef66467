"""The network of tags and lemmas, for training.

Dimensions: U forms, L characters of the longest, S lexical symbols of a form, D width of a form's
vector, T words, H units of a direction, O values of all columns together, Q parts of these, B
bundles, M hidden units of the lemmatizer, E edit scripts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqtool.parsing.encoding.encoder import (
    Cloze,
    ContextEncoder,
    Dropout,
    Linear,
    linear,
)
from seqtool.parsing.encoding.features import PAD as NO_SYMBOL
from seqtool.parsing.tagger.config import TaggerModelConfig
from seqtool.text.characters import PAD
from seqtool.text.network import CharacterNetwork


class TaggerNetwork(nn.Module):
    """A bidirectional LSTM over vectors of forms, with two readers of its states.

    The scores of a column's values are linear in the states and in the form's own vector; the
    score of a bundle is the sum of its values' scores. Values that have parts in common share
    weights: those of a value are its own and the sum of its parts'. The lemmatizer has one hidden
    layer, which looks at the bundle too. The names of the weights are those of the model's file,
    but that `parts` are added to `values` there.

    Args:
        config: its sizes.
        num_lexical, num_characters: symbols of forms.
        parts_OQ: which parts each value has, of all columns together, see `Bundles.parts`.
        num_bundles: how many.
        num_scripts: edit scripts.
        num_words: that `cloze` tells apart, whose weights are no part of the model; 0: none.
    """

    parts_OQ: Tensor

    def __init__(
        self,
        config: TaggerModelConfig,
        num_lexical: int,
        num_characters: int,
        parts_OQ: Tensor,
        num_bundles: int,
        num_scripts: int,
        *,
        num_words: int = 0,
    ) -> None:
        super().__init__()
        self.lexical = nn.EmbeddingBag(
            num_lexical, config.lexical_size, mode="sum", padding_idx=NO_SYMBOL
        )
        self.characters = CharacterNetwork(
            num_characters, config.character_size, config.num_filters, config.filter_width
        )
        width = config.lexical_size + config.num_filters
        self.encoder = ContextEncoder(width, config.encoder_size, config.encoder_layers)
        num_values, num_parts = parts_OQ.shape
        self.values = Linear(width + 2 * config.encoder_size, num_values)
        self.parts: Linear | None = None
        if num_parts:
            self.parts = Linear(width + 2 * config.encoder_size, num_parts, bias=False)
            self.register_buffer("parts_OQ", parts_OQ, persistent=False)
        self.lemma_words = Linear(width + 2 * config.encoder_size, config.lemma_size)
        self.lemma_bundles = nn.Embedding(num_bundles, config.lemma_size)
        self.scripts = Linear(config.lemma_size, num_scripts)
        if num_words:
            self.cloze = Cloze(config.encoder_size, num_words)
        nn.init.normal_(self.lexical.weight, std=0.03)
        nn.init.normal_(self.characters.embedding.weight, std=0.2)
        nn.init.normal_(self.lemma_bundles.weight, std=0.2)
        with torch.no_grad():
            self.lexical.weight[NO_SYMBOL] = 0.0
            self.characters.embedding.weight[PAD] = 0.0

    def vectors(self, lexical_US: Tensor, characters_UL: Tensor) -> Tensor:
        """Return the vectors of forms, [U, D]."""
        return torch.cat((self.lexical(lexical_US), self.characters(characters_UL)), 1)

    def states(
        self, inputs_TD: Tensor, lengths: Tensor, between: Dropout, after: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Return what is known of words in their sentences: their vectors and states, [T, D + 2H].

        The states of the first layer, [T, 2H], come second.

        Args:
            inputs_TD: the vectors of words, one sentence after another.
            lengths: words of each sentence.
            between: is applied to what the layers after the first one read.
            after: is applied to the states.
        """
        first_TH, last_TH = self.encoder.first_and_last(inputs_TD, lengths, between)
        return torch.cat((inputs_TD, after(last_TH)), 1), first_TH

    def value_scores(self, states_TX: Tensor) -> Tensor:
        """Return the scores of values, [T, O]."""
        weights_OX = self.values.weight
        if self.parts is not None:
            weights_OX = weights_OX + self.parts_OQ @ self.parts.weight
        return linear(states_TX, weights_OX, self.values.bias)

    def lemma_scores(self, states_TX: Tensor, bundles_T: Tensor, noise: Dropout) -> Tensor:
        """Return the scores of edit scripts, [T, E], of words with these bundles."""
        hidden_TM = (self.lemma_words(states_TX) + self.lemma_bundles(bundles_T)).relu()
        scores_TE: Tensor = self.scripts(noise(hidden_TM))
        return scores_TE
