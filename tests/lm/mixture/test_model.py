"""Mixing: worked examples, probabilities that sum to one, other orders of ids, what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import (
    BigramModel,
    TrigramModel,
    random_bigrams,
    two_words,
    word_tokenizer,
)

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.mixture.model import MixedModel

WORDS = ["the", "old", "man", "sleeps", "here"]


def uniform() -> BigramModel:
    """Return a model of the words a and b that gives every symbol 1/4."""
    return BigramModel(word_tokenizer("ab"), np.full((5, 4), 1 / 4))


def ids(*sentences: Sequence[int]) -> Ids:
    """Return one block."""
    return np.array([i for sentence in sentences for i in (*sentence, EOS_ID)], dtype=np.int32)


def scores_of(model: Any, *blocks: Ids, reset_state: bool = False) -> npt.NDArray[np.float64]:
    return np.concatenate(
        [scores.log_probs for scores in model.score_ids(blocks, reset_state=reset_state)]
    )


def renumbered(model: BigramModel, order: Sequence[int]) -> BigramModel:
    """Return the same model with the words in another order: `order` permutes ids from 2 on."""
    words = model.tokenizer.vocabulary.symbols
    old = [0, 1, *order]  # the old id of each new one
    rows = [*old, len(words)]
    return BigramModel(word_tokenizer([words[i] for i in order]), model.table[np.ix_(rows, old)])


weights_of = st.integers(2, 4).flatmap(
    lambda num: st.lists(st.integers(0, 9), min_size=num, max_size=num).filter(any)
)


def test_probabilities_by_hand() -> None:
    mixed = MixedModel([two_words(), uniform()], [0.25, 0.75])
    # read as one stream    a    b    </s>  b    </s>
    #   two_words           1/2  1/2  1/2   1/4  1/2
    #   uniform             1/4  1/4  1/4   1/4  1/4
    #   mixed               1/8 + 3/16 = 5/16, and 1/16 + 3/16 = 1/4
    found = np.exp(scores_of(mixed, ids([2, 3], [3])))
    np.testing.assert_allclose(found, [5 / 16, 5 / 16, 5 / 16, 1 / 4, 5 / 16], rtol=1e-14)


@given(shares=weights_of, seed=st.integers(0, 10**6), data=st.data())
def test_next_token_sums_to_one_and_agrees_with_the_scores(
    shares: list[int], seed: int, data: st.DataObject
) -> None:
    weights = [share / sum(shares) for share in shares]
    plain = [random_bigrams(word_tokenizer(WORDS), seed + k) for k in range(len(weights))]
    orders = [data.draw(st.permutations(range(2, 7))) for _ in plain[1:]]
    parts = [plain[0], *(map(renumbered, plain[1:], orders))]
    tokens = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    mixed = MixedModel(parts, weights)
    scores = scores_of(mixed, ids(tokens))
    previous = len(WORDS) + 2
    state = mixed.start(1)
    for token, score in zip([*tokens, EOS_ID], scores, strict=True):
        log_probs_V = mixed.next_log_probs(state)[0]
        assert np.exp(log_probs_V).sum() == pytest.approx(1, abs=1e-12)
        assert log_probs_V[token] == pytest.approx(score, rel=1e-13)
        # as defined, from the tables before they were renumbered
        by_hand = sum(
            weight * part.table[previous, token]
            for weight, part in zip(weights, plain, strict=True)
        )
        assert math.exp(score) == pytest.approx(by_hand, rel=1e-12)
        state, previous = mixed.advance(state, np.array([token], dtype=np.int32)), token


def test_hypotheses_are_advanced_and_selected_in_every_part() -> None:
    tokenizer = word_tokenizer("ab")
    parts = [TrigramModel(tokenizer, 1), TrigramModel(tokenizer, 2)]
    mixed = MixedModel(parts, [0.3, 0.7])
    state = mixed.start(2)
    state = mixed.advance(state, np.array([2, 3], dtype=np.int32))
    state = state[np.array([1, 0, 1])]
    state = mixed.advance(state, np.array([1, 2, 3], dtype=np.int32))
    read = [(3, 1), (2, 2), (3, 3)]  # the two tokens of each hypothesis
    expected = np.log(
        [
            0.3 * np.exp(parts[0].log_table[first, second])
            + 0.7 * np.exp(parts[1].log_table[first, second])
            for first, second in read
        ]
    )
    np.testing.assert_allclose(mixed.next_log_probs(state), expected, rtol=1e-13)


def test_columns_are_the_surprisals_of_the_parts_and_their_own() -> None:
    (scores,) = MixedModel([two_words(), uniform()]).score_ids([ids([2])])
    assert {name: column.tolist() for name, column in scores.columns.items()} == {
        "surprisal_1": [1, 2],  # 1/2 for a, then 1/4 for </s>
        "surprisal_2": [2, 2],
        "previous_1": [4, 2],
        "previous_2": [4, 2],
    }


@pytest.mark.parametrize(
    ("weights", "message", "hint"),
    [
        ([1.0], "1 weight for 2 models", "one weight per model"),
        ([0.5, 0.4], "the weights sum to 0.9 instead of 1", "0.555556,0.444444"),
        ([0, 0], "the weights sum to 0 instead of 1", "0.500000,0.500000"),
        ([1.5, -0.5], "a weight is -0.5", "from 0 to 1"),
        ([math.nan, 1], "a weight is nan", "from 0 to 1"),
    ],
)
def test_bad_weights(weights: list[float], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MixedModel([two_words(), uniform()], weights)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_different_vocabularies() -> None:
    first = random_bigrams(word_tokenizer(["a", "b", "c"]), 1)
    second = random_bigrams(word_tokenizer(["b", "x"]), 2)
    with pytest.raises(ModelError) as caught:
        MixedModel([first, second], names=["runs/lm", "x.arpa"])
    assert str(caught.value) == (
        "the vocabularies differ: runs/lm has 2 words that x.arpa lacks, "
        "and x.arpa has 1 that runs/lm lacks"
    )
    assert "seqtool prepare" in caught.value.hint
    larger = random_bigrams(word_tokenizer(["a", "b", "c", "d"]), 3)
    with pytest.raises(ModelError, match=r"has 0 words that .* lacks, and .* has 1 that"):
        MixedModel([first, larger])


def test_subwords_in_another_order_cut_text_differently() -> None:
    def subwords(*pieces: str) -> Any:
        tokenizer: Any = word_tokenizer(pieces)
        tokenizer.unit = "bpe"
        return random_bigrams(tokenizer, 1)

    MixedModel([subwords("a", "ab"), subwords("a", "ab")])
    with pytest.raises(ModelError, match="cut words into pieces differently"):
        MixedModel([subwords("a", "ab"), subwords("ab", "a")])
