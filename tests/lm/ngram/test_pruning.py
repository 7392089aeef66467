"""Pruning by relative entropy, against a dictionary version of Stolcke's formulas."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.random_tables import build
from lm.ngram.references import EOS, Ngram, Rows, count, entries, look_up

from seqtool.lm.ngram.backoff import prune_by_entropy, restrict, with_weights
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.table import BackoffTable

SIZE = 7


def followers_of(rows: Rows) -> dict[Ngram, list[int]]:
    """The words that follow each context."""
    found: dict[Ngram, list[int]] = defaultdict(list)
    for ngram in rows:
        if len(ngram) > 1:
            found[ngram[:-1]].append(ngram[-1])
    return found


def sums(rows: Rows, context: Ngram, words: list[int]) -> tuple[float, float]:
    """What the words leave of the context's probability, and of that of the shorter context."""
    own = math.fsum(math.exp(look_up(rows, word, context)) for word in words)
    lower = math.fsum(math.exp(look_up(rows, word, context[1:])) for word in words)
    return 1 - own, 1 - lower


def weighed(rows: Rows, order: int) -> Rows:
    """The same n-grams with the backoffs that make every context sum to one."""
    rows = {ngram: (value, 0.0) for ngram, (value, _) in rows.items()}
    followers = followers_of(rows)
    for n in range(1, order):
        for context in [context for context in followers if len(context) == n]:
            left, left_below = sums(rows, context, followers[context])
            rows[context] = rows[context][0], math.log(left) - math.log(left_below)
    return rows


def pruned(rows: Rows, order: int, size: int, threshold: float) -> Rows:
    """Stolcke (1998), n-gram by n-gram, on dictionaries."""
    followers = followers_of(rows)
    kept = dict(rows)
    for n in range(order, 1, -1):
        for context, words in followers.items():
            if len(context) != n - 1:
                continue
            log_context = 0.0
            for i, word in enumerate(context):
                word = EOS if i == 0 and word == size else word
                log_context += look_up(rows, word, context[:i])
            left, left_below = sums(rows, context, words)
            for word in words:
                log_prob = rows[*context, word][0]
                lower = look_up(rows, word, context[1:])
                new = math.log(left + math.exp(log_prob)) - math.log(left_below + math.exp(lower))
                change = math.exp(log_prob) * (lower + new - log_prob)
                change += left * (new - rows[context][1])
                growth = math.expm1(-math.exp(log_context) * change)
                has_longer = any(other[:-1] == (*context, word) for other in kept)
                if growth < threshold and not has_longer:
                    del kept[*context, word]
    return weighed(kept, order)


def assert_same(table: BackoffTable, wanted: Rows) -> None:
    found = entries(table)
    assert found.keys() == wanted.keys()
    for ngram, (log_prob, backoff) in wanted.items():
        assert found[ngram][0] == log_prob
        assert found[ngram][1] == pytest.approx(backoff, abs=2e-6), ngram


def assert_sums_to_one(table: BackoffTable) -> None:
    rows = entries(table)
    for context in [(), *rows]:
        if len(context) < table.order and EOS not in context:
            words = range(table.vocabulary_size)
            total = math.fsum(math.exp(look_up(rows, word, context)) for word in words)
            assert total == pytest.approx(1, abs=2e-6), context


def trained(seed: int, order: int, smoothing: str) -> BackoffTable:
    generator = random.Random(seed)
    sentences = [
        [min(generator.randrange(2, SIZE), generator.randrange(2, SIZE)) for _ in range(length)]
        for length in [generator.randrange(1, 9) for _ in range(25)]
    ]
    config = NgramConfig(order=order, smoothing=smoothing)
    return estimate(count(sentences, order, SIZE), config).table


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 4),
    st.sampled_from(["modified-kneser-ney", "witten-bell", "absolute-discounting"]),
    st.floats(1e-6, 1e-2),
)
def test_equals_the_formulas(seed: int, order: int, smoothing: str, threshold: float) -> None:
    table = trained(seed, order, smoothing)
    wanted = pruned(entries(table), order, SIZE, threshold)
    found = prune_by_entropy(table, threshold)
    assert_same(found, wanted)
    assert_sums_to_one(found)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sets(st.integers(2, SIZE - 1)))
def test_restricted_to_some_words(seed: int, order: int, gone: set[int]) -> None:
    table = trained(seed, order, "modified-kneser-ney")
    allowed = np.array([word not in gone for word in range(SIZE + 1)])
    found = restrict(table, allowed)
    number = {int(word): i for i, word in enumerate(np.flatnonzero(allowed))}
    rows = entries(table)
    wanted = {
        tuple(number[word] for word in ngram): value
        for ngram, value in rows.items()
        if gone.isdisjoint(ngram)
    }
    mass = math.fsum(math.exp(rows[word,][0]) for word in {0, *gone})
    assert math.exp(entries(found)[0,][0]) == pytest.approx(mass, rel=1e-6)
    wanted[0,] = entries(found)[0,]
    assert_same(found, weighed(wanted, found.order))
    assert_sums_to_one(found)


def test_a_loss_by_hand() -> None:
    # <unk> .1, </s> .4, a .3, b .2; after a: a .5, so that b(a) = .5 / .7
    # without it b'(a) = 1: D = .3 {.5 ln(.5 / .3) + .5 ln((.5 / .7) / 1)} = .0261529
    rows = {
        (0,): (math.log(0.1), 0.0),
        (1,): (math.log(0.4), 0.0),
        (2,): (math.log(0.3), math.log(0.5 / 0.7)),
        (3,): (math.log(0.2), 0.0),
        (4,): (-99 * math.log(10), 0.0),
        (2, 2): (math.log(0.5), 0.0),
    }
    table = build(rows, 4, 2)
    growth = math.expm1(0.3 * (0.5 * math.log(0.5 / 0.3) + 0.5 * math.log(0.5 / 0.7)))
    assert growth == pytest.approx(0.0264979, abs=1e-7)
    assert prune_by_entropy(table, 0.026497).order == 2
    gone = prune_by_entropy(table, 0.026499)
    assert gone.order == 1
    np.testing.assert_array_equal(gone.levels[0].log_probs, table.levels[0].log_probs)


def test_a_threshold_of_nothing_keeps_all() -> None:
    table = trained(3, 4, "modified-kneser-ney")
    assert prune_by_entropy(table, 0) is table
    # what was estimated is what follows from the probabilities
    assert_same(with_weights(table), entries(table))


def test_weights_where_suffixes_are_no_rows() -> None:
    # "a b a" is a row and "b a" is none: p(a | b) = b(b) p(a)
    rows = {
        (0,): (math.log(0.1), 0.0),
        (1,): (math.log(0.4), 0.0),
        (2,): (math.log(0.3), 0.0),
        (3,): (math.log(0.2), 0.0),
        (4,): (-99 * math.log(10), 0.0),
        (2, 3): (math.log(0.5), 0.0),
        (2, 3, 2): (math.log(0.6), 0.0),
        (3, 1): (math.log(0.7), 0.0),
    }
    table = with_weights(build(rows, 4, 3))
    backoffs = {ngram: backoff for ngram, (_, backoff) in entries(table).items()}
    assert backoffs[(2,)] == pytest.approx(math.log(0.5 / 0.8), abs=1e-7)
    assert backoffs[(3,)] == pytest.approx(math.log(0.3 / 0.6), abs=1e-7)
    # p(a | b) = .5 * .3 = .15
    assert backoffs[(2, 3)] == pytest.approx(math.log(0.4 / 0.85), abs=1e-7)
    assert_sums_to_one(table)
