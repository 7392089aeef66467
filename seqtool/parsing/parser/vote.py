"""Parsers of different kinds over one treebank, combined: `Vote`.

Each parser gives every arc of a sentence a probability, and a quarter of a vote more to the arcs
of its own tree. The weighted sums are the scores of a graph, whose best spanning tree with one arc
from ROOT is taken: it has the most heads that are expected to be right, if one of the parsers,
drawn by chance, is (Sagae & Lavie 2006; Kuncoro et al. 2016). The label of an arc is that for which
those have most who have the arc. A parser's weight is by its errors on the validation part.

How votes are counted makes little difference where parsers are of different kinds. Mean dev LAS of
sets of two to five parsers (graph, `accurate`, `fast`, `linear`, `mst`; one seed; 10 sets
of English-EWT, 6 of Korean-Kaist, 2 of French-Sequoia), and of arc-standard, arc-eager and
arc-hybrid on 1,000 sentences of EWT, each `fast` with a beam of 4 (2026-11-22):

    own tree   power of errors      EWT    Kaist   Sequoia   three systems
           0                 0    91.36    79.85     90.29            82.0
        0.25                 2    91.37    79.95     90.22            82.3
         0.5                 2    91.37    79.94     90.14
         0.5                 3    91.36    79.93     90.09
         0.5                 4    91.32    79.94     90.12            82.6

Weights that were fitted on half of the dev part, and other ways, were no better on the other half:
see the page of experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Doubles, Floats, Ints
from seqtool.core.errors import ModelError
from seqtool.core.jit import compiled
from seqtool.parsing.model import AT_WORK
from seqtool.parsing.parser.calibration import BEAMS, Calibration, fit, nearest, of_heads
from seqtool.parsing.parser.columns import ColumnCheck, refuse_lacking
from seqtool.parsing.parser.config import KIND
from seqtool.parsing.parser.data import PREDICTED
from seqtool.parsing.parser.decoder import ArcTable, check_search
from seqtool.parsing.parser.details import ScoredTree, chunks, with_trees
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.trees import spanning_trees
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.model import Parser, Tree
from seqtool.parsing.parser.stream import ParsesInputs, in_stream
from seqtool.parsing.unknown import Known
from seqtool.treebank.conllu import Broken, Item, sentences_of
from seqtool.treebank.derivation import Trace
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import Sentence

SHOWN = 8  # labels of each list that an error has
# words; the tables of a longer sentence would take more than 32 MB for each parser, and grow with
# its square: it gets the tree of the first parser
LONGEST = 2000
OWN_TREE = 0.25  # what an arc of a parser's own tree has beside its probability
ERROR_POWER = 2.0  # to which a parser's share of wrong arcs divides its weight


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[:, ::1]
_real = types.float32


@compiled(types.void(_floats, _ints, _real, _real, _floats))
def _add_votes(probabilities, heads, weight, own, total):  # type: ignore[no-untyped-def]
    """Add the votes of one parser for the arcs of a sentence to those of others."""
    for word in range(heads.shape[0]):
        for head in range(total.shape[1]):
            total[word, head] += weight * probabilities[word, head]
        total[word, heads[word]] += own


@compiled(types.void(_floats, _table, _ints, _ints, _real, _real, types.float32[::1], _ints))
def _label_votes(  # type: ignore[no-untyped-def]
    probabilities, label_ids, own_heads, heads, weight, own, votes, labels
):
    """Note what one parser votes for in the arcs of a tree: its labels, and with what weight."""
    for word in range(heads.shape[0]):
        head = heads[word]
        vote = probabilities[word, head]
        if own_heads[word] == head:
            vote += own
        votes[word] = weight * vote
        labels[word] = label_ids[word, head]


@compiled(types.void(_floats, _table, _ints))
def _choose(votes, labels, chosen):  # type: ignore[no-untyped-def]
    """Choose the label of the highest sum of votes for each word, the first parser's of equals."""
    num = votes.shape[0]
    for word in range(chosen.shape[0]):
        chosen[word] = -1
        highest = np.float32(-1.0)
        for place in range(num):  # few parsers, so all pairs
            if labels[place, word] < 0:
                continue
            total = np.float32(0.0)
            for other in range(num):
                if labels[other, word] == labels[place, word]:
                    total += votes[other, word]
            if total > highest:
                chosen[word], highest = labels[place, word], total


