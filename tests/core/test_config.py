from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.config import (
    Config,
    apply_overrides,
    from_dict,
    leaves,
    load_yaml,
    named_settings,
    refuse_unread,
    set_value,
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


def test_defaults_are_valid_and_frozen() -> None:
    model = Model()
    assert model.optimiser == Optimiser()
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.size = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"size": 0}, "size is 0, but must be at least 1", "change size"),
        ({"size": 101}, "size is 101, but must be at most 100", "change size"),
        ({"dropout": 1.0}, "dropout is 1.0, but must be less than 1", "change dropout"),
        ({"dropout": 1}, "dropout is 1.0, but must be less than 1", "change dropout"),
        ({"dropout": math.nan}, "dropout is nan", "give dropout a finite number"),
        ({"dropout": math.inf}, "dropout is inf", "give dropout a finite number"),
        ({"size": 2.0}, "size is 2.0, but must be a whole number", "change size"),
        ({"size": "2"}, "size is '2', but must be a whole number", "change size"),
        ({"size": True}, "size is True, but must be a whole number", "change size"),
        ({"size": None}, "size is None, but must be a whole number", "change size"),
        ({"dropout": True}, "dropout is True, but must be a number", "change dropout"),
        ({"dropout": "high"}, "dropout is 'high', but must be a number", "change dropout"),
        ({"tied": 1}, "tied is 1, but must be true or false", "change tied"),
        ({"note": 5}, "note is 5, but must be a text", "change note"),
        ({"clip": "x"}, "clip is 'x', but must be a number or a whole number", "change clip"),
        ({"depth": True}, "depth is True, but must be one of 1, 2, 3", "choose one of: 1, 2, 3"),
        ({"depth": 4}, "depth is 4, but must be one of 1, 2, 3", "choose one of: 1, 2, 3"),
        ({"tied": True, "size": 13}, "size 13 cannot be tied", "change size or tied"),
        ({"sise": 4}, "unknown setting sise", "did you mean size?"),
        ({"optimiser": 4}, "optimiser is 4, but must be a section of settings", "change optimiser"),
        (
            {"optimiser": {"name": "adma"}},
            "optimiser.name is 'adma', but must be one of sgd, adam",
            "did you mean adam?",
        ),
        (
            {"optimiser": {"rate": 0}},
            "optimiser.rate is 0.0, but must be more than 0",
            "change rate",
        ),
        ({"optimiser": {"rte": 1}}, "unknown setting optimiser.rte", "did you mean rate?"),
        (
            {"optimiser": {"betas": 0.9}},
            "optimiser.betas is 0.9, but must be a list of a number",
            "change betas",
        ),
    ],
)
def test_refusals_name_the_field_as_typed(values: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Model, values)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_harmless_spellings_are_accepted() -> None:
    model = from_dict(Model, {"dropout": 0, "optimiser": {"rate": "1e-3", "betas": [0, 0.5]}})
    assert model.dropout == 0.0
    assert isinstance(model.dropout, float)
    assert model.optimiser.rate == 0.001  # YAML 1.1 reads 1e-3 as a text
    assert model.optimiser.betas == (0.0, 0.5)


def test_section_must_be_a_mapping() -> None:
    with pytest.raises(ConfigError, match="the configuration must be a section"):
        from_dict(Model, ["size"])  # type: ignore[arg-type]


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


def test_leaves_are_dotted_names() -> None:
    names = [name for name, _ in leaves(Model)]
    assert names == [
        "size",
        "dropout",
        "tied",
        "note",
        "clip",
        "depth",
        "optimiser.name",
        "optimiser.rate",
        "optimiser.betas",
    ]
    assert all(field.metadata["help"] for _, field in leaves(Model))


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


def test_ambiguous_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="rate could mean several settings") as caught:
        set_value(Pair, {}, "rate", 1)
    assert caught.value.hint == "use left.rate or right.rate"


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("sise=3", "unknown setting sise", "did you mean size?"),
        ("size", "--set size has no value", "write --set name=value"),
        ("size=[1", "--set size=[1 is not a value", "quote it"),
    ],
)
def test_bad_overrides(override: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(Model, {}, [override])
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_override_in_something_that_is_no_section() -> None:
    with pytest.raises(ConfigError, match="optimiser must be a section of settings"):
        apply_overrides(Model, {"optimiser": 3}, ["rate=1"])


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"size: [1\nx: 2\n", "not valid YAML", 2),
        (b"size: \xff\n", "not UTF-8 at byte 6", None),
        (b"- size\n", "holds no settings", None),
        (b"5", "holds no settings", None),
        (b"a: \x00", "not valid YAML", 1),
        (b"!!python/object/apply:os.system ['true']", "not valid YAML", 1),
    ],
)
def test_bad_yaml_files(tmp_path: Path, content: bytes, message: str, line: int | None) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    assert caught.value.message.startswith(message)
    assert (caught.value.path, caught.value.line) == (str(path), line)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("size: 1\nsize: 2\n", "size is given twice", 2),
        ("a: &a 1\nb: *a\n", "an alias is not read", 2),
        ("a:\n  <<: {b: 1}\n  c: !!set {d}\n", "tag:yaml.org,2002:set is not read", 3),
        ("a: !!timestamp 2001-01-01", "tag:yaml.org,2002:timestamp is not read", 1),
        ("1: a", "a setting has no name", 1),
        ("\n? [a]\n: 1\n", "a setting has no name", 2),
        ("a: 0x_", "0x_ is not what it begins as", 1),
        ("a: !!int x", "x is not what it begins as", 1),
        ("a: " + "9" * 101, "999", 1),
        ("a: 1" + ":59" * 99, "1:59", 1),
        ("\na: " + "[" * 60 + "]" * 60, "nested too deeply", 2),
    ],
)
def test_what_of_yaml_is_not_read(tmp_path: Path, text: str, message: str, line: int) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"not valid YAML: {message}") as caught:
        load_yaml(path)
    assert (caught.value.path, caught.value.line) == (str(path), line)


def test_what_of_yaml_is_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 2001-01-01\nb: 1e-3\nc: [yes, ~, .5, 0x1F, '1']\n")
    assert load_yaml(path) == {"a": "2001-01-01", "b": "1e-3", "c": [True, None, 0.5, 31, "1"]}


def test_a_yaml_file_without_end(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"longer than 1,048,576 bytes"):
        load_yaml(path)


def test_missing_yaml_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a directory"):
        load_yaml(tmp_path)
    (tmp_path / "empty.yaml").write_bytes(b"# nothing\n")
    assert load_yaml(tmp_path / "empty.yaml") == {}


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


def test_a_file_of_all_settings_names_none() -> None:
    assert named_settings(Network, to_dict(Network())) == []
    assert named_settings(Network, {"layer": {"gate": 1}}) == ["layer.gate"]


@pytest.mark.parametrize(
    "place",
    [
        *("lm.neural.config:NeuralLMConfig", "parsing.pipeline.config:PipelineConfig"),
        *("parsing.labeller.config:LabellerConfig", "classification.config:ClassifierConfig"),
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
