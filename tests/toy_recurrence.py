"""Recurrent language models of a few units whose weights are set by tests, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from toy_models import word_tokenizer

from seqtool.lm.neural.config import ModelConfig, OutputConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork

WORDS = "abcdefgh"
# every recurrent cell, and everything that a network can have beside
NETWORKS: dict[str, dict[str, Any]] = {
    "rnn-tanh": {"cell": "rnn"},
    "rnn-relu": {"cell": "rnn", "activation": "relu"},
    "rnn-leaky": {"cell": "rnn", "activation": "leaky-relu", "activation_slope": 0.2},
    "rnn-parametric": {"cell": "rnn", "activation": "parametric-relu"},
    "rnn-logistic": {"cell": "rnn", "activation": "logistic"},
    "lstm": {"cell": "lstm"},
    "lstm-projected": {"cell": "lstm", "projection_size": 3},
    "gru": {"cell": "gru"},
    "rhn": {"cell": "rhn", "depth": 3},
    "rhn-separate": {"cell": "rhn", "depth": 2, "carry": "separate"},
    "lstm-layers": {"cell": "lstm", "layers": 2, "last_size": 3},
    "gru-residual": {"cell": "gru", "layers": 2, "connection": "residual"},
    "rnn-dense": {"cell": "rnn", "layers": 2, "connection": "dense"},
    "rhn-highway": {"cell": "rhn", "depth": 2, "layers": 2, "connection": "highway"},
    "rnn-maxent": {"cell": "rnn", "output": OutputConfig(layer="maxent", direct_size=64)},
}


def make_network(
    size: int = 5, *, scale: float = 0.8, seed: int = 1, **settings: Any
) -> NeuralNetwork:
    """Return a network over `WORDS` in float64, all of its weights drawn within +- `scale`."""
    config = ModelConfig(hidden_size=size, embedding_size=size, **settings)
    network = NeuralNetwork(config, 2 + len(WORDS)).double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -scale, scale, generator=generator)
    return network


def make_model(size: int = 5, **settings: Any) -> NeuralLanguageModel:
    """Return a language model with such a network."""
    return NeuralLanguageModel(make_network(size, **settings), word_tokenizer(WORDS))


def write_text(
    path: Path, num_lines: int = 60, seed: int = 3, words: Sequence[str] = WORDS
) -> Path:
    """Write sentences of random words, and return their path."""
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(words), (num_lines, 4), generator=generator).tolist()
    path.write_text("".join(" ".join(words[pick] for pick in line) + "\n" for line in picks))
    return path
