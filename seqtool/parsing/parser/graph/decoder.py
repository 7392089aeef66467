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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.features import TokenArrays, Types, token_rows
from seqtool.parsing.encoding.lstm import Room
from seqtool.parsing.model import average
from seqtool.parsing.parser.config import ModelConfig, ParserConfig
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree
from seqtool.parsing.parser.graph.eisner import LONGEST_PROJECTIVE, projective_trees
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.spanning import spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import (
    GROUP_TOKENS,
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

    def table(self, scores: Floats, part: int) -> Floats:
        """Return the scores of a part, [n, 1 + n], of those of all parts."""
        lengths = self.lengths[: part + 1].astype(np.int64)
        end = int((lengths * (1 + lengths)).sum())
        num_words = int(lengths[-1])
        return scores[end - num_words * (1 + num_words) : end].reshape(num_words, 1 + num_words)

    def words_of(self, parts: Sequence[int]) -> Longs:
        """Return the places of the words of parts of a sentence."""
        begin = int(self.begins[parts[0]])
        return np.arange(begin, begin + int(self.lengths[parts].sum()))

    def places(self, heads: Ints, parts: Sequence[int] | None = None) -> Longs:
        """Return the places of heads that are numbered within parts; see the module.

        Args:
            heads: of the words of the parts, one part after another; 0 is ROOT.
            parts: those of whole sentences; all of them if not given.
        """
        chosen = np.arange(len(self.lengths)) if parts is None else np.asarray(parts)
        lengths, roots = self.lengths[chosen], self.roots[chosen]
        own = np.repeat(np.arange(len(chosen)), lengths)
        from_root = heads == 0
        places: Longs = np.where(from_root, roots[own], self.begins[chosen][own] + heads - 1)
        is_later = np.diff(roots, prepend=-1) == 0
        if is_later.any():
            words = np.repeat(self.begins[chosen] - np.cumsum(lengths) + lengths, lengths)
            words += np.arange(len(heads))
            first = {int(roots[own[i]]): words[i] for i in np.flatnonzero(from_root)[::-1]}
            for i in np.flatnonzero(from_root & is_later[own]):
                places[i] = first[int(roots[own[i]])]
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

    def label_tables(self, units: Sequence[Floats], words: Longs, heads: Longs) -> Floats:
        """Return the scores of the labels of arcs from every head to every word, [N, K, M]."""
        dependents, of_heads = units[2][words], units[3][heads]
        through = dependents @ self._relations + self._relations_bias
        products = through.reshape(-1, of_heads.shape[1]) @ of_heads.T
        scores: Floats = products.reshape(len(words), -1, len(heads))
        scores += (dependents @ self._labels + self._labels_bias)[:, :, None]
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
        self._is_crf = config.learning.loss == "crf"
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
        for layout, units, scores in self._scored(arrays, groups_of(arrays.lengths)):
            places = layout.places(self._best_heads(scores, layout.lengths))
            rows = layout.rows[layout.words]
            heads[rows] = places - layout.sentence_roots
            label_ids[rows] = self._best_labels(units, layout.words, places, heads[rows])
        return heads, label_ids

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[RankedTree]]:
        """Give the best trees that differ in their heads, each with its best labels.

        They are ranked by the log-probability of the heads: of all choices of a head, or of the
        tree where whole trees were learnt. A sentence that is parsed in parts has one tree. See
        `Decoder.ranked`.
        """
        none = np.zeros(0, np.int32)
        for sentence in self._each(arrays):
            if sentence is None:
                yield [RankedTree(none, none, 0.0)]
                continue
            layout, units, scores, parts = sentence
            tables = [layout.table(scores, part) for part in parts]
            log_probabilities = [self._log_probabilities(table)[0] for table in tables]
            if len(tables) == 1:
                found = ranked_trees(log_probabilities[0], num, self._is_projective)
            else:
                lengths = layout.lengths[parts]
                heads = self._best_heads(np.concatenate([t.ravel() for t in tables]), lengths)
                total = sum(
                    float(table[np.arange(len(table)), own].sum())
                    for table, own in zip(
                        log_probabilities, np.split(heads, np.cumsum(lengths)[:-1]), strict=True
                    )
                )
                found = [(heads, total)]
            words = layout.words_of(parts)
            root = int(layout.roots[parts[0]])
            trees = []
            for heads, score in found:
                places = layout.places(heads, parts)
                in_sentence = (places - root).astype(np.int32)
                label_ids = self._best_labels(units, words, places, in_sentence)
                trees.append(RankedTree(in_sentence, label_ids, score))
            yield trees

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give the probabilities of arcs: of choices of a head, or marginals over trees.

        In a sentence that is parsed in parts, no arc but that of its root leads to another part.
        See `Decoder.arc_tables`.
        """
        for sentence in self._each(arrays):
            if sentence is None:
                yield ArcTable(np.zeros((0, 1), np.float32), np.zeros((0, 1), np.int32))
                continue
            layout, units, scores, parts = sentence
            root = int(layout.roots[parts[0]])
            num_words = int(layout.lengths[parts].sum())
            probabilities = np.zeros((num_words, 1 + num_words), np.float32)
            label_ids = np.full(probabilities.shape, -1, np.int32)
            root_word = 0
            for part in parts:
                table = layout.table(scores, part)
                begin, length = int(layout.begins[part]), len(table)
                places = np.arange(begin, begin + length)
                rows, heads = places - root - 1, places - root
                likely = self._log_probabilities(table)[1]
                probabilities[np.ix_(rows, heads)] = likely[:, 1:]
                # a later part's root depends on that of the first one
                probabilities[rows, root_word] = likely[:, 0]
                if part == parts[0]:
                    best = self._best_heads(table.ravel(), layout.lengths[part : part + 1])
                    root_word = 1 + int(best.tolist().index(0)) if len(parts) > 1 else 0
                candidates = np.unique(np.concatenate(([0, root_word], heads)))
                for first in range(0, length, LABEL_WORDS):
                    block = slice(first, first + LABEL_WORDS)
                    label_ids[np.ix_(rows[block], candidates)] = self._label_table(
                        units, places[block], root + candidates
                    )
                label_ids[rows, heads] = -1  # of a word with itself
            yield ArcTable(probabilities, label_ids)

    def _scored(
        self, arrays: TokenArrays, groups: Iterable[Longs]
    ) -> Iterator[tuple[Layout, list[list[Floats]], Floats]]:
        """Yield the layout of groups of sentences, each member's units, and the scores of arcs.

        Numbers lie in memory that the next group takes again; empty sentences are passed over.
        """
        for group in groups:
            layout = Layout.of(arrays, group)
            if len(layout.group):
                units = [member.units(arrays, layout) for member in self._members]
                scores = average(
                    [m.arc_scores(u, layout) for m, u in zip(self._members, units, strict=True)]
                )
                yield layout, units, scores

    def _each(
        self, arrays: TokenArrays
    ) -> Iterator[tuple[Layout, list[list[Floats]], Floats, list[int]] | None]:
        """Yield what `_scored` does for each sentence in order, with its parts; None if empty."""
        groups = np.cumsum(arrays.lengths + 1) // GROUP_TOKENS
        in_order = np.split(np.arange(len(groups)), np.flatnonzero(np.diff(groups)) + 1)
        waiting = 0
        for layout, units, scores in self._scored(arrays, in_order):
            begins = np.flatnonzero(np.diff(layout.roots, prepend=-1)).tolist()
            ends = [*begins[1:], len(layout.roots)]
            for place, begin, end in zip(layout.group.tolist(), begins, ends, strict=True):
                yield from [None] * (place - waiting)
                yield layout, units, scores, list(range(begin, end))
                waiting = place + 1
        yield from [None] * (len(arrays.lengths) - waiting)

    def _best_heads(self, scores: Floats, lengths: Ints) -> Ints:
        """Return the heads of the best trees, by flat scores."""
        return (projective_trees if self._is_projective else spanning_trees)(scores, lengths)

    def _log_probabilities(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return scores [n, 1 + n] whose sums are log-probabilities, and how likely each arc is."""
        num_words = len(scores)
        diagonal = np.arange(num_words), np.arange(1, 1 + num_words)
        if self._is_local:
            logs = scores - scores.max(axis=1, keepdims=True)
            logs[diagonal] = -np.inf
            logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
            return logs, np.exp(logs)
        # of longer sentences the projective trees are not gone through, as in `eisner`
        is_projective = self._is_crf and num_words <= LONGEST_PROJECTIVE
        (total,), likely = marginals(
            scores.ravel(), np.asarray([num_words], np.int32), is_projective
        )
        likely = likely.astype(np.float32).reshape(scores.shape)
        likely[diagonal] = 0.0
        return scores - np.float32(total / num_words), likely

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

    def _label_table(self, units: Sequence[Sequence[Floats]], words: Longs, heads: Longs) -> Ints:
        """Return the best label of each arc between words and heads, ROOT first, int32 [N, M]."""
        scores = average(
            [m.label_tables(u, words, heads) for m, u in zip(self._members, units, strict=True)]
        )
        num_arcs = len(self._labels.arcs)
        best = scores[:, :num_arcs].argmax(axis=1).astype(np.int32)
        best[:, 0] = num_arcs + scores[:, num_arcs:, 0].argmax(axis=1)
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
