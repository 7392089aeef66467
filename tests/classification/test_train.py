"""Training of classifiers: what is learnt, what is recorded, that a resumed run ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from classification.opinions import best_accuracy, opinions, small, table, write
from safetensors.numpy import load_file
from toy_networks import save_lm

import seqtool
from seqtool.classification.config import preset, resolve
from seqtool.classification.train import train_classifier
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opinions")
    write(folder / "train.csv", opinions("train")[:2000])
    write(folder / "few.csv", opinions("train")[:160])
    write(folder / "dev.csv", opinions("valid"))
    (folder / "text.txt").write_text("the dog sees a cat\na cat sees the dog\n" * 20)
    save_lm(folder / "lm", seqtool.prepare([folder / "text.txt"], folder / "corpus"), 4)
    return folder


def trained(folder: Path, output: Path, settings: Any, train: str = "few", **rest: Any) -> Any:
    source = None if rest.get("resume") else folder / f"{train}.csv"
    return train_classifier(
        source, output, settings, dev=folder / "dev.csv", device="cpu", threads=1, **rest
    )


def test_what_needs_its_context_is_learnt_by_reading_it(folder: Path, tmp_path: Path) -> None:
    # 100 % can be reached; two words apart decide, which are no bigram where a third is between
    sizes = {"model__embedding_size": 32, "model__hidden_size": 32, "training__learning_rate": 0.01}
    network = small("bilstm", 4, **sizes)
    read = trained(folder, tmp_path / "network", network, "train").scores
    bag = trained(folder, tmp_path / "bag", small("linear", 6), "train").scores
    assert read["dev_accuracy"] > 97
    assert read["dev_macro_f1"] > 97
    assert 75 < bag["dev_accuracy"] < 95
    assert 45 < bag["dev_majority_accuracy"] == read["dev_majority_accuracy"] < 55
    classifier = seqtool.load(tmp_path / "network", seqtool.Classifier)
    texts = [opinion.text for opinion in opinions("valid")]
    found = [prediction.label for prediction in classifier(texts)]
    right = sum(x == y.label for x, y in zip(found, opinions("valid"), strict=True))
    assert 100 * right / len(texts) == pytest.approx(read["dev_accuracy"])
    # one label in five turned round: no more than the rest can be right but by chance
    turned = opinions("valid", 0.2)
    gold = {opinion.text: opinion.label for opinion in opinions("valid")}
    right = sum(gold[each.text] == each.label for each in turned)
    assert 100 * right / len(turned) == best_accuracy(turned)


@pytest.mark.parametrize(
    ("encoder", "setting", "value", "others"),
    [
        ("linear", "hidden_size", 64, "lstm, gru, rhn, bilstm"),
        ("linear", "pooling", "mean", "none, lstm, gru, rhn, bilstm, lm"),
        ("none", "layers", 2, "lstm, gru, rhn, bilstm"),
        ("lstm", "depth", 4, "rhn"),
        ("bilstm", "word_order", 3, "linear"),
        ("gru", "buckets", 100, "linear"),
    ],
)
def test_what_the_encoder_does_not_read_is_refused(
    folder: Path, tmp_path: Path, encoder: str, setting: str, value: object, others: str
) -> None:
    settings = {"model": {"encoder": encoder, setting: value}}
    with pytest.raises(ConfigError, match=f"{setting} is set, but the encoder {encoder}") as caught:
        trained(folder, tmp_path / "model", settings)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(f"choose another encoder: {others}")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("encoder", "stop_at"), [("linear", 3), ("lstm", 7), ("rhn", 8)])
def test_a_resumed_run_ends_with_the_same_weights(
    encoder: str, stop_at: int, folder: Path, tmp_path: Path
) -> None:
    settings = small(encoder)
    whole = trained(folder, tmp_path / "whole", settings)
    with pytest.raises(Interrupted, match=f"step {stop_at}") as caught:
        trained(folder, tmp_path / "parts", settings, should_stop=lambda step: step == stop_at)
    assert "train-classifier --resume" in caught.value.hint
    parts = train_classifier(None, tmp_path / "parts", resume=True, device="cpu")
    expected, found = (
        load_file(tmp_path / name / checkpoint.WEIGHTS) for name in ("whole", "parts")
    )
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)
    assert parts.scores["dev_accuracy"] == whole.scores["dev_accuracy"]


def test_the_states_of_a_language_model_are_read(folder: Path, tmp_path: Path) -> None:
    result = trained(folder, tmp_path / "m", small("gru", 1), lm=folder / "lm")
    data = checkpoint.read_header(tmp_path / "m").data
    assert (data["lm_unit"], data["texts"], data["dev_texts"]) == ("word", 160, 377)
    weights = load_file(tmp_path / "m" / checkpoint.WEIGHTS)
    assert weights["lm.weight"].shape == (6, 4)
    classifier = seqtool.load(tmp_path / "m", seqtool.Classifier)
    texts = [opinion.text for opinion in opinions("valid")]
    right = [p.label == o.label for p, o in zip(classifier(texts), opinions("valid"), strict=True)]
    assert 100 * sum(right) / len(right) == pytest.approx(result.scores["dev_accuracy"])
    with pytest.raises(ConfigError, match="a linear classifier reads no language model"):
        trained(folder, tmp_path / "linear", small("linear"), lm=folder / "lm")
    assert not (tmp_path / "linear").exists()


def test_every_tenth_text_is_held_out(folder: Path, tmp_path: Path) -> None:
    read: list[Any] = []
    train_classifier(
        folder / "few.csv", tmp_path / "m", small("linear", 1), device="cpu", on_data=read.append
    )
    data = read[0]
    few = opinions("train")[:160]
    assert data.dev.texts == [opinion.text for opinion in few[9::10]]
    assert data.dev.labels == [opinion.label for opinion in few[9::10]]
    assert len(data.train.texts) == 144
    assert data.summary["labels"] == {
        label: sum(each == label for each in data.train.labels) for label in data.labels
    }
    assert list(data.summary["labels"].values()) == sorted(
        data.summary["labels"].values(), reverse=True
    )


def test_texts_that_cannot_be_learnt_from(tmp_path: Path) -> None:
    one = table(tmp_path / "one.csv", [("a", "x"), ("b", "x")])
    with pytest.raises(DataError, match="all texts have the label 'x'"):
        train_classifier(one, tmp_path / "m", small("linear"))
    empty = table(tmp_path / "empty.csv", [(" ", "x"), ("", "y")])
    for encoder in ("linear", "gru"):
        with pytest.raises(DataError, match="no word occurs often enough"):
            train_classifier(empty, tmp_path / "m", small(encoder))
    with pytest.raises(ConfigError, match="nothing is given to train on"):
        train_classifier(None, tmp_path / "m")
    with pytest.raises(ConfigError, match="cannot come from stdin"):
        train_classifier("-", tmp_path / "m")
    with pytest.raises(ModelError, match="no run to resume"):
        train_classifier(None, tmp_path / "m", resume=True)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("encoder", ["linear", "lstm"])
def test_texts_without_known_words_are_learnt_from(encoder: str, tmp_path: Path) -> None:
    rows = [("fine film", "x"), ("", "y"), ("fine film", "x"), ("\u2003", "y"), ("dull", "y")] * 4
    result = train_classifier(
        table(tmp_path / "few.csv", rows), tmp_path / "m", small(encoder, 3), device="cpu"
    )
    assert result.epochs == 3
    with pytest.raises(DataError, match="no rows"):
        train_classifier(table(tmp_path / "none.csv", []), tmp_path / "n", small(encoder))


def test_an_encoder_implies_its_preset() -> None:
    assert resolve(None, None, {}, []).training.epochs == preset("linear")["training"]["epochs"]
    chosen = resolve(None, None, {"model.encoder": "rhn"}, [])
    assert (chosen.model.encoder, chosen.model.min_count) == ("rhn", 2)
    tuned = resolve(None, None, {"model.encoder": "lm"}, []).training.learning_rate
    assert tuned == preset("fine-tuned")["training"]["learning_rate"]
    with pytest.raises(ConfigError, match="there are no n-grams"):
        resolve(None, None, {}, ["word_order=0"])
