"""The time loop of the recurrent highway cell on the CPU, its gradient written by hand.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, D recurrence
depth, G gates (G x H rows), N = T x B.

The tanh and the products of float32 are NumPy's, several times as fast as torch's; products of
bfloat16 are compiled or torch's, and what else is elementwise is compiled
here. The state is stored feature-major, (H, B): products `weight @ state` of so few columns are
faster than `state @ weight`. Imports Numba, so on use only.

Products of bfloat16 are by the dot-product instruction of AVX-512 BF16 (vdpbf16ps), where the
processor has it. It adds to each of 16 sums in float32 the dot product of two pairs of bfloat16.
torch's library spends much of a small product's time on preparing it. Here a tile of the
result stays in registers while the pairs of its rows and columns go by:

    weights [rows, pairs]: a row as it is      pairs [pairs, columns]: two rows, interleaved
    w00 w01 | w02 w03 | ...                    x00 x10 | x01 x11 | ...
    w10 w11 | w12 w13 | ...                    x20 x30 | x21 x31 | ...

A product of 512 x 256 by 256 x 32 takes 17 microseconds on one core of an AMD EPYC (Zen 5), and
torch's takes 28; with 20 columns it is 21 and 29. Without it, training the recipe `ptb-rhn-cpu` in
bfloat16 takes 14% longer on an EPYC of Zen 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt
import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import overload
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.core import types
from seqtool.core.arrays import Reals
from seqtool.core.compiled import compiled, in_llvm
from seqtool.core.instructions import element, flat
from seqtool.lm.neural.products import has_bf16_dot_products, one_blas_thread, product

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
    weights, pairs = flat(weights_MP), flat(pairs_PW)
    product, part = flat(product_NB), flat(block)
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


@cache
def compiled_multiply() -> Callable[..., None]:
    """Return `multiply` for compiled code: other processors do not have the instruction."""
    arrays = types.uint32[:, ::1], types.uint16[:, ::1], types.float32[:, ::1]
    made: Callable[..., None] = compiled(types.void(*arrays))(multiply)
    return made


_int = types.int64
_NUMBERS = (types.float32, types.float64)
# types of the states, and of the factors of products
_FACTORS = (
    (types.float32, types.float32),
    (types.float32, types.uint16),
    (types.float64, types.float64),
)


def _factor(value: Any, factors: Any) -> Any:
    """Return a value as it is stored among factors; to bfloat16, ties are rounded to even."""


@overload(_factor)
def _compile_factor(value, factors):  # type: ignore[no-untyped-def]
    """Return what Numba compiles for `_factor`, which depends on the type of the factors."""

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


@compiled(
    [
        types.void(
            number[:, :, :, ::1], number[:, ::1], _int, _int, factor[:, ::1], factor[:, :, :, ::1]
        )
        for number, factor in _FACTORS
    ]
)
def write_entering(states_DTHB, mask_HB, level, at, factors_HB, entering_DHTB):  # type: ignore[no-untyped-def]
    """Write what enters a micro-step, masked, for its product and for that of the gradient."""
    state_HB = states_DTHB[level, at]
    for unit in range(state_HB.shape[0]):
        for stream in range(state_HB.shape[1]):
            factor = _factor(state_HB[unit, stream] * mask_HB[unit, stream], factors_HB)
            factors_HB[unit, stream] = factor
            # units before steps, so that the gradient of the weights is one product, (H, T x B)
            entering_DHTB[level, unit, at, stream] = factor


@compiled(
    [
        types.void(number[:, ::1], number[:, :, ::1], number[:, ::1], _int, _int)
        for number in _NUMBERS
    ]
)
def add_input_or_bias(product_GB, projected_GTB, bias_DG, level, step):  # type: ignore[no-untyped-def]
    """Add to a product what the input or the bias does, which makes it the pre-activations."""
    for row in range(product_GB.shape[0]):
        if level == 0:  # the input enters here alone, and has the bias of this level in it
            for stream in range(product_GB.shape[1]):
                product_GB[row, stream] += projected_GTB[row, step, stream]
        else:
            bias = bias_DG[level, row]
            for stream in range(product_GB.shape[1]):
                product_GB[row, stream] += bias


@compiled(
    [
        types.void(
            number[:, ::1],
            number[:, :, :, ::1],
            number[:, :, :, ::1],
            number[:, ::1],
            number[:, ::1],
            _int,
            _int,
        )
        for number in _NUMBERS
    ]
)
def write_update(bounded_GB, gates_DTGB, states_DTHB, last_HB, dropped_HB, level, at):  # type: ignore[no-untyped-def]
    """Write the gates, of what came out of the tanh, and the next state; the last one is apart.

    `dropped` multiplies the candidate where it is added to the state; of no rows, it drops nothing.
    """
    depth, _, size, batch = states_DTHB.shape
    # all as vectors: the loops below have one index, and become vector instructions
    bounded = flat(bounded_GB)
    gates, source = flat(gates_DTGB[level, at]), flat(states_DTHB[level, at])
    # what leaves the last micro-step enters the next time step, which may overwrite this one
    target = flat(states_DTHB[level + 1, at] if level + 1 < depth else last_HB)
    length, half = size * batch, bounded_GB.dtype.type(0.5)
    candidate, opened, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    for index in range(length):  # the gradient needs it as it is
        candidate[index] = bounded[index]
    added, dropped = bounded[:length], flat(dropped_HB)
    for index in range(len(dropped)):
        added[index] *= dropped[index]
    sigmoids, halved = gates[length:], bounded[length:]
    for index in range(len(sigmoids)):  # (1 + tanh(x / 2)) / 2, the tanh of the halved is given
        sigmoids[index] = half * halved[index] + half
    if len(carry) == 0:  # coupled: c = 1 - t
        for index in range(length):  # s + (h - s) t, one product less than h t + s (1 - t)
            change = (added[index] - source[index]) * opened[index]
            target[index] = change + source[index]
    else:
        for index in range(length):  # h t + s c
            target[index] = added[index] * opened[index] + source[index] * carry[index]


@compiled(
    [
        types.void(
            number[:, :, :, ::1],
            number[:, :, :, ::1],
            number[:, ::1],
            number[:, ::1],
            _int,
            _int,
            number[:, :, ::1],
            factor[:, ::1],
            factor[:, :, :, ::1],
        )
        for number, factor in _FACTORS
    ]
)
def differentiate_update(  # type: ignore[no-untyped-def]
    gates_DTGB, states_DTHB, running_HB, dropped_HB, level, at, summed_DGB, factors_GB, history_DGTB
):
    """Go back through an update: gradients of the pre-activations, and of what was carried.

    `running` is the gradient of the target, and becomes that of what the source carried to it.
    """
    length = running_HB.size
    gates, source = flat(gates_DTGB[level, at]), flat(states_DTHB[level, at])
    candidate, opened, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    running, summed = flat(running_HB), flat(summed_DGB[level])
    factors, grads = flat(factors_GB), np.empty_like(gates)
    one = running_HB.dtype.type(1)
    first, second, third = grads[:length], grads[length : 2 * length], grads[2 * length :]
    for index in range(length):  # of the candidate: t (1 - h^2)
        slope = (one - candidate[index] * candidate[index]) * opened[index]
        first[index] = slope * running[index]
    added, dropped = candidate, flat(dropped_HB)
    if len(dropped) > 0:  # what is added is h u in place of h
        added = np.empty_like(candidate)
        for index in range(length):
            added[index] = candidate[index] * dropped[index]
            first[index] *= dropped[index]
    # `running` is changed last: all of the gates need it as it came
    if len(carry) == 0:
        for index in range(length):  # of the transform gate: (h - s) t (1 - t)
            closed = one - opened[index]
            slope = (added[index] - source[index]) * opened[index] * closed
            second[index] = slope * running[index]
        for index in range(length):
            running[index] *= one - opened[index]
    else:
        for index in range(length):  # of the transform gate: h t (1 - t)
            slope = opened[index] * (one - opened[index]) * added[index]
            second[index] = slope * running[index]
        for index in range(length):  # of the carry gate: s c (1 - c)
            slope = (one - carry[index]) * carry[index] * source[index]
            third[index] = slope * running[index]
        for index in range(length):
            running[index] *= carry[index]
    for index in range(len(grads)):
        summed[index] += grads[index]  # of the bias, not rounded; the batch is summed at the end
        factors[index] = _factor(grads[index], factors)
    # apart from the loop above: this one writes in strides, and would keep that from vectors
    for row in range(len(factors_GB)):
        for stream in range(factors_GB.shape[1]):
            history_DGTB[level, row, at, stream] = factors_GB[row, stream]


@compiled([types.void(number[:, ::1], number[:, ::1], number[:, ::1]) for number in _NUMBERS])
def add_through_product(product_HB, mask_HB, running_HB):  # type: ignore[no-untyped-def]
    """Add what came through a product, and its mask, to the gradient of the state."""
    product, mask, running = flat(product_HB), flat(mask_HB), flat(running_HB)
    for index in range(len(running)):
        running[index] += product[index] * mask[index]


class FeatureMajorLoop(torch.autograd.Function):
    """The loop on the CPU: state (H, B), gates (G, B).

    One product per micro-step serves all gates, and the gradient of the recurrent weights is one
    product per depth after the loop. One tanh serves all gates too: sigmoid(x) = (1 + tanh(x / 2))
    / 2, and the halves are in the weights and biases that the loop reads.

    With `half`, the factors of all products are rounded to bfloat16; sums and states are not.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Return the outputs (T, B, H); the arguments are those of `_forward`."""
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            return _forward(ctx, *arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs, the state and the weights."""
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            return _backward(ctx, grad_TBH)


