"""Instructions that Numba has no name for, and their LLVM.

They run only when something is compiled; in them, `types` is Numba's.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Return the address of an element of a vector, in LLVM; no bounds are checked."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
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


@intrinsic
def real(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Return an element of a vector as a float32; those of uint16 are the bits of halves.

    The index is not looked at, so that a loop over it is one over many elements at a time.
    """
    is_half = array.dtype == types.uint16

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        address = element(context, builder, signature.args[0], *arguments)
        if not is_half:
            return builder.load(address)
        bits = builder.load(builder.bitcast(address, ir.HalfType().as_pointer()), align=2)
        return builder.fpext(bits, ir.FloatType())

    return types.float32(array, types.uint64), generate


@intrinsic
def load(typing_context, data, position):  # type: ignore[no-untyped-def]
    """Return the eight bytes of a vector from a position on, the first of them lowest."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        number = ir.IntType(64)
        address = element(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, number.as_pointer()), align=1)

    return types.uint64(data, types.uint64), generate


@intrinsic
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


@intrinsic
def num_zeros(typing_context, bits):  # type: ignore[no-untyped-def]
    """Return the number of zeros below the lowest bit that is set, 64 for 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@intrinsic
def flat(typing_context, array):  # type: ignore[no-untyped-def]
    """Return the elements of an array in C order as a vector in the same memory."""
    from numba.core.imputils import impl_ret_borrowed
    from numba.np.arrayobj import populate_array

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        given = context.make_array(signature.args[0])(context, builder, *arguments)
        made = context.make_array(signature.return_type)(context, builder)
        shape, strides = [given.nitems], [given.itemsize]
        owner = {"meminfo": given.meminfo, "parent": given.parent}
        populate_array(made, given.data, shape, strides, given.itemsize, **owner)
        value = made._getvalue()
        return impl_ret_borrowed(context, builder, signature.return_type, value)

    return array.copy(ndim=1)(array), generate