def summed(tables: Sequence[ArcTable], weights: Sequence[float]) -> Floats:
    """Return the scores of the arcs of a sentence, [n, 1 + n]: the weighted votes, summed.

    Args:
        tables: of each parser.
        weights: of each parser.
    """
    total = np.zeros_like(tables[0].probabilities)
    for table, weight in zip(tables, weights, strict=True):
        _add_votes(table.probabilities, table.heads, weight, OWN_TREE * weight, total)
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
    votes = np.empty((len(tables), len(heads)), np.float32)
    labels = np.empty((len(tables), len(heads)), np.int32)
    for place, (table, weight) in enumerate(zip(tables, weights, strict=True)):
        _label_votes(*table, heads, weight, OWN_TREE, votes[place], labels[place])
    chosen = np.empty(len(heads), np.int32)
    _choose(votes, labels, chosen)
    return chosen


class Vote(ParsesInputs):
    """Parsers that find a tree together; see the module.

    Args:
        parsers: two or more over one treebank, each of which may be an ensemble.
        weights: of each; if not given, `weights_of` them.
        calibrations: of the vote's own probabilities, by beams, as `fitted` returns them.

    Attributes:
        parsers, calibrations: as they were given.
        weights: of each.
        labels: all labels of trees, by the numbers that they have here.

    Raises:
        ModelError: their labels differ.
    """

    kind = KIND

    def __init__(
        self,
        parsers: Sequence[Parser],
        weights: Sequence[float] | None = None,
        calibrations: Mapping[int, Calibration] | None = None,
    ) -> None:
        self.parsers, self.calibrations = list(parsers), dict(calibrations or {})
        self.weights = list(weights or weights_of(parsers))
        first, *others = (_plain(parser.labels) for parser in parsers)
        for other in others:
            _refuse_other_labels(first, other)
        self.labels = list(dict.fromkeys(chain(*first)))
        # what an arc gets from ROOT, or from elsewhere, of which nobody knows better
        self._commonest = self.labels.index(first[1][0]), self.labels.index(first[0][0])

    @property
    def longest(self) -> int:
        """Words of the longest sentence that gets its best tree."""
        return min([LONGEST, *(parser.longest or LONGEST for parser in self.parsers)])

    @property
    def known(self) -> Known:
        """What the parser knows that reads the most tags."""
        return max((parser.known for parser in self.parsers), key=lambda known: len(known.tags))

    @property
    def has_tagger(self) -> bool:
        """Whether it tags words itself, as a pipeline does."""
        return False

    @property
    def votes(self) -> bool:
        """Whether its trees are those of several parsers that vote."""
        return True

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference to one of the parsers."""
        return any(parser.has_beam for parser in self.parsers)

    @property
    def is_calibrated(self) -> bool:
        """Whether probabilities of arcs say how often these are right; see `fitted`."""
        return bool(self.calibrations)

    def fitted(self, sentences: Sequence[Sentence]) -> dict[int, Calibration]:
        """Return calibrations of the vote for the beams that parsers have some for.

        What parsers vote for is right more often than the mean of their probabilities says,
        although each of these is calibrated.

        Args:
            sentences: of the validation part, with their gold trees, which stay; one of two words
                or more.
        """
        found = {}
        for beam in BEAMS:
            stream = _StreamVote(self, beam, allow_missing=True)
            pooled: list[Doubles] = []
            are_right: list[Bools] = []
            for chunk, _ in chunks(sentences):
                several = [item for item in chunk if isinstance(item, Sentence) and len(item) > 1]
                for sentence, tables in stream.tables(several):
                    heads, _ = self.tree(tables)
                    pooled.append(self._pooled(tables, heads, beam))
                    are_right.append(np.equal(heads, sentence.heads()))
            found[beam] = fit(np.concatenate(pooled), np.concatenate(are_right))
        return found

    def parse(
        self,
        sentences: Sequence[Sentence],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> None:
        """Give every sentence a tree; arguments and errors are those of `parse_stream`."""
        for _ in self.parse_stream(
            sentences, beam=beam, allow_missing=allow_missing, scores=scores
        ):
            pass

    def parse_stream(
        self,
        items: Iterable[Item],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> Iterator[Item]:
        """Give the items with new trees, in order; batches as their sentences.

        For arguments and errors see `Parser.parse_stream`: each parser must find what it reads. The
        score of an arc is the mean of those that the parsers give it, by their weights.
        """
        stream = _StreamVote(self, beam, allow_missing=allow_missing)

        def parse(items: Sequence[Item], *, is_last: bool = False) -> None:
            sentences = [item for item in items if isinstance(item, Sentence)]
            for sentence, tables in stream.tables(sentences, is_last=is_last):
                heads, deprels = self.tree(tables)
                sentence.set_tree(heads, deprels)
                if scores:
                    sentence.set_scores(self.arc_scores(tables, heads, beam=beam))
            if long := [sentence for sentence in sentences if len(sentence) > LONGEST]:
                # they were checked with the others
                self.parsers[0].parse(long, beam=beam, allow_missing=True, scores=scores)

        return in_stream(sentences_of(items), parse)

    def head_probabilities(
        self, sentences: Sequence[Sentence], *, beam: int = 1
    ) -> Iterator[Floats]:
        """Give of each sentence how probable each head is, [n, 1 + n]: the parsers' mean.

        It is by their weights; no sentence has more than `LONGEST` words. See
        `Parser.head_probabilities`.
        """
        shares = np.asarray(self.weights, np.float32) / np.float32(sum(self.weights))
        for tables in zip(
            *(parser.head_probabilities(sentences, beam=beam) for parser in self.parsers),
            strict=True,
        ):
            mean = np.zeros_like(tables[0])
            for share, table in zip(shares, tables, strict=True):
                mean += share * table
            yield mean

    def nbest(
        self, items: Iterable[Item], num: int, *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[list[Sentence] | Broken]:
        """Give the best trees of each sentence, by the sums of the votes for their arcs.

        They differ in their heads, and the first one is that of `parse`. The score is the sum of
        the votes, a parser's weight being its share of all weights. Those of a sentence that is too
        long to be voted on are the first parser's. See `DetailedParser.nbest`.
        """
        check_search(beam, num)
        stream = _StreamVote(self, beam, allow_missing=allow_missing)
        whole = sum(self.weights)
        for chunk, is_last in chunks(items):
            voted = stream.tables([i for i in chunk if isinstance(i, Sentence)], is_last=is_last)
            for item in chunk:
                if isinstance(item, Broken):
                    yield item
                elif len(item) > LONGEST:
                    # its columns were checked with those of the others
                    yield from self.parsers[0].nbest([item], num, beam=beam, allow_missing=True)
                else:
                    _, tables = next(voted)
                    trees = [
                        ScoredTree(*self._labelled(tables, heads), score / whole)
                        for heads, score in ranked_trees(summed(tables, self.weights), num, False)
                    ]
                    yield with_trees(item, trees)

    def trace(self, sentence: Sentence, *, beam: int = 1, allow_missing: bool = False) -> Trace:
        """Refuse to tell how a tree is built, see `traces`.

        Raises:
            ModelError: always.
        """
        raise _no_steps()

    def traces(
        self, items: Iterable[Item], *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[Trace | Broken]:
        """Refuse to tell how trees are built, see `DetailedParser.traces`.

        Raises:
            ModelError: always.
        """
        raise _no_steps()

    def arc_scores(
        self, tables: Sequence[ArcTable], heads: Sequence[int], *, beam: int = 1
    ) -> list[float]:
        """Return the probabilities that the arcs of a tree are right.

        Args:
            tables: of each parser.
            heads: of the words.
            beam: hypotheses per sentence, of which the tables are.
        """
        if len(heads) == 1:  # there is no other tree
            return [1.0]
        pooled, calibration = self._pooled(tables, heads, beam), nearest(self.calibrations, beam)
        return list((pooled if calibration is None else calibration(pooled)).tolist())

    def _pooled(self, tables: Sequence[ArcTable], heads: Sequence[int], beam: int) -> Doubles:
        """Return the parsers' mean, by their weights, of how probable the arcs of a tree are."""
        of_parsers = [
            parser.calibrated(of_heads(table, heads), beam=beam)
            for parser, table in zip(self.parsers, tables, strict=True)
        ]
        pooled: Doubles = np.average(of_parsers, axis=0, weights=self.weights)
        return pooled

    def tree(self, tables: Sequence[ArcTable]) -> Tree:
        """Return the tree of a sentence of one word or more.

        Args:
            tables: of each parser, with the numbers of `labels`.
        """
        scores = summed(tables, self.weights)
        return self._labelled(
            tables, spanning_trees(scores.ravel(), np.asarray([len(scores)], np.int32))
        )

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


