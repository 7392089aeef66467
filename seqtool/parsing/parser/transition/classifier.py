"""The classifier at parsing time: its first layer as tables of products, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Floats, Ints, Shorts
from seqtool.parsing.encoding.features import NONE, TokenArrays, token_rows
from seqtool.parsing.encoding.lstm import Recurrence, Room, bilstm_shapes, part_of
from seqtool.parsing.encoding.pretrained import WEIGHT, project
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.hidden_layer import (
    NUM_BUCKETS,
    SCALE,
    Tables,
    Tokens,
    compile_slots,
    gated,
    hidden_layer,
    round_into,
)
from seqtool.parsing.parser.transition.search import Scorer
from seqtool.parsing.parser.transition.transitions import Configurations

Number = TypeVar("Number", bound=np.generic)

# types or tokens, and columns, whose products are made together: enough for products to be fast,
# and few enough to stay in a core's own cache
BLOCK = 256
COLUMNS = 512
GROUP_TOKENS = 4096  # tokens that are read in context together
# bytes a parser asks for at first, so that no product is copied when there are more; the system
# gives memory when it is written to
RESERVED = 256 << 20


class ProductTable:
    """The first layer's products of types with every slot, made when a type is first met.

    Args:
        lexical, tags: embeddings of symbols, [num_symbols, D].
        weights: of the first layer, [F, num_slots * (sum of the D)].
        join: the arrays of `network.FieldJoin` by their names there; none without it.
        reserved: bytes of products to ask for at first.
    """

    def __init__(
        self,
        lexical: Floats,
        tags: Floats,
        weights: Floats,
        join: Mapping[str, Floats],
        reserved: int = RESERVED,
    ) -> None:
        self._embeddings = (lexical, tags)
        self._join, self._reserved = join, reserved
        width = lexical.shape[1] + tags.shape[1]
        by_slot = _by_slot(weights, width)
        self.num_units = len(weights)
        none = np.asarray([[NONE]], np.int32)
        self._none: Floats = self._vectors((none, none))
        self.base: Floats = (self._none @ by_slot)[0]
        # by columns that are made together
        self._weights = [
            np.ascontiguousarray(by_slot[:, begin : begin + COLUMNS]) * np.float32(SCALE)
            for begin in range(0, by_slot.shape[1], COLUMNS)
        ]
        self._type_vectors: Floats = np.zeros((0, width), np.float32)
        self._rows: Shorts = np.zeros((0, by_slot.shape[1]), np.int16)
        self.num_types = 0

    def _vectors(self, symbols: tuple[Ints, Ints]) -> Floats:
        """Return the vectors of types by their lexical and tag symbols."""
        vectors = np.concatenate(
            [
                _sums(embeddings, rows)
                for embeddings, rows in zip(self._embeddings, symbols, strict=True)
            ],
            axis=1,
        )
        if self._join:
            sums = vectors @ self._join["inside.weight"].T + self._join["inside.bias"]
            vectors += gated(sums) @ self._join["outside.weight"].T
        return vectors

    def extend(self, lexical: Ints, tags: Ints) -> None:
        """Add types by their symbols, each [num_types, width]."""
        needed = self.num_types + len(lexical)
        if needed > len(self._rows):
            row_bytes = self._rows.shape[1] * self._rows.itemsize
            # those that come first may be all; after that, there may be more again
            growing = needed + needed // 4 if len(self._rows) else needed
            size = max(growing, self._reserved // row_bytes)
            self._rows = _grown(self._rows, size)
            self._type_vectors = _grown(self._type_vectors, size)
        for begin in range(0, len(lexical), BLOCK):
            block = slice(begin, begin + BLOCK)
            vectors = self._vectors((lexical[block], tags[block]))
            at = self.num_types + begin
            rows = np.arange(at, at + len(vectors))
            self._type_vectors[rows] = vectors
            vectors -= self._none
            for number, weights in enumerate(self._weights):
                round_into(vectors @ weights, rows, self._rows, number * COLUMNS)
        self.num_types = needed

    @property
    def num_bytes(self) -> int:
        """Memory of the types so far."""
        return self._rows[: self.num_types].nbytes

    def clear(self) -> None:
        """Forget all types; the memory is kept for others."""
        self.num_types = 0

    @property
    def vectors(self) -> Floats:
        """The vectors of types, [num_types, D]."""
        return self._type_vectors[: self.num_types]

    @property
    def table(self) -> Shorts:
        """The products, [num_types * num_slots, H]."""
        return self._rows.reshape(-1, self.num_units)


def _grown(rows: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    """Return the same rows, with room for more."""
    grown = np.empty((size, rows.shape[1]), rows.dtype)
    grown[: len(rows)] = rows
    return grown


def _by_slot(weights: Floats, width: int) -> Floats:
    """Return weights [F, num_slots * D] as [D, num_slots * F]."""
    split = weights.reshape(len(weights), -1, width)
    return np.ascontiguousarray(split.transpose(2, 1, 0).reshape(width, -1))


def _sums(embeddings: Floats, symbols: Ints) -> Floats:
    """Return the sums of the embeddings of symbols, [num_types, D]; that of PAD is zero."""
    sums: Floats = embeddings[symbols[:, 0]]
    for column in symbols.T[1:]:
        if column.any():
            sums += embeddings[column]
    return sums


class TokenProducts:
    """The first layer's products of tokens in their context with every slot that looks at them."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Floats]) -> None:
        self._recurrence = Recurrence(part_of(weights, "encoder."))
        self._lm = weights.get(WEIGHT)
        of_contexts = weights["contexts.weight"]
        self._num_units = len(of_contexts)
        self._bottleneck = np.ascontiguousarray(weights["bottleneck.weight"].T)
        self._bias = weights["bottleneck.bias"]
        self._rows: Shorts = np.empty((0, config.context_units), np.int16)
        self._weights: Floats = _by_slot(of_contexts, config.context_units) * np.float32(SCALE)
        self._room = Room()

    def table(self, vectors: Floats, arrays: TokenArrays) -> Shorts:
        """Return the products, [num_tokens * num_slots, hidden], in steps of 1 / SCALE.

        They lie in memory that the next call takes again; the rows of tokens of no sentence mean
        nothing. `vectors` are those of types.
        """
        if len(self._rows) < len(arrays.types):
            self._rows = np.empty((len(arrays.types), self._weights.shape[1]), np.int16)
        table = self._rows[: len(arrays.types)]
        for rows, states in self.read(vectors, arrays):
            for begin in range(0, len(states), BLOCK):
                block = slice(begin, begin + BLOCK)
                seen = gated(states[block] @ self._bottleneck + self._bias)
                products = self._room.array("products", len(seen), table.shape[1])
                np.matmul(seen, self._weights, out=products)
                round_into(products, rows[block], table, 0)
        return table.reshape(-1, self._num_units)

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has."""
        return self._recurrence.num_layers

    def read(
        self, vectors: Floats, arrays: TokenArrays, num_layers: int | None = None
    ) -> Iterator[tuple[npt.NDArray[np.int64], Floats]]:
        """Yield groups of tokens, ROOTs among them, and their states, [tokens, 2H].

        The states lie in memory that the next group takes again. `num_layers` is that of
        `Recurrence.states`.
        """
        # of like lengths together
        order = np.argsort(-arrays.lengths, kind="stable")
        groups = np.cumsum(arrays.lengths[order] + 1) // GROUP_TOKENS
        for group in np.split(order, np.flatnonzero(np.diff(groups)) + 1):
            rows = token_rows(arrays.tokens[group], arrays.lengths[group])
            if self._lm is None or arrays.lm_states is None:
                present, places = np.unique(arrays.types[rows], return_inverse=True)
                inputs = vectors[present]
            else:
                projected = project([arrays.lm_states[i] for i in group], self._lm)
                inputs = np.concatenate((vectors[arrays.types[rows]], projected), axis=1)
                places = np.arange(len(rows))
            states, tokens = self._recurrence.states(
                inputs, places.astype(np.int32), arrays.lengths[group] + 1, num_layers
            )
            yield rows[tokens], states


def weight_shapes(
    config: ModelConfig, num_lexical: int, num_tags: int, labels: Labels, state_size: int = 0
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a classifier, by its name in `network.ParserNetwork`.

    `num_lexical` and `num_tags` are numbers of symbols, `state_size` is the width of a language
    model's states, 0 without one.
    """
    units = config.hidden_size
    of_words = len(config.slots) * config.token_size
    shapes: dict[str, tuple[int, ...]] = {
        "lexical.weight": (num_lexical, config.lexical_size),
        "tags.weight": (num_tags, config.tag_size),
        "labels.weight": (1 + len(labels), config.label_size),
        "first.weight": (config.num_sums, of_words + len(config.label_slots) * config.label_size),
        "first.bias": (config.num_sums,),
        "measures.weight": (max(1, len(config.measures) * NUM_BUCKETS), config.num_sums),
        "output.weight": (labels.num_transitions, units),
        "output.bias": (labels.num_transitions,),
    }
    if config.type_units:
        shapes["join.inside.weight"] = (2 * config.type_units, config.token_size)
        shapes["join.inside.bias"] = (2 * config.type_units,)
        shapes["join.outside.weight"] = (config.token_size, config.type_units)
    if config.encoder == "bilstm":
        size, width = config.encoder_size, config.token_size
        if state_size:
            shapes[WEIGHT] = (config.lm_size, state_size)
            width += config.lm_size
        shapes |= bilstm_shapes("encoder", width, size, config.encoder_layers)
        shapes["bottleneck.weight"] = (2 * config.context_units, 2 * size)
        shapes["bottleneck.bias"] = (2 * config.context_units,)
        shapes["contexts.weight"] = (config.num_sums, len(config.contexts) * config.context_units)
    return shapes


