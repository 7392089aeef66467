"""Transition systems: configurations in flat arrays, transitions and labels by number.

A batch of sentences lies in flat token arrays (forms, tags, gold heads, ...), whose row 0 is NONE.
A sentence of n words has its ROOT at row t = TOKENS and word i at row t + i; the next one begins
at t + n + 1. Inside a configuration, words are numbered within their sentence: 0 ROOT, 1..n.

    configs  int32 [num_configs, 6]     one configuration per row; a lane, a hypothesis
      BASE        its first row in `nodes`; it owns BASE .. BASE + n
      TOKENS      the row of its sentence's ROOT in the token arrays
      LENGTH      n
      STACK_SIZE  elements on the stack; the bottom one is ROOT
      FRONT       the position of the buffer's first word; LENGTH + 1 when it is empty
      UNATTACHED  words without a head; 0: the configuration is final

    nodes    int32 [num_rows, 10]       row BASE + i belongs to word i, but for the last two columns
      HEAD        -1: none yet
      LABEL       -1: none yet; else a label's id (see `labels.Labels`)
      LEFT1, LEFT2, RIGHT1, RIGHT2
                  leftmost, second leftmost, rightmost, second rightmost child; 0: none
      NUM_LEFT, NUM_RIGHT
                  how many children on either side
      STACK       row BASE + p: the word at position p of the stack, 0 the bottom
      BUFFER      row BASE + p: the word at position p of the buffer, FRONT <= p <= LENGTH

      s0 = nodes[BASE + STACK_SIZE - 1, STACK]     b0 = nodes[BASE + FRONT, BUFFER]

A transition's number, with A labels of arcs between words and R labels of arcs from ROOT:

    0               SHIFT
    1               REDUCE (arc-eager), SWAP (swap); never legal elsewhere
    2 + l           LEFT-ARC with label l < A
    2 + A + l       RIGHT-ARC with label l < A, from a word
    2 + 2A + r      the arc from ROOT, with label A + r, r < R

These five segments are the actions. Legality is a matter of the action alone: bit a of a mask.

    arc-standard  SHIFT; LEFT s1 <- s0, pops s1; RIGHT s1 -> s0, pops s0       Nivre 2004
    swap          the same; SWAP puts s1 back as b0                            Nivre 2009
    arc-hybrid    SHIFT; LEFT s0 <- b0, pops s0; RIGHT s1 -> s0, pops s0       Kuhlmann et al. 2011
    arc-eager     SHIFT; LEFT s0 <- b0, pops s0; RIGHT s0 -> b0, pushes b0;    Nivre 2003
                  REDUCE pops s0, which has a head

Every sequence of legal transitions ends in a tree with exactly one arc from ROOT. In the first
three, that arc is legal only as the last one. In arc-eager it is legal whenever nothing but ROOT is
on the stack; its dependent is never reduced, so that it comes once; and the last word is not
shifted, and takes a head only when every word on the stack has one.

In compiled code, for any rows of a batch, so that sentences in lockstep, the hypotheses of a beam
and the roll-outs of training share it:

    legal      which transitions a configuration has
    advance    takes one in each of several configurations
    choose     the best legal one by a classifier's scores
    copy       a hypothesis of a beam becomes two
    collect    the trees of final configurations

Transitions that leave no choice are made at once: after each one the configuration is taken on
until there are two legal ones, or it is final.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bytes, Floats, Ints, Longs
from seqtool.core.jit import compiled
from seqtool.parsing.parser.labels import Labels

BASE, TOKENS, LENGTH, STACK_SIZE, FRONT, UNATTACHED = range(6)
NUM_CONFIG_COLUMNS = 6

HEAD, LABEL, LEFT1, LEFT2, RIGHT1, RIGHT2, NUM_LEFT, NUM_RIGHT, STACK, BUFFER = range(10)
NUM_NODE_COLUMNS = 10

SHIFT, REDUCE, LEFT, RIGHT, ROOT = range(5)
SWAP = REDUCE  # no system has both
NUM_ACTIONS = 5

ARC_STANDARD, ARC_EAGER, ARC_HYBRID, SWAPPING = range(4)


class System(NamedTuple):
    """What can be said of a transition system without running it."""

    number: int  # as compiled code knows it
    projective: bool  # builds projective trees only
    dynamic: bool  # has a dynamic oracle


SYSTEMS = {
    "arc-standard": System(ARC_STANDARD, projective=True, dynamic=True),
    "arc-eager": System(ARC_EAGER, projective=True, dynamic=True),
    "arc-hybrid": System(ARC_HYBRID, projective=True, dynamic=True),
    "swap": System(SWAPPING, projective=False, dynamic=False),
}


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_masks = types.uint8[::1]
_int = types.int64


@compiled(_int(_table, _table, _int, _int))
def _legal(configs, nodes, config, system):  # type: ignore[no-untyped-def]
    """Return the legal actions of a configuration as bits; none of a final one."""
    if configs[config, UNATTACHED] == 0:
        return 0
    base = configs[config, BASE]
    size = configs[config, STACK_SIZE]
    words_left = configs[config, LENGTH] + 1 - configs[config, FRONT]
    if system == ARC_EAGER:
        # the last word must find no other word without a head when it takes its own
        may_leave = words_left > 1 or configs[config, UNATTACHED] == 1
        bits = 1 << SHIFT if words_left > 1 else 0
        if size == 1:  # ROOT alone: its one dependent, which is never reduced, is still to come
            return bits | 1 << ROOT if may_leave else bits
        head = nodes[base + nodes[base + size - 1, STACK], HEAD]
        if may_leave:
            bits |= 1 << RIGHT
        # a word is popped with a head only: the one of LEFT, or the one that it has
        if head < 0:
            bits |= 1 << LEFT
        elif head > 0:  # the dependent of ROOT stays, so that ROOT gets no other
            bits |= 1 << REDUCE
        return bits
    bits = 1 << SHIFT if words_left > 0 else 0
    if size == 1:
        return bits
    if system == ARC_HYBRID and words_left > 0:
        bits |= 1 << LEFT
    if size == 2:
        # under s0 is ROOT, and its arc ends the sentence
        return bits if words_left > 0 else bits | 1 << ROOT
    bits |= 1 << RIGHT
    if system != ARC_HYBRID:
        bits |= 1 << LEFT
        below = nodes[base + size - 2, STACK]
        # words in their first order only, so that no two are swapped back and forth
        if system == SWAPPING and below < nodes[base + size - 1, STACK]:
            bits |= 1 << REDUCE
    return bits


@compiled(types.void(_table, _table, _int, _int, _int, _int))
def _attach(configs, nodes, config, head, child, label):  # type: ignore[no-untyped-def]
    """Make an arc; of the head's children on that side, the two outermost are kept."""
    base = configs[config, BASE]
    configs[config, UNATTACHED] -= 1
    nodes[base + child, HEAD] = head
    nodes[base + child, LABEL] = label
    row = base + head
    if child < head:
        nodes[row, NUM_LEFT] += 1
        # after a swap, the next child need not lie outside the others
        if nodes[row, LEFT1] == 0 or child < nodes[row, LEFT1]:
            nodes[row, LEFT2] = nodes[row, LEFT1]
            nodes[row, LEFT1] = child
        elif nodes[row, LEFT2] == 0 or child < nodes[row, LEFT2]:
            nodes[row, LEFT2] = child
    else:
        nodes[row, NUM_RIGHT] += 1
        # 0, for none, is less than any word, so that it needs no test of its own
        if child > nodes[row, RIGHT1]:
            nodes[row, RIGHT2] = nodes[row, RIGHT1]
            nodes[row, RIGHT1] = child
        elif child > nodes[row, RIGHT2]:
            nodes[row, RIGHT2] = child


