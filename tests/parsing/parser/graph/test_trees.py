"""The best trees, by brute force over all trees of short sentences, and for any scores."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from parsing.parser import references
from parsing.parser.references import Heads, int32, is_tree, non_projective_words

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.trees import LONGEST_PROJECTIVE, projective_trees, spanning_trees

Find = Callable[[Floats, Ints], Ints]
Every = Callable[[int], tuple[Heads, ...]]
DECODERS = pytest.mark.parametrize(
    ("find", "every"),
    [(spanning_trees, references.trees), (projective_trees, references.projective_trees)],
)


def tree_scores(scores: Floats, trees: tuple[Heads, ...]) -> Floats:
    """The score of each tree by a table of arcs, in whole numbers or doubles."""
    words = np.arange(len(scores))
    return scores[words, np.asarray(trees)].sum(axis=1)


def best(find: Find, scores: Floats) -> Heads:
    """The tree that a decoder finds for one sentence."""
    return tuple(find(scores.astype(np.float32).ravel(), int32([len(scores)])).tolist())


def is_projective(heads: Heads) -> bool:
    return not non_projective_words(heads)


@DECODERS
def test_the_best_of_all_trees_up_to_six_words(find: Find, every: Every) -> None:
    rng = np.random.default_rng(1)
    # whole numbers, whose sums are exact; few of them, so that many are equal
    tables = [
        rng.integers(-size, size, (length, length + 1))
        for length in range(1, 7)
        for size in (1, 3, 30, 3000)
        for _ in range(12)
    ]
    lengths = int32([len(table) for table in tables])
    flat = np.concatenate([table.ravel() for table in tables]).astype(np.float32)
    found = np.split(find(flat, lengths), np.cumsum(lengths)[:-1])
    for table, heads in zip(tables, found, strict=True):
        trees = every(len(table))
        assert tuple(heads.tolist()) in trees
        scores = tree_scores(table, (tuple(heads.tolist()), *trees))
        assert scores[0] == scores[1:].max()


def contracted(arcs: dict[tuple[int, int], int], root: int) -> set[tuple[int, int]]:
    """The arcs (head, dependent) of the best tree from `root` by Chu-Liu and Edmonds, as told."""
    nodes = {node for arc in arcs for node in arc}
    heads = {
        node: max((head for head, other in arcs if other == node), key=lambda h: arcs[h, node])
        for node in nodes - {root}
    }
    for start in heads:
        path: list[int] = []
        while start in heads and start not in path:
            path.append(start)
            start = heads[start]
        if start in path:
            cycle = path[path.index(start) :]
            break
    else:
        return {(head, node) for node, head in heads.items()}
    new = max(nodes) + 1
    smaller: dict[tuple[int, int], int] = {}
    stands_for: dict[tuple[int, int], tuple[int, int]] = {}
    for (head, node), weight in arcs.items():
        if head in cycle and node in cycle:
            continue
        if node in cycle:
            arc, weight = (head, new), weight - arcs[heads[node], node]
        else:
            arc = (new if head in cycle else head, node)
        if arc not in smaller or weight > smaller[arc]:
            smaller[arc], stands_for[arc] = weight, (head, node)
    tree = {stands_for[arc] for arc in contracted(smaller, root)}
    entered = {node for _, node in tree}
    return tree | {(heads[node], node) for node in cycle if node not in entered}


def by_contraction(scores: Ints) -> int:
    """The score of the best spanning tree, of those from each root word in turn."""
    words = range(1, len(scores) + 1)
    arcs = {(h, d): int(scores[d - 1, h]) for h in words for d in words if h != d}
    return max(
        int(scores[root - 1, 0]) + sum(arcs[arc] for arc in contracted(arcs, root))
        for root in words
    )


def by_spans(scores: Ints) -> int:
    """The score of the best projective tree: of each span with each head, all its halves."""

    @functools.cache
    def best_span(begin: int, end: int, head: int) -> float:
        if end - begin == 1:
            return 0
        return max(
            (
                best_span(begin, split, head)
                + best_span(split, end, other)
                + scores[other - 1, head]
                if head < split
                else best_span(split, end, head)
                + best_span(begin, split, other)
                + scores[other - 1, head]
            )
            for split in range(begin + 1, end)
            for other in (range(split, end) if head < split else range(begin, split))
        )

    size = len(scores)
    return max(
        int(best_span(1, size + 1, root) + scores[root - 1, 0]) for root in range(1, size + 1)
    )


@pytest.mark.parametrize(
    ("find", "judge", "length"),
    [(spanning_trees, by_contraction, 30), (projective_trees, by_spans, 12)],
)
def test_longer_sentences_by_another_way(
    find: Find, judge: Callable[[Ints], int], length: int
) -> None:
    rng = np.random.default_rng(6)
    for spread in (3, 1000):
        scores = rng.integers(-spread, spread, (length, length + 1))
        # the more a word is like its neighbours, the deeper are the cycles within cycles
        words = np.arange(1, length + 1)
        scores -= spread // 3 * abs(words[:, None] - np.arange(length + 1))
        assert tree_scores(scores, (best(find, scores),))[0] == judge(scores)


tables = st.integers(1, 12).flatmap(
    lambda length: hypothesis_numpy.arrays(
        np.float32, (length, length + 1), elements=st.floats(width=32)
    )
)


@DECODERS
@given(scores=tables)
def test_whatever_the_scores_it_is_a_tree(scores: Floats, find: Find, every: Every) -> None:
    heads = best(find, scores)
    assert is_tree(heads)
    assert every is references.trees or is_projective(heads)


@DECODERS
@given(
    scores=hypothesis_numpy.arrays(
        np.int64, st.sampled_from([(4, 5), (5, 6)]), elements=st.integers(-9, 9)
    ),
    data=st.data(),
)
def test_arcs_that_are_forbidden_or_demanded(
    scores: Ints, data: st.DataObject, find: Find, every: Every
) -> None:
    """As few of the former and as many of the latter as can be; of those trees, the best one."""
    kinds = data.draw(
        hypothesis_numpy.arrays(np.int64, scores.shape, elements=st.sampled_from([0, 0, 0, 1, 2]))
    )
    marked = np.where(kinds == 1, -np.inf, np.where(kinds == 2, np.nan, scores))
    trees = every(len(scores))
    ranks = tree_scores(np.where(kinds, -1000, scores), trees)
    heads = best(find, marked)
    assert tree_scores(np.where(kinds, -1000, scores), (heads,))[0] == ranks.max()
    wanted = np.where(kinds, np.inf, scores)
    heads = best(find, wanted)
    ranks = tree_scores(np.where(kinds, 1000, scores), trees)
    assert tree_scores(np.where(kinds, 1000, scores), (heads,))[0] == ranks.max()
    # both at once: no number of demanded arcs is worth a forbidden one
    both = np.where(kinds == 1, -np.inf, np.where(kinds == 2, np.inf, scores))
    whole = np.where(kinds == 1, -100_000, np.where(kinds == 2, 1000, scores))
    heads = best(find, both)
    assert tree_scores(whole, (heads,))[0] == tree_scores(whole, trees).max()


@DECODERS
def test_the_diagonal_is_not_read(find: Find, every: object) -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(7, 8)).astype(np.float32)
    heads = best(find, scores)
    for value in (np.nan, np.inf, -np.inf, 3e38):
        scores[np.arange(7), np.arange(1, 8)] = value
        assert best(find, scores) == heads


@DECODERS
def test_of_no_sentence_and_of_wrong_numbers(find: Find, every: object) -> None:
    nothing = np.zeros(0, np.float32)
    assert find(nothing, int32([])).shape == (0,)
    with pytest.raises(ValueError, match="5 scores are not those of"):
        find(np.zeros(5, np.float32), int32([2]))
    with pytest.raises(ValueError, match="no words"):
        find(nothing, int32([0]))


def planted(rng: np.random.Generator, heads: Ints) -> Floats:
    """Scores by which a tree is the best one, by one for each word, and nothing else is known."""
    scores = rng.random((len(heads), len(heads) + 1), np.float32)
    scores[np.arange(len(heads)), heads] += 1
    return scores


def test_a_sentence_of_two_thousand_words() -> None:
    rng = np.random.default_rng(3)
    order = rng.permutation(2000)
    heads = np.zeros(2000, np.int32)
    for place, word in enumerate(order[1:], start=1):
        heads[word] = 1 + order[rng.integers(place)]
    scores = planted(rng, heads)
    assert best(spanning_trees, scores) == tuple(heads)
    assert len(heads) > LONGEST_PROJECTIVE
    assert best(projective_trees, scores) == tuple(heads)


def test_a_long_projective_tree() -> None:
    rng = np.random.default_rng(4)
    heads = np.zeros(120, np.int32)
    span = [(0, 120, 0)]
    while span:  # a root somewhere in each span, its head outside
        begin, end, head = span.pop()
        if begin < end:
            word = int(rng.integers(begin, end))
            heads[word] = head
            span += [(begin, word, word + 1), (word + 1, end, word + 1)]
    assert best(projective_trees, planted(rng, heads)) == tuple(heads)


# the N best trees, by the sorted enumeration of all trees
KINDS = pytest.mark.parametrize(
    ("projective", "every"), [(True, references.projective_trees), (False, references.trees)]
)


@KINDS
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_they_are_those_of_the_sorted_enumeration(
    length: int, projective: bool, every: Every
) -> None:
    rng = np.random.default_rng(length)
    for spread in (2, 50, 100_000):  # whole numbers: first many equal trees, last none
        for num in (1, 3, 40):
            scores = rng.integers(-spread, spread, (length, length + 1)).astype(np.float32)
            expected = np.sort(tree_scores(scores, every(length)))[::-1][:num]
            found = ranked_trees(scores, num, projective)
            np.testing.assert_array_equal([score for _, score in found], expected)
            heads = tuple(tuple(tree.tolist()) for tree, _ in found)
            np.testing.assert_array_equal(tree_scores(scores, heads), expected)
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
        assert all(is_projective(tuple(heads.tolist())) for heads, _ in found)
    ranks = [score for _, score in found]
    assert ranks == sorted(ranks, reverse=True)
    assert len({tuple(heads) for heads, _ in found}) == len(found)


@pytest.mark.parametrize("projective", [True, False])
def test_the_first_is_the_best_tree_and_a_long_sentence_is_no_burden(projective: bool) -> None:
    rng = np.random.default_rng(3)
    # more words than a projective tree is found for, in the end
    for length in (30, 200, LONGEST_PROJECTIVE + 1):
        find = projective_trees if projective else spanning_trees
        # whole numbers: many trees are as good as the best one
        scores = rng.integers(-9, 9, (length, length + 1)).astype(np.float32)
        found = ranked_trees(scores, 20, projective)
        np.testing.assert_array_equal(found[0][0], find(scores.ravel(), int32([length])))
        assert len({tuple(heads) for heads, _ in found}) == 20
