"""What a beam is trained on: its derivations, and the correct ones, where these fall out of it.

A sentence is searched as it is parsed, by sums of scores. A derivation is correct while it leads to
the gold tree: several do, as most systems can build a tree in more than one order. Where no correct
one is left among the hypotheses, the search ends: an early update (Collins & Roark 2004). What is
learnt is then to tell the correct beginnings that have just been lost from the hypotheses in their
place; where some stay to the end, from the others at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Bools, Bytes, Floats, Ints, Longs
from seqtool.parsing.parser.transition.search import Beams, History, Scorer
from seqtool.parsing.parser.transition.transitions import UNATTACHED, Configurations

# (configurations, which of them, their legal actions) -> int32 [N, K], the transitions of each that
# lead on to the gold tree; -1 for none
Choices = Callable[[Configurations, Ints, Bytes], Ints]


class Derivations(NamedTuple):
    """The derivations of sentences, as far as those of one sentence differ.

    Attributes:
        configurations: int32, the numbers of the N configurations on their ways, ascending.
        steps: [K], a step of each derivation, as a place among the N.
        transitions: [K], what is taken there.
        owners: [K], the derivation, of D.
        sentences: [D], the sentence of each derivation, as a place among those given; ascending,
            and each comes.
        is_gold: [D], whether it is a correct one; one of a sentence is, or more.
    """

    configurations: Ints
    steps: Longs
    transitions: Longs
    owners: Longs
    sentences: Longs
    is_gold: Bools


class _Correct:
    """Which hypotheses of a search of one sentence in each lane are correct so far.

    Attributes:
        rows: bool, of each row.
    """

    def __init__(self, beams: Beams, choices: Choices, num_transitions: int) -> None:
        self._beams, self._choices = beams, choices
        self._num_transitions = num_transitions
        self.rows = np.zeros(beams.num_lanes * beams.beam, np.bool_)
        # the ways on which correct derivations go on: lane, last configuration, transition there
        self._ways = np.zeros((3, 0), np.int64)

    def scored(self, history: History, which: Ints, masks: Bytes) -> None:
        """Note how correct derivations go on from the configurations that are being scored."""
        configurations = self._beams.configurations
        is_correct = self.rows[which]
        rows = which[is_correct]
        choices = self._choices(configurations, rows, masks[is_correct])
        places, columns = np.nonzero(choices >= 0)
        opened = rows[places]
        is_final = configurations.configs[:, UNATTACHED] == 0
        final = np.flatnonzero(self.rows & is_final)  # it stays as it is
        both = np.concatenate((opened, final))
        taken = np.concatenate((choices[places, columns], history.taken[final]))
        self._ways = np.stack((both // self._beams.beam, history.last[both], taken)).astype(
            np.int64
        )

    def moved(self, history: History) -> Longs:
        """Find the correct hypotheses after a step; return the lanes that have just lost theirs."""
        beams = self._beams
        used = np.flatnonzero(beams.hypotheses.used)
        _, last, taken = self._ways
        known = last * self._num_transitions + taken
        keys = history.last[used].astype(np.int64) * self._num_transitions + history.taken[used]
        self.rows[:] = False
        self.rows[used] = np.isin(keys, known)
        return np.setdiff1d(used // beams.beam, np.flatnonzero(self.rows) // beams.beam)

    def lost(self, lane: int) -> list[tuple[int, int]]:
        """Return the last step of each correct derivation that a lane has just lost."""
        lanes, last, taken = self._ways
        is_here = lanes == lane
        return list(zip(last[is_here].tolist(), taken[is_here].tolist(), strict=True))


def derive(
    beams: Beams,
    tokens: Ints,
    lengths: Ints,
    scorer: Scorer,
    choices: Choices,
    observe: Callable[[Configurations, Ints, Bytes, Floats], None],
) -> Derivations:
    """Search sentences, all at once, for what is to be learnt from them.

    Args:
        beams: has a lane for each.
        tokens: the row of each sentence's ROOT in the token arrays.
        lengths: words of each sentence.
        scorer: fills in the scores of transitions.
        choices: what is correct. There is such a transition in every configuration that correct
            ones lead to.
        observe: is told of every configuration that is scored; see `search.History`.
    """
    beam, num_transitions = beams.beam, beams.num_transitions
    correct = _Correct(beams, choices, num_transitions)

    def watch(configurations: Configurations, which: Ints, masks: Bytes, scores: Floats) -> None:
        correct.scored(history, which, masks)
        observe(configurations, which, masks, scores)

    beams.history = history = History(len(beams.configurations.configs), watch)
    begins = np.arange(beams.num_lanes, dtype=np.int32) * beam
    beams.begin(begins, tokens, lengths)
    correct.rows[begins] = True
    # of each derivation: sentence, last configuration, transition, whether it is correct
    found: list[tuple[int, int, int, bool]] = []
    while beams.hypotheses.used.any():
        lost = correct.moved(history) if beams.step(scorer) else begins[:0].astype(np.int64)
        done = beams.finished()
        for lane in lost.tolist():
            found += [(lane, *way, True) for way in correct.lost(lane)]
        # a lane may have lost its correct derivations and be done at once
        ended = np.union1d(lost * beam, done - done % beam).astype(np.int32)
        for begin in ended.tolist():
            for row in beams.ranked(begin).tolist():
                way = int(history.last[row]), int(history.taken[row])
                found.append((begin // beam, *way, bool(correct.rows[row])))
        beams.free(ended)
        correct.rows &= beams.hypotheses.used
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
    )
