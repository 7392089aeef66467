"""The N best trees, by the sorted enumeration of all trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from parsing.parser.references import (
    Heads,
    int32,
    is_tree,
    non_projective_words,
    projective_trees,
    trees,
)

from seqtool.core.arrays import Floats
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE, spanning_trees
from seqtool.parsing.parser.graph.trees import projective_trees as best_projective

KINDS = pytest.mark.parametrize(("projective", "every"), [(True, projective_trees), (False, trees)])
Every = Callable[[int], tuple[Heads, ...]]


def sums(scores: Floats, every: tuple[Heads, ...]) -> Floats:
    return scores[np.arange(len(scores)), np.asarray(every)].sum(axis=1)


@KINDS
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_they_are_those_of_the_sorted_enumeration(
    length: int, projective: bool, every: Every
) -> None:
    rng = np.random.default_rng(length)
    for spread in (2, 50, 100_000):  # whole numbers: first many equal trees, last none
        for num in (1, 3, 40):
            scores = rng.integers(-spread, spread, (length, length + 1)).astype(np.float32)
            expected = np.sort(sums(scores, every(length)))[::-1][:num]
            found = ranked_trees(scores, num, projective)
            np.testing.assert_array_equal([score for _, score in found], expected)
            heads = tuple(tuple(tree.tolist()) for tree, _ in found)
            np.testing.assert_array_equal(sums(scores, heads), expected)
            assert len(set(heads)) == len(heads)
            assert set(heads) <= set(every(length))


@KINDS
def test_all_trees_there_are_and_no_more(projective: bool, every: Every) -> None:
    scores = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    found = ranked_trees(scores, 1000, projective)
    assert {tuple(heads.tolist()) for heads, _ in found} == set(every(5))


@KINDS
def test_no_tree_with_a_forbidden_arc_but_the_first(projective: bool, every: Every) -> None:
    scores = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
    scores[1, 1] = scores[2, 0] = -np.inf
    scores[3, 3] = np.nan
    expected = {heads for heads in every(4) if heads[1] != 1 and heads[2] != 0 and heads[3] != 3}
    found = ranked_trees(scores, 1000, projective)
    assert {tuple(heads.tolist()) for heads, _ in found} == expected
    scores[0] = -np.inf  # no tree is left
    [(heads, score)] = ranked_trees(scores, 1000, projective)
    assert tuple(heads.tolist()) in every(4)
    assert np.isfinite(score)


@KINDS
def test_all_trees_without_a_forbidden_arc_are_there_where_arcs_are_demanded(
    projective: bool, every: Every
) -> None:
    scores = np.zeros((4, 5), np.float32)
    scores[0, 2] = scores[1, 3] = scores[2, 4] = np.inf
    # with all that is demanded, 4 is left with ROOT
    scores[3, 0] = np.nan
    expected = {heads for heads in every(4) if heads[3] != 0}
    found = [tuple(heads.tolist()) for heads, _ in ranked_trees(scores, 1000, projective)]
    assert set(found) == expected
    demanded = [(heads[0] == 2) + (heads[1] == 3) + (heads[2] == 4) for heads in found]
    assert demanded == sorted(demanded, reverse=True)
    assert demanded[0] == 2


@KINDS
@given(
    scores=st.integers(1, 9).flatmap(
        lambda length: hypothesis_numpy.arrays(
            np.float32, (length, length + 1), elements=st.floats(width=32)
        )
    )
)
def test_whatever_the_scores_they_are_trees_in_falling_order(
    scores: Floats, projective: bool, every: object
) -> None:
    found = ranked_trees(scores, 4, projective)
    assert found
    assert all(is_tree(tuple(heads.tolist())) for heads, _ in found)
    if projective:
        assert not any(non_projective_words(tuple(heads.tolist())) for heads, _ in found)
    ranks = [score for _, score in found]
    assert ranks == sorted(ranks, reverse=True)
    assert len({tuple(heads) for heads, _ in found}) == len(found)


@pytest.mark.parametrize("projective", [True, False])
def test_the_first_is_the_best_tree_and_a_long_sentence_is_no_burden(projective: bool) -> None:
    rng = np.random.default_rng(3)
    # more words than a projective tree is found for, in the end
    for length in (30, 200, LONGEST_PROJECTIVE + 1):
        find = best_projective if projective else spanning_trees
        # whole numbers: many trees are as good as the best one
        scores = rng.integers(-9, 9, (length, length + 1)).astype(np.float32)
        found = ranked_trees(scores, 20, projective)
        np.testing.assert_array_equal(found[0][0], find(scores.ravel(), int32([length])))
        assert len({tuple(heads) for heads, _ in found}) == 20
