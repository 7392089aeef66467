"""Sums and maxima over all arc-hybrid derivations of a sentence, in cubic time.

A model that knows a configuration by its stack's top i and the buffer's front j alone can be
tabulated (Kuhlmann, Gómez-Rodríguez & Satta 2011), and summed over all derivations (Buys & Blunsom
2018). ROOT is 0, words are 1 to n, and END is n + 1. `Steps` has of each configuration (i, j) the
logarithms (nats) of the probabilities of its steps, in float64, [n + 2, n + 2]:

    shift     pushes j, and reads word j + 1: the step's probability times the word's
              at (0, 0), where word 1 is read, nothing is pushed
    left      pops i, whose head is j
    right     pops i, whose head is the word below it

    I(i, i + 1) = 1
    I(i, j) = sum over m, i < m < j, of  I(i, m) shift(i, m) I(m, j) (left(m, j) + right(m, j))
    A(0) = shift(0, 0),  A(j) = sum over i < j of  A(i) I(i, j) shift(i, j)

I(i, j) is how probable it is to come from front i + 1 to front j, i on top both times. A(j) is the
probability of words 1 to j + 1, and A(n) that of the sentence with its end, which is also
A(0) I(0, n + 1), as at END all that is left is popped to the right. ROOT can only shift.

The model may give ROOT several words; a tree has one, which is popped at END.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.jit import compiled


class Steps(NamedTuple):
    """The steps of all configurations of a sentence, or something that each of them has."""

    shift: Doubles
    left: Doubles
    right: Doubles


_square = types.float64[:, ::1]
_pops = types.float64[:, :, ::1]
_longs = types.int64[:, ::1]
_steps = types.NamedUniTuple(_square, 3, Steps)


@compiled(types.void(_square, _pops, _square))
def _fill_inside(shift, pops, inside):  # type: ignore[no-untyped-def]
    """Write log I(i, j); `pops` are those with ROOT below, and others."""
    ways = np.empty(inside.shape[0])
    for j in range(1, inside.shape[0]):
        inside[j - 1, j] = 0.0
        for i in range(j - 2, -1, -1):
            pop = pops[min(i, 1)]
            highest = -np.inf
            for m in range(i + 1, j):
                ways[m] = inside[i, m] + shift[i, m] + inside[m, j] + pop[m, j]
                highest = max(highest, ways[m])
            inside[i, j] = highest
            if highest > -np.inf:
                total = 0.0
                for m in range(i + 1, j):
                    total += np.exp(ways[m] - highest)
                inside[i, j] = highest + np.log(total)


@compiled(types.void(_steps, _pops, _square, _square, _steps, _square))
def _fill_outside(steps, pops, inside, outside, of_steps, of_arcs):  # type: ignore[no-untyped-def]
    """Write how often each span, step and arc is expected in a derivation, from log I(i, j)."""
    end = inside.shape[0]
    outside[0, end - 1] = 1.0
    for j in range(end - 1, 0, -1):
        for i in range(j - 1):
            pop = pops[min(i, 1)]
            if outside[i, j] <= 0.0:
                continue
            for m in range(i + 1, j):
                way = inside[i, m] + steps.shift[i, m] + inside[m, j] + pop[m, j] - inside[i, j]
                share = outside[i, j] * np.exp(way)
                if share <= 0.0:
                    continue
                by_left = share * np.exp(steps.left[m, j] - pop[m, j])
                outside[i, m] += share
                outside[m, j] += share
                of_steps.shift[i, m] += share
                of_steps.left[m, j] += by_left
                of_steps.right[m, j] += share - by_left
                of_arcs[j, m] += by_left
                of_arcs[i, m] += share - by_left


@compiled(types.void(_steps, _square, _square, _longs))
def _fill_best(steps, bonus, best, splits):  # type: ignore[no-untyped-def]
    """Write the best I(i, j), and its m: negative where that is popped to the right."""
    end = best.shape[0]
    for j in range(1, end):
        best[j - 1, j] = 0.0
        for i in range(j - 2, -1, -1):
            for m in range(i + 1, j):
                left, right = steps.left[m, j] + bonus[j, m], steps.right[m, j] + bonus[i, m]
                if i == 0 and j < end - 1:  # the one word of ROOT is popped at END
                    right = -np.inf
                way = best[i, m] + steps.shift[i, m] + best[m, j] + max(left, right)
                if way > best[i, j]:
                    best[i, j], splits[i, j] = way, m if left > right else -m


def _inside(steps: Steps, one_root: bool, roots: Doubles | None) -> tuple[Doubles, Doubles]:
    """Return log I(i, j), and nats of popping m at front j, ROOT below it and a word below it."""
    pops = np.logaddexp(steps.left, steps.right)
    at_root, table = pops.copy(), np.full_like(pops, -np.inf)
    if one_root:  # its word is popped at END
        at_root[:, :-1] = steps.left[:, :-1]
        at_root[:, -1] = pops[:, -1] if roots is None else roots
    both = np.stack([at_root, pops])
    _fill_inside(steps.shift, both, table)
    return table, both


def inside(steps: Steps) -> Doubles:
    """Return log I(i, j), [n + 2, n + 2]."""
    return _inside(steps, False, None)[0]


def expected(
    steps: Steps, *, one_root: bool = False, roots: Doubles | None = None
) -> tuple[float, Steps, Doubles]:
    """Return the sum of all derivations, and how often each step and arc is expected in one.

    These are the derivatives of the logarithm of the sum, which is in nats; those of arcs,
    [head, dependent], are their marginals. Of one root, nats of its arc may be others: `roots`.
    """
    table, pops = _inside(steps, one_root, roots)
    outside, arcs = np.zeros_like(table), np.zeros_like(table)
    of_steps = Steps(*(np.zeros_like(each) for each in steps))
    if table[0, -1] > -np.inf:
        of_steps.shift[0, 0] = 1.0
        _fill_outside(steps, pops, table, outside, of_steps, arcs)
    return float(steps.shift[0, 0] + table[0, -1]), of_steps, arcs


def prefixes(steps: Steps) -> Doubles:
    """Return log A(j), [n + 1]."""
    ways = inside(steps) + steps.shift
    sums = np.full(len(ways) - 1, steps.shift[0, 0])
    for j in range(1, len(sums)):
        sums[j] = np.logaddexp.reduce(sums[:j] + ways[:j, j])
    return sums


def best_tree(steps: Steps, bonus: Doubles | None = None) -> tuple[float, Longs, Longs]:
    """Return the tree of the best derivation with one root.

    Args:
        steps: of all configurations.
        bonus: nats that are added for each arc, [head, dependent]: -inf for one that may not be.

    Returns:
        Its nats, -inf if there is none; the heads of the words, [n], and
        the fronts at which they are popped, [n].
    """
    table = np.full_like(steps.left, -np.inf)
    splits, end = np.zeros(table.shape, np.int64), len(table) - 1
    heads, fronts = np.zeros((2, end + 1), np.int64)
    _fill_best(steps, np.zeros_like(table) if bonus is None else bonus, table, splits)
    waiting = [(0, end)] if table[0, end] > -np.inf else []
    while waiting:
        i, j = waiting.pop()
        if j > i + 1:
            m = int(abs(splits[i, j]))
            heads[m], fronts[m] = j if splits[i, j] > 0 else i, j
            waiting += [(i, m), (m, j)]
    return float(steps.shift[0, 0] + table[0, end]), heads[1:-1], fronts[1:-1]


def best_trees(steps: Steps, bonus: Doubles | None = None) -> Iterator[tuple[float, Longs, Longs]]:
    """Give trees as `best_tree` does, the best first: no two have the same heads.

    All trees but the best are divided by the first word whose head differs from its, and each part
    gives its best one (Lawler 1972).
    """
    size = len(steps.left)
    number = count()  # two trees may have the same nats

    def add(bonus: Doubles, fixed: int) -> None:
        score, heads, fronts = best_tree(steps, bonus)
        if score > -np.inf:
            heapq.heappush(waiting, (-score, next(number), fixed, bonus, heads, fronts))

    waiting: list[tuple[float, int, int, Doubles, Longs, Longs]] = []
    add(np.zeros((size, size)) if bonus is None else bonus.copy(), 0)
    while waiting:
        negative, _, fixed, bonus, heads, fronts = heapq.heappop(waiting)
        yield -negative, heads, fronts
        for word in range(fixed, size - 2):
            other = bonus.copy()
            other[heads[word], word + 1] = -np.inf
            add(other, word)
            bonus[np.arange(size) != heads[word], word + 1] = -np.inf


def possible(tops: Longs, fronts: Longs, ends: Longs) -> Bools:
    """Return whether a shift may be, and an arc to the left and to the right, [N, 3].

    Of each configuration, its top, its front and the place of END are given, [N].
    """
    is_read = fronts < ends
    return np.stack([is_read, is_read & (tops > 0), tops > 0], 1)
