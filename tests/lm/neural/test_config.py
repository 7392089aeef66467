"""Settings of a neural language model: what is refused, and in which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from seqtool.core.config import from_dict, leaves, to_dict
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.cells import CELLS
from seqtool.lm.neural.config import CellName, ModelConfig, NeuralLMConfig


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("model", "cell", "lstn", "cell is 'lstn', but must be one of rnn, lstm, gru, rhn, window"),
        ("model", "hidden_size", 0, "hidden_size is 0, but must be at least 1"),
        ("model", "hidden_size", 2.5, "hidden_size is 2.5, but must be a whole number"),
        ("model", "hidden_size", True, "hidden_size is True, but must be a whole number"),
        ("model", "embedding_size", 0, "embedding_size is 0, but must be at least 1"),
        ("model", "layers", 0, "layers is 0, but must be at least 1"),
        ("model", "depth", 0, "depth is 0, but must be at least 1"),
        ("model", "window", -1, "window is -1, but must be at least 1"),
        ("model", "tied", "maybe", "tied is 'maybe', but must be true or false"),
        ("model", "init_range", 0.0, "init_range is 0.0, but must be more than 0"),
        ("model", "transform_bias", float("nan"), "transform_bias is nan"),
        ("model", "dropout_words", 1.0, "dropout_words is 1.0, but must be less than 1"),
        ("model", "dropout_state", -0.1, "dropout_state is -0.1, but must be at least 0"),
        ("data", "batch_size", 0, "batch_size is 0, but must be at least 1"),
        ("data", "bptt", "long", "bptt is 'long', but must be a whole number"),
        ("data", "vocab_size", 2, "vocab_size is 2, but must be at least 3"),
        ("data", "unit", "sentence", "unit is 'sentence', but must be one of word, char, byte"),
    ],
)
def test_impossible_value_is_named(section: str, name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(NeuralLMConfig, {section: {name: value}})
    assert caught.value.message.startswith(f"{section}.{message}")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": {"tied": True, "embedding_size": 100, "hidden_size": 200}},
            "embedding_size is 100 and hidden_size is 200",
        ),
        (
            {"model": {"cell": "window", "dropout_state": 0.1}},
            "dropout_state counts only where cell is not window",
        ),
        (
            {"model": {"tied": True, "embedding_size": 100, "layers": 2, "last_size": 90}},
            "embedding_size is 100 and last_size is 90",
        ),
        (
            {"model": {"tied": True, "embedding_size": 100, "projection_size": 90}},
            "embedding_size is 100 and projection_size is 90",
        ),
        ({"model": {"last_size": 90}}, "last_size counts only where layers > 1"),
        (
            {"model": {"cell": "gru", "projection_size": 90}},
            "projection_size counts only where cell is lstm",
        ),
        (
            {"model": {"projection_size": 200}},
            "projection_size is 200, but must be less than hidden_size, which is 200",
        ),
        (
            {"model": {"projection_size": 90, "layers": 2, "last_size": 80}},
            "projection_size is 90, but must be less than last_size, which is 80",
        ),
        (
            {"model": {"cell": "rnn", "dropout_update": 0.1}},
            "dropout_update counts only where",
        ),
        ({"data": {"random_bptt": True, "bptt": 9}}, "random_bptt is true, but bptt is 9"),
        (
            {"model": {"tied": True}, "training": {"embedding_optimiser": "sparse-adam"}},
            "sparse-adam needs an embedding of its own, but tied is true",
        ),
    ],
)
def test_contradiction_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_dict(NeuralLMConfig, values)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"modle": {}}, "unknown setting modle", "did you mean model?"),
        ({"model": {"hiden_size": 3}}, "unknown setting model.hiden_size", "hidden_size"),
        ({"model": 3}, "model is 3, but must be a section of settings", "change model"),
    ],
)
def test_unknown_setting_is_refused(values: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(NeuralLMConfig, values)
    assert caught.value.message == message
    assert hint in caught.value.hint


def test_embedding_as_wide_as_the_layer_may_be_written_out() -> None:
    assert ModelConfig(tied=True, hidden_size=7, embedding_size=7).tied


def test_settings_survive_a_dictionary() -> None:
    config = from_dict(
        NeuralLMConfig, {"model": {"cell": "rhn", "dropout_words": 0.25}, "data": {"bptt": 7}}
    )
    assert from_dict(NeuralLMConfig, to_dict(config)) == config


def test_every_setting_has_a_help_text() -> None:
    for name, field in leaves(NeuralLMConfig):
        assert field.metadata["help"], name


def test_every_cell_has_a_name_in_the_settings() -> None:
    assert set(CELLS) == set(get_args(CellName))


def test_settings_are_free_of_torch(root: Path) -> None:
    script = "import sys, seqtool.lm.neural.config; print('torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=root, check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == "False"
