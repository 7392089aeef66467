"""The two loops of the recurrent highway cell over a window; its equations are in `cells`.

    BatchMajorLoop     torch's operations, on any device
    FeatureMajorLoop   NumPy and compiled code, on a CPU

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, D recurrence
depth, E = D - 1, X gates with the candidate, G = X x H rows of the candidate, the transform gate
and, where it is not coupled, the carry gate; S = T x D updates, N = T x B.

The factors of products are float32, float64, or the bits of bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.core.arrays import Reals
from seqtool.core.instructions import flat
from seqtool.core.jit import compiled
from seqtool.core.runtime import one_blas_thread
from seqtool.lm.neural import bf16_product
from seqtool.lm.neural.bf16_product import pack_pairs
from seqtool.lm.neural.products import (
    factor_type,
    in_threads,
    numpy_is_fast,
    parts_of,
    product,
    small_product,
)

Mask = Tensor | None  # None drops nothing

# below this many steps, laying out the weights costs more than the faster loop saves
FEWEST_STEPS = 4
BLOCK = 32  # torch's products of bfloat16 are fastest with inner sizes that are multiples of it


def loop_for(inputs_TBI: Tensor, update_SBH: Mask) -> Callable[..., Tensor] | None:
    """Return the fastest loop for these inputs; None where there are plain steps alone.

    It takes the inputs, the state (B, H), the weights of the input (G, I) and of the state
    (D, H, G), the biases (D, G), the mask of the state and that of the updates, and returns the
    outputs (T, B, H).
    """
    if inputs_TBI.device.type == "cpu" and numpy_is_fast() and len(inputs_TBI) >= FEWEST_STEPS:
        return _run_feature_major
    return _run_batch_major if update_SBH is None else None


def _run_feature_major(inputs_TBI: Tensor, state_BH: Tensor, *others: Any) -> Tensor:
    modes = factor_type(state_BH), torch.is_grad_enabled()
    outputs_TBH: Tensor = FeatureMajorLoop.apply(  # type: ignore[no-untyped-call]
        inputs_TBI.to(state_BH.dtype), state_BH, *others, *modes
    )
    return outputs_TBH


def _run_batch_major(
    inputs_TBI: Tensor,
    state_BH: Tensor,
    weight_GI: Tensor,
    weight_DHG: Tensor,
    bias_DG: Tensor,
    mask_BH: Mask,
    update_SBH: None,
) -> Tensor:
    # the product with the inputs of all steps at once, out of the time loop
    projected_TBG = functional.linear(inputs_TBI, weight_GI, bias_DG[0]).to(state_BH.dtype)
    outputs_TBH: Tensor = BatchMajorLoop.apply(  # type: ignore[no-untyped-call]
        projected_TBG, state_BH, weight_DHG, bias_DG[1:], mask_BH
    )
    return outputs_TBH


class BatchMajorLoop(torch.autograd.Function):
    """The loop on any device: state (B, H), gates (B, G), the inputs' products made before.

    Its gradient is written by hand. Beside that of plain steps it is 1.5 to 1.7 times as fast where
    operations are too small to fill the processor, as on a GPU (one CPU core: depth 10, 35 steps,
    8 and 64 units).
    """

    @staticmethod
    def forward(ctx: Any, projected_TBG: Tensor, *others: Any) -> Tensor:
        """Return the outputs (T, B, H); the arguments are those of `_batch_forward`."""
        with torch.autocast(projected_TBG.device.type, enabled=False):
            return _batch_forward(ctx, projected_TBG, *others)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs but the mask."""
        with torch.autocast(grad_TBH.device.type, enabled=False):
            return _batch_backward(ctx, grad_TBH)


