"""The search for a tree: a beam over the transitions of many sentences at once.

Greedy parsing is a beam of one. Each lane holds one sentence and its hypotheses: lane l has the
rows l * beam .. l * beam + beam - 1 of the configurations. The classifier scores the hypotheses of
all lanes together. A lane that is done takes the next sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Bools, Floats, Ints
from seqtool.core.compiled import compiled
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.transitions import UNATTACHED, Configurations

LANE_ROWS = 256  # hypotheses scored together
NODE_ROWS = 1 << 20  # rows of nodes at most (40 bytes each), unless one sentence needs more
MARGIN = 1.6  # nats behind the best of its sentence at which a hypothesis is given up

# (configurations, which of them, scores to fill [N, transitions])
Scorer = Callable[[Configurations, Ints, Floats], None]


class Hypotheses(NamedTuple):
    """What is known of each row of the configurations.

    Attributes:
        used: whether the row holds a hypothesis.
        totals: its score, the sum of the log-probabilities of its transitions.
    """

    used: Bools
    totals: Floats


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


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[::1]
_int = types.int64
_hypotheses = types.NamedTuple((types.boolean[::1], _floats), Hypotheses)
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
                power = (scores[transition] - highest) * np.float32(1.4426950408889634)
                whole = np.floor(max(power, np.float32(-126.0)))  # the least exponent of a float
                # its exponent stands above 23 bits of fraction, and 127 more than it is
                bits[transition] = np.int32(whole + np.float32(127.0)) << 23
            # a second loop: only where bits are not written and floats not read in turn, in the
            # same memory, are several done at a time
            for transition in range(segments[action], segments[action + 1]):
                power = (scores[transition] - highest) * np.float32(1.4426950408889634)
                power = max(power, np.float32(-126.0))
                rest = power - np.floor(power)
                cubic = np.float32(0.0780233) * rest + np.float32(0.2260664)
                cubic = (cubic * rest + np.float32(0.6958352)) * rest + np.float32(0.9999249)
                total += cubic * floats[transition]
    return highest + np.log(total)


@compiled(
    types.UniTuple(_int, 2)(
        *(_table, _int, _int, types.uint8[::1], types.float32[:, ::1], _ints, types.float32),
        *(_hypotheses, _step, _ints),
    )
)
def _select(  # type: ignore[no-untyped-def]
    configs, num_lanes, beam, masks, scores, segments, margin, hypotheses, step, bits
):
    """Choose the best continuations of each lane, and note them as the next step.

    `masks` and `scores` are those of the open hypotheses, in the order of their rows; `hypotheses`
    become those that there will be. Returns how many copies and how many transitions there are.
    """
    used, totals = hypotheses.used, hypotheses.totals
    # the best continuations of one lane, in falling order: all insertions go in here
    best_score = np.empty(beam, np.float32)
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
            first = last = 0
            mask = 1
            shift = totals[row]
            is_open = configs[row, UNATTACHED] > 0
            if is_open:
                mask = masks[place]
                last = segments.shape[0] - 2
                # log-probabilities are needed only to compare hypotheses with each other
                if beam > 1:
                    highest = np.float32(-np.inf)
                    for action in range(first, last + 1):
                        if mask >> action & 1:
                            top = _highest(scores[place], segments[action], segments[action + 1])
                            highest = max(highest, top)
                    shift -= _log_sum(scores[place], mask, segments, highest, bits)
                    # not even its best continuation is among the best so far
                    if found == beam and shift + highest <= best_score[found - 1]:
                        place += 1
                        continue
            for action in range(first, last + 1):
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


@compiled(_int(_table, _int, _int, types.boolean[::1], _floats, _ints))
def _finished_rows(configs, num_lanes, beam, used, totals, which):  # type: ignore[no-untyped-def]
    """Note the best hypothesis of each lane in which all are final, free it; return how many."""
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
            for row in range(lane * beam, (lane + 1) * beam):
                used[row] = False
    return found


def search(
    system: str,
    labels: Labels,
    tokens: Ints,
    lengths: Ints,
    num_rows: int,
    scorer: Scorer,
    *,
    beam: int = 1,
    margin: float = MARGIN,
    temperature: float = 1.0,
) -> tuple[Ints, Ints]:
    """Parse sentences.

    The score of a hypothesis is the sum of the log-probabilities of its transitions, each over the
    legal ones; nothing is added for those without a choice.

    Args:
        system: a name in `transitions.SYSTEMS`.
        labels: of arcs.
        tokens: the row of each sentence's ROOT in the token arrays.
        lengths: words of each sentence.
        num_rows: of the token arrays.
        scorer: fills in the scores of transitions.
        beam: hypotheses per sentence.
        margin: see `MARGIN`; infinite for none.
        temperature: scores are divided by it before they become probabilities.

    Returns:
        Token arrays of heads and of label ids; -1 in the rows of NONE and ROOT.
    """
    heads = np.full(num_rows, -1, np.int32)
    label_ids = np.full(num_rows, -1, np.int32)
    if not len(lengths):
        return heads, label_ids
    longest = int(lengths.max())
    num_lanes = max(1, min(LANE_ROWS // beam, len(lengths), NODE_ROWS // (beam * (longest + 1))))
    size = num_lanes * beam
    configurations = Configurations(system, labels, size, longest)
    segments, configs = labels.segments, configurations.configs
    hypotheses = Hypotheses(np.zeros(size, np.bool_), np.zeros(size, np.float32))
    step = Step(*(np.empty(size, np.int32) for _ in range(4)))
    which = np.empty(size, np.int32)
    scores = np.empty((size, labels.num_transitions), np.float32)
    bits = np.empty(labels.num_transitions, np.int32)
    # the longest sentences first, so that the lanes are full to the end
    order = np.argsort(-lengths, kind="stable")
    waiting = 0
    idle = np.arange(num_lanes, dtype=np.int32) * beam
    while True:
        if len(idle) and waiting < len(order):
            chosen = order[waiting : waiting + len(idle)]
            waiting += len(chosen)
            begun = idle[: len(chosen)]
            configurations.start(begun, tokens[chosen], lengths[chosen])
            hypotheses.used[begun] = True
            hypotheses.totals[begun] = 0.0
        num_open = _open_rows(configs, size, hypotheses.used, which)
        if num_open:
            opened = which[:num_open]
            masks = configurations.legal(opened)
            scorer(configurations, opened, scores[:num_open])
            if beam > 1 and temperature != 1.0:  # with one hypothesis, only the order counts
                scores[:num_open] /= np.float32(temperature)
            num_copies, num_steps = _select(
                *(configs, num_lanes, beam, masks, scores, segments, margin),
                *(hypotheses, step, bits),
            )
            if num_copies:
                configurations.copy(step.copies_from[:num_copies], step.copies_to[:num_copies])
            configurations.advance(step.rows[:num_steps], step.transitions[:num_steps])
        elif waiting == len(order) and not hypotheses.used.any():
            return heads, label_ids
        # also after no step at all: sentences may be final when they begin
        num_done = _finished_rows(configs, num_lanes, beam, *hypotheses, which)
        idle = which[:num_done].copy()
        if num_done:
            configurations.collect(idle, heads, label_ids)
            idle -= idle % beam  # the first row of the lane, where the next sentence begins
