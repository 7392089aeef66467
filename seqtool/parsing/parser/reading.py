"""How a parser reads words, without torch: the vectors of types, and their states in a sentence.

What it is made of is in `network.ReadingNetwork`: of a type the sums of the embeddings of its
symbols, which a gated layer may join; of a token what the encoder makes of its type's vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.parsing.encoding.features import NONE, TokenArrays, token_rows
from seqtool.parsing.encoding.lstm import Recurrence, bilstm_shapes, part_of
from seqtool.parsing.parser.config import ModelConfig
from seqtool.text.characters import BEGIN, END, Convolution, filter_shapes
from seqtool.text.characters import PAD as NO_CHARACTER

Number = TypeVar("Number", bound=np.generic)

# types whose vectors are made together: enough for products to be fast, and few enough to stay in a
# core's own cache
BLOCK = 256
GROUP_TOKENS = 4096  # tokens that are read in context together


def gated(sums: Floats) -> Floats:
    """Return units times their gates (`network.gated`); the sums, [..., 2U], are overwritten."""
    units, gates = np.split(sums, 2, axis=-1)
    units *= 0.5 + 0.5 * np.tanh(0.5 * gates)  # the logistic function, which overflows
    return units


class TypeReader:
    """What gives the vectors of types.

    Args:
        weights: the arrays of `network.ReadingNetwork`, by their names there.
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._embeddings = (weights["lexical.weight"], weights["tags.weight"])
        self._join = part_of(weights, "join.")
        self.width = sum(table.shape[1] for table in self._embeddings)
        self._convolution: Convolution | None = None
        if part_of(weights, "characters."):
            self._convolution = Convolution(weights)
            self.width += self._convolution.num_filters

    def none(self) -> Floats:
        """Return the vector of NONE, [1, D]."""
        symbols = np.asarray([[NONE]], np.int32)
        return self.vectors(symbols, symbols, np.asarray([[BEGIN, END]], np.int32))

    def vectors(self, lexical: Ints, tags: Ints, characters: Ints | None = None) -> Floats:
        """Return the vectors of types by their symbols, each [num_types, width]: [num_types, D].

        `characters` are those of forms, which are looked at where characters are read.
        """
        parts = [
            _sums(embeddings, rows)
            for embeddings, rows in zip(self._embeddings, (lexical, tags), strict=True)
        ]
        if self._convolution is not None:
            assert characters is not None
            is_there = characters != NO_CHARACTER
            lengths = is_there.sum(1, dtype=np.int32)
            parts.append(self._convolution.vectors(characters[is_there], lengths))
        vectors = np.concatenate(parts, axis=1)
        if self._join:
            sums = vectors @ self._join["inside.weight"].T + self._join["inside.bias"]
            vectors += gated(sums) @ self._join["outside.weight"].T
        return vectors


class KnownTypes(TypeReader):
    """The same of types whose vectors are known, each by its number as its only lexical symbol.

    Args:
        vectors: [num_types, D]; NONE's comes first.
    """

    def __init__(self, vectors: Floats) -> None:
        self._vectors = vectors
        self.width = vectors.shape[1]

    def none(self) -> Floats:
        """Return the vector of NONE, [1, D]."""
        return self._vectors[:1].copy()

    def vectors(self, lexical: Ints, tags: Ints, characters: Ints | None = None) -> Floats:
        """Return the vectors of types, [num_types, D], by their numbers alone."""
        known: Floats = self._vectors[lexical[:, 0]]
        return known


