"""The classifier for training: embeddings, one hidden layer, scores of transitions.

Dimensions: N configurations, U types in a batch, D width of a vector, J units that join fields, S,
C, M slots for words, labels and measures, H hidden units, F sums of the first layer (H, or 2H with
gates), A transitions, T tokens, E units of a direction of the encoder, K units that its states pass
through.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.parsing.encoding.encoder import Dropout, HeadChoice, Linear, as_it_is
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.network import ReadingNetwork, gated
from seqtool.parsing.parser.transition.hidden_layer import NUM_BUCKETS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "cube": lambda sums: sums**3,
    "glu": gated,
}


class ParserNetwork(ReadingNetwork):
    """Chen & Manning's (2014) classifier, over types (see `features`).

    The names of its weights, beside those of `ReadingNetwork`, are those of the model's file:

        labels.weight                                [labels, D]
        first.weight, first.bias                     [F, S * D + C * D], [F]
        measures.weight                              [M * NUM_BUCKETS, F], added to the first layer
        output.weight, output.bias                   [A, H], [A]

    With an encoder of E units a direction, and X slots that look at its states:

        bottleneck.weight, bottleneck.bias           [2K, 2E], [2K]
        contexts.weight                              [F, X * K]

    Args:
        config: sizes and slots.
        num_lexical, num_tags: symbols of types.
        num_labels: labels of arcs; number 0 means none.
        num_transitions: what is scored.
        num_characters: see `ReadingNetwork`.
        choose_heads: with `head_choice`, whose weights are no part of the model.
        num_gold_tags: combinations of gold tags that `head_choice` predicts too.
        num_words: that `cloze` predicts, whose weights are no part of the model either; 0: none.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_lexical: int,
        num_tags: int,
        num_labels: int,
        num_transitions: int,
        *,
        num_characters: int = 0,
        choose_heads: bool = False,
        num_gold_tags: int = 0,
        num_words: int = 0,
    ) -> None:
        super().__init__(config, num_lexical, num_tags, num_characters)
        self.labels = nn.Embedding(1 + num_labels, config.label_size)
        self._add_join()
        num_inputs = (
            len(config.slots) * config.token_size + len(config.label_slots) * config.label_size
        )
        self.first = Linear(num_inputs, config.num_sums)
        self.measures = nn.EmbeddingBag(
            max(1, len(config.measures) * NUM_BUCKETS), config.num_sums, mode="sum"
        )
        if config.encoder == "bilstm":
            self._add_encoder()
            self.bottleneck = Linear(2 * config.encoder_size, 2 * config.context_units)
            width = len(config.contexts) * config.context_units
            self.contexts = Linear(width, config.num_sums, bias=False)
            if choose_heads:
                self.head_choice = HeadChoice(2 * config.encoder_size, num_labels, num_gold_tags)
            self._add_cloze(num_words)
        self.output = Linear(config.hidden_size, num_transitions)
        self._draw_embeddings()
        nn.init.normal_(self.labels.weight, std=0.2)
        nn.init.zeros_(self.measures.weight)
        if config.activation != "cube":
            nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
            nn.init.zeros_(self.first.bias)

    def in_context(self, states_TE: Tensor, drop: Dropout = as_it_is) -> Tensor:
        """Return what the classifier sees of tokens, by the encoder's states, [T, 2E]: [T, K]."""
        return drop(gated(self.bottleneck(states_TE)))

    def forward(
        self,
        vectors_UD: Tensor,
        types_NS: Tensor,
        labels_NC: Tensor,
        measures_NM: Tensor,
        contexts_NX: Tensor | None = None,
        drop_inputs: Dropout = as_it_is,
        drop_hidden: Dropout = as_it_is,
    ) -> Tensor:
        """Return the scores of all transitions, [N, A].

        Args:
            vectors_UD: of types, see `type_vectors`.
            types_NS: which of them stands in each slot.
            labels_NC: 1 + label, or 0.
            measures_NM: the class of each measure.
            contexts_NX: what `in_context` returned, in the context slots, side by side.
            drop_inputs: is applied to the vectors in the slots.
            drop_hidden: is applied to the hidden layer.
        """
        num = len(labels_NC)
        inputs_ND = torch.cat(
            (
                functional.embedding(types_NS, vectors_UD).reshape(num, -1),
                self.labels(labels_NC).reshape(num, -1),
            ),
            dim=1,
        )
        sums_NF = self.first(drop_inputs(inputs_ND))
        if self.config.measures:
            rows = measures_NM + NUM_BUCKETS * torch.arange(
                measures_NM.shape[1], device=measures_NM.device
            )
            sums_NF = sums_NF + self.measures(rows)
        if contexts_NX is not None:
            sums_NF = sums_NF + self.contexts(contexts_NX)
        scores_NA: Tensor = self.output(drop_hidden(ACTIVATIONS[self.config.activation](sums_NF)))
        return scores_NA