def _batch_forward(
    ctx: Any,
    projected_TBG: Tensor,
    state_BH: Tensor,
    weight_DHG: Tensor,
    bias_EG: Tensor,
    mask_BH: Mask,
) -> Tensor:
    """Return the outputs, and save what the gradient needs; the first bias is in `projected`."""
    num_steps, batch, width = projected_TBG.shape
    depth, size, _ = weight_DHG.shape
    gates_DTBG = projected_TBG.new_empty(depth, num_steps, batch, width)
    # states[d, t]: what enters micro-step d of step t; states[0, T]: the state after the window
    states_DTBH = projected_TBG.new_empty(depth, num_steps + 1, batch, size)
    states_DTBH[0, 0] = state_BH
    # views are made once: indexing inside the loop costs as much as the small products
    gates = [list(part.unbind(0)) for part in gates_DTBG.unbind(0)]
    states = [list(part.unbind(0)) for part in states_DTBH.unbind(0)]
    weights = weight_DHG.unbind(0)
    addends = [projected_TBG.unbind(0), *([bias_G] * num_steps for bias_G in bias_EG.unbind(0))]
    for t in range(num_steps):
        for d in range(depth):
            source = states[d][t]
            entering = source if mask_BH is None else source * mask_BH
            gates_BG = torch.addmm(addends[d][t], entering, weights[d], out=gates[d][t])
            candidate_BH = gates_BG[:, :size].tanh_()
            squashed = gates_BG[:, size:].sigmoid_()
            target = states[d + 1][t] if d + 1 < depth else states[0][t + 1]
            if width == 2 * size:
                torch.lerp(source, candidate_BH, squashed, out=target)
            else:
                torch.mul(source, squashed[:, size:], out=target)
                target.addcmul_(candidate_BH, squashed[:, :size])
    ctx.save_for_backward(gates_DTBG, states_DTBH, weight_DHG, mask_BH)
    return states_DTBH[0, 1:].clone()


