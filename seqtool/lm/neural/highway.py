"""The recurrent highway cell (Zilly et al. 2017); `cells` says what a cell answers.

Its loop over a window is that of `highway_cpu` on the CPU, and otherwise one of torch's operations.
Dimensions in names: those of `cells`, and E = D - 1, X gates with the candidate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.lm.neural.cells import Cell, Gates, Mask, State
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.products import numpy_is_fast

# below this many steps, laying out the weights costs more than the faster loop saves
FEWEST_STEPS = 4


class BatchMajorLoop(torch.autograd.Function):
    """The loop on any device: state (B, H), gates (B, G), the inputs' products made before."""

    @staticmethod
    def forward(ctx: Any, projected_TBG: Tensor, *others: Any) -> Tensor:
        """Return the outputs (T, B, H); the arguments are those of `_torch_forward`."""
        with torch.autocast(projected_TBG.device.type, enabled=False):
            return _torch_forward(ctx, projected_TBG, *others)

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


class RecurrentHighwayCell(Cell):
    """Recurrent highway network (Zilly et al. 2017, eqs. 6-9).

    In each of D micro-steps, s' = h * t + s * c with h = tanh(.), t = sigmoid(.) and the carry gate
    c = 1 - t (coupled) or a sigmoid of its own; the input enters the first micro-step only.

    Weights, gates in the order h, t (, c):
        weight_input   (G x H, I)
        weight_state   (D, H, G x H)   used as `state @ weight`
        bias           (D, G x H)

    Under autocast, the loop of the CPU makes products in bfloat16, sums and the state in float32.
    """

    @property
    def bf16_pays(self) -> bool:
        """True: small products are compiled where the processor can."""
        return True

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.depth = self.num_updates = config.depth
        self.num_gates = 2 if config.carry == "coupled" else 3
        width = self.num_gates * hidden_size
        self.weight_input = nn.Parameter(torch.empty(width, input_size))
        self.weight_state = nn.Parameter(torch.empty(config.depth, hidden_size, width))
        self.bias = nn.Parameter(torch.empty(config.depth, width))

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, H) and the state after it."""
        (state_BH,) = state
        weight_DHG = functional.dropout(self.weight_state, self.dropout_weights, self.training)
        is_fast = inputs_TBI.device.type == "cpu" and numpy_is_fast()
        if is_fast and len(inputs_TBI) >= FEWEST_STEPS:
            from seqtool.lm.neural.highway_cpu import FeatureMajorLoop

            outputs_TBH = FeatureMajorLoop.apply(  # type: ignore[no-untyped-call]
                inputs_TBI.to(state_BH.dtype),
                state_BH,
                self.weight_input,
                weight_DHG,
                self.bias,
                mask_BP,
                update_SBH,
                torch.is_autocast_enabled("cpu"),
                torch.is_grad_enabled(),
            )
            return outputs_TBH, (outputs_TBH[-1],)
        if update_SBH is not None:
            outputs_TBH = self._loop_with_updates(
                inputs_TBI, state_BH, weight_DHG, mask_BP, update_SBH
            )
            return outputs_TBH, (outputs_TBH[-1],)
        # the product with the inputs of all steps at once, out of the time loop
        projected_TBG = functional.linear(inputs_TBI, self.weight_input, self.bias[0])
        arguments = projected_TBG.to(state_BH.dtype), state_BH, weight_DHG, self.bias[1:], mask_BP
        outputs_TBH = BatchMajorLoop.apply(*arguments)  # type: ignore[no-untyped-call]
        return outputs_TBH, (outputs_TBH[-1],)

    def _loop_with_updates(
        self,
        inputs_TBI: Tensor,
        state_BH: Tensor,
        weight_DHG: Tensor,
        mask_BH: Mask,
        update_SBH: Tensor,
    ) -> Tensor:
        """Return the outputs (T, B, H), h * t being masked in each micro-step: s' = u h t + s c."""
        dtype = state_BH.dtype
        projected_TBG = functional.linear(inputs_TBI, self.weight_input, self.bias[0]).to(dtype)
        weights = weight_DHG.transpose(1, 2).unbind(0)
        biases = [None, *self.bias[1:].unbind(0)]
        updates = iter(update_SBH.unbind(0))
        outputs = []
        for projected_BG in projected_TBG.unbind(0):
            for level, (weight_GH, bias_G) in enumerate(zip(weights, biases, strict=True)):
                entering_BH = state_BH if mask_BH is None else state_BH * mask_BH
                sums_BG = functional.linear(entering_BH, weight_GH, bias_G).to(dtype)
                if level == 0:
                    sums_BG = sums_BG + projected_BG
                gates = self._gates(sums_BG)
                gates["candidate"] = gates["candidate"] * next(updates)
                state_BH = self._update(gates, state_BH)
            outputs.append(state_BH)
        return torch.stack(outputs)

    def _gates(self, sums_BG: Tensor) -> Gates:
        """Return the gates of a micro-step and its candidate, from their pre-activations."""
        candidate_BH, *sums = torch.split(sums_BG, self.hidden_size, dim=1)
        names = ("transform", "carry")[: len(sums)]
        gates = {name: torch.sigmoid(part) for name, part in zip(names, sums, strict=True)}
        return {"candidate": torch.tanh(candidate_BH), **gates}

    def _update(self, gates: Gates, state_BH: Tensor) -> Tensor:
        """Return the state after a micro-step."""
        if "carry" not in gates:  # 1 - t
            return torch.lerp(state_BH, gates["candidate"], gates["transform"])
        return gates["candidate"] * gates["transform"] + state_BH * gates["carry"]

    def micro_step(self, level: int, inputs_BI: Tensor, state_BH: Tensor) -> tuple[Tensor, Gates]:
        """Return the state after micro-step `level`, from 0, and its gates."""
        sums_BG = functional.linear(state_BH, self.weight_state[level].t(), self.bias[level])
        if level == 0:
            sums_BG = sums_BG + functional.linear(inputs_BI, self.weight_input)
        gates = self._gates(sums_BG)
        return self._update(gates, state_BH), gates

    def step(self, inputs_BI: Tensor, state: State) -> State:
        """Return the state after one input."""
        (state_BH,) = state
        for level in range(self.depth):
            state_BH, _ = self.micro_step(level, inputs_BI, state_BH)
        return (state_BH,)

    def gates(self, inputs_BI: Tensor, state: State) -> list[Gates]:
        """Return the gates and the candidate of each micro-step."""
        (state_BH,), found = state, []
        for level in range(self.depth):
            state_BH, gates = self.micro_step(level, inputs_BI, state_BH)
            found.append(gates)
        return found

    def input_blocks(self) -> list[Tensor]:
        """Return views (H, I) of the input weights, one per gate."""
        return list(torch.split(self.weight_input, self.hidden_size))

    def recurrent_blocks(self) -> list[Tensor]:
        """Return views (H, H) of the recurrent weights, one per depth and gate."""
        return [
            block
            for weight_HG in self.weight_state
            for block in torch.split(weight_HG, self.hidden_size, dim=1)
        ]

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set all to zero, but the transform gate's; a carry gate starts as its complement."""
        super().initialise_biases(config)
        size = self.hidden_size
        nn.init.constant_(self.bias[:, size : 2 * size], config.transform_bias)
        nn.init.constant_(self.bias[:, 2 * size :], -config.transform_bias)
