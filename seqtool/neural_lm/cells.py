"""Recurrent cells, each run over a whole window.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, D recurrence
depth, G gates (G x H columns), N context tokens of the fixed window.

A cell answers `initial_state(batch)` and `forward(inputs, state, mask)`. A state is a tuple of
tensors whose first dimension is B, so that streams can be selected and repeated. `mask` (B, H)
multiplies the recurrent state wherever it enters a product: variational dropout, one mask per
window, shared over time and depth (Gal & Ghahramani 2016; Zilly et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.neural_lm.config import ModelConfig
from seqtool.registry import Registry

State = tuple[Tensor, ...]

CELLS: Registry[Callable[[int, int, ModelConfig], Cell]] = Registry(
    "cell",
    {
        "rnn": "seqtool.neural_lm.cells:ElmanCell",
        "lstm": "seqtool.neural_lm.cells:LSTMCell",
        "gru": "seqtool.neural_lm.cells:GRUCell",
        "rhn": "seqtool.neural_lm.cells:RecurrentHighwayCell",
        "window": "seqtool.neural_lm.cells:WindowCell",
    },
)


class Cell(nn.Module):
    """One recurrent layer.

    Args:
        input_size: I.
        hidden_size: H, the width of the output.
        config: settings of the cell.
    """

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size

    def initial_state(self, batch: int) -> State:
        """Return the zero state of `batch` streams."""
        reference = next(self.parameters())
        return (reference.new_zeros(batch, self.hidden_size),)

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BH: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, H) and the state after it."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def input_blocks(self) -> list[Tensor]:
        """Return views of the weights that read the inputs, one per gate, to initialise them."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def recurrent_blocks(self) -> list[Tensor]:
        """Return views (H, H) of the recurrent weights, one per gate, to initialise them."""
        return []

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set the biases that the configuration names; all others are zero."""
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)


class _TorchCell(Cell):
    """A cell of torch.nn, whose compiled loop runs unless the state is masked.

    Weights are those of torch.nn: `weight_ih_l0` (G x H, I), `weight_hh_l0` (G x H, H), and two
    biases, in its gate order.
    """

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.inner = self._make(input_size, hidden_size, config)

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        raise TypeError(f"{type(self).__name__} is an interface")

    def _run(self, inputs_TBI: Tensor, state: State) -> tuple[Tensor, State]:
        outputs_TBH, last_1BH = self.inner(inputs_TBI, state[0][None].contiguous())
        return outputs_TBH, (last_1BH[0],)

    def _step(self, projected_BG: Tensor, masked_BH: Tensor, state: State) -> State:
        raise TypeError(f"{type(self).__name__} is an interface")

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BH: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, H) and the state after it."""
        if mask_BH is None:
            return self._run(inputs_TBI, state)
        weight_GI, _, bias_G, _ = self._weights()
        projected_TBG = functional.linear(inputs_TBI, weight_GI, bias_G)
        outputs = []
        for projected_BG in projected_TBG.unbind(0):
            state = self._step(projected_BG, state[0] * mask_BH, state)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def input_blocks(self) -> list[Tensor]:
        """Return views (H, I) of the input weights, one per gate."""
        return list(torch.split(self._weights()[0], self.hidden_size))

    def recurrent_blocks(self) -> list[Tensor]:
        """Return views (H, H) of the recurrent weights, one per gate."""
        return list(torch.split(self._weights()[1], self.hidden_size))

    def _recurrent(self, masked_BH: Tensor) -> Tensor:
        _, weight_GH, _, bias_G = self._weights()
        return functional.linear(masked_BH, weight_GH, bias_G)

    def _weights(self) -> list[nn.Parameter]:
        return self.inner.all_weights[0]


class ElmanCell(_TorchCell):
    """The plain RNN (Elman 1990): h' = f(W x + R h + b), f = tanh or ReLU."""

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        self._activation = torch.tanh if config.activation == "tanh" else torch.relu
        return nn.RNN(input_size, hidden_size, nonlinearity=config.activation)

    def _step(self, projected_BG: Tensor, masked_BH: Tensor, state: State) -> State:
        return (self._activation(projected_BG + self._recurrent(masked_BH)),)


class LSTMCell(_TorchCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; gates i, f, g, o as torch.nn has)."""

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        return nn.LSTM(input_size, hidden_size)

    def initial_state(self, batch: int) -> State:
        """Return the zero state: output and memory, both (B, H)."""
        (zeros_BH,) = super().initial_state(batch)
        return zeros_BH, zeros_BH.clone()

    def _run(self, inputs_TBI: Tensor, state: State) -> tuple[Tensor, State]:
        start = (state[0][None].contiguous(), state[1][None].contiguous())
        outputs_TBH, (last_1BH, memory_1BH) = self.inner(inputs_TBI, start)
        return outputs_TBH, (last_1BH[0], memory_1BH[0])

    def _step(self, projected_BG: Tensor, masked_BH: Tensor, state: State) -> State:
        i, f, g, o = (projected_BG + self._recurrent(masked_BH)).chunk(4, dim=1)
        memory_BH = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory_BH), memory_BH

    def initialise_biases(self, config: ModelConfig) -> None:
        """Zero, but for the forget gate's."""
        super().initialise_biases(config)
        forget = slice(self.hidden_size, 2 * self.hidden_size)
        nn.init.constant_(self._weights()[2][forget], config.forget_bias)


