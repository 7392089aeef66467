"""Probabilities of arcs, by the hypotheses of a search and by the choices on their way.

On the way of a hypothesis, each configuration gives a probability to every arc that could be made
in it. With all other choices as they are, a word gets a head there if it got none before:

    P(h -> d) = sum over configurations c of  P(d has no head before c)  P(h -> d | c)

What is left for a word that is never given a choice goes to the arc that it has in the end. Several
hypotheses are averaged by their probabilities within the beam; and between the heads that a word
has in them, what these have together is divided anew by these probabilities, as they know what came
later on. A row adds up to 1 at most: a head that could only be had by another choice earlier on has
no probability here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bytes, Doubles, Floats, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.parser.decoder import ArcTable
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.search import Beams, History, Scorer, run
from seqtool.parsing.parser.transition.transitions import (
    ARC_EAGER,
    ARC_HYBRID,
    BASE,
    BUFFER,
    FRONT,
    HEAD,
    LABEL,
    LEFT,
    LENGTH,
    RIGHT,
    STACK,
    STACK_SIZE,
    Configurations,
)

CHILD, PARENT, ARC_LABEL = range(3)  # columns of an arc that could be made; child 0: none

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[:, ::1]
_int = types.int64


@compiled(
    types.void(_table, _table, _ints, types.uint8[::1], _floats, _ints, _int, _table, _floats)
)
def _note_arcs(  # type: ignore[no-untyped-def]
    configs, nodes, which, masks, scores, segments, system, arcs, probabilities
):
    """Note the arc of each of the last three actions, its best label, and its probability."""
    for place in range(which.shape[0]):
        config = which[place]
        base, size = configs[config, BASE], configs[config, STACK_SIZE]
        front = configs[config, FRONT]
        top = nodes[base + size - 1, STACK]
        below = nodes[base + size - 2, STACK] if size > 1 else 0
        first = nodes[base + front, BUFFER] if front <= configs[config, LENGTH] else 0
        mask = masks[place]
        highest = np.float32(-np.inf)
        for action in range(segments.shape[0] - 1):
            if mask >> action & 1:
                for transition in range(segments[action], segments[action + 1]):
                    highest = max(highest, scores[place, transition])
        total = 0.0
        arcs[place] = 0
        for action in range(segments.shape[0] - 1):
            mass = 0.0
            best = segments[action]
            if mask >> action & 1:
                for transition in range(segments[action], segments[action + 1]):
                    mass += np.exp(np.float64(scores[place, transition] - highest))
                    if scores[place, transition] > scores[place, best]:
                        best = transition
            total += mass
            if action < LEFT:
                continue
            # to be divided by the total, which is known after the last action
            probabilities[place, action - LEFT] = mass
            if mask >> action & 1:
                # as `transitions._act` makes them
                if action == LEFT:
                    child = top if system in (ARC_HYBRID, ARC_EAGER) else below
                    parent = first if system in (ARC_HYBRID, ARC_EAGER) else top
                else:
                    child = first if system == ARC_EAGER else top
                    # also of ROOT, which is legal only where this word is word 0
                    parent = top if system == ARC_EAGER else below
                at = 3 * (action - LEFT)
                arcs[place, at + CHILD] = child
                arcs[place, at + PARENT] = parent
                # of ROOT, labels are numbered on from those of RIGHT, as its transitions are
                begin = segments[LEFT] if action == LEFT else segments[RIGHT]
                arcs[place, at + ARC_LABEL] = best - begin
        for arc in range(3):
            # of scores that are no numbers, nothing is known
            is_known = total > 0.0 and total < np.inf
            probabilities[place, arc] = probabilities[place, arc] / total if is_known else 0.0


class Way(NamedTuple):
    """What the hypotheses of a search came through; see `search.History.tree`.

    Attributes:
        parents: of each configuration, the number of the one before; -1: none.
        taken: the transition that was taken there.
        arcs: int32 [N, 9], child, parent and label of the arc of LEFT, of RIGHT and of ROOT.
        probabilities: float32 [N, 3], of these arcs, whatever their labels.
    """

    parents: Ints
    taken: Ints
    arcs: Ints
    probabilities: Floats


_way = types.NamedTuple((_ints, _ints, _table, _floats), Way)


@compiled(types.void(_way, _int, _int, _ints, _ints, types.float64, types.float64[:, ::1], _table))
def _follow(way, last, taken, segments, heads, weight, table, labels):  # type: ignore[no-untyped-def]
    """Add the probabilities of arcs on the way of one hypothesis, times its weight, to a table.

    `last` is the number of the last configuration on it, -1 for none, and `taken` the transition
    that was taken there; `heads` are those of its tree. `labels` gets those of the arcs met.
    """
    num_words = heads.shape[0]
    num = 0
    at = last
    while at >= 0:
        num += 1
        at = way.parents[at]
    # parents lead backwards; what is left of a word is known going forwards only
    numbers = np.empty(num, np.int32)
    at = last
    for step in range(num - 1, -1, -1):
        numbers[step] = at
        at = way.parents[at]
    left = np.ones(num_words + 1)  # of each word, the probability that it has no head so far
    has_chosen = np.zeros(num_words + 1, np.bool_)
    added = np.empty(3)
    for step in range(num):
        at = numbers[step]
        # the way has it beside the configuration that it led to
        transition = taken if step == num - 1 else way.taken[numbers[step + 1]]
        # two of the arcs may be of the same word, so that both come before what is left of it
        for arc in range(3):
            child = way.arcs[at, 3 * arc + CHILD]
            added[arc] = left[child] * way.probabilities[at, arc]
        for arc in range(3):
            child = way.arcs[at, 3 * arc + CHILD]
            if child == 0:
                continue
            head = way.arcs[at, 3 * arc + PARENT]
            # below 0 by rounding only
            left[child] = max(0.0, left[child] - added[arc])
            table[child - 1, head] += weight * added[arc]
            # of several labels, the first one stands
            if labels[child - 1, head] < 0:
                labels[child - 1, head] = way.arcs[at, 3 * arc + ARC_LABEL]
            if segments[LEFT + arc] <= transition < segments[LEFT + arc + 1]:
                has_chosen[child] = True
    for word in range(1, num_words + 1):
        if not has_chosen[word]:
            table[word - 1, heads[word - 1]] += weight * left[word]


@compiled(
    types.void(
        _way,
        _ints,
        _table,
        _table,
        types.float64[::1],
        _table,
        _floats,
        _table,
    )
)
def _fill(  # type: ignore[no-untyped-def]
    way, segments, heads, labels, weights, ends, probabilities, label_ids
):
    """Fill in the table of a sentence of n words by its K hypotheses, the best first.

    Their trees are `heads` and `labels`, [K, n], their probabilities within the beam `weights`, and
    `ends`, [K, 2], their last configurations with the transitions that were taken there.
    """
    num, num_words = heads.shape
    table = np.zeros((num_words, 1 + num_words))
    shares = np.zeros((num_words, 1 + num_words))
    label_ids[:] = -1
    for place in range(num):
        for word in range(num_words):
            shares[word, heads[place, word]] += weights[place]
        last, taken = ends[place, 0], ends[place, 1]
        _follow(way, last, taken, segments, heads[place], weights[place], table, label_ids)
    for place in range(num - 1, -1, -1):  # so that the label of the best one stands
        for word in range(num_words):
            label_ids[word, heads[place, word]] = labels[place, word]
    for word in range(num_words):
        together = 0.0
        for head in range(1 + num_words):
            if shares[word, head] > 0.0:
                together += table[word, head]
        for head in range(1 + num_words):
            share = shares[word, head]
            probabilities[word, head] = together * share if share > 0.0 else table[word, head]


class Hypothesis(NamedTuple):
    """One of the hypotheses of a sentence of n words at the end of a search.

    Attributes:
        heads, label_ids: its tree, int32 [n].
        score: the sum of its transitions' scores, or of their log-probabilities.
        last: the number of the configuration that was scored last on its way; -1: none.
        taken: the transition that was taken there.
    """

    heads: Ints
    label_ids: Ints
    score: float
    last: int = -1
    taken: int = -1


def hypotheses(beams: Beams, tokens: Ints, lengths: Ints, scorer: Scorer) -> list[list[Hypothesis]]:
    """Return the hypotheses at the end of the search of each sentence, the best first."""
    found: list[list[Hypothesis]] = [[] for _ in range(len(lengths))]
    configs, nodes = beams.configurations.configs, beams.configurations.nodes
    history = beams.history
    for best_rows, places in run(beams, tokens, lengths, scorer):
        for best, place in zip(best_rows.tolist(), places.tolist(), strict=True):
            for row in beams.ranked(best).tolist():
                begin = configs[row, BASE] + 1  # behind ROOT
                words = nodes[begin : begin + configs[row, LENGTH]]
                way = () if history is None else (history.last[row], history.taken[row])
                tree = words[:, HEAD].copy(), words[:, LABEL].copy()
                score = float(beams.hypotheses.totals[row])
                found[place].append(Hypothesis(*tree, score, *map(int, way)))
    return found


def log_shares(hypotheses: Sequence[Hypothesis]) -> Doubles:
    """Return the log-probabilities of the hypotheses of a sentence, if there is no other."""
    scores = np.asarray([hypothesis.score for hypothesis in hypotheses])
    if not np.isfinite(scores).all():
        # a NaN, or an infinite highest score, would make all shares NaN
        scores = np.nan_to_num(scores, nan=-1e30, posinf=1e30, neginf=-1e30)
    scores -= scores.max()
    shares: Doubles = scores - np.log(np.exp(scores).sum())
    return shares


def arc_tables(
    beams: Beams, labels: Labels, tokens: Ints, lengths: Ints, scorer: Scorer
) -> Iterator[ArcTable]:
    """Give the probabilities of the arcs of each sentence."""
    segments = labels.segments
    noted = [(np.zeros((0, 9), np.int32), np.zeros((0, 3), np.float32))]

    def note(configurations: Configurations, which: Ints, masks: Bytes, scores: Floats) -> None:
        arcs = np.empty((len(which), 9), np.int32)
        probabilities = np.empty((len(which), 3), np.float32)
        configs, nodes, system = configurations.configs, configurations.nodes, configurations.system
        _note_arcs(configs, nodes, which, masks, scores, segments, system, arcs, probabilities)
        noted.append((arcs, probabilities))

    beams.history = history = History(len(beams.configurations.configs), note)
    found = hypotheses(beams, tokens, lengths, scorer)
    way = Way(*history.tree(), *map(np.concatenate, zip(*noted, strict=True)))
    for length, of_sentence in zip(lengths.tolist(), found, strict=True):
        heads = np.asarray([one.heads for one in of_sentence])
        label_rows = np.asarray([one.label_ids for one in of_sentence])
        ends = np.asarray([(one.last, one.taken) for one in of_sentence], np.int32)
        weights = np.exp(log_shares(of_sentence))
        probabilities = np.empty((length, 1 + length), np.float32)
        label_ids = np.empty((length, 1 + length), np.int32)
        _fill(way, segments, heads, label_rows, weights, ends, probabilities, label_ids)
        yield ArcTable(probabilities, label_ids, of_sentence[0].heads)
