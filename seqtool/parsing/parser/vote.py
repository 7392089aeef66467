"""Parsers of different kinds over one treebank, combined: `Vote`.

Each parser gives every arc of a sentence its marginal, and a quarter of a vote more to the arcs of
its own tree. The weighted sums are the scores of a graph, whose best spanning tree with one arc
from ROOT is taken: it has the most heads that are expected to be right, if one of the parsers,
drawn by chance, is (Sagae & Lavie 2006; Kuncoro et al. 2016). The label of an arc is that for which
those have most who have the arc. A parser's weight is by its errors on the validation part. The
page for developers has other ways to count votes, which make little difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Floats, Ints
from seqtool.core.errors import ModelError
from seqtool.core.one_line import OneLine
from seqtool.parsing.missing_columns import ColumnCheck
from seqtool.parsing.model import AT_WORK, chunks
from seqtool.parsing.parser.calibration import (
    CALIBRATED_BEAMS,
    Calibration,
    calibrated,
    fit_calibration,
)
from seqtool.parsing.parser.config import KIND, PREDICTED_TAGS
from seqtool.parsing.parser.decoder import ArcTable
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.trees import spanning_trees
from seqtool.parsing.parser.parser import (
    PARSED_WORDS,
    ChunkParser,
    Parser,
    Ranker,
    ScoredTree,
    Tree,
    TreeParser,
)
from seqtool.parsing.unknown_words import Known
from seqtool.treebank.conllu import Broken, Item
from seqtool.treebank.derivation import Trace
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import Sentence

LABELS_SHOWN = 8  # in an error
# words; the tables of a longer sentence would take more than 32 MB for each parser, and grow with
# its square: it gets the tree of the first parser
LONGEST_VOTED = 2000
OWN_TREE = 0.25  # what an arc of a parser's own tree has beside its marginal
ERROR_POWER = 2.0  # to which a parser's share of wrong arcs divides its weight

Checks = Sequence[ColumnCheck | None]  # of the columns of each parser
PlainLabels = tuple[list[str], list[str]]  # of arcs between words, and from ROOT


def vote_scores(tables: Sequence[ArcTable], weights: Sequence[float]) -> Floats:
    """Return the scores of the arcs of a sentence, [n, 1 + n]: the weighted votes, summed.

    Args:
        tables: of each parser.
        weights: of each parser.
    """
    total = np.zeros_like(tables[0].probabilities)
    for table, weight in zip(tables, weights, strict=True):
        total += np.float32(weight) * table.probabilities
        total[np.arange(len(total)), table.heads] += np.float32(OWN_TREE * weight)
    return total


def voted_labels(tables: Sequence[ArcTable], weights: Sequence[float], heads: Ints) -> Ints:
    """Return the labels of the arcs of a tree, [n]; -1 where no parser knows one.

    A parser votes for its label of an arc as it does for the arc. Where the sums are alike, and
    where no parser has the arc, the first one counts.

    Args:
        tables: of each parser, with the same numbers of labels.
        weights: of each parser.
        heads: [n].
    """
    words = np.arange(len(heads))
    labels_PN = np.stack([table.label_ids[words, heads] for table in tables])
    votes_PN = np.stack(
        [
            np.float32(weight)
            * (table.of_tree(heads) + np.float32(OWN_TREE) * (table.heads == heads))
            for table, weight in zip(tables, weights, strict=True)
        ]
    )
    totals_PN = np.zeros_like(votes_PN)
    for labels_N, votes_N in zip(labels_PN, votes_PN, strict=True):
        totals_PN += np.where(labels_PN == labels_N, votes_N, np.float32(0))
    totals_PN[labels_PN < 0] = -1
    chosen: Ints = labels_PN[totals_PN.argmax(0), words]
    return chosen


class Vote(OneLine, TreeParser):
    """Parsers that find a tree together; see the module.

    Args:
        parsers: two or more over one treebank, each of which may be an ensemble.
        weights: of each; if not given, `weights_of` them.
        calibrations: of the vote's own probabilities, by beams, as `fit_calibrations` returns them.

    Attributes:
        parsers, weights, calibrations: as they were given.
        labels: all labels of trees, by the numbers that they have here.

    Raises:
        ModelError: their labels differ.
    """

    shown = ("kind", "weights")

    kind = KIND
    votes = True

    def __init__(
        self,
        parsers: Sequence[Parser],
        weights: Sequence[float] | None = None,
        calibrations: Mapping[int, Calibration] | None = None,
    ) -> None:
        self.parsers, self.calibrations = list(parsers), dict(calibrations or {})
        self.weights = list(weights or weights_of(parsers))
        first, *others = map(_plain_labels, parsers)
        for other in others:
            _refuse_other_labels(first, other)
        self.labels = list(dict.fromkeys(chain(*first)))
        # what an arc gets from ROOT, or from elsewhere, of which nobody knows better
        self._commonest = self.labels.index(first[1][0]), self.labels.index(first[0][0])
        # of each parser, the numbers of its labels here; the last one is that of none, -1
        self._label_ids = [
            np.asarray([*(self.labels.index(_plain(name)) for name in one.deprels), -1], np.int32)
            for one in parsers
        ]

    @property
    def longest(self) -> int:
        """Words of the longest sentence that gets its best tree."""
        return min([LONGEST_VOTED, *(one.longest or LONGEST_VOTED for one in self.parsers)])

    @property
    def known(self) -> Known:
        """What the parser knows that reads the most tags."""
        return max((parser.known for parser in self.parsers), key=lambda known: len(known.tags))

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference to one of the parsers."""
        return any(parser.has_beam for parser in self.parsers)

    def fit_calibrations(self, sentences: Sequence[Sentence]) -> dict[int, Calibration]:
        """Return calibrations of the vote for the beams that parsers have some for.

        What parsers vote for is right more often than the mean of their probabilities says,
        although each of these is calibrated.

        Args:
            sentences: of the validation part, with their gold trees, which stay; one of two words
                or more.
        """
        calibrations = {}
        for beam in CALIBRATED_BEAMS:
            pooled: list[Doubles] = []
            are_right: list[Bools] = []
            for chunk in chunks([one for one in sentences if len(one) > 1], PARSED_WORDS):
                several = [one for one in chunk if isinstance(one, Sentence)]
                for sentence, tables in self._tables(several, beam, self._checks(True)):
                    heads, _ = self.tree(tables)
                    pooled.append(self._pooled(tables, heads, beam))
                    are_right.append(np.equal(heads, sentence.heads()))
            calibrations[beam] = fit_calibration(np.concatenate(pooled), np.concatenate(are_right))
        return calibrations

    def _chunk_parser(self, beam: int, allow_missing: bool, scores: bool) -> ChunkParser:
        checks = self._checks(allow_missing)

        def parse(chunk: Sequence[Item]) -> None:
            sentences = [item for item in chunk if isinstance(item, Sentence)]
            for sentence, tables in self._tables(sentences, beam, checks):
                heads, deprels = self.tree(tables)
                sentence.set_tree(heads, deprels)
                if scores:
                    sentence.set_scores(self._scores(tables, heads, beam))
            # they were checked with the others
            long = [sentence for sentence in sentences if len(sentence) > LONGEST_VOTED]
            self.parsers[0].parse(long, beam=beam, allow_missing=True, scores=scores)

        return parse

    def _ranker(self, num: int, beam: int, allow_missing: bool) -> Ranker:
        checks = self._checks(allow_missing)

        def rank(sentences: Sequence[Sentence]) -> Iterator[list[ScoredTree]]:
            first, whole = self.parsers[0], sum(self.weights)
            voted = self._tables(sentences, beam, checks)
            for sentence in sentences:
                if len(sentence) > LONGEST_VOTED:
                    with AT_WORK:
                        ranked = first.ranked(first.encode([sentence]), num, beam=beam)
                    yield from ranked
                    continue
                _, tables = next(voted)
                yield [
                    ScoredTree(*self._labelled(tables, heads), score / whole)
                    for heads, score in ranked_trees(vote_scores(tables, self.weights), num, False)
                ]

        return rank

    def traces(
        self, items: Iterable[Item], *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[Trace | Broken]:
        """Refuse, as a vote builds no tree step by step; see `TreeParser.traces`."""
        raise ModelError(
            "parsers that vote build no tree step by step", hint="ask one of them alone"
        )

    def head_probabilities(
        self, sentences: Sequence[Sentence], *, beam: int = 1
    ) -> Iterator[Floats]:
        """Give the marginals of heads; no sentence has more than `LONGEST_VOTED` words."""
        shares = np.asarray(self.weights, np.float32) / np.float32(sum(self.weights))
        marginals = [parser.head_probabilities(sentences, beam=beam) for parser in self.parsers]
        for tables in zip(*marginals, strict=True):
            mean = np.zeros_like(tables[0])
            for share, table in zip(shares, tables, strict=True):
                mean += share * table
            yield mean

    def tree(self, tables: Sequence[ArcTable]) -> Tree:
        """Return the tree of a sentence of one word or more.

        Args:
            tables: of each parser, with the numbers of `labels`.
        """
        scores = vote_scores(tables, self.weights)
        heads = spanning_trees(scores.ravel(), np.asarray([len(scores)], np.int32))
        return self._labelled(tables, heads)

    def _labelled(self, tables: Sequence[ArcTable], heads: Ints) -> Tree:
        """Return the tree of these heads with the labels that are voted for."""
        labels = voted_labels(tables, self.weights, heads)
        for word in np.flatnonzero(labels < 0).tolist():
            labels[word] = self._label_without_votes(tables, word, is_root=heads[word] == 0)
        return heads.tolist(), [self.labels[label] for label in labels.tolist()]

    def _label_without_votes(self, tables: Sequence[ArcTable], word: int, *, is_root: bool) -> int:
        """Return a word's label in the first tree where it has such a head, or a common label.

        Labels of arcs from ROOT are those of such arcs alone.
        """
        own = (
            int(table.label_ids[word, table.heads[word]])
            for table in tables
            if (table.heads[word] == 0) == is_root
        )
        return next((label for label in own if label >= 0), self._commonest[not is_root])

    def _scores(self, tables: Sequence[ArcTable], heads: Sequence[int], beam: int) -> list[float]:
        """Return the probabilities that the arcs of a tree are right."""
        if len(heads) == 1:  # there is no other tree
            return [1.0]
        pooled = self._pooled(tables, heads, beam)
        return list(calibrated(pooled, self.calibrations, beam).tolist())

    def _pooled(self, tables: Sequence[ArcTable], heads: Sequence[int], beam: int) -> Doubles:
        """Return the parsers' mean, by their weights, of how probable the arcs of a tree are."""
        of_parsers = [
            calibrated(table.of_tree(np.asarray(heads)), parser.calibrations, beam)
            for parser, table in zip(self.parsers, tables, strict=True)
        ]
        pooled: Doubles = np.average(of_parsers, axis=0, weights=self.weights)
        return pooled

    def _checks(self, allow_missing: bool) -> Checks:
        return [None if allow_missing else ColumnCheck(one.types) for one in self.parsers]

    def _tables(
        self, sentences: Sequence[Sentence], beam: int, checks: Checks
    ) -> Iterator[tuple[Sentence, list[ArcTable]]]:
        """Give each of the next sentences that is not too long, and the parsers' marginals.

        Raises:
            DataError: columns are missing.
        """
        short = [sentence for sentence in sentences if len(sentence) <= LONGEST_VOTED]
        of_parsers: list[Iterator[ArcTable]] = []
        with AT_WORK:  # until the tables hold on to the numbers of types
            for parser, check in zip(self.parsers, checks, strict=True):
                arrays = parser.encode(sentences, check)
                if len(short) < len(sentences):
                    arrays = parser.encode(short)
                of_parsers.append(parser.arc_tables(arrays, beam=beam))
        # sentence by sentence, as the tables of a long one are large
        return (
            (sentence, self._numbered(tables))
            for sentence, *tables in zip(short, *of_parsers, strict=True)
        )

    def _numbered(self, tables: Sequence[ArcTable]) -> list[ArcTable]:
        """Return the parsers' tables of a sentence with the vote's numbers of labels."""
        return [
            table._replace(label_ids=ids[table.label_ids])
            for table, ids in zip(tables, self._label_ids, strict=True)
        ]


def have_same_tags(parsers: Sequence[Parser]) -> bool:
    """Whether all were validated with gold tags, or all with predicted ones."""
    members = [member for parser in parsers for member in parser.members]
    return len({bool(member.data.get(PREDICTED_TAGS)) for member in members}) < 2


def weights_of(parsers: Sequence[Parser]) -> list[float]:
    """Return the weights of parsers in a vote; the largest one is 1.

    They fall with the share of wrong arcs (100 - LAS) of the validation part, and each member of an
    ensemble counts. Where it is not known of one, or is 0, or some have it with gold tags and
    others with predicted ones, they are by the number of members alone.
    """
    errors = [
        np.asarray([100.0 - member.scores.get("dev_las", 100.0) for member in parser.members])
        for parser in parsers
    ]
    if min(each.min() for each in errors) > 0 and have_same_tags(parsers):
        sums = [sum((each**-ERROR_POWER).tolist()) for each in errors]
    else:
        sums = [len(each) for each in errors]
    return [float(share / max(sums)) for share in sums]


def combine(
    parsers: Sequence[Parser], calibrations: Mapping[int, Calibration] | None = None
) -> Parser | Vote:
    """Return parsers as one: those that differ in their weights alone as an ensemble, others vote.

    Args:
        parsers: one or more.
        calibrations: of their vote, as `Vote.fit_calibrations` returned them.

    Raises:
        ModelError: their labels differ.
    """
    alike: list[list[Parser]] = []
    for parser in parsers:
        group = next((group for group in alike if group[0].shared == parser.shared), None)
        if group is None:
            alike.append([parser])
        else:
            group.append(parser)
    ensembles = [first.ensemble(others) for first, *others in alike]
    return ensembles[0] if len(ensembles) == 1 else Vote(ensembles, calibrations=calibrations)


def _plain(label: str) -> str:
    """Return a label without the mark of a lifted arc."""
    return label.partition(LIFTED)[0]


def _plain_labels(parser: Parser) -> PlainLabels:
    """Return the labels of arcs between words and of those from ROOT, in trees that are whole."""
    labels = parser.labels
    return list(dict.fromkeys(map(_plain, labels.arcs))), list(dict.fromkeys(labels.roots))


def _refuse_other_labels(first: PlainLabels, second: PlainLabels) -> None:
    """Raise ModelError where two parsers do not have the same labels."""
    for what, one, other in zip(("between words", "from ROOT"), first, second, strict=True):
        if differing := sorted({*one} ^ {*other}):
            more = ", ..." * (len(differing) > LABELS_SHOWN)
            raise ModelError(
                f"the labels of the parsers differ, of arcs {what}: only one of two has "
                f"{', '.join(differing[:LABELS_SHOWN])}{more}",
                hint="name parsers that were trained on one treebank",
            )
