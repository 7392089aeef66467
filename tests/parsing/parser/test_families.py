"""Which settings parsers of a family read."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError
from seqtool.parsing.parser.config import PRESETS, ParserConfig
from seqtool.parsing.parser.families import READ_BY, refuse_unread, settings_read


def header(preset: str, data: dict[str, Any] | None = None) -> Header:
    settings = to_dict(from_dict(ParserConfig, PRESETS.settings(preset)))
    return Header("parser", settings, {}, data=data or {})


def test_the_table_names_settings() -> None:
    known = {
        f"{section.name}.{field.name}"
        for section in dataclasses.fields(ParserConfig)
        for field in dataclasses.fields(getattr(ParserConfig(), section.name))
    }
    assert {name for names in READ_BY.values() for name in names} <= known


@pytest.mark.parametrize(
    ("preset", "own", "others"),
    [
        ("fast", ["model.slots", "learning.oracle"], ["model.encoder_size", "model.trees"]),
        (
            "accurate",
            ["model.slots", "model.context_units"],
            ["model.arc_size", "model.second_size"],
        ),
        ("graph", ["model.arc_size", "model.second_order"], ["model.slots", "model.system"]),
        (
            "linear",
            ["model.templates", "model.hash_bits", "learning.exploration"],
            ["model.slots", "model.trees", "training.learning_rate", "training.optimiser"],
        ),
        (
            "mst",
            ["model.trees", "model.hash_bits", "training.learning_rate"],
            ["model.templates", "model.arc_size", "training.weight_decay"],
        ),
        # a static oracle explores nothing, and the swap system has no other
        ("chen-manning", ["learning.oracle", "training.optimiser"], ["learning.exploration"]),
    ],
)
def test_a_family_has_settings_of_its_own(preset: str, own: list[str], others: list[str]) -> None:
    found = settings_read(header(preset))
    shown = {f"{section}.{name}" for section, values in found.items() for name in values}
    assert {*own, "model.fields", "training.epochs"} <= shown
    assert not {*others, "learning.global_beam", "learning.taught_words"} & shown


def test_what_explores() -> None:
    swapping = header("fast")
    swapping.config["model"]["system"] = "swap"
    assert "exploration" not in settings_read(swapping)["learning"]
    given = from_dict(ParserConfig, PRESETS.settings("chen-manning"))
    with pytest.raises(ConfigError, match=r"exploration is set, which .* oracle static does not"):
        refuse_unread(given, ["learning.exploration"], ())


def test_a_rate_is_of_who_has_steps() -> None:
    logistic = header("linear")
    logistic.config["learning"]["linear"] = "logistic"
    assert "learning_rate" in settings_read(logistic)["training"]
    given = from_dict(ParserConfig, PRESETS.settings("linear"))
    with pytest.raises(ConfigError, match="learning_rate is set, which decoder transition") as told:
        refuse_unread(given, ["training.learning_rate"], ())
    assert told.value.hint == (
        "leave it out: it is for --classifier neural; or for --decoder transition and --classifier "
        "linear and --set linear=logistic; or for --decoder graph and --classifier linear"
    )


def test_what_is_learnt_from_others_is_shown_where_it_was() -> None:
    shared = {"taught_words", "variants"}
    taught = settings_read(header("fast", {"teachers": "a"}))["learning"]
    assert {*shared, "teacher_weight"} <= taught.keys()
    sparse = settings_read(header("linear", {"teachers": "a"}))["learning"]
    assert shared <= sparse.keys()
    assert "teacher_weight" not in sparse
    alone = settings_read(header("fast", {}))["learning"]
    assert not {*shared, "teacher_weight"} & alone.keys()


def test_a_language_model_has_settings_where_there_is_one() -> None:
    alone, reading = (
        settings_read(header("graph", data)) for data in ({}, {"lm_bytes": 9, "lm_parameters": 2})
    )
    assert "encoder_size" in alone["model"]
    assert "lm_size" not in alone["model"]
    assert "dropout_lm" not in alone["learning"]
    assert "lm_size" in reading["model"]
    assert "dropout_lm" in reading["learning"]


def test_a_graph_learns_gold_tags_where_it_reads_predicted_ones() -> None:
    for data, is_read in (({}, False), ({"predicted_tags": True}, True)):
        assert ("head_weight" in settings_read(header("graph", data))["learning"]) == is_read
    assert "head_weight" in settings_read(header("accurate", {}))["learning"]
    given = from_dict(ParserConfig, PRESETS.settings("graph"))
    with pytest.raises(ConfigError, match="head_weight is set, which decoder graph"):
        refuse_unread(given, ["learning.head_weight"], ())
    refuse_unread(given, ["learning.head_weight"], {"gold tags"})


@pytest.mark.parametrize(
    ("preset", "model", "is_read"),
    [
        ("fast", {}, True),
        ("fast", {"system": "arc-standard"}, True),
        ("fast", {"system": "swap"}, False),
        ("mst", {"trees": "projective"}, True),
        ("mst", {"trees": "all"}, False),
    ],
)
def test_arcs_are_lifted_where_none_may_cross(
    preset: str, model: dict[str, str], is_read: bool
) -> None:
    shown = header(preset)
    shown.config["model"].update(model)
    assert ("mark_lifted" in settings_read(shown)["learning"]) == is_read


def test_older_models_name_less() -> None:
    old = header("fast")
    del old.config["model"]["decoder"], old.config["model"]["classifier"]
    del old.config["learning"]["loss"]
    assert "slots" in settings_read(old)["model"]
    assert "arc_size" not in settings_read(old)["model"]
