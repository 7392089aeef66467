"""Trees by scores of arcs, without torch: `GraphDecoder`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.model import average
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.scores import LONGEST, Layout, Scorer
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE, projective_trees, spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import groups_of

# nats by which the score of a head may be below that of a word's best one, for its label to count
LABEL_MARGIN = 3.0


class Arcs(NamedTuple):
    """What is known of all arcs of a group of sentences, flat; see `trees`.

    Attributes:
        begins: of each word, the place of its first arc, that from ROOT.
        scores: of the heads.
        of_labels: log-probabilities of the best labels, where the score of a head is at most
            `LABEL_MARGIN` below that of the word's best one; for others, as if all were alike,
            which is the least that it can be.
        labels: the best labels of the former; -1 for others.
    """

    begins: Longs
    scores: Floats
    of_labels: Floats
    labels: Ints


class GraphDecoder(Decoder):
    """The best tree by the scores of its arcs and the log-probabilities of their best labels.

    Args:
        config: what the network is and what it learnt by; its trees are no longer auto.
        labels: of arcs.
        weights: of the network, by their names in `task.GraphNetwork`.
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

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference."""
        return False

    @property
    def longest(self) -> int:
        """Words of the longest sentence that gets its best tree; see `scores` and `trees`."""
        return LONGEST_PROJECTIVE if self._is_projective else LONGEST

    def states(self, arrays: TokenArrays, layer: int | None = None) -> Floats:
        """Return the encoder's states; see `Decoder.states`."""
        first = self._members[0]
        return first.tokens.states(first.types.vectors, arrays, layer)

    def decode(self, arrays: TokenArrays, *, beam: int = 1) -> tuple[Ints, Ints]:
        """Parse sentences; the best trees are found without a beam. See `Decoder.decode`."""
        heads = np.full(len(arrays.types), -1, np.int32)
        label_ids = np.full(len(arrays.types), -1, np.int32)
        for layout, units, arcs in self._scored(arrays, groups_of(arrays.lengths)):
            rows = layout.rows[layout.words]
            heads[rows], label_ids[rows] = self._best_trees(layout, units, arcs)
        return heads, label_ids

    def _best_trees(
        self, layout: Layout, units: Sequence[Sequence[Floats]], arcs: Arcs
    ) -> tuple[Ints, Ints]:
        """Return the heads and the labels of the words of a group of sentences, [N] each."""
        find = projective_trees if self._is_projective else spanning_trees
        in_parts = find(arcs.scores + arcs.of_labels, layout.lengths)
        places = layout.places(in_parts)
        heads = (places - layout.sentence_roots).astype(np.int32)
        own: Ints = arcs.labels[arcs.begins + in_parts]
        # unlikely heads have no label yet, and roots of later parts get another head
        others = np.flatnonzero((own < 0) | ((in_parts == 0) != (heads == 0)))
        own[others], _ = self._best_labels(
            units, layout.words[others], places[others], heads[others]
        )
        return heads, own

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[RankedTree]]:
        """Give the best trees that differ in their heads, each with its best labels.

        They are ranked by the log-probability of the heads, of all choices of a head or of the tree
        where whole trees were learnt, and of the labels, as `Arcs.of_labels` has them. A sentence
        that is parsed in parts has one tree. See `Decoder.ranked`.
        """
        none = np.zeros(0, np.int32)
        for sentence in self._each(arrays):
            if sentence is None:
                yield [RankedTree(none, none, 0.0)]
                continue
            layout, units, arcs, parts = sentence
            of_parts = [
                ranked_trees(
                    self._log_probabilities(layout.table(arcs.scores, part))[0]
                    + layout.table(arcs.of_labels, part),
                    num if len(parts) == 1 else 1,
                    self._is_projective,
                )
                for part in parts
            ]
            words, root = layout.words_of(parts), int(layout.roots[parts[0]])
            trees = []
            for of_tree in zip(*of_parts, strict=True):
                places = layout.places(np.concatenate([heads for heads, _ in of_tree]), parts)
                heads = (places - root).astype(np.int32)
                label_ids, _ = self._best_labels(units, words, places, heads)
                trees.append(RankedTree(heads, label_ids, sum(score for _, score in of_tree)))
            yield trees

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give the probabilities of arcs: of choices of a head, or marginals over trees.

        Labels are known of the arcs of the tree, and of those whose score is at most `LABEL_MARGIN`
        below that of the word's best one. In a sentence that is parsed in parts, no arc but that of
        its root leads to another part. See `Decoder.arc_tables`.
        """
        group: Layout | None = None
        for sentence in self._each(arrays):
            if sentence is None:
                none = np.zeros((0, 1), np.int32)
                yield ArcTable(none.astype(np.float32), none, none[:, 0])
                continue
            layout, units, arcs, parts = sentence
            if layout is not group:
                group, num_done = layout, 0
                trees = self._best_trees(layout, units, arcs)
            own = slice(num_done, num_done := num_done + int(layout.lengths[parts].sum()))
            yield self._arc_table(layout, arcs, parts, *(array[own] for array in trees))

    def _arc_table(
        self, layout: Layout, arcs: Arcs, parts: Sequence[int], heads: Ints, own_labels: Ints
    ) -> ArcTable:
        """Return what is known of the arcs of a sentence, by its parts and its tree."""
        num_words = len(heads)
        probabilities = np.zeros((num_words, 1 + num_words), np.float32)
        label_ids = np.full(probabilities.shape, -1, np.int32)
        begin = 0
        # ROOT itself for the first part; for later ones, the root word of the first
        root_word = 0
        for part in parts:
            likely = self._log_probabilities(layout.table(arcs.scores, part))[1]
            labels = layout.table(arcs.labels, part)
            end = begin + len(labels)
            probabilities[begin:end, 1 + begin : 1 + end] = likely[:, 1:]
            label_ids[begin:end, 1 + begin : 1 + end] = labels[:, 1:]
            # a later part's root depends on that of the first one
            probabilities[begin:end, root_word] = likely[:, 0]
            if begin == 0:
                label_ids[:end, 0] = labels[:, 0]
                root_word = 1 + int((heads[:end] == 0).argmax()) if len(parts) > 1 else 0
            begin = end
        label_ids[np.arange(num_words), heads] = own_labels
        return ArcTable(probabilities, label_ids, heads)

    def _scored(
        self, arrays: TokenArrays, groups: Iterable[Longs]
    ) -> Iterator[tuple[Layout, list[list[Floats]], Arcs]]:
        """Yield the layout of groups of sentences, each member's units, and what is known of arcs.

        Empty sentences are passed over.
        """
        for group in groups:
            layout = Layout.of(arrays, group)
            if len(layout.group):
                units = [member.units(arrays, layout) for member in self._members]
                scores = average(
                    [m.arc_scores(u, layout) for m, u in zip(self._members, units, strict=True)]
                )
                yield layout, units, self._arcs(layout, units, scores)

    def _arcs(self, layout: Layout, units: Sequence[Sequence[Floats]], scores: Floats) -> Arcs:
        """Return what is known of arcs by their scores."""
        lengths = layout.lengths.astype(np.int64)
        num_words = int(lengths.sum())
        sizes = np.repeat(1 + lengths, lengths)  # of each word, its arcs
        begins = np.cumsum(sizes) - sizes
        in_part = np.arange(num_words) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        scores[begins + in_part + 1] = -np.inf  # no word is its own head
        limits = np.fmax.reduceat(scores, begins) - LABEL_MARGIN
        likely = np.flatnonzero(scores >= np.repeat(limits, sizes))
        words = np.repeat(np.arange(num_words), sizes)[likely]
        heads = (likely - begins[words]).astype(np.int32)
        roots, firsts = (np.repeat(a, lengths)[words] for a in (layout.roots, layout.begins))
        places = np.where(heads == 0, roots, firsts + heads - 1)
        of_labels = np.full(len(scores), -np.log(len(self._labels.arcs)), np.float32)
        of_labels[begins] = -np.log(len(self._labels.roots))
        labels = np.full(len(scores), -1, np.int32)
        labels[likely], of_labels[likely] = self._best_labels(
            units, layout.words[words], places, heads
        )
        return Arcs(begins, scores, of_labels, labels)

    def _each(
        self, arrays: TokenArrays
    ) -> Iterator[tuple[Layout, list[list[Floats]], Arcs, list[int]] | None]:
        """Yield what `_scored` does for each sentence in order, with its parts; None if empty."""
        in_order = groups_of(arrays.lengths, by_length=False)
        waiting = 0
        for layout, units, arcs in self._scored(arrays, in_order):
            # parts of one sentence have the same ROOT, and stand one after another
            begins = np.flatnonzero(np.diff(layout.roots, prepend=-1)).tolist()
            ends = [*begins[1:], len(layout.roots)]
            for place, begin, end in zip(layout.group.tolist(), begins, ends, strict=True):
                yield from [None] * (place - waiting)
                yield layout, units, arcs, list(range(begin, end))
                waiting = place + 1
        yield from [None] * (len(arrays.lengths) - waiting)

    def _log_probabilities(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return scores [n, 1 + n] whose sums are log-probabilities, and how likely each arc is."""
        num_words = len(scores)
        diagonal = np.arange(num_words), np.arange(1, 1 + num_words)
        if self._is_local:
            logs: Floats = scores.copy()
            # before the maximum: the score of a word with itself is not learnt, and may be huge
            logs[diagonal] = -np.inf
            logs -= logs.max(axis=1, keepdims=True)
            logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
            return logs, np.exp(logs)
        # of longer sentences the projective trees are not gone through, as in `trees`
        is_projective = self._is_crf and num_words <= LONGEST_PROJECTIVE
        totals, likely = marginals(scores.ravel(), np.asarray([num_words], np.int32), is_projective)
        table: Floats = likely.astype(np.float32).reshape(scores.shape)
        table[diagonal] = 0.0
        # a tree has as many arcs as words, so that its sum is less the whole partition function
        logs = scores - np.float32(totals[0] / num_words)
        return logs, table

    def _best_labels(
        self, units: Sequence[Sequence[Floats]], words: Longs, places: Longs, heads: Ints
    ) -> tuple[Ints, Floats]:
        """Return the best label of each arc, and its log-probability.

        `heads` are 0 where it is from ROOT, which has the last labels for itself.
        """
        scores = average(
            [m.label_scores(u, words, places) for m, u in zip(self._members, units, strict=True)]
        )
        is_of_root = np.arange(len(self._labels)) >= len(self._labels.arcs)
        scores[(heads == 0)[:, None] != is_of_root] = -np.inf
        best = scores.argmax(1)
        scores -= scores[np.arange(len(best)), best][:, None]
        return best.astype(np.int32), -np.log(np.exp(scores).sum(1))