@compiled(types.void(_table, _table, _int, _int, _int, _int))
def _act(configs, nodes, config, action, label, system):  # type: ignore[no-untyped-def]
    """Take one legal action; `label` is that of its arc, if it makes one."""
    base = configs[config, BASE]
    size = configs[config, STACK_SIZE]
    front = configs[config, FRONT]
    top = nodes[base + size - 1, STACK]
    if action == SHIFT or (system == ARC_EAGER and action in (RIGHT, ROOT)):
        word = nodes[base + front, BUFFER]
        if action != SHIFT:
            _attach(configs, nodes, config, top, word, label)
        nodes[base + size, STACK] = word
        configs[config, STACK_SIZE] = size + 1
        configs[config, FRONT] = front + 1
        return
    configs[config, STACK_SIZE] = size - 1
    if action == REDUCE:
        # arc-eager: s0 has its head, and to pop it is all there is to do
        if system == SWAPPING:
            # the place before the front is free: what stood there was shifted
            configs[config, FRONT] = front - 1
            nodes[base + front - 1, BUFFER] = nodes[base + size - 2, STACK]
            nodes[base + size - 2, STACK] = top
    elif action != LEFT:
        _attach(configs, nodes, config, nodes[base + size - 2, STACK], top, label)
    elif system in (ARC_HYBRID, ARC_EAGER):
        _attach(configs, nodes, config, nodes[base + front, BUFFER], top, label)
    else:
        _attach(configs, nodes, config, top, nodes[base + size - 2, STACK], label)
        nodes[base + size - 2, STACK] = top  # s1 goes from under s0