def _forward(
    ctx: Any,
    inputs_TBI: Tensor,
    state_BH: Tensor,
    weight_GI: Tensor,
    weight_DHG: Tensor,
    bias_DG: Tensor,
    mask_BH: Tensor | None,
    update_SBH: Tensor | None,
    half: bool,
    needs_grad: bool,
) -> Tensor:
    num_steps, batch, _ = inputs_TBI.shape
    depth, size, width = weight_DHG.shape
    dtype = state_BH.dtype
    factor = torch.bfloat16 if half else dtype
    # without gradients each step overwrites the one before
    kept = num_steps if needs_grad else 1
    gates_DTGB = torch.empty(depth, kept, width, batch, dtype=dtype).numpy()
    # states[d, t] is what enters micro-step d of step t; and the same as factors of products
    states_DTHB = torch.empty(depth, kept, size, batch, dtype=dtype).numpy()
    entering_DHTB = torch.empty(depth, size, kept, batch, dtype=factor)
    outputs_TBH = torch.empty(num_steps, batch, size, dtype=dtype)
    outputs_THB = outputs_TBH.numpy().transpose(0, 2, 1)
    bias_DG = torch.cat([bias_DG[:, :size], bias_DG[:, size:] * 0.5], dim=1)
    projected_GTB = _project(inputs_TBI, weight_GI, bias_DG[0], size, factor).numpy()
    # transposed once for all steps; halved for the gates, as the bias and the projection are
    weights_DGH = torch.empty(depth, width, size, dtype=factor)
    for weights_GH, weight_HG in zip(weights_DGH, weight_DHG.to(factor), strict=True):
        weights_GH.copy_(weight_HG.t())
    weights_DGH[:, size:] *= 0.5
    recurrent = _Recurrent(weights_DGH, batch)
    entering, biases_DG = _numbers(entering_DHTB), bias_DG.numpy()
    mask_HB = _mask(mask_BH, (size, batch), dtype)
    last_HB = state_BH.detach().numpy().T.copy()
    dropped = _dropped(update_SBH, depth * num_steps, last_HB.dtype)
    for step in range(num_steps):
        at = step % kept  # where nothing is kept, always 0
        states_DTHB[0, at] = last_HB
        for level in range(depth):
            write_entering(states_DTHB, mask_HB, level, at, recurrent.factors_KB, entering)
            sums_GB = recurrent(level)
            add_input_or_bias(sums_GB, projected_GTB, biases_DG, level, step)
            np.tanh(sums_GB, out=sums_GB)
            dropped_HB = dropped[step * depth + level]
            write_update(sums_GB, gates_DTGB, states_DTHB, last_HB, dropped_HB, level, at)
        outputs_THB[step] = last_HB
    if needs_grad:
        ctx.save_for_backward(inputs_TBI, weight_GI, weight_DHG)
        ctx.loop = gates_DTGB, states_DTHB, entering_DHTB, mask_HB, dropped
    return outputs_TBH


