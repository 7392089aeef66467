"""The cache: its definition as a loop, worked examples, probabilities that sum to one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import TrigramModel, generate_samples, random_bigrams, two_words, word_tokenizer

from seqtool.core.arrays import Doubles, Ids
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.mixture import cache as module
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.config import CacheConfig
from seqtool.lm.mixture.model import MixedModel, source_of

WORDS = ["the", "old", "man", "sleeps", "here"]
UNITS = 3


class WithStates(TrigramModel):
    """A model whose state is a random vector for the last two tokens."""

    def __init__(self, seed: int) -> None:
        super().__init__(word_tokenizer(WORDS), seed)
        size = len(self.tokenizer.vocabulary) + 1
        self.vectors = np.random.default_rng(seed).normal(size=(size, size, UNITS))

    def hidden_states(self, pieces: Iterable[Ids]) -> Iterator[Doubles]:
        state = self.start(1)
        for piece in pieces:
            assert len(piece)
            found = []
            for token in piece:
                found.append(self.hidden_state(state)[0])
                state = self.advance(state, np.array([token]))
            yield np.array(found)

    def hidden_state(self, state: Ids) -> Doubles:
        vectors: Doubles = self.vectors[state[:, 0], state[:, 1]]
        return vectors


def scores_of(model: Any, *blocks: Ids) -> Doubles:
    return np.concatenate([scores.log_probs for scores in model.score_ids(blocks)])


def naive(
    words: Sequence[int], states: Doubles | None, config: CacheConfig, num_symbols: int
) -> Doubles:
    """Return [N, V] probabilities before each token, as the formula says, one by one."""
    result = np.zeros((len(words), num_symbols))
    for now in range(len(words)):
        if now == 0:
            result[now] = 1 / num_symbols
            continue
        for then in range(max(0, now - config.window), now):
            similar = 0.0 if states is None else config.theta * float(states[now] @ states[then])
            result[now, words[then]] += math.exp(similar - config.decay * (now - then))
        result[now] /= result[now].sum()
    return result


configs = st.builds(
    CacheConfig, window=st.integers(1, 12), theta=st.floats(0, 2), decay=st.floats(0, 0.5)
)
texts = st.lists(st.integers(0, 6), min_size=1, max_size=30)


@given(config=configs, words=texts, seed=st.integers(0, 99), data=st.data())
def test_is_the_naive_loop_however_the_text_is_cut(
    config: CacheConfig, words: list[int], seed: int, data: st.DataObject
) -> None:
    source = WithStates(seed)
    ids = np.array(words, dtype=np.int32)
    (states,) = source.hidden_states([ids])
    probs_NV = naive(words, states, config, 7)
    with np.errstate(divide="ignore"):
        expected = np.log(probs_NV[np.arange(len(words)), words])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(words)), max_size=4)))
    chunk = module.CHUNK
    try:
        module.CHUNK = data.draw(st.integers(1, 9))
        found = scores_of(CacheModel(source, config), *np.split(ids, cuts))
    finally:
        module.CHUNK = chunk
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    model = CacheModel(source, config)
    state = model.start(1)
    for probs_V, word in zip(probs_NV, words, strict=True):
        stepped = np.exp(model.next_log_probs(state)[0])
        np.testing.assert_allclose(stepped, probs_V, rtol=1e-6, atol=1e-12)
        state = model.advance(state, np.array([word], dtype=np.int32))


def test_by_hand() -> None:
    # a b a </s> b: before the last b are two of a, one b and one </s>, of ages 4 3 2 1; with a
    # decay of ln 2 these weigh 1/16 1/8 1/4 1/2, 15/16 in all
    block = np.array([2, 3, 2, EOS_ID, 3], dtype=np.int32)
    model = CacheModel(two_words(), CacheConfig(window=9, decay=math.log(2)))
    probs = np.exp(scores_of(model, block))
    np.testing.assert_allclose(probs, [1 / 4, 0, 1 / 3, 0, 2 / 15], rtol=1e-14)
    counted = CacheModel(two_words(), CacheConfig(window=3, decay=0))
    np.testing.assert_allclose(
        np.exp(scores_of(counted, block)), [1 / 4, 0, 1 / 2, 0, 1 / 3], rtol=1e-14
    )


def test_a_text_is_remembered_across_blocks_but_not_across_texts() -> None:
    model = CacheModel(two_words(), CacheConfig(decay=0))
    block = np.array([2, EOS_ID], dtype=np.int32)
    first, second = (np.exp(scores.log_probs) for scores in model.score_ids([block, block]))
    np.testing.assert_allclose(first, [1 / 4, 0])
    np.testing.assert_allclose(second, [1 / 2, 1 / 3])
    np.testing.assert_array_equal(np.exp(scores_of(model, block)), first)
    assert [len(scores.log_probs) for scores in model.score_ids([block[:0], block])] == [0, 2]


def test_a_mixture_with_a_cache_sums_to_one_and_generates() -> None:
    source = WithStates(7)
    bigrams = random_bigrams(word_tokenizer(list(reversed(WORDS))), 2)
    cache = CacheModel(source, CacheConfig(window=3))
    mixed = MixedModel([source, bigrams, cache], [0.5, 0.2, 0.3])
    state = mixed.advance(mixed.start(2), np.array([2, 3], dtype=np.int32))
    state = state[np.array([1, 0, 1])]
    state = mixed.advance(state, np.array([4, 4, 5], dtype=np.int32))
    probs_HV = np.exp(mixed.next_log_probs(state))
    np.testing.assert_allclose(probs_HV.sum(axis=1), 1, rtol=1e-6)
    alone = mixed.start(1)
    for word in (3, 5):  # the third hypothesis
        alone = mixed.advance(alone, np.array([word], dtype=np.int32))
    np.testing.assert_allclose(probs_HV[2], np.exp(mixed.next_log_probs(alone))[0], rtol=1e-12)
    assert len(generate_samples(mixed, "the old", num=3, max_tokens=9, seed=1)) == 3


def test_which_model_a_cache_is_over() -> None:
    counts, network = random_bigrams(word_tokenizer(WORDS), 1), WithStates(1)
    assert source_of([counts, network], ["a", "b"]) == (network, "b")
    assert source_of([counts, counts], ["a", "b"]) == (counts, "a")
    inner = MixedModel([counts, network], names=["c", "d"])
    assert source_of([counts, inner], ["a", "b"]) == (network, "d")
    with pytest.raises(ConfigError, match="cache already"):
        source_of([MixedModel([counts, CacheModel(counts)])], ["a"])