def _batch_backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of the arguments of `_batch_forward`, none of the mask."""
    gates_DTBG, states_DTBH, weight_DHG, mask_BH = ctx.saved_tensors
    depth, num_steps, batch, width = gates_DTBG.shape
    size = states_DTBH.shape[-1]
    entering_DTBH = states_DTBH[:, :-1]
    grads_DTBG = torch.empty_like(gates_DTBG)  # gradients of the pre-activations
    shape = (depth, num_steps, batch, width // size, size)
    gates_views = gates_DTBG.view(shape).unbind(1)
    grads_views = grads_DTBG.view(shape).unbind(1)
    flat_views = [part.unbind(0) for part in grads_DTBG.unbind(1)]
    # a product with a transposed view can be several times slower than with a copy of it
    weight_DGH = weight_DHG.transpose(1, 2).contiguous().unbind(0)
    running_BH = torch.zeros_like(states_DTBH[0, 0])
    running_B1H = running_BH[:, None]
    for t in range(num_steps - 1, -1, -1):
        # what is elementwise is done for all micro-steps at once, and small enough to stay near
        carry_DBH = _batch_slopes(gates_views[t], entering_DTBH[:, t], grads_views[t])
        running_BH += grad_TBH[t]
        for grads_B2H, grads_BG, weight_GH, carry_BH in reversed(
            list(zip(grads_views[t], flat_views[t], weight_DGH, carry_DBH, strict=True))
        ):
            grads_B2H *= running_B1H
            running_BH *= carry_BH
            if mask_BH is None:
                running_BH.addmm_(grads_BG, weight_GH)
            else:
                running_BH.addcmul_(grads_BG @ weight_GH, mask_BH)
    grads_DNG = grads_DTBG.view(depth, num_steps * batch, width)
    masked = entering_DTBH if mask_BH is None else entering_DTBH * mask_BH
    grad_weight_DHG = masked.reshape(depth, -1, size).transpose(1, 2) @ grads_DNG
    return grads_DTBG[0], running_BH, grad_weight_DHG, grads_DNG[1:].sum(dim=1), None


def _batch_slopes(gates_DBXH: Tensor, entering_DBH: Tensor, slopes_DBXH: Tensor) -> Tensor:
    """Write d target / d pre-activation of each of the X gates; return the carry gates."""
    candidate_DBH, transform_DBH, *carries = gates_DBXH.unbind(2)
    torch.addcmul(
        transform_DBH,
        transform_DBH * candidate_DBH,
        candidate_DBH,
        value=-1,
        out=slopes_DBXH[:, :, 0],
    )  # t (1 - h^2)
    closed_DBH = 1 - transform_DBH
    opened_DBH = transform_DBH * closed_DBH
    if not carries:
        torch.mul(opened_DBH, candidate_DBH - entering_DBH, out=slopes_DBXH[:, :, 1])
        return closed_DBH
    carry_DBH = carries[0]
    torch.mul(opened_DBH, candidate_DBH, out=slopes_DBXH[:, :, 1])
    torch.mul(carry_DBH * (1 - carry_DBH), entering_DBH, out=slopes_DBXH[:, :, 2])
    return carry_DBH


# types of the states, and of the factors of products
FACTORS = (
    (types.float32, types.float32),
    (types.float32, types.uint16),
    (types.float64, types.float64),
)


def _signatures(*arguments: str) -> list[Any]:
    """Return the signatures of a kernel for all `FACTORS`.

    An argument is `level`, an integer; or `n` for numbers or `f` for factors, and its dimensions.
    """
    kinds = []
    for number, factor in FACTORS:
        by_name = {"n2": number[:, ::1], "n3": number[:, :, ::1], "n4": number[:, :, :, ::1]}
        by_name |= {"f2": factor[:, ::1], "f4": factor[:, :, :, ::1], "level": types.int64}
        signature = types.void(*(by_name[name] for name in arguments))
        kinds += [] if signature in kinds else [signature]
    return kinds


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


def number_of(factor: Any) -> Any:
    """Return the number that a factor, or a product of factors, stands for."""


@overload(number_of)
def _compile_number(factor):  # type: ignore[no-untyped-def]
    """Return what Numba compiles for `number_of`."""

    def same(factor):  # type: ignore[no-untyped-def]
        return factor

    def of_bits(factor):  # type: ignore[no-untyped-def]
        return np.uint32(np.uint32(factor) << np.uint32(16)).view(np.float32)

    return of_bits if factor == types.uint16 else same


@compiled(_signatures("n4", "n2", "level", "level", "f2", "f4"))
def write_entering(states_DTHB, mask_HB, level, at, factors_HB, entering_DHTB):  # type: ignore[no-untyped-def]
    """Write what enters a micro-step, masked, for its product and for that of the gradient."""
    state_HB = states_DTHB[level, at]
    for unit in range(state_HB.shape[0]):
        for stream in range(state_HB.shape[1]):
            factor = factor_of(state_HB[unit, stream] * mask_HB[unit, stream], factors_HB)
            factors_HB[unit, stream] = factor
            # units before steps, so that the gradient of the weights is one product, (H, T x B)
            entering_DHTB[level, unit, at, stream] = factor


@compiled(_signatures("f2", "n3", "n2", "level", "level", "n2"))
def add_input_or_bias(product_GB, projected_GTB, bias_DG, level, step, sums_GB):  # type: ignore[no-untyped-def]
    """Write pre-activations: a product and what the input, or the bias, adds to it."""
    for row in range(product_GB.shape[0]):
        if level == 0:  # the input enters here alone, and has the bias of this level in it
            for stream in range(product_GB.shape[1]):
                sum_of_products = number_of(product_GB[row, stream])
                sums_GB[row, stream] = sum_of_products + projected_GTB[row, step, stream]
        else:
            bias = bias_DG[level, row]
            for stream in range(product_GB.shape[1]):
                sums_GB[row, stream] = number_of(product_GB[row, stream]) + bias


@compiled(_signatures("n2", "n4", "n4", "n2", "n2", "level", "level"))
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
    candidate, transform, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    for index in range(length):  # the gradient needs it as it is
        candidate[index] = bounded[index]
    # overwrites what the tanh gave; `gates` keeps the candidate without its mask
    added, dropped = bounded[:length], flat(dropped_HB)
    for index in range(len(dropped)):
        added[index] *= dropped[index]
    sigmoids, halved = gates[length:], bounded[length:]
    for index in range(len(sigmoids)):  # (1 + tanh(x / 2)) / 2, the tanh of the halved is given
        sigmoids[index] = half * halved[index] + half
    if len(carry) == 0:  # coupled: c = 1 - t
        for index in range(length):  # s + (h - s) t, one product less than h t + s (1 - t)
            change = (added[index] - source[index]) * transform[index]
            target[index] = change + source[index]
    else:
        for index in range(length):  # h t + s c
            target[index] = added[index] * transform[index] + source[index] * carry[index]


@compiled(_signatures("n4", "n4", "n2", "n2", "level", "level", "n3", "f2", "f4"))
def differentiate_update(  # type: ignore[no-untyped-def]
    gates_DTGB, states_DTHB, running_HB, dropped_HB, level, at, summed_DGB, factors_GB, history_DGTB
):
    """Go back through an update: gradients of the pre-activations, and of what was carried.

    `running` is the gradient of the target, and becomes that of what the source carried to it.
    """
    length = running_HB.size
    gates, source = flat(gates_DTGB[level, at]), flat(states_DTHB[level, at])
    candidate, transform, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    running, summed = flat(running_HB), flat(summed_DGB[level])
    factors, grads = flat(factors_GB), np.empty_like(gates)
    one = running_HB.dtype.type(1)
    first, second, third = grads[:length], grads[length : 2 * length], grads[2 * length :]
    for index in range(length):  # of the candidate: t (1 - h^2)
        slope = (one - candidate[index] * candidate[index]) * transform[index]
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
            closed = one - transform[index]
            slope = (added[index] - source[index]) * transform[index] * closed
            second[index] = slope * running[index]
        for index in range(length):
            running[index] *= one - transform[index]
    else:
        for index in range(length):  # of the transform gate: h t (1 - t)
            slope = transform[index] * (one - transform[index]) * added[index]
            second[index] = slope * running[index]
        for index in range(length):  # of the carry gate: s c (1 - c)
            slope = (one - carry[index]) * carry[index] * source[index]
            third[index] = slope * running[index]
        for index in range(length):
            running[index] *= carry[index]
    for index in range(len(grads)):
        summed[index] += grads[index]  # of the bias, not rounded; the batch is summed at the end
        factors[index] = factor_of(grads[index], factors)
    # apart from the loop above: this one writes in strides, and would keep that from vectors
    for row in range(len(factors_GB)):
        for stream in range(factors_GB.shape[1]):
            history_DGTB[level, row, at, stream] = factors_GB[row, stream]


@compiled(_signatures("f2", "n2", "n2"))
def add_through_product(product_HB, mask_HB, running_HB):  # type: ignore[no-untyped-def]
    """Add what came through a product, and its mask, to the gradient of the state."""
    product, mask, running = flat(product_HB), flat(mask_HB), flat(running_HB)
    for index in range(len(running)):
        running[index] += number_of(product[index]) * mask[index]


class FeatureMajorLoop(torch.autograd.Function):
    """The loop on the CPU: state (H, B), gates (G, B), of which few columns are fast products.

    One product per micro-step serves all gates, and the gradient of the recurrent weights is one
    product per depth after the loop. One tanh, NumPy's, serves all gates too: sigmoid(x) =
    (1 + tanh(x / 2)) / 2, and the halves are in the weights and biases that the loop reads. Threads
    divide the streams: each takes a part of them through the loop (`products`).

    With factors of bfloat16, they and the products are rounded; what is added to them, and states,
    are not. On one core of an EPYC (AVX-512, bf16) that makes a whole training step of 400 units
    and 20 streams 1.2 times as fast as in float32, of 640 units and 64 streams 1.5 times.
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


