"""Generation: exact distributions, brute-force search, and text that streams unbroken."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import (
    TrigramModel,
    byte_tokenizer,
    chain,
    char_tokenizer,
    generate_samples,
    random_bigrams,
    two_words,
    word_tokenizer,
)

from seqtool.core.errors import ConfigError, PromptError
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.sampling import (
    GenerateConfig,
    beam_search,
    generate,
    next_distribution,
)
from seqtool.text.tokenizers import Tokenizer

FIVE = word_tokenizer("abc")  # <unk> </s> a b c


def logs(*probabilities: float) -> npt.NDArray[np.float64]:
    return np.array([math.log(p) if p else -math.inf for p in probabilities])


# the distribution that the next token is drawn from


@given(
    scores=st.lists(st.floats(-30, 0), min_size=2, max_size=30),
    temperature=st.floats(0.01, 10),
    top_k=st.none() | st.integers(1, 40),
    top_p=st.none() | st.floats(0.001, 1),
)
def test_distribution_against_sorted_lists(
    scores: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    weights = [math.exp((score - max(scores)) / temperature) for score in scores]
    # by score: the weights of two scores that are nearly equal may tie
    ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    kept = ranked[:top_k]
    total = math.fsum(weights[i] for i in kept)
    if top_p is not None and top_p < 1:  # 1 keeps what is less than the slack, too
        shares = itertools.accumulate(weights[i] / total for i in kept)
        num = next((n for n, s in enumerate(shares, start=1) if s >= top_p - 1e-9), len(kept))
        kept = kept[:num]
        total = math.fsum(weights[i] for i in kept)
    probs = next_distribution(np.array(scores), temperature=temperature, top_k=top_k, top_p=top_p)
    expected = [weights[i] / total if i in kept else 0.0 for i in range(len(scores))]
    np.testing.assert_allclose(probs, expected, rtol=1e-9, atol=1e-300)
    assert probs.sum() == pytest.approx(1, abs=1e-12)


# samples


def test_samples_follow_the_model() -> None:
    """Chi-square of pairs of tokens; the bound is its 99.9% quantile for 8 degrees of freedom."""
    num = 6000
    samples = generate_samples(
        two_words(), num=num, max_tokens=2, seed=3, stop_at_sentence_end=False
    )
    # without <unk>: <s> -> </s> 1/7, a 4/7, b 2/7; </s> -> 1/4, 1/4, 1/2; a -> 2/7, 1/7, 4/7;
    # b -> 8/15, 6/15, 1/15
    first = {"</s>": 1 / 7, "a": 4 / 7, "b": 2 / 7}
    second = {
        "</s>": {"</s>": 1 / 4, "a": 1 / 4, "b": 1 / 2},
        "a": {"</s>": 2 / 7, "a": 1 / 7, "b": 4 / 7},
        "b": {"</s>": 8 / 15, "a": 6 / 15, "b": 1 / 15},
    }
    statistic = 0.0
    for one, other in itertools.product(first, repeat=2):
        expected = num * first[one] * second[one][other]
        observed = sum(sample.tokens == (one, other) for sample in samples)
        statistic += (observed - expected) ** 2 / expected
    assert statistic < 26.12


def test_a_seed_gives_the_same_and_another_gives_other_samples() -> None:
    model = random_bigrams(FIVE, 0)
    one = generate_samples(model, num=5, seed=1)
    assert generate_samples(model, num=5, seed=1) == one
    assert generate_samples(model, num=5, seed=2) != one
    assert generate_samples(model, num=5) != generate_samples(model, num=5)


def test_a_sample_does_not_depend_on_how_many_there_are() -> None:
    model = TrigramModel(FIVE, 0)
    many = generate_samples(model, num=9, seed=1)
    assert generate_samples(model, num=4, seed=1) == many[:4]
    assert len({sample.text for sample in many}) > 4


# search


def every_continuation(
    model: TrigramModel, max_tokens: int, *, stop: bool, unk: bool
) -> dict[tuple[int, ...], float]:
    """Return the log-probability of every continuation that a search may end with."""
    size = len(model.tokenizer.vocabulary)
    symbols = [i for i in range(size) if unk or i != UNK_ID]
    found: dict[tuple[int, ...], float] = {}
    for length in range(1, max_tokens + 1):
        for tokens in itertools.product(symbols, repeat=length):
            inner_end = EOS_ID in tokens[:-1]
            is_whole = length == max_tokens or (stop and tokens[-1] == EOS_ID)
            if is_whole and not (stop and inner_end):
                found[tokens] = model.log_prob(tokens)
    return found


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("unk", [True, False])
def test_an_unbounded_beam_is_exhaustive(stop: bool, unk: bool) -> None:
    for seed in range(5):
        model = TrigramModel(FIVE, seed)
        found = every_continuation(model, 4, stop=stop, unk=unk)
        ranked = sorted(found, key=lambda tokens: -found[tokens])
        config = GenerateConfig(
            beam=5**4,
            num=7,
            max_tokens=4,
            stop_at_sentence_end=stop,
            generate_unk=unk,
        )
        best = beam_search(model, model.start(1), config)
        assert [hypothesis.tokens for hypothesis in best] == ranked[:7]
        for hypothesis in best:
            assert hypothesis.total == pytest.approx(found[hypothesis.tokens], rel=1e-12)


# prompts


def test_a_prompt_is_continued() -> None:
    model = chain(word_tokenizer(["the", "old", "man", "sleeps"]), "the old man sleeps")
    pieces = list(generate(model, "the old", seed=0))
    assert [piece.text for piece in pieces] == ["the old", " man", " sleeps", ""]
    assert [piece.token for piece in pieces] == [None, 4, 5, EOS_ID]
    assert generate_samples(model, "the  old ")[0].text == "the old man sleeps"


def test_unknown_words_of_a_prompt() -> None:
    model = random_bigrams(word_tokenizer(["house", "tree"]), 0)
    with pytest.raises(PromptError) as caught:
        generate(model, "house hause qqqq hause")
    assert (
        str(caught.value) == "the prompt has words outside the model's vocabulary: 'hause', 'qqqq'"
    )
    assert "for 'hause' perhaps house" in caught.value.hint
    assert "--allow-unknown" in caught.value.hint


# streaming


@pytest.mark.parametrize("unit", ["word", "char", "byte"])
@pytest.mark.parametrize("stop", [True, False])
def test_streamed_text_is_the_decoded_text(unit: str, stop: bool) -> None:
    tokenizers: dict[str, Tokenizer] = {
        "word": word_tokenizer(["한국", "어", "a"]),
        "char": char_tokenizer("한국어 a"),
        "byte": byte_tokenizer(),
    }
    tokenizer = tokenizers[unit]
    prompt = "한국 어"
    model = random_bigrams(tokenizer, 7)
    pieces = list(generate(model, prompt, num=6, max_tokens=30, seed=1, stop_at_sentence_end=stop))
    for number in range(6):
        mine = [piece for piece in pieces if piece.sample == number]
        tokens = [piece.token for piece in mine if piece.token is not None]
        if stop and tokens[-1] == EOS_ID:
            tokens.pop()
        ids = [*tokenizer.encode(prompt).tolist(), *tokens]
        assert "".join(piece.text for piece in mine) == tokenizer.decode(ids)


# options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num": 0}, "num is 0"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"beam": 2, "temperature": 0.5}, "temperature cannot apply"),
        ({"beam": 2, "top_k": 2, "top_p": 0.5}, "top-k and top-p cannot apply"),
        ({"beam": 2, "num": 3}, "num is 3"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        generate(two_words(), **options)
    assert caught.value.hint
