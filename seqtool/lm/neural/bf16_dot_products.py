"""Small products of bfloat16 by the dot-product instruction of AVX-512 BF16, compiled.

The instruction (vdpbf16ps) adds to each of 16 sums in float32 the dot product of two pairs of
bfloat16. torch's library spends much of a small product's time on preparing it. Here a tile of the
result stays in registers while the pairs of its rows and columns go by:

    weights [rows, pairs]: a row as it is      pairs [pairs, columns]: two rows, interleaved
    w00 w01 | w02 w03 | ...                    x00 x10 | x01 x11 | ...
    w10 w11 | w12 w13 | ...                    x20 x30 | x21 x31 | ...

A product of 512 x 256 by 256 x 32 takes 17 microseconds on one core of an AMD EPYC (Zen 5), and
torch's takes 28; with 20 columns it is 21 and 29. Without it, training the recipe `ptb-rhn-cpu` in
bfloat16 takes 14% longer on an EPYC of Zen 4. To be imported where `has_bf16_dot_products` of
`products.py` says so. Imports Numba, so on use only.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from torch import Tensor
from torch.nn import functional

from seqtool.core.compiled import compiled, element, in_llvm

Pairs: TypeAlias = npt.NDArray[np.uint32]

LANES = 16
ROWS, COLUMNS = 8, 2 * LANES  # of a tile: sums enough to keep the processor's two units busy

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_SUMS, _PAIRS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_I32, LANES)

binding.initialize_native_asmparser()  # reads the instruction below


def _vectors(context: Any, builder: Any, kind: Any, array: Any, index: Any, of: Any) -> list[Any]:
    """Return the addresses of the two vectors of a tile's row, in LLVM."""
    places = index, builder.add(index, _I64(LANES))
    addresses = [element(context, builder, kind, array, place) for place in places]
    return [builder.bitcast(address, of.as_pointer()) for address in addresses]


@in_llvm
def _tile(typing_context, weights, row, pairs, column, width, num_pairs, out, place, stride):  # type: ignore[no-untyped-def]
    """Write a tile of a product, of rows and columns from some on, into `out` from `place` on.

    All arrays are flat: rows of weights are `num_pairs` apart, those of pairs `width`, and those of
    `out` are `stride` apart.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        weights, row, pairs, column, width, num_pairs, out, place, stride = arguments
        kinds = signature.args
        # an intrinsic of LLVM has its types by LLVM's version, the assembler knows none
        form = ir.FunctionType(_SUMS, [_SUMS, _PAIRS, _PAIRS])
        multiply_add = ir.InlineAsm(form, "vdpbf16ps $3, $2, $0", "=v,0,v,v")
        nothing, everywhere = ir.Constant(_PAIRS, ir.Undefined), ir.Constant(_PAIRS, [0] * LANES)
        numbers = [_I64(number) for number in range(ROWS)]
        starts = [builder.mul(builder.add(row, number), num_pairs) for number in numbers]
        zeros = ir.Constant(_SUMS, [0.0] * LANES)
        # variables, of which the compiler makes registers
        sums = [[cgutils.alloca_once(builder, _SUMS) for _ in range(2)] for _ in range(ROWS)]  # type: ignore[no-untyped-call]
        for held in sums:
            for half in held:
                builder.store(zeros, half)
        with cgutils.for_range(builder, num_pairs) as loop:
            begin = builder.add(builder.mul(loop.index, width), column)
            addresses = _vectors(context, builder, kinds[2], pairs, begin, _PAIRS)
            factors = [builder.load(address, align=4) for address in addresses]
            for start, held in zip(starts, sums, strict=True):
                position = builder.add(start, loop.index)
                # one pair of a row in all lanes, times 16 columns at once
                pair = builder.load(element(context, builder, kinds[0], weights, position))
                first = builder.insert_element(nothing, pair, _I32(0))
                spread = builder.shuffle_vector(first, nothing, everywhere)
                for half, factor in zip(held, factors, strict=True):
                    total = builder.call(multiply_add, [builder.load(half), spread, factor])
                    builder.store(total, half)
        for number, held in zip(numbers, sums, strict=True):
            begin = builder.add(place, builder.mul(stride, number))
            addresses = _vectors(context, builder, kinds[6], out, begin, _SUMS)
            for address, half in zip(addresses, held, strict=True):
                builder.store(builder.load(half), address, align=4)
        return context.get_dummy_value()

    integer = types.int64
    given = weights, integer, pairs, integer, integer, integer, out, integer, integer
    return types.void(*given), generate


def pack_pairs(weights_DMK: Tensor) -> Pairs:
    """Return left factors of bfloat16 as `multiply` reads them, [D, M or more, P].

    Rows are padded to whole tiles and columns to whole pairs, with zeros.
    """
    _, rows, inner = weights_DMK.shape
    padding = 0, inner % 2, 0, -rows % ROWS
    padded = functional.pad(weights_DMK, padding) if any(padding) else weights_DMK
    return padded.contiguous().view(torch.uint16).numpy().view(np.uint32)


@compiled(types.void(types.uint32[:, ::1], types.uint16[:, ::1], types.float32[:, ::1]))
def multiply(weights_MP, factors_KB, product_NB):  # type: ignore[no-untyped-def]
    """Write a product, in float32.

    Args:
        weights_MP: the left factor, of `pack_pairs`.
        factors_KB: bits of the right one.
        product_NB: receives the N rows of the product.
    """
    num_pairs, inner, (num_rows, batch) = weights_MP.shape[1], len(factors_KB), product_NB.shape
    width = (batch + COLUMNS - 1) // COLUMNS * COLUMNS  # whole tiles; what is beyond is not read
    pairs_PW = np.empty((num_pairs, width), np.uint32)
    for pair in range(inner // 2):
        low_B, high_B, pair_W = factors_KB[2 * pair], factors_KB[2 * pair + 1], pairs_PW[pair]
        for column in range(batch):  # the earlier row is the lower half, as in the weights
            shifted = np.uint32(np.uint32(high_B[column]) << np.uint32(16))
            pair_W[column] = np.uint32(low_B[column]) | shifted
    for column in range(batch * (inner % 2)):  # an odd last row: its partner is zero
        pairs_PW[num_pairs - 1, column] = factors_KB[inner - 1, column]
    block = np.empty((ROWS, COLUMNS), np.float32)
    weights, pairs = weights_MP.reshape(-1), pairs_PW.reshape(-1)
    product, part = product_NB.reshape(-1), block.reshape(-1)
    # columns outside: the pairs of one block of them stay in the cache for all of the rows
    for column in range(0, batch, COLUMNS):
        for row in range(0, num_rows, ROWS):
            rows, columns = min(ROWS, num_rows - row), min(COLUMNS, batch - column)
            if rows == ROWS and columns == COLUMNS:
                place = row * batch + column
                _tile(weights, row, pairs, column, width, num_pairs, product, place, batch)
                continue
            # at the edges a tile goes beyond the product: it is made apart, and its inside copied
            _tile(weights, row, pairs, column, width, num_pairs, part, 0, COLUMNS)
            for k in range(rows):
                for lane in range(columns):
                    product_NB[row + k, column + lane] = block[k, lane]