def _backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
    inputs_TBI, weight_GI, weight_DHG = ctx.saved_tensors
    gates_DTGB, states_DTHB, entering_DHTB, mask_HB, dropped = ctx.loop
    depth, num_steps, width, batch = gates_DTGB.shape
    dtype, factor = weight_DHG.dtype, entering_DHTB.dtype
    outer_THB = grad_TBH.transpose(1, 2).contiguous().numpy()
    recurrent = _Recurrent(weight_DHG.to(factor), batch)
    # gradients of the pre-activations: summed over the steps, and of all steps, as factors
    summed_DGB = np.zeros((depth, width, batch), gates_DTGB.dtype)
    history_DGTB = torch.empty(depth, width, num_steps, batch, dtype=factor)
    history = _numbers(history_DGTB)
    running_HB = np.zeros_like(states_DTHB[0, 0])
    for t in range(num_steps - 1, -1, -1):
        running_HB += outer_THB[t]  # what the layers above ask of this step's output
        for level in range(depth - 1, -1, -1):
            differentiate_update(
                *(gates_DTGB, states_DTHB, running_HB, dropped[t * depth + level], level, t),
                *(summed_DGB, recurrent.factors_KB, history),
            )
            add_through_product(recurrent(level), mask_HB, running_HB)
    # the sums over all steps and streams, which are the columns of the factors
    grad_weight_DHG = torch.empty(weight_DHG.shape, dtype=dtype)
    for entering_HTB, grads_GTB, grad_HG in zip(
        entering_DHTB, history_DGTB, grad_weight_DHG, strict=True
    ):
        _write_product(entering_HTB.flatten(1), grads_GTB.flatten(1).t(), grad_HG)
    first_GN, inputs_NI = history_DGTB[0].flatten(1), inputs_TBI.flatten(0, 1)
    grad_input_GI, grad_inputs_NI = torch.empty_like(weight_GI), torch.empty_like(inputs_NI)
    _write_product(first_GN, inputs_NI.to(factor), grad_input_GI)
    _write_product(first_GN.t(), weight_GI.to(factor), grad_inputs_NI)
    return (
        grad_inputs_NI.view(inputs_TBI.shape),
        torch.from_numpy(running_HB.T.copy()),
        grad_input_GI,
        grad_weight_DHG,
        torch.from_numpy(summed_DGB.sum(axis=2)),
        *[None] * 4,
    )


