"""Partition functions and marginals, by the enumeration of all trees; gradients by differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from parsing.parser.references import Heads, int32, projective_trees, trees

from seqtool.core.arrays import Doubles
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.task import tree_loss
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE

KINDS = pytest.mark.parametrize(("projective", "every"), [(True, projective_trees), (False, trees)])


def enumerated(scores: Doubles, every: tuple[Heads, ...]) -> tuple[float, Doubles]:
    """The logarithm of the partition function and the marginals, by the sum over all trees."""
    heads, words = np.asarray(every), np.arange(len(scores))
    totals = scores[words, heads].sum(axis=1)
    log_partition = float(np.logaddexp.reduce(totals))
    probabilities = np.zeros(scores.shape)
    shares = np.exp(totals - log_partition)
    for word in words:
        np.add.at(probabilities[word], heads[:, word], shares)
    return log_partition, probabilities


@KINDS
# at 100, most words of the tables are in cycles that are 40 nats better than any tree, or more
@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 100.0])
def test_both_are_those_of_the_enumeration_up_to_six_words(
    spread: float, projective: bool, every: Callable[[int], tuple[Heads, ...]]
) -> None:
    rng = np.random.default_rng(1)
    tables = [
        rng.normal(0, spread, (length, length + 1)) for length in range(1, 7) for _ in range(8)
    ]
    lengths = int32([len(table) for table in tables])
    flat = np.concatenate([table.ravel() for table in tables])
    log_partitions, probabilities = marginals(flat, lengths, projective)
    ends = np.cumsum(lengths * (lengths + 1))
    for table, found, arcs in zip(
        tables, log_partitions, np.split(probabilities, ends[:-1]), strict=True
    ):
        log_partition, expected = enumerated(table, every(len(table)))
        assert found == pytest.approx(log_partition, abs=1e-9)
        np.testing.assert_allclose(arcs.reshape(table.shape), expected, rtol=0, atol=1e-9)


def test_a_cycle_far_better_than_any_tree() -> None:
    """Where the determinant would have no digit left: 1 - (1 - e^-200)^2."""
    # each of two words is better off with the other by 200 nats than with ROOT
    scores = np.array([[0.0, 0.0, 200.0], [0.5, 200.0, 0.0]])
    log_partitions, probabilities = marginals(scores.ravel(), int32([2]), projective=False)
    # the two trees: ROOT -> 1 -> 2 has 0 + 200, ROOT -> 2 -> 1 has 0.5 + 200
    assert log_partitions[0] == pytest.approx(200 + np.log(1 + np.exp(0.5)), abs=1e-12)
    second = 1 / (1 + np.exp(-0.5))
    expected = [1 - second, 0, second, second, 1 - second, 0]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)


@KINDS
@given(
    scores=st.integers(1, 14).flatmap(
        lambda length: hypothesis_numpy.arrays(
            np.float64, (length, length + 1), elements=st.floats(-250, 250)
        )
    )
)
def test_the_marginals_of_a_word_add_up_to_one(
    scores: Doubles, projective: bool, every: object
) -> None:
    length = int32([len(scores)])
    log_partitions, flat = marginals(scores.ravel(), length, projective)
    probabilities = flat.reshape(scores.shape)
    assert probabilities.min() >= 0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-9)
    assert probabilities[:, 0].sum() == pytest.approx(1, rel=1e-9)  # one root
    # a constant for a word is a constant for all trees
    shifts = np.arange(len(scores))[:, None] * 7.25
    shifted, moved = marginals((scores + shifts).ravel(), length, projective)
    assert shifted - log_partitions == pytest.approx(shifts.sum(), abs=1e-9)
    np.testing.assert_allclose(moved, flat, rtol=0, atol=1e-9)


@KINDS
def test_what_is_not_finite(projective: bool, every: Callable[[int], tuple[Heads, ...]]) -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(5, 6))
    scores[np.arange(5), np.arange(1, 6)] = np.nan  # the diagonal is not read
    forbidden = scores.copy()
    forbidden[2, 1] = forbidden[3, 5] = forbidden[4, 4] = forbidden[0, 0] = -np.inf
    bad = scores.copy()
    bad[1, 3] = np.nan
    worse = scores.copy()
    worse[1, 3] = np.inf
    none = scores.copy()
    none[:, 0] = none[3] = -np.inf
    flat = np.concatenate([table.ravel() for table in (forbidden, bad, worse, none)])
    log_partitions, probabilities = marginals(flat, int32([5] * 4), projective)
    tables = probabilities.reshape(4, 5, 6)
    allowed = np.where(np.isinf(forbidden), -1e9, forbidden)
    log_partition, expected = enumerated(allowed, every(5))
    assert log_partitions[0] == pytest.approx(log_partition, abs=1e-9)
    np.testing.assert_allclose(tables[0], expected, rtol=0, atol=1e-9)
    assert np.isnan(log_partitions[1:3]).all()
    assert np.isnan(tables[1:3]).all()
    assert log_partitions[3] == -np.inf
    assert (tables[3] == 0).all()


def test_of_too_many_words_for_projective_trees_it_is_over_all_trees() -> None:
    length = LONGEST_PROJECTIVE + 1
    scores = np.random.default_rng(5).normal(size=length * (length + 1)).astype(np.float32)
    found, expected = (marginals(scores, int32([length]), kind) for kind in (True, False))
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[1].reshape(length, -1).sum(axis=1), 1, rtol=1e-9)


@pytest.mark.parametrize("projective", [True, False])
def test_the_loss_of_trees_and_its_gradient(projective: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn((3, 5, 6), generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([5, 1, 3])
    golds = [(2, 0, 2, 5, 2), (0,), (2, 3, 0)]
    heads = torch.full((3, 5), -1)
    for row, gold in enumerate(golds):
        heads[row, : len(gold)] = torch.tensor(gold)
    losses = tree_loss(scores, lengths, heads, projective)
    every = projective_trees if projective else trees
    for table, gold, loss in zip(scores.detach().numpy(), golds, losses.tolist(), strict=True):
        num = len(gold)
        log_partition, _ = enumerated(table[:num, : num + 1], every(num))
        expected = log_partition - table[np.arange(num), gold].sum()
        assert loss == pytest.approx(expected, abs=1e-9)
    assert torch.autograd.gradcheck(
        lambda given: tree_loss(given, lengths, heads, projective), (scores,)
    )
    # what lies in padding is not read, and gets no gradient
    changed = scores.detach().clone()
    changed[1, 1:] = changed[1, :, 2:] = changed[2, 3:] = changed[2, :, 4:] = -torch.inf
    changed.requires_grad_()
    again = tree_loss(changed, lengths, heads, projective)
    again.sum().backward()
    torch.testing.assert_close(again, losses, rtol=0, atol=0)
    assert changed.grad is not None
    assert (changed.grad[torch.isinf(changed)] == 0).all()


def test_the_loss_of_single_precision_and_of_scores_that_are_no_number() -> None:
    scores = torch.randn((2, 4, 5), generator=torch.Generator().manual_seed(4))
    lengths, heads = torch.tensor([4, 4]), torch.tensor([[2, 0, 2, 3]] * 2)
    loss = tree_loss(scores, lengths, heads, projective=True)
    assert loss.dtype == torch.float32
    exact = tree_loss(scores.double(), lengths, heads, projective=True)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=0)
    scores[1, 2, 0] = torch.nan
    for projective in (True, False):
        loss = tree_loss(scores, lengths, heads, projective)
        assert torch.isfinite(loss).tolist() == [True, False]
