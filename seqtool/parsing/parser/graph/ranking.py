"""The N best trees of a sentence by arc scores, in falling order, all of them different."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Doubles, Floats, Ints, Longs
from seqtool.core.jit import compiled
from seqtool.parsing.parser.graph.trees import (
    LONGEST_PROJECTIVE,
    fill_charts,
    finite_weights,
    spanning_tree,
)

_doubles = types.float64[::1]
_ints = types.int32[::1]
_int = types.int64


def ranked_trees(scores: Floats, num: int, projective: bool) -> list[tuple[Ints, float]]:
    """Return the `num` best trees of one sentence, each with exactly one arc from ROOT.

    The first one is that of `projective_trees` or `spanning_trees`; as there, a sentence of more
    than `LONGEST_PROJECTIVE` words has spanning trees. No other takes an arc that is forbidden, so
    that there may be fewer.

    Args:
        scores: of arcs, [n, 1 + n]; see `trees`.
        num: how many; 1 or more.
        projective: projective trees only.

    Returns:
        Their heads, int32 [n], and the sums of their scores, in which those that are not finite
        count as in `finite_weights`.
    """
    num_words = len(scores)
    flat = np.ascontiguousarray(scores, np.float32).ravel()
    weights = np.empty(flat.size)
    finite_weights(flat, weights, num_words)
    table = weights.reshape(scores.shape)
    give = _projective if projective and num_words <= LONGEST_PROJECTIVE else _spanning
    # `not >`, so that a NaN forbids, too
    is_forbidden = ~(scores > -np.inf)
    trees: list[tuple[Ints, float]] = []
    for heads in itertools.islice(give(table, num), num):
        words = np.arange(num_words)
        if trees and is_forbidden[words, heads].any():
            # it outweighs all other arcs, so that later trees have one, too
            break
        trees.append((heads, float(table[words, heads].sum())))
    # their order is that of sums in another order, which may differ in their last digit
    return sorted(trees, key=lambda tree: -tree[1])


# --- projective trees ---


class _Span(NamedTuple):
    """A span that is to be taken apart; see `trees`. The head of the whole sentence's is -1."""

    complete: bool
    head: int
    end: int


class _Derivation(NamedTuple):
    """A tree of which some spans are still whole.

    Attributes:
        loss: by how much the best tree that it can become is worse than the best of all.
        depth: how many spans were taken apart; less than 0, so that of equals the deepest is first.
        number: of equals, the first that was found comes first.
        waiting: spans, each with those that come after it: (span, (span, ... None)).
        arcs: (dependent, head), likewise.
    """

    loss: float
    depth: int
    number: int
    waiting: Any
    arcs: Any


def _projective(weights: Doubles, num: int) -> Iterator[Ints]:
    """Give the best projective trees, the best first.

    The charts of Eisner's algorithm, O(n^3), say what the best tree is that a derivation can
    become. So the best derivation is always gone on with: a best-first search whose estimates are
    exact, for the trees of Huang & Chiang's (2005) k-best parsing. Each tree takes some 2n steps,
    and each of these adds `num` derivations at most, as of the ways to take a span apart no more
    than the `num` best matter.
    """
    size = len(weights)
    charts = [np.empty(size * size) for _ in range(3)]
    fill_charts(weights.ravel(), size, *charts)
    incomplete, complete, by_end = (chart.reshape(size, size) for chart in charts)

    def sums(span: _Span) -> Doubles:
        """The sums of all ways to take a span apart, by its split."""
        i, j = min(span.head, span.end), max(span.head, span.end)
        if span.head < 0:
            return weights[:, 0] + complete[:, 0] + complete[:, -1]
        if not span.complete:
            return complete[i, i:j] + complete[j, i + 1 : j + 1]
        if span.head == i:
            return incomplete[i, i + 1 : j + 1] + by_end[j, i + 1 : j + 1]
        return incomplete[j, i:j] + by_end[i, i:j]

    def parts(span: _Span, split: int) -> tuple[_Span, _Span]:
        i, j = min(span.head, span.end), max(span.head, span.end)
        if span.head < 0:
            return _Span(True, split, 0), _Span(True, split, size - 1)
        if not span.complete:
            return _Span(True, i, i + split), _Span(True, j, i + split + 1)
        k = i + split + (span.head == i)
        return _Span(False, span.head, k), _Span(True, k, span.end)

    ways: dict[_Span, tuple[Longs, Doubles]] = {}
    # no number is given twice, so that the heap never has to compare what stands behind it
    count = itertools.count()
    open_ = [_Derivation(0.0, 0, next(count), (_Span(True, -1, -1), None), None)]
    while open_:
        loss, depth, _, waiting, arcs = heapq.heappop(open_)
        if waiting is None:
            heads = np.zeros(size, np.int32)
            while arcs is not None:
                (dependent, head), arcs = arcs
                heads[dependent] = head
            yield heads
            continue
        span, rest = waiting
        if span not in ways:
            values = sums(span)
            order = np.argsort(-values, kind="stable")[:num]
            ways[span] = order, values[order[0]] - values[order]
        for split, more in zip(*(column.tolist() for column in ways[span]), strict=True):
            found, following = arcs, rest
            if span.head < 0:
                found = ((split, 0), found)
            elif not span.complete:
                found = ((span.end, span.head + 1), found)
            for part in reversed(parts(span, split)):
                # a word alone has nothing to be taken apart
                if part.head != part.end:
                    following = (part, following)
            heapq.heappush(
                open_, _Derivation(loss + more, depth - 1, next(count), following, found)
            )


