from __future__ import annotations

import sys

import pytest

from seqtool.core.config import Registry
from seqtool.core.errors import ConfigError, did_you_mean


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


def test_unknown_name_lists_all_when_none_is_near() -> None:
    assert did_you_mean("transformer", ["lstm", "gru"]) == "choose one of: gru, lstm"
