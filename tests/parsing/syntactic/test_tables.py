"""Sums and maxima over arc-hybrid derivations, against all derivations, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import islice

import numpy as np
import pytest
from parsing.parser.references import projective_trees

from seqtool.core.vocabulary import EOS_ID
from seqtool.parsing.syntactic import tables
from seqtool.parsing.syntactic.data import derive
from seqtool.parsing.syntactic.tables import Steps

SIZES = range(1, 7)


def random_steps(num_words: int, seed: int = 0) -> Steps:
    """Steps of a random model: shares of one in each configuration, times that of a word."""
    rng = np.random.default_rng((num_words, seed))
    size = num_words + 2
    shares = rng.dirichlet([1, 1, 1], (size, size))
    shares[0] = 1.0, 0.0, 0.0  # ROOT can only shift
    shares[1:, -1] = 0.0, 0.0, 1.0  # and at END all that is left is popped to the right
    shares[..., 0] *= rng.random((size, size))
    with np.errstate(divide="ignore"):
        return Steps(*(np.ascontiguousarray(np.log(shares[..., step])) for step in range(3)))


def derivations(steps: Steps, num_words: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Give the nats and the heads of every derivation."""
    waiting = [([0], 1, float(steps.shift[0, 0]), (0,) * num_words)]
    while waiting:
        stack, front, nats, heads = waiting.pop()
        top = stack[-1]
        if front > num_words and len(stack) == 1:
            yield nats, heads
            continue
        if front <= num_words:
            shifted = nats + steps.shift[top, front]
            waiting.append(([*stack, front], front + 1, shifted, heads))
        for popped, head in ((steps.left, front), (steps.right, stack[-2] if top else 0)):
            if top and popped[top, front] > -np.inf:
                given = (*heads[: top - 1], head, *heads[top:])
                waiting.append((stack[:-1], front, nats + popped[top, front], given))


def log_sum(nats: list[float]) -> float:
    return float(reduce(np.logaddexp, nats))


@pytest.mark.parametrize("num_words", SIZES)
@pytest.mark.parametrize("one_root", [False, True])
def test_sums_and_marginals_are_those_of_all_derivations(num_words: int, one_root: bool) -> None:
    steps = random_steps(num_words)
    every = [
        each for each in derivations(steps, num_words) if not one_root or each[1].count(0) == 1
    ]
    wanted = log_sum([nats for nats, _ in every])
    marginals = np.zeros((num_words + 2, num_words + 2))
    for nats, heads in every:
        for word, head in enumerate(heads, 1):
            marginals[head, word] += np.exp(nats - wanted)
    total, of_steps, arcs = tables.expected(steps, one_root=one_root)
    assert total == pytest.approx(wanted, abs=1e-10)
    np.testing.assert_allclose(arcs, marginals, atol=1e-10)
    # each word is pushed once, and popped once
    assert of_steps.shift.sum() == pytest.approx(1 + num_words, abs=1e-10)
    assert (of_steps.left + of_steps.right).sum() == pytest.approx(num_words, abs=1e-10)


def test_expected_steps_are_the_derivatives_of_the_sum() -> None:
    steps = random_steps(5, seed=1)
    _, of_steps, _ = tables.expected(steps)
    for table, expected in zip(steps, of_steps, strict=True):
        for place in zip(*np.nonzero(np.isfinite(table)), strict=True):
            totals = []
            for change in (1e-6, -1e-6):
                moved = table.copy()
                moved[place] += change
                others = (moved if each is table else each for each in steps)
                totals.append(tables.expected(Steps(*others))[0])
            slope = (totals[0] - totals[1]) / 2e-6
            assert slope == pytest.approx(expected[place], abs=1e-8)


@pytest.mark.parametrize("num_words", SIZES)
def test_prefixes_are_sums_over_how_they_go_on(num_words: int) -> None:
    """The probability of j + 1 words is that of all derivations up to the shift of word j."""
    steps = random_steps(num_words)
    found, begin = tables.prefixes(steps), steps.shift[0, 0]
    tops = found[:, None] + tables.inside(steps)[:-1]
    reached: dict[int, list[float]] = {front: [] for front in range(1, num_words + 1)}
    at: dict[tuple[int, int], list[float]] = {}
    waiting = [([0], 1, 0.0)]
    while waiting:
        stack, front, nats = waiting.pop()
        top = stack[-1]
        if front > num_words:
            continue
        at.setdefault((top, front), []).append(nats)
        reached[front].append(nats + steps.shift[top, front])
        waiting.append(([*stack, front], front + 1, nats + steps.shift[top, front]))
        if top:
            waiting.append(
                (
                    stack[:-1],
                    front,
                    nats + np.logaddexp(steps.left[top, front], steps.right[top, front]),
                )
            )
    wanted = [begin, *(begin + log_sum(nats) for nats in reached.values())]
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    for place, nats in at.items():
        assert tops[place] == pytest.approx(log_sum(nats) + begin, abs=1e-10)
    assert found[-1] == pytest.approx(begin + tables.inside(steps)[0, -1], abs=1e-10)


@pytest.mark.parametrize("num_words", SIZES)
def test_the_best_trees_are_those_of_all_derivations(num_words: int) -> None:
    steps = random_steps(num_words)
    best: dict[tuple[int, ...], float] = {}
    for nats, heads in derivations(steps, num_words):
        if heads.count(0) == 1:
            best[heads] = max(nats, best.get(heads, -np.inf))
    ranked = sorted(best.items(), key=lambda item: -item[1])
    found = list(islice(tables.best_trees(steps), 9))
    assert [tuple(heads.tolist()) for _, heads, _ in found] == [heads for heads, _ in ranked[:9]]
    np.testing.assert_allclose([nats for nats, *_ in found], [n for _, n in ranked[:9]], atol=1e-10)
    # all projective trees of one root, each once
    assert len(list(tables.best_trees(steps))) == len(best)
    nats, heads, fronts = tables.best_tree(steps)
    assert (nats, *heads) == (found[0][0], *found[0][1])
    assert (fronts > np.arange(1, num_words + 1)).all()


@pytest.mark.parametrize("num_words", SIZES)
def test_a_derivation_builds_its_tree(num_words: int) -> None:
    """It is one of those that build the tree: its nats are among theirs."""
    steps = random_steps(num_words)
    by_tree: dict[tuple[int, ...], list[float]] = {}
    for nats, heads in derivations(steps, num_words):
        by_tree.setdefault(heads, []).append(nats)
    for heads in map(tuple, projective_trees(num_words)):
        taken = derive(np.arange(2, num_words + 2), heads, [0] * num_words, 1).steps
        assert taken[taken[:, 3] >= 0, 3].tolist() == [*range(2, num_words + 2), EOS_ID]
        nats = sum(float(steps[max(step, 0)][top, front]) for top, front, step, _ in taken)
        assert min(abs(nats - other) for other in by_tree[heads]) < 1e-10
