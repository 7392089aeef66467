"""Products of a recurrent loop: the same weights, time after time, by a few columns.

    RecurrentProducts   `weights[d] @ factors`, in float32, float64 or bfloat16
    write_product       one large product, whose factors may be narrower than the result
    project             the product with the inputs of all steps, before a loop begins
    mask_of, masks_of   of dropout, in the layout of the loops
    factor_of           in compiled code: a value as it is stored among factors

Dimensions in names: D depths, M rows, K inner size, B streams, P pairs; T steps, N = T x B, I input
width, G gates, H units, S additions to the memory.

Products of bfloat16 are torch's, but where the processor has the dot-product instruction of AVX-512
BF16 (vdpbf16ps) and no unit for whole matrices (AMX), they are compiled here. It adds to each of 16
sums in float32 the dot product of two pairs of bfloat16. torch's library spends much of a small
product's time on preparing it. Here a tile of the result stays in registers while the pairs of its
rows and columns go by:

    weights [rows, pairs]: a row as it is      pairs [pairs, columns]: two rows, interleaved
    w00 w01 | w02 w03 | ...                    x00 x10 | x01 x11 | ...
    w10 w11 | w12 w13 | ...                    x20 x30 | x21 x31 | ...

A product of 512 x 256 by 256 x 32 takes 17 microseconds on one core of an AMD EPYC (Zen 5), and
torch's takes 28; with 20 columns it is 21 and 29. Without it, training the recipe `ptb-rhn-cpu` in
bfloat16 takes 14% longer on an EPYC of Zen 4. torch's products are given inner sizes that are whole
multiples of 32: one of 1,300 x 650 by 650 x 20 then takes 152 microseconds instead of 198 on a Xeon
with AMX, and with 64 columns 189 instead of 278. Imports Numba, so on use only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

import numba
import numpy as np
import numpy.typing as npt
import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from torch import Tensor
from torch.nn import functional

from seqtool.core.arrays import Reals
from seqtool.core.instructions import element, flat
from seqtool.core.jit import compiled
from seqtool.lm.neural.products import (
    LANES,
    has_bf16_dot_products,
    product,
    small_product,
)

Pairs: TypeAlias = npt.NDArray[np.uint32]

# of a tile: sums enough to keep the processor's two units busy
ROWS, COLUMNS = 8, 2 * LANES
NARROW_ROWS = 16  # of a tile of one vector, for 16 columns or fewer
BLOCK = 32  # inner sizes that torch's products of bfloat16 are fast with are multiples of it

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


def multiply(weights_MP, factors_KB, product_NB):  # type: ignore[no-untyped-def]
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
def compiled_multiply() -> Callable[..., None]:
    """Return `multiply` for compiled code: other processors do not have the instruction."""
    arrays = types.uint32[:, ::1], types.uint16[:, ::1], types.float32[:, ::1]
    made: Callable[..., None] = compiled(types.void(*arrays))(multiply)
    return made


NUMBERS = (types.float32, types.float64)
# types of the states, and of the factors of products
FACTORS = (
    (types.float32, types.float32),
    (types.float32, types.uint16),
    (types.float64, types.float64),
)


def factor_of(value: Any, factors: Any) -> Any:
    """Return a value as it is stored among factors; to bfloat16, ties are rounded to even."""


@overload(factor_of)
def _compile_factor(value, factors):  # type: ignore[no-untyped-def]
    """Return what Numba compiles for `factor_of`, which depends on the type of the factors."""

    def same(value, factors):  # type: ignore[no-untyped-def]
        return value

    def bits(value, factors):  # type: ignore[no-untyped-def]
        pattern = np.float32(value).view(np.uint32)
        # bfloat16 is the upper half of a float32. Just under half of the lower one is added before
        # that is cut off, and one more where the upper is odd: a tie then becomes even
        is_odd = (pattern >> np.uint32(16)) & np.uint32(1)
        rounded = np.uint16((pattern + np.uint32(0x7FFF) + is_odd) >> np.uint32(16))
        # the sum would carry a NaN of large payload over to zero
        return np.uint16(0x7FC0) if np.isnan(value) else rounded

    return bits if factors.dtype == numba.uint16 else same


def numbers_of(tensor: Tensor) -> Reals:
    """Return the array in the same memory; bfloat16 as its bits."""
    bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    array: Reals = bits.numpy()
    return array


class PackedWeights:
    """The left factors of a loop's products, as their library reads them; threads may share them.

    Args:
        weights_DMK: one per depth.

    Attributes:
        like: of no numbers, on the device and of the type of the weights.
        shape: (M, K).
        levels: what each product reads.
        kind: whose products they are: NumPy's or torch's small ones, compiled ones, torch's.
    """

    def __init__(self, weights_DMK: Tensor) -> None:
        _, rows, inner = weights_DMK.shape
        self.like, self.shape = weights_DMK.new_empty(0), (rows, inner)
        self.levels: list[Any]
        self.kind: Literal["small", "pairs", "torch"]
        if weights_DMK.dtype != torch.bfloat16:
            self.kind, self.levels = "small", list(weights_DMK.numpy())
        elif has_bf16_dot_products():
            self.kind, self.levels = "pairs", list(pack_pairs(weights_DMK))
        else:
            padded = functional.pad(weights_DMK, (0, -inner % BLOCK))
            self.kind, self.levels = "torch", list(padded.unbind(0))


class RecurrentProducts:
    """The products of a loop, `weights[d] @ factors`, by the calling thread or torch's.

    Args:
        weights: the left factors.
        batch: columns of the right ones.

    Attributes:
        factors_KB: the right factor, to be written before each product; of bfloat16, the bits.
    """

    def __init__(self, weights: PackedWeights, batch: int) -> None:
        (rows, inner), levels = weights.shape, weights.levels
        is_bf16 = weights.like.dtype == torch.bfloat16
        # zeros: what is beyond the inner size might be NaN, which times a padding's zero is NaN
        whole_KB = weights.like.new_zeros(inner + -inner % BLOCK, batch)
        factors_KB = whole_KB[:inner]
        product_MB = torch.empty(rows, batch, dtype=torch.float32 if is_bf16 else factors_KB.dtype)
        factors, product = numbers_of(factors_KB), product_MB.numpy()
        self._make: Callable[[int], object]
        if weights.kind == "small":
            self._make = lambda level: small_product(levels[level], factors, product)
        elif weights.kind == "pairs":
            multiply_pairs = compiled_multiply()
            self._make = lambda level: multiply_pairs(levels[level], factors, product)
        else:
            # torch rounds the product to its factors' type; what is added to it is not
            rounded_MB = weights.like.new_empty(rows, batch)
            self._make = lambda level: product_MB.copy_(
                torch.mm(levels[level], whole_KB, out=rounded_MB)
            )
        self.factors_KB, self._product_MB = factors, product

    def __call__(self, level: int) -> Reals:
        """Return the product with the weights of a depth, valid until the next one is made."""
        self._make(level)
        return self._product_MB


def write_product(left_MK: Tensor, right_KN: Tensor, out_MN: Tensor, *, adds: bool = False) -> None:
    """Write a product into `out`, whose type may be wider than that of the factors, or add it."""
    if left_MK.dtype == out_MN.dtype and not adds:
        product(left_MK, right_KN, out_MN)
        return
    if left_MK.dtype == out_MN.dtype:
        made_MN = product(left_MK, right_KN, torch.empty_like(out_MN))
    else:
        made_MN = torch.mm(left_MK, right_KN)
    if adds:
        out_MN += made_MN
    else:
        out_MN.copy_(made_MN)


def project(inputs_TBI: Tensor, weight_GI: Tensor, bias_G: Tensor) -> Tensor:
    """Return what the inputs of all steps and the bias add to the pre-activations, (G, T, B).

    The factors of the product are of the weight's type; the result is of the inputs'.
    """
    num_steps, batch, inner = inputs_TBI.shape
    projected_GN = inputs_TBI.new_empty(len(weight_GI), num_steps * batch)
    inputs_NI = inputs_TBI.reshape(-1, inner).to(weight_GI.dtype)
    write_product(weight_GI, inputs_NI.t(), projected_GN)
    projected_GN += bias_G[:, None]
    return projected_GN.view(-1, num_steps, batch)


def mask_of(mask_BH: Tensor | None, shape: tuple[int, int], dtype: torch.dtype) -> Reals:
    """Return the mask (H, B), which is 1 where there is none."""
    mask_HB = torch.ones(shape, dtype=dtype) if mask_BH is None else mask_BH.t().contiguous()
    return numbers_of(mask_HB)


def masks_of(update_SBH: Tensor | None, num: int, dtype: np.dtype[Any]) -> Sequence[Reals]:
    """Return the mask (H, B) of each of S additions to the state, (0, B) where there is none."""
    if update_SBH is None:
        return [np.empty((0, 1), dtype)] * num
    # an expanded mask: variational dropout draws one for the whole window
    if update_SBH.stride(0) == 0:  # the same for all
        return [numbers_of(update_SBH[0].t().contiguous())] * num
    return list(numbers_of(update_SBH.transpose(1, 2).contiguous()))
