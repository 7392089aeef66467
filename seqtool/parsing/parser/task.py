"""What the tasks of all neural parsers share: how sentences are read, and how a parser is measured.

Random numbers are drawn in the order in which the methods are called, so that a task that calls
them in one order gives the same weights for a seed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seqtool.core.arrays import Ints, Longs
from seqtool.parsing.encoding.encoder import (
    AveragedWeights,
    num_words,
    unknown_chances,
    word_numbers,
)
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.network import ReadingNetwork
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.train import TreebankTask
from seqtool.text.characters import PAD as NO_CHARACTER


class TreeTask(TreebankTask[ParserConfig, TrainingData]):
    """Trees by a network that reads types, or sentences with an encoder."""

    score = "dev_las"
    module: ReadingNetwork

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        super().__init__(config, data, **options)
        learning, types = config.learning, data.types
        self._words: Ints | None = None  # of each type, the number of its word
        if learning.cloze_weight:
            self._words = word_numbers(types.lexical, types.arrays()[0])
        self.module = self._network(num_words(self._words))
        if data.vectors is not None:
            places, rows = data.vectors.initial(types.lexical)
            with torch.no_grad():
                self.module.lexical.weight[places] = torch.from_numpy(rows)
        self.module.to(self._device)
        self._arrays = data.train.arrays
        self._symbols = [torch.from_numpy(array).long() for array in types.arrays()]
        self._dropped = [
            (
                unknown_chances(counts, learning.dropout_words),
                torch.from_numpy(unknowns).long(),
            )
            for counts, unknowns in data.symbol_counts
        ]
        self._average: AveragedWeights = AveragedWeights(self.module, learning.averaging)

    @abstractmethod
    def _network(self, num_words: int) -> ReadingNetwork:
        """Return the network, which tells so many words by their context."""

    def _type_vectors(self, types: Longs | Ints) -> tuple[Tensor, Longs]:
        """Return vectors of the types that occur, [U, D], some of them unknown; which each is."""
        present, places = present_types(types, len(self._symbols[0]))
        symbols = [
            self._some_unknown(rows[present], chances, unknowns)
            for rows, (chances, unknowns) in zip(self._symbols, self._dropped, strict=False)
        ]
        for rows in self._symbols[len(symbols) :]:  # characters, as far as one of the forms has any
            rows = rows[present]
            symbols.append(rows[:, : int((rows != NO_CHARACTER).sum(1).max())].to(self._device))
        learning = self.config.learning
        vectors_UD = self.module.type_vectors(
            *symbols,
            drop=lambda units: units * self._kept(units, learning.dropout_types),
            # one draw for all of a part, so that it is there or not
            drop_part=lambda part: part * self._kept(part[:, :1], learning.dropout_fields),
        )
        return vectors_UD, places

    def _some_unknown(self, symbols: Tensor, chances: Tensor, unknowns: Tensor) -> Tensor:
        """Return symbols of types, the rarer ones now and then unknown, on the device."""
        if self.config.learning.dropout_words:
            # one draw for a type, so that if its form is unknown, all that is rarer is too
            drawn = torch.from_numpy(self._random.random((len(symbols), 1), np.float32))
            symbols = torch.where(drawn < chances[symbols], unknowns[symbols], symbols)
        return symbols.to(self._device)

    def _read(
        self, vectors_UD: Tensor, places_T: Longs, sentences: Ints | Longs, sizes_B: Ints
    ) -> tuple[Tensor, Tensor]:
        """Return the states of tokens in the encoder's first and its last layer, each [T, 2E].

        Args:
            vectors_UD: of types.
            places_T: which of them each token has, one sentence after another.
            sentences: their places in the treebank.
            sizes_B: tokens of each, with ROOT.
        """
        dropout = self.config.learning.dropout_encoder
        inputs_TD = functional.embedding(torch.from_numpy(places_T).to(self._device), vectors_UD)
        inputs_TD = inputs_TD * self._kept(inputs_TD, dropout)
        first_TE, last_TE = self.module.encoder.first_and_last(
            inputs_TD,
            torch.from_numpy(sizes_B),
            # the same for all tokens of a sentence (Gal & Ghahramani 2016)
            lambda states_LBD: states_LBD * self._kept(states_LBD[:1], dropout),
        )
        return first_TE, last_TE * self._kept(last_TE, dropout)

    def _cloze_loss(self, first_TE: Tensor, types_T: Ints | Longs, sizes_B: Ints) -> Tensor:
        """Return the weighted loss of telling words by their context; there is one."""
        assert self._words is not None
        loss: Tensor = self.module.cloze(first_TE, *self._on_device(self._words[types_T], sizes_B))
        return self.config.learning.cloze_weight * loss

    def _on_device(self, *arrays: Ints) -> list[Tensor]:
        return [torch.from_numpy(array).long().to(self._device) for array in arrays]

    @property
    def about(self) -> Mapping[str, Any]:
        """That of the data."""
        return self._data.about

    def model(self) -> Parser:
        """Return the parser of the averaged weights."""
        data, arrays = self._data, self._average.arrays()
        return Parser(self.config, data.types, data.labels, arrays)

    def validate(self) -> dict[str, float]:
        """Return UAS and LAS of the validation part, in percent, as the CoNLL 2018 scorer does."""
        dev = self._data.dev
        return dev.scores(self.model().trees(dev.arrays))


def present_types(types: Longs | Ints, num_types: int) -> tuple[Longs, Longs]:
    """Return the types that occur, ascending and with NONE, and the place of each among them."""
    occurs = np.zeros(num_types, np.bool_)
    occurs[[NONE_TYPE, ROOT_TYPE]] = True
    occurs[types.ravel()] = True
    places = np.cumsum(occurs, dtype=np.int64) - 1
    return np.flatnonzero(occurs), places[types]
