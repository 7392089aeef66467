"""Compiled functions and their cache on disk, whatever becomes of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import types
from numba.core import caching
from numba.core.errors import TypingError

from seqtool.core.compiled import compiled

SIGNATURE = types.int64(types.int64[::1], types.int64)
NUMBERS = np.array([10, 20, 30])


def element(numbers, index):  # type: ignore[no-untyped-def]
    return numbers[index]


def hits(function: Any) -> int:
    """How often it was taken from the cache instead of being compiled."""
    return sum(function.stats.cache_hits.values())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def test_compiled_once_and_taken_from_the_cache_then(cache: Path) -> None:
    first, second = compiled(SIGNATURE)(element), compiled(SIGNATURE)(element)
    assert (hits(first), hits(second)) == (0, 1)
    assert first(NUMBERS, 1) == second(NUMBERS, 1) == 20
    with pytest.raises(TypeError, match="No matching definition"):
        second(NUMBERS.astype(np.float64), 1)  # no other signature is compiled behind one's back


def test_options_reach_the_compiler(cache: Path) -> None:
    checked = compiled(SIGNATURE, boundscheck=True)(element)
    with pytest.raises(IndexError):
        checked(NUMBERS, 3)
    assert checked.targetoptions["nogil"]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: bytes(len(data))],
    ids=["empty", "cut short", "zeros"],
)
def test_a_damaged_cache_is_written_anew(
    cache: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    compiled(SIGNATURE)(element)
    (path,) = cache.rglob(f"*.{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    again, next_time = compiled(SIGNATURE)(element), compiled(SIGNATURE)(element)
    assert again(NUMBERS, 2) == next_time(NUMBERS, 2) == 30
    assert (hits(again), hits(next_time)) == (0, 1)


def test_without_a_place_for_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator available"):
        numba.njit(SIGNATURE, cache=True)(element)
    assert compiled(SIGNATURE)(element)(NUMBERS, 0) == 10
    assert list(cache.rglob("*.nb?")) == []


def test_a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", refuse)
    assert compiled(SIGNATURE)(element)(NUMBERS, 0) == 10
    # the index now names a file that was never written
    monkeypatch.undo()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache))
    assert compiled(SIGNATURE)(element)(NUMBERS, 0) == 10
    assert hits(compiled(SIGNATURE)(element)) == 1


def test_what_cannot_be_compiled_is_an_error(cache: Path) -> None:
    def nonsense(numbers, index):  # type: ignore[no-untyped-def]
        return numbers.nothing

    with pytest.raises(TypingError, match="nothing"):
        compiled(SIGNATURE)(nonsense)
