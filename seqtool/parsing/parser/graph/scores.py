"""Scores of arcs and labels of many sentences at once, without torch.

Sentences are read in groups. What is computed of the tokens of a group lies in the order of its
sentences, ROOT before the words of each, so that the scores of a sentence are one product:

    tokens     ROOT a b c  ROOT d e          T = 7
    scores     [3, 4]      [2, 3]            flat, as `trees` takes them: 18 numbers

A sentence of more than `LONGEST` words is parsed in parts, as if each were a sentence; the root of
the first part then is the head of the others'.

Scores may know of other arcs, by mean-field inference of second order (Wang & Tu 2020): beside
arcs, two kinds of pairs of arcs have scores.

    siblings       words i and k depend on head j             sum over s of  a_js b_is b_ks
    grandparents   i depends on j, which depends on k         sum over s of  m_js d_is g_ks

The tree that is best by all of these is hard to find. So every word i has a distribution Q over its
heads, at first by the scores of its arcs alone, and each step adds to these scores what the pairs
bring, as is expected by the distributions of the other words:

    F_ij = score of the arc + sum over k of  Q_kj sibling(i, j, k)
                            + sum over k of  Q_jk grandparent(i, j, k)
                            + sum over k of  Q_ki grandparent(k, i, j)          Q = softmax of F

The last F are scores of arcs like any others. As the scores of pairs are sums of products, a step
is a few products of matrices: no table of all pairs is made, so that time and memory grow with the
square of a sentence, not with its cube.

What a pair's score is made of are units of tokens, in this order, S of each:

    a (siblings)   m (grandparents)   b (siblings)   d   g (grandparents)

The first two stand once in a product, by which it is learnt whether it counts.

Dimensions: T tokens, N words, M heads, E units of a direction of the encoder, A units by which
heads are scored, R units by which labels are scored, K labels, C classes of distances. In
`refined_scores`: N words of a sentence, H = 1 + N heads (0 is ROOT), P units of a token; other
dimensions, of sentences, may stand before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import TokenArrays, token_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import (
    BLOCK,
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
Array = Any  # of NumPy, or a tensor in training
LABEL_WORDS = 64  # words whose labels are scored together: their products stay in a core's cache

_floats = types.float32[:, ::1]
_longs = types.int64[::1]


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
    """One parser's scores of arcs and labels, as `task.GraphNetwork` gives them.

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
        units = np.empty((len(states), len(self._units_bias)), np.float32)
        # some at a time, which stay in a core's own cache
        for begin in range(0, len(states), BLOCK):
            sums = states[begin : begin + BLOCK] @ self._units
            sums += self._units_bias
            rectified = sums[:, : self._borders[-1]]  # units of pairs are linear
            np.maximum(rectified, np.float32(SLOPE) * rectified, out=rectified)
            # states come step by step, and go back to the order of sentences
            units[tokens[begin : begin + BLOCK]] = sums
        return np.split(units, self._borders, axis=1)

    def arc_scores(self, units: Sequence[Floats], layout: Layout) -> Floats:
        """Return the scores of all arcs, flat, part after part; see `trees`."""
        dependents, heads = units[:2]
        through = dependents @ self._arcs + self._arcs_bias
        if self._distances is not None:
            of_words, bias, of_heads = self._distances
            by_word, by_head = dependents @ of_words + bias, heads @ of_heads
        scores = np.empty(int(layout.ends[-1]), np.float32)
        for part, (root, begin, length) in enumerate(
            zip(layout.roots.tolist(), layout.begins.tolist(), layout.lengths.tolist(), strict=True)
        ):
            words = slice(begin, begin + length)
            candidates = np.append(root, np.arange(begin, begin + length))
            table = layout.table(scores, part)
            np.matmul(through[words], heads[candidates].T, out=table)
            if self._distances is not None:
                classes = distance_classes(1 + length)[1:]
                table += np.take_along_axis(by_word[words], classes, 1)
                table += np.take_along_axis(by_head[candidates], classes.T, 1).T
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
            # what a word scores with itself is read by the softmax over heads alone
            tables[:, np.arange(length), np.arange(1, 1 + length)] = -np.inf
            refined = refined_scores(
                tables,
                pairs[np.concatenate((layout.roots[parts, None], words), 1)],
                self._config,
                softmax,
            )
            scores[places] = refined.reshape(len(parts), -1)

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


def pair_borders(config: ModelConfig) -> tuple[int, int]:
    """Return the widths of the two parts of a token's units: those that stand once in a product.

    These are [a, m] of the equations above, and the others [b, d, g].
    """
    return 2 * config.second_size, 3 * config.second_size


def refined_scores(
    scores: Array, units: Array, config: ModelConfig, distributions: Callable[[Array], Array]
) -> Array:
    """Return F after `second_steps` steps, [N, H]: row of the dependent, column of the head.

    In no pair is a word its own sibling or grandparent.

    Args:
        scores: of arcs, [N, H]; -inf for what is no arc, as of a word with itself.
        units: of tokens, [H, P].
        config: the width S of each part of the units, and the number of steps.
        distributions: returns the softmax of each row; of rows of padding, zeros.
    """
    size = config.second_size
    a_HS, m_HS, b_HS, d_HS, g_HS = (units[..., i * size : (i + 1) * size] for i in range(5))
    m_NS, b_NS, d_NS = m_HS[..., 1:, :], b_HS[..., 1:, :], d_HS[..., 1:, :]
    # sums go over all words; what a word would add of itself is taken off again
    itself_NH = (b_NS * b_NS) @ _turned(a_HS)
    itself_NN = (d_NS * g_HS[..., 1:, :]) @ _turned(m_NS)
    refined = scores
    for _ in range(config.second_steps):
        likely_NH = distributions(refined)
        others_HS = a_HS * (_turned(likely_NH) @ b_NS)
        refined = scores + (b_NS @ _turned(others_HS) - likely_NH * itself_NH)
        likely_NN = likely_NH[..., 1:]  # only a word has a head of its own
        below_NS, above_NS = m_NS * (_turned(likely_NN) @ d_NS), m_NS * (likely_NH @ g_HS)
        refined = refined + below_NS @ _turned(g_HS)
        refined[..., 1:] += d_NS @ _turned(above_NS)
        refined[..., 1:] -= _turned(likely_NN) * itself_NN + _turned(likely_NN * itself_NN)
    return refined


def _turned(matrices: Array) -> Array:
    return matrices.swapaxes(-1, -2)


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
    """Return the shape of every array, by its name in `task.GraphNetwork`.

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
