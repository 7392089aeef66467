"""Transition systems and oracles against those of the textbook, by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from parsing.parser.references import (
    Heads,
    all_configurations,
    forced,
    initial,
    int32,
    is_tree,
    least_loss,
    legal,
    load,
    non_projective_words,
    projective_trees,
    reachable,
    snapshot,
)
from parsing.parser.references import trees as all_trees

from seqtool.core.arrays import Ints
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.oracles import ILLEGAL, Oracle
from seqtool.parsing.parser.transition.transitions import (
    HEAD,
    LEFT,
    NUM_ACTIONS,
    REDUCE,
    ROOT,
    SYSTEMS,
    TOKENS,
    Configurations,
)

ALL = list(SYSTEMS)
LABELS = Labels(("nsubj", "obj", "det"), ("root", "root:x"))
LONGEST = {system: 5 if SYSTEMS[system].projective else 4 for system in ALL}


def start(system: str, lengths: list[int], labels: Labels = LABELS) -> tuple[Configurations, Ints]:
    batch = Configurations(system, labels, len(lengths), max(lengths))
    which = np.arange(len(lengths), dtype=np.int32)
    tokens = 1 + np.concatenate([[0], np.cumsum(np.array(lengths) + 1)[:-1]])
    batch.start(which, int32(tokens), int32(lengths))
    return batch, which


def trees(batch: Configurations, which: Ints, lengths: list[int]) -> list[tuple[Heads, Heads]]:
    """Heads and label ids of final configurations."""
    heads = np.full(1 + sum(lengths) + len(lengths), -7, np.int32)
    labels = heads.copy()
    batch.collect(which, heads, labels)
    found, begin = [], 2
    for length in lengths:
        words = slice(begin, begin + length)
        found.append((tuple(heads[words].tolist()), tuple(labels[words].tolist())))
        begin += length + 1
    return found


def run(batch: Configurations, which: Ints, choose: Any) -> int:
    """Go on to the end with the transitions of choose(masks); returns the number of steps."""
    steps = 0
    active = batch.unfinished(which)
    while len(active):
        batch.advance(active, choose(batch.legal(active)))
        active = batch.unfinished(active)
        steps += 1
    return steps


@pytest.mark.parametrize("system", ALL)
def test_legal_is_whatever_can_still_end_in_a_tree_with_one_root(system: str) -> None:
    for length in range(1, LONGEST[system] + 1):
        batch = Configurations(system, LABELS, 1, length)
        for config in all_configurations(system, length):
            load(batch, 0, config)
            assert batch.legal(int32([0])) == sum(1 << action for action in legal(system, config))


@pytest.mark.parametrize("system", ALL)
def test_each_action_does_what_the_textbook_says(system: str) -> None:
    """All columns of all configurations; then on while there is nothing to choose."""
    for length in range(1, LONGEST[system] + 1):
        batch, expected = (Configurations(system, LABELS, 2, length) for _ in range(2))
        for config in all_configurations(system, length):
            for action, following in legal(system, config).items():
                load(batch, 1, config)
                batch.advance(int32([1]), LABELS.segments[action : action + 1])
                load(expected, 1, forced(system, following))
                np.testing.assert_array_equal(*(snapshot(each, 1) for each in (batch, expected)))


@pytest.mark.parametrize("system", ALL)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
    odd=st.sampled_from([0.0, np.nan, np.inf, -np.inf]),
)
def test_any_scores_end_in_a_tree(system: str, lengths: list[int], seed: int, odd: float) -> None:
    rng = np.random.default_rng(seed)

    def choose(masks: Any) -> Ints:
        scores = rng.standard_normal((len(masks), LABELS.num_transitions)).astype(np.float32)
        scores[rng.random(scores.shape) < 0.3] = odd
        return batch.choose(masks, scores)

    batch, which = start(system, lengths)
    steps = run(batch, which, choose)
    longest = max(lengths)
    # arc-eager pushes n words and pops what has been pushed; swap may also swap each pair once
    assert steps <= 2 * longest + (longest * (longest - 1) if system == "swap" else 0)
    for length, (heads, labels) in zip(lengths, trees(batch, which, lengths), strict=True):
        assert length == 0 or is_tree(heads)
        for head, label in zip(heads, labels, strict=True):
            assert label in ((3, 4) if head == 0 else (0, 1, 2))


@given(
    masks=st_numpy.arrays(np.uint8, 5, elements=st.integers(0, 31)),
    scores=st_numpy.arrays(
        np.float32, (5, LABELS.num_transitions), elements=st.sampled_from([-2.0, 0.5, 3.0])
    ),
)
def test_the_best_legal_transition_is_chosen(masks: Any, scores: Any) -> None:
    batch = Configurations("swap", LABELS, 1, 1)
    for mask, row, best in zip(masks, scores, batch.choose(masks, scores), strict=True):
        allowed = [
            transition
            for action in range(NUM_ACTIONS)
            for transition in range(LABELS.segments[action], LABELS.segments[action + 1])
            if mask >> action & 1
        ]
        assert best == max(allowed, key=lambda transition: row[transition], default=-1)


def test_labels_and_sides() -> None:
    """Of w1 <- w2 -> w3 in arc-standard: numbers by the table in `states`, with A = 3."""
    batch, which = start("arc-standard", [3])
    # begins at [ROOT w1 w2] w3, as up to there there is nothing to choose but to shift
    assert batch.legal(which) == 0b1101
    batch.advance(which, int32([2 + 1]))  # w1 <- w2, obj; then SHIFT is the only one
    assert batch.legal(which) == 0b1100
    batch.advance(which, int32([2 + 3 + 2]))  # w2 -> w3, det
    assert batch.legal(which) == 1 << ROOT
    batch.advance(which, int32([2 + 3 + 3 + 1]))  # ROOT -> w2, root:x
    assert trees(batch, which, [3]) == [((2, 0, 2), (1, 4, 2))]


def test_what_is_not_legal_is_refused() -> None:
    batch, which = start("arc-hybrid", [4, 4])
    first = batch.legal(which)
    for transition in (-1, 1, LABELS.segments[ROOT], LABELS.num_transitions, 1000):
        with pytest.raises(ValueError, match=rf"transition {transition} is not legal in .* 1$"):
            batch.advance(which[1:], int32([transition]))
    assert (batch.legal(which) == first).all()
    with pytest.raises(ValueError, match="longer than 4 words"):
        batch.start(which, int32([1, 6]), int32([4, 5]))


def test_labels_of_a_treebank() -> None:
    trees = [
        ([2, 0, 2], ["det", "root", "obj"]),
        ([0, 1, 1], ["root:x", "obj", "obj"]),
        ([2, 0], ["root", "dep"]),  # wrong twice, by Universal Dependencies
        ([2, 0], ["det", "root"]),
    ]
    labels = Labels.of(trees)
    assert labels == Labels(("obj", "det"), ("root", "root:x"))
    assert labels.names == ("obj", "det", "root", "root:x")
    assert len(labels) == 4
    # SHIFT, REDUCE, two LEFT, two RIGHT, two from ROOT
    assert labels.num_transitions == 8
    assert labels.segments.tolist() == [0, 1, 2, 4, 6, 8]
    assert labels.ids(*trees[1]) == [3, 0, 0]
    assert labels.ids(*trees[2]) == [0, 2]


def test_labels_of_a_treebank_with_other_names() -> None:
    """Where no arc from ROOT bears `root`, a label may stand on both kinds of arcs."""
    labels = Labels.of([([0, 1], ["PRED", "PRED"]), ([2, 0], ["SB", "PRED"])])
    assert labels == Labels(("PRED", "SB"), ("PRED",))
    assert labels.ids([0, 1], ["PRED", "PRED"]) == [2, 0]
    assert Labels.of([]) == Labels(("dep",), ("root",))


def test_the_reference_finds_the_known_numbers_of_trees() -> None:
    """Of n words: (3n - 2 choose n - 1) / n projective ones with one root, n^(n - 1) in all."""
    for length in range(1, 7):
        projective = math.comb(3 * length - 2, length - 1) // length
        assert len(projective_trees(length)) == projective
        assert len(all_trees(length)) == length ** (length - 1)
        for system in ALL:
            if length <= LONGEST[system]:
                known = projective_trees if SYSTEMS[system].projective else all_trees
                assert reachable(system, initial(length)) == set(known(length))


@pytest.mark.parametrize("system", ALL)
def test_two_thousand_words(system: str) -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((1, LABELS.num_transitions), np.float32)
    scores[0, LEFT] = 2.0
    batch, which = start(system, [2000])
    run(batch, which, lambda masks: batch.choose(masks, scores))
    [(heads, _)] = trees(batch, which, [2000])
    assert heads.count(0) == 1
    assert (batch.nodes[1:, HEAD] >= 0).all()


DYNAMIC = [name for name, system in SYSTEMS.items() if system.dynamic]


def label_ids(heads: Heads) -> list[int]:
    """Some labels for a tree."""
    return [word % 3 if head else 3 + word % 2 for word, head in enumerate(heads, 1)]


class Treebank:
    """Trees as token arrays, an oracle for them, and a configuration for each, not begun."""

    def __init__(self, system: str, trees: Sequence[Heads]) -> None:
        lengths = [len(tree) for tree in trees]
        self.lengths = int32(lengths)
        self.tokens = int32(1 + np.concatenate([[0], np.cumsum(self.lengths + 1)[:-1]]))
        self.heads = np.full(1 + sum(lengths) + len(trees), -1, np.int32)
        self.labels = self.heads.copy()
        for token, tree in zip(self.tokens, trees, strict=True):
            self.heads[token + 1 : token + 1 + len(tree)] = tree
            self.labels[token + 1 : token + 1 + len(tree)] = label_ids(tree)
        self.oracle = Oracle(system, LABELS, self.heads, self.labels, self.tokens, self.lengths)
        self.batch = Configurations(system, LABELS, len(trees), max(lengths))
        self.which = np.arange(len(trees), dtype=np.int32)

    def start(self) -> Ints:
        self.batch.start(self.which, self.tokens, self.lengths)
        return self.batch.unfinished(self.which)

    def results(self) -> tuple[Ints, Ints]:
        heads, labels = np.full_like(self.heads, -1), np.full_like(self.heads, -1)
        self.batch.collect(self.which, heads, labels)
        return heads, labels

    def costs(self, which: Ints) -> Ints:
        return self.oracle.costs(self.batch, which, self.batch.legal(which))


def rebuild(treebank: Treebank) -> Ints:
    """Go on to the end as the static oracle says; how many swaps each tree takes."""
    swaps = np.zeros(len(treebank.which), np.int32)
    active = treebank.start()
    while len(active):
        transitions = treebank.oracle.transitions(treebank.batch, active)
        swaps[active] += transitions == REDUCE
        treebank.batch.advance(active, transitions)
        active = treebank.batch.unfinished(active)
    return swaps


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_the_static_oracle_rebuilds_every_tree_up_to_six_words(system: str) -> None:
    """And swaps where arcs cross only."""
    every = projective_trees if SYSTEMS[system].projective else all_trees
    for length in range(1, 7):
        treebank = Treebank(system, every(length))
        swaps = rebuild(treebank)
        for found, gold in zip(treebank.results(), (treebank.heads, treebank.labels), strict=True):
            np.testing.assert_array_equal(found, gold)
        if system == "swap" and length < 6:
            crossing = [bool(non_projective_words(tree)) for tree in every(length)]
            assert (swaps > 0).tolist() == crossing


def test_the_swap_oracle_is_lazy() -> None:
    # Nivre, Kuhlmann & Hall 2009, figure 1: "A hearing is scheduled on the issue today ."
    # projective order A hearing on the issue is scheduled today .
    # `on the issue` is joined first, then passes `scheduled` and `is`: two swaps, one pair each
    # (without being lazy: each of its three words passes both)
    assert rebuild(Treebank("swap", [(2, 3, 0, 3, 2, 7, 5, 4, 3)])).tolist() == [2]


@pytest.mark.parametrize("system", DYNAMIC)
@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
def test_the_dynamic_oracle_costs_what_brute_force_says(system: str, length: int) -> None:
    """All configurations with all trees up to five words; a sample of both for six."""
    rng = np.random.default_rng(length)
    golds = list(projective_trees(length))
    places = list(all_configurations(system, length))
    if length > 5:
        golds = [golds[index] for index in rng.choice(len(golds), 100, replace=False)]
        places = [places[index] for index in rng.choice(len(places), 300, replace=False)]
    treebank = Treebank(system, golds)
    wanted = np.array(golds)

    def loss(place: object) -> Ints:
        """The least loss against each of the gold trees."""
        ends = np.array(sorted(reachable(system, place)))  # type: ignore[arg-type]
        least: Ints = (ends[:, None] != wanted).sum(axis=2).min(axis=0)
        return least

    for place in places:
        load(treebank.batch, 0, place)
        treebank.batch.copy(np.zeros(len(golds) - 1, np.int32), treebank.which[1:])
        treebank.batch.configs[:, TOKENS] = treebank.tokens
        expected = np.full((len(golds), NUM_ACTIONS), ILLEGAL)
        for action, following in legal(system, place).items():
            expected[:, action] = loss(following) - loss(place)
        np.testing.assert_array_equal(treebank.costs(treebank.which), expected, str(place))


@pytest.mark.parametrize("system", DYNAMIC)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 7))
def test_zero_cost_transitions_lead_to_the_best_tree(system: str, seed: int, length: int) -> None:
    """From any configuration: as many right heads as can be had, all with their gold labels."""
    rng = np.random.default_rng(seed)
    ends = sorted(reachable("arc-standard", initial(length)))
    gold = ends[rng.integers(len(ends))]
    treebank = Treebank(system, [gold])
    batch, which = treebank.batch, treebank.which
    place = initial(length)
    for _ in range(rng.integers(2 * length)):
        following = list(legal(system, place).values())
        if not following or -1 not in following[0].heads:
            break
        place = following[rng.integers(len(following))]
    load(batch, 0, place)
    attached = {word for word, head in enumerate(place.heads, 1) if head >= 0}
    active = which
    while len(active):
        costs, targets = treebank.costs(active)[0], treebank.oracle.targets(batch, active)[0]
        action = rng.choice(np.flatnonzero(costs == 0))
        transition = targets[action]
        if transition < 0:  # the arc is wrong whatever its label
            transition = LABELS.segments[action]
        batch.advance(active, int32([transition]))
        active = batch.unfinished(active)
    heads, labels = (tuple(each[2:].tolist()) for each in treebank.results())
    assert is_tree(heads)
    wrong = {word for word in range(1, length + 1) if heads[word - 1] != gold[word - 1]}
    assert len(wrong) == least_loss(system, place, gold)
    for word in set(range(1, length + 1)) - wrong - attached:
        assert labels[word - 1] == label_ids(gold)[word - 1]


def test_targets_name_the_gold_label_of_the_dependent() -> None:
    """w1 <- w2 -> w3 with A = 3 labels of arcs: LEFT 2.., RIGHT 5.., from ROOT 8.. (`states`)."""
    gold = (2, 0, 2)  # labels 1, 3, 0: obj, root, nsubj
    assert label_ids(gold) == [1, 3, 0]
    expected = {
        # [ROOT w1 w2] w3: the dependent of LEFT is w1, that of RIGHT w2, which is the root
        "arc-standard": [0, 1, 2 + 1, -1, 8],
        # [ROOT w1] w2 w3: both is w1
        "arc-hybrid": [0, 1, 2 + 1, 5 + 1, -1],
        # [ROOT] w1 w2 w3: there is no LEFT, and RIGHT would attach w1
        "arc-eager": [0, 1, -1, 5 + 1, -1],
    }
    for system, targets in expected.items():
        treebank = Treebank(system, [gold])
        active = treebank.start()
        assert treebank.oracle.targets(treebank.batch, active).tolist() == [targets]


def test_trees_that_a_system_cannot_build_are_refused() -> None:
    for system in SYSTEMS:
        trees = [(2, 0), (0, 4, 1, 1)]  # w4 -> w2 crosses w1 -> w3
        if SYSTEMS[system].projective:
            with pytest.raises(ValueError, match=f"tree 1 is not projective, as {system} needs"):
                Treebank(system, trees)
        else:
            treebank = Treebank(system, trees)
            with pytest.raises(ValueError, match="no dynamic oracle"):
                treebank.costs(treebank.start())
