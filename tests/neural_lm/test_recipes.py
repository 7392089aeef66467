"""Recipes: all that are shipped, and what wins over what."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqtool.config import from_dict, to_dict
from seqtool.errors import ConfigError
from seqtool.neural_lm.config import NeuralLMConfig
from seqtool.neural_lm.model import NeuralNetwork
from seqtool.neural_lm.recipes import load_recipe, recipe_names, resolve


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "own.yaml"
    path.write_text(
        "model: {cell: gru, hidden_size: 30, layers: 3}\ntraining: {learning_rate: 1e-2}\n",
        encoding="utf-8",
    )
    return str(path)


def test_there_are_recipes() -> None:
    assert recipe_names() == sorted(recipe_names())
    assert "ptb-rhn-cpu" in recipe_names()


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipe_makes_a_network(name: str) -> None:
    config = resolve(name, {}, [])
    assert config.model.cell in name
    with torch.device("meta"):
        assert NeuralNetwork(config.model, 10_000).config == config.model
    # nothing in the file is swallowed: what it sets is what results
    settings = to_dict(config)
    for section, values in load_recipe(name).items():
        if section != "description":
            assert {key: settings[section][key] for key in values} == values


def test_defaults() -> None:
    assert resolve(None, {}, []) == NeuralLMConfig()


def test_options_win_over_the_recipe_and_overrides_over_both(recipe: str) -> None:
    assert resolve(recipe, {}, []).model.hidden_size == 30
    options = {"hidden_size": 40, "model.layers": 2}
    config = resolve(recipe, options, [])
    assert (config.model.hidden_size, config.model.layers) == (40, 2)
    config = resolve(recipe, options, ["hidden_size=50", "training.epochs=3"])
    assert (config.model.hidden_size, config.model.layers) == (50, 2)
    assert config.training.epochs == 3
    assert (config.model.cell, config.training.learning_rate) == ("gru", 0.01)


def test_the_last_override_wins() -> None:
    assert resolve(None, {}, ["bptt=5", "data.bptt=6"]).data.bptt == 6


def test_a_file_is_a_recipe(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(recipe, {}, []) == from_dict(NeuralLMConfig, load_recipe(recipe))
    monkeypatch.chdir(Path(recipe).parent)
    assert resolve("own.yaml", {}, []).model.layers == 3


def test_unknown_recipe_names_near_ones() -> None:
    with pytest.raises(ConfigError, match="no recipe is called 'ptb-lstn-cpu'") as caught:
        resolve("ptb-lstn-cpu", {}, [])
    assert "did you mean ptb-lstm-cpu" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        resolve("unheard-of", {}, [])
    assert all(name in caught.value.hint for name in recipe_names())


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file") as caught:
        resolve(str(tmp_path / "none.yaml"), {}, [])
    assert caught.value.path == str(tmp_path / "none.yaml")


def test_mistake_in_a_recipe_names_the_file(recipe: str) -> None:
    Path(recipe).write_text("model: {hidden_size: 0}\n", encoding="utf-8")
    for values, overrides in (({}, []), ({"bptt": 9}, []), ({}, ["bptt=9"])):
        with pytest.raises(ConfigError, match=r"model\.hidden_size is 0") as caught:
            resolve(recipe, values, overrides)
        assert caught.value.path == recipe
    assert resolve(recipe, {"hidden_size": 8}, []).model.hidden_size == 8  # mended by an option


def test_mistake_of_the_user_does_not_blame_the_recipe(recipe: str) -> None:
    for values, overrides in (({"hidden_size": 0}, []), ({}, ["hidden_size=0"])):
        with pytest.raises(ConfigError, match="hidden_size is 0") as caught:
            resolve(recipe, values, overrides)
        assert caught.value.path is None


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("hidden_size", "--set hidden_size has no value", "--set name=value"),
        ("hiden_size=3", "unknown setting hiden_size", "did you mean hidden_size"),
        ("model.hiden_size=3", "unknown setting model.hiden_size", "model.hidden_size"),
        ("hidden_size=[", "--set hidden_size=[ is not a value", "quote it"),
    ],
)
def test_bad_override(override: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(None, {}, [override])
    assert caught.value.message == message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("cell", "override"),
    [
        ("lstm", "depth=7"),
        ("gru", "model.carry=separate"),
        ("lstm", "activation=relu"),
        ("rhn", "window=3"),
        ("rnn", "forget_bias=1"),
    ],
)
def test_a_setting_that_the_cell_never_reads_is_refused(cell: str, override: str) -> None:
    name = override.partition("=")[0].removeprefix("model.")
    with pytest.raises(ConfigError, match=rf"model\.{name} is a setting of"):
        resolve(None, {"model.cell": cell}, [override])


def test_the_cell_may_be_named_after_its_setting() -> None:
    assert resolve(None, {}, ["depth=7", "cell=rhn"]).model.depth == 7