def _numbers(tensor: Tensor) -> Reals:
    """Return the array in the same memory; bfloat16 as its bits."""
    bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    array: Reals = bits.numpy()
    return array


def _mask(mask_BH: Tensor | None, shape: tuple[int, int], dtype: torch.dtype) -> Reals:
    """Return the mask (H, B), which is 1 where there is none."""
    mask_HB = torch.ones(shape, dtype=dtype) if mask_BH is None else mask_BH.t().contiguous()
    return _numbers(mask_HB)


def _dropped(update_SBH: Tensor | None, num: int, dtype: np.dtype[Any]) -> Sequence[Reals]:
    """Return the mask (H, B) of each of S additions to the state, (0, B) where there is none."""
    if update_SBH is None:
        return [np.empty((0, 1), dtype)] * num
    if update_SBH.stride(0) == 0:  # the same for all
        return [_numbers(update_SBH[0].t().contiguous())] * num
    return list(_numbers(update_SBH.transpose(1, 2).contiguous()))


class _Recurrent:
    """The products of the loop, `weights[d] @ factors`.

    Args:
        weights_DMK: the left factors, one per depth.
        batch: columns of the right ones.

    Attributes:
        factors_KB: the right factor, to be written before each product; of bfloat16, the bits.
    """

    def __init__(self, weights_DMK: Tensor, batch: int) -> None:
        _, rows, inner = weights_DMK.shape
        is_half = weights_DMK.dtype == torch.bfloat16
        factors_KB = weights_DMK.new_empty(inner, batch)
        product_MB = torch.empty(rows, batch, dtype=torch.float32 if is_half else factors_KB.dtype)
        factors, product = _numbers(factors_KB), product_MB.numpy()
        self._make: Callable[[int], object]
        if not is_half:
            arrays = list(weights_DMK.numpy())
            self._make = lambda level: np.matmul(arrays[level], factors, out=product)
        elif has_bf16_dot_products():
            parts, multiply_pairs = list(pack_pairs(weights_DMK)), compiled_multiply()
            self._make = lambda level: multiply_pairs(parts[level], factors, product)
        else:
            weights, rounded_MB = weights_DMK.unbind(0), weights_DMK.new_empty(rows, batch)
            self._make = lambda level: product_MB.copy_(
                torch.mm(weights[level], factors_KB, out=rounded_MB)
            )
        self.factors_KB, self._product_MB = factors, product

    def __call__(self, level: int) -> Reals:
        """Return the product with the weights of a depth, valid until the next one is made."""
        self._make(level)
        return self._product_MB


def _write_product(left_MK: Tensor, right_KN: Tensor, out_MN: Tensor) -> None:
    """Write a product into `out`, whose type may be wider than that of the factors."""
    if left_MK.dtype == out_MN.dtype:
        product(left_MK, right_KN, out_MN)
    else:
        out_MN.copy_(torch.mm(left_MK, right_KN))


def _project(
    inputs_TBI: Tensor, weight_GI: Tensor, bias_G: Tensor, size: int, factor: torch.dtype
) -> Tensor:
    """Return what the inputs and the bias add to the first micro-step of all steps, (G, T, B)."""
    num_steps, batch, inner = inputs_TBI.shape
    weights_GI = weight_GI.to(factor, copy=True)
    weights_GI[size:] *= 0.5
    projected_GN = inputs_TBI.new_empty(len(weight_GI), num_steps * batch)
    inputs_NI = inputs_TBI.reshape(-1, inner).to(factor)
    _write_product(weights_GI, inputs_NI.t(), projected_GN)
    projected_GN += bias_G[:, None]
    return projected_GN.view(-1, num_steps, batch)
