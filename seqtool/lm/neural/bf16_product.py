"""Small products of bfloat16 on the CPU, for the loop of the recurrent highway cell.

    pack_pairs(weights_DMK)                      the left factors, prepared once
    multiply()(weights_MP, factors_KB, out_MB)   one product, in float32, by the calling thread

The dot-product instruction of AVX-512 BF16 (vdpbf16ps) adds to each of 16 sums in float32 the dot
product of two pairs of bfloat16. A tile of the result stays in registers while the pairs of its
rows and columns go by:

    weights [rows, pairs]: a row as it is      pairs [pairs, columns]: two rows, interleaved
    w00 w01 | w02 w03 | ...                    x00 x10 | x01 x11 | ...
    w10 w11 | w12 w13 | ...                    x20 x30 | x21 x31 | ...

torch's library spends much of a small product's time on preparing it, and wakes threads of its own.
Tokens a second of training with torch's products in place of these, AMD EPYC (Zen 5), 28 November
2026: recipe `ptb-15min` (one thread) 10,690 and 11,900; `ptb-2h` (two threads) 12,380 and 15,340.

Dimensions in names: D depths, M rows, K inner size, B columns, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor
from torch.nn import functional

from seqtool.core.instructions import element, flat
from seqtool.core.jit import compiled

Pairs: TypeAlias = npt.NDArray[np.uint32]

LANES = 16
# of a tile: sums enough to keep the processor's two units busy
ROWS, COLUMNS = 8, 2 * LANES
NARROW_ROWS = 16  # of a tile of one vector, for 16 columns or fewer

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_SUMS, _PAIRS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_I32, LANES)

binding.initialize_native_asmparser()  # reads the instruction below


def _write_tile(context: Any, builder: Any, kinds: Any, arguments: Any, rows: int, num: int) -> Any:
    """Write the LLVM of a tile of so many rows, and columns of `num` vectors; see `_tile`."""
    weights, row, pairs, column, width, num_pairs, out, place, stride = arguments

    def vectors(kind: Any, array: Any, index: Any, of: Any) -> list[Any]:
        """Return the addresses of the vectors of a tile's row."""
        places = [builder.add(index, _I64(LANES * number)) for number in range(num)]
        addresses = [element(context, builder, kind, array, place) for place in places]
        return [builder.bitcast(address, of.as_pointer()) for address in addresses]

    # an intrinsic of LLVM has its types by LLVM's version, the assembler knows none
    form = ir.FunctionType(_SUMS, [_SUMS, _PAIRS, _PAIRS])
    multiply_add = ir.InlineAsm(form, "vdpbf16ps $3, $2, $0", "=v,0,v,v")
    nothing, everywhere = ir.Constant(_PAIRS, ir.Undefined), ir.Constant(_PAIRS, [0] * LANES)
    numbers = [_I64(number) for number in range(rows)]
    starts = [builder.mul(builder.add(row, number), num_pairs) for number in numbers]
    zeros = ir.Constant(_SUMS, [0.0] * LANES)
    # variables, of which the compiler makes registers
    sums = [[cgutils.alloca_once(builder, _SUMS) for _ in range(num)] for _ in range(rows)]
    for held in sums:
        for part in held:
            builder.store(zeros, part)
    with cgutils.for_range(builder, num_pairs) as loop:
        begin = builder.add(builder.mul(loop.index, width), column)
        addresses = vectors(kinds[2], pairs, begin, _PAIRS)
        factors = [builder.load(address, align=4) for address in addresses]
        for start, held in zip(starts, sums, strict=True):
            position = builder.add(start, loop.index)
            # one pair of a row in all lanes, times 16 columns at once
            pair = builder.load(element(context, builder, kinds[0], weights, position))
            first = builder.insert_element(nothing, pair, _I32(0))
            spread = builder.shuffle_vector(first, nothing, everywhere)
            for part, factor in zip(held, factors, strict=True):
                total = builder.call(multiply_add, [builder.load(part), spread, factor])
                builder.store(total, part)
    for number, held in zip(numbers, sums, strict=True):
        begin = builder.add(place, builder.mul(stride, number))
        for address, part in zip(vectors(kinds[6], out, begin, _SUMS), held, strict=True):
            builder.store(builder.load(part), address, align=4)
    return context.get_dummy_value()


@intrinsic
def _tile(typing_context, weights, row, pairs, column, width, num_pairs, out, place, stride):  # type: ignore[no-untyped-def]
    """Write a tile of a product, of rows and columns from some on, into `out` from `place` on.

    All arrays are flat: rows of weights are `num_pairs` apart, those of pairs `width`, and those of
    `out` are `stride` apart.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _write_tile(context, builder, signature.args, arguments, ROWS, COLUMNS // LANES)

    integer = types.int64
    given = weights, integer, pairs, integer, integer, integer, out, integer, integer
    return types.void(*given), generate


@intrinsic
def _narrow_tile(typing_context, weights, row, pairs, column, width, num_pairs, out, place, stride):  # type: ignore[no-untyped-def]
    """Write a tile of 16 rows and 16 columns; see `_tile`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _write_tile(context, builder, signature.args, arguments, NARROW_ROWS, 1)

    integer = types.int64
    given = weights, integer, pairs, integer, integer, integer, out, integer, integer
    return types.void(*given), generate


