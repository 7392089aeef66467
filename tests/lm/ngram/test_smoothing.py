"""Smoothings against their dictionary versions, by hand, and as distributions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.references import Ngram, Reference, Rows, count, entries, look_up

from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.smoothing import Estimate, estimate, modified_discounts, single_discount

ALL = list(SMOOTHINGS)
SIZE = 5  # <unk>, </s> and three words; word 4 is in the vocabulary, but in no text
BOS, EOS, A, B = 5, 1, 2, 3


def estimated(sentences: Sequence[Sequence[int]], size: int = SIZE, **settings: Any) -> Estimate:
    config = NgramConfig(**settings)
    quirk = config.discounts == "kenlm"
    return estimate(count(sentences, config.order, size, kenlm_quirk=quirk), config)


def probabilities(
    sentences: Sequence[Sequence[int]], size: int = SIZE, **settings: Any
) -> dict[Ngram, float]:
    """The probability of every n-gram of the table."""
    rows = entries(estimated(sentences, size, **settings).table)
    return {ngram: math.exp(row[0]) for ngram, row in rows.items()}


@st.composite
def tasks(draw: st.DrawFn) -> tuple[list[list[int]], NgramConfig]:
    """A text over words 0, 2 and 3, and settings; some texts are long enough for discounts."""
    sentence = st.lists(st.sampled_from([0, 2, 3]), max_size=6)
    sentences = draw(st.lists(sentence, min_size=1, max_size=25))
    smoothing = draw(st.sampled_from(ALL))
    values: dict[str, Any] = {"order": draw(st.integers(1, 4)), "smoothing": smoothing}
    rises = draw(st.lists(st.integers(0, 2), max_size=values["order"]))
    values["prune"] = tuple(itertools.accumulate(rises[1:], initial=0))[: values["order"]]
    if smoothing == "add-k":
        values["add"] = draw(st.sampled_from([0.01, 1.0, 3.0]))
    if smoothing == "stupid-backoff":
        values["backoff"] = draw(st.sampled_from([0.1, 0.4, 1.0]))
    if smoothing == "modified-kneser-ney":
        values["fallback"] = draw(st.sampled_from([(0.5, 1.0, 1.5), (1.0, 2.0, 3.0), (0, 0, 0)]))
    return sentences, NgramConfig(**values)


def contexts(longest: int) -> list[Ngram]:
    """All contexts of an order, seen or not: with `<s>` at the front, or words only."""
    words = [w for w in range(SIZE) if w != EOS]
    result: list[Ngram] = []
    for length in range(longest + 1):
        inside = list(itertools.product(words, repeat=length))
        result += inside
        if length:
            result += [(BOS, *rest) for rest in itertools.product(words, repeat=length - 1)]
    return result


def assert_same(rows: Rows, reference: Reference, ngrams: Iterable[Ngram]) -> None:
    for *context, word in ngrams:
        expected = reference.probability(word, tuple(context))
        found = math.exp(look_up(rows, word, tuple(context)))
        assert found == pytest.approx(expected, rel=3e-6, abs=1e-8), (context, word)


@settings(max_examples=150)
@given(tasks())
def test_agrees_with_the_dictionary_version(task: tuple[list[list[int]], NgramConfig]) -> None:
    sentences, config = task
    rows = entries(estimate(count(sentences, config.order, SIZE), config).table)
    reference = Reference(sentences, SIZE, config)
    everything = itertools.product(contexts(min(config.order - 1, 2)), range(SIZE))
    assert_same(rows, reference, [(*context, word) for context, word in everything])
    assert_same(rows, reference, [ngram for ngram in reference.raw if ngram != (BOS,)])


@cache
def text(num_words: int, size: int) -> list[list[int]]:
    """Sentences of twelve words whose frequencies follow Zipf's law."""
    words = np.random.default_rng(1).zipf(1.3, size=num_words) % (size - 2) + 2
    return [words[i : i + 12].tolist() for i in range(0, num_words, 12)]


@pytest.mark.parametrize("prune", [(), (0, 0, 1)])
@pytest.mark.parametrize("smoothing", ALL)
def test_agrees_on_a_text_that_has_all_discounts(smoothing: str, prune: tuple[int, ...]) -> None:
    config = NgramConfig(order=3, smoothing=smoothing, prune=prune)
    result = estimate(count(text(3000, 400), 3, 400), config)
    assert result.warnings == []
    reference = Reference(text(3000, 400), 400, config)
    bigrams = [ngram for ngram in reference.raw if len(ngram) == 2]
    some = [ngram for ngram in reference.raw if ngram != (400,)][::7]
    unseen: list[Ngram] = [
        (*context, word) for context in bigrams[::50] for word in range(0, 400, 37)
    ]
    assert_same(entries(result.table), reference, some + unseen)


