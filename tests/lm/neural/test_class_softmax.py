"""The class-based softmax: its classes, its definition, files of classes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.classes import ClassSoftmax, classes_by_count
from seqtool.lm.neural.config import NeuralLMConfig, OutputConfig
from seqtool.lm.neural.output import Surroundings
from seqtool.lm.neural.train import train_lm
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

CLASSES = np.array([0, 1, 2, 0, 2, 2, 3], np.int32)  # of seven words, not in ranges


def make() -> ClassSoftmax:
    config = OutputConfig(layer="class", num_classes=4)
    layer = ClassSoftmax(config, Surroundings(3, len(CLASSES), classes=CLASSES)).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    return layer


def test_probabilities_by_their_definition() -> None:
    layer = make()
    hidden = [0.5, -1.0, 2.0]

    def exponent(weight_H: list[float], bias: float) -> float:
        return math.exp(sum(w * h for w, h in zip(weight_H, hidden, strict=True)) + bias)

    of_classes, of_words = (
        [exponent(row, b) for row, b in zip(weight.tolist(), bias.tolist(), strict=True)]
        for weight, bias in ((layer.class_weight, layer.class_bias), (layer.weight, layer.bias))
    )
    expected = []
    for word, number in enumerate(CLASSES.tolist()):
        inside = sum(of_words[other] for other in np.flatnonzero(number == CLASSES))
        expected.append(of_classes[number] / sum(of_classes) * of_words[word] / inside)
    assert sum(expected) == pytest.approx(1, abs=1e-14)
    hidden_NH = torch.tensor([hidden], dtype=torch.float64)
    np.testing.assert_allclose(layer.log_probs(hidden_NH)[0].exp().tolist(), expected, rtol=1e-12)
    for word, prob in enumerate(expected):
        loss = layer.loss(hidden_NH, torch.tensor([word]))
        assert loss.item() == pytest.approx(-math.log(prob), rel=1e-12)


def test_gradients_by_differences() -> None:
    layer = make()
    names = [name for name, _ in layer.named_parameters()]
    targets_N = torch.tensor([5, 0, 2, 6, 5, 3])
    generator = torch.Generator().manual_seed(2)
    hidden_NH = torch.randn(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def scores(hidden_NH: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, weights, strict=True))
        with torch.nn.utils.stateless._reparametrize_module(layer, given):  # type: ignore[attr-defined]
            return layer.target_log_probs(hidden_NH, targets_N)

    weights = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    assert torch.autograd.gradcheck(scores, (hidden_NH, *weights))


def test_the_words_of_classes_move_with_the_layer() -> None:
    layer = make()
    names = set(dict(layer.named_buffers()))  # a state that was saved before has no others
    assert names == {"class_V", "_places_V"}
    # class 0 has the words 0 and 3, class 2 has 2, 4 and 5; the others are ranges
    words = [ids.tolist() for ids in layer._members if isinstance(ids, torch.Tensor)]
    assert words == [[0, 3], [2, 4, 5]]
    layer.to("meta")
    moved = [ids for ids in layer._members if isinstance(ids, torch.Tensor)]
    assert [ids.device.type for ids in moved] == ["meta", "meta"]
    assert set(dict(layer.named_buffers())) == names


def test_classes_by_count() -> None:
    # <unk> and </s> come first: 10 + 20 + 30 is the first sum from 100 / 3 on; then 25, from 40 / 2
    # on; then the rest
    counts = np.array([10, 20, 5, 30, 25, 10])
    assert classes_by_count(6, 3, counts).tolist() == [0, 0, 2, 0, 1, 2]
    # a word with most of the text takes one class, and no class is empty
    assert classes_by_count(5, 4, np.array([0, 0, 1000, 1, 1])).tolist() == [0, 0, 1, 2, 3]
    assert classes_by_count(4, 4, np.array([0, 1000, 1, 1])).tolist() == [0, 1, 2, 3]
    assert classes_by_count(4, 1, np.array([0, 0, 1, 1])).tolist() == [0] * 4
    # of a text by Zipf's law, classes have about the same share but for the most frequent words:
    # in place of 1 / 100 of it 0.7 to 1.1%, where words have up to 20,000 times each other's
    counts = (1e6 / np.arange(1, 10_001)).astype(np.int64)
    class_V = classes_by_count(10_000, 100, counts)
    shares = np.bincount(class_V, counts)[15:] / counts.sum()
    assert np.bincount(class_V).min() == 1
    assert shares.max() / shares.min() < 1.6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_text("a b c d\nb a d c\na c b d e\n" * 10)
    (folder / "valid.txt").write_text("a b d c\n" * 4)
    return prepare([folder], folder / "corpus", PrepareConfig())


def settings(**output: object) -> NeuralLMConfig:
    return from_dict(
        NeuralLMConfig,
        {
            "model": {"hidden_size": 4, "output": {"layer": "class", **output}},
            "data": {"batch_size": 2, "bptt": 5},
            "training": {"epochs": 1},
        },
    )


def test_classes_of_a_file(tmp_path: Path, corpus: PreparedCorpus) -> None:
    file = tmp_path / "classes.tsv"
    file.write_text("a\tx\nb\tx\nc\ty\nd\ty\nnever\tz\n")
    trained = train_lm(corpus, tmp_path / "m", settings(classes=str(file)))
    file.unlink()  # a model needs it no more
    model = checkpoint.load(trained.path)
    symbols = corpus.vocabulary.symbols
    class_V = load_file(trained.path / checkpoint.WEIGHTS)["softmax.class_V"].tolist()
    found = dict(zip(symbols, class_V, strict=True))
    assert found["<unk>"] == 0
    assert found["</s>"] == 1
    assert found["a"] == found["b"] != found["c"] == found["d"]
    assert len(set(class_V)) == max(class_V) + 1 == 5  # e is one of its own
    assert checkpoint.read_header(trained.path).config["model"]["output"]["num_classes"] == 5
    perplexity = evaluate_lm(model, corpus.path, split="valid").perplexity
    assert perplexity == trained.scores["valid_perplexity"]


def test_a_run_finds_its_file_of_classes_from_another_folder(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    file = Path("classes.tsv")
    file.write_text("a\tx\nb\tx\nc\ty\nd\ty\n")
    own = settings(classes="classes.tsv")
    whole = train_lm(corpus, tmp_path / "whole", own)
    for name in ("m", "n"):
        with pytest.raises(Interrupted):
            train_lm(corpus, tmp_path / name, own, should_stop=lambda step: step == 2)
    other = tmp_path / "there" / "other.tsv"
    other.write_text("d 1\nc 1\nb 0\na 0\n")  # the same classes
    monkeypatch.chdir(tmp_path / "there")
    for name, config in (("m", None), ("n", settings(classes="other.tsv"))):
        resumed = train_lm(output=tmp_path / name, config=config, resume=True)
        weights = [load_file(run.path / checkpoint.WEIGHTS) for run in (whole, resumed)]
        assert weights[0].keys() == weights[1].keys()
        assert all(torch.equal(tensor, weights[1][key]) for key, tensor in weights[0].items())
    other.write_text("a x\nb y\nc x\nd y\n")
    with pytest.raises(ModelError, match=r"the run differs: model\.output\.classes was"):
        train_lm(output=tmp_path / "n", config=settings(classes="other.tsv"), resume=True)


def test_what_is_refused(tmp_path: Path, corpus: PreparedCorpus) -> None:
    file = tmp_path / "classes.tsv"
    with pytest.raises(DataError, match="no such"):
        train_lm(corpus, tmp_path / "m", settings(classes=str(file)))
    file.write_text("a\tx\nb\n")
    with pytest.raises(DataError, match="this one 1"):
        train_lm(corpus, tmp_path / "m", settings(classes=str(file)))
    file.write_text("a\tx\nb\tx\n")
    with pytest.raises(ConfigError, match=r"num_classes is 3, but by .* this vocabulary has 6"):
        train_lm(corpus, tmp_path / "m", settings(classes=str(file), num_classes=3))
    with pytest.raises(ConfigError, match="num_classes is 8, but the vocabulary has 7 symbols"):
        train_lm(corpus, tmp_path / "m", settings(num_classes=8))
    assert not (tmp_path / "m").exists()


def test_damaged_classes(tmp_path: Path) -> None:
    layer = make()
    weights = layer.state_dict()
    save_file(weights, tmp_path / "w")
    for wrong in (-1, 4, 3):  # below zero, beyond the last, and class 1 without a word
        weights["class_V"] = torch.tensor([0, wrong, 2, 0, 2, 2, 3])
        with pytest.raises(ValueError, match="not numbered one after another"):
            make().load_state_dict(weights)
    make().load_state_dict(load_file(tmp_path / "w"))
