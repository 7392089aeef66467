"""The recurrent highway cell; its loops over time: `features_first.py` and `highway_loops.py`.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, D recurrence
depth, G gates (G x H columns).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.lm.neural.cells import Cell, State
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.highway_graphs import RecordedLoops
from seqtool.lm.neural.highway_loops import StreamsFirst
from seqtool.lm.neural.products import numpy_is_fast
from seqtool.lm.neural.workspace import Workspace

# below this many steps, laying out the weights costs more than the faster loop saves
FEWEST_STEPS = 4
# devices whose loops are recorded as graphs of kernels
RECORDED_ON = ("cuda",)


class RecurrentHighwayCell(Cell):
    """Recurrent highway network (Zilly et al. 2017, eqs. 6-9).

    In each of D micro-steps, s' = h * t + s * c with h = tanh(.), t = sigmoid(.) and the carry gate
    c = 1 - t (coupled) or a sigmoid of its own; the input enters the first micro-step only.

    Weights, gates in the order h, t (, c):
        weight_input   (G x H, I)
        weight_state   (D, H, G x H)   used as `state @ weight`
        bias           (D, G x H)

    Under autocast, the loop of the CPU and the Triton kernels make products in bfloat16, sums and
    the state in float32.
    """

    half_pays = True

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.depth = self.num_updates = config.depth
        self.num_gates = 2 if config.carry == "coupled" else 3
        width = self.num_gates * hidden_size
        self.weight_input = nn.Parameter(torch.empty(width, input_size))
        self.weight_state = nn.Parameter(torch.empty(config.depth, hidden_size, width))
        self.bias = nn.Parameter(torch.empty(config.depth, width))
        self._workspace = Workspace()
        self.recorded = RecordedLoops()

    def forward(
        self,
        inputs_TBI: Tensor,
        state: State,
        mask_BP: Tensor | None = None,
        update_SBH: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, H) and the state after it."""
        (state_BH,) = state
        weight_DHG = functional.dropout(self.weight_state, self.dropout_weights, self.training)
        if update_SBH is not None:
            outputs_TBH = self._loop_with_updates(
                inputs_TBI, state_BH, weight_DHG, mask_BP, update_SBH
            )
            return outputs_TBH, (outputs_TBH[-1],)
        is_fast = inputs_TBI.device.type == "cpu" and numpy_is_fast()
        if is_fast and len(inputs_TBI) >= FEWEST_STEPS:
            from seqtool.lm.neural.feature_major import FeaturesFirst

            outputs_TBH = FeaturesFirst.apply(  # type: ignore[no-untyped-call]
                inputs_TBI.to(state_BH.dtype),
                state_BH,
                self.weight_input,
                weight_DHG,
                self.bias,
                mask_BP,
                torch.is_autocast_enabled("cpu"),
                torch.is_grad_enabled(),
                self._workspace,
            )
            return outputs_TBH, (outputs_TBH[-1],)
        # the product with the inputs of all steps at once, out of the time loop
        projected_TBG = functional.linear(inputs_TBI, self.weight_input, self.bias[0])
        arguments = projected_TBG.to(state_BH.dtype), state_BH, weight_DHG, self.bias[1:], mask_BP
        if inputs_TBI.device.type in RECORDED_ON:
            outputs_TBH = self.recorded(*arguments)
        else:
            outputs_TBH = StreamsFirst.apply(*arguments)  # type: ignore[no-untyped-call]
        return outputs_TBH, (outputs_TBH[-1],)

    def _loop_with_updates(
        self,
        inputs_TBI: Tensor,
        state_BH: Tensor,
        weight_DHG: Tensor,
        mask_BH: Tensor | None,
        update_SBH: Tensor,
    ) -> Tensor:
        """Return the outputs (T, B, H), h * t being masked in each micro-step: s' = u h t + s c."""
        dtype, size = state_BH.dtype, self.hidden_size
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
                candidate_BH = torch.tanh(sums_BG[:, :size]) * next(updates)
                opened = torch.sigmoid(sums_BG[:, size:])
                if self.num_gates == 2:
                    state_BH = torch.lerp(state_BH, candidate_BH, opened)
                else:
                    state_BH = candidate_BH * opened[:, :size] + state_BH * opened[:, size:]
            outputs.append(state_BH)
        return torch.stack(outputs)

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
        """Zero, but for the transform gate's; a separate carry gate starts as its complement."""
        super().initialise_biases(config)
        size = self.hidden_size
        nn.init.constant_(self.bias[:, size : 2 * size], config.transform_bias)
        nn.init.constant_(self.bias[:, 2 * size :], -config.transform_bias)
