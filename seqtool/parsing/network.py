"""The classifier for training: embeddings, one hidden layer, scores of transitions.

Dimensions: N configurations, U types in a batch, D width of a vector, S, C, M slots for words,
labels and measures, H hidden units, A transitions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.parsing.config import ModelConfig
from seqtool.parsing.encoder import ContextEncoder
from seqtool.parsing.features import PAD
from seqtool.parsing.slots import NUM_BUCKETS


class ParserNetwork(nn.Module):
    """Chen & Manning's (2014) classifier, over types (see `features`).

    The names of its weights are those of the model's file:

        lexical.weight, tags.weight, labels.weight   [symbols or labels, D]
        first.weight, first.bias                     [H, S * D + C * D], [H]
        measures.weight                              [M * NUM_BUCKETS, H], added to the first layer
        output.weight, output.bias                   [A, H], [A]

    With an encoder of E units a direction, and X slots that look at its states:

        encoder...                                   see `encoder.ContextEncoder`
        contexts.weight                              [H, X * 2E]

    Args:
        config: sizes and slots.
        num_lexical, num_tags: symbols of types.
        num_labels: labels of arcs; number 0 means none.
        num_transitions: what is scored.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_lexical: int,
        num_tags: int,
        num_labels: int,
        num_transitions: int,
    ) -> None:
        super().__init__()
        self.config = config
        self.lexical = nn.EmbeddingBag(
            num_lexical, config.lexical_size, mode="sum", padding_idx=PAD
        )
        self.tags = nn.EmbeddingBag(num_tags, config.tag_size, mode="sum", padding_idx=PAD)
        self.labels = nn.Embedding(1 + num_labels, config.label_size)
        num_inputs = (
            len(config.slots) * (config.lexical_size + config.tag_size)
            + len(config.label_slots) * config.label_size
        )
        self.first = nn.Linear(num_inputs, config.hidden_size)
        self.measures = nn.EmbeddingBag(
            max(1, len(config.measures) * NUM_BUCKETS), config.hidden_size, mode="sum"
        )
        if config.encoder == "bilstm":
            self.encoder = ContextEncoder(
                config.lexical_size + config.tag_size, config.encoder_size, config.encoder_layers
            )
            width = len(config.contexts) * 2 * config.encoder_size
            self.contexts = nn.Linear(width, config.hidden_size, bias=False)
        self.output = nn.Linear(config.hidden_size, num_transitions)
        for embedding, std in ((self.lexical, 0.03), (self.tags, 0.2), (self.labels, 0.2)):
            nn.init.normal_(embedding.weight, std=std)
        with torch.no_grad():
            self.lexical.weight[PAD] = 0.0
            self.tags.weight[PAD] = 0.0
        nn.init.zeros_(self.measures.weight)
        if config.activation == "relu":
            nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
            nn.init.zeros_(self.first.bias)

    def forward(
        self,
        vectors_UD: Tensor,
        types_NS: Tensor,
        labels_NC: Tensor,
        measures_NM: Tensor,
        contexts_NX: Tensor | None = None,
        drop_inputs: Callable[[Tensor], Tensor] = lambda inputs_ND: inputs_ND,
        drop_hidden: Callable[[Tensor], Tensor] = lambda hidden_NH: hidden_NH,
    ) -> Tensor:
        """Return the scores of all transitions, [N, A].

        Args:
            vectors_UD: of types: their lexical part, then that of their tags.
            types_NS: which of them stands in each slot.
            labels_NC: 1 + label, or 0.
            measures_NM: the class of each measure.
            contexts_NX: states of the encoder in the context slots, side by side.
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
        sums_NH = self.first(drop_inputs(inputs_ND))
        if self.config.measures:
            rows = measures_NM + NUM_BUCKETS * torch.arange(
                measures_NM.shape[1], device=measures_NM.device
            )
            sums_NH = sums_NH + self.measures(rows)
        if contexts_NX is not None:
            sums_NH = sums_NH + self.contexts(contexts_NX)
        hidden_NH = sums_NH.relu() if self.config.activation == "relu" else sums_NH**3
        scores_NA: Tensor = self.output(drop_hidden(hidden_NH))
        return scores_NA

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights as the model's file holds them."""
        return {name: value.detach().cpu().numpy() for name, value in self.state_dict().items()}
