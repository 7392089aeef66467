"""Compiled functions, how they are kept, and the hash table that they share."""

from __future__ import annotations

import errno
import functools
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from seqtool.core import compile_cache, compiler, types
from seqtool.core import compiled as module
from seqtool.core.compile_cache import CompileCache, Refused, default_path
from seqtool.core.compiled import CompiledFunction, _seen_by_numba, compiled
from seqtool.core.instructions import flat
from seqtool.core.string_table import StringTable, bytes_in, find, string_hash

SIGNATURE = types.int64(types.int64[::1], types.int64)
NUMBERS = np.array([10, 20, 30])


def element(numbers, index):  # type: ignore[no-untyped-def]
    return numbers[index]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is compiled during a test."""
    names: list[str] = []
    make = compiler.object_code

    def noting(name: str, *rest: Any) -> bytes:
        names.append(name)
        return make(name, *rest)

    monkeypatch.setattr(compiler, "object_code", noting)
    return names


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine" / "code"
    monkeypatch.setattr(module, "_opened_cache", lambda: CompileCache(path))
    return path


def kept(cache: Path) -> Path:
    """The one file of a function."""
    (path,) = cache.glob("*.element-*")
    return path


def test_compiled_once_and_taken_from_the_cache_then(cache: Path, made: list[str]) -> None:
    first, second = compiled(SIGNATURE)(element), compiled(SIGNATURE)(element)
    assert made == []  # not before it is called
    assert first(NUMBERS, 1) == first(NUMBERS, 1) == second(NUMBERS, 1) == 20
    assert len(made) == 1
    assert compiled(types.int64(types.int32[::1], types.int64))(element)(np.int32([7]), 0) == 7
    assert len(made) == 2
    assert len(list(cache.glob("*.element-*"))) == 2


def test_the_working_time_stands_still_meanwhile(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "_seconds_compiling", 0.0)
    function = compiled(SIGNATURE)(element)
    began = compile_cache.working_time(), time.perf_counter()
    function(NUMBERS, 1)
    ended = compile_cache.working_time(), time.perf_counter()
    assert ended[0] - began[0] < (ended[1] - began[1]) / 2
    compiling = compile_cache._seconds_compiling
    function(NUMBERS, 1)
    assert compile_cache._seconds_compiling == compiling


def test_options_reach_the_compiler(cache: Path, made: list[str]) -> None:
    checked = compiled(SIGNATURE, boundscheck=True)(element)
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds"):
            checked(NUMBERS, 3)
    assert checked(NUMBERS, 2) == 30
    again = compiled(SIGNATURE, boundscheck=True)(element)
    with pytest.raises(IndexError):
        again(NUMBERS, 3)
    assert len(made) == 1


def divided(number, by):  # type: ignore[no-untyped-def]
    return number // by


def shorter(target, source):  # type: ignore[no-untyped-def]
    target[:2] = source


def test_exceptions_are_those_of_numba(cache: Path) -> None:
    quotient = compiled(types.int64(types.int64, types.int64))(divided)
    assert quotient(7, 2) == 3
    with pytest.raises(ZeroDivisionError):
        quotient(7, 0)
    floats = types.float32[::1]
    copy = compiled(types.void(floats, floats))(shorter)
    target, source = np.zeros(3, np.float32), np.ones(2, np.float32)
    assert copy(target, source) is None
    assert target.tolist() == [1, 1, 0]
    with pytest.raises(ValueError):  # noqa: PT011 - its text is made from values of the run
        copy(target, np.ones(3, np.float32))


def unaligned() -> Any:
    return np.frombuffer(bytes(25), np.uint8)[1:].view(np.int64)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((NUMBERS,), "takes 2 arguments, not 1"),
        ((NUMBERS, 1, 2), "takes 2 arguments, not 3"),
        ((NUMBERS.astype(np.float64), 1), "`numbers`"),
        ((NUMBERS.astype(np.int32), 1), "`numbers`"),
        ((NUMBERS.astype(np.uint64), 1), "`numbers`"),
        ((NUMBERS.astype(">i8"), 1), "`numbers`"),
        ((NUMBERS.reshape(1, 3), 1), "`numbers`"),
        ((NUMBERS[::2], 1), "`numbers`"),
        ((np.broadcast_to(NUMBERS, 3), 1), "`numbers`"),  # cannot be written to
        ((unaligned(), 1), "`numbers`"),
        (([10, 20], 1), "`numbers`"),
        ((None, 1), "`numbers`"),
        ((NUMBERS, 1.0), "`index`"),
        ((NUMBERS, np.float64(1)), "`index`"),
        ((NUMBERS, "1"), "`index`"),
        ((NUMBERS, 1 << 63), "`index`"),
    ],
)
def test_arguments_of_other_types_are_refused(arguments: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        of_three(*arguments)


of_three = compiled(SIGNATURE)(element)


def second_of(first, second, index):  # type: ignore[no-untyped-def]
    return second[index]


def test_no_array_is_held_after_a_call(cache: Path) -> None:
    texts = types.uint8[::1]
    function = compiled(types.uint8(texts, texts, types.int64))(second_of)
    text = bytearray(b"abc")
    assert function(text, text, 1) == ord("b")
    for wrong in ((text, text, 1.5), (text, NUMBERS, 1), (text, None, 1)):
        with pytest.raises(TypeError):
            function(*wrong)
    text += b"d"  # Python refuses it while a buffer is held
    assert function(text, text, 3) == ord("d")


class Pair(NamedTuple):
    numbers: Any
    factor: float


def weighted(pair, flag, small):  # type: ignore[no-untyped-def]
    total = np.float64(0)
    for number in pair.numbers:
        total += number * pair.factor
    return total, flag, small, np.uint64(1 << 63), np.float32(total)


WEIGHTED = types.Tuple(
    (types.float64, types.boolean, types.int8, types.uint64, types.float32)
)(
    types.NamedTuple((types.Array(types.uint16, 1, readonly=True), types.float64), Pair),
    types.boolean,
    types.int8,
)  # fmt: skip


def test_tuples_and_every_kind_of_number(cache: Path) -> None:
    function = compiled(WEIGHTED)(weighted)
    numbers = np.broadcast_to(np.uint16([1, 2]), 2)
    assert function(Pair(numbers, 0.5), True, -128) == (1.5, True, -128, 1 << 63, 1.5)
    assert function(Pair(numbers, 2), np.False_, np.int8(3)) == (6.0, False, 3, 1 << 63, 6.0)
    for wrong in (
        (Pair(numbers, "x"), True, 1),
        ((numbers,), True, 1),
        (numbers, True, 1),
        (Pair(numbers, 1.0), True, 128),
        (Pair(numbers.astype(np.int16), 1.0), True, 1),
    ):
        with pytest.raises(TypeError, match="another type"):
            function(*wrong)


def doubled(numbers):  # type: ignore[no-untyped-def]
    parts = np.empty((2, numbers.size), numbers.dtype)
    parts[0], parts[1] = numbers, numbers
    return parts.sum()


def test_the_signature_that_fits_is_taken(cache: Path) -> None:
    kinds = (types.float32, types.int64)
    function = compiled([kind(kind[::1]) for kind in kinds])(doubled)
    assert function(np.float32([0.5, 1])) == 3.0
    assert function(np.array([2, 1 << 40])) == 2 * (2 + (1 << 40))
    with pytest.raises(TypeError, match=r"float32\[::1\]\) or \(int64\[::1\]"):
        function(np.array([0.5]))


def mixed(table, kinds, scale, out):  # type: ignore[no-untyped-def]
    """Something of all that the compiled loops do."""
    room = np.zeros(table.shape[1], np.float32)
    rows = flat(table)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            room[column] += table[row, column] * scale + np.float32(np.log(kinds[row] + 2))
        out[row] = np.exp(room[0]) - rows[row]
    total, num = np.float32(0), 0
    for column in range(room.shape[0]):  # in an order that the compiler chooses
        total += room[column]
    for kind in kinds:
        num += kind
    return total, num


MIXED = types.Tuple((types.float32, types.int64))(
    types.float32[:, ::1], types.int32[::1], types.float32, types.float64[::1]
)
mixed_by_entry = compiled(MIXED, fastmath={"reassoc", "nsz"})(mixed)
floats = st.floats(-2, 2, width=32)


@given(st.data(), st.integers(1, 5), st.integers(1, 40))
def test_the_same_bits_as_from_numbas_own_function(data: Any, rows: int, columns: int) -> None:
    numbers = data.draw(st.lists(floats, min_size=rows * columns, max_size=rows * columns))
    table = np.array(numbers, np.float32).reshape(rows, columns)
    kind = st.lists(st.integers(0, 99), min_size=rows, max_size=rows)
    kinds, scale = np.array(data.draw(kind), np.int32), data.draw(floats)
    outs = [np.empty(rows), np.empty(rows)]
    results = [
        function(table, kinds, scale, out)
        for function, out in zip((mixed_by_entry, mixed_by_numba()), outs, strict=True)
    ]
    assert results[0] == results[1]
    assert outs[0].tobytes() == outs[1].tobytes()


@functools.cache
def mixed_by_numba() -> Any:
    function = _seen_by_numba(mixed_by_entry.function)
    return compiler.for_python(function, (MIXED,), mixed_by_entry.options)


def waited(flags):  # type: ignore[no-untyped-def]
    while flags[0] == 0:
        np.empty(1, np.int64)  # a call, after which memory is read anew
    return flags[0]


def test_other_threads_run_meanwhile(cache: Path) -> None:
    flags = np.zeros(1, np.int64)
    function = compiled(types.int64(types.int64[::1]))(waited)
    assert function(np.ones(1, np.int64)) == 1
    thread = threading.Thread(target=function, args=(flags,), daemon=True)
    thread.start()
    time.sleep(0.01)
    flags[0] = 1  # without the GIL released, nobody could
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: bytes([data[0] ^ 4]) + data[1:],
        lambda data: data[:-1] + bytes([data[-1] ^ 4]),
        lambda data: data[:999] + bytes([data[999] ^ 1]) + data[1000:],
    ],
    ids=["empty", "cut short", "zeros", "first bit", "last bit", "a bit"],
)
def test_damaged_code_is_told_and_compiled_again(
    cache: Path,
    made: list[str],
    capfd: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    compiled(SIGNATURE)(element)(NUMBERS, 1)
    path = kept(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert compiled(SIGNATURE)(element)(NUMBERS, 2) == 30
    assert len(made) == 2
    notes = capfd.readouterr().err.splitlines()
    assert {note.partition(" in ")[0] for note in notes} == {"note: damaged compiled code"}
    assert compiled(SIGNATURE)(element)(NUMBERS, 2) == 30
    assert len(made) == 2


def test_damage_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache = CompileCache(tmp_path / "code")
    for name in ("one", "two"):
        cache.write(name, b"code")
        assert cache.read(name) == b"code"
        (cache.path / name).write_bytes(b"other")
        assert cache.read(name) is None
    assert capfd.readouterr().err.count("\n") == 1
    assert cache.read("three") is None


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


@pytest.fixture
def opened_anew() -> Iterator[None]:
    """The cache is opened within the test."""
    module._opened_cache.cache_clear()
    yield
    module._opened_cache.cache_clear()


@pytest.mark.usefixtures("opened_anew")
def test_a_refused_directory_is_told_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    path = default_path("any")
    path.mkdir(parents=True)
    path.parent.chmod(0o777)
    monkeypatch.setattr(module, "default_path", lambda processor: path)
    assert compiled(SIGNATURE)(element)(NUMBERS, 1) == 20
    assert capfd.readouterr().err.startswith(f"note: {path.parent} is not")
    assert list(path.iterdir()) == []


@pytest.mark.usefixtures("opened_anew")
def test_without_a_place_for_the_cache(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    for _ in range(2):
        assert compiled(SIGNATURE)(element)(NUMBERS, 0) == 10
    assert len(made) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "each start compiles it again; NUMBA_CACHE_DIR" in line


def test_a_full_disk(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compile_cache, "atomic_file", refuse)
    for checks in (False, True):
        assert compiled(SIGNATURE, boundscheck=checks)(element)(NUMBERS, 0) == 10
    assert capfd.readouterr().err.count("each start compiles it again") == 1
    monkeypatch.undo()
    assert not list(cache.glob("*.element-*"))


@pytest.mark.skipif(os.name == "nt" or not os.getuid(), reason="no modes of files")
def test_a_cache_that_cannot_be_written_to_is_read(cache: Path, made: list[str]) -> None:
    compiled(SIGNATURE)(element)(NUMBERS, 0)
    for lock in cache.glob("lock-*"):
        lock.unlink()
    cache.chmod(0o500)
    assert compiled(SIGNATURE)(element)(NUMBERS, 0) == 10
    assert len(made) == 1
    assert compiled(SIGNATURE, boundscheck=True)(element)(NUMBERS, 0) == 10
    cache.chmod(0o700)


def test_where_llvm_cannot_link_numba_does(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise RuntimeError("no such thing here")

    module._linker.cache_clear()
    monkeypatch.setattr(module.llvm, "create_lljit_compiler", refuse)
    try:
        for _ in range(2):
            assert compiled(SIGNATURE)(element)(NUMBERS, 2) == 30
        shown = capfd.readouterr().err
        assert shown.count("\n") == 1
        assert "no such thing here" in shown
    finally:
        module._linker.cache_clear()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_compiling_is_told_on_a_terminal(
    cache: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    said: list[str] = []
    stream = module.terminal.stream(err=True)
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(module.terminal, "stream", lambda **_: stream)
    monkeypatch.setattr(module.terminal, "echo", lambda text, **_: said.append(text))
    for bounds in (True, False):
        for _ in range(2):
            module_function = compiled(SIGNATURE, boundscheck=bounds)(element)
            module._say_once.cache_clear() if not said else None
            module_function(NUMBERS, 0)
    assert len(said) == is_terminal
    assert all("once" in text for text in said)


def test_what_cannot_be_compiled_is_an_error(cache: Path) -> None:
    def nonsense(numbers, index):  # type: ignore[no-untyped-def]
        return numbers.nothing

    with pytest.raises(TypingError, match="nothing"):
        compiled(SIGNATURE)(nonsense)(NUMBERS, 1)
    assert not list(cache.glob("*.nonsense-*"))


LOWER = """
from seqtool.core.compiled import compiled
from seqtool.core import types
@compiled(types.int64(types.int64))
def factor(number):
    return {factor}
