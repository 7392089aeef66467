"""Settings of a neural language model: what is refused, and in which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from seqtool.core.config import from_dict, leaves
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.cells import CELLS
from seqtool.lm.neural.config import CellName, NeuralLMConfig

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modle": {}}, "unknown setting modle"),
        ({"model": {"hiden_size": 3}}, "unknown setting model.hiden_size"),
        ({"model": 3}, "model is 3"),
        ({"model": {"cell": "lstn"}}, "must be one of rnn, lstm, gru, rhn, window"),
        ({"model": {"hidden_size": 0}}, "hidden_size is 0"),
        ({"model": {"hidden_size": True}}, "hidden_size is True"),
        ({"model": {"transform_bias": NAN}}, "transform_bias is nan"),
        ({"model": {"dropout_words": 1.0}}, "dropout_words is 1.0"),
        ({"data": {"bptt": "long"}}, "bptt is 'long'"),
        ({"data": {"random_bptt": True, "bptt": 9}}, "random_bptt is true"),
        ({"model": {"tied": True, "embedding_size": 9}}, "embedding_size is 9 and hidden_size"),
        (
            {"model": {"tied": True, "embedding_size": 9, "layers": 2, "last_size": 8}},
            "embedding_size is 9 and last_size is 8",
        ),
        (
            {"model": {"tied": True, "embedding_size": 9, "projection_size": 8}},
            "embedding_size is 9 and projection_size is 8",
        ),
        ({"model": {"last_size": 90}}, "last_size counts only where layers > 1"),
        ({"model": {"cell": "gru", "projection_size": 90}}, "projection_size counts only where"),
        ({"model": {"cell": "window", "dropout_state": 0.1}}, "dropout_state counts only where"),
        ({"model": {"cell": "rnn", "dropout_update": 0.1}}, "dropout_update counts only where"),
        ({"model": {"projection_size": 200}}, "must be less than hidden_size, which is 200"),
        (
            {"model": {"projection_size": 90, "layers": 2, "last_size": 80}},
            "must be less than last_size, which is 80",
        ),
        ({"model": {"output": {"layer": "adaptiv"}}}, "must be one of full, adaptive"),
        ({"model": {"output": {"layer": "adaptive", "cutoffs": []}}}, "numbers from 2 up"),
        ({"model": {"output": {"layer": "adaptive", "cutoffs": [1, 5]}}}, "numbers from 2 up"),
        ({"model": {"output": {"layer": "adaptive", "cutoffs": [5, 5]}}}, "numbers from 2 up"),
        ({"model": {"output": {"layer": "adaptive", "cutoffs": 5}}}, "a list of a whole number"),
        ({"model": {"output": {"layer": "adaptive", "div_value": 0.5}}}, "div_value is 0.5"),
        (
            {"model": {"tied": True, "output": {"layer": "adaptive", "div_value": 4}}},
            "tied clusters are all as wide",
        ),
        (
            {"model": {"tied": True}, "training": {"embedding_optimiser": "sparse-adam"}},
            "sparse-adam needs an embedding of its own",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(NeuralLMConfig, values)
    assert message in caught.value.message
    assert caught.value.hint


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
