"""The networks of a classifier: linear over n-grams, a bidirectional LSTM, or a language model's.

Dimensions: N texts (B of a batch), E n-grams of them, F n-grams that are known, K labels, T words
of all texts, L of the longest, V words that are known, D width of what the encoder reads, H units
of a layer, S width of a state, P width of a language model's states, R width that they are
projected to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.classification.config import LM, LearningConfig, ModelConfig
from seqtool.core.arrays import Floats, Halves, Ids
from seqtool.core.vocabulary import NUM_SPECIALS
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.parsing.encoding.encoder import ContextEncoder, padded_rows

BATCH_WORDS = 1 << 13  # read together when the network works, padding included
# what values are multiplied by, for the dropout of a setting of `LearningConfig`
Kept = Callable[[Tensor, str], Tensor | float]


def all_kept(values: Tensor, setting: str) -> float:
    """Return 1: there is no dropout."""
    return 1.0


class LinearNetwork(nn.Module):
    """Multinomial logistic regression over bags of n-grams.

    The weights are `ngrams.weight` (F, K) and `bias` (K), zeros at first.
    """

    def __init__(self, num_features: int, num_labels: int) -> None:
        super().__init__()
        self.ngrams = nn.EmbeddingBag(
            num_features, num_labels, mode="sum", _weight=torch.zeros(num_features, num_labels)
        )
        self.bias = nn.Parameter(torch.zeros(num_labels))

    def forward(self, ids_E: Tensor, values_E: Tensor, begins_B: Tensor) -> Tensor:
        """Return the scores of labels, (B, K), of what `ngrams.laid_out` gives."""
        sums_BK: Tensor = self.ngrams(ids_E, begins_B, per_sample_weights=values_E)
        return sums_BK + self.bias


class ReadingNetwork(nn.Module):
    """Vectors of words, a bidirectional LSTM over them, and labels from its pooled states.

    Args:
        config: its sizes.
        num_words: V, the special symbols among them.
        num_labels: K.
        state_size: P; 0 without a language model.
    """

    def __init__(
        self, config: ModelConfig, num_words: int, num_labels: int, state_size: int = 0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, config.embedding_size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        width = config.embedding_size
        if state_size:
            self.lm = nn.Linear(state_size, config.lm_size, bias=False)
            width += config.lm_size
        self.encoder = ContextEncoder(width, config.hidden_size, config.layers)
        self.output = nn.Linear(2 * config.hidden_size, num_labels)

    def forward(
        self,
        words_T: Tensor,
        lengths_B: Tensor,
        lm_TP: Tensor | None = None,
        *,
        kept: Kept = all_kept,
    ) -> Tensor:
        """Return the scores of labels, (B, K).

        Args:
            words_T: ids of words, one text after another.
            lengths_B: words of each text, one or more.
            lm_TP: the language model's states after the words.
            kept: draws dropout.
        """
        inputs_TD = self.embedding(words_T)
        if lm_TP is not None:
            lm_TP = lm_TP * kept(lm_TP, "dropout_lm")
            inputs_TD = torch.cat((inputs_TD, self.lm(lm_TP)), 1)
        inputs_TD = inputs_TD * kept(inputs_TD, "dropout_embeddings")

        def between(states: Tensor) -> Tensor:
            # the same for all words of a text (Gal & Ghahramani 2016)
            return states * kept(states[:1], "dropout_encoder")

        pooled_BS = maxima(self.encoder(inputs_TD, lengths_B, between), lengths_B)
        scores_BK: Tensor = self.output(pooled_BS * kept(pooled_BS, "dropout_encoder"))
        return scores_BK


class TunedNetwork(nn.Module):
    """The layers of a language model, and labels from their pooled states.

    Args:
        layers: the network of a language model; it is copied.
        num_labels: K.

    Attributes:
        layers: its embedding, cells and what joins these.
    """

    def __init__(self, layers: NeuralNetwork, num_labels: int) -> None:
        super().__init__()
        # without its output layer
        self.layers = copy.deepcopy(layers, {id(layers.softmax): nn.Identity()}).requires_grad_()
        # without an output layer nothing is tied, and the table's gradient alone would be sparse
        self.layers.config = replace(layers.config, tied=False)
        self.output = nn.Linear(layers.config.output_size, num_labels)

    def set_dropout(self, learning: LearningConfig) -> None:
        """Set the dropout on what layers read; the layers' own inner dropout stays as it is."""
        self.layers.config = replace(
            self.layers.config,
            dropout="variational",
            dropout_words=0.0,
            dropout_input=learning.dropout_embeddings,
            dropout_hidden=learning.dropout_encoder,
        )

    def states(self, units_T: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the states of the last layer after all units, (T, S)."""
        rows_BL, inside_BL = padded_rows(lengths_B.to(units_T.device))
        start = self.layers.initial_state(len(lengths_B))
        states_LBS, _ = self.layers.run_layers(units_T[rows_BL.t()], start)
        return states_LBS.transpose(0, 1)[inside_BL]

    def forward(self, units_T: Tensor, lengths_B: Tensor, *, kept: Kept = all_kept) -> Tensor:
        """Return the scores of labels, (B, K); arguments as of `ReadingNetwork.forward`."""
        pooled_BS = maxima(self.states(units_T, lengths_B), lengths_B)
        scores_BK: Tensor = self.output(pooled_BS * kept(pooled_BS, "dropout_encoder"))
        return scores_BK


def maxima(states_TS: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the maxima of the states of each text, (B, S), from states, one text after another."""
    words_BL, inside_BL = padded_rows(lengths_B.to(states_TS.device))
    states_BLS = functional.embedding(words_BL, states_TS)
    return states_BLS.masked_fill(~inside_BL[..., None], -torch.inf).amax(1)


def network_of(
    config: ModelConfig, num_words: int, num_labels: int, lm: NeuralLanguageModel | None
) -> ReadingNetwork | TunedNetwork:
    """Return the network of an encoder of words.

    Args:
        config: its sizes.
        num_words: that are known, without the special symbols.
        num_labels: K.
        lm: the language model whose states, or whose layers, it reads; its weights are those that
            a `TunedNetwork` begins with.
    """
    if config.encoder == LM:
        assert lm is not None
        return TunedNetwork(lm.network, num_labels)
    size = 0 if lm is None else lm.state_size
    return ReadingNetwork(config, NUM_SPECIALS + num_words, num_labels, size)


def weight_shapes(
    config: ModelConfig, num_words: int, num_labels: int, lm: NeuralLanguageModel | None
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of `network_of`, by its name there."""
    with torch.device("meta"):
        network = network_of(config, num_words, num_labels, lm)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def trained_network(
    config: ModelConfig,
    num_words: int,
    weights: Mapping[str, Floats],
    lm: NeuralLanguageModel | None,
) -> ReadingNetwork | TunedNetwork:
    """Return `network_of` with such weights, on the CPU, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):  # the weights are not those that are drawn
        network = network_of(config, num_words, len(weights["output.bias"]), lm)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network.cpu().eval()


def scores_of(
    network: ReadingNetwork | TunedNetwork, texts: Sequence[Ids], states: Sequence[Halves] | None
) -> Floats:
    """Return the scores of labels of texts, [N, K], on the CPU.

    Args:
        network: with the weights of the classifier, in evaluation mode.
        texts: the ids of the words of each.
        states: the language model's states after these.
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    scores = np.empty((len(texts), network.output.out_features), np.float32)
    batch: list[int] = []
    with torch.inference_mode():
        for place in [*np.argsort(lengths, kind="stable").tolist(), -1]:
            if batch and (place < 0 or (len(batch) + 1) * lengths[place] > BATCH_WORDS):
                ids_T = torch.from_numpy(np.concatenate([texts[at] for at in batch])).long()
                inputs = [ids_T, torch.from_numpy(lengths[batch])]
                if states is not None:
                    states_TP = np.concatenate([states[at] for at in batch])
                    inputs.append(torch.from_numpy(states_TP).float())
                scores[batch] = network(*inputs).numpy()
                batch = []
            batch.append(place)
    return scores
