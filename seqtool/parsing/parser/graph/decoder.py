"""Trees by scores of arcs, without torch: `GraphDecoder`.

Sentences are read in groups. What is computed of the tokens of a group lies in the order of its
sentences, ROOT before the words of each, so that the scores of a sentence are one product:

    tokens     ROOT a b c  ROOT d e          T = 7
    scores     [3, 4]      [2, 3]            flat, as `spanning` takes them: 18 numbers

A sentence of more than `LONGEST` words is parsed in parts, as if each were a sentence; the root of
the first part then is the head of the others'.

Dimensions: T tokens, N words, E units of a direction of the encoder, A units by which heads are
scored, R units by which labels are scored, K labels.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.features import TokenArrays, Types, token_rows
from seqtool.parsing.encoding.lstm import Room
from seqtool.parsing.model import average
from seqtool.parsing.parser.config import ModelConfig, ParserConfig
from seqtool.parsing.parser.decoder import Decoder
from seqtool.parsing.parser.graph.eisner import projective_trees
from seqtool.parsing.parser.graph.spanning import spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import (
    TokenReader,
    TypeReader,
    TypeTable,
    encoder_shapes,
    groups_of,
    type_shapes,
)

SLOPE = 0.1  # of units below zero (leaky ReLU, as Dozat & Manning's)
LONGEST = 2048  # words whose arcs are all scored: 16 MB of scores
LABEL_WORDS = 64  # words whose labels are scored together: their products stay in a core's cache

_floats = types.float32[:, ::1]
_ints = types.int32[::1]
_longs = types.int64[::1]


@compiled(types.void(_floats, types.float32[::1], _longs, _floats))
def _write_units(sums, bias, places, units):  # type: ignore[no-untyped-def]
    """Write leaky ReLUs of sums [T, U], in another order: row t to row places[t]."""
    slope = np.float32(SLOPE)
    for row in range(sums.shape[0]):
        place = places[row]
        for unit in range(sums.shape[1]):
            value = sums[row, unit] + bias[unit]
            units[place, unit] = max(value, slope * value)


@compiled(types.void(_floats, _floats, _longs, _floats), fastmath={"reassoc", "contract"})
def _add_products(through, heads, places, scores):  # type: ignore[no-untyped-def]
    """Add to the scores of labels [N, K] the products of rows [N, K * R] with heads [T, R].

    `places` tells which head each row has.
    """
    size = heads.shape[1]
    for row in range(scores.shape[0]):
        head = heads[places[row]]
        for label in range(scores.shape[1]):
            begin = label * size
            total = np.float32(0.0)
            for unit in range(size):
                total += through[row, begin + unit] * head[unit]
            scores[row, label] += total


@compiled(types.void(_floats, _ints, types.int64, _ints))
def _best_labels(scores, heads, num_arcs, best):  # type: ignore[no-untyped-def]
    """Write the best label of each arc: one of the last ones from ROOT, else one of the first."""
    for row in range(scores.shape[0]):
        begin, end = 0, num_arcs
        if heads[row] == 0:
            begin, end = num_arcs, scores.shape[1]
        label = begin
        for other in range(begin + 1, end):
            if scores[row, other] > scores[row, label]:
                label = other
        best[row] = label


class Layout(NamedTuple):
    """Where the tokens of a group of sentences lie, and the parts that are parsed by themselves.

    Attributes:
        group: the places of the sentences, none of which is empty.
        rows: the row of each token in the token arrays, [T].
        words: the places of the words among the tokens, [N].
        sentence_roots: of each word, the place of the ROOT of its sentence, [N].
        lengths: of the parts, in words.
        roots: of the parts, the place of their ROOT.
        begins: of the parts, the place of their first word.
    """

    group: Longs
    rows: Longs
    words: Longs
    sentence_roots: Longs
    lengths: Ints
    roots: Longs
    begins: Longs

    @classmethod
    def of(cls, arrays: TokenArrays, group: Longs) -> Layout:
        """Return the layout of some sentences."""
        group = group[arrays.lengths[group] > 0]
        lengths = arrays.lengths[group]
        sizes = lengths.astype(np.int64) + 1
        roots = np.cumsum(sizes) - sizes
        is_word = np.ones(sizes.sum(), np.bool_)
        is_word[roots] = False
        num_parts = -(-lengths // LONGEST)
        parts = np.concatenate(
            [_divided(length, num) for length, num in zip(lengths, num_parts, strict=True)]
            if (num_parts > 1).any()
            else [lengths]
        )
        roots_of_parts = np.repeat(roots, num_parts)
        words = np.flatnonzero(is_word)
        return cls(
            group,
            token_rows(arrays.tokens[group], lengths),
            words,
            np.repeat(roots, lengths),
            parts,
            roots_of_parts,
            words[np.cumsum(parts) - parts],
        )

    def scores_of(self, part: int) -> slice:
        """Return where the scores of a part lie in flat scores."""
        lengths = self.lengths[: part + 1].astype(np.int64)
        ends = np.cumsum(lengths * (1 + lengths))
        return slice(int(ends[-1] - lengths[-1] * (1 + lengths[-1])), int(ends[-1]))

    def places(self, heads: Ints) -> Longs:
        """Return the places of heads, [N], that are numbered within the parts; see the module."""
        parts = np.repeat(np.arange(len(self.lengths)), self.lengths)
        places: Longs = np.where(heads == 0, self.roots[parts], self.begins[parts] + heads - 1)
        is_later = self.roots[1:] == self.roots[:-1]
        for part in np.flatnonzero(is_later) + 1:
            first = int(np.searchsorted(self.roots, self.roots[part]))
            of_part = parts == part
            (root_word,) = self.words[(parts == first) & (heads == 0)]
            places[of_part & (heads == 0)] = root_word
        return places


def _divided(length: int, num: int) -> Ints:
    """Return the lengths of so many parts of a sentence, as equal as can be."""
    return np.diff(np.arange(num + 1) * int(length) // num).astype(np.int32)


class Scorer:
    """One parser's scores of arcs and labels, as `network.GraphNetwork` gives them.

    Args:
        config: what the network is.
        weights: its arrays, by their names there.
    """

    def __init__(self, config: ModelConfig, weights: Mapping[str, Floats]) -> None:
        self.types = TypeTable(TypeReader(weights))
        self.tokens = TokenReader(weights)
        self._units = np.ascontiguousarray(weights["units.weight"].T)
        self._units_bias = weights["units.bias"]
        self._arcs = np.ascontiguousarray(weights["arcs.weight"].T)
        self._arcs_bias = weights["arcs.bias"]
        self._relations = np.ascontiguousarray(weights["relations.weight"].T)
        self._relations_bias = weights["relations.bias"]
        self._labels = np.ascontiguousarray(weights["labels.weight"].T)
        self._labels_bias = weights["labels.bias"]
        ends = np.cumsum([config.arc_size, config.arc_size, config.relation_size])
        self._borders: list[int] = ends.tolist()
        self._room = Room()

    def units(self, arrays: TokenArrays, layout: Layout) -> list[Floats]:
        """Return what tokens are as dependents and heads, [T, A] twice, [T, R] twice.

        They lie in memory that the next call takes again; the types of all tokens are known.
        """
        tokens, states = self.tokens.read_group(
            self.types.vectors, arrays, layout.group, layout.rows
        )
        sums = self._room.array("sums", len(states), len(self._units_bias))
        np.matmul(states, self._units, out=sums)
        units = self._room.array("units", *sums.shape)
        _write_units(sums, self._units_bias, tokens, units)
        return np.split(units, self._borders, axis=1)

    def arc_scores(self, units: Sequence[Floats], layout: Layout) -> Floats:
        """Return the scores of all arcs, flat, part after part; see `spanning`.

        They lie in memory that the next call takes again.
        """
        dependents, heads = units[:2]
        through = self._room.array("through", len(dependents), heads.shape[1])
        np.matmul(dependents, self._arcs, out=through)
        through += self._arcs_bias
        sizes = layout.lengths.astype(np.int64) * (1 + layout.lengths)
        scores = self._room.array("scores", int(sizes.sum()), 1)[:, 0]
        end = 0
        for root, begin, length, size in zip(
            layout.roots.tolist(), layout.begins.tolist(), layout.lengths.tolist(), sizes.tolist(),
            strict=True,
        ):  # fmt: skip
            words = slice(begin, begin + length)
            # ROOT stands before the words, but before those of a later part
            candidates = (
                heads[root : words.stop]
                if begin == root + 1
                else np.concatenate((heads[root : root + 1], heads[words]))
            )
            table = scores[end : end + size].reshape(length, 1 + length)
            np.matmul(through[words], candidates.T, out=table)
            end += size
        return scores

    def label_scores(self, units: Sequence[Floats], words: Longs, heads: Longs) -> Floats:
        """Return the scores of the labels of arcs between tokens at some places, [N, K]."""
        dependents, of_heads = units[2][words], np.ascontiguousarray(units[3])
        scores: Floats = dependents @ self._labels
        scores += self._labels_bias
        for begin in range(0, len(words), LABEL_WORDS):
            block = slice(begin, begin + LABEL_WORDS)
            num = len(scores[block])
            through = self._room.array("labels", num, len(self._relations_bias))
            np.matmul(dependents[block], self._relations, out=through)
            through += self._relations_bias
            _add_products(through, of_heads, heads[block], scores[block])
        return scores


class GraphDecoder(Decoder):
    """The best tree by the scores of its arcs, then the best label of each arc.

    Args:
        config: what the network is and what it learnt by; its trees are no longer auto.
        labels: of arcs.
        weights: of the network, by their names in `network.GraphNetwork`.
    """

    def __init__(self, config: ParserConfig, labels: Labels, weights: Mapping[str, Floats]) -> None:
        self._is_projective, self._labels = config.model.trees == "projective", labels
        self._is_local = config.learning.loss == "local"
        self._members = [Scorer(config.model, weights)]

    def joined(self, others: Sequence[GraphDecoder]) -> GraphDecoder:
        """Return a decoder of several members; see `Decoder.joined`."""
        together = copy.copy(self)
        together._members = [member for each in (self, *others) for member in each._members]
        return together

    def prepare(self, types: Types) -> None:
        """Make the vectors of the types that were met since the last time."""
        for member in self._members:
            num_types = member.types.num_types
            if num_types < len(types):
                member.types.extend(*types.arrays(num_types))

    @property
    def num_bytes(self) -> int:
        """Memory of the vectors of types, of the member with most."""
        return max(member.types.num_bytes for member in self._members)

    def clear(self) -> None:
        """Forget the vectors of all types."""
        for member in self._members:
            member.types.clear()

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has."""
        return self._members[0].tokens.num_layers

    def states(self, arrays: TokenArrays, layer: int | None = None) -> Floats:
        """Return the encoder's states; see `Decoder.states`."""
        first = self._members[0]
        return first.tokens.states(first.types.vectors, arrays, layer)

    def decode(self, arrays: TokenArrays, *, beam: int = 1) -> tuple[Ints, Ints]:
        """Parse sentences; the best trees are found without a beam. See `Decoder.decode`."""
        heads = np.full(len(arrays.types), -1, np.int32)
        label_ids = np.full(len(arrays.types), -1, np.int32)
        for group in groups_of(arrays.lengths):
            layout = Layout.of(arrays, group)
            if not len(layout.group):
                continue
            units = [member.units(arrays, layout) for member in self._members]
            scores = average(
                [m.arc_scores(u, layout) for m, u in zip(self._members, units, strict=True)]
            )
            best = projective_trees if self._is_projective else spanning_trees
            places = layout.places(best(scores, layout.lengths))
            rows = layout.rows[layout.words]
            heads[rows] = places - layout.sentence_roots
            label_ids[rows] = self._best_labels(units, layout.words, places, heads[rows])
        return heads, label_ids

    def _best_labels(
        self, units: Sequence[Sequence[Floats]], words: Longs, places: Longs, heads: Ints
    ) -> Ints:
        """Return the best label of each arc; `heads` are 0 where it is from ROOT."""
        scores = average(
            [m.label_scores(u, words, places) for m, u in zip(self._members, units, strict=True)]
        )
        best = np.empty(len(words), np.int32)
        _best_labels(scores, heads, len(self._labels.arcs), best)
        return best


def weight_shapes(
    config: ModelConfig, num_lexical: int, num_tags: int, labels: Labels, state_size: int = 0
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array, by its name in `network.GraphNetwork`.

    `num_lexical` and `num_tags` are numbers of symbols, `state_size` is the width of a language
    model's states, 0 without one.
    """
    arcs, relations, num_labels = config.arc_size, config.relation_size, len(labels)
    return {
        **type_shapes(config, num_lexical, num_tags),
        **encoder_shapes(config, state_size),
        "units.weight": (2 * arcs + 2 * relations, 2 * config.encoder_size),
        "units.bias": (2 * arcs + 2 * relations,),
        "arcs.weight": (arcs, arcs),
        "arcs.bias": (arcs,),
        "relations.weight": (num_labels * relations, relations),
        "relations.bias": (num_labels * relations,),
        "labels.weight": (num_labels, relations),
        "labels.bias": (num_labels,),
    }
