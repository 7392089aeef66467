"""N-grams of texts, by hand."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.classification.config import ModelConfig
from seqtool.classification.ngrams import Bags, laid_out, ngrams_of, words_of


def test_words_are_apart_from_punctuation() -> None:
    plain = ModelConfig()
    words = ["I", "can't", ",", "John's", "\u00a3", "5", "!"]
    assert words_of("I can't, John's \u00a35!", plain) == words
    assert words_of("can\u2019t \uc548\ub155.", plain) == ["can\u2019t", "\uc548\ub155", "."]
    assert words_of("a, b", ModelConfig(split=False)) == ["a,", "b"]
    assert words_of(" \n", plain) == []


@pytest.mark.parametrize(
    "words",
    [
        ["\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u0948", "\u0964"],  # Hindi, vowel signs
        ["\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48", "!"],  # Thai, vowel and tone signs
        ["\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd", ","],  # Hebrew, points
        ["cafe\u0301", "d'e\u0301te\u0301", "."],  # accents that are characters of their own
        ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"],  # Persian, joined without a space
        ["\U0001f44d\U0001f3fd", "ok"],  # a sign with a colour of skin
    ],
)
def test_marks_are_of_the_word_before_them(words: list[str]) -> None:
    assert words_of(" ".join(words), ModelConfig()) == words
    without = ModelConfig(marks=False)
    plain = re.findall(r"\w+(?:['\u2019]\w+)*|[^\w\s]", " ".join(words))
    assert words_of(" ".join(words), without) == plain != words


def test_ngrams_of_words_and_characters() -> None:
    words = list(ngrams_of("Not good!", ModelConfig()))
    assert words == ["not", "good", "!", "not good", "good !"]
    config = ModelConfig(word_order=0, character_order=3, lowercase=False)
    characters = ["  A", " Ab", " b ", "  Ab", " Ab "]  # of " Ab ", behind a blank
    assert list(ngrams_of("Ab", config)) == characters


@given(st.lists(st.text("ab ", max_size=8), min_size=1, max_size=6), st.integers(1, 3))
def test_ngrams_of_enough_texts_are_known(texts: list[str], min_count: int) -> None:
    config = ModelConfig(min_count=min_count)
    bags = Bags.build(config, texts)
    having = {
        ngram: sum(ngram in set(ngrams_of(text, config)) for text in texts)
        for text in texts
        for ngram in ngrams_of(text, config)
    }
    assert set(bags.known) == {ngram for ngram, num in having.items() if num >= min_count}
    assert [having[ngram] for ngram in bags.known] == sorted(
        (having[ngram] for ngram in bags.known), reverse=True
    )
    for text in texts:
        expected = {ngram for ngram in ngrams_of(text, config) if ngram in bags.known}
        assert {bags.known[number] for number in bags.ids(text)} == expected


def test_hashed_ngrams_are_not_listed() -> None:
    bags = Bags.build(ModelConfig(buckets=7), ["a b", "c"])
    assert (bags.known, bags.num_features) == ((), 7)
    expected = sorted({zlib.crc32(ngram) % 7 for ngram in (b"a", b"b", b"a b")})
    assert bags.ids("a b") == expected


def test_a_text_has_length_one() -> None:
    ids, values, begins = laid_out([[3, 5, 6, 9], [], [1]])
    assert ids.tolist() == [3, 5, 6, 9, 1]
    np.testing.assert_array_equal(values, np.float32([0.5, 0.5, 0.5, 0.5, 1.0]))
    assert begins.tolist() == [0, 4, 4]
