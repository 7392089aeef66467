"""How a parser reads words, for training: the vectors of types, and an encoder over them.

Dimensions: U types in a batch, L characters of the longest form, D width of a vector, J units that
join fields, T tokens, E units of a direction of the encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqtool.parsing.encoding.encoder import Cloze, ContextEncoder, Dropout, Linear, as_it_is
from seqtool.parsing.encoding.features import PAD
from seqtool.parsing.parser.config import ModelConfig
from seqtool.text.characters import PAD as NO_CHARACTER
from seqtool.text.network import CharacterNetwork


def gated(sums: Tensor) -> Tensor:
    """Units times their gates, of sums [..., 2H] (gated linear units, Dauphin et al. 2017)."""
    units, gates = sums.chunk(2, dim=-1)
    return units * gates.sigmoid()


class FieldJoin(nn.Module):
    """A gated layer over the vectors of types, added to them.

    Summed embeddings say of each field what it means by itself; this says what they mean together.
    As a type's products with the first layer are computed once, it costs nothing in parsing.
    """

    def __init__(self, width: int, num_units: int) -> None:
        super().__init__()
        self.inside = Linear(width, 2 * num_units)
        self.outside = Linear(num_units, width, bias=False)

    def forward(self, vectors_UD: Tensor, drop: Dropout = as_it_is) -> Tensor:
        """Return the vectors of types with their fields joined, [U, D]; `drop` as in training."""
        joined_UD: Tensor = vectors_UD + self.outside(drop(gated(self.inside(vectors_UD))))
        return joined_UD


class ReadingNetwork(nn.Module):
    """What the network of every parser has: a reader of types (see `features`), and an encoder.

    The names of its weights are those of the model's file:

        lexical.weight, tags.weight            [symbols, D]
        join.inside.weight, join.inside.bias   [2J, D], [2J]
        join.outside.weight                    [D, J]
        characters...                          see `CharacterNetwork`, where characters are read
        encoder...                             see `encoder.ContextEncoder`

    A network adds the parts that it has in its own order, in which they draw their weights.

    Args:
        config: sizes.
        num_lexical, num_tags: symbols of types.
        num_characters: symbols of their characters, where these are read.
    """

    def __init__(
        self, config: ModelConfig, num_lexical: int, num_tags: int, num_characters: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.lexical = nn.EmbeddingBag(
            num_lexical, config.lexical_size, mode="sum", padding_idx=PAD
        )
        self.tags = nn.EmbeddingBag(num_tags, config.tag_size, mode="sum", padding_idx=PAD)
        if config.character_width:
            self.characters = CharacterNetwork(
                num_characters, config.character_size, config.character_width, config.filter_width
            )

    def _add_join(self) -> None:
        if self.config.type_units:
            self.join = FieldJoin(self.config.token_size, self.config.type_units)

    def _add_encoder(self) -> None:
        size, config = self.config.token_size, self.config
        self.encoder = ContextEncoder(size, config.encoder_size, config.encoder_layers)

    def _add_cloze(self, num_words: int) -> None:
        """Add the loss of telling so many words by their context; 0 for none."""
        if num_words:
            self.cloze = Cloze(self.config.encoder_size, num_words)

    def _draw_embeddings(self) -> None:
        for embedding, std in ((self.lexical, 0.03), (self.tags, 0.2)):
            nn.init.normal_(embedding.weight, std=std)
        with torch.no_grad():
            self.lexical.weight[PAD] = 0.0
            self.tags.weight[PAD] = 0.0
        if self.config.character_width:
            nn.init.normal_(self.characters.embedding.weight, std=0.2)
            with torch.no_grad():
                self.characters.embedding.weight[NO_CHARACTER] = 0.0

    def type_vectors(
        self,
        lexical_UW: Tensor,
        tags_UW: Tensor,
        characters_UL: Tensor | None = None,
        *,
        drop: Dropout = as_it_is,
        drop_part: Dropout = as_it_is,
    ) -> Tensor:
        """Return the vectors of types, [U, D], by their lexical and tag symbols, PAD at the end.

        Args:
            lexical_UW: symbols of words.
            tags_UW: symbols of tags.
            characters_UL: those of forms, where characters are read.
            drop: is applied to the units that join fields.
            drop_part: is applied to what is read of words, of tags and of characters, each.
        """
        parts = [self.lexical(lexical_UW), self.tags(tags_UW)]
        if characters_UL is not None:
            parts.append(self.characters(characters_UL))
        vectors_UD = torch.cat([drop_part(part_UD) for part_UD in parts], 1)
        if self.config.type_units:
            vectors_UD = self.join(vectors_UD, drop)
        return vectors_UD
