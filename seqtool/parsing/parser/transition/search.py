"""The search for a tree: a beam over the transitions of many sentences at once.

Greedy parsing is a beam of one. Each lane holds one sentence and its hypotheses: lane l has the
rows l * beam .. l * beam + beam - 1 of the configurations. The classifier scores the hypotheses of
all lanes together. A lane that is done takes the next sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Bytes, Doubles, Floats, Ints, Longs
from seqtool.core.jit import compiled
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.transitions import UNATTACHED, Configurations

LANE_ROWS = 256  # hypotheses scored together
NODE_ROWS = 1 << 20  # rows of nodes at most (40 bytes each), unless one sentence needs more
# nats behind the best of its sentence at which a hypothesis is given up
BEAM_MARGIN = 1.6

# (configurations, which of them, scores to fill [N, transitions])
Scorer = Callable[[Configurations, Ints, Floats], None]


class Hypotheses(NamedTuple):
    """What is known of each row of the configurations.

    Attributes:
        used: whether the row holds a hypothesis.
        totals: its score, the sum of the log-probabilities of its transitions.
    """

    used: Bools
    totals: Doubles


class Step(NamedTuple):
    """What is to be done next: first the copies, one after another, then the transitions.

    Attributes:
        copies_from, copies_to: rows of the configurations.
        rows, transitions: which row takes which transition.
    """

    copies_from: Ints
    copies_to: Ints
    rows: Ints
    transitions: Ints


_PER_LN_2 = np.float32(1 / math.log(2))  # a natural logarithm times this is one to base 2
_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[::1]
_doubles = types.float64[::1]
_int = types.int64
_hypotheses = types.NamedTuple((types.boolean[::1], _doubles), Hypotheses)
_step = types.NamedUniTuple(_ints, 4, Step)


@compiled(_int(_table, _int, types.boolean[::1], _ints))
def _open_rows(configs, num, used, which):  # type: ignore[no-untyped-def]
    """Note the hypotheses that are to be continued; return how many."""
    found = 0
    for row in range(num):
        if used[row] and configs[row, UNATTACHED] > 0:
            which[found] = row
            found += 1
    return found


@compiled(types.float32(_floats, _int, _int))
def _highest(scores, begin, end):  # type: ignore[no-untyped-def]
    """Return the highest of some scores."""
    # four at a time, as each comparison waits for the one before
    a = b = c = d = np.float32(-np.inf)
    at = begin
    while at + 4 <= end:
        a, b = max(a, scores[at]), max(b, scores[at + 1])
        c, d = max(c, scores[at + 2]), max(d, scores[at + 3])
        at += 4
    while at < end:
        a = max(a, scores[at])
        at += 1
    return max(max(a, b), max(c, d))


# the order of a sum may change, so that it is made several at a time
@compiled(types.float32(_floats, _int, _ints, types.float32, _ints), fastmath={"reassoc", "nsz"})
def _log_sum(scores, mask, segments, highest, bits):  # type: ignore[no-untyped-def]
    """Return the logarithm of the sum of the exponentials of the legal scores, to 0.0001.

    exp(x) is 2 to the whole part of x / ln 2, whose bits are written into a float, times a cubic in
    the rest: a loop without branches, where `np.exp` is called for each. `bits` is room for as many
    numbers as transitions, `highest` is the highest legal score.
    """
    floats = bits.view(np.float32)  # the same memory
    total = np.float32(0.0)
    for action in range(segments.shape[0] - 1):
        if mask >> action & 1:
            for transition in range(segments[action], segments[action + 1]):
                power = (scores[transition] - highest) * _PER_LN_2
                whole = np.floor(max(power, np.float32(-126.0)))  # the least exponent of a float
                # its exponent stands above 23 bits of fraction, and 127 more than it is
                bits[transition] = np.int32(whole + np.float32(127.0)) << 23
            # a second loop: only where bits are not written and floats not read in turn, in the
            # same memory, are several done at a time
            for transition in range(segments[action], segments[action + 1]):
                power = (scores[transition] - highest) * _PER_LN_2
                power = max(power, np.float32(-126.0))
                rest = power - np.floor(power)
                # 2^rest by the cubic whose largest relative error on [0, 1], 7.5e-5, is the least
                cubic = np.float32(0.0780233) * rest + np.float32(0.2260664)
                cubic = (cubic * rest + np.float32(0.6958352)) * rest + np.float32(0.9999249)
                total += cubic * floats[transition]
    return highest + np.log(total)


@compiled(
    types.UniTuple(_int, 2)(
        _table,
        _int,
        _int,
        types.uint8[::1],
        types.float32[:, ::1],
        _ints,
        types.float32,
        _int,
        _hypotheses,
        _step,
        _ints,
    )
)
def _select(  # type: ignore[no-untyped-def]
    configs, num_lanes, beam, masks, scores, segments, margin, normalised, hypotheses, step, bits
):
    """Choose the best continuations of each lane, and note them as the next step.

    `masks` and `scores` are those of the open hypotheses, in the order of their rows; with
    `normalised`, scores become log-probabilities before they are added up. `hypotheses` is
    overwritten with those after this step. Returns how many copies and how many transitions there
    are.
    """
    used, totals = hypotheses.used, hypotheses.totals
    # the best continuations of one lane, in falling order: all insertions go in here
    # sums of thousands of scores: in single precision, the differences of the next ones are lost
    best_score = np.empty(beam, np.float64)
    best_parent = np.empty(beam, np.int32)
    best_transition = np.empty(beam, np.int32)
    taken = np.empty(beam, np.bool_)
    place = num_copies = num_rows = 0  # `place`: of the next open hypothesis in `masks`
    for lane in range(num_lanes):
        begin = lane * beam
        found = 0
        for row in range(begin, begin + beam):
            if not used[row]:
                continue
            # a final hypothesis has one continuation, itself: transition -1 of an action of its own
            num_actions = mask = 1
            shift = totals[row]
            is_open = configs[row, UNATTACHED] > 0
            if is_open:
                mask = masks[place]
                num_actions = segments.shape[0] - 1
                # a single hypothesis by the scores as they are needs neither a sum nor a bound
                if beam > 1 or normalised:
                    highest = np.float32(-np.inf)
                    for action in range(num_actions):
                        if mask >> action & 1:
                            top = _highest(scores[place], segments[action], segments[action + 1])
                            highest = max(highest, top)
                    if normalised:
                        shift -= _log_sum(scores[place], mask, segments, highest, bits)
                    # not even its best continuation is among the best so far
                    if found == beam and shift + highest <= best_score[found - 1]:
                        place += 1
                        continue
            for action in range(num_actions):
                if not mask >> action & 1:
                    continue
                low = segments[action] if is_open else -1
                high = segments[action + 1] if is_open else 0
                for transition in range(low, high):
                    score = shift + scores[place, transition] if is_open else shift
                    # `not >` and not `<=`, so that a NaN loses, once there are as many as wanted
                    if found == beam and not score > best_score[found - 1]:
                        continue
                    if found < beam:
                        found += 1
                    # of equal scores, the first one stays before
                    at = found - 1
                    while at > 0 and score > best_score[at - 1]:
                        best_score[at] = best_score[at - 1]
                        best_parent[at] = best_parent[at - 1]
                        best_transition[at] = best_transition[at - 1]
                        at -= 1
                    best_score[at] = score
                    best_parent[at] = row
                    best_transition[at] = transition
            if is_open:
                place += 1
        if found == 0:
            continue
        while found > 1 and best_score[found - 1] < best_score[0] - margin:
            found -= 1
        # the best child of a hypothesis stays in its row; others take rows that none stays in
        taken[:] = False
        for index in range(found):
            taken[best_parent[index] - begin] = True
        for slot in range(beam):
            used[begin + slot] = False
        free = 0
        for index in range(found):
            row = best_parent[index]
            if used[row]:  # a better child has the row already
                while taken[free]:
                    free += 1
                taken[free] = True
                step.copies_from[num_copies] = row
                row = begin + free
                step.copies_to[num_copies] = row
                num_copies += 1
            used[row] = True
            totals[row] = best_score[index]
            if best_transition[index] >= 0:
                step.rows[num_rows] = row
                step.transitions[num_rows] = best_transition[index]
                num_rows += 1
    return num_copies, num_rows


@compiled(_int(_table, _int, _int, types.boolean[::1], _doubles, _ints))
def _finished_rows(configs, num_lanes, beam, used, totals, which):  # type: ignore[no-untyped-def]
    """Note the best hypothesis of each lane in which all are final; return how many."""
    found = 0
    for lane in range(num_lanes):
        best = -1
        for row in range(lane * beam, (lane + 1) * beam):
            if used[row]:
                if configs[row, UNATTACHED] > 0:  # which may still become the best
                    best = -1
                    break
                if best < 0 or totals[row] > totals[best]:
                    best = row
        if best >= 0:
            which[found] = best
            found += 1
    return found


class History:
    """What the hypotheses of a search came through: a tree of the configurations that were scored.

    Each has a number, in the order in which they were scored.

    Args:
        num_rows: of the configurations of the search.
        observe: is called at each step with the configurations, the rows that are scored, their
            legal actions and their scores; they get the next numbers, in this order.

    Attributes:
        last: of each row, the number of the configuration scored last on its way; -1: none.
        taken: of each row, the transition that was taken there.
    """

    def __init__(
        self, num_rows: int, observe: Callable[[Configurations, Ints, Bytes, Floats], None]
    ) -> None:
        self.observe = observe
        self.last, self.taken = (np.full(num_rows, -1, np.int32) for _ in range(2))
        self._parents: list[Ints] = []
        self._taken: list[Ints] = []
        self._num = 0

    def begin(self, rows: Ints) -> None:
        """Begin sentences in some rows."""
        self.last[rows] = self.taken[rows] = -1

    def scored(self, rows: Ints) -> None:
        """Number the configurations of some rows."""
        self._parents.append(self.last[rows])
        self._taken.append(self.taken[rows])
        self.last[rows] = np.arange(self._num, self._num + len(rows), dtype=np.int32)
        self._num += len(rows)

    def moved(self, step: Step) -> None:
        """Note the copies and the transitions of a step."""
        # not `taken`: only open hypotheses are copied, and each copy takes a transition
        self.last[step.copies_to] = self.last[step.copies_from]
        self.taken[step.rows] = step.transitions

    def tree(self) -> tuple[Ints, Ints]:
        """Return of each number that of the configuration before, and the transition taken there.

        Both are -1 where a sentence begins.
        """
        if not self._parents:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        return np.concatenate(self._parents), np.concatenate(self._taken)


class Beams:
    """The lanes of a search.

    Args:
        system: a name in `transitions.SYSTEMS`.
        labels: of arcs.
        num_lanes: sentences at a time.
        longest: words of the longest sentence.
        beam: hypotheses of a sentence.
        margin: see `BEAM_MARGIN`; infinite for none.
        temperature: scores are divided by it.
        normalised: whether they then become log-probabilities over the legal transitions, before
            they are added up.

    Attributes:
        num_lanes, beam: as above.
        num_transitions: that are scored.
        configurations: those of all lanes.
        hypotheses: what is known of each row of them.
        history: notes what hypotheses come through, if asked to.
    """

    def __init__(
        self,
        system: str,
        labels: Labels,
        num_lanes: int,
        longest: int,
        *,
        beam: int,
        margin: float,
        temperature: float,
        normalised: bool,
    ) -> None:
        size = num_lanes * beam
        self.num_lanes, self.beam = num_lanes, beam
        self.num_transitions = labels.num_transitions
        self.configurations = Configurations(system, labels, size, longest)
        self.hypotheses = Hypotheses(np.zeros(size, np.bool_), np.zeros(size, np.float64))
        self.history: History | None = None
        self._segments = labels.segments
        self._margin, self._temperature = margin, temperature
        self._normalised = int(normalised)
        self._step = Step(*(np.empty(size, np.int32) for _ in range(4)))
        self._which = np.empty(size, np.int32)
        self._scores = np.empty((size, labels.num_transitions), np.float32)
        self._bits = np.empty(labels.num_transitions, np.int32)

    def begin(self, rows: Ints, tokens: Ints, lengths: Ints) -> None:
        """Begin sentences in lanes that are free.

        Args:
            rows: int32 [B], the first row of each lane.
            tokens: int32 [B], the row of each sentence's ROOT in the token arrays.
            lengths: int32 [B], words of each sentence.
        """
        self.configurations.start(rows, tokens, lengths)
        self.hypotheses.used[rows] = True
        self.hypotheses.totals[rows] = 0.0
        if self.history is not None:
            self.history.begin(rows)

    def step(self, scorer: Scorer) -> bool:
        """Take every open hypothesis one transition on; return False where none is open."""
        configurations, hypotheses, step = self.configurations, self.hypotheses, self._step
        configs = configurations.configs
        num_open = _open_rows(configs, len(configs), hypotheses.used, self._which)
        if not num_open:
            return False
        opened, scores = self._which[:num_open], self._scores[:num_open]
        masks = configurations.legal(opened)
        scorer(configurations, opened, scores)
        if self._temperature != 1.0:
            scores /= np.float32(self._temperature)
        if self.history is not None:
            self.history.scored(opened)
            self.history.observe(configurations, opened, masks, scores)
        num_copies, num_steps = _select(
            configs,
            self.num_lanes,
            self.beam,
            masks,
            self._scores,
            self._segments,
            self._margin,
            self._normalised,
            hypotheses,
            step,
            self._bits,
        )
        copies_from, copies_to = step.copies_from[:num_copies], step.copies_to[:num_copies]
        rows, transitions = step.rows[:num_steps], step.transitions[:num_steps]
        if self.history is not None:
            self.history.moved(Step(copies_from, copies_to, rows, transitions))
        if num_copies:
            configurations.copy(copies_from, copies_to)
        configurations.advance(rows, transitions)
        return True

    def finished(self) -> Ints:
        """Return the best hypothesis of each lane in which all are final."""
        configs = self.configurations.configs
        num = _finished_rows(configs, self.num_lanes, self.beam, *self.hypotheses, self._which)
        return self._which[:num].copy()

    def ranked(self, row: int) -> Ints:
        """Return the hypotheses of the lane of a row, the best first."""
        begin = row - row % self.beam
        rows = np.arange(begin, begin + self.beam, dtype=np.int32)
        rows = rows[self.hypotheses.used[rows]]
        order = np.argsort(-self.hypotheses.totals[rows], kind="stable")
        ranked: Ints = rows[order]
        return ranked

    def free(self, rows: Ints) -> Ints:
        """Free the lanes of some rows, [B]; return the first row of each lane, int32 [B]."""
        begins: Ints = rows - rows % self.beam
        self.hypotheses.used.reshape(-1, self.beam)[begins // self.beam] = False
        return begins


def run(beams: Beams, tokens: Ints, lengths: Ints, scorer: Scorer) -> Iterator[tuple[Ints, Longs]]:
    """Parse sentences; yield the best hypotheses of lanes in which all are final, as rows.

    With each comes the place of its sentence. The lanes are free once the next ones are asked for.

    Args:
        beams: whose lanes are all free.
        tokens: int32 [B], the row of each sentence's ROOT in the token arrays.
        lengths: int32 [B], words of each.
        scorer: fills in the scores of transitions.

    Yields:
        int32 and int64, as many as are done.
    """
    # the longest sentences first, so that the lanes are full to the end
    order = np.argsort(-lengths, kind="stable")
    waiting = 0
    idle = np.arange(beams.num_lanes, dtype=np.int32) * beams.beam
    places = np.zeros(beams.num_lanes, np.int64)  # of the sentences in the lanes
    while True:
        chosen = order[waiting : waiting + len(idle)]
        begun = idle[: len(chosen)]
        if len(chosen):
            waiting += len(chosen)
            beams.begin(begun, tokens[chosen], lengths[chosen])
            places[begun // beams.beam] = chosen
        is_open = beams.step(scorer)
        # also after no step at all: sentences may be final when they begin
        done = beams.finished()
        if len(done):
            yield done, places[done // beams.beam]
        idle = beams.free(done)
        if not (is_open or len(done)):
            return


def lanes_for(lengths: Ints, beam: int) -> int:
    """Return how many sentences are parsed at a time, 1 or more; `lengths` is not empty."""
    longest = int(lengths.max())
    return max(1, min(LANE_ROWS // beam, len(lengths), NODE_ROWS // (beam * (longest + 1))))


def search(
    system: str,
    labels: Labels,
    tokens: Ints,
    lengths: Ints,
    num_rows: int,
    scorer: Scorer,
    *,
    beam: int = 1,
    margin: float = BEAM_MARGIN,
    temperature: float = 1.0,
) -> tuple[Ints, Ints]:
    """Parse sentences.

    The score of a hypothesis is the sum of the log-probabilities of its transitions, each over the
    legal ones; nothing is added for those without a choice.

    Args:
        system: a name in `transitions.SYSTEMS`.
        labels: of arcs.
        tokens: int32 [B], the row of each sentence's ROOT in the token arrays.
        lengths: int32 [B], words of each sentence.
        num_rows: of the token arrays.
        scorer: fills in the scores of transitions.
        beam: hypotheses per sentence.
        margin: nats, see `BEAM_MARGIN`; infinite for none.
        temperature: scores are divided by it before they become probabilities.

    Returns:
        Token arrays of heads and of label ids, int32 [num_rows]; -1 in the rows of NONE and ROOT.
    """
    heads = np.full(num_rows, -1, np.int32)
    label_ids = np.full(num_rows, -1, np.int32)
    if not len(lengths):
        return heads, label_ids
    # of one hypothesis only the order of the scores counts, which stays the same
    is_greedy = beam == 1
    beams = Beams(
        system,
        labels,
        lanes_for(lengths, beam),
        int(lengths.max()),
        beam=beam,
        margin=margin,
        temperature=1.0 if is_greedy else temperature,
        normalised=not is_greedy,
    )
    for done, _ in run(beams, tokens, lengths, scorer):
        beams.configurations.collect(done, heads, label_ids)
    return heads, label_ids
