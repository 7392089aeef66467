"""Compiled functions and their cache on disk, whatever becomes of it."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import types
from numba.core import caching
from numba.core.errors import TypingError

from seqtool.core import compiled as module
from seqtool.core.compile_cache import CompileCache, Refused, default_path
from seqtool.core.compiled import compiled
from seqtool.core.string_table import StringTable, bytes_in, find, string_hash

SIGNATURE = types.int64(types.int64[::1], types.int64)
NUMBERS = np.array([10, 20, 30])


def element(numbers, index):  # type: ignore[no-untyped-def]
    return numbers[index]


def hits(function: Any) -> int:
    """How often it was taken from the cache instead of being compiled."""
    return sum(function.stats.cache_hits.values())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_opened_cache", lambda: CompileCache(tmp_path / "mine" / "code"))
    return tmp_path / "mine" / "code"


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


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_no_changed_bit_is_run(cache: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    compiled(SIGNATURE)(element)
    (path,) = cache.rglob(f"*.{suffix}")
    content = bytearray(path.read_bytes())
    for at in (0, len(content) // 3, len(content) - 1):
        content[at] ^= 4
        path.write_bytes(content)
        again = compiled(SIGNATURE)(element)
        assert (again(NUMBERS, 2), hits(again)) == (30, 0)
        assert capfd.readouterr().err.count("\n") == 1
        content = bytearray(path.read_bytes())
    assert hits(compiled(SIGNATURE)(element)) == 1


def test_files_of_a_killed_process_are_not_believed(cache: Path) -> None:
    compiled(SIGNATURE)(element)
    (cache / "sums.json").write_text("[" * 100_000)
    again = compiled(SIGNATURE)(element)
    assert (again(NUMBERS, 1), hits(again)) == (20, 0)


@pytest.mark.skipif(os.name == "nt", reason="no modes of files")
def test_a_directory_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "seqtool" / "compiled"
    CompileCache(path)
    assert {folder.stat().st_mode & 0o777 for folder in (path, path.parent)} == {0o700}
    path.chmod(0o770)
    with pytest.raises(Refused, match="alone"):
        CompileCache(path)
    path.chmod(0o700)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(Refused, match="alone"):
        CompileCache(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(Refused, match="alone"):
        CompileCache(path)


def test_a_refused_directory_is_told_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    path = default_path("any")
    path.mkdir(parents=True)
    path.parent.chmod(0o777)
    monkeypatch.setattr(module, "default_path", lambda processor: path)
    module._opened_cache.cache_clear()
    try:
        assert compiled(SIGNATURE)(element)(NUMBERS, 1) == 20
        assert capfd.readouterr().err.startswith(f"note: {path.parent} is not")
        assert list(path.iterdir()) == []
    finally:
        module._opened_cache.cache_clear()


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
    monkeypatch.setattr(module, "_opened_cache", lambda: CompileCache(cache))
    assert compiled(SIGNATURE)(element)(NUMBERS, 0) == 10
    assert hits(compiled(SIGNATURE)(element)) == 1


def test_what_cannot_be_compiled_is_an_error(cache: Path) -> None:
    def nonsense(numbers, index):  # type: ignore[no-untyped-def]
        return numbers.nothing

    with pytest.raises(TypingError, match="nothing"):
        compiled(SIGNATURE)(nonsense)


LOWER = """
from seqtool.core.compiled import compiled
from numba import types
@compiled(types.int64(types.int64))
def factor(number):
    return {factor}
ADDEND = {addend}
"""
MIDDLE = """
from seqtool.core.compiled import compiled
from numba import types
from lower import factor
@compiled(types.int64(types.int64))
def multiplied(number):
    return number * factor(number)
"""
UPPER = """
from seqtool.core.compiled import compiled
from numba import types
from lower import ADDEND
from middle import multiplied
@compiled(types.int64(types.int64))
def computed(number):
    return multiplied(number) + ADDEND
"""


def test_functions_and_numbers_of_other_files_are_seen_to_change(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def computed(factor: str, addend: int, age: int) -> Any:
        text = LOWER.format(factor=factor, addend=addend)
        for name, content in (("lower", text), ("middle", MIDDLE), ("upper", UPPER)):
            path = folder / f"{name}.py"
            path.write_text(content)
            seconds = 1_700_000_000 + (age if name == "lower" else 0)
            os.utime(path, (seconds, seconds))
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("upper").computed

    function = computed("2", 5, age=0)
    assert (function(10), hits(function)) == (25, 0)
    function = computed("2", 5, age=0)
    assert (function(10), hits(function)) == (25, 1)
    function = computed("3", 5, age=1)  # a function that is called by one that is called
    assert (function(10), hits(function)) == (35, 0)
    function = computed("3", 6, age=1)  # a number, and the file is of the same age and size
    assert (function(10), hits(function)) == (36, 0)
    for name in ("lower", "middle", "upper"):
        sys.modules.pop(name)


@compiled(types.int64(types.uint64[::1], types.int64[::1], types.uint8[::1], bytes_in))
def find_all(slots, starts, text, data):  # type: ignore[no-untyped-def]
    """The number of a string that is all of an array."""
    hash_, first = string_hash(data, 0, data.shape[0])
    return find(slots, starts, text, hash_, first, data, 0, data.shape[0])[1]


texts = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)
    | st.sampled_from(["", "\0", "1234567", "12345678", "123456781234567", "1234567812345678"])
)


@given(texts, texts)
def test_strings_are_numbered_as_by_a_dictionary(first: list[str], second: list[str]) -> None:
    table = StringTable(first)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(first))}
    assert [table.text(number) for number in range(len(table))] == list(numbers)
    assert table.num_bytes == len("".join(numbers).encode())
    for _ in range(2):
        arrays = table.arrays
        for text in first + second:
            data = np.frombuffer(text.encode(), np.uint8)
            found = find_all(arrays.slots, arrays.starts, arrays.text, data)
            assert found == numbers.get(text, -1)
        table.make_room(10_000, 100_000)  # as if many were to come: new slots, the same strings