@compiled(types.void(_table, _table, _int, _int, _int, _int))
def _settle(configs, nodes, config, system, num_arcs, num_roots):  # type: ignore[no-untyped-def]
    """Take transitions as long as there is exactly one."""
    while True:
        legal = _legal(configs, nodes, config, system)
        # one action is no choice if it makes no arc, or an arc that has one label only
        if legal == 1 << SHIFT:
            _act(configs, nodes, config, SHIFT, -1, system)
        elif legal == 1 << REDUCE:
            _act(configs, nodes, config, REDUCE, -1, system)
        elif legal == 1 << LEFT and num_arcs == 1:
            _act(configs, nodes, config, LEFT, 0, system)
        elif legal == 1 << RIGHT and num_arcs == 1:
            _act(configs, nodes, config, RIGHT, 0, system)
        elif legal == 1 << ROOT and num_roots == 1:
            _act(configs, nodes, config, ROOT, num_arcs, system)
        else:
            return


@compiled(types.void(_table, _table, _int, _int, _int))
def _begin(configs, nodes, config, token, length):  # type: ignore[no-untyped-def]
    """Begin a sentence: ROOT on the stack, all words ahead."""
    base = configs[config, BASE]
    configs[config, TOKENS] = token
    configs[config, LENGTH] = length
    configs[config, STACK_SIZE] = 1
    configs[config, FRONT] = 1
    configs[config, UNATTACHED] = length
    for word in range(length + 1):
        row = base + word
        # so the bottom of the stack is ROOT, too, which is word 0
        nodes[row] = 0
        nodes[row, HEAD] = -1
        nodes[row, LABEL] = -1
        nodes[row, BUFFER] = word  # FRONT is 1, so that ROOT's entry is never read


@compiled(types.void(_table, _table, _ints, _ints, _ints, _int, _int, _int))
def _start(  # type: ignore[no-untyped-def]
    configs, nodes, which, tokens, lengths, system, num_arcs, num_roots
):
    """Begin a sentence in each of some configurations, and settle them."""
    for place in range(which.shape[0]):
        config = which[place]
        _begin(configs, nodes, config, tokens[place], lengths[place])
        _settle(configs, nodes, config, system, num_arcs, num_roots)


@compiled(types.void(_table, _table, _ints, _int, _masks))
def _legal_masks(configs, nodes, which, system, masks):  # type: ignore[no-untyped-def]
    for place in range(which.shape[0]):
        masks[place] = _legal(configs, nodes, which[place], system)


@compiled(_int(_table, _table, _ints, _ints, _int, _int, _int))
def _advance(  # type: ignore[no-untyped-def]
    configs, nodes, which, transitions, system, num_arcs, num_roots
):
    """Take transitions; return the place of the first one that is not legal, or -1."""
    for place in range(which.shape[0]):
        config, transition = which[place], transitions[place]
        label = -1
        # from the transition's number to its action and label, by the five segments
        if transition < 2:
            action = transition
        elif transition < 2 + num_arcs:
            action, label = LEFT, transition - 2
        else:
            # labels of arcs from ROOT are numbered on from the others, as these transitions are
            label = transition - 2 - num_arcs
            action = RIGHT if label < num_arcs else ROOT
        if (
            transition < 0
            or label >= num_arcs + num_roots
            or _legal(configs, nodes, config, system) >> action & 1 == 0
        ):
            return place
        _act(configs, nodes, config, action, label, system)
        _settle(configs, nodes, config, system, num_arcs, num_roots)
    return -1


@compiled(types.void(_masks, types.float32[:, ::1], _int, _int, _ints))
def _choose(masks, scores, num_arcs, num_roots, best):  # type: ignore[no-untyped-def]
    """Note the legal transition of the highest score in each row; -1 where none is legal."""
    for place in range(masks.shape[0]):
        best[place] = -1
        highest = np.float32(-np.inf)
        begin = 0
        for action in range(5):
            num = 1
            if action == ROOT:
                num = num_roots
            elif action >= LEFT:
                num = num_arcs
            if masks[place] >> action & 1:
                for transition in range(begin, begin + num):
                    score = scores[place, transition]
                    # the first legal one stands even if every score is NaN or -inf
                    if score > highest or best[place] < 0:
                        best[place] = transition
                        highest = score
            begin += num


