"""The time loop of the LSTM on the CPU, with all that torch's own does not have; its gradient.

That are masks of the state and of what is added to the memory, and the rounds of the Mogrifier.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, P output
width, G gates (4 x H rows, in the order i, f, g, o of torch.nn), K = I + P.

All is feature-major, (H, B): products `weight @ state` of so few columns are faster than `state @
weight`, and NumPy's are several times as fast as torch's. One tanh serves all gates, as sigmoid(x)
= (1 + tanh(x / 2)) / 2: the halves are in the weights and the bias that the loop reads. What
enters the gates is one vector of input and state for each step:

    entering [T, K, B]     rows 0 to I - 1: x after all rounds     rows I to K - 1: h after them

A round (Melis et al. 2020, eqs. 4 and 5) multiplies by 2 sigmoid(q) = 1 + tanh(q / 2): in odd ones
the last h tells what is made of x, in even ones the last x what is made of h. Each version is kept
for the gradient; the last ones of both are written into `entering`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqtool.core.arrays import Reals
from seqtool.lm.neural.products import one_blas_thread, product


class FeatureMajorLSTM(torch.autograd.Function):
    """The loop and its gradient, in float32 or float64."""

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


class _Buffers:
    """What the loop writes, and its gradient reads again.

    Args:
        kept: steps whose values are kept: T, or 1 where no gradient is asked for.
        num_rounds: of the Mogrifier.
        sizes: (I, H, P, B).
        dtype: of all.

    Attributes:
        entering_TKB: what the gates read.
        inputs, states: the versions of x [T, I, B] and h [T, P, B], the first ones first.
        tanhs: of each round tanh(q / 2), as wide as what it makes.
        gates_T4HB: i, f, g and o.
        memories_THB: before each step.
        bounded_THB: tanh of the memory after each step.
        shown_THB: what leaves the gates, before the projection.
    """

    def __init__(
        self, kept: int, num_rounds: int, sizes: tuple[int, int, int, int], dtype: np.dtype[Any]
    ) -> None:
        num_inputs, size, width, batch = sizes

        def room(*shape: int) -> Reals:
            return np.empty((kept, *shape, batch), dtype)

        self.entering_TKB = room(num_inputs + width)
        self.inputs = [room(num_inputs) for _ in range((num_rounds + 1) // 2)]
        self.inputs.append(self.entering_TKB[:, :num_inputs])
        self.states = [room(width) for _ in range(num_rounds // 2)]
        self.states.append(self.entering_TKB[:, num_inputs:])
        self.tanhs = [room(width if number % 2 else num_inputs) for number in range(num_rounds)]
        self.gates_T4HB = room(4, size)
        self.memories_THB, self.bounded_THB, self.shown_THB = room(size), room(size), room(size)


def _forward(
    ctx: Any,
    inputs_TBI: Tensor,
    output_BP: Tensor,
    memory_BH: Tensor,
    weight_GK: Tensor,
    bias_G: Tensor,
    mask_BP: Tensor | None,
    update_SBH: Tensor | None,
    projection_PH: Tensor | None,
    needs_grad: bool,
    *rounds: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run over a window.

    Args:
        ctx: of the function.
        inputs_TBI: the inputs.
        output_BP: h before the window.
        memory_BH: c before it.
        weight_GK: of the gates, their columns for the input first.
        bias_G: theirs.
        mask_BP: multiplies h where it enters a step.
        update_SBH: multiplies what each step adds to the memory.
        projection_PH: of the output, if there is one.
        needs_grad: whether gradients are made.
        rounds: weights of the Mogrifier, (I, P) of odd rounds and (P, I) of even ones.
    """
    num_steps, batch, num_inputs = inputs_TBI.shape
    size, width = memory_BH.shape[1], output_BP.shape[1]
    inputs_TIB = inputs_TBI.detach().numpy().transpose(0, 2, 1)
    kept = num_steps if needs_grad else 1
    sizes = num_inputs, size, width, batch
    buffers = _Buffers(kept, len(rounds), sizes, inputs_TIB.dtype)
    halves = [(0.5 * weight.detach()).numpy() for weight in rounds]
    scale_G = weight_GK.new_full((4, size), 0.5)
    scale_G[2] = 1.0  # the candidate's tanh is its own
    weights_GK = (weight_GK.detach() * scale_G.view(-1, 1)).numpy()
    biases_G1 = (bias_G.detach() * scale_G.flatten())[:, None].numpy()
    mask_PB = None if mask_BP is None else mask_BP.t().contiguous().numpy()
    updates_SHB = None if update_SBH is None else update_SBH.transpose(1, 2).numpy()
    projection = None if projection_PH is None else projection_PH.detach().numpy()
    outputs_TBP = torch.empty(num_steps, batch, width, dtype=inputs_TBI.dtype)
    outputs_TPB = outputs_TBP.numpy().transpose(0, 2, 1)
    output_PB = output_BP.detach().numpy().T.copy()
    memory_HB = memory_BH.detach().numpy().T.copy()
    for step in range(num_steps):
        at = step % kept  # where nothing is kept, always 0
        x_IB, h_PB = buffers.inputs[0][at], buffers.states[0][at]
        x_IB[:] = inputs_TIB[step]
        h_PB[:] = output_PB if mask_PB is None else output_PB * mask_PB
        for number, (weight, tanhs) in enumerate(zip(halves, buffers.tanhs, strict=True)):
            is_odd = number % 2 == 0  # rounds are counted from 1
            versions = buffers.inputs if is_odd else buffers.states
            before, after = (versions[number // 2 + more][at] for more in (0, 1))
            np.matmul(weight, h_PB if is_odd else x_IB, out=tanhs[at])
            np.tanh(tanhs[at], out=tanhs[at])
            np.multiply(tanhs[at], before, out=after)
            after += before
            x_IB, h_PB = (after, h_PB) if is_odd else (x_IB, after)
        gates_4HB = buffers.gates_T4HB[at]
        gates_GB = gates_4HB.reshape(4 * size, batch)
        np.matmul(weights_GK, buffers.entering_TKB[at], out=gates_GB)
        gates_GB += biases_G1
        np.tanh(gates_GB, out=gates_GB)
        for sigmoids in (gates_4HB[:2], gates_4HB[3]):
            sigmoids *= 0.5
            sigmoids += 0.5
        opened, forget, candidate, shown = gates_4HB
        buffers.memories_THB[at] = memory_HB
        added_HB = opened * candidate
        if updates_SHB is not None:
            added_HB *= updates_SHB[step]
        memory_HB *= forget
        memory_HB += added_HB
        np.tanh(memory_HB, out=buffers.bounded_THB[at])
        np.multiply(shown, buffers.bounded_THB[at], out=buffers.shown_THB[at])
        output_PB = buffers.shown_THB[at]
        if projection is not None:
            output_PB = projection @ output_PB
        outputs_TPB[step] = output_PB
    if needs_grad:
        ctx.save_for_backward(weight_GK, projection_PH, *rounds)
        ctx.loop = buffers, mask_PB, updates_SHB
    return outputs_TBP, torch.from_numpy(memory_HB.T.copy())


def _backward(ctx: Any, grad_TBP: Tensor, grad_BH: Tensor) -> tuple[Tensor | None, ...]:
    weight_GK, projection_PH, *rounds = ctx.saved_tensors
    buffers, mask_PB, updates_SHB = ctx.loop
    num_steps, _, size, batch = buffers.gates_T4HB.shape
    num_inputs = buffers.inputs[0].shape[1]
    transposed_KG = weight_GK.t().contiguous().numpy()
    halves = [(0.5 * weight.t()).contiguous().numpy() for weight in rounds]
    projection_HP = None if projection_PH is None else projection_PH.t().contiguous().numpy()
    outer_TPB = grad_TBP.transpose(1, 2).contiguous().numpy()
    grad_h_PB, grad_c_HB = np.zeros_like(outer_TPB[0]), grad_BH.t().contiguous().numpy().copy()
    # gradients by the pre-activations of gates and of rounds, of the outputs and of the inputs
    sums_T4HB = np.empty_like(buffers.gates_T4HB)
    round_sums = [np.empty_like(tanhs) for tanhs in buffers.tanhs]
    outputs_TPB = np.empty_like(outer_TPB)
    grad_inputs_TBI = torch.empty(num_steps, batch, num_inputs, dtype=grad_TBP.dtype)
    grad_inputs_TIB = grad_inputs_TBI.numpy().transpose(0, 2, 1)
    for t in range(num_steps - 1, -1, -1):
        grad_h_PB += outer_TPB[t]
        outputs_TPB[t] = grad_h_PB
        shown_HB = grad_h_PB if projection_HP is None else projection_HP @ grad_h_PB
        opened, forget, candidate, output = buffers.gates_T4HB[t]
        bounded_HB = buffers.bounded_THB[t]
        grad_c_HB += shown_HB * output * (1 - bounded_HB * bounded_HB)
        added_HB = grad_c_HB if updates_SHB is None else grad_c_HB * updates_SHB[t]
        sums_4HB = sums_T4HB[t]
        sums_4HB[0] = added_HB * candidate * opened * (1 - opened)
        sums_4HB[1] = grad_c_HB * buffers.memories_THB[t] * forget * (1 - forget)
        sums_4HB[2] = added_HB * opened * (1 - candidate * candidate)
        sums_4HB[3] = shown_HB * bounded_HB * output * (1 - output)
        grad_c_HB *= forget
        grad_KB = transposed_KG @ sums_4HB.reshape(4 * size, batch)
        grad_x_IB, grad_h_PB = grad_KB[:num_inputs], grad_KB[num_inputs:]
        for number in range(len(rounds) - 1, -1, -1):
            is_odd, tanhs_B = number % 2 == 0, buffers.tanhs[number][t]
            versions = buffers.inputs if is_odd else buffers.states
            made, read = (grad_x_IB, grad_h_PB) if is_odd else (grad_h_PB, grad_x_IB)
            sums_B = round_sums[number][t]
            np.multiply(made, versions[number // 2][t], out=sums_B)
            sums_B *= 1 - tanhs_B * tanhs_B
            read += halves[number] @ sums_B
            made *= 1 + tanhs_B
        grad_inputs_TIB[t] = grad_x_IB
        if mask_PB is not None:
            grad_h_PB *= mask_PB
    grad_gates_T4GB = sums_T4HB.reshape(num_steps, 4 * size, batch)
    round_grads = []
    for number, sums in enumerate(round_sums):
        # an odd round reads the h, an even one the x, that the round before left
        read = buffers.states[number // 2] if number % 2 == 0 else buffers.inputs[number // 2 + 1]
        round_grads.append(0.5 * _over_steps(sums, read))
    grad_projection = None
    if projection_PH is not None:
        grad_projection = _over_steps(outputs_TPB, buffers.shown_THB)
    return (
        grad_inputs_TBI,
        torch.from_numpy(grad_h_PB.T.copy()),
        torch.from_numpy(grad_c_HB.T.copy()),
        _over_steps(grad_gates_T4GB, buffers.entering_TKB),
        torch.from_numpy(grad_gates_T4GB.sum(axis=(0, 2))),
        None,
        None,
        grad_projection,
        None,
        *round_grads,
    )


def _over_steps(grads_TMB: Reals, read_TNB: Reals) -> Tensor:
    """Return the gradient (M, N) of a weight, summed over all steps and streams."""
    left_MS = grads_TMB.transpose(1, 0, 2).reshape(grads_TMB.shape[1], -1)
    right_SN = read_TNB.transpose(0, 2, 1).reshape(-1, read_TNB.shape[1])
    left, right = torch.from_numpy(left_MS), torch.from_numpy(right_SN)
    return product(left, right, left.new_empty(len(left), right.shape[1]))
