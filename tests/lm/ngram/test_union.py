"""Static interpolation, against a dictionary version."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.references import EOS, Ngram, Rows, count, entries, look_up
from lm.ngram.test_pruning import assert_sums_to_one, weighed

from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.table import BackoffTable
from seqtool.lm.ngram.union import aligned, interpolated, union_of

WORDS = "abcde"
Part = tuple[BackoffTable, Vocabulary]


def trained(seed: int, order: int, smoothing: str) -> Part:
    """A model over some of the words, in an order of its own."""
    generator = random.Random(seed)
    words = generator.sample(WORDS, generator.randrange(2, len(WORDS)))
    vocabulary = Vocabulary(["<unk>", "</s>", *words])
    sentences = [
        [generator.randrange(2, len(vocabulary)) for _ in range(generator.randrange(1, 7))]
        for _ in range(12)
    ]
    config = NgramConfig(order=order, smoothing=smoothing)
    return estimate(count(sentences, order, len(vocabulary)), config).table, vocabulary


def mixture(parts: list[Part], weights: list[float], union: Vocabulary) -> Rows:
    """The union of the n-grams, each with the weighted sum of what the parts give it."""
    dictionaries: list[Rows] = []
    for table, vocabulary in parts:
        numbers = [*union.encode(vocabulary.symbols).tolist(), len(union)]
        rows = {
            tuple(numbers[word] for word in ngram): value for ngram, value in entries(table).items()
        }
        for word in range(len(union)):  # of the others
            rows.setdefault((word,), (-math.inf, 0.0))
        dictionaries.append(rows)
    result: Rows = {}
    for ngram in {ngram for rows in dictionaries for ngram in rows}:
        probability = math.fsum(
            weight * math.exp(look_up(rows, ngram[-1], ngram[:-1]))
            for weight, rows in zip(weights, dictionaries, strict=True)
        )
        result[ngram] = math.log(probability), 0.0
    result[(len(union),)] = (-99 * math.log(10), 0.0)
    return weighed(result, max(table.order for table, _ in parts))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 4)), min_size=2, max_size=3),
    st.sampled_from(["modified-kneser-ney", "witten-bell"]),
    st.floats(0.1, 0.9),
)
def test_equals_the_definition(kinds: list[tuple[int, int]], smoothing: str, share: float) -> None:
    parts = [trained(seed, order, smoothing) for seed, order in kinds]
    weights = [share, *[(1 - share) / (len(parts) - 1)] * (len(parts) - 1)]
    union = union_of([vocabulary for _, vocabulary in parts])
    laid_out = aligned(*map(list, zip(*parts, strict=True)), union)
    for (table, vocabulary), other in zip(parts, laid_out, strict=True):
        for own, found in answers(table, vocabulary, other, union):
            assert found == pytest.approx(own, abs=2e-6)
    table = interpolated(laid_out, weights)
    wanted, rows = mixture(parts, weights, union), entries(table)
    assert rows.keys() == wanted.keys()
    for ngram, (log_prob, backoff) in wanted.items():
        assert rows[ngram][0] == pytest.approx(log_prob, abs=2e-6, rel=2**-23), ngram
        # b = left / left below: where little is left, rounding to float32 takes much of it
        assert math.exp(rows[ngram][1]) == pytest.approx(math.exp(backoff), abs=1e-4), ngram
    assert_sums_to_one(table)


def answers(
    table: BackoffTable, vocabulary: Vocabulary, other: BackoffTable, union: Vocabulary
) -> Iterator[tuple[float, float]]:
    """Every log-probability of a model by its table, and by another table."""
    numbers = [*union.encode(vocabulary.symbols).tolist(), len(union)]
    rows, other_rows = entries(table), entries(other)
    for ngram in rows:
        if len(ngram) < table.order and EOS not in ngram:
            context: Ngram = tuple(numbers[word] for word in ngram)
            for word in range(len(vocabulary)):
                yield look_up(rows, word, ngram), look_up(other_rows, numbers[word], context)
