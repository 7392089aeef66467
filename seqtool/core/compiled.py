"""Functions that Numba compiles to machine code, once for this machine.

    @compiled(types.int64(types.int32[::1]))
    def num_words(ids): ...

The first call takes the machine code from the cache on disk, or compiles it: that alone imports
Numba. LLVM's linker puts it into memory, and Python calls it as a built-in function.

    function, signature -> [core.compiler: Numba] -> object file -> [cache] -> linker -> built-in

An object file stands for what it was made from (`CompiledFunction.key`): where a function changes,
or one that it calls, or a number that it reads, it is compiled anew. Where no file can be kept,
each process compiles what it calls.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import itertools
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import CodeType, FunctionType
from typing import Any, ClassVar

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np

from seqtool.core import terminal, types
from seqtool.core.compile_cache import CompileCache, compiling, default_path
from seqtool.core.errors import from_os_error

_METH_FASTCALL = 0x80  # how Python calls an entry
_ALLOCATION = "allocation"  # the library of what compiled code calls for memory
_NUMBERS = (bool, int, float, np.generic)

_lock = threading.RLock()  # over linking, and over compiling
_turn = itertools.count()
# machine code; never taken down, as nobody knows the last of its users
_kept: list[Any] = []


class _Method(ctypes.Structure):
    """Python's `PyMethodDef`."""

    _fields_: ClassVar[Any] = [
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class CompiledFunction:
    """A function that is compiled, or taken from the cache, when it is called first.

    Other threads run while it does.

    Args:
        function: in Python, of what Numba knows.
        signatures: one or more; a call takes the first that fits.
        options: of `numba.njit`.
    """

    def __init__(
        self,
        function: FunctionType,
        signatures: Sequence[types.Signature],
        options: Mapping[str, Any],
    ) -> None:
        self.function, self.signatures, self.options = function, tuple(signatures), dict(options)
        functools.update_wrapper(self, function)
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self._entry: Callable[..., Any] = self._first_call

    def __call__(self, *arguments: Any) -> Any:
        """Call it.

        Raises:
            TypeError: the arguments fit no signature.
        """
        return self._entry(*arguments)

    def _first_call(self, *arguments: Any) -> Any:
        with _lock:
            if self._entry == self._first_call:  # no other thread was faster
                self._entry = self._linked()
        return self._entry(*arguments)

    def _linked(self) -> Callable[..., Any]:
        """Return the entry, in memory."""
        linker = _linker()
        if linker is None:
            from seqtool.core import compiler

            with compiling():
                whole: Callable[..., Any] = compiler.for_python(
                    _seen_by_numba(self.function), self.signatures, self.options
                )
            return whole
        name = f"{self.__module__}.{self.__qualname__}-{self.key}"
        code = _object_code(name, functools.partial(self._compile, name))
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        builder.add_jit_library(_ALLOCATION).add_current_process().export_symbol(name)
        library = builder.link(linker, f"{name} {next(_turn)}")
        method = _Method(self.__name__.encode(), library[name], _METH_FASTCALL, None)
        _kept.append(library)
        # a built-in function reads it when it is freed, which at Python's end may be after all
        # that modules hold: so it is never freed
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
        make = ctypes.pythonapi["PyCFunction_NewEx"]
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        entry: Callable[..., Any] = make(ctypes.addressof(method), self._refuse, None)
        return entry

    def _compile(self, name: str) -> bytes:
        from seqtool.core import compiler

        return compiler.object_code(
            name, _seen_by_numba(self.function), self.signatures, self.options
        )

    def _refuse(self, what: int, *numbers: int) -> None:
        """Raise what the entry finds wrong; the numbers say how many, which one, or where."""
        expected = " or ".join(
            f"({', '.join(map(str, signature.arguments))})" for signature in self.signatures
        )
        num = len(self.signatures[0].arguments)
        if what == types.BAD_COUNT:
            raise TypeError(f"{self.__qualname__} takes {num} arguments, not {numbers[0]}")
        if what == types.BAD_ARGUMENT:
            code = self.function.__code__
            name = code.co_varnames[numbers[0]]
            raise TypeError(f"{self.__qualname__}: `{name}` is of another type than in {expected}")
        if not numbers[0]:
            raise RuntimeError(f"{self.__qualname__} failed")
        from seqtool.core import compiler

        raise compiler.raised(numbers[0], numbers[1], has_values=bool(numbers[2]))

    @functools.cached_property
    def inner(self) -> Any:
        """What Numba calls from other compiled functions; compiled, now."""
        from seqtool.core import compiler

        return compiler.inner(_seen_by_numba(self.function), self.signatures, self.options)

    @property
    def key(self) -> str:
        """A sum of all that the machine code is made from.

        Numba writes the code of functions that are called, and the values of global numbers, into
        the machine code. So these are the files of all functions that are reached, and the numbers
        that they read; the version of Numba and the processor name the folder.
        """
        settings = {k: v for k, v in os.environ.items() if k.startswith("NUMBA_")}
        settings.pop("NUMBA_CACHE_DIR", None)
        parts = [repr(sorted(settings.items())), _sum_of(_COMPILER), *_origins(self)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class Instruction:
    """What compiled code can call, and no other: its LLVM is written when it is compiled."""

    def __init__(self, function: FunctionType) -> None:
        self.function, self.__doc__ = function, function.__doc__

    @functools.cached_property
    def inner(self) -> Any:
        """What Numba calls."""
        from seqtool.core import compiler

        # a method may have the name of a global function: none of those is called here
        return compiler.instruction(_seen_by_numba(self.function, calls=False))


def compiled(
    signature: types.Signature | Sequence[types.Signature], **options: Any
) -> Callable[[Any], CompiledFunction]:
    """Compile a function for one signature or several, when it is called first.

    Args:
        signature: of the types of the result and the arguments.
        options: others of `numba.njit`, such as `fastmath`, `boundscheck`.
    """
    signatures = [signature] if isinstance(signature, types.Signature) else signature
    return lambda function: CompiledFunction(function, signatures, options)


def in_llvm(function: Any) -> Any:
    """Make a function for compiled code from one that returns its signature and writes its LLVM.

    It is called when something is compiled, with Numba imported, as `numba.extending.intrinsic`
    calls it; `types` is Numba's there.
    """
    return Instruction(function)


# --- what a function is made from ---

_COMPILER = os.path.join(os.path.dirname(__file__), "compiler.py")


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names that a function reads from outside, and their values."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells)
    pending = [code]
    while pending:
        code = pending.pop()
        pending += [part for part in code.co_consts if isinstance(part, CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _origins(made: CompiledFunction) -> list[str]:
    """Return a text for each thing that machine code is made from, in any process the same."""
    found: set[str] = set()
    seen: set[FunctionType] = set()
    pending: list[Any] = [made]
    while pending:
        value = pending.pop()
        if isinstance(value, CompiledFunction):
            options = {k: sorted(v) if isinstance(v, set) else v for k, v in value.options.items()}
            found.add(f"{value.__qualname__} {value.signatures} {sorted(options.items())}")
        function = getattr(value, "function", value)
        if function in seen:
            continue
        seen.add(function)
        code = function.__code__
        if os.path.exists(code.co_filename):
            found.add(f"{function.__module__} {_sum_of(code.co_filename)}")
        else:  # typed in an interpreter
            found.add(f"{code.co_name} {code.co_code.hex()} {code.co_consts}")
        for name, used in _globals_of(function):
            numbers = used if isinstance(used, tuple) else (used,)
            if all(isinstance(number, _NUMBERS) for number in numbers):
                found.add(f"{name} {used!r}")
            elif isinstance(used, CompiledFunction | Instruction | FunctionType):
                pending.append(used)
    return sorted(found)


def _sum_of(path: str) -> str:
    status = os.stat(path)
    return _content_sum(path, status.st_mtime_ns, status.st_size)


@functools.cache
def _content_sum(path: str, *_: int) -> str:
    with open(path, "rb") as stream:
        return f"{zlib.crc32(stream.read()):08x}"


def _seen_by_numba(function: FunctionType, *, calls: bool = True) -> FunctionType:
    """Return a function that has what Numba knows, where this one has what stands for it."""
    from numba.core import types as numba_types

    from seqtool.core import compiler

    changed: dict[str, Any] = {}
    for name, value in _globals_of(function):
        if isinstance(value, CompiledFunction | Instruction) and calls:
            changed[name] = value.inner
        elif value is types:
            changed[name] = numba_types
        elif isinstance(value, types.Kind):
            changed[name] = compiler.numba_type(value)
    return compiler.with_globals(function, changed)


# --- from the cache into memory ---


@functools.cache
def _opened_cache() -> CompileCache | None:
    """Return where compiled code is kept; None, and a line that says why, where it cannot be."""
    numba = importlib.util.find_spec("numba")  # its version, without the import
    path = os.path.join(os.path.dirname((numba and numba.origin) or ""), "_version.py")
    version = _sum_of(path) if os.path.exists(path) else ""
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    compiler = f"numba {version} llvmlite {llvmlite.__version__} {sys.version}"
    try:
        return CompileCache(default_path(f"{compiler} {processor}"))
    except (OSError, RuntimeError) as error:  # no home, a full disk, a folder of others
        reason = str(from_os_error(error) if isinstance(error, OSError) else error)
        _note_unkept(reason.rstrip("."))
    return None


@functools.cache
def _note_unkept(reason: str) -> None:
    """Say once why it takes long, and will again."""
    text = f"note: {reason}: compiled code is not kept, and each start compiles it again"
    hint = "NUMBA_CACHE_DIR can name a folder of your own for it"
    terminal.echo(f"{text}; {hint}", err=True)


def _object_code(name: str, make: Callable[[], bytes]) -> bytes:
    """Return an object file from the cache, or make it and keep it."""
    cache = _opened_cache()
    if cache is None:
        with compiling():
            return make()
    code = cache.read(name)
    if code is not None:
        return code
    with ExitStack() as stack:
        stack.enter_context(compiling())
        with suppress(OSError):
            stack.enter_context(cache.locked(name))
        code = cache.read(name)  # another process may have made it meanwhile
        if code is None:
            _say_once("note: compiling, once for this machine; the next start is quick")
            code = make()
            try:
                cache.write(name, code)
            except OSError as error:  # a full disk, a folder that cannot be written to
                _note_unkept(f"{cache.path}: {error.strerror}")
    return code


@functools.cache
def _say_once(text: str) -> None:
    """Say on a terminal why it takes long."""
    if terminal.stream(err=True).isatty():
        terminal.echo(text, err=True)


@functools.cache
def _linker() -> Any:
    """Return LLVM's linker, with the library of what compiled code calls for memory.

    It is not on every system: where there is none, Numba compiles at every start.
    """

    def make() -> bytes:
        from seqtool.core import compiler

        return compiler.allocation_code()

    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        linker = llvm.create_lljit_compiler()
        code = _object_code(f"{_ALLOCATION}-{_sum_of(_COMPILER)}", make)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        _kept.append(builder.link(linker, _ALLOCATION))
    except RuntimeError as error:
        text = f"note: machine code cannot be kept here, and is compiled at every start: {error}"
        terminal.echo(text, err=True)
        return None
    return linker