class GRUCell(_TorchCell):
    """Gated recurrent unit (Cho et al. 2014; gates r, z, n as torch.nn has)."""

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        return nn.GRU(input_size, hidden_size)

    def _step(self, projected_BG: Tensor, masked_BH: Tensor, state: State) -> State:
        input_r, input_z, input_n = projected_BG.chunk(3, dim=1)
        state_r, state_z, state_n = self._recurrent(masked_BH).chunk(3, dim=1)
        reset_BH = torch.sigmoid(input_r + state_r)
        update_BH = torch.sigmoid(input_z + state_z)
        new_BH = torch.tanh(input_n + reset_BH * state_n)
        return (torch.lerp(new_BH, state[0], update_BH),)


class RecurrentHighwayCell(Cell):
    """Recurrent highway network (Zilly et al. 2017, eqs. 6-9).

    In each of D micro-steps, s' = h * t + s * c with h = tanh(.), t = sigmoid(.) and the carry gate
    c = 1 - t (coupled) or a sigmoid of its own; the input enters the first micro-step only.

    Weights, gates in the order h, t (, c):
        weight_input   (G x H, I)
        weight_state   (D, H, G x H)   used as `state @ weight`
        bias           (D, G x H)
    """

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.depth = config.depth
        self.num_gates = 2 if config.carry == "coupled" else 3
        width = self.num_gates * hidden_size
        self.weight_input = nn.Parameter(torch.empty(width, input_size))
        self.weight_state = nn.Parameter(torch.empty(config.depth, hidden_size, width))
        self.bias = nn.Parameter(torch.empty(config.depth, width))

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BH: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, H) and the state after it."""
        # the product with the inputs of all steps at once, out of the time loop
        projected_TBG = functional.linear(inputs_TBI, self.weight_input, self.bias[0])
        outputs_TBH: Tensor = _RecurrentHighway.apply(  # type: ignore[no-untyped-call]
            projected_TBG.to(state[0].dtype), state[0], self.weight_state, self.bias[1:], mask_BH
        )
        return outputs_TBH, (outputs_TBH[-1],)

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


class _RecurrentHighway(torch.autograd.Function):
    """The time loop of the cell, with its backward pass written by hand.

    One product per micro-step serves all gates, and the gradient of the recurrent weights is one
    product per depth after the loop instead of one per micro-step.
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
        with torch.autocast(projected_TBG.device.type, enabled=False):
            return _forward_loop(ctx, projected_TBG, state_BH, weight_DHG, bias_EG, mask_BH)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs but the mask."""
        with torch.autocast(grad_TBH.device.type, enabled=False):
            return _backward_loop(ctx, grad_TBH)


def _forward_loop(
    ctx: Any,
    projected_TBG: Tensor,
    state_BH: Tensor,
    weight_DHG: Tensor,
    bias_EG: Tensor,
    mask_BH: Tensor | None,
) -> Tensor:
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


def _backward_loop(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
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
        carry_DBH = _slopes(gates_views[t], entering_DTBH[:, t], grads_views[t])
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


def _slopes(gates_DBXH: Tensor, entering_DBH: Tensor, slopes_DBXH: Tensor) -> Tensor:
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


class WindowCell(Cell):
    """The fixed window of Bengio et al. (2003): h = tanh(W [x(t-N+1); ...; x(t)] + b).

    The state holds the N - 1 inputs before the window, (B, N - 1, I).
    """

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.num_tokens = config.window
        self.weight = nn.Parameter(torch.empty(hidden_size, config.window * input_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))

    def initial_state(self, batch: int) -> State:
        """Return N - 1 zero inputs per stream."""
        return (self.weight.new_zeros(batch, self.num_tokens - 1, self.input_size),)

    def input_blocks(self) -> list[Tensor]:
        """Return the weight (H, N x I)."""
        return [self.weight]

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BH: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, H) and the inputs to remember."""
        num_steps = len(inputs_TBI)
        before_NBI = state[0].transpose(0, 1).to(inputs_TBI.dtype)
        all_SBI = torch.cat([before_NBI, inputs_TBI])
        contexts = [all_SBI[n : n + num_steps] for n in range(self.num_tokens)]
        outputs_TBH = torch.tanh(
            functional.linear(torch.cat(contexts, dim=2), self.weight, self.bias)
        )
        return outputs_TBH, (all_SBI[num_steps:].transpose(0, 1),)
