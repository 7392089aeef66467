"""The loop of the recurrent highway cell in Triton kernels, one for each micro-step and direction.

Forward, a kernel multiplies the entering state with the recurrent weights and goes on to gates and
new state while the sums are in registers. Backward, it multiplies the gradients of the
pre-activations with the transposed weights, and goes on to those of the micro-step before. Each
program makes a block of streams and units, with all their gates. The gradient of the weights is one
product after the loop.

There is no kernel that keeps the weights in shared memory over the window: its programs would have
to wait for one another 350 times, which only a GPU can test. Launched one after another (by a CUDA
graph, see `highway_graphs.py`), kernels find the weights in the L2 cache, if that has room for them
(28 MB at depth 10, 830 units and bfloat16).

Not yet run on a GPU: tested by Triton's interpreter on the CPU, and compiled for GPUs. Triton comes
with the CUDA builds of torch; this is the only module that imports it.

Dimensions in names: T steps of the window, B parallel streams, H units, D recurrence depth, X
gates, G = X x H, E = D - 1, N = T x B, P units padded to a multiple of `INNER`: padding stays zero
in states and gradients, and makes every row of memory start where wide loads may.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# of a program: units that it makes, and how far it goes along the product at a time. Chosen so that
# many programs share a small product, and compiled without spilled registers; not yet timed
UNITS = 16
INNER = 64
# streams of a program; tensor cores take 16 at least
FEWEST_STREAMS, MOST_STREAMS = 16, 64
# how many of these blocks are on their way at a time
STAGES = 4


@triton.jit  # type: ignore[untyped-decorator]
def forward_kernel(
    entering_ptr: tl.tensor,  # (B, P): what is multiplied with the weights
    weight_ptr: tl.tensor,  # (P, X, P)
    addend_ptr: tl.tensor,  # (B, X, H), or (X, H) with a stride of 0
    addend_stride: tl.tensor,
    state_ptr: tl.tensor,  # (B, P)
    mask_ptr: tl.tensor,  # (B, P) or None
    gates_ptr: tl.tensor,  # (B, X, P), written
    target_ptr: tl.tensor,  # (B, P), written: the new state
    masked_ptr: tl.tensor,  # (B, P), written: what enters next; None: the state does
    batch: tl.tensor,
    size: tl.tensor,
    PADDED: tl.constexpr,
    GATES: tl.constexpr,
    PRECISION: tl.constexpr,
    STREAMS: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
) -> None:
    """Make one micro-step."""
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)[None, :]
    streams = tl.program_id(1) * STREAMS + tl.arange(0, STREAMS)[:, None]
    inner = tl.arange(0, INNER)
    there = streams < batch
    own = streams * PADDED + units
    # what is elementwise is asked for before the product, which takes longer than it needs to come
    state = tl.load(state_ptr + own, mask=there, other=0.0)
    addends = addend_ptr + streams * addend_stride + units
    unpadded = there & (units < size)
    candidate = tl.load(addends, mask=unpadded, other=0.0)
    transform = tl.load(addends + size, mask=unpadded, other=0.0)
    carry = transform
    if GATES == 3:
        carry = tl.load(addends + 2 * size, mask=unpadded, other=0.0)
    entering_ptrs = entering_ptr + streams * PADDED + inner[None, :]
    weight_ptrs = weight_ptr + inner[:, None] * (GATES * PADDED) + units
    for _ in range(0, PADDED, INNER):
        entering = tl.load(entering_ptrs, mask=there, other=0.0)
        weight = tl.load(weight_ptrs)
        candidate = tl.dot(entering, weight, candidate, input_precision=PRECISION)
        weight = tl.load(weight_ptrs + PADDED)
        transform = tl.dot(entering, weight, transform, input_precision=PRECISION)
        if GATES == 3:
            weight = tl.load(weight_ptrs + 2 * PADDED)
            carry = tl.dot(entering, weight, carry, input_precision=PRECISION)
        entering_ptrs += INNER
        weight_ptrs += INNER * GATES * PADDED
    candidate = 2 * tl.sigmoid(2 * candidate) - 1  # tanh
    transform = tl.sigmoid(transform)
    gates_ptrs = gates_ptr + streams * (GATES * PADDED) + units
    tl.store(gates_ptrs, candidate, mask=there)
    tl.store(gates_ptrs + PADDED, transform, mask=there)
    if GATES == 2:
        state += (candidate - state) * transform
    else:
        carry = tl.sigmoid(carry)
        tl.store(gates_ptrs + 2 * PADDED, carry, mask=there)
        state = state * carry + candidate * transform
    tl.store(target_ptr + own, state, mask=there)
    if masked_ptr is not None:
        if mask_ptr is not None:
            state *= tl.load(mask_ptr + own, mask=there, other=0.0)
        tl.store(masked_ptr + own, state.to(masked_ptr.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def backward_kernel(
    grads_ptr: tl.tensor,  # (B, X, P): of the pre-activations of this micro-step
    weight_ptr: tl.tensor,  # (P, X, P), of this micro-step
    gates_ptr: tl.tensor,  # (B, X, P), of this micro-step
    mask_ptr: tl.tensor,  # (B, P) or None
    running_ptr: tl.tensor,  # (B, P): gradient of the state after this micro-step, then before it
    outer_ptr: tl.tensor,  # (B, H): what is added to that, or None
    earlier_gates_ptr: tl.tensor,  # (B, X, P), of the micro-step before, like the next two
    earlier_state_ptr: tl.tensor,  # (B, P)
    earlier_grads_ptr: tl.tensor,  # (B, X, P), written
    batch: tl.tensor,
    size: tl.tensor,
    PADDED: tl.constexpr,
    GATES: tl.constexpr,
    PRECISION: tl.constexpr,
    STREAMS: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
) -> None:
    """Go back over one micro-step, and make the gradients of the pre-activations before it.

    Without `grads_ptr`, there is no micro-step to go back over (after the last one); without
    `earlier_grads_ptr`, none before it.
    """
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)[None, :]
    streams = tl.program_id(1) * STREAMS + tl.arange(0, STREAMS)[:, None]
    inner = tl.arange(0, INNER)
    there = streams < batch
    own = streams * PADDED + units
    own_gates = streams * (GATES * PADDED) + units
    running = tl.load(running_ptr + own, mask=there, other=0.0)
    if grads_ptr is not None:
        last_gate = tl.load(gates_ptr + own_gates + (GATES - 1) * PADDED, mask=there, other=0.0)
        if GATES == 2:
            running *= 1 - last_gate
        else:
            running *= last_gate
        through = tl.zeros((STREAMS, UNITS), dtype=tl.float32)
        grads_ptrs = grads_ptr + streams * (GATES * PADDED) + inner[None, :]
        weight_ptrs = weight_ptr + inner[:, None] + units * (GATES * PADDED)
        for _ in range(0, GATES * PADDED, INNER):
            grads = tl.load(grads_ptrs, mask=there, other=0.0)
            through = tl.dot(grads, tl.load(weight_ptrs), through, input_precision=PRECISION)
            grads_ptrs += INNER
            weight_ptrs += INNER
        if mask_ptr is not None:
            through *= tl.load(mask_ptr + own, mask=there, other=0.0)
        running += through
    if outer_ptr is not None:
        unpadded = there & (units < size)
        running += tl.load(outer_ptr + streams * size + units, mask=unpadded, other=0.0)
    tl.store(running_ptr + own, running, mask=there)
    if earlier_grads_ptr is not None:
        gates_ptrs = earlier_gates_ptr + own_gates
        candidate = tl.load(gates_ptrs, mask=there, other=0.0)
        transform = tl.load(gates_ptrs + PADDED, mask=there, other=0.0)
        state = tl.load(earlier_state_ptr + own, mask=there, other=0.0)
        grads_ptrs = earlier_grads_ptr + own_gates
        kind = earlier_grads_ptr.dtype.element_ty
        slope = transform * (1 - candidate * candidate)
        tl.store(grads_ptrs, (running * slope).to(kind), mask=there)
        slope = transform * (1 - transform)
        if GATES == 2:
            slope *= candidate - state
        else:
            slope *= candidate
            carry = tl.load(gates_ptrs + 2 * PADDED, mask=there, other=0.0)
            carry_grad = running * carry * (1 - carry) * state
            tl.store(grads_ptrs + 2 * PADDED, carry_grad.to(kind), mask=there)
        tl.store(grads_ptrs + PADDED, (running * slope).to(kind), mask=there)


class MicroStepKernels(torch.autograd.Function):
    """`StreamsFirst` in kernels, for float32 states.

    Under autocast, the factors of products are rounded (to bfloat16, as a rule) and summed in
    float32; states, gates and the sums of gradients are float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected_TBG: Tensor,
        state_BH: Tensor,
        weight_DHG: Tensor,
        bias_EG: Tensor,
        mask_BH: Tensor | None,
    ) -> Tensor:
        """Return the outputs (T, B, H); E = D - 1 biases, the first one is in `projected`."""
        device = projected_TBG.device.type
        factor = (
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        )
        with torch.autocast(device, enabled=False):
            return _forward(ctx, projected_TBG, state_BH, weight_DHG, bias_EG, mask_BH, factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs but the mask."""
        with torch.autocast(grad_TBH.device.type, enabled=False):
            return _backward(ctx, grad_TBH)


def _forward(
    ctx: Any,
    projected_TBG: Tensor,
    state_BH: Tensor,
    weight_DHG: Tensor,
    bias_EG: Tensor,
    mask_BH: Tensor | None,
    factor: torch.dtype,
) -> Tensor:
    num_steps, batch, width = projected_TBG.shape
    depth, size, _ = weight_DHG.shape
    num_gates = width // size
    padded = triton.cdiv(size, INNER) * INNER
    weight_DPXP = weight_DHG.new_zeros((depth, padded, num_gates, padded), dtype=factor)
    weight_DPXP[:, :size, :, :size] = weight_DHG.view(depth, size, num_gates, size)
    gates_DTBXP = projected_TBG.new_empty(depth, num_steps, batch, num_gates, padded)
    # states[d, t]: what micro-step d of step t starts from; states[0, T]: the state at the end
    states_DTBP = projected_TBG.new_empty(depth, num_steps + 1, batch, padded)
    states_DTBP[0, 0] = _pad(state_BH, padded)
    mask_BP = None if mask_BH is None else _pad(mask_BH.expand_as(state_BH), padded)
    entering_DTBP = states_DTBP
    if mask_BP is not None or factor != states_DTBP.dtype:
        entering_DTBP = torch.empty_like(states_DTBP, dtype=factor)
        first_BP = states_DTBP[0, 0]
        entering_DTBP[0, 0] = first_BP if mask_BP is None else first_BP * mask_BP
    projected, biases = projected_TBG.contiguous().unbind(0), bias_EG.contiguous().unbind(0)
    weights = weight_DPXP.unbind(0)
    gates, states, entering = map(_views, (gates_DTBXP, states_DTBP, entering_DTBP))
    for step in range(num_steps):
        for level in range(depth):
            after = (level + 1, step) if level + 1 < depth else (0, step + 1)
            forward_kernel[_grid(padded, batch)](
                entering[level][step],
                weights[level],
                biases[level - 1] if level else projected[step],
                0 if level else width,
                states[level][step],
                mask_BP,
                gates[level][step],
                states[after[0]][after[1]],
                None if entering is states else entering[after[0]][after[1]],
                batch,
                size,
                **_constants(padded, num_gates, batch),
            )
    ctx.save_for_backward(gates_DTBXP, states_DTBP, entering_DTBP, weight_DPXP, mask_BP)
    ctx.size = size
    return states_DTBP[0, 1:, :, :size].clone(memory_format=torch.contiguous_format)


def _backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
    gates_DTBXP, states_DTBP, entering_DTBP, weight_DPXP, mask_BP = ctx.saved_tensors
    size = ctx.size
    depth, num_steps, batch, num_gates, padded = gates_DTBXP.shape
    # gradients of the pre-activations
    grads_DTBXP = torch.empty_like(gates_DTBXP, dtype=weight_DPXP.dtype)
    running_BP = torch.zeros_like(states_DTBP[0, 0])
    outer, weights = grad_TBH.contiguous().unbind(0), weight_DPXP.unbind(0)
    gates, states, grads = map(_views, (gates_DTBXP, states_DTBP, grads_DTBXP))
    order = [(d, t) for t in reversed(range(num_steps)) for d in reversed(range(depth))]
    for this, earlier in pairwise([None, *order, None]):
        ends_step = earlier is not None and earlier[0] == depth - 1
        backward_kernel[_grid(padded, batch)](
            *_at(this, grads),
            None if this is None else weights[this[0]],
            *_at(this, gates),
            mask_BP,
            running_BP,
            outer[earlier[1]] if earlier is not None and ends_step else None,
            *_at(earlier, gates, states, grads),
            batch,
            size,
            **_constants(padded, num_gates, batch),
        )
    grads_DNG = grads_DTBXP.view(depth, num_steps * batch, num_gates * padded)
    entering_DNP = entering_DTBP[:, :num_steps].flatten(1, 2)
    grad_weight_DPG = entering_DNP.transpose(1, 2) @ grads_DNG
    grad_weight_DPXP = grad_weight_DPG.view(weight_DPXP.shape)
    grad_bias_EG = grads_DNG[1:].sum(dim=1, dtype=torch.float32)
    grad_bias_EXP = grad_bias_EG.view(depth - 1, num_gates, padded)
    return (
        grads_DTBXP[0, ..., :size].flatten(2).float(),
        running_BP[:, :size].contiguous(),
        grad_weight_DPXP[:, :size, :, :size].flatten(2).float(),
        grad_bias_EXP[..., :size].flatten(1),
        None,
    )


def _pad(values_BH: Tensor, padded: int) -> Tensor:
    return torch.nn.functional.pad(values_BH, (0, padded - values_BH.shape[1]))


def _views(values_DT: Tensor) -> list[list[Tensor]]:
    """Return views of each level and step, made once."""
    return [list(part.unbind(0)) for part in values_DT.unbind(0)]


def _at(place: tuple[int, int] | None, *views: list[list[Tensor]]) -> list[Tensor | None]:
    """Return the views of one level and step, or as many times None."""
    return [None if place is None else view[place[0]][place[1]] for view in views]


def _streams(batch: int) -> int:
    """Return how many streams a program has."""
    return min(max(1 << (batch - 1).bit_length(), FEWEST_STREAMS), MOST_STREAMS)


def _grid(padded: int, batch: int) -> tuple[int, int]:
    return padded // UNITS, triton.cdiv(batch, _streams(batch))


def _constants(padded: int, num_gates: int, batch: int) -> dict[str, Any]:
    """Return what kernels are compiled for, and how."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return {
        "PADDED": padded,
        "GATES": num_gates,
        "PRECISION": "ieee" if exact else "tf32",
        "STREAMS": _streams(batch),
        "UNITS": UNITS,
        "INNER": INNER,
        "num_stages": STAGES,
        "enable_fp_fusion": True,  # the default, but newer versions of Triton warn
    }