def pack_pairs(weights_DMK: Tensor) -> Pairs:
    """Return left factors of bfloat16 as `multiply` reads them, [D, M or more, P].

    Rows are padded to whole tiles and columns to whole pairs, with zeros.
    """
    _, rows, inner = weights_DMK.shape
    padding = 0, inner % 2, 0, -rows % NARROW_ROWS  # a multiple of ROWS, too
    padded = functional.pad(weights_DMK, padding) if any(padding) else weights_DMK
    return padded.contiguous().view(torch.uint16).numpy().view(np.uint32)


def _multiply(weights_MP, factors_KB, product_NB):  # type: ignore[no-untyped-def]
    """Write a product, in float32.

    Args:
        weights_MP: the left factor, of `pack_pairs`.
        factors_KB: bits of the right one.
        product_NB: receives the N rows of the product.
    """
    num_pairs, inner, (num_rows, batch) = weights_MP.shape[1], len(factors_KB), product_NB.shape
    # whole tiles, the last one narrow where that is enough; what is beyond is not read
    width = (batch + LANES - 1) // LANES * LANES
    if batch % COLUMNS > LANES:
        width = (batch + COLUMNS - 1) // COLUMNS * COLUMNS
    pairs_PW = np.empty((num_pairs, width), np.uint32)
    for pair in range(inner // 2):
        low_B, high_B, pair_W = factors_KB[2 * pair], factors_KB[2 * pair + 1], pairs_PW[pair]
        for column in range(batch):  # the earlier row is the lower half, as in the weights
            shifted = np.uint32(np.uint32(high_B[column]) << np.uint32(16))
            pair_W[column] = np.uint32(low_B[column]) | shifted
    for column in range(batch * (inner % 2)):  # an odd last row: its partner is zero
        pairs_PW[num_pairs - 1, column] = factors_KB[inner - 1, column]
    block = np.empty((ROWS, COLUMNS), np.float32)
    narrow_block = np.empty((NARROW_ROWS, LANES), np.float32)
    weights, pairs = flat(weights_MP), flat(pairs_PW)
    product, part, narrow_part = flat(product_NB), flat(block), flat(narrow_block)
    # columns outside: the pairs of one block of them stay in the cache for all of the rows
    for column in range(0, batch, COLUMNS):
        columns = min(COLUMNS, batch - column)
        if columns <= LANES:
            for row in range(0, num_rows, NARROW_ROWS):
                rows = min(NARROW_ROWS, num_rows - row)
                if rows == NARROW_ROWS and columns == LANES:
                    place = row * batch + column
                    _narrow_tile(
                        weights, row, pairs, column, width, num_pairs, product, place, batch
                    )
                    continue
                _narrow_tile(weights, row, pairs, column, width, num_pairs, narrow_part, 0, LANES)
                for k in range(rows):
                    for lane in range(columns):
                        product_NB[row + k, column + lane] = narrow_block[k, lane]
            continue
        for row in range(0, num_rows, ROWS):
            rows = min(ROWS, num_rows - row)
            if rows == ROWS and columns == COLUMNS:
                place = row * batch + column
                _tile(weights, row, pairs, column, width, num_pairs, product, place, batch)
                continue
            # at the edges a tile goes beyond the product: it is made apart, and its inside copied
            _tile(weights, row, pairs, column, width, num_pairs, part, 0, COLUMNS)
            for k in range(rows):
                for lane in range(columns):
                    product_NB[row + k, column + lane] = block[k, lane]


@cache
def is_fast() -> bool:
    """Return whether these products are to be made here.

    The processor must have the instruction, and Numba must be left to compile for this processor
    (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES can forbid it). Where the processor has units for whole
    matrices (AMX), torch's library uses those.
    """
    features, settings = binding.get_host_cpu_features(), vars(config)
    is_free = settings["CPU_NAME"] is None and settings["CPU_FEATURES"] is None
    is_free = is_free and settings["ENABLE_AVX"]
    return bool(is_free and features.get("avx512bf16") and not features.get("amx-bf16"))


@cache
def multiply() -> Callable[..., None]:
    """Return what writes a product, compiled; other processors do not have the instruction."""
    arrays = types.uint32[:, ::1], types.uint16[:, ::1], types.float32[:, ::1]
    made: Callable[..., None] = compiled(types.void(*arrays))(_multiply)
    return made
