"""The classifier at work: linear scores by hand, states by other means, files that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from classification.opinions import opinions, small
from safetensors.numpy import load_file, save_file

import seqtool
from seqtool.classification.data import WordReader
from seqtool.classification.model import Classifier
from seqtool.classification.network import ReadingNetwork
from seqtool.classification.ngrams import Bags
from seqtool.core import checkpoint
from seqtool.core.errors import DataError, ModelError

TEXTS = [opinion.text for opinion in opinions("valid")[:30]]


def linear() -> Classifier:
    config = small("linear", data__text_column="review")
    bags = Bags(config.model, ("good", "bad", "not", "not good"))
    weights = np.float32([[1, -1], [-2, 2], [0.5, 0.25], [-3, 3]])
    arrays = {"ngrams.weight": weights, "bias": np.float32([0.5, 0])}
    return Classifier(config, ("yes", "no"), bags, arrays)


def recurrent(seed: int = 0, **settings: Any) -> Classifier:
    config = small("bilstm", **settings)
    reader = WordReader(config.model, ())
    reader.learn(TEXTS)
    generator = np.random.default_rng(seed)
    network = ReadingNetwork(config.model, 2 + len(reader.known), 3)
    weights = {
        name: generator.normal(0.0, 0.4, tensor.shape).astype(np.float32)
        for name, tensor in network.state_dict().items()
    }
    return Classifier(config, ("a", "b", "c"), reader, weights)


def test_linear_scores_by_hand() -> None:
    classifier = linear()
    # "not good": not, good and "not good", each 1/sqrt(3); "?" is unknown: the bias alone
    scores = [
        [0.5 + (1 + 0.5 - 3) / 3**0.5, (-1 + 0.25 + 3) / 3**0.5],
        [0.5, 0.0],
        [0.5 - 2, 2.0],
    ]
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    probabilities = classifier.probabilities(["not good", "?", "bad"])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6)
    assert classifier("Bad!").label == "no"
    labels = [prediction.label for prediction in classifier(["good", "not good", ""])]
    assert labels == ["yes", "no", "yes"]
    assert list(classifier("good").probabilities) == ["yes", "no"]
    assert classifier([]) == []
    with pytest.raises(DataError, match="text 2"):
        classifier(["good", "d\udce9g"])


def test_texts_do_not_know_of_one_another() -> None:
    classifier = recurrent(model__layers=2)
    together = classifier.probabilities([*TEXTS, ""])
    np.testing.assert_allclose(together.sum(1), 1.0, rtol=1e-5)
    alone = np.concatenate([classifier.probabilities([text]) for text in [*TEXTS[:6], ""]])
    np.testing.assert_allclose(together[[0, 1, 2, 3, 4, 5, -1]], alone, rtol=1e-4, atol=1e-6)


def test_states_are_those_of_torch() -> None:
    classifier = recurrent()
    weights = {name: torch.from_numpy(array) for name, array in classifier.weights.items()}
    both = torch.nn.LSTM(12, 10, bidirectional=True)
    for way, suffix in (("forwards", ""), ("backwards", "_reverse")):
        prefix = f"encoder.layers.0.{way}."
        for name, parameter in both.named_parameters():
            if name.endswith("_reverse") == bool(suffix):
                parameter.detach().copy_(weights[prefix + name.removesuffix("_reverse")])
    ids = classifier.reader.ids(TEXTS[0])
    states = both(weights["embedding.weight"][list(ids)])[0]
    scores = weights["output.weight"] @ states.amax(0) + weights["output.bias"]
    expected = scores.softmax(0).detach().numpy()
    found = classifier.probabilities(TEXTS[:1])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [linear, recurrent])
def test_what_is_saved_is_opened(make: Any, tmp_path: Path) -> None:
    classifier = make()
    classifier.save(tmp_path / "m", scores={"dev_accuracy": 50.0}, data={"labels": {"yes": 3}})
    opened = seqtool.load(tmp_path / "m", seqtool.Classifier)
    assert (opened.config, opened.labels) == (classifier.config, classifier.labels)
    expected = classifier.probabilities(TEXTS)
    np.testing.assert_array_equal(opened.probabilities(TEXTS), expected)
    assert "seqtool classify" in (tmp_path / "m" / "README.md").read_text()


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    first, second = recurrent(), recurrent(1)
    expected = (first.probabilities(TEXTS) + second.probabilities(TEXTS)) / 2
    np.testing.assert_allclose(first.ensemble([second]).probabilities(TEXTS), expected, rtol=1e-5)
    with pytest.raises(ModelError, match="cannot classify together"):
        first.ensemble([linear()])


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    linear().save(tmp_path / "m", scores={}, data={})
    path = tmp_path / "m" / checkpoint.WEIGHTS
    save_file(load_file(path) | {"bias": np.zeros(3, np.float32)}, path)
    header = checkpoint.read_header(tmp_path / "m")
    header.files.clear()  # without the sums that would tell
    with pytest.raises(ModelError, match="does not fit its own description"):
        Classifier.load(tmp_path / "m", header)
