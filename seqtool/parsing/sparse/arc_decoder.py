"""Trees by linear scores of arcs: the best tree, then the best label of each of its arcs.

A sentence of more than `LONGEST` words is parsed in pieces, as if each were a sentence; the roots
of the later ones depend on that of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE, TokenArrays, token_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE, projective_trees, spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.sparse.arcs import (
    WEIGHTS,
    Features,
    atoms_of,
    compile_features,
    score_arcs,
    score_labels,
)
from seqtool.parsing.sparse.engine import AttributeReader

LONGEST = 2047  # words whose arcs are all scored
HELD_SCORES = LONGEST * (1 + LONGEST)  # of arcs: 16 MB


class LinearGraphDecoder(AttributeReader, Decoder):
    """The best trees by linear scores of arcs; see `Decoder`.

    Args:
        config: what is read, and which trees are searched.
        labels: of arcs.
        weights: of features, as `arcs.weight_shapes` says; they may change between calls.

    Attributes:
        is_projective: projective trees are searched, or all.
    """

    def __init__(self, config: ModelConfig, labels: Labels, weights: Mapping[str, Floats]) -> None:
        read = atoms_of(config.fields)
        super().__init__([*read.values()])
        self._labels, self._weights = labels, weights[WEIGHTS]
        self.is_projective = config.trees == "projective"
        self._features = compile_features(read, config.hash_bits)

    @property
    def features(self) -> Features:
        """Those of the first member, with the types that are known."""
        return self._features._replace(symbols=self.table)

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference."""
        return False

    @property
    def longest(self) -> int:
        """Words of the longest sentence that gets its best tree; see `eisner`."""
        return LONGEST_PROJECTIVE if self.is_projective else LONGEST

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

    def arc_scores(self, part: TokenArrays) -> Floats:
        """Return the average scores of all arcs of some sentences, flat; see `graph.trees`."""
        lengths = part.lengths.astype(np.int64)
        scores = np.zeros((lengths * (lengths + 1)).sum(), np.float32)
        for member in self.members:
            sentences = part.types, part.tokens, part.lengths
            score_arcs(member.features, *sentences, member._weights, scores)
        scores /= len(self.members)
        return scores

    def label_scores(self, part: TokenArrays, heads: Ints, tree: Ints) -> Floats:
        """Return the scores of the labels of arcs, [words, labels], the sums over all members.

        Only labels that an arc may have are scored.

        Args:
            part: sentences.
            heads: of all words, where the arcs come from.
            tree: heads of all words, in the trees that the arcs are in, or would be.
        """
        scores_WL = np.zeros((len(heads), len(self._labels)), np.float32)
        for member in self.members:
            sentences = part.types, part.tokens, part.lengths
            arcs = heads, tree, len(self._labels.arcs)
            score_labels(member.features, *sentences, *arcs, member._weights, scores_WL)
        return scores_WL

    def best_trees(self, scores: Floats, lengths: Ints) -> Ints:
        """Return the heads of all words of sentences by the scores of all arcs."""
        return (projective_trees if self.is_projective else spanning_trees)(scores, lengths)

    def _trees(self, part: TokenArrays) -> Ints:
        """Return the heads of all words of some sentences, or of one that is too long."""
        if not _is_long(part):
            return self.best_trees(self.arc_scores(part), part.lengths)
        trees: list[Ints] = []
        for begin, piece in _pieces(part):
            heads = self._trees(piece)
            first_root = 1 + int(np.argmin(trees[0])) if trees else 0
            trees.append(np.where(heads > 0, heads + np.int32(begin), np.int32(first_root)))
        return np.concatenate(trees)

    def _best_labels(self, part: TokenArrays, heads: Ints, tree: Ints) -> Ints:
        """Return the best labels of arcs from these heads to all words, in their trees."""
        scores_WL, first = self.label_scores(part, heads, tree), len(self._labels.arcs)
        of_words, of_roots = scores_WL[:, :first].argmax(1), scores_WL[:, first:].argmax(1)
        label_ids: Ints = np.where(heads == 0, first + of_roots, of_words).astype(np.int32)
        return label_ids

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[RankedTree]]:
        """Give the best trees of each sentence; see `Decoder.ranked`. Labels are the best ones.

        The score of a tree is the logarithm of its probability among all that are searched. A
        sentence of more than `LONGEST` words has one tree, whose score is the sum of those of its
        pieces.
        """
        for one in _each(arrays):
            num_wanted = 1 if _is_long(one) else num
            ranked = []
            for _, piece in _pieces(one):
                scores, lengths = self.arc_scores(piece), piece.lengths
                partition = float(marginals(scores, lengths, self.is_projective)[0][0])
                table = scores.reshape(int(lengths[0]), -1)
                found = ranked_trees(table, num_wanted, self.is_projective)
                ranked.append([(heads, score - partition) for heads, score in found])
            trees = ranked[0]
            if _is_long(one):
                trees = [(self._trees(one), sum(best[0][1] for best in ranked))]
            yield [
                RankedTree(heads, self._best_labels(one, heads, heads), score)
                for heads, score in trees
            ]

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give how likely each arc is, of all trees that are searched, and its best label.

        Of an arc that is not in the best tree, it is the label that it has with the other arcs of
        that tree around it. Of a sentence of more than `LONGEST` words, arcs between its pieces are
        not known but for those of its tree. See `Decoder.arc_tables`.
        """
        for one in _each(arrays):
            heads = self._trees(one)
            words = np.arange(len(heads))
            probabilities = np.zeros((len(heads), 1 + len(heads)), np.float32)
            label_ids = np.full(probabilities.shape, -1, np.int32)
            for begin, piece in _pieces(one):
                num = int(piece.lengths[0])
                own, inside = slice(begin, begin + num), slice(1 + begin, 1 + begin + num)
                scores = self.arc_scores(piece)
                tree = self._trees(piece) if _is_long(one) else heads
                chances = marginals(scores, piece.lengths, self.is_projective)[1].reshape(num, -1)
                from_head = [np.full(num, head, np.int32) for head in range(1 + num)]
                labels = np.stack([self._best_labels(piece, h, tree) for h in from_head], axis=1)
                # a later piece's root depends on that of the first one
                root = 0 if begin == 0 else 1 + int(np.argmin(heads))
                probabilities[own, inside] = chances[:, 1:]
                probabilities[own, root] = chances[:, 0]
                label_ids[own, inside] = labels[:, 1:]
                if begin == 0:
                    label_ids[own, 0] = labels[:, 0]
            label_ids[words, words + 1] = -1  # of no arc
            label_ids[words, heads] = self._best_labels(one, heads, heads)
            yield ArcTable(probabilities, label_ids, heads)


def _each(arrays: TokenArrays) -> Iterator[TokenArrays]:
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
        yield begin, TokenArrays(types, np.ones(1, np.int32), np.asarray([len(words)], np.int32))


def _parts(arrays: TokenArrays) -> Iterator[TokenArrays]:
    """Divide sentences into parts whose arcs' scores fit into memory together."""
    lengths = arrays.lengths.astype(np.int64)
    sizes = np.cumsum(lengths * (lengths + 1))
    # a sentence that is too long for that is alone
    is_long = lengths > LONGEST
    cuts = np.flatnonzero(np.diff(sizes // HELD_SCORES) | is_long[:-1] | is_long[1:]) + 1
    for places in np.split(np.arange(len(lengths)), cuts):
        yield arrays.part(places)