@compiled(types.void(_table, _table, _ints, _ints))
def _copy(configs, nodes, sources, targets):  # type: ignore[no-untyped-def]
    for place in range(sources.shape[0]):
        source, target = sources[place], targets[place]
        base, begin = configs[source, BASE], configs[target, BASE]
        for column in range(1, configs.shape[1]):  # all but BASE: the rows of nodes stay its own
            configs[target, column] = configs[source, column]
        for row in range(configs[source, LENGTH] + 1):  # those beyond the sentence mean nothing
            for column in range(nodes.shape[1]):
                nodes[begin + row, column] = nodes[base + row, column]


@compiled(types.void(_table, _table, _ints, _ints, _ints))
def _collect(configs, nodes, which, heads, labels):  # type: ignore[no-untyped-def]
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        for word in range(1, configs[config, LENGTH] + 1):  # from 1: ROOT has neither
            heads[tokens + word] = nodes[base + word, HEAD]
            labels[tokens + word] = nodes[base + word, LABEL]


def num_choices(lengths: Ints, labels: Labels) -> Longs:
    """Return of sentences about how many configurations leave a choice; 0 where none does.

    The last transition is the arc from ROOT, which is a choice where it has several labels, and the
    only one in a sentence of one word.
    """
    between_words = np.maximum(2 * lengths.astype(np.int64) - 3, 0)
    choices: Longs = between_words + (len(labels.roots) > 1)
    return choices


class Configurations:
    """A batch of configurations of one transition system.

    `configs` and `nodes` are the arrays drawn above, for compiled code to read.
    Arguments named `which` are rows of `configs`, int32.

    Args:
        system: a name in `SYSTEMS`.
        labels: the labels of arcs.
        num_configs: how many configurations.
        max_words: the length of the longest sentence that any of them can hold.
    """

    def __init__(self, system: str, labels: Labels, num_configs: int, max_words: int) -> None:
        self.system = SYSTEMS[system].number
        self.labels = labels
        self._counts = (len(labels.arcs), len(labels.roots))
        self.max_words = max_words
        self.configs: Ints = np.zeros((num_configs, NUM_CONFIG_COLUMNS), np.int32)
        self.configs[:, BASE] = np.arange(num_configs) * (max_words + 1)
        self.nodes: Ints = np.zeros((num_configs * (max_words + 1), NUM_NODE_COLUMNS), np.int32)

    def start(self, which: Ints, tokens: Ints, lengths: Ints) -> None:
        """Begin sentences: of `lengths` words, ROOT at the rows `tokens` of the token arrays.

        A configuration may be final at once: of no words, or of one with nothing to choose.
        """
        if len(lengths) and int(lengths.max()) > self.max_words:
            raise ValueError(f"a sentence is longer than {self.max_words} words")
        _start(self.configs, self.nodes, which, tokens, lengths, self.system, *self._counts)

    def begin(self, config: int, token: int, length: int) -> None:
        """Begin a sentence as `start` does, and take no transition, not even the only one."""
        _begin(self.configs, self.nodes, config, token, length)

    def take(self, config: int, transition: int) -> None:
        """Take one legal transition, and none after it."""
        action, label = self.labels.action_of(transition)
        _act(self.configs, self.nodes, config, action, label, self.system)

    def unfinished(self, which: Ints) -> Ints:
        """Return those of `which` that are not final."""
        still: Ints = which[self.configs[which, UNATTACHED] > 0]
        return still

    def legal(self, which: Ints) -> Bytes:
        """Return the legal actions of each: bit a of its mask is action a; 0 when it is final."""
        masks = np.empty(len(which), np.uint8)
        _legal_masks(self.configs, self.nodes, which, self.system, masks)
        return masks

    def choose(self, masks: Bytes, scores: Floats) -> Ints:
        """Return the legal transition of the highest score in each row; -1 without any."""
        best = np.empty(len(masks), np.int32)
        _choose(masks, scores, *self._counts, best)
        return best

    def advance(self, which: Ints, transitions: Ints) -> None:
        """Take one transition in each of `which`, then all that leave no choice.

        Raises:
            ValueError: a transition is not legal; those before it have been taken.
        """
        place = _advance(self.configs, self.nodes, which, transitions, self.system, *self._counts)
        if place >= 0:
            raise ValueError(
                f"transition {transitions[place]} is not legal in configuration {which[place]}"
            )

    def copy(self, sources: Ints, targets: Ints) -> None:
        """Copy configurations one after another, so no target may be a later source."""
        _copy(self.configs, self.nodes, sources, targets)

    def collect(self, which: Ints, heads: Ints, labels: Ints) -> None:
        """Write the trees of `which` into token arrays of heads (0: ROOT) and label ids."""
        _collect(self.configs, self.nodes, which, heads, labels)
