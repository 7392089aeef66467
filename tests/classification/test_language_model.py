"""Classifiers that begin from a language model: its states at first, what it knows, its errors."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from classification.opinions import small, table
from safetensors.numpy import load_file
from toy_networks import save_lm

import seqtool
from seqtool.classification.config import ClassifierConfig
from seqtool.classification.data import WordReader
from seqtool.classification.network import TunedNetwork, network_of
from seqtool.classification.train import train_classifier
from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID, Vocabulary
from seqtool.lm.neural.config import ModelConfig, NeuralLMConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.text.prepared import PrepareConfig
from seqtool.text.tokenizers import WordTokenizer

WORDS = ["the", "dog", "sees", "a", "cat", "and", "sleeps"]
TEXTS = ["the dog sees a cat", "", "a cat and the unheard dog", "sleeps"]
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": {"layers": 2, "tied": True, "dropout_input": 0.5, "dropout_weights": 0.5},
    "projected": {"projection_size": 3},
    "gru": {"cell": "gru", "layers": 2, "connection": "dense"},
    "rhn": {"cell": "rhn", "depth": 2, "layers": 2, "connection": "highway"},
    "maxent": {"output": {"layer": "maxent", "direct_size": 64}},
}


def language_model(**settings: Any) -> NeuralLanguageModel:
    config = from_dict(ModelConfig, {"hidden_size": 6, **settings})
    vocabulary = Vocabulary.from_counts(dict.fromkeys(WORDS, 1))
    torch.manual_seed(0)
    network = NeuralNetwork(config, len(vocabulary))
    return NeuralLanguageModel(network, WordTokenizer(vocabulary))


@pytest.mark.parametrize("name", NETWORKS)
def test_at_first_states_are_those_of_the_language_model(name: str) -> None:
    lm = language_model(**NETWORKS[name])
    config = small("lm")
    reader = WordReader(config.model, (), lm)
    ids = [reader.ids(text) for text in TEXTS]
    assert [each.tolist()[0] for each in ids] == [EOS_ID] * 4
    network = network_of(config.model, 0, 2, lm)
    assert isinstance(network, TunedNetwork)
    network.set_dropout(config.learning)
    network.eval()
    lengths = torch.tensor([len(each) for each in ids])
    with torch.no_grad():
        found = network.states(torch.from_numpy(np.concatenate(ids)).long(), lengths)
    expected = lm.sentence_states([each[1:] for each in ids])
    np.testing.assert_allclose(found.numpy(), np.concatenate(expected), rtol=0, atol=1e-6)
    # it is a copy, without the output layer, that is trained
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any("softmax" in key for key in network.state_dict())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    after = lm.sentence_states([each[1:] for each in ids])
    np.testing.assert_array_equal(np.concatenate(after), np.concatenate(expected))


NOUNS = [f"n{number}" for number in range(12)]
VERBS = [f"v{number}" for number in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that tells nouns from verbs by what is beside them, and tables of words."""
    folder = tmp_path_factory.mktemp("words")
    draw = random.Random(1)
    lines = [f"the {draw.choice(NOUNS)} will {draw.choice(VERBS)} now" for _ in range(800)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    settings = from_dict(
        NeuralLMConfig,
        {
            "model": {"hidden_size": 12, "tied": True},
            "data": {"batch_size": 16, "bptt": 10},
            "training": {"epochs": 6, "learning_rate": 0.02},
        },
    )
    seqtool.train_lm(folder / "text.txt", folder / "lm", settings, device="cpu", threads=1)
    for name, place in (("train", slice(0, 6)), ("dev", slice(6, 12))):
        rows = [(word, "noun") for word in NOUNS[place]] + [(w, "verb") for w in VERBS[place]]
        table(folder / f"{name}.csv", rows)
    return folder


def trained(folder: Path, output: Path, config: ClassifierConfig) -> Any:
    lm = folder / "lm" if config.model.encoder == "lm" else None
    dev = folder / "dev.csv"
    return train_classifier(
        folder / "train.csv", output, config, dev=dev, lm=lm, device="cpu", threads=1
    )


def test_what_the_language_model_knows_need_not_be_learnt(folder: Path, tmp_path: Path) -> None:
    # no word of dev is in train: from scratch they are all alike, and half of them are nouns
    settings = {"training__learning_rate": 0.02, "learning__averaging": 0.0}
    scratch = small("bilstm", 12, model__min_count=1, **settings)
    assert trained(folder, tmp_path / "scratch", scratch).scores["dev_accuracy"] == 50
    tuned = trained(folder, tmp_path / "tuned", small("lm", 12, **settings))
    assert tuned.scores["dev_accuracy"] == 100
    classifier = seqtool.load(tmp_path / "tuned", seqtool.Classifier)
    assert [each.label for each in classifier(["n7", "v8", "v9"])] == ["noun", "verb", "verb"]
    # its output layer was tied to the embedding, which learns as well
    learnt = load_file(tmp_path / "tuned" / checkpoint.WEIGHTS)["layers.embedding.weight"]
    begun = load_file(folder / "lm" / checkpoint.WEIGHTS)["embedding.weight"]
    assert np.abs(learnt - begun).max() > 1e-3
    # a model without its language model, or with another one, is damaged
    header = tmp_path / "tuned" / "lm" / checkpoint.HEADER
    header.write_text(header.read_text().replace('"lowercase": false', '"lowercase": true'))
    for _ in range(2):
        with pytest.raises(ModelError, match="is missing, or another one"):
            seqtool.load(tmp_path / "tuned")
        shutil.rmtree(tmp_path / "tuned" / "lm", ignore_errors=True)


def test_units_may_be_smaller_than_words(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the dog sees a cat\na cat sees the dog\n" * 20)
    corpus = seqtool.prepare(
        [tmp_path / "text.txt"], tmp_path / "corpus", PrepareConfig(unit="char")
    )
    save_lm(tmp_path / "lm", corpus, 4)
    config = small("lm")
    lm = seqtool.load(tmp_path / "lm", NeuralLanguageModel)
    reader = WordReader(config.model, (), lm)
    expected = lm.tokenizer.encode("the dog sees").tolist()
    assert reader.ids("the dog sees").tolist() == [EOS_ID, *expected]
    shorter = WordReader(small("lm", model__max_words=2).model, (), lm)
    assert shorter.ids("the dog sees").tolist() == reader.ids("the dog").tolist()
    assert shorter.is_cut("the dog sees")
    states = WordReader(small("bilstm").model, (), lm).states(["The dog, sees.", ""])
    assert states is not None
    np.testing.assert_allclose(states[0], lm.states("The dog , sees ."), rtol=1e-3, atol=1e-4)
    (before,) = lm.sentence_states([np.zeros(0, np.int32)])
    np.testing.assert_allclose(states[1], before, rtol=1e-3, atol=1e-4)