class Classifier:
    """Scores transitions by the types of words, as `network.ParserNetwork` does.

    Args:
        config: what the network is.
        weights: its arrays, by their names there.
        reserved: bytes of products to ask for at first; 0 where the types are known beforehand.
    """

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Floats], *, reserved: int = RESERVED
    ) -> None:
        self.slots = compile_slots(
            config.slots, config.label_slots, config.measures, config.contexts
        )
        self._activation = config.activation
        first = weights["first.weight"]
        num_sums = len(first)
        of_words, of_labels = np.split(first, [len(config.slots) * config.token_size], axis=1)
        self.products = ProductTable(
            weights["lexical.weight"],
            weights["tags.weight"],
            of_words,
            part_of(weights, "join."),
            reserved,
        )
        label_products = weights["labels.weight"] @ _by_slot(of_labels, config.label_size)
        num_measures = len(config.measures)
        by_measure = weights["measures.weight"][: num_measures * NUM_BUCKETS]
        by_measure = by_measure.reshape(num_measures, NUM_BUCKETS, num_sums)
        by_bucket = by_measure.transpose(1, 0, 2).reshape(NUM_BUCKETS, -1)
        bias = weights["first.bias"]
        for products in (self.products.base, label_products[0], by_bucket[0]):
            bias = bias + products.reshape(-1, num_sums).sum(axis=0)
        self._in_context: TokenProducts | None = None
        if config.encoder == "bilstm":
            self._in_context = TokenProducts(config, weights)
        self._bias: Ints = np.rint(bias * SCALE).astype(np.int32)
        self._fixed = (_table_of(label_products, num_sums), _table_of(by_bucket, num_sums))
        self._output = np.ascontiguousarray(weights["output.weight"].T)
        self._output_bias = weights["output.bias"]
        self._num_sums = num_sums
        self._make_room(0)

    def _make_room(self, num: int) -> None:
        num_units = len(self._output)
        self._hidden: Floats = np.empty((num, num_units), np.float32)
        self._gates: Floats = np.empty((num, self._num_sums - num_units), np.float32)

    def in_context(self, arrays: TokenArrays) -> Shorts:
        """Return the products of tokens as the encoder reads them, whose types are known by now.

        A table for `scorer`, [num_tokens * num_slots, F]; empty without an encoder.
        """
        if self._in_context is None:
            return np.empty((0, self._num_sums), np.int16)
        return self._in_context.table(self.products.vectors, arrays)

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has; 0 without one."""
        return 0 if self._in_context is None else self._in_context.num_layers

    def states(self, arrays: TokenArrays, layer: int | None = None) -> Floats:
        """Return the encoder's states of all tokens, [T, 2H]; the rows of no sentence are zeros.

        Their types are known by now, and there is an encoder. `layer` counts from 1, and is the
        last one when not given.
        """
        assert self._in_context is not None
        result: Floats | None = None
        for rows, states in self._in_context.read(self.products.vectors, arrays, layer):
            if result is None:
                result = np.zeros((len(arrays.types), states.shape[1]), np.float32)
            result[rows] = states
        assert result is not None
        return result

    def scorer(
        self,
        token_types: Ints,
        in_context: Shorts | None = None,
        token_rows: Ints | None = None,
    ) -> Scorer:
        """Return what scores the configurations of sentences, by the types of all tokens.

        `in_context` is what the method returned; `token_rows` tell for which token of it each token
        stands, None for itself.
        """
        if in_context is None:
            in_context = np.empty((0, self._num_sums), np.int16)
        if token_rows is None:
            token_rows = np.arange(len(token_types), dtype=np.int32)
        tables = Tables(self.products.table, *self._fixed, in_context)
        tokens = Tokens(token_types, token_rows)

        def score(configurations: Configurations, which: Ints, scores: Floats) -> None:
            if len(self._hidden) < len(which):
                self._make_room(len(which))
            hidden = self._hidden[: len(which)]
            hidden_layer(
                configurations,
                which,
                tokens,
                self.slots,
                tables,
                self._bias,
                self._activation,
                hidden,
                self._gates[: len(which)],
            )
            np.dot(hidden, self._output, out=scores)
            scores += self._output_bias

        return score


def average_scorer(members: Sequence[Scorer]) -> Scorer:
    """Return the scorer of an ensemble: it gives the average of its members' scores.

    Its probabilities are the geometric mean of theirs, made to add up to 1.
    """
    first, *others = members
    if not others:
        return first

    def score(configurations: Configurations, which: Ints, scores: Floats) -> None:
        first(configurations, which, scores)
        more = np.empty_like(scores)
        for scorer in others:
            scorer(configurations, which, more)
            scores += more
        scores /= len(members)

    return score


def _table_of(products: Floats, num_units: int) -> Shorts:
    table = np.empty(products.shape, np.int16)
    if products.size:
        scaled = (products - products[0]) * np.float32(SCALE)
        round_into(scaled, np.arange(len(table)), table, 0)
    return table.reshape(-1, num_units)