class TypeTable:
    """The vectors of types, made when a type is first met."""

    def __init__(self, reader: TypeReader) -> None:
        self._reader = reader
        self._type_vectors: Floats = np.zeros((0, reader.width), np.float32)
        self.num_types = 0

    def extend(self, *symbols: Ints) -> None:
        """Add types by their symbols, each [num_types, width]: see `Types.arrays`."""
        num_new = len(symbols[0])
        needed = self.num_types + num_new
        if needed > len(self._type_vectors):
            # those that come first may be all; after that, there may be more again
            self._grow(needed + needed // 4 if len(self._type_vectors) else needed)
        for begin in range(0, num_new, BLOCK):
            vectors = self._reader.vectors(*(rows[begin : begin + BLOCK] for rows in symbols))
            at = self.num_types + begin
            self._type_vectors[at : at + len(vectors)] = vectors
            self._note(at, vectors)
        self.num_types = needed

    def _grow(self, size: int) -> None:
        """Make room for so many types, or more."""
        self._type_vectors = grown(self._type_vectors, size)

    def _note(self, at: int, vectors: Floats) -> None:
        """Make what else is kept of the types from `at` on; the vectors may be overwritten."""

    @property
    def num_bytes(self) -> int:
        """Memory of the types so far."""
        return self.vectors.nbytes

    def clear(self) -> None:
        """Forget all types; the memory is kept for others."""
        self.num_types = 0

    @property
    def vectors(self) -> Floats:
        """The vectors of types, [num_types, D]."""
        return self._type_vectors[: self.num_types]


def grown(rows: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    """Return the same rows, with room for more."""
    more = np.empty((size, rows.shape[1]), rows.dtype)
    more[: len(rows)] = rows
    return more


def _sums(embeddings: Floats, symbols: Ints) -> Floats:
    """Return the sums of the embeddings of symbols, [num_types, D]; that of PAD is zero."""
    sums: Floats = embeddings[symbols[:, 0]]
    for column in symbols.T[1:]:
        if column.any():
            sums += embeddings[column]
    return sums


class TokenReader:
    """The encoder, which reads tokens in their sentences.

    Args:
        weights: the arrays of `network.ReadingNetwork`, by their names there.
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._recurrence = Recurrence(part_of(weights, "encoder."))

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has."""
        return self._recurrence.num_layers

    def read(
        self, vectors: Floats, arrays: TokenArrays, num_layers: int | None = None
    ) -> Iterator[tuple[Longs, Floats]]:
        """Yield the rows of groups of tokens, ROOTs among them, and their states, [tokens, 2H].

        For the states and the arguments see `read_group`.
        """
        for group in groups_of(arrays.lengths):
            rows = token_rows(arrays.tokens[group], arrays.lengths[group])
            tokens, states = self.read_group(vectors, arrays, group, rows, num_layers)
            yield rows[tokens], states

    def read_group(
        self,
        vectors: Floats,
        arrays: TokenArrays,
        group: Longs,
        rows: Longs,
        num_layers: int | None = None,
    ) -> tuple[Longs, Floats]:
        """Return which token of some sentences each state is of, and the states, [tokens, 2H].

        Args:
            vectors: of types.
            arrays: sentences.
            group: the places of those that are read.
            rows: of their tokens, sentence by sentence.
            num_layers: see `Recurrence.states`.
        """
        present, places = np.unique(arrays.types[rows], return_inverse=True)
        states, tokens = self._recurrence.states(
            vectors[present], places.astype(np.int32), arrays.lengths[group] + 1, num_layers
        )
        return tokens, states

    def states(self, vectors: Floats, arrays: TokenArrays, layer: int | None = None) -> Floats:
        """Return the states of all tokens, [T, 2H]; the rows of no sentence are zeros.

        There is a sentence. `layer` counts from 1, and is the last one when not given.
        """
        result: Floats | None = None
        for rows, states in self.read(vectors, arrays, layer):
            if result is None:
                result = np.zeros((len(arrays.types), states.shape[1]), np.float32)
            result[rows] = states
        assert result is not None
        return result


def groups_of(lengths: Ints, *, by_length: bool = True) -> list[Longs]:
    """Return the places of sentences that are read together: of like lengths, or as they come."""
    order = np.argsort(-lengths, kind="stable") if by_length else np.arange(len(lengths))
    groups = np.cumsum(lengths[order] + 1) // GROUP_TOKENS
    return np.split(order, np.flatnonzero(np.diff(groups)) + 1)


def type_shapes(
    config: ModelConfig, num_lexical: int, num_tags: int, num_characters: int = 0
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that `TypeReader` reads; the numbers are of symbols."""
    shapes: dict[str, tuple[int, ...]] = {
        "lexical.weight": (num_lexical, config.lexical_size),
        "tags.weight": (num_tags, config.tag_size),
    }
    if config.character_width:
        shapes |= filter_shapes(
            num_characters, config.character_size, config.character_width, config.filter_width
        )
    if config.type_units:
        shapes["join.inside.weight"] = (2 * config.type_units, config.token_size)
        shapes["join.inside.bias"] = (2 * config.type_units,)
        shapes["join.outside.weight"] = (config.token_size, config.type_units)
    return shapes


def encoder_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that `TokenReader` reads."""
    size, layers = config.encoder_size, config.encoder_layers
    return bilstm_shapes("encoder", config.token_size, size, layers)