ADDEND = {addend}
"""
MIDDLE = """
from seqtool.core.compiled import compiled
from seqtool.core import types
from lower import factor
@compiled(types.int64(types.int64))
def multiplied(number):
    return number * factor(number)
"""
UPPER = """
from seqtool.core.compiled import compiled
from seqtool.core import types
from lower import ADDEND
from middle import multiplied
@compiled(types.int64(types.int64))
def computed(number):
    return multiplied(number) + ADDEND
"""


def test_functions_and_numbers_of_other_files_are_seen_to_change(
    cache: Path, made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def computed(factor: str, addend: int, age: int = 0) -> int:
        text = LOWER.format(factor=factor, addend=addend)
        for name, content in (("lower", text), ("middle", MIDDLE), ("upper", UPPER)):
            path = folder / f"{name}.py"
            path.write_text(content)
            seconds = 1_700_000_000 + (age if name == "lower" else 0)
            os.utime(path, (seconds, seconds))
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        result: int = importlib.import_module("upper").computed(10)
        return result

    assert (computed("2", 5), len(made)) == (25, 1)
    assert (computed("2", 5), len(made)) == (25, 1)
    assert (computed("3", 5, age=1), len(made)) == (35, 2)  # of a function two calls away
    assert (computed("3", 6, age=1), len(made)) == (36, 3)  # a number; the file looks the same
    assert (computed("2", 5), len(made)) == (25, 3)  # as before, which is still there
    for name in ("lower", "middle", "upper"):
        sys.modules.pop(name)


def test_functions_without_a_file_are_told_apart() -> None:
    keys = set()
    for body, pair in (("x", (1, 2)), ("-x", (1, 2)), ("x + 1", (1, 2)), ("x + 2", (1, 2))):
        names: dict[str, Any] = {"PAIR": pair}
        exec(f"def given(x): return PAIR[0] * ({body})", names)
        keys.add(compiled(types.int64(types.int64))(names["given"]).key)
        names["PAIR"] = (1, 3)
        keys.add(compiled(types.int64(types.int64))(names["given"]).key)
    assert len(keys) == 8


def test_settings_of_numba_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    function = compiled(SIGNATURE)(element)
    key = function.key
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    assert function.key == key
    monkeypatch.setenv("NUMBA_OPT", "0")
    assert function.key != key
    assert compiled(SIGNATURE, fastmath=True)(element).key != function.key


def test_two_processes_compile_once(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np\n"
        "from seqtool.core.string_table import StringTable\n"
        "assert StringTable(['a', 'b', 'a']).text(1) == 'b'\n"
        "print('numba' in sys.modules)\n"
    )
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", script]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True)

    together = [start(), start()]
    assert [process.communicate()[0] for process in together].count("True\n") >= 1
    assert start().communicate()[0] == "False\n"
    files = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    # what allocates memory, and the function
    assert len([name for name in files if not name.startswith("lock-")]) == 2
    assert {process.returncode for process in together} == {0}


@pytest.mark.skipif(sys.platform != "linux", reason="asks the C library to spoil what is freed")
def test_functions_outlive_their_module() -> None:
    """At Python's end, `core.compiled` may be gone before the last function that it made."""
    script = (
        "from seqtool.core.string_table import StringTable\n"
        "assert StringTable(['a', 'b', 'a']).text(1) == 'b'\n"
    )
    # a description of a function that is filled so says that more is to be freed, at any address
    spoilt = {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **spoilt}, check=False
    )
    assert ended.returncode == 0