@settings(max_examples=150)
@given(tasks())
def test_sums_to_one_in_every_context(task: tuple[list[list[int]], NgramConfig]) -> None:
    sentences, config = task
    rows = entries(estimate(count(sentences, config.order, SIZE), config).table)
    assert all(log_prob <= 0 for log_prob, _ in rows.values())
    for context in contexts(config.order - 1):
        total = math.fsum(math.exp(look_up(rows, word, context)) for word in range(SIZE))
        assert total == pytest.approx(1, abs=2e-6)


@given(tasks())
def test_pruning_leaves_out_what_is_rare_and_nothing_else(
    task: tuple[list[list[int]], NgramConfig],
) -> None:
    sentences, config = task
    result = estimate(count(sentences, config.order, SIZE), config)
    reference = Reference(sentences, SIZE, config)
    kept = {ngram for ngram in reference.raw if reference.is_kept(ngram)}
    assert entries(result.table).keys() == kept | {(word,) for word in range(SIZE + 1)}
    assert [level["ngrams"] for level in result.statistics] == [
        len(level) for level in result.table.levels
    ]


# The text "a b / a" with a = 2, b = 3, <s> = 5; V = 5. Words: a 2, b 1, </s> 2, so c() = 5;
# after <s>: a 2; after a: b 1, </s> 1; after b: </s> 1.
HAND = [[A, B], [A]]
BY_HAND = {
    # 2/5, 1/5; a is followed by b in one of two
    "maximum-likelihood": {(A,): 2 / 5, (B,): 1 / 5, (4,): 0, (A, B): 1 / 2, (BOS, A): 1},
    # order 1 is uniform, 1/5; (1 + 1) / (2 + 5), (2 + 1) / (2 + 5)
    "add-k": {(A,): 1 / 5, (4,): 1 / 5, (A, B): 2 / 7, (BOS, A): 3 / 7},
    # Z() = 1; Z(a) = 1 + 0.4 (1 - p(b) - p(</s>)) = 1 + 0.4 * 2/5 = 1.16; Z(<s>) = 1 + 0.4 * 3/5
    "stupid-backoff": {(A,): 2 / 5, (4,): 0, (A, B): 0.5 / 1.16, (BOS, A): 1 / 1.24},
    # T() = 3: (2 + 3/5) / 8, (1 + 3/5) / 8, (3/5) / 8; then (1 + 2 * 0.2) / 4 and (2 + 0.325) / 3
    "witten-bell": {(A,): 0.325, (B,): 0.2, (4,): 0.075, (A, B): 0.35, (BOS, A): 0.775},
    # order 1: n1 = 1, n2 = 2, D = 1/5: (2 - 0.2 + 0.6/5) / 5 = 0.384, (1 - 0.2 + 0.12) / 5 = 0.184,
    # 0.12 / 5; order 2: n1 = 3, n2 = 1, D = 3/5: (1 - 0.6 + 1.2 * 0.184) / 2 after a and
    # (2 - 0.6 + 0.6 * 0.384) / 2 after <s>
    "absolute-discounting": {
        (A,): 0.384,
        (B,): 0.184,
        (4,): 0.024,
        (A, B): (0.4 + 1.2 * 0.184) / 2,
        (BOS, A): (1.4 + 0.6 * 0.384) / 2,
    },
    # different words before: a 1, b 1, </s> 2; n1 = 2, n2 = 1, D = 2/4:
    # (1 - 0.5 + 1.5/5) / 4 = 0.2; order 2 as above
    "kneser-ney": {
        (A,): 0.2,
        (B,): 0.2,
        (EOS,): (1.5 + 0.3) / 4,
        (4,): 0.3 / 4,
        (A, B): (0.4 + 1.2 * 0.2) / 2,
        (BOS, A): (1.4 + 0.6 * 0.2) / 2,
    },
    # no n3: D = 0.5, 1, 1.5; order 1: gamma = (0.5 + 0.5 + 1) / 4: (1 - 0.5 + 2/5) / 4 = 0.225,
    # (2 - 1 + 2/5) / 4; order 2: (1 - 0.5 + (0.5 + 0.5) * 0.225) / 2, (2 - 1 + 1 * 0.225) / 2
    "modified-kneser-ney": {
        (A,): 0.225,
        (B,): 0.225,
        (EOS,): 0.35,
        (4,): 0.1,
        (A, B): 0.3625,
        (BOS, A): 0.6125,
    },
}


