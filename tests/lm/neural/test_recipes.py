"""Recipes: all that are shipped, and what wins over what."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqtool.cli.options import flattened
from seqtool.core.config import leaves, refuse_unread, to_dict
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.config import (
    NeuralLMConfig,
    load_recipe,
    recipe_names,
    resolve,
)
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.train import LanguageModelTask
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare
from seqtool.training.optimisers import Optimisers


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "own.yaml"
    path.write_text(
        "model: {cell: gru, hidden_size: 30, layers: 3}\ntraining: {learning_rate: 1e-2}\n",
        encoding="utf-8",
    )
    return str(path)


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipe_makes_a_network(name: str) -> None:
    config = resolve(name, {}, [])
    # a recipe is called after its cell or, where that was chosen too, after its time
    limit = config.training.time_limit
    cell = "syntactic" if name == "syntactic" else config.model.cell
    assert (cell if limit is None else str(limit).removesuffix("m")) in name
    with torch.device("meta"):
        assert NeuralNetwork(config.model, 33_278).config == config.model
    # nothing in the file is swallowed: what it sets is what results
    settings, written = dict(flattened(to_dict(config))), dict(flattened(load_recipe(name)))
    assert {key: settings[key] for key in written} == written


@pytest.mark.parametrize(
    ("name", "num_symbols", "num_parameters"),
    [
        # depth 10, 830 units, tied:
        #   embedding = softmax       10,000 x 830             8,300,000
        #   softmax bias                                          10,000
        #   input, two gates             830 x 1,660           1,377,800
        #   recurrence, depth 10    10 x 830 x 1,660          13,778,000
        #   gate biases             10 x 1,660                    16,600
        ("ptb-rhn", 10_000, 23_482_400),
        # depth 10, 1,500 units, 205 characters, so an embedding 205 wide:
        #   embedding                    205 x 205                42,025
        #   softmax and its bias         205 x 1,500 + 205       307,705
        #   input, two gates             205 x 3,000             615,000
        #   recurrence, depth 10    10 x 1,500 x 3,000        45,000,000
        #   gate biases             10 x 3,000                    30,000
        ("enwik8-rhn", 205, 45_994_730),
        # the same with 27 characters: 729 + 40,527 + 81,000 + 45,000,000 + 30,000
        ("text8-rhn", 27, 45_152_256),
        # embedding = softmax, 400 wide; softmax bias
        #   Penn Treebank         10,000 x 400 + 10,000        4,010,000
        #   WikiText-2            33,278 x 400 + 33,278       13,344,478
        # LSTM layers of four gates, with two biases
        #   400 -> 1,150          4,600 x 1,550 + 9,200        7,139,200
        #   1,150 -> 1,150        4,600 x 2,300 + 9,200       10,589,200
        #   1,150 -> 400          1,600 x 1,550 + 3,200        2,483,200
        ("ptb-awd-lstm", 10_000, 24_221_600),
        ("wikitext2-awd-lstm", 33_278, 33_556_078),
    ],
)
def test_published_recipes_have_the_published_size(
    name: str, num_symbols: int, num_parameters: int
) -> None:
    config = resolve(name, {}, [])
    with torch.device("meta"):
        network = NeuralNetwork(config.model, num_symbols)
    assert sum(parameter.numel() for parameter in network.parameters()) == num_parameters
    assert "not yet run" in config.description


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreparedCorpus]:
    path = tmp_path_factory.mktemp("raw")
    for part in ("train", "valid"):
        (path / f"{part}.txt").write_text("the cat saw a dog .\na dog sleeps .\n" * 9)
    # another one where a worker comes back to this module
    made = tmp_path_factory.mktemp("made")
    return {
        unit: prepare([path], made / unit, PrepareConfig(unit=unit))  # type: ignore[arg-type]
        for unit in ("word", "char", "byte")
    }


@pytest.mark.parametrize("name", recipe_names())
def test_shrunken_recipe_makes_a_step(name: str, corpora: dict[str, PreparedCorpus]) -> None:
    small = ["hidden_size=6", "batch_size=2", "bptt=10"]
    if load_recipe(name)["model"].get("last_size"):
        small.append("last_size=4")
    if load_recipe(name)["model"].get("output", {}).get("cutoffs"):
        small.append("cutoffs=null")
    config = resolve(name, {}, small)
    task = LanguageModelTask(corpora[config.data.unit], config, device="cpu")
    before = [parameter.detach().clone() for parameter in task.module.parameters()]
    optimisers = Optimisers(task.module, config.training)
    task.module.train()
    loss, _ = task.loss(0)
    loss.backward()  # type: ignore[no-untyped-call]
    optimisers.step(config.training.learning_rate * task.rate_factor(0))
    for old, new in zip(before, task.module.parameters(), strict=True):
        assert new.isfinite().all()
        assert not new.equal(old)


def test_options_win_over_the_recipe_and_overrides_over_both(recipe: str) -> None:
    assert resolve(recipe, {}, []).model.hidden_size == 30
    options = {"hidden_size": 40, "model.layers": 2}
    config = resolve(recipe, options, [])
    assert (config.model.hidden_size, config.model.layers) == (40, 2)
    config = resolve(recipe, options, ["hidden_size=50", "training.epochs=3"])
    assert (config.model.hidden_size, config.model.layers) == (50, 2)
    assert config.training.epochs == 3
    assert (config.model.cell, config.training.learning_rate) == ("gru", 0.01)


def test_unknown_recipe_names_near_ones() -> None:
    with pytest.raises(ConfigError, match="no recipe is called 'ptb-lstn-cpu'") as caught:
        resolve("ptb-lstn-cpu", {}, [])
    assert "did you mean ptb-lstm-cpu" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        resolve("unheard-of", {}, [])
    assert all(name in caught.value.hint for name in recipe_names())


def test_mistake_in_a_recipe_names_the_file(recipe: str) -> None:
    Path(recipe).write_text("model: {hidden_size: 0}\n", encoding="utf-8")
    for values, overrides in (({}, []), ({"bptt": 9}, []), ({}, ["bptt=9"])):
        with pytest.raises(ConfigError, match=r"model\.hidden_size is 0") as caught:
            resolve(recipe, values, overrides)
        assert caught.value.path == recipe
    assert resolve(recipe, {"hidden_size": 8}, []).model.hidden_size == 8  # mended by an option


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_read_all_of_their_settings(name: str) -> None:
    config = resolve(name, {}, [])
    for dotted, _ in leaves(NeuralLMConfig):
        refuse_unread([(config, dotted)], ())


@pytest.mark.parametrize(
    ("base", "override", "readers"),
    [
        ("", "depth=7", ["cell=rhn"]),
        ("", "model.carry=separate", ["cell=rhn"]),
        ("", "activation=relu", ["cell=rnn"]),
        ("", "window=3", ["cell=window"]),
        ("cell=gru", "forget_bias=1", ["cell=lstm"]),
        ("", "activation_slope=0.1", ["cell=rnn activation=leaky-relu"]),
        ("", "recurrent_init_noise=0.1", ["recurrent_init=identity"]),
        ("cell=window", "dropout_weights=0.1", ["cell=lstm", "cell=gru"]),
        ("", "dropout_hidden=0.2", ["layers=2"]),
        ("", "connection=dense", ["layers=2", "connection=residual", "connection=highway"]),
        ("", "transform_bias=-1", ["cell=rhn", "connection=highway"]),
        (
            "",
            "dropout=variational",
            ["dropout_words=0.1", "dropout_input=0.1", "dropout_output=0.1"],
        ),
        ("", "dropout_rise=0.5", ["dropout_words=0.1", "dropout_hidden=0.2 layers=2"]),
        ("", "dropout_words_per=stream", ["dropout_words=0.1"]),
        ("", "noise_samples=3", ["layer=nce", "layer=blackout"]),
    ],
)
def test_a_setting_that_changes_nothing_is_refused(
    base: str, override: str, readers: list[str]
) -> None:
    name = override.partition("=")[0]
    with pytest.raises(ConfigError, match=f"{name} counts only where") as caught:
        resolve(None, {}, [*base.split(), override], facts=())
    assert caught.value.hint.startswith(f"leave {name.rpartition('.')[2]} out, or change ")
    for reader in readers:
        resolve(None, {}, [override, *reader.split()], facts=())
    resolve(None, {}, [*base.split(), override])  # nobody typed it
