from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_models import word_tokenizer

from seqtool.analysis.prediction import REST, next_words
from seqtool.core import checkpoint
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram

# of ten students, four open books and one an exam, as in the lecture's counts of a thousand
OPENED = ["books"] * 4 + ["laptops"] * 3 + ["minds"] * 2 + ["exams"]
TEXT = "".join(f"the students opened their {thing}\n" for thing in OPENED) + "their cat sleeps\n"


def trained(folder: Path, **settings: Any) -> Any:
    (folder / "text.txt").write_text(TEXT)
    train_ngram(folder / "text.txt", folder / "model", NgramConfig(**settings))
    return checkpoint.load(folder / "model")


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("c"), order=4, smoothing="maximum-likelihood")


@pytest.fixture(scope="module")
def smoothed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("s"), order=3, smoothing="witten-bell")


def network_of(tokenizer: Any) -> NeuralLanguageModel:
    torch.manual_seed(1)
    network = NeuralNetwork(ModelConfig(hidden_size=4), len(tokenizer.vocabulary))
    return NeuralLanguageModel(network, tokenizer)


def shares(report: Any) -> dict[str, float]:
    return {one["token"]: one["probability"] for one in report.values["tokens"]}


def test_students_opened_their(counted: Any) -> None:
    report = next_words(counted, "m", "the students opened their", top=4)
    assert shares(report) == pytest.approx(
        {"books": 0.4, "laptops": 0.3, "minds": 0.2, "exams": 0.1}, abs=1e-6
    )
    assert list(shares(report)) == ["books", "laptops", "minds", "exams"]
    assert [one["order"] for one in report.values["tokens"]] == [4] * 4
    bits = [one["surprisal_bits"] for one in report.values["tokens"]]
    assert bits == pytest.approx([math.log2(1 / p) for p in (0.4, 0.3, 0.2, 0.1)], abs=1e-5)
    assert report.values["rest"] == pytest.approx(0, abs=1e-6)


def test_orders_are_those_of_the_longest_ngram(smoothed: Any) -> None:
    """The column agrees with the order that scoring finds for each word."""
    vocabulary = smoothed.tokenizer.vocabulary
    for prompt in ("", "the", "the students opened their", "opened their cat", "their their"):
        report = next_words(smoothed, "m", prompt, top=len(vocabulary))
        for one in report.values["tokens"]:
            if one["token"] in ("<unk>", "</s>"):
                continue
            line = f"{prompt} {one['token']}".strip()
            ids = smoothed.tokenizer.encode_block(f"{line}\n".encode())
            (scores,) = smoothed.score_ids([ids])
            assert one["order"] == scores.columns["order"][-2], (prompt, one)
            assert math.log(one["probability"]) == pytest.approx(scores.log_probs[-2], rel=1e-6)


@pytest.mark.parametrize("top", [1, 3, 100])
def test_every_table_sums_to_one(smoothed: Any, top: int) -> None:
    size = len(smoothed.tokenizer.vocabulary)
    neural = network_of(smoothed.tokenizer)
    mixed = MixedModel([smoothed, neural], [0.25, 0.75])
    for model in (smoothed, neural, mixed):
        for prompt in ("", "the students", "the cat\ntheir"):
            report = next_words(model, "m", prompt, top=top)
            rows = report.tables[0].rows
            assert rows[-1][0] == REST
            assert sum(float(row[1] or 0) for row in rows) == pytest.approx(1, abs=1e-6)
            assert len(rows) == 1 + min(top, size)
            assert report.values["rest"] >= 0


def test_a_mixture_tells_what_each_part_gives(smoothed: Any, counted: Any) -> None:
    # the second part numbers its words otherwise
    words = list(reversed(smoothed.tokenizer.vocabulary.symbols[2:]))
    neural = network_of(word_tokenizer(words))
    mixed = MixedModel([smoothed, neural], [0.25, 0.75], names=["ngram", "net"])
    prompt = "the students opened their"
    report = next_words(mixed, "mix", prompt, top=5)
    alone = {
        name: shares(next_words(model, name, prompt, top=99))
        for name, model in (("ngram", smoothed), ("net", neural))
    }
    orders = {one["token"]: one["order"] for one in
              next_words(smoothed, "m", prompt, top=99).values["tokens"]}  # fmt: skip
    for one in report.values["tokens"]:
        token = one["token"]
        first, second = one["parts"]
        assert [first["model"], second["model"]] == ["ngram", "net"]
        assert [first["weight"], second["weight"]] == [0.25, 0.75]
        own = first["probability"], second["probability"]
        assert own == pytest.approx((alone["ngram"][token], alone["net"][token]), rel=1e-6)
        assert one["probability"] == pytest.approx(0.25 * own[0] + 0.75 * own[1], rel=1e-6)
        assert (first["share_percent"], second["share_percent"]) == pytest.approx(
            (25 * own[0] / one["probability"], 75 * own[1] / one["probability"]), rel=1e-6
        )
        assert first["share_percent"] + second["share_percent"] == pytest.approx(100, abs=1e-6)
        assert first["order"] == orders[token]
        assert "order" not in second
