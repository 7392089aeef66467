"""Where tokens and sentences end: rules, scores and limits, by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.parsing.segmenter.characters import MAX_SENTENCE, code_points, may_end, sentence_ends
from seqtool.parsing.segmenter.rules import split_by_rules


def segmented(text: str, *, whole: bool = False) -> list[str]:
    """Sentences, with spaces between tokens."""
    spans = split_by_rules([code_points(text)], whole=whole)[0]
    tokens = [text[b:e] for b, e in zip(spans.begins, spans.ends, strict=True)]
    bounds = [0, *spans.sentence_ends]
    return [" ".join(tokens[b:e]) for b, e in pairwise(bounds)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hello, world! Yes.", ["Hello , world !", "Yes ."]),
        ('He said "No." Then he left.', ['He said " No . "', "Then he left ."]),
        ("(Really?) Yes...", ["( Really ? )", "Yes ..."]),
        ("it works. but slowly", ["it works . but slowly"]),
        ("Mr. A. Smith of the U.S. army", ["Mr. A. Smith of the U.S. army"]),
        ("$1,000.50 at 12:30, 3.", ["$ 1,000.50 at 12:30 , 3 ."]),
        ("don't l'eau dogs' O\u2019Neill", ["don't l'eau dogs ' O\u2019Neill"]),
        ("well-known snake_case", ["well - known snake_case"]),
        ("see www.a.org/b?c=1, or x.y@a-b.org.", ["see www.a.org/b?c=1 , or x.y@a-b.org ."]),
        ("a.b.c", ["a.b. c"]),
        ("\u4eca\u65e5\u306f\u3002\u30eb\u30fc\u30eb\uff01",
         ["\u4eca \u65e5 \u306f \u3002", "\u30eb\u30fc\u30eb \uff01"]),
        ("\uc548\ub155 \uc138\uc0c1. \ub124.", ["\uc548\ub155 \uc138\uc0c1 .", "\ub124 ."]),
        ("\u0646\u0639\u0645\u061f \u0644\u0627.", ["\u0646\u0639\u0645 \u061f", "\u0644\u0627 ."]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940\u0964 \u0939\u093e\u0901",
         ["\u0939\u093f\u0928\u094d\u0926\u0940 \u0964", "\u0939\u093e\u0901"]),
        ("\u0e2a\u0e27\u0e31\u0e2a", ["\u0e2a \u0e27\u0e31 \u0e2a"]),
        ("e\u0301t\u00e9", ["e\u0301t\u00e9"]),
        ("\U0001f469\u200d\U0001f467\U0001f600!!", ["\U0001f469\u200d\U0001f467 \U0001f600 !!"]),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", ["\U0001f1e9\U0001f1ea \U0001f1eb\U0001f1f7"]),
    ],
)  # fmt: skip
def test_text_is_split(text: str, sentences: list[str]) -> None:
    assert segmented(text) == sentences
    assert segmented(text, whole=True) == [" ".join(sentences)]


def test_a_long_text_without_points_is_cut() -> None:
    lengths = [len(sentence.split()) for sentence in segmented("ab " * 700 + "ab")]
    assert sum(lengths) == 701
    assert max(lengths) <= 300


def test_time_grows_with_the_text_alone() -> None:
    """What backtracks would take minutes for these."""
    for piece in ("a.", "a@", "-.", "1,", "www.", "''"):
        text = piece * 20_000
        assert "".join(segmented(text)).replace(" ", "") == text


def ends(
    scores: list[float], max_words: int, spaced: list[bool] | None = None, width: int = 2
) -> list[int]:
    """Of tokens of so many characters each."""
    num = len(scores)
    return sentence_ends(
        np.array(scores, np.float32),
        np.array(spaced or [True] * num),
        np.arange(1, num + 1) * width,
        max_words,
    )


def test_sentences_end_by_their_scores_and_long_ones_where_an_end_is_likeliest() -> None:
    assert ends([-1, 2, -1, 3, -1], 9) == [2, 4, 5]
    assert ends([-1], 9) == [1]
    # the later half of 4 words is the third and fourth
    assert ends([-1, -0.1, -3, -5, -1, -1], 4) == [3, 6]
    assert ends([-1, -1, -5, -3, -1, -1], 4) == [4, 6]
    # at whitespace if there is any
    assert ends([-1, -1, -5, -3, -1, -1], 4, [True, True, True, False, True, True]) == [3, 6]
    assert ends([-1, -1, -5, -3, -1, -1], 4, [False] * 6) == [4, 6]


def test_a_sentence_of_too_many_characters_is_cut() -> None:
    assert ends([-1, -2, -1, -1, -1], 100, width=MAX_SENTENCE // 2) == [2, 4, 5]
    # a token that is too long is a sentence
    assert ends([-1, -2, -1], 100, width=MAX_SENTENCE + 1) == [1, 2, 3]


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=40), st.integers(2, 7))
def test_no_sentence_is_too_long_and_no_end_is_lost(scores: list[float], max_words: int) -> None:
    found = ends(scores, max_words)
    assert found[-1] == len(scores)
    assert all(0 < end - begin <= max_words for begin, end in pairwise([0, *found]))
    assert {place + 1 for place, score in enumerate(scores[:-1]) if score > 0} <= set(found)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("ab", [0, 1]),
        ("a\u0301b", [1, 2]),  # a combining accent
        ("\u0928\u093f", [1]),  # a vowel sign
        ("\U0001f469\u200d\U0001f467!", [2, 3]),  # a family is one
        ("\U0001f44d\U0001f3fd", [1]),  # with its colour of skin
        ("a\u200d b", [1, 3]),
    ],
)
def test_tokens_end_between_what_is_seen_as_characters(text: str, allowed: list[int]) -> None:
    assert np.flatnonzero(may_end(code_points(text))).tolist() == allowed
