"""The classifier at parsing time: its first layer as tables of products, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seqtool.core.arrays import Floats, Ints, Shorts
from seqtool.parsing.encoding.features import TokenArrays
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import (
    BLOCK,
    TokenReader,
    TypeReader,
    TypeTable,
    encoder_shapes,
    gated,
    grown,
    type_shapes,
)
from seqtool.parsing.parser.transition.hidden_layer import (
    NUM_BUCKETS,
    SCALE,
    Tables,
    Tokens,
    compile_slots,
    hidden_layer,
    round_into,
)
from seqtool.parsing.parser.transition.search import Scorer
from seqtool.parsing.parser.transition.transitions import Configurations

COLUMNS = 512  # of products that are made together, as `BLOCK` types or tokens are
# bytes a parser asks for at first, so that no product is copied when there are more; the system
# gives memory when it is written to
RESERVED = 256 << 20


class ProductTable(TypeTable):
    """The first layer's products of types with every slot, made when a type is first met.

    Args:
        reader: gives the vectors of types, [num_types, D].
        weights: of the first layer, [F, num_slots * D].
        reserved: bytes of products to ask for at first.
    """

    def __init__(self, reader: TypeReader, weights: Floats, reserved: int = RESERVED) -> None:
        super().__init__(reader)
        self._reserved = reserved
        by_slot = _by_slot(weights, reader.width)
        self.num_units = len(weights)
        self._none = reader.none()
        self.base: Floats = (self._none @ by_slot)[0]
        # by columns that are made together
        self._weights = [
            # scaled here once, so that products come in the steps of the table
            np.ascontiguousarray(by_slot[:, begin : begin + COLUMNS]) * np.float32(SCALE)
            for begin in range(0, by_slot.shape[1], COLUMNS)
        ]
        self._rows: Shorts = np.zeros((0, by_slot.shape[1]), np.int16)

    def _grow(self, size: int) -> None:
        row_bytes = self._rows.shape[1] * self._rows.itemsize
        size = max(size, self._reserved // row_bytes)
        self._rows = grown(self._rows, size)
        super()._grow(size)

    def _note(self, at: int, vectors: Floats) -> None:
        rows = np.arange(at, at + len(vectors))
        vectors -= self._none
        for number, weights in enumerate(self._weights):
            round_into(vectors @ weights, rows, self._rows, number * COLUMNS)

    @property
    def num_bytes(self) -> int:
        """Memory of the products of the types so far."""
        return self._rows[: self.num_types].nbytes

    @property
    def table(self) -> Shorts:
        """The products, [num_types * num_slots, H]."""
        return self._rows.reshape(-1, self.num_units)


def _by_slot(weights: Floats, width: int) -> Floats:
    """Return weights [F, num_slots * D] as [D, num_slots * F]."""
    split = weights.reshape(len(weights), -1, width)
    return np.ascontiguousarray(split.transpose(2, 1, 0).reshape(width, -1))


class TokenProducts(TokenReader):
    """The first layer's products of tokens in their context with every slot that looks at them."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Floats]) -> None:
        super().__init__(weights)
        of_contexts = weights["contexts.weight"]
        self._num_units = len(of_contexts)
        self._bottleneck = np.ascontiguousarray(weights["bottleneck.weight"].T)
        self._bias = weights["bottleneck.bias"]
        self._weights = _by_slot(of_contexts, config.context_units) * np.float32(SCALE)

    def of_units(self, units: Floats) -> Shorts:
        """Return the products of tokens whose units are known, [T, K]; a table as below."""
        table = np.empty((len(units), self._weights.shape[1]), np.int16)
        round_into(units @ self._weights, np.arange(len(units)), table, 0)
        return table.reshape(-1, self._num_units)

    def table(self, vectors: Floats, arrays: TokenArrays) -> Shorts:
        """Return the products, [num_tokens * num_slots, hidden], in steps of 1 / SCALE.

        The rows of tokens of no sentence mean nothing. `vectors` are those of types.
        """
        table = np.empty((len(arrays.types), self._weights.shape[1]), np.int16)
        for rows, states in self.read(vectors, arrays):
            for begin in range(0, len(states), BLOCK):
                block = slice(begin, begin + BLOCK)
                units = gated(states[block] @ self._bottleneck + self._bias)
                round_into(units @ self._weights, rows[block], table, 0)
        return table.reshape(-1, self._num_units)


def weight_shapes(
    config: ModelConfig,
    num_lexical: int,
    num_tags: int,
    labels: Labels,
    num_characters: int = 0,
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a classifier, by its name in `task.ParserNetwork`.

    `num_lexical`, `num_tags` and `num_characters` are numbers of symbols.
    """
    units = config.hidden_size
    of_words = len(config.slots) * config.token_size
    shapes: dict[str, tuple[int, ...]] = {
        **type_shapes(config, num_lexical, num_tags, num_characters),
        "labels.weight": (1 + len(labels), config.label_size),
        "first.weight": (config.num_sums, of_words + len(config.label_slots) * config.label_size),
        "first.bias": (config.num_sums,),
        "measures.weight": (max(1, len(config.measures) * NUM_BUCKETS), config.num_sums),
        "output.weight": (labels.num_transitions, units),
        "output.bias": (labels.num_transitions,),
    }
    if config.encoder == "bilstm":
        shapes |= encoder_shapes(config)
        shapes["bottleneck.weight"] = (2 * config.context_units, 2 * config.encoder_size)
        shapes["bottleneck.bias"] = (2 * config.context_units,)
        shapes["contexts.weight"] = (config.num_sums, len(config.contexts) * config.context_units)
    return shapes


class Classifier:
    """Scores transitions by the types of words, as `task.ParserNetwork` does.

    Attributes:
        tokens: what reads tokens in context; None without an encoder.

    Args:
        config: what the network is.
        weights: its arrays, by their names there.
        reserved: bytes of products to ask for at first; 0 where the types are known beforehand.
        reader: gives the vectors of types, if not by the weights.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Floats],
        *,
        reserved: int = RESERVED,
        reader: TypeReader | None = None,
    ) -> None:
        self.slots = compile_slots(
            config.slots, config.label_slots, config.measures, config.contexts
        )
        self._activation = config.activation
        first = weights["first.weight"]
        num_sums = len(first)
        of_words, of_labels = np.split(first, [len(config.slots) * config.token_size], axis=1)
        self.products = ProductTable(reader or TypeReader(weights), of_words, reserved)
        label_products = weights["labels.weight"] @ _by_slot(of_labels, config.label_size)
        num_measures = len(config.measures)
        by_measure = weights["measures.weight"][: num_measures * NUM_BUCKETS]
        by_measure = by_measure.reshape(num_measures, NUM_BUCKETS, num_sums)
        by_bucket = by_measure.transpose(1, 0, 2).reshape(NUM_BUCKETS, -1)
        bias = weights["first.bias"]
        # what NONE adds in each slot; the tables have what others add beyond that
        for products in (self.products.base, label_products[0], by_bucket[0]):
            bias = bias + products.reshape(-1, num_sums).sum(axis=0)
        self.tokens: TokenProducts | None = None
        if config.encoder == "bilstm":
            self.tokens = TokenProducts(config, weights)
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
        if self.tokens is None:
            return np.empty((0, self._num_sums), np.int16)
        return self.tokens.table(self.products.vectors, arrays)

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
