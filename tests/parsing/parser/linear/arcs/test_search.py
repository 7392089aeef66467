"""Trees by scores of second order, against all trees and against features by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parsing.parser.linear.arcs.test_features import (
    FIELDS,
    places_of_arc,
    places_of_parts,
    types_of,
)
from parsing.parser.references import Heads, is_tree, non_projective_words, projective_trees, trees
from parsing.parser.tiny import LABELS, random_sentences

from seqtool.core.arrays import Floats
from seqtool.core.config import from_dict
from seqtool.parsing.encoding.features import TokenArrays, encode
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.linear.arcs import search
from seqtool.parsing.parser.linear.arcs.scorer import ArcScorer
from seqtool.parsing.parser.linear.arcs.search import Search
from seqtool.parsing.parser.linear.arcs.templates import (
    FIRST_ORDER,
    PAIR_TEMPLATES,
    SIBLING_TEMPLATES,
    atoms_of,
    compile_templates,
)
from seqtool.treebank.sentence import Sentence

NO_GRANDS = (*FIRST_ORDER, PAIR_TEMPLATES, SIBLING_TEMPLATES, ())
SETTINGS: dict[str, Any] = {"decoder": "graph", "classifier": "linear", "order": 2}


class Problem:
    """A sentence and random weights, as `Search` has them and as sums over features by name."""

    def __init__(self, sentence: Sentence, seed: int, *, grands: bool) -> None:
        types = types_of(sentence.rows)
        self.one: TokenArrays = encode([sentence], types)
        config = from_dict(ModelConfig, {**SETTINGS, "fields": FIELDS, "hash_bits": 16})
        self.scorer = ArcScorer(config, LABELS)
        if not grands:
            self.scorer.features = compile_templates(atoms_of(FIELDS), 16, NO_GRANDS)
        self.scorer.extend(types)
        generator = np.random.default_rng(seed)
        self.weights: Floats = generator.normal(size=(1 << 16) + len(LABELS)).astype(np.float32)
        self.num_words = len(sentence)

    def find(self, *, is_projective: bool) -> search.Found:
        found = Search([(self.scorer, self.weights)], 2, is_projective=is_projective)
        return found.find(self.one, found.arc_scores(self.one))

    def score(self, heads: Heads) -> float:
        """The sum of the weights of a tree's features."""
        read = self.scorer.features, self.one
        return sum(
            float(self.weights[places].sum(dtype=np.float64))
            for word, head in enumerate(heads, 1)
            for places in (places_of_arc(*read, head, word), places_of_parts(*read, [*heads], word))
        )


@pytest.mark.parametrize("seed", range(8))
def test_the_best_projective_tree_by_arcs_and_siblings(seed: int) -> None:
    for sentence in random_sentences(2, 6, seed):
        problem = Problem(sentence, seed, grands=False)
        found = problem.find(is_projective=True)
        scores = {tree: problem.score(tree) for tree in projective_trees(problem.num_words)}
        assert scores[tuple(found.heads.tolist())] == pytest.approx(max(scores.values()), abs=1e-3)


def neighbours(heads: Heads) -> list[tuple[int, int, Heads]]:
    """The trees that differ in the head of one word, with the word and its head there."""
    size = len(heads)
    changed = [
        (word, head, (*heads[: word - 1], head, *heads[word:]))
        for word in range(1, size + 1)
        for head in range(1, size + 1)
        if head != heads[word - 1]
    ]
    return [change for change in changed if is_tree(change[2])]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_projective", [True, False])
def test_no_tree_that_differs_in_one_head_is_better(seed: int, is_projective: bool) -> None:
    crossing = 0
    for sentence in random_sentences(3, 7, seed):
        problem = Problem(sentence, seed, grands=True)
        heads, gains = problem.find(is_projective=is_projective)
        best: Heads = tuple(heads.tolist())
        assert is_tree(best)
        crossing += len(non_projective_words(best))
        table, score = gains.reshape(problem.num_words, -1), problem.score(best)
        assert not table[np.arange(len(best)), best].any()
        for word, head, tree in neighbours(best):
            gain = problem.score(tree) - score
            assert table[word - 1, head] == pytest.approx(gain, abs=1e-3)
            assert gain < 1e-3 or (is_projective and non_projective_words(tree))
        # what a second root would bring; it is no tree, but scores of arcs have it
        for word in range(1, problem.num_words + 1):
            gain = problem.score((*best[: word - 1], 0, *best[word:])) - score
            assert table[word - 1, 0] == pytest.approx(gain, abs=1e-3)
    assert not crossing or not is_projective


@pytest.mark.parametrize(("is_projective", "least"), [(True, 22), (False, 18)])
def test_most_trees_are_the_best_of_all(is_projective: bool, least: int) -> None:
    # weights drawn at random are harder than those that are learnt
    right = 0
    for seed in range(30):
        (sentence,) = random_sentences(1, 5, seed)
        problem = Problem(sentence, seed, grands=True)
        possible = projective_trees if is_projective else trees
        best = max(problem.score(tree) for tree in possible(problem.num_words))
        score = problem.score(tuple(problem.find(is_projective=is_projective).heads.tolist()))
        assert score <= best + 1e-3
        right += score > best - 1e-3
    assert right >= least


def test_ranked_trees_are_ranked_by_their_scores() -> None:
    num_better = 0
    for seed, sentence in enumerate(random_sentences(30, 5, 3)):
        problem = Problem(sentence, seed, grands=True)
        searched = Search([(problem.scorer, problem.weights)], 2, is_projective=False)
        found, ranked = searched.ranked(problem.one, 4)
        first = problem.score(tuple(found.heads.tolist()))
        for heads, score in ranked:
            exact = problem.score(tuple(heads.tolist())) - first
            assert score == pytest.approx(exact, abs=1e-3)
        # a better tree, which differs in several heads, stands above what was found
        num_better += ranked[0][1] > 1e-3
        (only,) = searched.ranked(problem.one, 1)[1]
        assert np.array_equal(only[0], found.heads)
        scores = [score for _, score in ranked]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(heads.tolist()) for heads, _ in ranked}) == len(ranked)
    assert 0 < num_better < 15


def test_long_sentences_are_parsed_by_arcs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    (sentence,) = random_sentences(1, 9, 5)
    problem = Problem(sentence, 0, grands=True)
    assert problem.num_words > 3
    monkeypatch.setattr(search, "LONGEST_SECOND", 3)
    found = problem.find(is_projective=True)
    first = Search([(problem.scorer, problem.weights)], 1, is_projective=True)
    assert np.array_equal(found.heads, first.trees(problem.one))
