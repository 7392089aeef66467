"""Trees by linear scores of arcs: the best tree, then the best label of each of its arcs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import TokenArrays, Types, token_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.decoder import Decoder
from seqtool.parsing.parser.graph.eisner import projective_trees
from seqtool.parsing.parser.graph.spanning import spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.linear.arcs.scorer import WEIGHTS, ArcScorer

HELD_SCORES = 1 << 22  # of arcs: 16 MB, unless one sentence has more


def searched_trees(config: ModelConfig) -> Callable[[Floats, Ints], Ints]:
    """Return what finds the best trees, of those that the settings name."""
    return projective_trees if config.trees == "projective" else spanning_trees


class LinearGraphDecoder(Decoder):
    """The best trees by linear scores of arcs; see `Decoder`.

    Args:
        config: what is read, and which trees are searched.
        labels: of arcs.
        weights: of features, as `scorer.weight_shapes` says.
    """

    def __init__(self, config: ModelConfig, labels: Labels, weights: Mapping[str, Floats]) -> None:
        self._labels = labels
        self._find = searched_trees(config)
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
            scores = self._arc_scores(part)
            found = self._find(scores, part.lengths)
            rows = token_rows(part.tokens, part.lengths)
            rows = rows[~np.isin(rows, part.tokens)]
            heads[rows], label_ids[rows] = found, self._best_labels(part, found)
        return heads, label_ids

    def _arc_scores(self, part: TokenArrays) -> Floats:
        """Return the average scores of all arcs of some sentences, flat."""
        lengths = part.lengths.astype(np.int64)
        scores = np.zeros((lengths * (lengths + 1)).sum(), np.float32)
        for scorer, weights in self._members:
            scorer.add_arc_scores(weights, part, scores)
        scores /= len(self._members)
        return scores

    def _best_labels(self, part: TokenArrays, heads: Ints) -> Ints:
        """Return the best labels of the words of trees; heads are of all words."""
        scores_WL = np.zeros((len(heads), len(self._labels)), np.float32)
        for scorer, weights in self._members:
            scorer.add_label_scores(weights, part, heads, scores_WL)
        first = len(self._labels.arcs)
        of_words, of_roots = scores_WL[:, :first].argmax(1), scores_WL[:, first:].argmax(1)
        label_ids: Ints = np.where(heads == 0, first + of_roots, of_words).astype(np.int32)
        return label_ids


def _parts(arrays: TokenArrays) -> Iterator[TokenArrays]:
    """Divide sentences into parts whose arcs' scores fit into memory together."""
    lengths = arrays.lengths.astype(np.int64)
    sizes = np.cumsum(lengths * (lengths + 1))
    cuts = np.flatnonzero(np.diff(sizes // HELD_SCORES)) + 1
    for places in np.split(np.arange(len(lengths)), cuts):
        yield dataclasses.replace(
            arrays, tokens=arrays.tokens[places], lengths=arrays.lengths[places], lm_states=None
        )
