"""Loops that Numba compiles to machine code, once for this machine.

    from numba import types

    @compiled(types.int64(types.int32[::1]))
    def num_words(ids): ...

Numba keeps the machine code in a directory of the user. It looks for changes in the file of a
function, but not in those of the functions that this one calls, whose code it writes into its own:
so the directory is named after the text of all files with compiled functions.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.extending import typeof_impl

from seqtool.core import terminal


@functools.cache
def _can_keep() -> bool:
    """Name the directory of machine code; return whether files can be kept there."""
    try:
        if "NUMBA_CACHE_DIR" not in os.environ:
            home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            folder = home / "seqtool" / f"numba-{_sum_of_files():08x}"
            numba.config.CACHE_DIR = str(folder)
            if not folder.exists() and terminal.stream(err=True).isatty():
                terminal.echo("note: compiling, once for this machine", err=True)
        numba.njit(cache=True)(lambda: None)
    except (RuntimeError, OSError):  # there is no home, or no directory that can be written to
        text = "note: compiled code cannot be kept, and each start compiles it again"
        terminal.echo(f"{text}; NUMBA_CACHE_DIR can name a folder of yours", err=True)
        return False
    return True


def _sum_of_files() -> int:
    """Return a sum of the text of all files with compiled functions."""
    total = 0
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        text = path.read_bytes()
        total = zlib.crc32(text, total) if b"@compiled" in text else total
    return total


class CompiledFunction:
    """A function that Numba compiles, or reads from its directory, when it is called first.

    Named tuples of one layout among its arguments need names of their own: Numba takes two classes
    of one name for one.

    Args:
        function: in Python, of what Numba knows.
        signature: one of `numba.types`, or several.
        options: of `numba.njit`.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, options: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._signature, self._options = function, signature, options

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What Numba makes of it; other threads run while it runs."""
        decorate = numba.njit(self._signature, cache=_can_keep(), nogil=True, **self._options)
        return decorate(self._function)

    def __call__(self, *arguments: Any) -> Any:
        """Call it; a TypeError says that the arguments fit no signature."""
        return self.dispatcher(*arguments)


@typeof_impl.register(CompiledFunction)  # type: ignore[untyped-decorator]
def _type_in_others(function: CompiledFunction, _: Any) -> Any:
    """Tell Numba what stands for it in a function that calls it."""
    return numba.typeof(function.dispatcher)


def compiled(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Return a decorator that makes a `CompiledFunction`; see there."""
    return lambda function: CompiledFunction(function, signature, options)
