"""The search: against exhaustive search, and against a plain greedy parser."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from parsing.parser.random_scores import Tree, best_tree, legal_transitions, random_scores
from parsing.parser.references import is_tree
from parsing.parser.tiny import LABELS

from seqtool.core.arrays import Ints
from seqtool.parsing.parser.transition.search import search
from seqtool.parsing.parser.transition.transitions import (
    HEAD,
    LABEL,
    SYSTEMS,
    UNATTACHED,
    Configurations,
)

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
