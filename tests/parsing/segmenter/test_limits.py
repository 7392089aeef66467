"""Where sentences may end, and where they must."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.parsing.segmenter import characters
from seqtool.parsing.segmenter.characters import code_points, may_end, sentence_ends


def ends(scores: list[float], max_words: int, spaced: list[bool] | None = None) -> list[int]:
    num = len(scores)
    return sentence_ends(
        np.array(scores, np.float32),
        np.array(spaced or [True] * num),
        np.arange(1, num + 1) * 2,
        max_words,
    )


def test_sentences_end_by_their_scores() -> None:
    assert ends([-1, 2, -1, 3, -1], 9) == [2, 4, 5]
    assert ends([-1], 9) == [1]


def test_a_long_sentence_is_cut_where_an_end_is_likeliest() -> None:
    # the later half of 4 words is the third and fourth
    assert ends([-1, -0.1, -3, -5, -1, -1], 4) == [3, 6]
    assert ends([-1, -1, -5, -3, -1, -1], 4) == [4, 6]
    # at whitespace if there is any
    assert ends([-1, -1, -5, -3, -1, -1], 4, [True, True, True, False, True, True]) == [3, 6]
    assert ends([-1, -1, -5, -3, -1, -1], 4, [False] * 6) == [4, 6]


def test_a_sentence_of_too_many_characters_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(characters, "MAX_SENTENCE", 5)  # two tokens of two characters
    assert ends([-1, -2, -1, -1, -1], 100) == [2, 4, 5]
    monkeypatch.setattr(characters, "MAX_SENTENCE", 1)  # a token that is too long is a sentence
    assert ends([-1, -2, -1], 100) == [1, 2, 3]


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
