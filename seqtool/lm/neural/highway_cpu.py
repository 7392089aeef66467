"""The time loop of the recurrent highway cell on the CPU, its gradient written by hand.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, D recurrence
depth, G rows of the candidate, the transform gate and, where it is not coupled, the carry gate, H
each; S = T x D updates, N = T x B.

The tanh is NumPy's, several times as fast as torch's; products are those of `recurrent_products`,
and what else is elementwise is compiled here. The state is stored feature-major, (H, B): products
`weight @ state` of so few columns are faster than `state @ weight`. Imports Numba, so on use only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqtool.core.arrays import Reals
from seqtool.core.instructions import flat
from seqtool.core.jit import compiled
from seqtool.core.runtime import one_blas_thread
from seqtool.lm.neural.products import in_threads, joined, parts_of
from seqtool.lm.neural.recurrent_products import (
    FACTORS,
    NUMBERS,
    PackedWeights,
    RecurrentProducts,
    factor_of,
    mask_of,
    masks_of,
    numbers_of,
    project,
    write_product,
)

_int = types.int64


@compiled(
    [
        types.void(
            number[:, :, :, ::1], number[:, ::1], _int, _int, factor[:, ::1], factor[:, :, :, ::1]
        )
        for number, factor in FACTORS
    ]
)
def write_entering(states_DTHB, mask_HB, level, at, factors_HB, entering_DHTB):  # type: ignore[no-untyped-def]
    """Write what enters a micro-step, masked, for its product and for that of the gradient."""
    state_HB = states_DTHB[level, at]
    for unit in range(state_HB.shape[0]):
        for stream in range(state_HB.shape[1]):
            factor = factor_of(state_HB[unit, stream] * mask_HB[unit, stream], factors_HB)
            factors_HB[unit, stream] = factor
            # units before steps, so that the gradient of the weights is one product, (H, T x B)
            entering_DHTB[level, unit, at, stream] = factor


@compiled(
    [
        types.void(number[:, ::1], number[:, :, ::1], number[:, ::1], _int, _int)
        for number in NUMBERS
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
        for number in NUMBERS
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
        for number, factor in FACTORS
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


@compiled([types.void(number[:, ::1], number[:, ::1], number[:, ::1]) for number in NUMBERS])
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

    With `bf16`, the factors of all products are rounded to bfloat16, and so are those products
    themselves that are not compiled; what is added to them, and states, are not.

    Threads divide the streams: each takes a part of them through the loop (`products`).
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
        mask_BH = None if mask_BH is None else mask_BH[streams]
        update_SBH = None if update_SBH is None else update_SBH[:, streams]
        self.mask_HB = mask_of(mask_BH, (size, batch), dtype)
        self.dropped = masks_of(update_SBH, num_updates, self.last_HB.dtype)


def _forward(
    ctx: Any,
    inputs_TBI: Tensor,
    state_BH: Tensor,
    weight_GI: Tensor,
    weight_DHG: Tensor,
    bias_DG: Tensor,
    mask_BH: Tensor | None,
    update_SBH: Tensor | None,
    bf16: bool,
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
        bf16: whether the factors of products are rounded to bfloat16.
        needs_grad: whether gradients are made.
    """
    num_steps, batch, _ = inputs_TBI.shape
    depth, size, width = weight_DHG.shape
    dtype = state_BH.dtype
    factor = torch.bfloat16 if bf16 else dtype
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
    packed, biases_DG = PackedWeights(weights_DGH), bias_DG.numpy()

    def run(part: _Part, projected_GTB: Reals) -> None:
        recurrent = RecurrentProducts(packed, part.last_HB.shape[1])
        entering, last_HB = numbers_of(part.entering_DHTB), part.last_HB
        for step in range(num_steps):
            at = step % num_kept  # where nothing is kept, always 0
            part.states_DTHB[0, at] = last_HB
            for level in range(depth):
                write_entering(
                    part.states_DTHB, part.mask_HB, level, at, recurrent.factors_KB, entering
                )
                sums_GB = recurrent(level)
                add_input_or_bias(sums_GB, projected_GTB, biases_DG, level, step)
                np.tanh(sums_GB, out=sums_GB)
                dropped_HB = part.dropped[step * depth + level]
                write_update(
                    sums_GB, part.gates_DTGB, part.states_DTHB, last_HB, dropped_HB, level, at
                )
            outputs_THB[step, :, part.streams] = last_HB

    sizes, masks = (depth, width, size), (mask_BH, update_SBH)
    parts = [
        _Part(streams, num_kept, sizes, state_BH, masks, depth * num_steps, factor)
        for streams in parts_of(batch, size * width, bf16=bf16)
    ]
    projected = [
        project(inputs_TBI[:, part.streams], halved_GI, bias_DG[0]).numpy() for part in parts
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
    packed, grads_TBH = PackedWeights(weight_DHG.to(factor)), grad_TBH.numpy()

    def run(part: _Part) -> tuple[Reals, Reals, Tensor]:
        """Return gradients: of the state, and of pre-activations, summed and of each step."""
        running_HB, mask_HB, dropped = np.zeros_like(part.last_HB), part.mask_HB, part.dropped
        # by NumPy: torch would start threads of its own in this one
        outer_THB = np.ascontiguousarray(grads_TBH[:, part.streams].transpose(0, 2, 1))
        recurrent = RecurrentProducts(packed, running_HB.shape[1])
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
                add_through_product(recurrent(level), mask_HB, running_HB)
        return running_HB, summed_DGB, history_DGTB

    found = in_threads(run, parts)
    grads_inputs_TBI = []
    grads = torch.empty_like(weight_GI), torch.empty_like(weight_DHG)
    for number, (part, (_, _, history_DGTB)) in enumerate(zip(parts, found, strict=True)):
        adds = number > 0  # to what the first part has written
        inputs_NI = inputs_TBI[:, part.streams].flatten(0, 1)
        # the sums over all steps and streams, which are the columns of the factors
        for entering_HTB, grads_GTB, grad_HG in zip(
            part.entering_DHTB, history_DGTB, grads[1], strict=True
        ):
            write_product(entering_HTB.flatten(1), grads_GTB.flatten(1).t(), grad_HG, adds=adds)
        first_GN, grad_inputs_NI = history_DGTB[0].flatten(1), torch.empty_like(inputs_NI)
        write_product(first_GN, inputs_NI.to(factor), grads[0], adds=adds)
        write_product(first_GN.t(), weight_GI.to(factor), grad_inputs_NI)
        grads_inputs_TBI.append(grad_inputs_NI.view(num_steps, -1, inputs_NI.shape[1]))
    return (
        joined(grads_inputs_TBI),
        torch.cat([torch.from_numpy(running_HB.T) for running_HB, _, _ in found]),
        *grads,
        torch.from_numpy(sum(summed_DGB.sum(axis=2) for _, summed_DGB, _ in found)).to(dtype),
        *[None] * 4,  # of the masks, `bf16` and `needs_grad`
    )
