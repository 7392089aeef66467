"""Trees by linear scores of arcs: the best tree, then the best label of each of its arcs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE, TokenArrays, Types, token_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE, projective_trees, spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.linear.arcs.scorer import WEIGHTS, ArcScorer

LONGEST = 2047  # words whose arcs are all scored
HELD_SCORES = LONGEST * (1 + LONGEST)  # of arcs: 16 MB


class LinearGraphDecoder(Decoder):
    """The best trees by linear scores of arcs; see `Decoder`.

    Args:
        config: what is read, and which trees are searched.
        labels: of arcs.
        weights: of features, as `scorer.weight_shapes` says.
    """

    def __init__(self, config: ModelConfig, labels: Labels, weights: Mapping[str, Floats]) -> None:
        self._labels = labels
        self._is_projective = config.trees == "projective"
        # of each member, what knows the places of its weights, and these
        self._members = [(ArcScorer(config, labels), weights[WEIGHTS])]

    def joined(self, others: Sequence[LinearGraphDecoder]) -> LinearGraphDecoder:
        """Return a decoder of several members; see `Decoder.joined`."""
        together = copy.copy(self)
        together._members = [m for each in (self, *others) for m in each._members]
        return together

    def prepare(self, types: Types) -> None:
        """Note the symbols of the types that were met since the last time."""
        for scorer, _ in self._members:
            scorer.extend(types)

    @property
    def num_bytes(self) -> int:
        """Memory of the symbols of types, of each member."""
        return self._members[0][0].features.values.nbytes

    def clear(self) -> None:
        """Forget all types."""
        for scorer, _ in self._members:
            scorer.clear()

    def decode(self, arrays: TokenArrays, *, beam: int = 1) -> tuple[Ints, Ints]:
        """Parse sentences; a beam makes no difference. See `Decoder.decode`."""
        heads = np.full(len(arrays.types), -1, np.int32)
        label_ids = np.full(len(arrays.types), -1, np.int32)
        for part in _parts(arrays):
            trees = self._trees(part)
            rows = token_rows(part.tokens, part.lengths)
            rows = rows[~np.isin(rows, part.tokens)]
            heads[rows], label_ids[rows] = trees, self._best_labels(part, trees, trees)
        return heads, label_ids

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference."""
        return False

    @property
    def longest(self) -> int:
        """Words of the longest sentence that gets its best tree; see `graph.trees`."""
        return LONGEST_PROJECTIVE if self._is_projective else LONGEST

    def _arc_scores(self, part: TokenArrays) -> Floats:
        """Return the average scores of all arcs of some sentences, flat; see `graph.trees`."""
        lengths = part.lengths.astype(np.int64)
        scores = np.zeros((lengths * (lengths + 1)).sum(), np.float32)
        for scorer, weights in self._members:
            scorer.add_arc_scores(weights, part, scores)
        scores /= len(self._members)
        return scores

    def _best_trees(self, part: TokenArrays) -> Ints:
        """Return the heads of all words of sentences whose arcs are all scored."""
        best_trees = projective_trees if self._is_projective else spanning_trees
        return best_trees(self._arc_scores(part), part.lengths)

    def _ranked(self, one: TokenArrays, num: int) -> list[tuple[Ints, float]]:
        """Return the best trees of a sentence, each with the logarithm of its probability."""
        scores = self._arc_scores(one)
        partition = float(marginals(scores, one.lengths, self._is_projective)[0][0])
        trees = ranked_trees(scores.reshape(int(one.lengths[0]), -1), num, self._is_projective)
        return [(heads, score - partition) for heads, score in trees]

    def _trees(self, part: TokenArrays) -> Ints:
        """Return the heads of all words of the best trees of some sentences.

        A sentence of more than `LONGEST` words is alone, and parsed in pieces, as if each were a
        sentence; the roots of the later ones depend on that of the first.
        """
        if not _is_long(part):
            return self._best_trees(part)
        trees: list[Ints] = []
        for begin, piece in _pieces(part):
            heads = self._best_trees(piece)
            first_root = 1 + int(np.argmin(trees[0])) if trees else 0
            trees.append(np.where(heads > 0, heads + np.int32(begin), np.int32(first_root)))
        return np.concatenate(trees)

    def _label_scores(self, part: TokenArrays, heads: Ints, tree: Ints) -> Floats:
        """Return the scores of the labels of arcs, [words, labels], the sums over all members.

        Only labels that an arc may have are scored. See `ArcScorer.add_label_scores`.
        """
        scores_WL = np.zeros((len(heads), len(self._labels)), np.float32)
        for scorer, weights in self._members:
            scorer.add_label_scores(weights, part, heads, tree, scores_WL)
        return scores_WL

    def _best_labels(self, part: TokenArrays, heads: Ints, tree: Ints) -> Ints:
        """Return the best labels of arcs from these heads to all words, in their trees."""
        scores_WL, first = self._label_scores(part, heads, tree), len(self._labels.arcs)
        of_words, of_roots = scores_WL[:, :first].argmax(1), scores_WL[:, first:].argmax(1)
        label_ids: Ints = np.where(heads == 0, first + of_roots, of_words).astype(np.int32)
        return label_ids

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[RankedTree]]:
        """Give the best trees of each sentence; see `Decoder.ranked`. Labels are the best ones.

        The score of a tree is the logarithm of its probability among all that are searched. A
        sentence of more than `LONGEST` words has one tree, whose score is the sum of those of its
        pieces.
        """
        for one in self._each(arrays):
            if _is_long(one):
                score = sum(self._ranked(piece, 1)[0][1] for _, piece in _pieces(one))
                trees = [(self._trees(one), score)]
            else:
                trees = self._ranked(one, num)
            yield [
                RankedTree(heads, self._best_labels(one, heads, heads), score)
                for heads, score in trees
            ]

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give how likely each arc is, of all trees that are searched, and its best label.

        Of an arc that is not in the best tree, it is the label that it has with
        the other arcs of that tree around it. Of a sentence of more than `LONGEST` words, arcs
        between its pieces are not known but for those of its tree. See `Decoder.arc_tables`.
        """
        for one in self._each(arrays):
            yield self._long_table(one) if _is_long(one) else self._arc_table(one)

    def _arc_table(self, one: TokenArrays) -> ArcTable:
        """Return what is thought of the arcs of a sentence whose arcs are all scored."""
        tree, num_words = self._best_trees(one), int(one.lengths[0])
        _, chances = marginals(self._arc_scores(one), one.lengths, self._is_projective)
        label_ids = np.stack(
            [
                self._best_labels(one, np.full(num_words, head, np.int32), tree)
                for head in range(1 + num_words)
            ],
            axis=1,
        )
        words = np.arange(num_words)
        label_ids[words, words + 1] = -1  # of no arc
        probabilities = chances.reshape(num_words, -1).astype(np.float32)
        return ArcTable(probabilities, np.ascontiguousarray(label_ids), tree)

    def _long_table(self, one: TokenArrays) -> ArcTable:
        """Return what is thought of the arcs within the pieces of a sentence."""
        heads = self._trees(one)
        num_words, words = len(heads), np.arange(len(heads))
        probabilities = np.zeros((num_words, 1 + num_words), np.float32)
        label_ids = np.full(probabilities.shape, -1, np.int32)
        for begin, piece in _pieces(one):
            table = self._arc_table(piece)
            own = slice(begin, begin + len(table.heads))
            inside = slice(1 + own.start, 1 + own.stop)
            probabilities[own, inside] = table.probabilities[:, 1:]
            label_ids[own, inside] = table.label_ids[:, 1:]
            # a later piece's root depends on that of the first one
            root = 0 if begin == 0 else 1 + int(np.argmin(heads))
            probabilities[own, root] = table.probabilities[:, 0]
            if begin == 0:
                label_ids[own, 0] = table.label_ids[:, 0]
        label_ids[words, heads] = self._best_labels(one, heads, heads)
        return ArcTable(probabilities, label_ids, heads)

    def _each(self, arrays: TokenArrays) -> Iterator[TokenArrays]:
        """Give each sentence alone."""
        for place in range(len(arrays.lengths)):
            yield arrays.part(np.asarray([place]))


def _is_long(one: TokenArrays) -> bool:
    """Whether this is one sentence whose arcs are not all scored."""
    return len(one.lengths) == 1 and int(one.lengths[0]) > LONGEST


def _pieces(one: TokenArrays) -> Iterator[tuple[int, TokenArrays]]:
    """Give the pieces of a sentence as sentences, and how many words stand before each."""
    root, num_words = int(one.tokens[0]), int(one.lengths[0])
    for begin in range(0, num_words, LONGEST):
        words = one.types[root + 1 + begin : root + 1 + min(begin + LONGEST, num_words)]
        types = np.concatenate((np.asarray([NONE_TYPE, ROOT_TYPE], np.int32), words))
        length = np.asarray([len(words)], np.int32)
        yield begin, TokenArrays(types, np.ones(1, np.int32), length)


def _parts(arrays: TokenArrays) -> Iterator[TokenArrays]:
    """Divide sentences into parts whose arcs' scores fit into memory together."""
    lengths = arrays.lengths.astype(np.int64)
    sizes = np.cumsum(lengths * (lengths + 1))
    # a sentence that is too long for that is alone
    is_long = lengths > LONGEST
    cuts = np.flatnonzero(np.diff(sizes // HELD_SCORES) | is_long[:-1] | is_long[1:]) + 1
    for places in np.split(np.arange(len(lengths)), cuts):
        yield arrays.part(places)
