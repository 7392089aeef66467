"""The networks of a classifier: linear over n-grams, encoders of words, and a language model's.

Dimensions: N texts (B of a batch), E n-grams of them, F n-grams that are known, K labels, T words
of all texts, L of the longest, V words that are known, D width of what the encoder reads, H units
of a layer, S width of a state, P width of a language model's states, R width that they are
projected to.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.classification.config import CELLS, LM, LearningConfig, ModelConfig, Pooling
from seqtool.core.arrays import Floats, Halves, Ids, Longs
from seqtool.core.vocabulary import NUM_SPECIALS
from seqtool.lm.neural.cells import CELLS as CELL_CLASSES
from seqtool.lm.neural.cells import Cell
from seqtool.lm.neural.config import ModelConfig as CellConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.parsing.encoding.encoder import ContextEncoder, Dropout, as_it_is, padded_rows
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.training.hardware import run_recurrent

BATCH_WORDS = 1 << 13  # read together when the network works, padding included


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


class CellLayers(nn.Module):
    """Layers of recurrent cells that read forwards: those of language models."""

    def __init__(self, config: ModelConfig, input_size: int) -> None:
        super().__init__()
        settings = CellConfig(
            cell=config.encoder,  # type: ignore[arg-type]
            hidden_size=config.hidden_size,
            depth=config.depth,
            forget_bias=1.0,
        )
        self.cells = nn.ModuleList()
        for layer in range(config.layers):
            width = config.hidden_size if layer else input_size
            cell = CELL_CLASSES[config.encoder](width, config.hidden_size, settings)
            for parameter in cell.parameters():
                nn.init.zeros_(parameter)
            with torch.no_grad():
                for block in cell.input_blocks():
                    nn.init.xavier_uniform_(block)
                for block in cell.recurrent_blocks():
                    nn.init.orthogonal_(block)
                cell.initialise_biases(settings)
            self.cells.append(cell)

    def forward(self, inputs_TD: Tensor, lengths_B: Tensor, dropout: Dropout = as_it_is) -> Tensor:
        """Return the states of the last layer after all words, (T, H).

        Args:
            inputs_TD: the words of texts, one text after another.
            lengths_B: words of each.
            dropout: is applied to what the layers after the first one read.
        """
        words_BL, inside_BL = padded_rows(lengths_B.to(inputs_TD.device))

        def run(values_LBD: Tensor) -> Tensor:
            for number, cell in enumerate(self.cells):
                assert isinstance(cell, Cell)
                entering_LBD = dropout(values_LBD) if number else values_LBD
                values_LBD, _ = cell(entering_LBD, cell.initial_state(len(lengths_B)))
            return values_LBD

        states_LBH = run_recurrent(run, inputs_TD[words_BL.t()])
        return states_LBH.transpose(0, 1)[inside_BL]


class RecurrentNetwork(nn.Module):
    """Vectors of words, an encoder over them, and labels from its pooled states.

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
        self._pooling: Pooling = config.pooling
        self._is_twofold = config.encoder == "bilstm"
        self.embedding = nn.Embedding(num_words, config.embedding_size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        width = config.embedding_size
        if state_size:
            self.lm = nn.Linear(state_size, config.lm_size, bias=False)
            width += config.lm_size
        self.encoder: ContextEncoder | CellLayers | None = None
        if self._is_twofold:
            self.encoder = ContextEncoder(width, config.hidden_size, config.layers)
            width = 2 * config.hidden_size
        elif config.encoder in CELLS:
            self.encoder = CellLayers(config, width)
            width = config.hidden_size
        self.output = nn.Linear(width, num_labels)

    def forward(
        self,
        words_T: Tensor,
        lengths_B: Tensor,
        lm_TP: Tensor | None = None,
        *,
        before: Dropout = as_it_is,
        between: Dropout = as_it_is,
        after: Dropout = as_it_is,
    ) -> Tensor:
        """Return the scores of labels, (B, K).

        Args:
            words_T: ids of words, one text after another.
            lengths_B: words of each text, one or more.
            lm_TP: the language model's states after the words.
            before: is applied to what the encoder reads.
            between: to what its layers after the first one read.
            after: to what is pooled of its states.
        """
        inputs_TD = self.embedding(words_T)
        if lm_TP is not None:
            inputs_TD = torch.cat((inputs_TD, self.lm(lm_TP)), 1)
        states_TS = before(inputs_TD)
        if self.encoder is not None:
            states_TS = self.encoder(states_TS, lengths_B, between)
        pooled_BS = pool(states_TS, lengths_B, self._pooling, is_twofold=self._is_twofold)
        scores_BK: Tensor = self.output(after(pooled_BS))
        return scores_BK


class TunedNetwork(nn.Module):
    """The layers of a language model, and labels from their pooled states.

    Args:
        config: names the pooling.
        layers: the network of a language model; it is copied.
        num_labels: K.

    Attributes:
        layers: its embedding, cells and what joins these.
    """

    def __init__(self, config: ModelConfig, layers: NeuralNetwork, num_labels: int) -> None:
        super().__init__()
        self._pooling: Pooling = config.pooling
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

    def forward(self, units_T: Tensor, lengths_B: Tensor, *, after: Dropout = as_it_is) -> Tensor:
        """Return the scores of labels, (B, K).

        Args:
            units_T: ids of units, one text after another.
            lengths_B: units of each text, one or more.
            after: is applied to what is pooled of the states.
        """
        pooled_BS = pool(self.states(units_T, lengths_B), lengths_B, self._pooling)
        scores_BK: Tensor = self.output(after(pooled_BS))
        return scores_BK


def pool(
    states_TS: Tensor, lengths_B: Tensor, pooling: Pooling, *, is_twofold: bool = False
) -> Tensor:
    """Return one vector of each text, (B, S), from states, one text after another.

    Of a network that `is_twofold`, the second half of a state is that of the reading backwards.
    """
    lengths_B = lengths_B.to(states_TS.device)
    if pooling == "last":
        ends_B = lengths_B.cumsum(0)
        last_BS = states_TS[ends_B - 1]
        if not is_twofold:
            return last_BS
        # the last state of the reading that begins at the end is that of the first word
        first_BS = states_TS[ends_B - lengths_B]
        return torch.cat((last_BS.chunk(2, 1)[0], first_BS.chunk(2, 1)[1]), 1)
    words_BL, inside_BL = padded_rows(lengths_B)
    states_BLS = functional.embedding(words_BL, states_TS)
    if pooling == "max":
        return states_BLS.masked_fill(~inside_BL[..., None], -torch.inf).amax(1)
    return (states_BLS * inside_BL[..., None]).sum(1) / lengths_B[:, None]


def network_of(
    config: ModelConfig, num_words: int, num_labels: int, word_states: WordStates | None
) -> RecurrentNetwork | TunedNetwork:
    """Return the network of an encoder of words.

    Args:
        config: its sizes.
        num_words: that are known, without the special symbols.
        num_labels: K.
        word_states: the language model whose states, or whose layers, it reads; its weights are
            those that a `TunedNetwork` begins with.
    """
    if config.encoder == LM:
        assert word_states is not None
        assert isinstance(word_states.model, NeuralLanguageModel)
        return TunedNetwork(config, word_states.model.network, num_labels)
    size = 0 if word_states is None else word_states.size
    return RecurrentNetwork(config, NUM_SPECIALS + num_words, num_labels, size)


def weight_shapes(
    config: ModelConfig, num_words: int, num_labels: int, word_states: WordStates | None
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of `network_of`, by its name there."""
    with torch.device("meta"):
        network = network_of(config, num_words, num_labels, word_states)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def trained_network(
    config: ModelConfig,
    num_words: int,
    weights: Mapping[str, Floats],
    word_states: WordStates | None,
) -> RecurrentNetwork | TunedNetwork:
    """Return `network_of` with such weights, on the CPU, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):  # the weights are not those that are drawn
        network = network_of(config, num_words, len(weights["output.bias"]), word_states)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network.cpu().eval()


def scores_of(
    network: RecurrentNetwork | TunedNetwork,
    texts: Sequence[Ids],
    states: Sequence[Halves] | None,
) -> Floats:
    """Return the scores of labels of texts, [N, K], on the CPU.

    Args:
        network: with the weights of the classifier.
        texts: the ids of the words of each.
        states: the language model's states after these.
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    scores = np.empty((len(texts), network.output.out_features), np.float32)
    with torch.inference_mode():
        for places in _batches(lengths):
            chosen = places.tolist()
            ids_T = torch.from_numpy(np.concatenate([texts[place] for place in chosen])).long()
            lm_TP = None
            if states is not None:
                read = np.concatenate([states[place] for place in chosen])
                lm_TP = torch.from_numpy(read.astype(np.float32))
            lengths_B = torch.from_numpy(lengths[places])
            given = (ids_T, lengths_B) if lm_TP is None else (ids_T, lengths_B, lm_TP)
            scores[places] = network(*given).numpy()
    return scores


def _batches(lengths: Longs) -> list[Longs]:
    """Return texts in batches of like lengths."""
    batches, batch = [], list[int]()
    for place in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[place] > BATCH_WORDS:
            batches.append(np.array(batch))
            batch = []
        batch.append(place)
    return [*batches, np.array(batch)] if batch else batches