def numbers_of(tensor: Tensor) -> Reals:
    """Return the array in the same memory; bfloat16 as its bits."""
    bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    array: Reals = bits.numpy()
    return array


class RecurrentProducts:
    """The products of a loop, `weights[d] @ factors`: the same weights, by a few columns each time.

    Args:
        weights_DMK: the left factors, one per depth.
        batch: columns of the right ones.

    Attributes:
        factors_KB: the right factor, to be written before each product; of bfloat16, the bits.
        product_MB: the product made last: of bfloat16, by torch the bits, else float32.
    """

    def __init__(self, weights_DMK: Tensor, batch: int) -> None:
        _, rows, inner = weights_DMK.shape
        self._is_bf16 = weights_DMK.dtype == torch.bfloat16
        self._pairs = pack_pairs(weights_DMK) if self._is_bf16 and bf16_product.is_fast() else None
        padding = -inner % BLOCK if self._is_bf16 else 0
        # zeros: what is beyond the inner size might be NaN, which times a padding's zero is NaN
        self._factors = weights_DMK.new_zeros(inner + padding, batch)
        dtype = weights_DMK.dtype if self._pairs is None else torch.float32
        self._product = torch.empty(rows, batch, dtype=dtype)
        self._weights = functional.pad(weights_DMK, (0, padding)) if padding else weights_DMK
        self.factors_KB = numbers_of(self._factors[:inner])
        self.product_MB = numbers_of(self._product)

    def make(self, level: int) -> Reals:
        """Return the product with the weights of a depth, valid until the next one is made."""
        if self._pairs is not None:
            bf16_product.multiply()(self._pairs[level], self.factors_KB, self.product_MB)
        elif self._is_bf16:
            torch.mm(self._weights[level], self._factors, out=self._product)
        else:
            small_product(self._weights[level].numpy(), self.factors_KB, self.product_MB)
        return self.product_MB


