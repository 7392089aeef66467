"""The time loop of the LSTM on the CPU, and its gradient.

It has what torch's own lacks: masks of the state and of what is added to the memory, and products
of bfloat16 with all else in float32.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, P output
width, G gates (4 x H rows, in the order i, f, g, o of torch.nn), K rows of a product, N = T x B.

All is feature-major, (H, B): products `weight @ state` of so few columns are faster than `state @
weight`, and those of `recurrent_products` several times as fast as torch's loop. One tanh serves
all gates, as sigmoid(x) = (1 + tanh(x / 2)) / 2: the halves are in the weights and the bias that
the loop reads. The product with the inputs is made for all steps at once. What is elementwise is
compiled; imports Numba, so on use only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
    masks_of,
    numbers_of,
    project,
    write_product,
)

_int = types.int64


@compiled(
    [
        types.void(number[:, ::1], factor[:, ::1], factor[:, :, ::1], _int)
        for number, factor in FACTORS
    ]
)
def enter(entering_KB, factors_KB, history_KTB, at):  # type: ignore[no-untyped-def]
    """Write what the gates read, for their product and for that of the gradient."""
    for row in range(entering_KB.shape[0]):
        for stream in range(entering_KB.shape[1]):
            factor = factor_of(entering_KB[row, stream], factors_KB)
            factors_KB[row, stream] = factor
            # rows before steps, so that the gradient of the weights is one product, (K, T x B)
            history_KTB[row, at, stream] = factor


@compiled([types.void(*[number[:, ::1]] * 4) for number in NUMBERS])
def write_gates(gates_GB, memory_HB, before_HB, dropped_HB):  # type: ignore[no-untyped-def]
    """Make gates of what came out of the tanh, and the memory after the step of that before it.

    `dropped` multiplies what is added to the memory; of no rows, it drops nothing.
    """
    # a half of the array's own type: 0.5 is a double, and would make the loops double too
    length, half = memory_HB.size, gates_GB.dtype.type(0.5)
    gates, memory = flat(gates_GB), flat(memory_HB)
    before, dropped = flat(before_HB), flat(dropped_HB)
    input_gate, forget, candidate = gates[:length], gates[length : 2 * length], gates[2 * length :]
    # i and f, then o; between them the candidate stays what the tanh gave
    first, last = gates[: 2 * length], gates[3 * length :]
    for index in range(2 * length):
        first[index] = half * first[index] + half
    for index in range(length):
        last[index] = half * last[index] + half
    # the gradient of the forget gate reads it; `memory` itself goes on to the next step
    for index in range(length):
        before[index] = memory[index]
    if len(dropped) > 0:
        for index in range(length):
            added = input_gate[index] * candidate[index] * dropped[index]
            memory[index] = forget[index] * memory[index] + added
    else:
        for index in range(length):
            added = input_gate[index] * candidate[index]
            memory[index] = forget[index] * memory[index] + added


@compiled(
    [
        types.void(*[number[:, ::1]] * 7, factor[:, ::1], factor[:, :, ::1], _int)
        for number, factor in FACTORS
    ]
)
def differentiate_gates(  # type: ignore[no-untyped-def]
    gates_GB,
    before_HB,
    bounded_HB,
    shown_HB,
    memory_HB,
    dropped_HB,
    summed_GB,
    factors_GB,
    history_GTB,
    at,
):
    """Go back through a step: gradients of the pre-activations, and of the memory before it.

    `shown` is the gradient of what leaves the gates; `memory` is that of the memory after the step,
    and becomes that of the memory before it.
    """
    length, one = memory_HB.size, gates_GB.dtype.type(1)
    gates, before, bounded = flat(gates_GB), flat(before_HB), flat(bounded_HB)
    shown, memory, dropped = flat(shown_HB), flat(memory_HB), flat(dropped_HB)
    summed, factors, grads = flat(summed_GB), flat(factors_GB), np.empty_like(gates)
    input_gate, forget = gates[:length], gates[length : 2 * length]
    candidate, output = gates[2 * length : 3 * length], gates[3 * length :]
    of_input_gate, of_forget = grads[:length], grads[length : 2 * length]
    of_candidate, of_output = grads[2 * length : 3 * length], grads[3 * length :]
    # h = o tanh(c): the memory's gradient came from the step after, and comes through h as well
    for index in range(length):
        through = output[index] * (one - bounded[index] * bounded[index])
        memory[index] += shown[index] * through
        # by the whole pre-activation: the halves are in the weights of the way forward alone
        of_output[index] = shown[index] * bounded[index] * output[index] * (one - output[index])
    for index in range(length):
        of_forget[index] = memory[index] * before[index] * forget[index] * (one - forget[index])
        slope = candidate[index] * input_gate[index] * (one - input_gate[index])
        of_input_gate[index] = memory[index] * slope
        slope = input_gate[index] * (one - candidate[index] * candidate[index])
        of_candidate[index] = memory[index] * slope
    # the mask is a factor of i g, so that the gradients of both gates have it
    for index in range(len(dropped)):
        of_input_gate[index] *= dropped[index]
        of_candidate[index] *= dropped[index]
    # last: the gradients of the gates above need that of the memory after the step
    for index in range(length):
        memory[index] *= forget[index]
    for index in range(len(grads)):
        summed[index] += grads[index]  # of the bias, not rounded; the batch is summed at the end
        factors[index] = factor_of(grads[index], factors)
    # apart from the loop above: this one writes in strides, and would keep that from vectors
    for row in range(len(factors_GB)):
        for stream in range(factors_GB.shape[1]):
            history_GTB[row, at, stream] = factors_GB[row, stream]


class FeatureMajorLSTM(torch.autograd.Function):
    """The loop and its gradient.

    With `bf16`, the factors of all products are rounded to bfloat16, and so are those products
    themselves that are not compiled; what is added to them, and states, are not.

    Threads divide the streams: each takes a part of them through the loop (`products`).
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        """Return the outputs (T, B, P) and the last memory (B, H); arguments as of `_forward`."""
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            return _forward(ctx, *arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBP: Tensor, grad_BH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs, the state and the weights."""
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            return _backward(ctx, grad_TBP, grad_BH)


class _Product:
    """One weight by a few columns: `RecurrentProducts` of one depth."""

    def __init__(self, weight: PackedWeights, batch: int) -> None:
        self._products = RecurrentProducts(weight, batch)
        self._history = np.empty((weight.shape[1], 1, batch), self._products.factors_KB.dtype)

    def __call__(self, columns_KB: Reals) -> Reals:
        """Return the product, valid until the next one is made."""
        enter(np.ascontiguousarray(columns_KB), self._products.factors_KB, self._history, 0)
        return self._products(0)


def _packed(weight_MK: Tensor, factor: torch.dtype) -> PackedWeights:
    return PackedWeights(weight_MK.detach().to(factor)[None])


class _Part:
    """Some of the streams, and what the loop writes of them, which its gradient reads again.

    Args:
        streams: which.
        num_kept: steps whose values are kept: T, or 1 where no gradient is asked for.
        size: H.
        width: P.
        dtype: of all but the factors.
        factor: of these.

    Attributes:
        entering_TPB: what the gates read.
        entering_PTB: the same as factors.
        gates_TGB: i, f, g and o.
        memories_THB: before each step.
        bounded_THB: tanh of the memory after each step.
        shown_THB: what leaves the gates, before the projection.
        mask_PB, dropped: the masks of the state, and of what each step adds to the memory.
    """

    mask_PB: Reals | None
    dropped: Sequence[Reals]

    def __init__(
        self,
        streams: slice,
        num_kept: int,
        size: int,
        width: int,
        dtype: torch.dtype,
        factor: torch.dtype,
    ) -> None:
        self.streams, self.batch = streams, streams.stop - streams.start

        def room(num: int) -> Reals:
            # torch's memory is aligned, on which the bits of its products may depend
            array: Reals = torch.empty(num_kept, num, self.batch, dtype=dtype).numpy()
            return array

        self.entering_TPB = room(width)
        self.entering_PTB = torch.empty(width, num_kept, self.batch, dtype=factor)
        self.gates_TGB = room(4 * size)
        self.memories_THB, self.bounded_THB, self.shown_THB = room(size), room(size), room(size)


def _forward(
    ctx: Any,
    inputs_TBI: Tensor,
    output_BP: Tensor,
    memory_BH: Tensor,
    weight_GI: Tensor,
    weight_GP: Tensor,
    bias_G: Tensor,
    mask_BP: Tensor | None,
    update_SBH: Tensor | None,
    projection_PH: Tensor | None,
    bf16: bool,
    needs_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Run over a window.

    Args:
        ctx: of the function.
        inputs_TBI: the inputs.
        output_BP: h before the window.
        memory_BH: c before it.
        weight_GI: of the gates, for the input.
        weight_GP: for the state.
        bias_G: theirs.
        mask_BP: multiplies h where it enters a step.
        update_SBH: multiplies what each step adds to the memory.
        projection_PH: of the output, if there is one.
        bf16: whether the factors of products are rounded to bfloat16.
        needs_grad: whether gradients are made.
    """
    num_steps, batch, _ = inputs_TBI.shape
    size, width = memory_BH.shape[1], output_BP.shape[1]
    dtype = inputs_TBI.dtype
    factor = torch.bfloat16 if bf16 else dtype
    num_kept = num_steps if needs_grad else 1
    scale_G1 = weight_GI.new_full((4 * size, 1), 0.5)
    scale_G1[2 * size : 3 * size] = 1.0  # the candidate's tanh is its own
    scaled_G = bias_G.detach() * scale_G1[:, 0]
    scaled_GI = (weight_GI.detach() * scale_G1).to(factor)
    read = _packed(weight_GP * scale_G1, factor)
    projection = None if projection_PH is None else _packed(projection_PH, factor)
    outputs_TBP = torch.empty(num_steps, batch, width, dtype=dtype)
    outputs_TPB = outputs_TBP.numpy().transpose(0, 2, 1)

    def run(part: _Part, added_GTB: Reals) -> Reals:
        """Run over the window; return the memory after it."""
        recurrent = RecurrentProducts(read, part.batch)
        shrink = None if projection is None else _Product(projection, part.batch)
        output_PB = output_BP[part.streams].detach().numpy().T.copy()
        # a copy: the loop changes it in place, and the caller keeps the state
        memory_HB: Reals = memory_BH[part.streams].detach().numpy().T.copy()
        entering_PTB = numbers_of(part.entering_PTB)
        for step in range(num_steps):
            at = step % num_kept  # where nothing is kept, always 0
            h_PB = part.entering_TPB[at]
            h_PB[:] = output_PB if part.mask_PB is None else output_PB * part.mask_PB
            enter(h_PB, recurrent.factors_KB, entering_PTB, at)
            sums_GB, gates_GB = recurrent(0), part.gates_TGB[at]
            sums_GB += added_GTB[:, step]
            np.tanh(sums_GB, out=gates_GB)
            write_gates(gates_GB, memory_HB, part.memories_THB[at], part.dropped[step])
            np.tanh(memory_HB, out=part.bounded_THB[at])
            np.multiply(gates_GB[3 * size :], part.bounded_THB[at], out=part.shown_THB[at])
            output_PB = part.shown_THB[at]
            if shrink is not None:
                output_PB = shrink(output_PB)
            outputs_TPB[step, :, part.streams] = output_PB
        return memory_HB

    parts, added = [], []
    for streams in parts_of(batch, weight_GP.numel(), bf16=bf16):
        part = _Part(streams, num_kept, size, width, dtype, factor)
        part.mask_PB = None if mask_BP is None else mask_BP[streams].t().contiguous().numpy()
        update_SBH_of = None if update_SBH is None else update_SBH[:, streams]
        part.dropped = masks_of(update_SBH_of, num_steps, part.gates_TGB.dtype)
        parts.append(part)
        added.append(project(inputs_TBI[:, streams].detach(), scaled_GI, scaled_G).numpy())
    memories = in_threads(run, parts, added)
    if needs_grad:
        ctx.save_for_backward(inputs_TBI, weight_GI, weight_GP, projection_PH)
        ctx.parts = parts
    return outputs_TBP, _streams(memories)


class _Grads(NamedTuple):
    """Gradients of a part of the streams.

    Attributes:
        state_PB, memory_HB: of the state before the window.
        summed_GB: of the pre-activations of the gates, summed over the steps.
        history_GTB: the same of all steps, as factors.
        outputs_TPB: of the outputs.
    """

    state_PB: Reals
    memory_HB: Reals
    summed_GB: Reals
    history_GTB: Tensor
    outputs_TPB: Reals


def _backward(ctx: Any, grad_TBP: Tensor, grad_BH: Tensor) -> tuple[Tensor | None, ...]:
    inputs_TBI, weight_GI, weight_GP, projection_PH = ctx.saved_tensors
    parts: list[_Part] = ctx.parts
    num_steps, _, num_inputs = inputs_TBI.shape
    factor = parts[0].entering_PTB.dtype
    through = _packed(weight_GP.t().contiguous(), factor)
    projection = None
    if projection_PH is not None:
        projection = _packed(projection_PH.t().contiguous(), factor)
    grads_TBP, grads_BH = grad_TBP.numpy(), grad_BH.numpy()

    def run(part: _Part) -> _Grads:
        recurrent = RecurrentProducts(through, part.batch)
        shrink = None if projection is None else _Product(projection, part.batch)
        # by NumPy: torch would start threads of its own in this one
        outer_TPB = np.ascontiguousarray(grads_TBP[:, part.streams].transpose(0, 2, 1))
        history_GTB = torch.empty(part.gates_TGB.shape[1], num_steps, part.batch, dtype=factor)
        grads = _Grads(
            np.zeros_like(outer_TPB[0]),
            grads_BH[part.streams].T.copy(),
            np.zeros_like(part.gates_TGB[0]),
            history_GTB,
            np.empty_like(outer_TPB),
        )
        grad_h_PB, history = grads.state_PB, numbers_of(history_GTB)
        for t in range(num_steps - 1, -1, -1):
            # kept for all steps: the gradient of the projection is one product over them
            np.add(grad_h_PB, outer_TPB[t], out=grads.outputs_TPB[t])
            shown_HB = grads.outputs_TPB[t]
            if shrink is not None:
                shown_HB = shrink(shown_HB)
            differentiate_gates(
                part.gates_TGB[t],
                part.memories_THB[t],
                part.bounded_THB[t],
                shown_HB,
                grads.memory_HB,
                part.dropped[t],
                grads.summed_GB,
                recurrent.factors_KB,
                history,
                t,
            )
            grad_h_PB = recurrent(0)
            if part.mask_PB is not None:
                grad_h_PB *= part.mask_PB
        return grads._replace(state_PB=grad_h_PB)

    found = in_threads(run, parts)
    grad_weight_GI, grad_weight_GP = torch.empty_like(weight_GI), torch.empty_like(weight_GP)
    grads_inputs_TBI: list[Tensor] = []
    for number, (part, grads) in enumerate(zip(parts, found, strict=True)):
        adds = number > 0  # to what the first part has written
        grads_GN = grads.history_GTB.flatten(1)
        write_product(grads_GN, part.entering_PTB.flatten(1).t(), grad_weight_GP, adds=adds)
        # the inputs of all steps went into one product before the loop: so do their gradients
        inputs_NI = inputs_TBI[:, part.streams].flatten(0, 1)
        write_product(grads_GN, inputs_NI.to(factor), grad_weight_GI, adds=adds)
        grad_inputs_NI = inputs_NI.new_empty(inputs_NI.shape)
        write_product(grads_GN.t(), weight_GI.to(factor), grad_inputs_NI)
        grads_inputs_TBI.append(grad_inputs_NI.view(num_steps, -1, num_inputs))
    grad_projection = None
    if projection_PH is not None:
        shown = [part.shown_THB for part in parts]
        grad_projection = _over_steps([grads.outputs_TPB for grads in found], shown, factor)
    return (
        joined(grads_inputs_TBI),
        _streams([grads.state_PB for grads in found]),
        _streams([grads.memory_HB for grads in found]),
        grad_weight_GI,
        grad_weight_GP,
        sum((torch.from_numpy(grads.summed_GB.sum(axis=1)) for grads in found), torch.zeros(())),
        # none of the masks, `bf16` and `needs_grad`, which stand around the projection
        *(None, None, grad_projection, None, None),
    )


def _streams(parts_HB: Sequence[Reals]) -> Tensor:
    """Return the streams of all parts, (B, H)."""
    return torch.cat([torch.from_numpy(part_HB.T) for part_HB in parts_HB])


def _over_steps(grads: Sequence[Reals], read: Sequence[Reals], factor: torch.dtype) -> Tensor:
    """Return the gradient (M, N) of a weight, summed over all steps and streams.

    Args:
        grads: of each part of the streams, (T, M, B).
        read: what the weight was applied to, (T, N, B).
        factor: the type of factors.
    """
    # copied by torch, whose memory is aligned alike every time: a product's last bits go by that
    left = [torch.from_numpy(grads_TMB).transpose(0, 1).flatten(1) for grads_TMB in grads]
    right = [torch.from_numpy(read_TNB).transpose(1, 2).flatten(0, 1) for read_TNB in read]
    left_MS, right_SN = torch.cat(left, 1).to(factor), torch.cat(right).to(factor)
    summed_MN = left[0].new_empty(len(left_MS), right_SN.shape[1])
    write_product(left_MS, right_SN, summed_MN)
    return summed_MN
