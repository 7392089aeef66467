"""Which settings parsers of a family read."""

from __future__ import annotations

from typing import Any

import pytest

from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict, set_value, to_dict
from seqtool.parsing.parser.config import PRESETS, ParserConfig
from seqtool.parsing.parser.parser import settings_read


def header(preset: str, data: dict[str, Any] | None = None) -> Header:
    settings = to_dict(from_dict(ParserConfig, PRESETS.settings(preset)))
    return Header("parser", settings, {}, data=data or {})


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


@pytest.mark.parametrize(
    ("preset", "changes", "data", "name", "is_read"),
    [
        ("fast", {"model.system": "swap"}, {}, "learning.exploration", False),
        ("fast", {"learning.oracle": "static"}, {}, "learning.exploration", False),
        ("fast", {}, {"teachers": "a"}, "learning.taught_words", True),
        ("linear", {}, {"teachers": "a"}, "learning.taught_words", True),
        ("fast", {}, {"teachers": "a"}, "learning.teacher_weight", True),
        ("linear", {}, {"teachers": "a"}, "learning.teacher_weight", False),
        ("graph", {}, {}, "learning.head_weight", False),
        ("graph", {}, {"predicted_tags": True}, "learning.head_weight", True),
        ("accurate", {}, {}, "learning.head_weight", True),
        ("fast", {}, {}, "learning.mark_lifted", True),
        ("fast", {"model.system": "swap"}, {}, "learning.mark_lifted", False),
        ("mst", {"model.trees": "projective"}, {}, "learning.mark_lifted", True),
        ("mst", {"model.trees": "all"}, {}, "learning.mark_lifted", False),
    ],
)
def test_what_decides_whether_a_setting_counts(
    preset: str, changes: dict[str, str], data: dict[str, Any], name: str, is_read: bool
) -> None:
    shown = header(preset, data)
    for setting, value in changes.items():
        set_value(ParserConfig, shown.config, setting, value)
    section, _, last = name.partition(".")
    assert (last in settings_read(shown)[section]) == is_read
