from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.config import (
    Config,
    Registry,
    apply_overrides,
    from_dict,
    leaves,
    load_yaml,
    named_settings,
    refuse_unread,
    setting,
    to_dict,
)
from seqtool.core.errors import ConfigError


@dataclass(frozen=True)
class Optimiser(Config):
    name: Literal["sgd", "adam"] = setting("sgd", "which")
    rate: float = setting(0.1, "step size", above=0)
    betas: tuple[float, ...] = setting((0.9, 0.999), "decay rates")


@dataclass(frozen=True)
class Model(Config):
    size: int = setting(8, "units", minimum=1, maximum=100)
    dropout: float = setting(0.0, "share of units dropped", minimum=0, below=1)
    tied: bool = setting(False, "share embeddings")
    note: str | None = setting(None, "free text")
    clip: float | int | None = setting(None, "largest norm")
    depth: Literal[1, 2, 3] = setting(1, "micro-steps")
    optimiser: Optimiser = setting(Optimiser, "how to step")

    def check(self) -> None:
        if self.tied and self.size == 13:
            raise ConfigError("size 13 cannot be tied", hint="change size or tied")


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"size": 0}, "size is 0, but must be at least 1", "size"),
        ({"size": 101}, "size is 101, but must be at most 100", "size"),
        ({"dropout": 1}, "dropout is 1.0, but must be less than 1", "dropout"),
        ({"dropout": math.nan}, "dropout is nan", "finite"),
        ({"dropout": math.inf}, "dropout is inf", "finite"),
        ({"size": 2.0}, "size is 2.0, but must be a whole number", "size"),
        ({"size": "2"}, "size is '2', but must be a whole number", "size"),
        ({"size": True}, "size is True, but must be a whole number", "size"),
        ({"size": None}, "size is None, but must be a whole number", "size"),
        ({"dropout": "high"}, "dropout is 'high', but must be a number", "dropout"),
        ({"tied": 1}, "tied is 1, but must be true or false", "tied"),
        ({"note": 5}, "note is 5, but must be a text", "note"),
        ({"clip": "x"}, "clip is 'x', but must be a number or a whole number", "clip"),
        ({"depth": True}, "depth is True, but must be one of 1, 2, 3", "1, 2, 3"),
        ({"tied": True, "size": 13}, "size 13 cannot be tied", "tied"),
        ({"sise": 4}, "unknown setting sise", "mean size"),
        ({"optimiser": 4}, "optimiser is 4, but must be a section of settings", "optimiser"),
        ({"optimiser": {"name": "adma"}}, "optimiser.name is 'adma', but must be", "mean adam"),
        ({"optimiser": {"rate": 0}}, "optimiser.rate is 0.0, but must be more than 0", "rate"),
        ({"optimiser": {"rte": 1}}, "unknown setting optimiser.rte", "mean rate"),
        ({"optimiser": {"betas": 0.9}}, "optimiser.betas is 0.9, but must be a list", "betas"),
    ],
)
def test_refusals_name_the_field_as_typed(values: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Model, values)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


def test_harmless_spellings_are_accepted() -> None:
    model = from_dict(Model, {"dropout": 0, "optimiser": {"rate": "1e-3", "betas": [0, 0.5]}})
    assert model.dropout == 0.0
    assert isinstance(model.dropout, float)
    assert model.optimiser.rate == 0.001  # YAML 1.1 reads 1e-3 as a text
    assert model.optimiser.betas == (0.0, 0.5)


optimisers = st.builds(
    Optimiser,
    name=st.sampled_from(["sgd", "adam"]),
    rate=st.floats(1e-300, 1e300),
    betas=st.lists(st.floats(0, 1), max_size=3).map(tuple),
)
models = st.builds(
    Model,
    size=st.integers(1, 100).filter(lambda size: size != 13),
    dropout=st.floats(0, 0.99),
    tied=st.booleans(),
    note=st.none() | st.text(),
    clip=st.none() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6),
    depth=st.sampled_from([1, 2, 3]),
    optimiser=optimisers,
)


@given(models)
def test_dictionary_round_trip(model: Model) -> None:
    values = to_dict(model)
    assert from_dict(Model, values) == model
    assert isinstance(values["optimiser"]["betas"], list)


