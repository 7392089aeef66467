"""Scores of arcs and labels of many sentences at once, without torch.

Sentences are read in groups. What is computed of the tokens of a group lies in the order of its
sentences, ROOT before the words of each, so that the scores of a sentence are one product:

    tokens     ROOT a b c  ROOT d e          T = 7
    scores     [3, 4]      [2, 3]            flat, as `spanning` takes them: 18 numbers

A sentence of more than `LONGEST` words is parsed in parts, as if each were a sentence; the root of
the first part then is the head of the others'.

Dimensions: T tokens, N words, M heads, E units of a direction of the encoder, A units by which
heads are scored, R units by which labels are scored, K labels, C classes of distances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import TokenArrays, token_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.graph.meanfield import pair_borders, refined_scores
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import (
    Number,
    TokenReader,
    TypeReader,
    TypeTable,
    encoder_shapes,
    type_shapes,
)

SLOPE = 0.1  # of units below zero (leaky ReLU, as Dozat & Manning's)
LONGEST = 2048  # words whose arcs are all scored: 16 MB of scores
# classes of the distance of a head: 1, 2, 3, 4, 5-6, 7-10, 11-20 and more words, to either side
_NEAREST = (1, 2, 3, 4, 5, 7, 11, 21)  # of each class
NUM_DISTANCES = 1 + 2 * len(_NEAREST)  # C; the first one is that of ROOT
_CLASSES = np.searchsorted(_NEAREST, np.arange(1 + _NEAREST[-1]), "right").astype(np.int32)
LABEL_WORDS = 64  # words whose labels are scored together: their products stay in a core's cache

_floats = types.float32[:, ::1]
_longs = types.int64[::1]
_ints = types.int32[::1]


@compiled(types.void(_floats, types.float32[::1], _longs, types.int64, _floats))
def _write_units(sums, bias, places, num_rectified, units):  # type: ignore[no-untyped-def]
    """Write sums [T, U], the first ones as leaky ReLUs: row t to row places[t]."""
    # a Python float would make the products double precision
    slope = np.float32(SLOPE)
    for row in range(sums.shape[0]):
        place = places[row]
        for unit in range(sums.shape[1]):
            value = sums[row, unit] + bias[unit]
            units[place, unit] = max(value, slope * value) if unit < num_rectified else value


# the order of a sum may change, so that several products are added at a time
@compiled(types.void(_floats, _longs, _floats, _longs, _floats), fastmath={"reassoc", "contract"})
def _add_products(through, rows, heads, places, scores):  # type: ignore[no-untyped-def]
    """Add to the scores of labels [N, K] the products of rows of [W, K * R] and of heads [T, R].

    `rows` and `places` tell which row and which head each arc has.
    """
    size = heads.shape[1]
    for arc in range(scores.shape[0]):
        row, head = through[rows[arc]], heads[places[arc]]
        for label in range(scores.shape[1]):
            begin = label * size
            total = np.float32(0.0)
            for unit in range(size):
                total += row[begin + unit] * head[unit]
            scores[arc, label] += total


@compiled(types.void(_floats, _floats, _ints, types.int64, types.int64, _floats))
def _add_distances(by_word, by_head, classes, root, begin, table):  # type: ignore[no-untyped-def]
    """Add to the scores of arcs [n, 1 + n] what is scored of their distances.

    Args:
        by_word: P d + q of all tokens, [T, C].
        by_head: R h of all tokens, [T, C].
        classes: of distances to the left, by distance; the last one is of all that are longer.
        root: the place of ROOT.
        begin: the place of the first word.
        table: is added to.
    """
    longest = classes.shape[0] - 1
    # class 0 is that of ROOT, so that the last one to the left is their number
    num_left = classes[longest]
    for word in range(table.shape[0]):
        table[word, 0] += by_word[begin + word, 0] + by_head[root, 0]
        for head in range(table.shape[0]):
            if head != word:
                kind = classes[min(abs(word - head), longest)]
                if head > word:
                    kind += num_left
                table[word, 1 + head] += by_word[begin + word, kind] + by_head[begin + head, kind]


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
        ends: of the parts, where the scores of their arcs end among those of all parts.
    """

    group: Longs
    rows: Longs
    words: Longs
    sentence_roots: Longs
    lengths: Ints
    roots: Longs
    begins: Longs
    ends: Longs

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
            # the parts follow each other as the words do, so a count leads to their first ones
            words[np.cumsum(parts) - parts],
            np.cumsum(parts.astype(np.int64) * (1 + parts)),
        )

    def table(self, numbers: npt.NDArray[Number], part: int) -> npt.NDArray[Number]:
        """Return the numbers of the arcs of a part, [n, 1 + n], of those of all parts."""
        num_words, end = int(self.lengths[part]), int(self.ends[part])
        return numbers[end - num_words * (1 + num_words) : end].reshape(num_words, 1 + num_words)

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
        # a part with the ROOT of the one before is of the same sentence
        is_later = np.diff(roots, prepend=-1) == 0
        if is_later.any():
            words = np.repeat(self.begins[chosen] - np.cumsum(lengths) + lengths, lengths)
            words += np.arange(len(heads))
            # from the last one on, so that of each ROOT the root of its first part stays
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
        names = ["units"] if config.second_order == "none" else ["units", "pairs"]
        units = np.concatenate([weights[f"{name}.weight"] for name in names])
        self._units = np.ascontiguousarray(units.T)
        self._units_bias = np.concatenate([weights[f"{name}.bias"] for name in names])
        self._arcs = np.ascontiguousarray(weights["arcs.weight"].T)
        self._arcs_bias = weights["arcs.bias"]
        self._relations = np.ascontiguousarray(weights["relations.weight"].T)
        self._relations_bias = weights["relations.bias"]
        self._distances: tuple[Floats, Floats, Floats] | None = None
        if config.distances:
            by_word, by_head = (
                np.ascontiguousarray(weights[f"{name}.weight"].T)
                for name in ("distances", "head_distances")
            )
            self._distances = by_word, weights["distances.bias"], by_head
        self._labels = np.ascontiguousarray(weights["labels.weight"].T)
        self._labels_bias = weights["labels.bias"]
        self._config = config
        self._borders = [*unit_borders(config), len(weights["units.bias"])]

    def units(self, arrays: TokenArrays, layout: Layout) -> list[Floats]:
        """Return what tokens are as dependents and heads, [T, A] twice, [T, R] twice.

        What pairs of arcs are scored by comes last, [T, P], P being 0 of first order. The types of
        all tokens are known.
        """
        tokens, states = self.tokens.read_group(
            self.types.vectors, arrays, layout.group, layout.rows
        )
        sums = states @ self._units
        units = np.empty_like(sums)
        # states come step by step, and go back to the order of sentences; units of pairs are linear
        _write_units(sums, self._units_bias, tokens, self._borders[-1], units)
        return np.split(units, self._borders, axis=1)

    def arc_scores(self, units: Sequence[Floats], layout: Layout) -> Floats:
        """Return the scores of all arcs, flat, part after part; see `spanning`."""
        dependents, heads = units[:2]
        through = dependents @ self._arcs + self._arcs_bias
        by_distance = self._by_distance(dependents, heads)
        scores = np.empty(int(layout.ends[-1]), np.float32)
        for part, (root, begin, length) in enumerate(
            zip(layout.roots.tolist(), layout.begins.tolist(), layout.lengths.tolist(), strict=True)
        ):
            words = slice(begin, begin + length)
            # ROOT stands before the words, but before those of a later part
            candidates = (
                heads[root : words.stop]
                if begin == root + 1
                else np.concatenate((heads[root : root + 1], heads[words]))
            )
            table = layout.table(scores, part)
            np.matmul(through[words], candidates.T, out=table)
            if by_distance is not None:
                _add_distances(*by_distance, _CLASSES, root, begin, table)
        if self._config.second_order != "none":
            self._refine(scores, units[-1], layout)
        return scores

    def _refine(self, scores: Floats, pairs: Floats, layout: Layout) -> None:
        """Add to the scores of arcs what pairs of arcs bring; parts of one length are one array."""
        for length in np.unique(layout.lengths).tolist():
            parts = np.flatnonzero(layout.lengths == length)
            places = layout.ends[parts, None] + np.arange(-length * (1 + length), 0)
            words = layout.begins[parts, None] + np.arange(length)
            tables = scores[places].reshape(len(parts), length, 1 + length)
            # so far nobody read what a word scores with itself; the softmax over heads does
            tables[:, np.arange(length), np.arange(1, 1 + length)] = -np.inf
            refined = refined_scores(
                tables,
                pairs[np.concatenate((layout.roots[parts, None], words), 1)],
                self._config,
                softmax,
            )
            scores[places] = refined.reshape(len(parts), -1)

    def _by_distance(self, dependents: Floats, heads: Floats) -> tuple[Floats, Floats] | None:
        """Return what tokens [T, A] as dependents and as heads say of distances, [T, C] each."""
        if self._distances is None:
            return None
        of_words, bias, of_heads = self._distances
        return dependents @ of_words + bias, heads @ of_heads

    def label_scores(self, units: Sequence[Floats], words: Longs, heads: Longs) -> Floats:
        """Return the scores of the labels of arcs between tokens at some places, [N, K]."""
        # what the arcs of a word have in common is computed once; they stand one after another
        firsts = np.flatnonzero(np.diff(words, prepend=-1))
        own = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(words)))
        # units are columns of a wider array, and compiled code takes rows without gaps
        dependents, of_heads = units[2][words[firsts]], np.ascontiguousarray(units[3])
        scores: Floats = (dependents @ self._labels + self._labels_bias)[own]
        for begin in range(0, len(firsts), LABEL_WORDS):
            through = dependents[begin : begin + LABEL_WORDS] @ self._relations
            through += self._relations_bias
            arcs = slice(*np.searchsorted(own, (begin, begin + LABEL_WORDS)))
            _add_products(through, own[arcs] - begin, of_heads, heads[arcs], scores[arcs])
        return scores


