"""What a beam is trained on: its derivations and the gold one, where the gold one falls out of it.

A sentence is searched as it is parsed, by sums of scores. Where the gold derivation, that of the
static oracle, is no longer among the hypotheses, the search ends: an early update (Collins & Roark
2004). What is learnt is then to tell its beginning from the hypotheses in its place; where it stays
to the end, from those at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Bools, Bytes, Floats, Ints, Longs
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.search import Beams, History, Scorer
from seqtool.parsing.parser.transition.transitions import UNATTACHED, Configurations


class Derivations(NamedTuple):
    """The derivations of sentences, as far as those of one sentence differ.

    Attributes:
        configurations: int32, the numbers of the N configurations on their ways, ascending.
        steps: [K], a step of each derivation, as a place among the N.
        transitions: [K], what is taken there.
        owners: [K], the derivation, of D.
        sentences: [D], the sentence of each derivation, as a place among those given; ascending,
            and each comes.
        is_gold: [D], whether it is the gold one; one of a sentence is.
        num_choices: of all gold derivations up to where they end here.
    """

    configurations: Ints
    steps: Longs
    transitions: Longs
    owners: Longs
    sentences: Longs
    is_gold: Bools
    num_choices: int


class _Gold:
    """Where the gold derivations are in a search of one sentence in each lane."""

    def __init__(self, beams: Beams, oracle: Oracle) -> None:
        num_lanes = beams.num_lanes
        self._beams, self._oracle = beams, oracle
        self.rows = np.arange(num_lanes, dtype=np.int32) * beams.beam
        self.runs = np.ones(num_lanes, np.bool_)  # whether it is among the hypotheses
        # the last choice on it: the configuration's number, and the transition
        self.last, self.taken = (np.full(num_lanes, -1, np.int32) for _ in range(2))

    def scored(self, history: History) -> None:
        """Note what is to be taken in the configurations that are being scored."""
        beams = self._beams
        rows = self.rows[self.runs]
        is_open = beams.configurations.configs[rows, UNATTACHED] > 0
        lanes = np.flatnonzero(self.runs)[is_open]
        rows = rows[is_open]
        self.last[lanes] = history.last[rows]
        self.taken[lanes] = self._oracle.transitions(beams.configurations, rows)

    def moved(self, history: History) -> Longs:
        """Find the gold derivations after a step; return the lanes that have just lost theirs."""
        beams = self._beams
        shape = (beams.num_lanes, beams.beam)
        is_it = (
            beams.hypotheses.used.reshape(shape)
            & (history.last.reshape(shape) == self.last[:, None])
            & (history.taken.reshape(shape) == self.taken[:, None])
        )
        found = is_it.any(axis=1)
        self.rows[found] = (
            np.flatnonzero(found) * beams.beam + is_it[found].argmax(axis=1)
        ).astype(np.int32)
        lost: Longs = np.flatnonzero(self.runs & ~found)
        self.runs &= found
        return lost


def derive(
    system: str,
    labels: Labels,
    tokens: Ints,
    lengths: Ints,
    scorer: Scorer,
    oracle: Oracle,
    beam: int,
    observe: Callable[[Configurations, Ints, Bytes, Floats], None],
) -> Derivations:
    """Search sentences, all at once, for what is to be learnt from them.

    Args:
        system: a name in `transitions.SYSTEMS`.
        labels: of arcs.
        tokens: the row of each sentence's ROOT in the token arrays.
        lengths: words of each sentence.
        scorer: fills in the scores of transitions.
        oracle: of the same token arrays.
        beam: hypotheses per sentence.
        observe: is told of every configuration that is scored; see `search.History`.
    """
    beams = Beams(
        *(system, labels, len(lengths), int(lengths.max())),
        beam=beam,
        margin=np.inf,
        temperature=1.0,
        normalised=False,
    )
    gold = _Gold(beams, oracle)

    def watch(configurations: Configurations, which: Ints, masks: Bytes, scores: Floats) -> None:
        gold.scored(history)
        observe(configurations, which, masks, scores)

    beams.history = history = History(len(beams.configurations.configs), watch)
    beams.begin(gold.rows, tokens, lengths)
    # of each derivation: sentence, last configuration, transition, whether it is gold
    found: list[tuple[int, int, int, bool]] = []
    while beams.hypotheses.used.any():
        beams.step(scorer)
        lost = gold.moved(history)
        done = beams.finished()
        for lane in lost.tolist():
            found.append((lane, int(gold.last[lane]), int(gold.taken[lane]), True))
        # a lane may have lost its gold derivation and be done at once
        ended = np.union1d(lost * beam, done - done % beam).astype(np.int32)
        for begin in ended.tolist():
            lane = begin // beam
            for row in beams.ranked(begin).tolist():
                is_gold = bool(gold.runs[lane]) and row == gold.rows[lane]
                found.append((lane, int(history.last[row]), int(history.taken[row]), is_gold))
        gold.runs[ended // beam] = False
        beams.free(ended)
    return _derivations(found, *history.tree())


def _derivations(
    found: list[tuple[int, int, int, bool]], parents: Ints, taken: Ints
) -> Derivations:
    """Return derivations by their last steps, without what all of a sentence have in common."""
    found.sort()
    columns = [np.asarray(column, np.int64) for column in zip(*found, strict=True)]
    sentences, last, transitions, gold = columns or [np.zeros(0, np.int64)] * 4
    is_gold: Bools = gold.astype(np.bool_)
    owners: Longs = np.arange(len(found))
    before, taken_there = parents.astype(np.int64), taken.astype(np.int64)
    parts = [(last[:0], transitions[:0], owners[:0])]
    while len(owners):
        goes_on = last >= 0  # not before the first choice
        last, transitions, owners = last[goes_on], transitions[goes_on], owners[goes_on]
        parts.append((last, transitions, owners))
        last, transitions = before[last], taken_there[last]
    steps, transitions, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
    num_choices = int(is_gold[owners].sum())
    # a step that all derivations of a sentence take has no part in telling them apart
    keys = steps * (1 + int(transitions.max(initial=0))) + transitions
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sizes = np.bincount(sentences)
    differs = counts[places] < sizes[sentences[owners]]
    numbers, steps = np.unique(steps[differs], return_inverse=True)
    return Derivations(
        numbers.astype(np.int32),
        steps.astype(np.int64),
        transitions[differs].astype(np.int64),
        owners[differs],
        sentences,
        is_gold,
        num_choices,
    )
