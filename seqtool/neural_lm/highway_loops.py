"""The two time loops of the recurrent highway cell, with their gradients written by hand.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, D recurrence
depth, G gates (G x H rows), X gates on their own, N = T x B.

On the CPU the loop is NumPy's, whose products, tanh and small operations are several times as fast
as torch's, and the state is held features first, (H, B): the products `weight @ state` of so few
columns are faster than `state @ weight`. Elsewhere, and for windows of few steps, it is torch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqtool.neural_lm.products import one_blas_thread, product
from seqtool.neural_lm.workspace import Array, Workspace


class FeaturesFirst(torch.autograd.Function):
    """The loop on the CPU: state (H, B), gates (G, B).

    One product per micro-step serves all gates, and the gradient of the recurrent weights is one
    product per depth after the loop. One tanh serves all gates too: sigmoid(x) = (1 + tanh(x / 2))
    / 2, and the halves are in the weights and biases that the loop reads.

    With `half`, the factors of all products are rounded to bfloat16; sums and states are not.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs_TBI: Tensor,
        state_BH: Tensor,
        weight_GI: Tensor,
        weight_DHG: Tensor,
        bias_DG: Tensor,
        mask_BH: Tensor | None,
        half: bool,
        needs_grad: bool,
        workspace: Workspace,
    ) -> Tensor:
        """Return the outputs (T, B, H)."""
        arguments = inputs_TBI, state_BH, weight_GI, weight_DHG, bias_DG, mask_BH
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            return _array_forward(ctx, *arguments, half, needs_grad, workspace)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs, the state and the weights."""
        with torch.autocast("cpu", enabled=False), one_blas_thread():
            return _array_backward(ctx, grad_TBH)


def _array_forward(
    ctx: Any,
    inputs_TBI: Tensor,
    state_BH: Tensor,
    weight_GI: Tensor,
    weight_DHG: Tensor,
    bias_DG: Tensor,
    mask_BH: Tensor | None,
    half: bool,
    needs_grad: bool,
    workspace: Workspace,
) -> Tensor:
    num_steps, batch, _ = inputs_TBI.shape
    depth, size, width = weight_DHG.shape
    dtype = state_BH.dtype
    factor = torch.bfloat16 if half else dtype
    # without gradients each step overwrites the one before
    kept = num_steps if needs_grad else 1
    gates_DTGB = workspace.tensor("gates", (depth, kept, width, batch), dtype).numpy()
    # states[d, t] is what enters micro-step d of step t
    states_DTHB = workspace.tensor("states", (depth, kept, size, batch), dtype).numpy()
    outputs_TBH = workspace.tensor("outputs", (num_steps, batch, size), dtype)
    outputs_THB = outputs_TBH.numpy().transpose(0, 2, 1)
    bias_DG = torch.cat([bias_DG[:, :size], bias_DG[:, size:] * 0.5], dim=1)
    # a bias is added faster when it has all columns
    bias_DGB = workspace.tensor("bias", (depth, width, batch), dtype)
    bias_DGB.copy_(bias_DG[:, :, None])
    addends_DGB = bias_DGB.numpy()
    projected_GTB = _project(inputs_TBI, weight_GI, bias_DG[0], size, factor, workspace).numpy()
    weights_DGH = workspace.tensor("weights", (depth, width, size), factor)
    for weights_GH, weight_HG in zip(weights_DGH, weight_DHG.to(factor), strict=True):
        weights_GH.copy_(weight_HG.t())
    weights_DGH[:, size:] *= 0.5
    recurrent = _Recurrent(weights_DGH, batch)
    mask_HB = None if mask_BH is None else np.ascontiguousarray(mask_BH.numpy().T)
    sums_GB, masked_HB, last_HB = (
        np.empty((rows, batch), gates_DTGB.dtype) for rows in (width, size, size)
    )
    last_HB[:] = state_BH.detach().numpy().T
    for step in range(num_steps):
        at = step % kept
        states_DTHB[0, at] = last_HB
        source_HB = states_DTHB[0, at]
        for level in range(depth):
            entering_HB = source_HB
            if mask_HB is not None:
                entering_HB = np.multiply(source_HB, mask_HB, out=masked_HB)
            recurrent(level, entering_HB, sums_GB)
            gates_GB = gates_DTGB[level, at]
            sums_GB += addends_DGB[level] if level else projected_GTB[:, step]
            np.tanh(sums_GB, out=gates_GB)
            candidate_HB, opened = gates_GB[:size], gates_GB[size:]
            opened *= 0.5
            opened += 0.5
            target_HB = states_DTHB[level + 1, at] if level + 1 < depth else last_HB
            if width == 2 * size:  # s + (h - s) t
                np.subtract(candidate_HB, source_HB, out=target_HB)
                target_HB *= opened
                target_HB += source_HB
            else:  # s c + h t
                kept_HB = np.multiply(source_HB, opened[size:], out=masked_HB)
                np.multiply(candidate_HB, opened[:size], out=target_HB)
                target_HB += kept_HB
            source_HB = target_HB
        outputs_THB[step] = last_HB
    if needs_grad:
        ctx.save_for_backward(inputs_TBI, weight_GI, weight_DHG)
        ctx.loop = gates_DTGB, states_DTHB, mask_HB, factor, workspace
    return outputs_TBH


def _array_backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
    inputs_TBI, weight_GI, weight_DHG = ctx.saved_tensors
    gates_DTGB, states_DTHB, mask_HB, factor, workspace = ctx.loop
    depth, num_steps, width, batch = gates_DTGB.shape
    size, dtype = states_DTHB.shape[2], weight_DHG.dtype
    gates_DTXHB = gates_DTGB.reshape(depth, num_steps, width // size, size, batch)
    outer_THB = workspace.tensor("outer", (num_steps, size, batch), dtype)
    outer_THB.copy_(grad_TBH.transpose(1, 2))
    recurrent = _Recurrent(weight_DHG.to(factor), batch)
    # gradients of the pre-activations: of one step, summed over the steps, of all steps
    grads_DGB = workspace.tensor("grads of step", (depth, width, batch), dtype)
    grads_DXHB = grads_DGB.numpy().reshape(depth, -1, size, batch)
    summed_DGB = np.zeros_like(grads_DGB.numpy())
    history_DGTB = workspace.tensor("grads", (depth, width, num_steps, batch), factor)
    running_HB = np.zeros_like(states_DTHB[0, 0])
    through_HB = np.empty_like(running_HB)
    closed_DHB = workspace.tensor("closed", (depth, size, batch), dtype).numpy()
    for t in range(num_steps - 1, -1, -1):
        # what is elementwise is done for all micro-steps at once, and small enough to stay near
        carry_DHB = _array_slopes(gates_DTXHB[:, t], states_DTHB[:, t], grads_DXHB, closed_DHB)
        running_HB += outer_THB[t].numpy()
        for level in range(depth - 1, -1, -1):
            grads_XHB = grads_DXHB[level]
            grads_XHB *= running_HB
            recurrent(level, grads_XHB.reshape(width, batch), through_HB)
            if mask_HB is not None:
                through_HB *= mask_HB
            running_HB *= carry_DHB[level]
            running_HB += through_HB
        summed_DGB += grads_DGB.numpy()
        if factor == dtype:  # without torch's threads, which would wait for each other
            history_DGTB.numpy()[:, :, t] = grads_DGB.numpy()
        else:
            history_DGTB[:, :, t] = grads_DGB
    if mask_HB is not None:
        states_DTHB = states_DTHB * mask_HB
    grad_weight_DHG = workspace.tensor("grad weight", weight_DHG.shape, dtype)
    entering_HTB = workspace.tensor("entering", (size, num_steps, batch), factor)
    for level in range(depth):
        entering_HTB.copy_(torch.from_numpy(states_DTHB[level]).transpose(0, 1))
        grads_GN = history_DGTB[level].flatten(1)
        _write_product(entering_HTB.flatten(1), grads_GN.t(), grad_weight_DHG[level])
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
        None,
        None,
        None,
        None,
    )


class _Recurrent:
    """The products of the loop, `weights[d] @ operand`.

    Args:
        weights_DMK: the left factors, one per depth; in bfloat16, operands are rounded to it too.
        batch: columns of an operand.
    """

    def __init__(self, weights_DMK: Tensor, batch: int) -> None:
        _, rows, inner = weights_DMK.shape
        self._rounds = weights_DMK.dtype == torch.bfloat16
        if not self._rounds:
            self._arrays = list(weights_DMK.numpy())
            return
        self._weights = weights_DMK.unbind(0)
        self._operand_KB = torch.empty(inner, batch, dtype=torch.bfloat16)
        self._product_MB = torch.empty(rows, batch, dtype=torch.bfloat16)

    def __call__(self, depth: int, operand_KB: Array, out_MB: Array) -> None:
        """Write the product of a depth's weights and `operand` into `out`."""
        if not self._rounds:
            np.matmul(self._arrays[depth], operand_KB, out=out_MB)
            return
        self._operand_KB.copy_(torch.from_numpy(operand_KB))
        torch.mm(self._weights[depth], self._operand_KB, out=self._product_MB)
        torch.from_numpy(out_MB).copy_(self._product_MB)


