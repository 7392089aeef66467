"""The best tree by arcs and adjacent siblings, by brute force over all projective trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from parsing.parser import references
from parsing.parser.references import Heads, int32, is_tree, non_projective_words

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.parser.graph.eisner import projective_trees
from seqtool.parsing.parser.graph.siblings import sibling_trees


def nearer_siblings(heads: Heads) -> list[int]:
    """For each word, the next dependent of its head, towards it; 0 where there is none."""
    found = []
    for word, head in enumerate(heads, 1):
        side = range(word - 1, head, -1) if head < word else range(word + 1, head)
        same = [other for other in side if heads[other - 1] == head]
        found.append(same[0] if same and head else 0)
    return found


def score(heads: Heads, scores: Ints, siblings: Ints) -> int:
    words = range(len(heads))
    nearer = nearer_siblings(heads)
    return sum(
        int(scores[word, heads[word]] + siblings[word, heads[word], nearer[word]]) for word in words
    )


def best(scores: Ints | Floats, siblings: Ints | Floats) -> Heads:
    flat = (table.astype(np.float32).ravel() for table in (scores, siblings))
    return tuple(sibling_trees(*flat, int32([len(scores)])).tolist())


def test_siblings_by_hand() -> None:
    # of 3: 1 and 2 on the left, the nearer one first; 4 and 6 on the right, of 4 only 5
    assert nearer_siblings((3, 3, 0, 3, 4, 3)) == [2, 0, 0, 0, 0, 4]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_the_best_of_all_projective_trees_up_to_six_words(length: int) -> None:
    rng = np.random.default_rng(length)
    for spread in (1, 3, 30, 30, 30, 3000):  # whole numbers, whose sums are exact
        scores = rng.integers(-spread, spread, (length, length + 1))
        siblings = rng.integers(-spread, spread, (length, length + 1, length + 1))
        heads = best(scores, siblings)
        trees = references.projective_trees(length)
        assert heads in trees
        assert score(heads, scores, siblings) == max(
            score(tree, scores, siblings) for tree in trees
        )


def test_many_sentences_without_sibling_scores_have_the_trees_of_the_first_order() -> None:
    rng = np.random.default_rng(1)
    lengths = int32([7, 1, 30, 12])
    arcs, triples = (lengths * (lengths + 1) ** power for power in (1, 2))
    scores = rng.normal(size=arcs.sum()).astype(np.float32)
    heads = sibling_trees(scores, np.zeros(triples.sum(), np.float32), lengths)
    np.testing.assert_array_equal(heads, projective_trees(scores, lengths))


@given(data=st.data(), length=st.integers(1, 8))
def test_whatever_the_scores_it_is_a_projective_tree(data: st.DataObject, length: int) -> None:
    floats = st.floats(width=32)
    scores = data.draw(hypothesis_numpy.arrays(np.float32, (length, length + 1), elements=floats))
    shape = (length, length + 1, length + 1)
    siblings = data.draw(hypothesis_numpy.arrays(np.float32, shape, elements=floats))
    heads = best(scores, siblings)
    assert is_tree(heads)
    assert not non_projective_words(heads)


@given(data=st.data(), length=st.integers(1, 5))
def test_no_siblings_are_worth_a_forbidden_arc_nor_the_loss_of_a_demanded_one(
    data: st.DataObject, length: int
) -> None:
    shape = (length, length + 1, length + 1)
    numbers = st.integers(-9, 9)
    scores = data.draw(hypothesis_numpy.arrays(np.int64, shape[:2], elements=numbers))
    siblings = data.draw(
        hypothesis_numpy.arrays(np.int64, shape, elements=st.sampled_from([0, 7, -7, 10**9]))
    )
    kinds = data.draw(
        hypothesis_numpy.arrays(np.int64, shape[:2], elements=st.sampled_from([0, 0, 0, 1, 2]))
    )
    marked = np.where(kinds == 1, -np.inf, np.where(kinds == 2, np.inf, scores))
    # the siblings of a tree have 5 * 10^9 at most
    whole = np.where(kinds == 1, -(10**12), np.where(kinds == 2, 10**11, scores))
    infinite = np.where(siblings == 10**9, np.inf, siblings)
    heads = best(marked, infinite)
    trees = references.projective_trees(length)
    assert score(heads, whole, siblings) == max(score(tree, whole, siblings) for tree in trees)


def test_siblings_that_are_no_number_are_avoided() -> None:
    scores, siblings = np.zeros((3, 4)), np.zeros((3, 4, 4))
    scores[1, 0] = 9  # were 2 the root, it would have a first dependent on each side
    siblings[0, 2, 0] = siblings[2, 2, 0] = np.nan
    assert best(scores, siblings)[1] != 0
    siblings[0, 2, 0] = siblings[2, 2, 0] = np.inf
    assert best(scores, siblings) == (2, 0, 2)
    with pytest.raises(ValueError, match="not the sibling scores"):
        sibling_trees(np.zeros(6, np.float32), np.zeros(17, np.float32), int32([2]))
