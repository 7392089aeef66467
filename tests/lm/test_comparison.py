"""Language models side by side: figures, costs, and the test of their difference."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from toy_models import (
    UNIGRAM_ARPA,
    byte_tokenizer,
    chain,
    random_bigrams,
    two_words,
    word_tokenizer,
)

import seqtool
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError
from seqtool.lm.comparison import COLUMNS, compare_lms
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.model import mix, save_model
from seqtool.text.tokenizers import WordTokenizer

TEXT = "a b\n\nb a a\na\nb b a b\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_figures_are_those_of_each_model_alone(text: Path) -> None:
    models = [("one", two_words()), ("two", random_bigrams(word_tokenizer("ab"), seed=1))]
    found = compare_lms(models, text, samples=50)
    assert found.per == "token"
    assert list(found.remarks) == []
    for compared, (name, model) in zip(found.models, models, strict=True):
        alone = evaluate_lm(model, text)
        assert (compared.name, compared.kind) == (name, "toy-bigram")
        assert compared.result.perplexity == alone.perplexity
        assert compared.result.bits_per_byte == alone.bits_per_byte
        assert compared.tokens_per_second == compared.result.tokens / compared.result.seconds
    first, second = found.models
    assert first.lead is None
    assert second.lead is not None
    assert second.lead.difference == pytest.approx(
        second.result.bits_per_token - first.result.bits_per_token
    )
    row = dict(zip(COLUMNS, second.row(), strict=True))
    assert row["difference"] == second.lead.difference
    assert dict(zip(COLUMNS, first.row(), strict=True))["p_value"] is None


def by_hand(
    models: Sequence[tuple[str, object]], text: str, samples: int, seed: int
) -> tuple[float, float]:
    """Difference in bits per token, and p: each sentence drawn, summed and scored on its own."""
    lines = text.splitlines()
    bits = [[-model.score(line) / math.log(2) for line in lines] for _, model in models]  # type: ignore[attr-defined]
    tokens = [len(line.split()) + 1 for line in lines]

    def difference(chosen: Sequence[int]) -> float:
        total = sum(bits[1][i] - bits[0][i] for i in chosen)
        return total / sum(tokens[i] for i in chosen)

    observed = difference(range(len(lines)))
    picks = np.random.default_rng(seed).integers(len(lines), size=(samples, len(lines)))
    extreme = sum(abs(difference(row) - observed) >= abs(observed) - 1e-9 for row in picks.tolist())
    return observed, (1 + extreme) / (1 + samples)


def test_the_test_is_a_paired_bootstrap_over_sentences(text: Path) -> None:
    models = [("one", two_words()), ("two", random_bigrams(word_tokenizer("ab"), seed=1))]
    found = compare_lms(models, text, reset_state=True, samples=300, seed=7).models[1].lead
    assert found is not None
    assert (found.difference, found.p_value) == pytest.approx(by_hand(models, TEXT, 300, 7))
    assert found.low <= found.difference <= found.high
    same = compare_lms([("one", two_words()), ("two", two_words())], text, samples=30).models[1]
    assert same.lead is not None
    assert (same.lead.difference, same.lead.p_value) == (0, 1)


def test_a_text_read_as_other_tokens_compares_by_bytes(tmp_path: Path) -> None:
    """The vocabulary is the same, but one model skips a literal `</s>`."""
    path = tmp_path / "special.txt"
    path.write_text("a </s> b\nb\na a </s>\n", encoding="utf-8")
    models = []
    for number, policy in enumerate(("skip", "unknown")):
        tokenizer = WordTokenizer(word_tokenizer("ab").vocabulary, special_tokens=policy)  # type: ignore[arg-type]
        models.append((policy, random_bigrams(tokenizer, seed=number)))
    found = compare_lms(models, path, samples=20)
    skip, unknown = (model.result for model in found.models)
    assert (skip.tokens, unknown.tokens) == (8, 10)
    assert found.per == "byte"
    assert any("by bits per byte" in remark for remark in found.remarks)
    lead = found.models[1].lead
    assert lead is not None
    assert lead.difference == pytest.approx((skip.nats - unknown.nats) / math.log(2) / 20)
    swapped = compare_lms(models[::-1], path, samples=20).models[1].lead
    assert swapped is not None
    assert swapped.difference == -lead.difference
    assert (swapped.low, swapped.high) == pytest.approx((-lead.high, -lead.low))


def test_what_is_impossible_is_not_tested(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("ab\n", encoding="utf-8")
    models = [("one", chain(byte_tokenizer(), "ba")), ("two", random_bigrams(byte_tokenizer(), 1))]
    with pytest.raises(ConfigError, match="samples is 0"):
        compare_lms(models, path, samples=0)
    found = compare_lms(models, path, samples=5)
    assert found.models[1].lead is None
    assert any("no probability at all under one" in remark for remark in found.remarks)
    json.dumps([model.result.to_json() for model in found.models], allow_nan=False)


def test_costs_of_models_on_disk(text: Path, tmp_path: Path) -> None:
    trained = seqtool.train_ngram(text, tmp_path / "ngram", {"order": 2, "smoothing": "add-k"})
    snm = seqtool.train_snm(text, tmp_path / "snm", {"order": 2, "remote": 0, "table_bits": 8})
    arpa = tmp_path / "x.arpa"
    arpa.write_text(UNIGRAM_ARPA, encoding="utf-8")
    paths = [trained.path, snm.path]
    save_model(tmp_path / "both", mix([trained.model, snm.model], paths), paths)
    found = compare_lms([*paths, arpa, tmp_path / "both"], text, samples=5)
    ngram, sparse, file, both = (model.costs for model in found.models)
    header = checkpoint.read_header(trained.path)
    assert ngram.parameters == header.num_parameters
    assert ngram.bytes == sum(item["bytes"] for item in header.files.values())
    assert ngram.train_seconds == header.scores["train_seconds"] > 0
    assert sparse.train_seconds == checkpoint.read_header(snm.path).scores["train_seconds"] > 0
    assert (file.parameters, file.train_seconds) == (5, None)  # with `<s>`
    assert file.bytes == len(UNIGRAM_ARPA)
    assert both.parameters == ngram.parameters + sparse.parameters  # type: ignore[operator]
    assert both.bytes == ngram.bytes + sparse.bytes  # type: ignore[operator]
    assert both.train_seconds == pytest.approx(ngram.train_seconds + sparse.train_seconds)  # type: ignore[operator]