def test_machine_code_whose_callback_was_broken_off(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(library: object) -> bytes:
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr("numba.core.codegen.CodeLibrary._get_compiled_object", lost)
    assert compiled(SIGNATURE)(element)(NUMBERS, 2) == 30


def test_every_type_has_its_numba() -> None:
    for kind, expected in (
        (types.int8, numba.int8),
        (types.boolean[::1], numba.types.Array(numba.types.boolean, 1, "C")),
        (types.float32[:, ::1], numba.float32[:, ::1]),
        (types.UniTuple(types.int16, 2), numba.types.UniTuple(numba.int16, 2)),
        (types.Tuple((types.int16, types.uint8)), numba.types.Tuple((numba.int16, numba.uint8))),
        (types.void(types.int64), numba.void(numba.int64)),
        (numba.int64, numba.int64),
    ):
        assert compiler.numba_type(kind) == expected
    with pytest.raises(TypeError, match="C order"):
        types.int32[:]
    with pytest.raises(TypeError, match="C order"):
        types.int32[::1, :]


def test_a_function_keeps_its_name_and_text() -> None:
    assert isinstance(string_hash, CompiledFunction)
    assert string_hash.__name__ == "string_hash"
    assert (string_hash.__doc__ or "").startswith("Return the hash of a string")


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