@pytest.mark.parametrize("smoothing", ALL)
def test_numbers_derived_by_hand(smoothing: str) -> None:
    found = probabilities(HAND, order=2, smoothing=smoothing)
    for ngram, expected in BY_HAND[smoothing].items():
        assert found[ngram] == pytest.approx(expected, rel=1e-6), ngram
    assert math.log(found[BOS,]) == pytest.approx(-99 * math.log(10))


def test_discounts_of_the_paper() -> None:
    # Y = 100 / (100 + 80) = 5/9; 1 - 2 Y 40/100 = 5/9; 2 - 3 Y 20/40 = 7/6; 3 - 4 Y 10/20 = 17/9
    assert modified_discounts([100, 40, 20, 10]) == pytest.approx((5 / 9, 7 / 6, 17 / 9))
    assert single_discount([100, 40, 20, 10]) == pytest.approx((5 / 9, 5 / 9, 5 / 9))
    assert modified_discounts([100, 40, 20, 0]) == pytest.approx((5 / 9, 7 / 6, 3))
    for missing in range(3):
        numbers = [100, 40, 20, 10]
        numbers[missing] = 0
        assert modified_discounts(numbers) is None
        assert (single_discount(numbers) is None) == (missing < 2)
    # Y = 5/9 again: 2 - 3 * 5/9 * 60/40 = -0.5; and 3 - 4 * 5/9 * 40/20 = -1.4
    assert modified_discounts([100, 40, 60, 10]) is None
    assert modified_discounts([100, 40, 20, 40]) is None


def tallies(sentences: Sequence[Sequence[int]], **settings: Any) -> list[list[int]]:
    statistics = estimated(sentences, **settings).statistics
    return [level["counts_of_counts"] for level in statistics]


def test_kenlms_slip_moves_one_ngram_between_counts_of_counts() -> None:
    # "b" is the newest word, so comes last: it follows <s> and itself (2), but occurs 3 times
    sentences = [[A], [B, B, B]]
    # a 1 (<s>), b 2 (<s>, b), </s> 2 (a, b); pairs: <s> a, a </s>, <s> b, b </s> once, b b twice
    assert tallies(sentences, order=2) == [[1, 2, 0, 0], [4, 1, 0, 0]]
    assert tallies(sentences, order=2, discounts="kenlm") == [[1, 1, 1, 0], [4, 1, 0, 0]]


@pytest.mark.parametrize("smoothing", ALL)
def test_threads_change_nothing_and_counts_stay(
    smoothing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtool.lm.ngram.smoothing.ROWS_PER_THREAD", 500)
    config = NgramConfig(order=3, smoothing=smoothing, prune=(0, 0, 1))
    counts, untouched = (count(text(3000, 400), 3, 400) for _ in range(2))
    assert all(len(level) >= 3 * 500 for level in counts.levels[1:])
    one, three = (estimate(counts, config, threads=threads).table for threads in (1, 3))
    for name, array in one.arrays().items():
        assert array.tobytes() == three.arrays()[name].tobytes()
    for level, before in zip(counts.levels, untouched.levels, strict=True):
        for found, expected in zip(astuple(level), astuple(before), strict=True):
            assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"order": 0}, "order"),
        ({"smoothing": "kneserney"}, "kneserney"),
        ({"prune": [0, 2, 1]}, "decrease"),
        ({"prune": [1]}, "begin with 0"),
        ({"prune": [0, -1]}, "decrease"),
        ({"prune": [0, 0, 1], "order": 2}, "more numbers"),
        ({"fallback": [0.5]}, "three discounts"),
        ({"fallback": [0.5, 2.5, 1]}, "2.5"),
        ({"fallback": [float("nan"), 1, 1]}, "nan"),
        ({"add": 0.5}, "add-k"),
        ({"backoff": 1.5, "smoothing": "stupid-backoff"}, "at most 1"),
        ({"discounts": "kenlm", "smoothing": "absolute-discounting"}, "discounts"),
        ({"vocab": "words.txt", "min_count": 2}, "vocab"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        from_dict(NgramConfig, settings)
    assert caught.value.hint
