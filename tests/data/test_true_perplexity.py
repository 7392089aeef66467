"""The recorded true perplexity: computed again, and a floor for models of the text."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import make_sample
import pytest
from grammar import Pcfg
from inside import InsideParser

Record = dict[str, dict[str, dict[str, Any]]]


@pytest.mark.parametrize("code", ["en", "ko"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_record_is_what_the_grammar_gives(
    shipped: Any, parsers: dict[str, InsideParser], record: Record, code: str, split: str
) -> None:
    sentences = shipped.sentences(code, split)
    nats = make_sample.log_probability_nats(parsers[code], sentences)
    tokens = sum(len(sentence) + 1 for sentence in sentences)
    entry = record[code][split]
    assert math.exp(-nats / tokens) == pytest.approx(entry["perplexity"], rel=1e-9)
    assert nats / math.log(10) == pytest.approx(entry["log10_probability"], rel=1e-9)


@pytest.mark.parametrize("code", ["en", "ko"])
def test_a_string_is_at_least_as_probable_as_the_tree_it_was_drawn_with(
    grammars: dict[str, Pcfg], parsers: dict[str, InsideParser], code: str
) -> None:
    language = make_sample.LANGUAGES[code]
    several = 0
    for split, derivations in make_sample.splits(language, grammars[code]):
        for derivation in derivations if split == "test" else ():
            tokens = make_sample.tokens_of(derivation, language.lowercase)
            whole = math.log(parsers[code].probability(tokens))
            assert whole >= derivation.log_probability_nats - 1e-9
            several += whole > derivation.log_probability_nats + 1e-6
    assert several  # some are ambiguous


def test_agreement_decides_what_is_a_sentence(parsers: dict[str, InsideParser]) -> None:
    english, korean = parsers["en"], parsers["ko"]
    assert english.probability(["the", "old", "dog", "does", "n't", "bark", "."]) > 0
    assert english.probability(["the", "old", "dog", "do", "n't", "bark", "."]) == 0
    assert (
        english.probability(["the", "dogs", "that", "chased", "the", "cat", "were", "barking", "."])
        > 0
    )
    assert (
        english.probability(["the", "dogs", "that", "chased", "the", "cat", "was", "barking", "."])
        == 0
    )
    assert english.probability(["he", "ate", "an", "old", "apple", "."]) > 0
    assert english.probability(["he", "ate", "a", "old", "apple", "."]) == 0
    assert korean.probability(["할머니께서", "사과를", "드셨다", "."]) > 0
    assert korean.probability(["할머니께서", "사과를", "먹었다", "."]) == 0


def bigram_perplexity(train: list[list[str]], test: list[list[str]]) -> tuple[float, float]:
    """Perplexity of a unigram and of a bigram model, each mixed with simpler ones (a proper
    distribution over the training words, `</s>` and one unknown word)."""
    unigrams: Counter[str] = Counter()
    bigrams: Counter[tuple[str, str]] = Counter()
    contexts: Counter[str] = Counter()
    for sentence in train:
        padded = ["<s>", *sentence, "</s>"]
        unigrams.update(padded[1:])
        bigrams.update(pairwise(padded))
        contexts.update(padded[:-1])
    total, size = sum(unigrams.values()), len(unigrams) + 1
    nats_unigram = nats_bigram = 0.0
    tokens = 0
    for sentence in test:
        padded = ["<s>", *sentence, "</s>"]
        for before, word in pairwise(padded):
            unigram = 0.99 * unigrams[word] / total + 0.01 / size
            seen = contexts[before]
            bigram = bigrams[before, word] / seen if seen else unigram
            nats_unigram -= math.log(unigram)
            nats_bigram -= math.log(0.9 * bigram + 0.1 * unigram)
            tokens += 1
    return math.exp(nats_unigram / tokens), math.exp(nats_bigram / tokens)


@pytest.mark.parametrize("code", ["en", "ko"])
def test_no_simple_model_falls_below_it(shipped: Any, record: Record, code: str) -> None:
    unigram, bigram = bigram_perplexity(
        shipped.sentences(code, "train"), shipped.sentences(code, "test")
    )
    assert unigram > bigram > record[code]["test"]["perplexity"]