@given(model=models)
def test_yaml_round_trip(model: Model, tmp_path_factory: pytest.TempPathFactory) -> None:
    import yaml

    path = tmp_path_factory.mktemp("yaml") / "config.yaml"
    path.write_text(yaml.safe_dump(to_dict(model), allow_unicode=True), encoding="utf-8")
    assert from_dict(Model, load_yaml(path)) == model


def test_overrides_by_full_and_short_name() -> None:
    values: dict[str, Any] = {"size": 4}
    apply_overrides(Model, values, ["optimiser.name=adam", "rate=0.5", "size=9", "betas=[0.1]"])
    assert values == {"size": 9, "optimiser": {"name": "adam", "rate": 0.5, "betas": [0.1]}}
    apply_overrides(Model, values, ["note=a=b", "clip=", "tied=true"])
    assert values["note"] == "a=b"
    assert values["clip"] is None
    assert values["tied"] is True


@dataclass(frozen=True)
class Pair(Config):
    size: int = setting(1, "its own")
    left: Optimiser = setting(Optimiser, "one")
    right: Optimiser = setting(Optimiser, "other")


@pytest.mark.parametrize(
    ("kind", "values", "override", "message", "hint"),
    [
        (Pair, {}, "rate=1", "rate could mean several settings", "left.rate or right.rate"),
        (Model, {}, "sise=3", "unknown setting sise", "mean size"),
        (Model, {}, "size", "--set size has no value", "name=value"),
        (Model, {}, "size=[1", "--set size=[1 is not a value", "quote"),
        (Model, {"optimiser": 3}, "rate=1", "optimiser must be a section", "optimiser"),
    ],
)
def test_bad_overrides(
    kind: type[Config], values: dict[str, Any], override: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(kind, values, [override])
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"size: [1\nx: 2\n", "not valid YAML", 2),
        (b"size: \xff\n", "not UTF-8 at byte 6", None),
        (b"- size\n", "holds no settings", None),
        (b"5", "holds no settings", None),
        (b"a: \x00", "not valid YAML", 1),
        (b"!!python/object/apply:os.system ['true']", "not valid YAML", 1),
        (b"size: 1\nsize: 2\n", "size is given twice", 2),
        (b"a: &a 1\nb: *a\n", "an alias is not read", 2),
        (b"a:\n  <<: {b: 1}\n  c: !!set {d}\n", "tag:yaml.org,2002:set is not read", 3),
        (b"a: !!timestamp 2001-01-01", "tag:yaml.org,2002:timestamp is not read", 1),
        (b"1: a", "a setting has no name", 1),
        (b"\n? [a]\n: 1\n", "a setting has no name", 2),
        (b"a: 0x_", "0x_ is not what it begins as", 1),
        (b"a: " + b"9" * 101, "999", 1),
        (b"a: 1" + b":59" * 99, "1:59", 1),
        (b"\na: " + b"[" * 60 + b"]" * 60, "nested too deeply", 2),
        (b"#" * (1 << 21), "longer than 1,048,576 bytes", None),
    ],
)
def test_bad_yaml_files(tmp_path: Path, content: bytes, message: str, line: int | None) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_yaml(path)
    assert (caught.value.path, caught.value.line) == (str(path), line)


