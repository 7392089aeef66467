"""Models of different kinds in one mixture: a network, a model of n-grams, an ARPA file."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_models import UNIGRAM_ARPA
from toy_networks import save_lm

from seqtool.core import checkpoint
from seqtool.lm.mixture.model import MixedModel, mix
from seqtool.lm.mixture.weights import evaluate_mixture, tune_mixture
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.model import NgramModel, save_model
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.train import train_ngram
from seqtool.lm.snm.learning import train_snm
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

# b, which is the more frequent in the corpus, comes after a in UNIGRAM_ARPA
UNIGRAMS = {"</s>": 0.2, "<unk>": 0.1, "a": 0.4, "b": 0.3}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedCorpus:
    """Make neural, ngram and x.arpa over the words a and b, and be where they are."""
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("a b\nb\n" * 30)
    Path("text.txt").write_text("a a b\nb c\n")
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    config = PrepareConfig(split=(80.0, 20.0))
    corpus = prepare(["train.txt"], "corpus", config)
    save_lm(Path("neural"), corpus, 2)
    counts = count_ngrams(corpus.ids("train"), 2, len(corpus.vocabulary))
    settings = NgramConfig(order=2, smoothing="witten-bell")
    table = estimate(counts, settings).table
    save_model("ngram", NgramModel(table, corpus.tokenizer), config={"order": 2})
    return corpus


def log_probs(model: Any, corpus: PreparedCorpus) -> Any:
    """Return the scores of text.txt by a model that has the corpus's ids."""
    (scores,) = model.score_ids([corpus.tokenizer.encode_block(b"a a b\nb c\n")])
    return scores.log_probs


def test_three_kinds(models: PreparedCorpus) -> None:
    parts = [checkpoint.load(name) for name in ("neural", "ngram", "x.arpa")]
    assert parts[0].tokenizer.vocabulary.symbols == ["<unk>", "</s>", "b", "a"]
    assert parts[2].tokenizer.vocabulary != parts[0].tokenizer.vocabulary
    mixed = MixedModel(parts, [0.2, 0.3, 0.5])
    text = ["a", "a", "b", "</s>", "b", "<unk>", "</s>"]
    by_hand = (
        0.2 * np.exp(log_probs(parts[0], models))
        + 0.3 * np.exp(log_probs(parts[1], models))
        + 0.5 * np.array([UNIGRAMS[token] for token in text])
    )
    np.testing.assert_allclose(np.exp(log_probs(mixed, models)), by_hand, rtol=1e-6)
    state = mixed.advance(mixed.start(2), np.array([2, 3], dtype=np.int32))
    probs = np.exp(mixed.next_log_probs(state[np.array([1, 0, 1])]))
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(probs[0], probs[2])


CACHE = {"window": 100, "decay": 0.004}


@pytest.mark.parametrize("text", ["text.txt", "train.txt"])
def test_a_mixture_is_never_worse_than_its_best_part(models: PreparedCorpus, text: str) -> None:
    """On the text that it was fitted on: pairs of all kinds, and all, with a cache and without."""
    small = {"order": 3, "remote": 1, "gap": 1, "table_bits": 10}
    train_snm(models.path, "snm", small)
    Path("classes.tsv").write_text("a x\nb x\n")
    train_ngram(models.path, "of-classes", {"order": 2, "classes": "classes.tsv"})
    names = ["neural", "ngram", "x.arpa", "snm", "of-classes"]
    parts = {name: checkpoint.load(name) for name in names}
    for number, chosen in enumerate([*itertools.combinations(names, 2), names]):
        cached = [None, CACHE] if number % 3 == 0 or chosen is names else [None]
        for cache in cached:
            mixed = mix([parts[name] for name in chosen], list(map(Path, chosen)), cache=cache)
            assert isinstance(mixed, MixedModel)
            tuned = tune_mixture(mixed, text, cache=cache)
            measured, rows = evaluate_mixture(tuned.model, text)
            best = min(row["perplexity"] for row in rows)
            assert measured.perplexity <= best * (1 + 1e-8), (chosen, cache)
            assert measured.perplexity == pytest.approx(tuned.perplexity, rel=1e-6)
