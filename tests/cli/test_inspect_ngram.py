from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lm.ngram.random_tables import some_table

from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram.arpa import write_arpa
from seqtool.lm.ngram.model import NgramModel, save_model
from seqtool.text.tokenizers import WordTokenizer

Run = Callable[..., Any]

VOCABULARY = Vocabulary(["<unk>", "</s>", "a", "b"])
STATISTICS = [
    {"order": 1, "counted": 5, "singletons": 1, "discounts": [0.5, 1.0, 1.5], "fallback": True},
    {"order": 2, "counted": 2, "singletons": 0, "discounts": [0.25, 0.75, 1.25], "fallback": False},
    {"order": 3, "counted": 1002, "singletons": 900, "discounts": [], "fallback": False},
]
# int32 and float32 numbers per order: 5 probabilities and backoffs; 2 words, 6 begins, 2 and 2;
# 2 words, 3 begins, 2 probabilities
BYTES = [4 * 10, 4 * 12, 4 * 7]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(
        tmp_path / "model",
        NgramModel(some_table(), WordTokenizer(VOCABULARY)),
        config={"order": 3, "prune": [0, 0, 1]},
        scores={"valid_perplexity": 12.5},
        command="seqtool ngram train --order 3",
        statistics=STATISTICS,
    )
    return tmp_path / "model"


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_orders_are_shown(seqtool: Run, model: Path) -> None:
    result = seqtool("inspect", model)
    assert (result.code, result.stderr) == (0, "")
    for expected in (
        "kind ngram",
        "made by seqtool ngram train --order 3",
        "order n-grams pruned singletons discounts size up to here",
        "1 5 0 1 0.5000 1.0000 1.5000 (fallback) 40 bytes 40 bytes",
        "2 2 0 0 0.2500 0.7500 1.2500 48 bytes 88 bytes",
        "3 2 1,000 900 28 bytes 116 bytes",
        "valid_perplexity 12.5",
        "prune 0, 0, 1",
    ):
        assert expected in lines(result.stdout)


def test_orders_as_json(seqtool: Run, model: Path) -> None:
    shown = json.loads(seqtool("inspect", model, "--json").stdout)
    assert shown["kind"] == "ngram"
    assert [order["bytes"] for order in shown["orders"]] == BYTES
    assert shown["orders"][2] == {
        "order": 3,
        "ngrams": 2,
        "pruned": 1000,
        "singletons": 900,
        "discounts": [],
        "fallback": False,
        "bytes": BYTES[2],
        "total_bytes": sum(BYTES),
    }
    assert "statistics" not in shown


def test_a_model_that_tells_nothing(seqtool: Run, tmp_path: Path) -> None:
    """As one that was imported."""
    save_model(tmp_path / "m", NgramModel(some_table(), WordTokenizer(VOCABULARY)), config={})
    shown = lines(seqtool("inspect", tmp_path / "m").stdout)
    assert "order n-grams size up to here" in shown
    assert "3 2 28 bytes 116 bytes" in shown


@pytest.mark.parametrize("name", ["m.arpa", "m.arpa.gz"])
def test_arpa_file(seqtool: Run, tmp_path: Path, name: str) -> None:
    write_arpa(some_table(), VOCABULARY, tmp_path / name)
    result = seqtool("inspect", tmp_path / name)
    assert (result.code, result.stderr) == (0, "")
    shown = lines(result.stdout)
    assert shown[0] == str(tmp_path / name)
    assert "kind ARPA file" in shown
    assert "vocabulary 4" in shown
    assert "2 2 48 bytes 88 bytes" in shown
    content = json.loads(seqtool("inspect", tmp_path / name, "--json").stdout)
    assert content["bytes"] == (tmp_path / name).stat().st_size
    assert [order["bytes"] for order in content["orders"]] == BYTES


@pytest.mark.parametrize("source", ["model", "arpa"])
def test_plot_of_sizes(seqtool: Run, model: Path, source: str) -> None:
    arpa = model.parent / "m.arpa"
    write_arpa(some_table(), VOCABULARY, arpa)
    output = model.parent / "sizes.svg"
    path = model if source == "model" else arpa
    result = seqtool("inspect", path, "--plot", output)
    assert (result.code, result.stdout) == (0, f"{output}\n")
    drawing = output.read_text(encoding="utf-8")
    for words in ("this order", "all orders up to it", "size (MB)", "order", "n-grams"):
        assert words in drawing


def test_a_damaged_table_is_two_lines(seqtool: Run, model: Path) -> None:
    weights = model / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    result = seqtool("inspect", model)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {weights}: damaged")
    assert hint.startswith("hint: ")


def test_arpa_file_is_taken_where_a_model_is(seqtool: Run, tmp_path: Path) -> None:
    write_arpa(some_table(), VOCABULARY, tmp_path / "m.arpa")
    (tmp_path / "text.txt").write_text("a b a\n\n")
    table = tmp_path / "tokens.tsv"
    result = seqtool(
        "eval-ppl", tmp_path / "text.txt", "-m", tmp_path / "m.arpa", "--per-token", table, "--json"
    )
    assert result.code == 0
    # as in test_query: nats of a, b, a, </s>, and of the </s> of an empty line
    nats = -0.75 + (-0.5 - 1.0) - 0.0625 + (-1.0 - 0.25) + (-1.0 - 0.125)
    assert json.loads(result.stdout)["log10_probability"] == pytest.approx(nats / 2.302585093)
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == ["sentence", "token", "surprisal", "oov", "order"]
    assert [(row[1], row[4]) for row in rows[1:]] == [
        ("a", "2"),
        ("b", "2"),
        ("a", "3"),
        ("</s>", "1"),
        ("</s>", "1"),
    ]
    made = seqtool("generate", "-m", tmp_path / "m.arpa", "--prompt", "a", "--seed", 1)
    assert made.code == 0
    assert made.stdout.startswith("a")
