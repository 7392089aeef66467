"""Trees by scores of arcs, without torch: `GraphDecoder`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.model import average
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree
from seqtool.parsing.parser.graph.eisner import LONGEST_PROJECTIVE, projective_trees
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.scores import LABEL_WORDS, LONGEST, Layout, Scorer
from seqtool.parsing.parser.graph.spanning import spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.reading import groups_of

_floats = types.float32[:, ::1]
_ints = types.int32[::1]


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

    @property
    def longest(self) -> int:
        """Words of the longest sentence that gets its best tree; see `scores` and `eisner`."""
        return LONGEST_PROJECTIVE if self._is_projective else LONGEST

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
                none = np.zeros((0, 1), np.int32)
                yield ArcTable(none.astype(np.float32), none, none[:, 0])
                continue
            layout, units, scores, parts = sentence
            root = int(layout.roots[parts[0]])
            num_words = int(layout.lengths[parts].sum())
            probabilities = np.zeros((num_words, 1 + num_words), np.float32)
            label_ids = np.full(probabilities.shape, -1, np.int32)
            tree = np.empty(num_words, np.int32)
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
                best = self._best_heads(table.ravel(), layout.lengths[part : part + 1])
                tree[rows] = layout.places(best, [part]) - root
                if part == parts[0]:
                    root_word = 1 + int(best.tolist().index(0)) if len(parts) > 1 else 0
                candidates = np.unique(np.concatenate(([0, root_word], heads)))
                for first in range(0, length, LABEL_WORDS):
                    block = slice(first, first + LABEL_WORDS)
                    label_ids[np.ix_(rows[block], candidates)] = self._label_table(
                        units, places[block], root + candidates
                    )
                label_ids[rows, heads] = -1  # of a word with itself
            yield ArcTable(probabilities, label_ids, tree)

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
        """Yield what `_scored` does for each sentence in order, with its parts; None if empty.

        The arrays are copies: between two sentences, a caller may parse others.
        """
        in_order = groups_of(arrays.lengths, by_length=False)
        waiting = 0
        for layout, units, scores in self._scored(arrays, in_order):
            units, scores = [[array.copy() for array in own] for own in units], scores.copy()
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
            logs: Floats = scores.copy()
            # before the maximum: the score of a word with itself is not learnt, and may be huge
            logs[diagonal] = -np.inf
            logs -= logs.max(axis=1, keepdims=True)
            logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
            return logs, np.exp(logs)
        # of longer sentences the projective trees are not gone through, as in `eisner`
        is_projective = self._is_crf and num_words <= LONGEST_PROJECTIVE
        totals, likely = marginals(scores.ravel(), np.asarray([num_words], np.int32), is_projective)
        table: Floats = likely.astype(np.float32).reshape(scores.shape)
        table[diagonal] = 0.0
        logs = scores - np.float32(totals[0] / num_words)
        return logs, table

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
        best: Ints = scores[:, :num_arcs].argmax(axis=1).astype(np.int32)
        best[:, 0] = num_arcs + scores[:, num_arcs:, 0].argmax(axis=1)
        return best
