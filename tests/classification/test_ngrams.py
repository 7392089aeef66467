"""N-grams of texts, by hand."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_ngrams_of_words_and_characters() -> None:
    words = list(ngrams_of("Not good!", ModelConfig()))
    assert words == ["not", "good", "!", "not good", "good !"]
    config = ModelConfig(word_order=0, character_order=3, lowercase=False)
    characters = ["  A", " Ab", " b ", "  Ab", " Ab "]  # of " Ab ", behind a blank
    assert list(ngrams_of("Ab", config)) == characters


def test_ngrams_of_enough_texts_are_known() -> None:
    texts = ["a b", "b a b", "b c"]
    # in texts: b 3; a 2, "a b" 2; c 1, "b a" 1, "b c" 1
    bags = Bags.build(ModelConfig(min_count=2), texts)
    assert bags.known == ("b", "a", "a b")
    assert [bags.ids(text) for text in [*texts, "b b", "c"]] == [[0, 1, 2], [0, 1, 2], [0], [0], []]


def test_a_text_has_length_one() -> None:
    ids, values, begins = laid_out([[3, 5, 6, 9], [], [1]])
    assert ids.tolist() == [3, 5, 6, 9, 1]
    np.testing.assert_array_equal(values, np.float32([0.5, 0.5, 0.5, 0.5, 1.0]))
    assert begins.tolist() == [0, 4, 4]
