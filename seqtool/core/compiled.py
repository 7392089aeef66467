"""Functions that Numba compiles when their module is imported, and keeps on disk for the next time.

This module imports Numba (0.3 s), so it and every module that uses it are imported on use only.
"""

from __future__ import annotations

from collections.abc import Callable
from pickle import UnpicklingError  # only to catch Numba's; seqtool itself pickles nothing
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

# what unpickling bytes that are no longer what was written raises, by the manual of `pickle`
_DAMAGED = (
    UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
# a full disk, a folder that cannot be read; no folder at all that can be written to
_NO_CACHE = (OSError, RuntimeError)


def compiled(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, now: from the cache on disk where there can be one.

    A damaged cache is emptied and written anew; without a place for it, the function is compiled
    in memory, and again in the next process. The GIL is released while the function runs.

    Numba compiles anew when the file of the function changes, but not when that of another
    compiled function that it calls does: such functions belong into one file.

    Args:
        signature: the types of result and arguments, as in `types.int64(types.float64[::1])`, or
            a list of such signatures.
        options: other options of `numba.njit`, such as `parallel`, `fastmath`, `boundscheck`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        cached: Callable[..., Any] = numba.njit(signature, cache=True, nogil=True, **options)
        try:
            try:
                return cached(function)
            except _DAMAGED:
                # with nothing compiled yet, all that this does is to empty the cache
                numba.njit(cache=True)(function).recompile()
                return cached(function)
        except _NO_CACHE:
            return numba.njit(signature, nogil=True, **options)(function)

    return decorate


def in_llvm(function: Callable[..., Any]) -> Any:
    """Make a function for compiled code from one that returns its signature and writes its LLVM."""
    return intrinsic(function)


def element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Return the address of an element of a vector, in LLVM; no bounds are checked."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@in_llvm
def fetch(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Ask memory for the element of a vector that will be read soon, and do not wait for it."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        address = element(context, builder, signature.args[0], *arguments)
        # to be read, into the first cache, as data
        options = [number(0), number(3), number(1)]
        builder.call(prefetch, [builder.bitcast(address, pointer), *options])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@in_llvm
def load(typing_context, data, position):  # type: ignore[no-untyped-def]
    """Return the eight bytes of a vector from a position on, the first of them lowest."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        number = ir.IntType(64)
        address = element(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, number.as_pointer()), align=1)

    return types.uint64(data, types.uint64), generate


@in_llvm
def copy_bytes(typing_context, target, to, source, begin, count):  # type: ignore[no-untyped-def]
    """Copy bytes of one vector into another, which must not be the same memory."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, number, ir.IntType(1)])
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, number], kind)
        addresses = [
            element(context, builder, signature.args[place], *arguments[place : place + 2])
            for place in (0, 2)
        ]
        builder.call(copy, [*addresses, arguments[4], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate
