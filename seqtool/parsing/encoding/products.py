"""Products of matrices in whole numbers of 16 bits, for networks that are only read.

    Weights(values_KN).multiply(values_MK, out_MN, room)     the right factor, prepared once
    Room                                                     memory that is used again

Each row of the left factor and each column of the right one is rounded to whole numbers from -L to
L, by a scale of its own: its largest value becomes L. L is such that no sum of K products leaves 32
bits: 2,189 for K = 448. So values have 12 bits there, of which those far below the largest one of
their row use fewer.

- x86 processors with AVX2 add two products of such numbers at a time (vpmaddwd), so it is up to
  twice as fast as float32 there. Others multiply in float32.
- Sums of whole numbers are exact in any order. So such a product does not depend on how it is
  divided, and a row of it not on the others.

Rows are taken in pairs of values:

    left [rows, pairs]: a row as it is         right [pairs, columns]: two rows, interleaved
    a00 a01 | a02 a03 | ...                    b00 b10 | b01 b11 | ...
    a10 a11 | a12 a13 | ...                    b20 b30 | b21 b31 | ...

A tile of the product stays in registers while the pairs of its rows and columns go by.

Devlin 2017 (Sharp Models on Dull Hardware: Fast and Accurate Neural Machine Translation Decoding on
the CPU) multiplies so, with one scale for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from seqtool.core.arrays import Floats, Shorts
from seqtool.core.instructions import element, flat
from seqtool.core.jit import compiled

Pairs = npt.NDArray[np.uint32]  # of two whole numbers, the first one in the lower half

_FEATURES = llvm.get_host_cpu_features()
# without the instruction, it is slower than float32
IS_FAST = bool(_FEATURES.get("avx2", False))
_IS_WIDE = bool(_FEATURES.get("avx512bw", False))
LANES = 16 if _IS_WIDE else 8  # of a vector: whole numbers of 32 bits
# of a tile: its sums, and what they are made from, fill the registers, which are 32 or 16
ROWS, COLUMNS = 14 if _IS_WIDE else 6, 2 * LANES
BLOCK = 240  # rows that are multiplied at once: their pairs stay in a core's own cache
NARROWEST = 64  # inner sizes and columns below stay in float32: these products are short anyway
WIDEST = 1024  # inner sizes beyond stay there, too: fewer bits would be left for a value
# a number below 2^22 that is added to it is rounded, ties to even, and stands in its lower bits
SHIFT = np.float32(3 << 22)

_int, _floats, _reals = types.int64, types.float32[:, ::1], types.float32[::1]
_pairs, _row_of_pairs = types.uint32[:, ::1], types.uint32[::1]


def largest_whole(inner: int) -> int:
    """Return L, to which factors with so large an inner size are rounded."""
    return math.isqrt((2**31 - 1) // inner)


@compiled(types.void(_floats, _int, _int, _int, types.float32, types.int16[:, ::1], _reals))
def _round_rows(values, begin, column, width, limit, whole, scales):  # type: ignore[no-untyped-def]
    """Write rows of a part of an array as whole numbers, and their scales.

    All products of a row with a NaN or an infinity are NaN or infinite.

    Args:
        values: the part and other rows and columns.
        begin: the first row of the part.
        column: its first column.
        width: its columns.
        limit: L.
        whole: receives the whole numbers; its columns beyond the width become zeros.
        scales: receives what 1 stands for in each row.
    """
    for row in range(len(whole)):
        # parts of their own: see `encoding.lstm`
        source, target = values[begin + row, column : column + width], whole[row]
        bits, largest = source.view(np.uint32), np.uint32(0)
        for place in range(width):
            # without its sign, a number is the larger the larger its bits, and NaN is largest
            largest = max(largest, bits[place] & np.uint32(0x7FFFFFFF))
        top = np.uint32(largest).view(np.float32)
        scales[row] = top / limit
        factor = limit / top if top > np.float32(0.0) else np.float32(0.0)
        for place in range(width):
            shifted = np.float32(source[place] * factor + SHIFT)
            target[place] = np.int16(np.float32(shifted).view(np.int32))
        for place in range(width, len(target)):
            target[place] = np.int16(0)


@intrinsic
def _tile(typing_context, rows, left, num_pairs, right, scales, factors, out, stride):  # type: ignore[no-untyped-def]
    """Write a tile of a product, of 1 to ROWS rows and COLUMNS columns.

    Args:
        typing_context: of Numba.
        rows: of the tile.
        left: their pairs, row after row, and others behind them.
        num_pairs: in a row.
        right: pairs of the columns, COLUMNS at a time.
        scales: of the rows.
        factors: scales of the columns.
        out: receives the product.
        stride: how far its rows are apart.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        rows, left, num_pairs, right, scales, factors, out, stride = arguments
        kinds, size, number = signature.args, ir.IntType(64), ir.IntType(32)
        sums, reals = ir.VectorType(number, LANES), ir.VectorType(ir.FloatType(), LANES)
        halves = ir.VectorType(ir.IntType(16), 2 * LANES)
        wide = ir.VectorType(number, 2 * LANES)
        zeros = ir.Constant(sums, [0] * LANES)
        evens_and_odds = [ir.Constant(sums, list(range(i, 2 * LANES, 2))) for i in range(2)]

        def vectors(place: int, array: Any, begin: Any, of: Any) -> Iterator[Any]:
            """Return the addresses of the two vectors of a row of columns."""
            for first in (begin, builder.add(begin, size(LANES))):
                address = element(context, builder, kinds[place], array, first)
                yield builder.bitcast(address, of.as_pointer())

        def spread(place: int, array: Any, index: Any, of: Any) -> Any:
            """Return a number of an array in all lanes."""
            value = builder.load(element(context, builder, kinds[place], array, index))
            nothing = ir.Constant(of, ir.Undefined)
            only = builder.insert_element(nothing, value, number(0))
            return builder.shuffle_vector(only, nothing, zeros)

        def added(total: Any, first: Any, second: Any) -> Any:
            """Add the products of pairs, which LLVM knows for one instruction."""
            products = builder.mul(builder.sext(first, wide), builder.sext(second, wide))
            nothing = ir.Constant(wide, ir.Undefined)
            halved = [builder.shuffle_vector(products, nothing, which) for which in evens_and_odds]
            return builder.add(total, builder.add(*halved))

        done = builder.append_basic_block("done")
        heights = builder.switch(rows, done)
        # a loop for each height, so that the sums of all rows have names, and so registers
        for height in range(1, ROWS + 1):
            before, loop, after = (builder.append_basic_block() for _ in range(3))
            heights.add_case(size(height), before)
            builder.position_at_end(before)
            starts = [builder.mul(num_pairs, size(row)) for row in range(height)]
            builder.branch(loop)

            builder.position_at_end(loop)
            index = builder.phi(size)
            held = [[builder.phi(sums) for _ in range(2)] for _ in starts]
            begin = builder.mul(index, size(COLUMNS))
            columns = [builder.load(one, align=4) for one in vectors(3, right, begin, halves)]
            totals = []
            for start, row in zip(starts, held, strict=True):
                pair = builder.bitcast(spread(1, left, builder.add(start, index), sums), halves)
                totals.append([added(*both, pair) for both in zip(row, columns, strict=True)])
            following = builder.add(index, size(1))
            index.add_incoming(size(0), before)
            index.add_incoming(following, loop)
            for row, of_row in zip(held, totals, strict=True):
                for phi, total in zip(row, of_row, strict=True):
                    phi.add_incoming(zeros, before)
                    phi.add_incoming(total, loop)
            builder.cbranch(builder.icmp_unsigned("<", following, num_pairs), loop, after)

            builder.position_at_end(after)
            by_column = [builder.load(one, align=4) for one in vectors(5, factors, size(0), reals)]
            for number_of_row, of_row in enumerate(totals):
                index = size(number_of_row)
                scale = spread(4, scales, index, reals)
                addresses = vectors(6, out, builder.mul(stride, index), reals)
                for address, total, factor in zip(addresses, of_row, by_column, strict=True):
                    # one after the other: the product of two scales may be out of range
                    value = builder.fmul(builder.sitofp(total, reals), scale)
                    value = builder.fmul(value, factor)
                    builder.store(value, address, align=4)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    given = types.int64, left, types.int64, right, scales, factors, out, types.int64
    return types.void(*given), generate


@compiled(types.void(_pairs, _reals, _row_of_pairs, _reals, _floats))
def _multiply(left_MP, scales_M, right, factors_N, out_MN):  # type: ignore[no-untyped-def]
    """Write a product.

    Args:
        left_MP: pairs of the left factor.
        scales_M: scales of its rows.
        right: pairs of the right one, as `_in_panels` has them.
        factors_N: scales of its columns, and zeros up to a whole panel.
        out_MN: receives the product.
    """
    num_rows, num_pairs = left_MP.shape
    num_columns = out_MN.shape[1]
    left, out = flat(left_MP), flat(out_MN)
    spare = np.empty(ROWS * COLUMNS, np.float32)
    # tiles of like heights: a last one of a row or two would leave the processor idle
    num_tiles = (num_rows + ROWS - 1) // ROWS
    # columns outside: their pairs stay in the nearest cache for all of the rows
    for column in range(0, num_columns, COLUMNS):
        panel, factors = right[column * num_pairs :], factors_N[column:]
        inside = min(COLUMNS, num_columns - column)
        row = 0
        for tile in range(num_tiles):
            height = (num_rows - row) // (num_tiles - tile)
            pairs, scales = left[row * num_pairs :], scales_M[row:]
            # a tile that goes beyond the product is made apart, and its inside copied
            is_whole = inside == COLUMNS
            to = out[row * num_columns + column :] if is_whole else spare
            stride = num_columns if is_whole else COLUMNS
            _tile(height, pairs, num_pairs, panel, scales, factors, to, stride)
            if not is_whole:
                for number in range(height):
                    for lane in range(inside):
                        out_MN[row + number, column + lane] = spare[number * COLUMNS + lane]
            row += height


class Room:
    """Memory for arrays of numbers, used again: fresh memory costs as much as what fills it.

    Of one thread at a time, as are the models that have one.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Floats] = {}

    def array(self, name: str, num_rows: int, width: int) -> Floats:
        """Return an array of any numbers; it takes the memory of the last of its name."""
        size = num_rows * width
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size, np.float32)
        return self._arrays[name][:size].reshape(num_rows, width)


class Weights:
    """A matrix [K, N] that others are multiplied by.

    Products are of whole numbers, as the module tells; those of few rows or columns, or of very
    many rows, are of float32.
    """

    def __init__(self, values_KN: Floats) -> None:
        self.shape = inner, num_columns = values_KN.shape
        self._is_float32 = not IS_FAST or min(inner, num_columns) < NARROWEST or inner > WIDEST
        if self._is_float32:
            self._values_KN = np.ascontiguousarray(values_KN)
            return
        self._limit = largest_whole(inner)
        self._num_pairs = (inner + 1) // 2
        padded = num_columns + -num_columns % COLUMNS
        columns_NK = np.zeros((padded, inner), np.float32)
        columns_NK[:num_columns] = values_KN.T
        self._factors_N = np.empty(padded, np.float32)
        whole_NK = np.empty((padded, 2 * self._num_pairs), np.int16)
        _round_rows(columns_NK, 0, 0, inner, self._limit, whole_NK, self._factors_N)
        self._panels = _in_panels(whole_NK)

    def multiply(
        self, values: Floats, out_MN: Floats, room: Room, *, begin: int = 0, column: int = 0
    ) -> None:
        """Write the product of a part of an array, [M, K], with these weights.

        Args:
            values: the part and other rows and columns, in C order.
            out_MN: receives the product.
            room: for the whole numbers of the part.
            begin: the first row of the part.
            column: its first column.
        """
        inner, num_columns = self.shape
        # compiled code would read and write beyond the arrays
        assert 0 <= begin <= begin + len(out_MN) <= len(values)
        assert 0 <= column <= column + inner <= values.shape[1]
        assert out_MN.shape[1] == num_columns
        if self._is_float32:
            part = values[begin : begin + len(out_MN), column : column + inner]
            np.matmul(part, self._values_KN, out=out_MN)
            return
        for first in range(0, len(out_MN), BLOCK):
            out = out_MN[first : first + BLOCK]
            pairs = room.array("pairs", len(out), self._num_pairs).view(np.uint32)
            scales = room.array("scales", 1, len(out))[0]
            whole = pairs.view(np.int16)
            _round_rows(values, begin + first, column, inner, self._limit, whole, scales)
            _multiply(pairs, scales, self._panels, self._factors_N, out)


def _in_panels(whole_NK: Shorts) -> Pairs:
    """Return pairs of rows as `_multiply` reads them: those of COLUMNS columns, then the next."""
    num_columns, inner = whole_NK.shape
    panels = whole_NK.reshape(num_columns // COLUMNS, COLUMNS, inner // 2, 2)
    return np.ascontiguousarray(panels.transpose(0, 2, 1, 3)).view(np.uint32).ravel()
