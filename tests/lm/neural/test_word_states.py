"""The states of words, against those of going through a sentence unit by unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from toy_models import byte_tokenizer, char_tokenizer, two_words, word_tokenizer

from seqtool.core.arrays import Floats
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.text.subwords import train_subwords
from seqtool.text.tokenizers import Tokenizer

SENTENCES = ["the old dog", "", "dog", " a  cat\tsat ", "은 the 는"]


def subwords() -> Tokenizer:
    text = ["the old dog sat", "the older cat sat", "a dog and a cat", "old dogs and cats"] * 5
    return train_subwords(text, unit="bpe", vocab_size=24)


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "word": lambda: word_tokenizer(["the", "old", "dog", "cat", "a"]),
    "char": lambda: char_tokenizer("theoldgcas "),
    "byte": byte_tokenizer,
    "bpe": subwords,
}


def make(tokenizer: Tokenizer, **settings: Any) -> NeuralLanguageModel:
    torch.manual_seed(3)
    config = ModelConfig(
        **{"cell": "lstm", "hidden_size": 6, "layers": 2, "init_range": 0.7, **settings}
    )
    return NeuralLanguageModel(NeuralNetwork(config, len(tokenizer.vocabulary)), tokenizer)


def stepped(model: NeuralLanguageModel, text: str) -> Floats:
    """The state after a text from its beginning, by steps."""
    state = model.start(1)
    for token in model.tokenizer.encode(text):
        state = model.advance(state, np.array([token], np.int32))
    return model.hidden_state(state)[0]


@pytest.mark.parametrize("unit", TOKENIZERS)
def test_a_word_has_the_state_after_it(unit: str) -> None:
    model = make(TOKENIZERS[unit]())
    for sentence, vectors in zip(SENTENCES, model.states(SENTENCES), strict=True):
        words = sentence.split()
        assert vectors.shape == (len(words), 6)
        assert vectors.dtype == np.float32
        end = 0
        for word, vector in zip(words, vectors, strict=True):
            end = sentence.index(word, end) + len(word)
            np.testing.assert_allclose(vector, stepped(model, sentence[:end]), rtol=0, atol=1e-6)
        np.testing.assert_allclose(model.states(sentence), vectors, rtol=0, atol=1e-6)


def test_the_mean_is_that_over_pieces() -> None:
    tokenizer = subwords()
    model = make(tokenizer)
    line = "older dogs sat"
    pieces = tokenizer.tokens(line)
    assert len(pieces) > 4
    ids = tokenizer.encode(line)
    (states,) = model.sentence_states([ids])
    of_words: list[list[Floats]] = []
    for number, piece in enumerate(pieces):
        if piece.startswith("\N{LOWER ONE EIGHTH BLOCK}") or not number:
            of_words.append([])
        if piece != "\N{LOWER ONE EIGHTH BLOCK}":  # alone it is of no word
            of_words[-1].append(states[number + 1])
    expected = [np.mean(rows, axis=0) for rows in of_words]
    np.testing.assert_allclose(model.states(line, pool="mean"), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("connection", ["plain", "residual", "dense", "highway"])
def test_a_layer_is_the_last_one_of_a_network_without_those_above(connection: str) -> None:
    tokenizer = TOKENIZERS["word"]()
    whole = make(tokenizer, layers=3, connection=connection)
    for layer in (1, 2, 3):
        part = make(tokenizer, layers=layer, connection=connection)
        weights = whole.network.state_dict()
        kept = {name: weights[name] for name, _ in part.network.named_parameters()}
        part.network.load_state_dict(kept, strict=False)
        for found, expected in zip(
            whole.states(SENTENCES, layer=layer), part.states(SENTENCES), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    embedding = whole.network.embedding.weight.detach().numpy()
    ids = tokenizer.encode("dog the")
    np.testing.assert_array_equal(whole.states("dog the", layer=0), embedding[ids])


def test_is_refused() -> None:
    model = make(TOKENIZERS["word"]())
    with pytest.raises(ConfigError, match="no layer 3: the network has 2 layers"):
        model.states("a", layer=3)
    with pytest.raises(ConfigError, match="no layer -1"):
        model.states("a", layer=-1)
    with pytest.raises(ConfigError, match="pool is 'first'"):
        model.states("a", pool="first")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="<text>:2: a sentence with a line end inside"):
        model.states(["a", "a\nb"])
    with pytest.raises(ModelError, match="toy-bigram has no states"):
        two_words().states("a")