def distance_classes(num_tokens: int) -> Ints:
    """Return the class of the distance from each token of a sentence to each other one, [L, L].

    The row is the dependent's, the column the head's; ROOT is the first token, and its class 0.
    """
    places = np.arange(num_tokens)
    steps = places[:, None] - places
    classes: Ints = _CLASSES[np.minimum(np.abs(steps), len(_CLASSES) - 1)]
    classes += np.where(steps < 0, _CLASSES[-1], 0).astype(np.int32)
    classes[:, 0] = 0
    return classes


def softmax(scores: Floats) -> Floats:
    """Return the softmax of each row, [..., K]; a row of -inf alone gives NaN."""
    likely: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    likely /= likely.sum(axis=-1, keepdims=True)
    return likely


def unit_borders(config: ModelConfig) -> list[int]:
    """Return where the units of a token as a head, and those for labels, begin among all."""
    arcs, relations = config.arc_size, config.relation_size
    return [arcs, 2 * arcs, 2 * arcs + relations]


def weight_shapes(
    config: ModelConfig,
    num_lexical: int,
    num_tags: int,
    labels: Labels,
    num_characters: int = 0,
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array, by its name in `network.GraphNetwork`.

    `num_lexical`, `num_tags` and `num_characters` are numbers of symbols.
    """
    arcs, relations, num_labels = config.arc_size, config.relation_size, len(labels)
    of_distances = {
        "distances.weight": (NUM_DISTANCES, arcs),
        "distances.bias": (NUM_DISTANCES,),
        "head_distances.weight": (NUM_DISTANCES, arcs),
    }
    num_pairs = sum(pair_borders(config))
    of_pairs = {"pairs.weight": (num_pairs, 2 * config.encoder_size), "pairs.bias": (num_pairs,)}
    return {
        **type_shapes(config, num_lexical, num_tags, num_characters),
        **encoder_shapes(config),
        "units.weight": (2 * arcs + 2 * relations, 2 * config.encoder_size),
        "units.bias": (2 * arcs + 2 * relations,),
        "arcs.weight": (arcs, arcs),
        "arcs.bias": (arcs,),
        "relations.weight": (num_labels * relations, relations),
        "relations.bias": (num_labels * relations,),
        "labels.weight": (num_labels, relations),
        "labels.bias": (num_labels,),
        **(of_distances if config.distances else {}),
        **(of_pairs if config.second_order != "none" else {}),
    }