# --- spanning trees ---


class _Problem(NamedTuple):
    """The best tree in which some words have the heads that they have in another tree.

    Attributes:
        cost: minus the score of the best such tree, or, until it is known, minus what it can be at
            most.
        number: of equals, the first that was found comes first.
        heads: of the tree, or of the other one.
        num_fixed: how many words, from the first one on, have the heads of the other tree.
        banned: heads that the word after these must not have.
        losses: see `_least_losses`; None until the tree is known.
    """

    cost: float
    number: int
    heads: Ints
    num_fixed: int
    banned: tuple[int, ...]
    losses: Doubles | None


def _spanning(weights: Doubles, num: int) -> Iterator[Ints]:
    """Give the best spanning trees, the best first.

    Trees other than the best one differ from it in a first word: one problem for each word that
    may be the first (Lawler 1972), of which only those are solved whose bound is high enough.
    """
    size = len(weights)
    words = np.arange(size)
    finite = weights[np.isfinite(weights)]
    # outweighs all that the other arcs of a tree can gain
    barred = float(finite.min()) - size * float(finite.max() - finite.min() + 1)
    ends, parents = np.empty(weights.size, np.int32), np.empty(2 * size, np.int32)
    gains = np.empty(2 * size)
    count = itertools.count()

    def solved(problem: _Problem) -> _Problem:
        fixed = problem.num_fixed
        given = weights.copy()
        given[:fixed] = barred
        given[words[:fixed], problem.heads[:fixed]] = weights[words[:fixed], problem.heads[:fixed]]
        if problem.banned:
            given[fixed, list(problem.banned)] = barred
        # once more: the rows of fixed words were barred as a whole, with a finite number
        given[words, words + 1] = -np.inf
        heads, losses = np.empty(size, np.int32), np.empty(size)
        # a copy, as `spanning_tree` uses up its weights, and the losses are told by them
        num_nodes = spanning_tree(given.copy().ravel(), size, ends, parents, gains, heads)
        _least_losses(given.ravel(), size, num_nodes, parents, gains, heads, losses)
        # infinite, where no tree keeps to the rules of the problem
        cost = -float(
            weights[words, heads].sum() if barred < given[words, heads].min() else -np.inf
        )
        return problem._replace(cost=cost, heads=heads, losses=losses)

    open_ = [solved(_Problem(0.0, next(count), np.zeros(size, np.int32), 0, (), None))]
    while open_:
        problem = heapq.heappop(open_)
        if problem.losses is None:
            # it came up by its bound; from now on it waits by its own cost
            problem = solved(problem)
            if problem.cost < np.inf:
                heapq.heappush(open_, problem)
            continue
        heads, fixed = problem.heads, problem.num_fixed
        yield heads
        for word in range(fixed, size):
            banned = (*(problem.banned if word == fixed else ()), int(heads[word]))
            cost = problem.cost + float(problem.losses[word])
            heapq.heappush(open_, _Problem(cost, next(count), heads, word, banned, None))


@compiled(types.void(_doubles, _int, _int, _ints, _doubles, _ints, _doubles))
def _least_losses(  # type: ignore[no-untyped-def]
    weights, num_words, num_nodes, parents, gains, heads, losses
):
    """Write for each word how much is lost at least if it has another head than in the best tree.

    No arc into a word weighs more than the gains of the nodes which it enters together, and those
    of the best tree weigh as much: they are the dual variables of the linear programme (Edmonds
    1967), each tree enters every node at least once, and the gain of a node within that of all
    words is never above 0. So what an arc weighs less is lost.
    """
    width = num_words + 1
    # from the outermost node inwards, as a node adds to what its parent has
    around = np.zeros(num_nodes, np.float64)  # the gain of a node and of those that it is in
    for node in range(num_nodes - 1, -1, -1):
        around[node] = gains[node] + (around[parents[node]] if parents[node] >= 0 else 0.0)
    common = np.empty(num_nodes, np.int32)  # the smallest node that has the word and another node
    for word in range(num_words):
        common[:] = -1
        around_word = np.int32(word)
        while around_word >= 0:
            common[around_word] = around_word
            around_word = parents[around_word]
        for node in range(num_nodes - 1, -1, -1):
            # the outermost node has every word, so that whoever comes here has a parent
            if common[node] < 0:
                common[node] = common[parents[node]]
        least = np.inf
        for head in range(width):
            if head != heads[word] and head != word + 1:
                gain = around[word]
                if head > 0:
                    # nodes that have both words are not entered by their arc
                    gain -= around[common[head - 1]]
                least = min(least, gain - weights[word * width + head])
        # below 0 by rounding only
        losses[word] = max(least, 0.0)