def _product(left_MK: Tensor, right_KN: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a product in this type, which may be wider than that of the factors."""
    made_MN = product(left_MK, right_KN, left_MK.new_empty(len(left_MK), right_KN.shape[1]))
    return made_MN.to(dtype)


def _project(inputs_TBI: Tensor, weight_GI: Tensor, bias_G: Tensor) -> Tensor:
    """Return what the inputs of all steps and the bias add to the pre-activations, (G, T, B)."""
    inputs_NI = inputs_TBI.flatten(0, 1)
    projected_GN = _product(weight_GI, inputs_NI.to(weight_GI.dtype).t(), inputs_TBI.dtype)
    projected_GN += bias_G[:, None]
    return projected_GN.view(-1, *inputs_TBI.shape[:2])


def _masks_of(update_SBH: Tensor | None, num: int, dtype: torch.dtype) -> Sequence[Reals]:
    """Return the mask (H, B) of each of S additions to the state, (0, 1) where there is none."""
    if update_SBH is None:
        return [numbers_of(torch.empty(0, 1, dtype=dtype))] * num
    if update_SBH.stride(0) == 0:  # expanded: variational dropout draws one for the whole window
        return [numbers_of(update_SBH[0].t().contiguous())] * num
    return list(numbers_of(update_SBH.transpose(1, 2).contiguous()))


class _Part:
    """Some of the streams, and what the loop writes of them, which its gradient reads again.

    Args:
        streams: which.
        num_kept: steps whose values are kept: T, or 1 where no gradient is asked for.
        sizes: (D, G, H).
        state_BH: of all streams, before the window.
        masks: of the state (B, H) and of what is added to it (S, B, H), of all streams.
        num_updates: S.
        factor: the type of factors of products.

    Attributes:
        gates_DTGB: what the tanh gave of the candidate, and the gates.
        states_DTHB: [d, t] is what enters micro-step d of step t.
        entering_DHTB: the same as factors of products.
        last_HB: the state, before a step and after it.
        mask_HB, dropped: the masks.
    """

    def __init__(
        self,
        streams: slice,
        num_kept: int,
        sizes: tuple[int, int, int],
        state_BH: Tensor,
        masks: tuple[Tensor | None, Tensor | None],
        num_updates: int,
        factor: torch.dtype,
    ) -> None:
        (depth, width, size), dtype = sizes, state_BH.dtype
        self.streams, batch = streams, streams.stop - streams.start
        self.gates_DTGB = torch.empty(depth, num_kept, width, batch, dtype=dtype).numpy()
        self.states_DTHB = torch.empty(depth, num_kept, size, batch, dtype=dtype).numpy()
        self.entering_DHTB = torch.empty(depth, size, num_kept, batch, dtype=factor)
        self.last_HB = state_BH[streams].detach().numpy().T.copy()
        mask_BH, update_SBH = masks
        mask_BH = state_BH.new_ones(state_BH.shape) if mask_BH is None else mask_BH
        self.mask_HB = numbers_of(mask_BH[streams].t().contiguous())
        update_SBH = None if update_SBH is None else update_SBH[:, streams]
        self.dropped = _masks_of(update_SBH, num_updates, dtype)


def _forward(
    ctx: Any,
    inputs_TBI: Tensor,
    state_BH: Tensor,
    weight_GI: Tensor,
    weight_DHG: Tensor,
    bias_DG: Tensor,
    mask_BH: Tensor | None,
    update_SBH: Tensor | None,
    factor: torch.dtype,
    needs_grad: bool,
) -> Tensor:
    """Run over a window; return the state after each step, (T, B, H).

    Args:
        ctx: of the function.
        inputs_TBI: the inputs.
        state_BH: the state before the window.
        weight_GI: of the gates, for the input, which enters the first micro-step alone.
        weight_DHG: for the state, one for each depth.
        bias_DG: theirs.
        mask_BH: multiplies the state where it enters a product.
        update_SBH: multiplies the candidate where it is added to the state.
        factor: the type of the factors of products.
        needs_grad: whether gradients are made.
    """
    num_steps, batch, _ = inputs_TBI.shape
    depth, size, width = weight_DHG.shape
    dtype = state_BH.dtype
    # without gradients each step overwrites the one before
    num_kept = num_steps if needs_grad else 1
    outputs_TBH = torch.empty(num_steps, batch, size, dtype=dtype)
    outputs_THB = outputs_TBH.numpy().transpose(0, 2, 1)
    bias_DG = torch.cat([bias_DG[:, :size], bias_DG[:, size:] * 0.5], dim=1)
    # a copy in any case, as it is changed in place; halving is exact in binary numbers
    halved_GI = weight_GI.to(factor, copy=True)
    halved_GI[size:] *= 0.5
    # transposed once for all steps; halved for the gates, as the bias and the projection are
    weights_DGH = torch.empty(depth, width, size, dtype=factor)
    for weights_GH, weight_HG in zip(weights_DGH, weight_DHG.to(factor), strict=True):
        weights_GH.copy_(weight_HG.t())
    weights_DGH[:, size:] *= 0.5
    biases_DG = bias_DG.numpy()

    def run(part: _Part, projected_GTB: Reals) -> None:
        recurrent = RecurrentProducts(weights_DGH, part.last_HB.shape[1])
        entering, last_HB = numbers_of(part.entering_DHTB), part.last_HB
        sums_GB = np.empty((width, last_HB.shape[1]), last_HB.dtype)
        for step in range(num_steps):
            at = step % num_kept  # where nothing is kept, always 0
            part.states_DTHB[0, at] = last_HB
            for level in range(depth):
                write_entering(
                    part.states_DTHB, part.mask_HB, level, at, recurrent.factors_KB, entering
                )
                product_GB = recurrent.make(level)
                add_input_or_bias(product_GB, projected_GTB, biases_DG, level, step, sums_GB)
                np.tanh(sums_GB, out=sums_GB)
                dropped_HB = part.dropped[step * depth + level]
                write_update(
                    sums_GB, part.gates_DTGB, part.states_DTHB, last_HB, dropped_HB, level, at
                )
            outputs_THB[step, :, part.streams] = last_HB

    sizes, masks = (depth, width, size), (mask_BH, update_SBH)
    parts = [
        _Part(streams, num_kept, sizes, state_BH, masks, depth * num_steps, factor)
        for streams in parts_of(batch, size * width, bf16=factor == torch.bfloat16)
    ]
    projected = [
        _project(inputs_TBI[:, part.streams], halved_GI, bias_DG[0]).numpy() for part in parts
    ]
    in_threads(run, parts, projected)
    if needs_grad:
        ctx.save_for_backward(inputs_TBI, weight_GI, weight_DHG)
        ctx.parts = parts
    return outputs_TBH


def _backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
    """Go back through the window; return the gradients of the arguments of `_forward`."""
    inputs_TBI, weight_GI, weight_DHG = ctx.saved_tensors
    parts: list[_Part] = ctx.parts
    depth, num_steps, width, _ = parts[0].gates_DTGB.shape
    dtype, factor = weight_DHG.dtype, parts[0].entering_DHTB.dtype
    # as they are stored, (H, G), which is the transpose that the gradient needs; without halves
    weights_DHG, grads_TBH = weight_DHG.to(factor), grad_TBH.numpy()

    def run(part: _Part) -> tuple[Reals, Reals, Tensor]:
        """Return gradients: of the state, and of pre-activations, summed and of each step."""
        running_HB, mask_HB, dropped = np.zeros_like(part.last_HB), part.mask_HB, part.dropped
        # by NumPy: torch would start threads of its own in this one
        outer_THB = np.ascontiguousarray(grads_TBH[:, part.streams].transpose(0, 2, 1))
        recurrent = RecurrentProducts(weights_DHG, running_HB.shape[1])
        summed_DGB = np.zeros_like(part.gates_DTGB[:, 0])
        history_DGTB = torch.empty(depth, width, *outer_THB.shape[::2], dtype=factor)
        history = numbers_of(history_DGTB)
        for t in range(num_steps - 1, -1, -1):
            running_HB += outer_THB[t]  # what the layers above ask of this step's output
            for level in range(depth - 1, -1, -1):
                differentiate_update(
                    part.gates_DTGB,
                    part.states_DTHB,
                    running_HB,
                    dropped[t * depth + level],
                    level,
                    t,
                    summed_DGB,
                    recurrent.factors_KB,
                    history,
                )
                add_through_product(recurrent.make(level), mask_HB, running_HB)
        return running_HB, summed_DGB, history_DGTB

    found = in_threads(run, parts)
    grads_inputs_TBI, grad_weight_GI = [], torch.zeros_like(weight_GI)
    grad_weight_DHG = torch.zeros_like(weight_DHG)
    for part, (_, _, history_DGTB) in zip(parts, found, strict=True):
        # the sums over all steps and streams, which are the columns of the factors
        for entering_HTB, grads_GTB, grad_HG in zip(
            part.entering_DHTB, history_DGTB, grad_weight_DHG, strict=True
        ):
            grad_HG += _product(entering_HTB.flatten(1), grads_GTB.flatten(1).t(), dtype)
        inputs_NI, first_GN = inputs_TBI[:, part.streams].flatten(0, 1), history_DGTB[0].flatten(1)
        grad_weight_GI += _product(first_GN, inputs_NI.to(factor), dtype)
        grad_inputs_NI = _product(first_GN.t(), weight_GI.to(factor), dtype)
        grads_inputs_TBI.append(grad_inputs_NI.view(num_steps, -1, inputs_NI.shape[1]))
    return (
        torch.cat(grads_inputs_TBI, dim=1),
        torch.cat([torch.from_numpy(running_HB.T) for running_HB, _, _ in found]),
        grad_weight_GI,
        grad_weight_DHG,
        torch.from_numpy(sum(summed_DGB.sum(axis=2) for _, summed_DGB, _ in found)).to(dtype),
        *[None] * 4,  # of the masks, `factor` and `needs_grad`
    )