def test_yaml_files(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 2001-01-01\nb: 1e-3\nc: [yes, ~, .5, 0x1F, '1']\n")
    assert load_yaml(path) == {"a": "2001-01-01", "b": "1e-3", "c": [True, None, 0.5, 31, "1"]}
    path.write_bytes(b"# nothing\n")
    assert load_yaml(path) == {}
    for missing, message in ((tmp_path / "none.yaml", "no such"), (tmp_path, "is a directory")):
        with pytest.raises(ConfigError, match=message):
            load_yaml(missing)


@dataclass(frozen=True)
class Layer(Config):
    cell: Literal["rnn", "lstm", "gru"] = setting("lstm", "cell")
    gate: int = setting(1, "of gates", when="cell is lstm/gru and size > 0 or noise is set")
    slope: float = setting(0.0, "below zero", when="cell is not lstm")
    noise: float | None = setting(None, "of states")
    reader: int = setting(1, "of a model", when="--lm is given")


@dataclass(frozen=True)
class Network(Config):
    size: int = setting(0, "units")
    num: int = setting(0, "layers")
    layer: Layer = setting(Layer, "a layer", when="num > 0")
    last: Layer = setting(Layer, "the last layer", when={"slope": "size > 9"})


@pytest.mark.parametrize(
    ("overrides", "name", "condition"),
    [
        (["num=1", "layer.gate=2"], "layer.gate", "cell is lstm/gru and size > 0 or noise is set"),
        (["num=1", "layer.gate=2", "layer.noise=0.1", "layer.cell=rnn"], "layer.gate", ""),
        (["num=1", "layer.gate=2", "size=1"], "layer.gate", ""),
        (["size=1", "layer.gate=2"], "layer.gate", "num > 0"),
        (["size=1", "layer.gate=1"], "layer.gate", ""),  # the default
        (["num=1", "layer.slope=1"], "layer.slope", "cell is not lstm"),
        (["num=1", "layer.slope=1", "layer.cell=gru"], "layer.slope", ""),
        (["last.slope=1", "last.cell=gru"], "last.slope", "size > 9"),
        (["last.slope=1", "size=10"], "last.slope", "cell is not lstm"),
        (["last.slope=1", "last.cell=gru", "size=10"], "last.slope", ""),
        (["last.reader=2"], "last.reader", "--lm is given"),
    ],
)
def test_a_setting_is_refused_where_it_does_not_count(
    overrides: list[str], name: str, condition: str
) -> None:
    values: dict[str, Any] = {}
    typed = apply_overrides(Network, values, overrides)
    config = from_dict(Network, values)
    assert set(named_settings(Network, values)) == set(typed)
    if not condition:
        return refuse_unread([(config, name)], ())
    with pytest.raises(ConfigError) as caught:
        refuse_unread([(config, name)], ())
    assert caught.value.message == f"{name} counts only where {condition}"
    assert condition.split()[0] in caught.value.hint


def test_one_place_where_it_counts_is_enough() -> None:
    idle, counting = Network(layer=Layer(gate=2)), Network(size=1, num=1, layer=Layer(gate=2))
    refuse_unread([(idle, "layer.gate"), (counting, "layer.gate")])
    with pytest.raises(ConfigError):
        refuse_unread([(idle, "layer.gate"), (Network(num=1), "layer.gate")])  # there a default
    refuse_unread([(Network(last=Layer(reader=2)), "last.reader")])  # --lm may be given
    assert named_settings(Network, to_dict(Network())) == []  # a file of all settings names none
    assert named_settings(Network, {"layer": {"gate": 1}}) == ["layer.gate"]


@pytest.mark.parametrize(
    "place",
    [
        *("lm.neural.config:NeuralLMConfig", "parsing.pipeline.config:PipelineConfig"),
        *("parsing.tagger.config:LabellerConfig", "classification.config:ClassifierConfig"),
        *("lm.ngram.config:NgramConfig", "lm.snm.features:SnmConfig"),
    ],
)
def test_conditions_name_settings_that_are_there(place: str) -> None:
    module, _, name = place.partition(":")
    kind = getattr(import_module(f"seqtool.{module}"), name)
    known = dict(leaves(kind))
    for dotted, field in known.items():
        sections = dotted.split(".")[:-1]
        for other in re.findall(r"(?:^| )(\w[\w.]*) (?:is|>)", field.metadata["when"]):
            places = {".".join([*sections[:num], other]) for num in range(len(sections) + 1)}
            assert places & known.keys(), (dotted, other)


def test_entry_is_imported_on_first_use() -> None:
    registry: Registry[object] = Registry("poem", {"zen": "colorsys:rgb_to_hsv"})
    sys.modules.pop("colorsys", None)
    assert list(registry) == ["zen"]
    assert "zen" in registry
    assert "colorsys" not in sys.modules
    import colorsys

    assert registry["zen"] is colorsys.rgb_to_hsv


def test_unknown_name_suggests_near_ones() -> None:
    registry: Registry[object] = Registry("cell", {"lstm": "a:b", "gru": "a:c"})
    with pytest.raises(ConfigError, match="no cell is called 'lsmt'") as caught:
        registry["lsmt"]
    assert caught.value.hint == "did you mean lstm?"
