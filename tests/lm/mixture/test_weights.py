"""Fitted weights: against bisection and ascent, by hand, and on texts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toy_models import BigramModel, two_words, word_tokenizer

from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.mixture.weights import (
    fit_weights,
    tune_mixture,
)
from seqtool.text.prepared import PrepareConfig, prepare

TEXT = "a b\nb\n\na z b\n"  # 10 tokens with `</s>`
LEFT_NATS = 2e-5  # per token, where EM stops near a weight of 0
WORDS = ["the", "old", "man", "sleeps", "here"]


def random_log_probs(parts: int, tokens: int, seed: int) -> npt.NDArray[np.float64]:
    """Return nats between -8 and 0."""
    return -8 * np.random.default_rng(seed).random((parts, tokens))


def log_likelihood(log_probs_PN: npt.NDArray[np.float64], weights: npt.ArrayLike) -> float:
    return float(np.log(np.asarray(weights) @ np.exp(log_probs_PN)).sum())


def best_weight(log_probs_2N: npt.NDArray[np.float64]) -> float:
    """Return the best weight of the first of two parts: where the falling derivative is 0."""
    first, second = np.exp(log_probs_2N)

    def slope(weight: float) -> float:
        return float(((first - second) / (weight * first + (1 - weight) * second)).sum())

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


@pytest.mark.parametrize("seed", range(8))
def test_two_weights_agree_with_bisection(seed: int) -> None:
    log_probs = random_log_probs(2, 400, seed)
    weight = best_weight(log_probs)
    assert 0.2 < weight < 0.8
    fitted = fit_weights(log_probs)
    assert fitted.weights == pytest.approx((weight, 1 - weight), abs=1e-3)


@given(
    parts=st.integers(1, 4),
    tokens=st.integers(1, 40),
    seed=st.integers(0, 10**6),
    impossible=st.floats(0, 0.6),
)
def test_every_iteration_gains_and_little_is_left(
    parts: int, tokens: int, seed: int, impossible: float
) -> None:
    log_probs = random_log_probs(parts, tokens, seed)
    log_probs[np.random.default_rng(seed).random(log_probs.shape) < impossible] = -np.inf
    possible = np.isfinite(log_probs).any(axis=0)
    if not possible.any():
        return
    fitted = fit_weights(log_probs)
    assert fitted.impossible == (~possible).sum()
    assert math.fsum(fitted.weights) == pytest.approx(1, abs=1e-14)
    assert min(fitted.weights) >= 0
    course = np.array(fitted.log_likelihoods)
    assert course[-1] == pytest.approx(
        log_likelihood(log_probs[:, possible], fitted.weights), rel=1e-12, abs=1e-12
    )
    assert (np.diff(course) > -1e-12 * np.abs(course[:-1])).all()
    if parts == 2:
        weight = best_weight(log_probs[:, possible])
        best = log_likelihood(log_probs[:, possible], [weight, 1 - weight])
        assert course[-1] >= best - LEFT_NATS * possible.sum()


def test_by_hand() -> None:
    # the first part is sure of three tokens, the second of the fourth: their shares of the text
    sure, never = 0.0, -math.inf
    fitted = fit_weights(np.array([[sure, sure, sure, never], [never, never, never, sure]]))
    assert fitted.weights == pytest.approx((3 / 4, 1 / 4), rel=1e-15)
    assert fitted.log_likelihoods == pytest.approx(
        [4 * math.log(1 / 2), 3 * math.log(3 / 4) + math.log(1 / 4)], rel=1e-15
    )
    assert fitted.impossible == 0


def alike(parts: int, tokens: int, seed: int, spread: float) -> npt.NDArray[np.float64]:
    """Return the nats of parts that differ so much, in each token, from one another."""
    generator = np.random.default_rng(seed)
    return random_log_probs(1, tokens, seed) - spread * generator.random((parts, tokens)) - 0.01


@given(
    parts=st.integers(1, 6),
    tokens=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([5.0, 0.1, 1e-3, 1e-6, 1e-9]),
    impossible=st.sampled_from([0.0, 0.3]),
)
@example(parts=2, tokens=40, seed=1, spread=1e-9, impossible=0.0)
@example(parts=6, tokens=60, seed=1, spread=1e-3, impossible=0.3)
def test_a_mixture_is_never_worse_than_its_best_part(
    parts: int, tokens: int, seed: int, spread: float, impossible: float
) -> None:
    log_probs = alike(parts, tokens, seed, spread)
    drop = np.random.default_rng(seed).random(log_probs.shape) < impossible
    log_probs[drop & (np.arange(parts)[:, None] > 0)] = -np.inf  # the first one has every token
    fitted = fit_weights(log_probs)
    alone = log_probs.sum(axis=1).max()
    assert fitted.log_likelihoods[-1] >= alone - 1e-14 * abs(alone)
    with np.errstate(divide="ignore"):
        assert log_likelihood(log_probs, fitted.weights) >= alone - 1e-14 * abs(alone)


@pytest.fixture
def text_path(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def uniform() -> BigramModel:
    """Return a model of the words a and b that gives every symbol 1/4."""
    return BigramModel(word_tokenizer("ab"), np.full((5, 4), 1 / 4))


def test_tuning_on_a_text(text_path: Path) -> None:
    # bits of two_words, read as one stream: 1 1 1  2 1  3  3 3 2 1; of the uniform one, 2 each
    bits = np.array([[1, 1, 1, 2, 1, 3, 3, 3, 2, 1], [2] * 10])
    tuning = tune_mixture(MixedModel([two_words(), uniform()], [0.9, 0.1]), text_path)
    weight = best_weight(-bits * math.log(2))
    assert tuning.model.weights == pytest.approx((weight, 1 - weight), abs=1e-5)
    assert (tuning.tokens, tuning.text, tuning.split) == (10, str(text_path), None)
    measured = evaluate_lm(tuning.model, text_path)
    assert tuning.perplexity == pytest.approx(measured.perplexity, rel=1e-13)
    assert tuning.to_json() == {
        "text": str(text_path),
        "split": None,
        "tokens": 10,
        "perplexity": tuning.perplexity,
        "iterations": len(tuning.fitted.log_likelihoods) - 1,
    }


def test_tuning_on_a_corpus_never_reads_its_test_split(tmp_path: Path) -> None:
    for name, text in (("train", "a b\n" * 3), ("valid", TEXT), ("test", "b b b b\n" * 9)):
        (tmp_path / f"{name}.txt").write_text(text)
    corpus = prepare(
        [tmp_path / "train.txt"],
        tmp_path / "corpus",
        PrepareConfig(),
        valid=tmp_path / "valid.txt",
        test=tmp_path / "test.txt",
    )
    assert corpus.vocabulary == two_words().tokenizer.vocabulary
    model = MixedModel([two_words(), uniform()])
    tuning = tune_mixture(model, tmp_path / "corpus")
    on_text = tune_mixture(model, tmp_path / "valid.txt")
    assert (tuning.split, tuning.tokens) == ("valid", 10)
    assert tuning.model.weights == on_text.model.weights