class _StreamVote:
    """A vote, and the columns that each parser has found in the sentences so far."""

    def __init__(self, vote: Vote, beam: int, *, allow_missing: bool) -> None:
        check_search(beam)
        self._vote, self._beam = vote, beam
        ids = {label: number for number, label in enumerate(vote.labels)}
        # of each parser, the numbers of its labels here; the last one is that of none, -1
        self._ids = [
            np.asarray([*(ids[_own(label)] for label in parser.deprels), -1], np.int32)
            for parser in vote.parsers
        ]
        self._checks = [None if allow_missing else ColumnCheck(p.types) for p in vote.parsers]
        self._is_first = True

    def tables(
        self, sentences: Sequence[Sentence], *, is_last: bool = False
    ) -> Iterator[tuple[Sentence, list[ArcTable]]]:
        """Give each of the next sentences that is not too long, and what the parsers think of it.

        Raises:
            DataError: one lacks columns, and that is not allowed.
        """
        is_all = is_last and self._is_first
        self._is_first = False
        short = [sentence for sentence in sentences if len(sentence) <= LONGEST]
        of_parsers: list[Iterator[ArcTable]] = []
        with AT_WORK:  # until the tables hold on to the numbers of types
            for place, parser in enumerate(self._vote.parsers):
                arrays = parser.encode(sentences)
                if (check := self._checks[place]) is not None:
                    refuse_lacking(sentences, arrays, check, is_all=is_all)
                if len(short) < len(sentences):
                    arrays = parser.encode(short)
                of_parsers.append(parser.arc_tables(arrays, beam=self._beam))
        # sentence by sentence, as the tables of a long one are large
        return ((s, self._numbered(tables)) for s, *tables in zip(short, *of_parsers, strict=True))

    def _numbered(self, tables: Sequence[ArcTable]) -> list[ArcTable]:
        """Return the parsers' tables of a sentence with the vote's numbers of labels."""
        return [
            table._replace(label_ids=ids[table.label_ids])
            for table, ids in zip(tables, self._ids, strict=True)
        ]


