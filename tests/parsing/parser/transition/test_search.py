"""The search, its best trees and arcs: against all derivations and against a greedy parser."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from parsing.parser.random_scores import (
    SEGMENTS,
    Tree,
    beams_of,
    best_tree,
    derivations,
    legal_log_probs,
    legal_transitions,
    random_scores,
)
from parsing.parser.references import is_tree
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config

from seqtool.core.arrays import Ints
from seqtool.parsing.parser.decoder import ArcTable
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.transition.arcs import arc_tables, hypotheses
from seqtool.parsing.parser.transition.search import search
from seqtool.parsing.parser.transition.transitions import (
    BUFFER,
    HEAD,
    LABEL,
    STACK,
    SYSTEMS,
    UNATTACHED,
    Configurations,
)
from seqtool.treebank.projectivity import LIFTED

ALL = list(SYSTEMS)


def parsed(system: str, lengths: list[int], **options: Any) -> list[Tree]:
    sizes = np.asarray(lengths, np.int32)
    tokens = (1 + np.cumsum(sizes + 1) - sizes - 1).astype(np.int32)
    num_rows = 1 + int((sizes + 1).sum())
    heads, labels = search(system, LABELS, tokens, sizes, num_rows, random_scores, **options)
    words = [slice(t + 1, t + 1 + n) for t, n in zip(tokens, sizes, strict=True)]
    return [(tuple(heads[w].tolist()), tuple(labels[w].tolist())) for w in words]


@pytest.mark.parametrize("system", ALL)
@pytest.mark.parametrize("length", [2, 3])
def test_an_unbounded_beam_is_exhaustive_search(system: str, length: int) -> None:
    assert parsed(system, [length], beam=4096, margin=math.inf) == [best_tree(system, length)]


def test_a_temperature_divides_the_scores() -> None:
    found = []
    for temperature in (0.5, 3.0, 50.0):
        found.append(best_tree("arc-eager", 3, temperature))
        options = {"margin": math.inf, "temperature": temperature}
        assert parsed("arc-eager", [3], beam=4096, **options) == [found[-1]]
        assert parsed("arc-eager", [3], **options) == parsed("arc-eager", [3])
    assert found[0] != found[2]


@pytest.mark.parametrize("system", ALL)
@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_do_not_depend_on_their_neighbours(
    system: str, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [1, 7, 2, 12, 5, 1, 3, 9, 4, 6]
    together = parsed(system, lengths, beam=beam)
    # so few rows that most sentences wait for a lane
    monkeypatch.setattr("seqtool.parsing.parser.transition.search.LANE_ROWS", 2 * beam)
    assert parsed(system, lengths, beam=beam) == together
    for length, (heads, labels) in zip(lengths, together, strict=True):
        assert is_tree(tuple(heads))
        roots = [label for head, label in zip(heads, labels, strict=True) if head == 0]
        assert roots == [len(LABELS.arcs)]
        assert len(heads) == length


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("system", ALL)
def test_whatever_the_scores_a_tree_comes_out(system: str, beam: int, bad: float) -> None:
    def scorer(batch: Configurations, which: Ints, scores: Any) -> None:
        scores[:] = bad

    sizes = np.asarray([6, 2], np.int32)
    tokens = np.asarray([1, 8], np.int32)
    heads, _ = search(system, LABELS, tokens, sizes, 11, scorer, beam=beam)
    assert is_tree(tuple(heads[2:8].tolist()))
    assert is_tree(tuple(heads[9:11].tolist()))


def test_hypotheses_far_behind_are_given_up() -> None:
    counts = []

    def counting(batch: Configurations, which: Ints, scores: Any) -> None:
        counts.append(len(which))
        random_scores(batch, which, scores)

    for margin in (0.01, math.inf):
        counts.append(-1)
        sizes = np.asarray([8], np.int32)
        search(
            "arc-standard", LABELS, np.ones(1, np.int32), sizes, 10, counting, beam=8, margin=margin
        )
    cut = counts.index(-1, 1)
    assert max(counts[1:cut]) < 4 < max(counts[cut + 1 :]) == 8


def test_nothing_to_parse() -> None:
    none = np.zeros(0, np.int32)
    heads, labels = search("swap", LABELS, none, none, 1, random_scores)
    assert (heads.tolist(), labels.tolist()) == ([-1], [-1])


def small_differences(batch: Configurations, which: Ints, scores: Any) -> None:
    """Each transition adds 100 to the score, and they differ by thousandths."""
    random_scores(batch, which, scores)
    scores *= 1e-3
    scores += 100.0


@pytest.mark.parametrize(
    ("system", "length", "scorer"),
    [*((system, 9, random_scores) for system in ALL), ("arc-standard", 700, small_differences)],
)
def test_a_beam_of_one_takes_the_best_transition_each_time(
    system: str, length: int, scorer: Any
) -> None:
    """At the end of a long sentence, too."""
    batch = Configurations(system, LABELS, 1, length)
    which, scores = np.zeros(1, np.int32), np.empty((1, LABELS.num_transitions), np.float32)
    one, lengths = np.ones(1, np.int32), np.asarray([length], np.int32)
    batch.start(which, one, lengths)
    while batch.configs[0, UNATTACHED]:
        scorer(batch, which, scores)
        best = max(legal_transitions(batch, 0), key=scores[0].__getitem__)
        batch.advance(which, np.asarray([best], np.int32))
    heads, labels = search(system, LABELS, one, lengths, length + 2, scorer)
    assert heads[2:].tolist() == batch.nodes[1 : length + 1, HEAD].tolist()
    assert labels[2:].tolist() == batch.nodes[1 : length + 1, LABEL].tolist()


def one(length: int) -> tuple[Any, Any]:
    return np.ones(1, np.int32), np.asarray([length], np.int32)


def table_of(system: str, length: int, beam: int) -> ArcTable:
    [table] = arc_tables(beams_of(system, [length], beam), LABELS, *one(length), random_scores)
    return table


@pytest.mark.parametrize("system", ALL)
def test_a_beam_of_all_derivations_ranks_all_trees(system: str) -> None:
    best: dict[Tree, float] = {}
    for tree, score, _ in derivations(system, 3):
        best[tree] = max(score, best.get(tree, -math.inf))
    [found] = hypotheses(beams_of(system, [3], 4096), *one(3), random_scores)
    scores: dict[Tree, float] = {}
    for heads, labels, score, *_ in found:
        scores.setdefault((tuple(heads.tolist()), tuple(labels.tolist())), score)
    assert scores == pytest.approx(best, abs=2e-3)  # each logarithm is to 0.0001
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


@pytest.mark.parametrize("system", ALL)
def test_a_beam_of_all_derivations_gives_the_marginals(system: str) -> None:
    marginals = np.zeros((3, 4))
    for (heads, _), score, _ in derivations(system, 3):
        marginals[np.arange(3), heads] += math.exp(score)
    assert marginals.sum(axis=1) == pytest.approx([1, 1, 1])
    probabilities = table_of(system, 3, 4096).probabilities
    sums = probabilities.sum(axis=1, keepdims=True)
    assert (sums <= 1 + 1e-5).all()
    assert probabilities / sums == pytest.approx(marginals, abs=2e-3)


def arcs_at(batch: Configurations, system: str) -> dict[int, tuple[int, int]]:
    """The arc, child and head, of each action that makes one."""
    base, _, length, size, front, _ = batch.configs[0]
    stack = batch.nodes[base : base + size, STACK].tolist()
    buffer = batch.nodes[base + front : base + length + 1, BUFFER].tolist()
    s0, s1 = stack[-1], stack[-2] if size > 1 else None
    b0 = buffer[0] if buffer else None
    return {
        "arc-standard": {2: (s1, s0), 3: (s0, s1), 4: (s0, s1)},
        "swap": {2: (s1, s0), 3: (s0, s1), 4: (s0, s1)},
        "arc-hybrid": {2: (s0, b0), 3: (s0, s1), 4: (s0, s1)},
        "arc-eager": {2: (s0, b0), 3: (b0, s0), 4: (b0, s0)},
    }[system]  # type: ignore[return-value]


@pytest.mark.parametrize("system", ALL)
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_one_hypothesis_by_hand(system: str, length: int) -> None:
    batch = Configurations(system, LABELS, 1, length)
    which = np.zeros(1, np.int32)
    batch.start(which, *one(length))
    expected = np.zeros((length, 1 + length))
    left = defaultdict(lambda: 1.0)
    chosen = set()
    while batch.configs[0, UNATTACHED]:
        log_probs = legal_log_probs(batch, 0)
        best = max(log_probs, key=log_probs.__getitem__)
        lost: dict[int, float] = defaultdict(float)
        for action, (child, head) in arcs_at(batch, system).items():
            inside = [t for t in range(SEGMENTS[action], SEGMENTS[action + 1]) if t in log_probs]
            if inside:
                probability = sum(math.exp(log_probs[t]) for t in inside)
                expected[child - 1, head] += left[child] * probability
                lost[child] += probability
            if best in inside:
                chosen.add(child)
        for child, probability in lost.items():
            left[child] *= 1 - probability
        batch.advance(which, np.asarray([best], np.int32))
    heads = batch.nodes[1 : length + 1, HEAD]
    for word in {*range(1, length + 1)} - chosen:
        expected[word - 1, heads[word - 1]] += left[word]
    table = table_of(system, length, 1)
    assert table.probabilities == pytest.approx(expected, abs=1e-5)
    words = np.arange(length)
    assert table.label_ids[words, heads].tolist() == batch.nodes[1 : length + 1, LABEL].tolist()
    assert (table.label_ids >= 0).sum() == (expected > 0).sum()


@pytest.mark.parametrize("system", ALL)
@pytest.mark.parametrize("beam", [1, 4])
def test_of_a_parser(system: str, beam: int) -> None:
    parser = random_parser(tiny_config(system))
    sentences = random_sentences(30, 9)
    arrays = parser.encode(sentences)
    trees = list(parser.trees(arrays, beam=beam))
    best = list(parser.ranked(arrays, 1, beam=beam))
    assert [(tree.heads, tree.deprels) for [tree] in best] == trees
    ranked = list(parser.ranked(arrays, 5, beam=beam))
    for sentence, found in zip(sentences, ranked, strict=True):
        # a word has no other tree; three labels and two heads make more than five of two words
        assert len(found) == (1 if len(sentence) == 1 else 5)
        assert len({(tuple(tree.heads), tuple(tree.deprels)) for tree in found}) == len(found)
        scores = [tree.score for tree in found]
        assert scores == sorted(scores, reverse=True)
        assert sum(map(math.exp, scores)) < 1.001
        for tree in found:
            assert len(tree.heads) == len(sentence)
            assert is_tree(tuple(tree.heads))
    for (heads, deprels), table in zip(trees, parser.arc_tables(arrays, beam=beam), strict=True):
        assert table.heads.tolist() == heads
        words = np.arange(len(heads))
        assert table.probabilities.shape == (len(heads), 1 + len(heads))
        assert (table.probabilities >= 0).all()
        assert (table.probabilities.sum(axis=1) <= 1 + 1e-5).all()
        assert (table.probabilities[words, heads] > 0).all()
        assert [parser.deprels[i] for i in table.label_ids[words, heads]] == deprels


@pytest.mark.parametrize("system", ALL)
def test_derivations_of_one_tree_take_no_place_of_another(system: str) -> None:
    parser = random_parser(tiny_config(system))
    arrays = parser.encode([*random_sentences(4, 3), *random_sentences(4, 6)])
    wide = [list(found) for found in parser.ranked(arrays, 1000)]
    for num in (3, 20, 40):
        for found, best in zip(parser.ranked(arrays, num), wide, strict=True):
            assert len(found) == min(num, len(best))
            scores = [tree.score for tree in found]
            assert scores == sorted(scores, reverse=True)
            # all derivations of a short sentence are in the wide beam
            if len(best[0].heads) <= 3:
                assert len(best) < 1000
                assert all(a <= b.score + 1e-3 for a, b in zip(scores, best, strict=False))


LIFTING = Labels(("nsubj", f"nsubj{LIFTED}obj", f"obj{LIFTED}nsubj"), ("root",))


@pytest.mark.parametrize("beam", [1, 3])
def test_lifted_arcs_are_put_back(beam: int) -> None:
    parser: Parser = random_parser(tiny_config("arc-hybrid"), LIFTING, seed=6)
    assert parser.deprels == (*LIFTING.names, "obj")
    arrays = parser.encode(random_sentences(40, 8))
    heads, label_ids = parser.heads_and_labels(arrays, beam=beam)
    num_moved = 0
    trees = zip(parser.trees(arrays, beam=beam), parser.ranked(arrays, 1, beam=beam), strict=True)
    tables = parser.arc_tables(arrays, beam=beam)
    plain = parser.decoder.arc_tables(arrays, beam=beam)
    for ((back, deprels), [ranked]), table, before, begin in zip(
        trees, tables, plain, arrays.tokens.tolist(), strict=True
    ):
        assert (ranked.heads, ranked.deprels) == (back, deprels)
        built = heads[begin + 1 : begin + 1 + len(back)]
        words = np.arange(len(back))
        num_moved += int((built != back).sum())
        assert table.heads.tolist() == back
        there, then = table.probabilities[words, back], before.probabilities[words, built]
        assert there.tolist() == then.tolist()
        assert [parser.deprels[i] for i in table.label_ids[words, back]] == deprels
        assert table.probabilities.sum() == pytest.approx(before.probabilities.sum())
    assert num_moved > 0
    names = [LIFTING.names[i] for i in label_ids[1:] if i >= 0]
    assert any(LIFTED in name for name in names)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beam", [1, 3])
def test_of_scores_that_are_no_numbers_no_arc_is_known(beam: int, bad: float) -> None:
    def scorer(batch: Configurations, which: Any, scores: Any) -> None:
        scores[:] = bad

    [table] = arc_tables(beams_of("arc-standard", [5], beam), LABELS, *one(5), scorer)
    assert np.isfinite(table.probabilities).all()
    assert (table.probabilities.sum(axis=1) <= 1).all()
