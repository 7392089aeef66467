"""The classifier at work: linear scores by hand, states by other means, files that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from classification.opinions import opinions, small
from safetensors.numpy import load_file, save_file
from toy_networks import run_as_on_gpu

import seqtool
from seqtool.classification.config import CELLS, ClassifierConfig, Encoder
from seqtool.classification.data import WordReader
from seqtool.classification.model import Classifier
from seqtool.classification.network import (
    CellLayers,
    RecurrentNetwork,
    TunedNetwork,
    scores_of,
    trained_network,
)
from seqtool.classification.ngrams import Bags
from seqtool.core import checkpoint
from seqtool.core.errors import DataError, ModelError

TEXTS = [opinion.text for opinion in opinions("valid")[:30]]
ENCODERS: list[Encoder] = ["none", *CELLS, "bilstm"]  # type: ignore[list-item]


def random_weights(network: torch.nn.Module, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        name: generator.normal(0.0, 0.4, tensor.shape).astype(np.float32)
        for name, tensor in network.state_dict().items()
    }


def linear() -> Classifier:
    config = small("linear", data__text_column="review")
    bags = Bags(config.model, ("good", "bad", "not", "not good"))
    weights = np.float32([[1, -1], [-2, 2], [0.5, 0.25], [-3, 3]])
    arrays = {"ngrams.weight": weights, "bias": np.float32([0.5, 0])}
    return Classifier(config, ("yes", "no"), bags, arrays)


def recurrent(encoder: str, **settings: Any) -> Classifier:
    config = small(encoder, **settings)
    reader = WordReader.build(config.model, TEXTS)
    weights = random_weights(RecurrentNetwork(config.model, 2 + len(reader.known), 3))
    return Classifier(config, ("a", "b", "c"), reader, weights)


def network_with(classifier: Classifier) -> RecurrentNetwork | TunedNetwork:
    assert isinstance(classifier.reader, WordReader)
    known = len(classifier.reader.known)
    return trained_network(
        classifier.config.model, known, classifier.weights, classifier.word_states
    )


def test_linear_scores_by_hand() -> None:
    classifier = linear()
    # "not good": not, good and "not good", each 1/sqrt(3); "?" is unknown: the bias alone
    scores = [
        [0.5 + (1 + 0.5 - 3) / 3**0.5, (-1 + 0.25 + 3) / 3**0.5],
        [0.5, 0.0],
        [0.5 - 2, 2.0],
    ]
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    found = classifier.probabilities(["not good", "?", "bad"])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert classifier("Bad!").label == "no"
    labels = [prediction.label for prediction in classifier(["good", "not good", ""])]
    assert labels == ["yes", "no", "yes"]
    assert list(classifier("good").probabilities) == ["yes", "no"]
    assert classifier([]) == []
    with pytest.raises(DataError, match=r"text 2 is U.DCE9, half a pair"):
        classifier(["good", "d\udce9g"])


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("pooling", ["last", "mean", "max"])
def test_texts_do_not_know_of_one_another(encoder: str, pooling: str) -> None:
    classifier = recurrent(encoder, model__pooling=pooling, model__layers=2)
    together = classifier.probabilities([*TEXTS, ""])
    np.testing.assert_allclose(together.sum(1), 1.0, rtol=1e-5)
    alone = np.concatenate([classifier.probabilities([text]) for text in [*TEXTS[:6], ""]])
    np.testing.assert_allclose(together[[0, 1, 2, 3, 4, 5, -1]], alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pooling", ["last", "mean", "max"])
@pytest.mark.parametrize(("encoder", "kind"), [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)])
def test_states_are_those_of_torch(encoder: str, kind: type[Any], pooling: str) -> None:
    classifier = recurrent(encoder, model__pooling=pooling)
    weights = {name: torch.from_numpy(array) for name, array in classifier.weights.items()}
    other = kind(12, 10)
    prefix = "encoder.cells.0.inner."
    other.load_state_dict(
        {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    )
    reader = classifier.reader
    assert isinstance(reader, WordReader)
    found = scores_of(network_with(classifier), [reader.ids(TEXTS[0])], None)
    states = other(weights["embedding.weight"][reader.ids(TEXTS[0]).tolist()])[0]
    pooled = {"last": states[-1], "mean": states.mean(0), "max": states.amax(0)}[pooling]
    expected = weights["output.weight"] @ pooled + weights["output.bias"]
    np.testing.assert_allclose(found[0], expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_last_states_of_a_bilstm_are_of_both_ends() -> None:
    classifier = recurrent("bilstm", model__pooling="last")
    weights = {name: torch.from_numpy(array) for name, array in classifier.weights.items()}
    both = torch.nn.LSTM(12, 10, bidirectional=True)
    for way, suffix in (("forwards", ""), ("backwards", "_reverse")):
        prefix = f"encoder.layers.0.{way}."
        for name, parameter in both.named_parameters():
            if name.endswith("_reverse") == bool(suffix):
                parameter.detach().copy_(weights[prefix + name.removesuffix("_reverse")])
    reader = classifier.reader
    assert isinstance(reader, WordReader)
    ids = reader.ids(TEXTS[0]).tolist()
    _, (last, _) = both(weights["embedding.weight"][ids][:, None])
    expected = weights["output.weight"] @ last[:, 0].flatten() + weights["output.bias"]
    found = scores_of(network_with(classifier), [reader.ids(TEXTS[0])], None)
    np.testing.assert_allclose(found[0], expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_long_texts_are_read_from_their_beginning() -> None:
    classifier = recurrent("gru", model__max_words=5)
    texts = ["one two three four five", "one two three four five six", "a"]
    assert classifier.num_cut(texts) == 1
    found = classifier.probabilities(texts)
    np.testing.assert_array_equal(found[0], found[1])
    assert linear().num_cut(["word " * 5000]) == 0


@pytest.mark.parametrize("encoder", ["linear", "lstm", "bilstm"])
def test_what_is_saved_is_opened(encoder: str, tmp_path: Path) -> None:
    classifier = linear() if encoder == "linear" else recurrent(encoder)
    classifier.save(tmp_path / "m", scores={"dev_accuracy": 50.0}, data={"labels": {"yes": 3}})
    opened = seqtool.load(tmp_path / "m", seqtool.Classifier)
    assert isinstance(opened.config, ClassifierConfig)
    assert (opened.config, opened.labels) == (classifier.config, classifier.labels)
    expected = classifier.probabilities(TEXTS)
    np.testing.assert_array_equal(opened.probabilities(TEXTS), expected)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "seqtool classify" in card


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    first, second = recurrent("none"), recurrent("gru")
    expected = (first.probabilities(TEXTS) + second.probabilities(TEXTS)) / 2
    np.testing.assert_allclose(first.ensemble([second]).probabilities(TEXTS), expected, rtol=1e-5)
    with pytest.raises(ModelError, match="cannot classify together"):
        first.ensemble([linear()])


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    linear().save(tmp_path / "m", scores={}, data={})
    path = tmp_path / "m" / checkpoint.WEIGHTS
    arrays = load_file(path)
    arrays["bias"] = np.zeros(3, np.float32)
    save_file(arrays, path)
    header = checkpoint.read_header(tmp_path / "m")
    with pytest.raises(ModelError, match="damaged"):
        Classifier.load(tmp_path / "m", header)
    header.files.clear()
    with pytest.raises(ModelError, match="does not fit its own description"):
        Classifier.load(tmp_path / "m", header)


@pytest.mark.parametrize("encoder", CELLS)
def test_on_a_gpu_cells_are_in_float32(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layers, lengths = CellLayers(small(encoder, model__layers=2).model, 3), torch.tensor([4, 2])
    inputs_TD = torch.randn(6, 3).bfloat16()
    expected = layers(inputs_TD.float(), lengths)
    monkeypatch.setattr("seqtool.classification.network.run_recurrent", run_as_on_gpu)
    with torch.autocast("cpu"):
        found = layers(inputs_TD, lengths)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