def have_same_tags(parsers: Sequence[Parser]) -> bool:
    """Whether all were validated with gold tags, or all with predicted ones."""
    return len({bool(one.data.get(PREDICTED)) for each in parsers for one in each.members}) < 2


def weights_of(parsers: Sequence[Parser]) -> list[float]:
    """Return the weights of parsers in a vote; the largest one is 1.

    They fall with the share of wrong arcs (100 - LAS) of the validation part, and each member of an
    ensemble counts. Where it is not known of one, or is 0, or some have it with gold tags and
    others with predicted ones, they are by the number of members alone.
    """
    errors = [
        100.0 - parser.scores.get("dev_las", 100.0)
        for ensemble in parsers
        for parser in ensemble.members
    ]
    is_known = min(errors) > 0 and have_same_tags(parsers)
    shares = iter(np.asarray(errors) ** -ERROR_POWER if is_known else np.ones(len(errors)))
    sums = [sum(next(shares) for _ in parser.members) for parser in parsers]
    return [float(share / max(sums)) for share in sums]


def together(
    parsers: Sequence[Parser], calibrations: Mapping[int, Calibration] | None = None
) -> Parser | Vote:
    """Return parsers as one: those that differ in their weights alone as an ensemble, others vote.

    Args:
        parsers: one or more.
        calibrations: of their vote, as `Vote.fitted` returned them.

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
    if len(ensembles) == 1:
        return ensembles[0]
    return Vote(ensembles, calibrations=calibrations)


def _no_steps() -> ModelError:
    return ModelError(
        "parsers that vote build no tree step by step",
        hint="ask one of them alone",
    )


def _own(label: str) -> str:
    """Return a label without the mark of a lifted arc."""
    return label.partition(LIFTED)[0]


def _plain(labels: Labels) -> tuple[list[str], list[str]]:
    """Return the labels of arcs between words and of those from ROOT, in trees that are whole."""
    return list(dict.fromkeys(map(_own, labels.arcs))), list(dict.fromkeys(labels.roots))


def _refuse_other_labels(first: tuple[list[str], ...], second: tuple[list[str], ...]) -> None:
    """Raise ModelError where two parsers do not have the same labels."""
    pairs = list(zip(("of arcs between words", "of arcs from ROOT"), first, second, strict=True))
    differing = [pair for pair in pairs if set(pair[1]) != set(pair[2])]
    if not differing:
        return
    what, one, other = differing[0]
    alone = [sorted({*one} - {*other}), sorted({*other} - {*one})]
    lists = [", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN) for names in alone]
    raise ModelError(
        f"the labels of the parsers differ, {what}: only the one has {lists[0] or 'none'}; only "
        f"the other has {lists[1] or 'none'}",
        hint="name parsers that were trained on one treebank",
    )
