"""Mixing: worked examples, probabilities that sum to one, other orders of ids, what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import (
    BigramModel,
    TrigramModel,
    char_tokenizer,
    random_bigrams,
    two_words,
    word_tokenizer,
)

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.protocol import TokenScores
from seqtool.lm.sampling import generate_samples

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


def test_state_is_reset_in_every_part() -> None:
    block = ids([2], [2])
    # two_words gives a 1/2 after <s>, and 1/8 after </s>
    carried = np.exp(scores_of(MixedModel([two_words(), uniform()]), block))
    reset = np.exp(scores_of(MixedModel([two_words(), uniform()]), block, reset_state=True))
    assert carried[2] == pytest.approx((1 / 8 + 1 / 4) / 2, rel=1e-14)
    assert reset[2] == pytest.approx((1 / 2 + 1 / 4) / 2, rel=1e-14)


def test_all_weight_on_one_part_is_that_part() -> None:
    parts = [random_bigrams(word_tokenizer(WORDS), seed) for seed in (1, 2)]
    block = ids([2, 3, 4], [], [6, 5, 0, 2])
    for k, weights in enumerate([(1, 0), (0, 1)]):
        mixed = MixedModel(parts, weights)
        assert scores_of(mixed, block).tolist() == scores_of(parts[k], block).tolist()
        state = mixed.start(1)
        assert (
            mixed.next_log_probs(state).tolist()
            == parts[k].next_log_probs(parts[k].start(1)).tolist()
        )


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


def test_another_order_of_the_words_changes_nothing() -> None:
    first, second = (random_bigrams(word_tokenizer(WORDS), seed) for seed in (5, 6))
    same = MixedModel([first, second], [0.4, 0.6])
    other = MixedModel([first, renumbered(second, [4, 6, 2, 3, 5])], [0.4, 0.6])
    block = ids([2, 3, 4, 5, 6], [0, 6, 6], [])
    assert scores_of(other, block).tolist() == scores_of(same, block).tolist()
    options: dict[str, Any] = {"num": 5, "max_tokens": 12, "seed": 3}
    assert generate_samples(other, "the", **options) == generate_samples(same, "the", **options)
    assert generate_samples(other, beam=4, num=4) == generate_samples(same, beam=4, num=4)


class Ahead(BigramModel):
    """A model that reads `ahead` blocks before it gives the first result."""

    ahead = 0

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False
    ) -> Iterator[TokenScores]:
        blocks = iter(blocks)
        held = list(itertools.islice(blocks, self.ahead))
        for block in blocks:
            held.append(block)
            yield from super().score_ids([held.pop(0)], reset_state=reset_state)
        for block in held:
            yield from super().score_ids([block], reset_state=reset_state)


@pytest.mark.parametrize("ahead", [(0, 0), (0, 3), (2, 0), (1, 4), (3, 3)])
def test_parts_read_in_step_however_far_ahead_they_read(ahead: tuple[int, int]) -> None:
    parts = []
    for seed, num in enumerate(ahead):
        model = random_bigrams(word_tokenizer(WORDS), seed)
        parts.append(Ahead(model.tokenizer, model.table))
        parts[-1].ahead = num
    mixed = MixedModel(parts)
    blocks = [ids([2 + i % 5] * (i % 4)) for i in range(30)]
    num_read = 0

    def watched() -> Iterator[Ids]:
        nonlocal num_read
        for block in blocks:
            num_read += 1
            yield block

    expected = [
        np.logaddexp(*(next(iter(part.score_ids([block]))).log_probs for part in parts))
        - math.log(2)
        for block in blocks
    ]
    num_given = 0
    for num_given, scores in enumerate(mixed.score_ids(watched()), start=1):
        np.testing.assert_allclose(scores.log_probs, expected[num_given - 1], rtol=1e-13)
        assert num_read <= num_given + max(ahead)
    assert num_given == num_read == 30


def test_a_token_that_only_one_part_can_give() -> None:
    never = two_words()
    never.log_table[:, 3] = -np.inf
    found = np.exp(scores_of(MixedModel([never, uniform()]), ids([3])))
    assert found[0] == pytest.approx(1 / 8, rel=1e-14)
    neither = scores_of(MixedModel([never, never]), ids([3]))
    assert neither[0] == -np.inf
    assert neither[1] == pytest.approx(math.log(1 / 2), rel=1e-14)


def test_a_mixture_may_be_a_part() -> None:
    parts = [random_bigrams(word_tokenizer(WORDS), seed) for seed in range(3)]
    inner = MixedModel([parts[0], renumbered(parts[1], [6, 5, 4, 3, 2])], [0.5, 0.5])
    block = ids([2, 3, 0], [6])
    nested = scores_of(MixedModel([inner, parts[2]], [0.8, 0.2]), block)
    np.testing.assert_allclose(
        nested, scores_of(MixedModel(parts, [0.4, 0.4, 0.2]), block), rtol=1e-13
    )


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
        ([0.2, 0.3, 0.5], "3 weights for 2 models", "one weight per model"),
        ([], "0 weights for 2 models", "one weight per model"),
        ([0.5, 0.4], "the weights sum to 0.9 instead of 1", "0.555556,0.444444"),
        ([0, 0], "the weights sum to 0 instead of 1", "0.500000,0.500000"),
        ([1.5, -0.5], "a weight is -0.5", "from 0 to 1"),
        ([math.nan, 1], "a weight is nan", "from 0 to 1"),
        ([math.inf, 1], "a weight is inf", "from 0 to 1"),
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


def test_different_units() -> None:
    words = random_bigrams(word_tokenizer("ab"), 1)
    characters = random_bigrams(char_tokenizer("ab"), 2)
    with pytest.raises(ModelError, match="model 2 reads char units, but model 1 reads word units"):
        MixedModel([words, characters])


def test_subwords_in_another_order_cut_text_differently() -> None:
    def subwords(*pieces: str) -> Any:
        tokenizer: Any = word_tokenizer(pieces)
        tokenizer.unit = "bpe"
        return random_bigrams(tokenizer, 1)

    MixedModel([subwords("a", "ab"), subwords("a", "ab")])
    with pytest.raises(ModelError, match="cut words into pieces differently"):
        MixedModel([subwords("a", "ab"), subwords("ab", "a")])