def _write_product(left_MK: Tensor, right_KN: Tensor, out_MN: Tensor) -> None:
    """Write a product into `out`, whose type may be wider than that of the factors."""
    if left_MK.dtype == out_MN.dtype:
        product(left_MK, right_KN, out_MN)
    else:
        out_MN.copy_(torch.mm(left_MK, right_KN))


def _project(
    inputs_TBI: Tensor,
    weight_GI: Tensor,
    bias_G: Tensor,
    size: int,
    factor: torch.dtype,
    workspace: Workspace,
) -> Tensor:
    """Return what the inputs and the bias add to the first micro-step of all steps, (G, T, B)."""
    num_steps, batch, inner = inputs_TBI.shape
    weights_GI = weight_GI.to(factor, copy=True)
    weights_GI[size:] *= 0.5
    projected_GN = workspace.tensor(
        "projected", (len(weight_GI), num_steps * batch), inputs_TBI.dtype
    )
    inputs_NI = inputs_TBI.reshape(-1, inner).to(factor)
    _write_product(weights_GI, inputs_NI.t(), projected_GN)
    projected_GN += bias_G[:, None]
    return projected_GN.view(-1, num_steps, batch)


def _array_slopes(
    gates_DXHB: Array, entering_DHB: Array, slopes_DXHB: Array, closed_DHB: Array
) -> Array:
    """Write d target / d pre-activation of each of the X gates; return the carry gates.

    `closed` receives 1 - t.
    """
    candidate_DHB, transform_DHB = gates_DXHB[:, 0], gates_DXHB[:, 1]
    slope_DHB = slopes_DXHB[:, 0]  # t (1 - h^2)
    np.multiply(candidate_DHB, candidate_DHB, out=slope_DHB)
    np.subtract(1, slope_DHB, out=slope_DHB)
    slope_DHB *= transform_DHB
    np.subtract(1, transform_DHB, out=closed_DHB)
    slope_DHB = slopes_DXHB[:, 1]
    if gates_DXHB.shape[1] == 2:  # t (1 - t) (h - s)
        np.subtract(candidate_DHB, entering_DHB, out=slope_DHB)
        slope_DHB *= transform_DHB
        slope_DHB *= closed_DHB
        return closed_DHB
    np.multiply(transform_DHB, closed_DHB, out=slope_DHB)  # t (1 - t) h
    slope_DHB *= candidate_DHB
    carry_DHB = gates_DXHB[:, 2]
    slope_DHB = slopes_DXHB[:, 2]  # c (1 - c) s
    np.subtract(1, carry_DHB, out=slope_DHB)
    slope_DHB *= carry_DHB
    slope_DHB *= entering_DHB
    return carry_DHB


class StreamsFirst(torch.autograd.Function):
    """The loop on any device: state (B, H), gates (B, G), the inputs' products made before."""

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
        with torch.autocast(projected_TBG.device.type, enabled=False):
            return _torch_forward(ctx, projected_TBG, state_BH, weight_DHG, bias_EG, mask_BH)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs but the mask."""
        with torch.autocast(grad_TBH.device.type, enabled=False):
            return _torch_backward(ctx, grad_TBH)


def _torch_forward(
    ctx: Any,
    projected_TBG: Tensor,
    state_BH: Tensor,
    weight_DHG: Tensor,
    bias_EG: Tensor,
    mask_BH: Tensor | None,
) -> Tensor:
    """Return the outputs (T, B, H) of `StreamsFirst`, and save in `ctx` what its gradient needs."""
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


def _torch_backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of the arguments of `_torch_forward`, none of the mask."""
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
        carry_DBH = _torch_slopes(gates_views[t], entering_DTBH[:, t], grads_views[t])
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


def _torch_slopes(gates_DBXH: Tensor, entering_DBH: Tensor, slopes_DBXH: Tensor) -> Tensor:
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
