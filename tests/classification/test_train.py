"""Training of classifiers: what is learnt, what is recorded, that a resumed run ends the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from classification.opinions import opinions, small, table, write
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
    (folder / "text.txt").write_text("the dog is good\na bad cat is not good\n" * 20)
    save_lm(folder / "lm", seqtool.prepare([folder / "text.txt"], folder / "corpus"), 4)
    return folder


def trained(folder: Path, output: Path, settings: Any, train: str = "few", **rest: Any) -> Any:
    source = folder / f"{train}.csv"
    return train_classifier(
        source, output, settings, dev=folder / "dev.csv", device="cpu", threads=1, **rest
    )


def test_what_needs_its_context_is_learnt_by_reading_it(folder: Path, tmp_path: Path) -> None:
    # 100 % can be reached; two words apart decide, which are no bigram where a third is between
    sizes = {"model__embedding_size": 32, "model__hidden_size": 32, "training__learning_rate": 0.01}
    network = small("bilstm", 4, **sizes)
    read = trained(folder, tmp_path / "network", network, "train").scores
    bag = trained(folder, tmp_path / "bag", small("linear", 6), "train").scores
    assert min(read["dev_accuracy"], read["dev_macro_f1"]) > 97
    assert 75 < bag["dev_accuracy"] < 95
    assert 45 < bag["dev_majority_accuracy"] == read["dev_majority_accuracy"] < 55
    classifier = seqtool.load(tmp_path / "network", seqtool.Classifier)
    predicted = classifier([opinion.text for opinion in opinions("valid")])
    right = sum(x.label == y.label for x, y in zip(predicted, opinions("valid"), strict=True))
    assert 100 * right / len(predicted) == pytest.approx(read["dev_accuracy"])


@pytest.mark.parametrize(
    ("encoder", "name", "value"),
    [
        ("linear", "model.hidden_size", 64),
        ("linear", "learning.dropout_words", 0.1),
        ("bilstm", "model.word_order", 3),
        ("lm", "model.layers", 2),
        ("lm", "model.min_count", 2),
        ("lm", "learning.dropout_lm", 0.1),
    ],
)
def test_what_the_encoder_does_not_read_is_refused(
    folder: Path, tmp_path: Path, encoder: str, name: str, value: object
) -> None:
    section, _, key = name.partition(".")
    settings: dict[str, Any] = {"model": {"encoder": encoder}}
    settings.setdefault(section, {})[key] = value
    with pytest.raises(ConfigError, match=rf"{name} counts only where (model\.)?encoder is"):
        trained(folder, tmp_path / "model", settings)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("encoder", "reads", "stop_at"),
    [("linear", False, 3), ("bilstm", False, 7), ("bilstm", True, 7), ("lm", True, 8)],
)
def test_a_resumed_run_ends_with_the_same_weights(
    encoder: str, reads: bool, stop_at: int, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "lm", tmp_path / "lm")
    settings, lm = small(encoder), tmp_path / "lm" if reads else None
    whole = trained(folder, tmp_path / "whole", settings, lm=lm)
    with pytest.raises(Interrupted, match=f"step {stop_at}") as caught:
        trained(
            *(folder, tmp_path / "parts", settings),
            lm=lm,
            should_stop=lambda step: step == stop_at,
        )
    assert "train-classifier --resume" in caught.value.hint
    with pytest.raises(ConfigError, match="not what the run began with"):
        train_classifier(None, tmp_path / "parts", resume=True, lm=tmp_path / "whole")
    shutil.rmtree(tmp_path / "lm")  # the run has its own copy
    parts = train_classifier(None, tmp_path / "parts", resume=True, device="cpu")
    expected, found = (load_file(tmp_path / x / checkpoint.WEIGHTS) for x in ("whole", "parts"))
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)
    assert parts.scores["dev_accuracy"] == whole.scores["dev_accuracy"]


def test_the_states_of_a_language_model_are_read(folder: Path, tmp_path: Path) -> None:
    result = trained(folder, tmp_path / "m", small("bilstm", 1), lm=folder / "lm")
    data = checkpoint.read_header(tmp_path / "m").data
    assert (data["lm_unit"], data["texts"], data["dev_texts"]) == ("word", 160, 377)
    assert load_file(tmp_path / "m" / checkpoint.WEIGHTS)["lm.weight"].shape == (6, 4)
    predicted = seqtool.load(tmp_path / "m", seqtool.Classifier)(
        [opinion.text for opinion in opinions("valid")]
    )
    right = sum(x.label == y.label for x, y in zip(predicted, opinions("valid"), strict=True))
    assert 100 * right / len(predicted) == pytest.approx(result.scores["dev_accuracy"])


def test_every_tenth_text_is_held_out(folder: Path, tmp_path: Path) -> None:
    read: list[Any] = []
    train_classifier(
        folder / "few.csv", tmp_path / "m", small("linear", 1), device="cpu", on_data=read.append
    )
    data, few = read[0], opinions("train")[:160]
    assert data.dev.texts == [opinion.text for opinion in few[9::10]]
    assert data.dev.labels == [opinion.label for opinion in few[9::10]]
    assert len(data.train.texts) == 144
    counts = [data.train.labels.count(label) for label in data.labels]
    assert list(data.summary["labels"].values()) == counts == sorted(counts, reverse=True)


def test_an_encoder_implies_its_preset() -> None:
    presets = {"linear": "linear", "bilstm": "recurrent", "lm": "fine-tuned"}
    for encoder, name in presets.items():
        chosen = resolve(None, None, {"model.encoder": encoder}, [])
        assert chosen.model.encoder == encoder
        assert chosen.training.learning_rate == preset(name)["training"]["learning_rate"]
    with pytest.raises(ConfigError, match="there are no n-grams"):
        resolve(None, None, {}, ["word_order=0"])


def test_what_cannot_be_learnt_from_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    seqtool.train_ngram(folder / "text.txt", tmp_path / "ngram", {"order": 2})
    one = table(tmp_path / "one.csv", [("a", "x"), ("b", "x")])
    empty = table(tmp_path / "empty.csv", [(" ", "x"), ("", "y")])
    other = table(tmp_path / "other.csv", [("x1", "x"), ("x2", "y")])
    for source, settings, lm, error, message in (
        (one, small("linear"), None, DataError, "all texts have the label 'x'"),
        (empty, small("bilstm"), None, DataError, "no word occurs often enough"),
        (None, small("linear"), None, ConfigError, "nothing is given to train on"),
        ("-", small("linear"), None, ConfigError, "cannot come from stdin"),
        (other, small("lm"), None, ConfigError, "begins from a language model"),
        (other, small("lm"), folder / "lm", DataError, "knows no word of the texts"),
        (other, small("lm"), tmp_path / "ngram", ModelError, "no neural language model"),
        (other, small("linear"), folder / "lm", ConfigError, "reads no language model"),
        (other, {"model": {"hidden_size": 64}}, None, ConfigError, "hidden_size counts only"),
    ):
        with pytest.raises(error, match=message):
            train_classifier(source, tmp_path / "m", settings, lm=lm)
    assert not (tmp_path / "m").exists()
