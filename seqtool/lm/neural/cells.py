"""Recurrent cells, each run over a whole window.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, P output
width (H, but for a projection), G gates (G x H columns), S additions to the memory in a window, N
context tokens of the fixed window, D recurrence depth of the recurrent highway cell, whose own loop
on the CPU is in `highway_cpu`.

A cell answers `initial_state(batch)` and `forward(inputs, state, mask, update)`. A state is a tuple
of tensors whose first dimension is B, so that streams can be selected and repeated. `mask` (B, P)
multiplies the recurrent state wherever it enters a product: variational dropout, one mask per
window, shared over time and depth (Gal & Ghahramani 2016; Zilly et al. 2017). `update` (S, B, H)
multiplies what is added to the memory, so that what is remembered is kept: recurrent dropout
without memory loss (Semeniuta et al. 2016). Recurrent weights are dropped by the cell itself, in
training, one mask per window (Merity et al. 2018).

A recurrent cell also answers `step` and `gates`, of one time step by plain operations: what is to
be differentiated more than once, or looked at, and need not be fast.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.core.config import Registry
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.products import numpy_is_fast

State = tuple[Tensor, ...]
Mask = Tensor | None  # None drops nothing
Gates = dict[str, Tensor]  # (B, H) by name; the candidate beside them is no gate

CELLS: Registry[Callable[[int, int, ModelConfig], Cell]] = Registry(
    "cell",
    {
        "rnn": "seqtool.lm.neural.cells:ElmanCell",
        "lstm": "seqtool.lm.neural.cells:LSTMCell",
        "gru": "seqtool.lm.neural.cells:GRUCell",
        "rhn": "seqtool.lm.neural.cells:RecurrentHighwayCell",
        "window": "seqtool.lm.neural.cells:WindowCell",
    },
)


class Cell(nn.Module):
    """One recurrent layer.

    Args:
        input_size: I.
        hidden_size: H, the width of the output.
        config: settings of the cell.

    Attributes:
        half_pays: whether its products in bfloat16 are faster on the CPU, with all else in float32.
        num_updates: how often something is added to the memory in each step; S / T.
        output_size: P.
        dropout_weights: share of the recurrent weights that is dropped in training.
    """

    half_pays = False
    num_updates = 0

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.output_size = hidden_size
        self.dropout_weights = config.dropout_weights

    def initial_state(self, batch: int) -> State:
        """Return the zero state of `batch` streams."""
        reference = next(self.parameters())
        return (reference.new_zeros(batch, self.output_size),)

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, P) and the state after it."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def step(self, inputs_BI: Tensor, state: State) -> State:
        """Return the state after one input; its first part is the output."""
        raise TypeError(f"{type(self).__name__} has no recurrent state")

    def gates(self, inputs_BI: Tensor, state: State) -> list[Gates]:
        """Return the gates and the candidate of each micro-step of `step`."""
        raise TypeError(f"{type(self).__name__} has no recurrent state")

    def input_blocks(self) -> list[Tensor]:
        """Return views of the weights that read the inputs, one per gate, to initialise them."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def recurrent_blocks(self) -> list[Tensor]:
        """Return views (H, P) of the recurrent weights, one per gate, to initialise them."""
        return []

    def output_blocks(self) -> list[Tensor]:
        """Return the weights (P, H) of the projection, if there is one, to initialise them."""
        return []

    def gating_blocks(self) -> list[Tensor]:
        """Return the weights by which input and state gate each other, to initialise them."""
        return []

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set the biases that the configuration names; all others are zero."""
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)


class _TorchCell(Cell):
    """A cell of torch.nn, whose compiled loop runs unless something inside it is masked.

    Weights are those of torch.nn: `weight_ih_l0` (G x H, I), `weight_hh_l0` (G x H, P), and two
    biases, in its gate order.

    Attributes:
        has_loop: whether there is a compiled loop for it.
    """

    has_loop = True

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.inner = self._make(input_size, hidden_size, config)

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        raise TypeError(f"{type(self).__name__} is an interface")

    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        """Return what torch.nn's loop gives: the outputs and each part of the state."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def _step(
        self, projected_BG: Tensor, recurrent_BG: Tensor, state: State, update_BH: Mask
    ) -> State:
        """Return the state after one step, from the products with its input and its state."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def _gates(self, projected_BG: Tensor, recurrent_BG: Tensor) -> Gates:
        """Return the gates and the candidate, from the same products."""
        raise TypeError(f"{type(self).__name__} is an interface")

    def _products(self, inputs_BI: Tensor, state: State) -> tuple[Tensor, Tensor]:
        weight_GI, weight_GP, bias_input_G, bias_state_G = self._weights()[:4]
        projected_BG = functional.linear(inputs_BI, weight_GI, bias_input_G)
        return projected_BG, functional.linear(state[0], weight_GP, bias_state_G)

    def step(self, inputs_BI: Tensor, state: State) -> State:
        """Return the state after one input."""
        return self._step(*self._products(inputs_BI, state), state, None)

    def gates(self, inputs_BI: Tensor, state: State) -> list[Gates]:
        """Return the gates and the candidate of the only micro-step."""
        return [self._gates(*self._products(inputs_BI, state))]

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, P) and the state after it."""
        weights: list[Tensor] = list(self._weights())
        weights[1] = functional.dropout(weights[1], self.dropout_weights, self.training)
        if self.has_loop and mask_BP is None and update_SBH is None:
            start = tuple(part[None].contiguous() for part in state)
            outputs_TBP, *last = self._loop(inputs_TBI, start, weights)
            return outputs_TBP, tuple(part[0] for part in last)
        weight_GI, weight_GP, bias_input_G, bias_state_G = weights[:4]
        projected_TBG = functional.linear(inputs_TBI, weight_GI, bias_input_G)
        updates = [None] * len(inputs_TBI) if update_SBH is None else update_SBH.unbind(0)
        outputs = []
        for projected_BG, update_BH in zip(projected_TBG.unbind(0), updates, strict=True):
            entering_BP = state[0] if mask_BP is None else state[0] * mask_BP
            recurrent_BG = functional.linear(entering_BP, weight_GP, bias_state_G)
            state = self._step(projected_BG, recurrent_BG, state, update_BH)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def input_blocks(self) -> list[Tensor]:
        """Return views (H, I) of the input weights, one per gate."""
        return list(torch.split(self._weights()[0], self.hidden_size))

    def recurrent_blocks(self) -> list[Tensor]:
        """Return views (H, P) of the recurrent weights, one per gate."""
        return list(torch.split(self._weights()[1], self.hidden_size))

    def _weights(self) -> list[nn.Parameter]:
        return self.inner.all_weights[0]

    def _options(self) -> tuple[bool, int, float, bool, bool, bool]:
        """Return biases, layers, dropout, training, bidirectional, batch first, as loops ask."""
        return True, 1, 0.0, self.training, False, False


class ElmanCell(_TorchCell):
    """The plain RNN (Elman 1990): h' = f(W x + R h + b).

    f is tanh, ReLU, leaky ReLU (Maas et al. 2013), parametric ReLU with a slope per unit that is
    learnt (He et al. 2015), or the logistic function. torch has compiled loops of the first two.
    """

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        self._activation = config.activation
        self._slope = config.slope_below_zero
        self.has_loop = config.activation in ("tanh", "relu")
        if config.activation == "parametric-relu":
            self.slope_H = nn.Parameter(torch.empty(hidden_size))
        return nn.RNN(input_size, hidden_size)

    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        loop = torch.rnn_tanh if self._activation == "tanh" else torch.rnn_relu
        return loop(inputs_TBI, start[0], weights, *self._options())

    def activate(self, sums_BH: Tensor) -> Tensor:
        """Return f of the sums, element by element."""
        match self._activation:
            case "tanh":
                return torch.tanh(sums_BH)
            case "relu":
                return torch.relu(sums_BH)
            case "leaky-relu":
                return functional.leaky_relu(sums_BH, self._slope)
            case "parametric-relu":
                return functional.prelu(sums_BH, self.slope_H)
            case "logistic":
                return torch.sigmoid(sums_BH)

    def _step(
        self, projected_BG: Tensor, recurrent_BG: Tensor, state: State, update_BH: Mask
    ) -> State:
        return (self.activate(projected_BG + recurrent_BG),)

    def _gates(self, projected_BG: Tensor, recurrent_BG: Tensor) -> Gates:
        return {"candidate": self.activate(projected_BG + recurrent_BG)}

    def slopes(self, inputs_BI: Tensor, state: State) -> Tensor:
        """Return f' of the sums of a step, (B, H)."""
        projected_BH, recurrent_BH = self._products(inputs_BI, state)
        sums_BH = (projected_BH + recurrent_BH).detach().requires_grad_()
        with torch.enable_grad():
            (slopes_BH,) = torch.autograd.grad(self.activate(sums_BH).sum(), sums_BH)
        return slopes_BH

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set all to zero, and the slopes that are learnt to where they start from."""
        super().initialise_biases(config)
        if config.activation == "parametric-relu":
            nn.init.constant_(self.slope_H, self._slope)


class LSTMCell(_TorchCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; gates i, f, g, o as torch.nn has).

    With a projection, the output is P wide: h' = W_p (o * tanh(c')) (Sak et al. 2014).

    With rounds, input and state gate each other before they enter (the Mogrifier; Melis et al.
    2020, eqs. 4 and 5). With x^(-1) = x and h^0 the state before the step, masked if it is:

        x^i = 2 sigmoid(Q^i h^(i-1)) * x^(i-2)    for odd i
        h^i = 2 sigmoid(R^i x^(i-1)) * h^(i-2)    for even i

    and the gates read the last ones. Weights: `rounds.N` (I, P) of Q, (P, I) of R; of a rank k, the
    product of `rounds.N` (., k) and `readers.N` (k, .). A dropped recurrent weight is that of the
    gates.
    """

    num_updates = 1

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.rounds, self.readers = nn.ParameterList(), nn.ParameterList()
        self.has_loop = config.mogrifier_rounds == 0
        rank = config.mogrifier_rank
        for number in range(config.mogrifier_rounds):
            made, read = (input_size, self.output_size)[:: -1 if number % 2 else 1]
            self.rounds.append(nn.Parameter(torch.empty(made, read if rank is None else rank)))
            if rank is not None:
                self.readers.append(nn.Parameter(torch.empty(rank, read)))

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        self.output_size = config.projection_size or hidden_size
        return nn.LSTM(input_size, hidden_size, proj_size=config.projection_size or 0)

    def round_weights(self) -> list[Tensor]:
        """Return the weights of the rounds, (I, P) of the odd and (P, I) of the even ones."""
        if not len(self.readers):
            return list(self.rounds)
        pairs = zip(self.rounds, self.readers, strict=True)
        return [made @ read for made, read in pairs]

    def mogrify(
        self, inputs_BI: Tensor, state_BP: Tensor, weights: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return what the gates read of input and state, after all rounds."""
        for number, weight in enumerate(weights):
            if number % 2 == 0:
                gate_BI = torch.sigmoid(functional.linear(state_BP, weight))
                inputs_BI = 2 * gate_BI * inputs_BI
            else:
                gate_BP = torch.sigmoid(functional.linear(inputs_BI, weight))
                state_BP = 2 * gate_BP * state_BP
        return inputs_BI, state_BP

    def _products(self, inputs_BI: Tensor, state: State) -> tuple[Tensor, Tensor]:
        entering = self.mogrify(inputs_BI, state[0], self.round_weights())
        return super()._products(entering[0], entering[1:])

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, P) and the state after it.

        Where the loop of torch.nn cannot, that of the CPU does.
        """
        is_torch = self.has_loop and mask_BP is None and update_SBH is None
        is_fast = inputs_TBI.device.type == "cpu" and numpy_is_fast()
        if is_torch or (self.has_loop and not is_fast):
            return super().forward(inputs_TBI, state, mask_BP, update_SBH)
        rounds = self.round_weights()
        weight_GI, weight_GP, bias_input_G, bias_state_G, *projection = self._weights()
        kept_GP = functional.dropout(weight_GP, self.dropout_weights, self.training)
        if is_fast:
            from seqtool.lm.neural.lstm_cpu import FeatureMajorLSTM

            outputs_TBP, memory_BH = FeatureMajorLSTM.apply(  # type: ignore[no-untyped-call]
                inputs_TBI.to(state[0].dtype),
                *state,
                torch.cat([weight_GI, kept_GP], dim=1),
                bias_input_G + bias_state_G,
                mask_BP,
                update_SBH,
                projection[0] if projection else None,
                torch.is_grad_enabled(),
                *rounds,
            )
            return outputs_TBP, (outputs_TBP[-1], memory_BH)
        updates = [None] * len(inputs_TBI) if update_SBH is None else update_SBH.unbind(0)
        outputs = []
        for inputs_BI, update_BH in zip(inputs_TBI.unbind(0), updates, strict=True):
            entering_BP = state[0] if mask_BP is None else state[0] * mask_BP
            inputs_BI, entering_BP = self.mogrify(inputs_BI, entering_BP, rounds)
            projected_BG = functional.linear(inputs_BI, weight_GI, bias_input_G)
            recurrent_BG = functional.linear(entering_BP, kept_GP, bias_state_G)
            state = self._step(projected_BG, recurrent_BG, state, update_BH)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def initial_state(self, batch: int) -> State:
        """Return the zero state: output (B, P) and memory (B, H)."""
        (zeros_BP,) = super().initial_state(batch)
        return zeros_BP, zeros_BP.new_zeros(batch, self.hidden_size)

    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        with warnings.catch_warnings():
            # oneDNN has no projection, and torch says so once
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
            return torch.lstm(inputs_TBI, start, weights, *self._options())

    def _step(
        self, projected_BG: Tensor, recurrent_BG: Tensor, state: State, update_BH: Mask
    ) -> State:
        gates = self._gates(projected_BG, recurrent_BG)
        added_BH = gates["input"] * gates["candidate"]
        if update_BH is not None:
            added_BH = added_BH * update_BH
        memory_BH = gates["forget"] * state[1] + added_BH
        output_BP = gates["output"] * torch.tanh(memory_BH)
        for weight_PH in self.output_blocks():
            output_BP = functional.linear(output_BP, weight_PH)
        return output_BP, memory_BH

    def _gates(self, projected_BG: Tensor, recurrent_BG: Tensor) -> Gates:
        i, f, g, o = (projected_BG + recurrent_BG).chunk(4, dim=1)
        return {
            "input": torch.sigmoid(i),
            "forget": torch.sigmoid(f),
            "candidate": torch.tanh(g),
            "output": torch.sigmoid(o),
        }

    def output_blocks(self) -> list[Tensor]:
        """Return the weights (P, H) of the projection, if there is one."""
        return list(self._weights()[4:])

    def gating_blocks(self) -> list[Tensor]:
        """Return the weights of the rounds, as they are stored."""
        return [*self.rounds, *self.readers]

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set all to zero, but for the forget gate's."""
        super().initialise_biases(config)
        forget = slice(self.hidden_size, 2 * self.hidden_size)
        nn.init.constant_(self._weights()[2][forget], config.forget_bias)


class GRUCell(_TorchCell):
    """Gated recurrent unit (Cho et al. 2014; gates r, z, n as torch.nn has)."""

    num_updates = 1

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        return nn.GRU(input_size, hidden_size)

    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        return torch.gru(inputs_TBI, start[0], weights, *self._options())

    def _step(
        self, projected_BG: Tensor, recurrent_BG: Tensor, state: State, update_BH: Mask
    ) -> State:
        gates = self._gates(projected_BG, recurrent_BG)
        new_BH = gates["candidate"]
        if update_BH is not None:
            new_BH = new_BH * update_BH
        return (torch.lerp(new_BH, state[0], gates["update"]),)

    def _gates(self, projected_BG: Tensor, recurrent_BG: Tensor) -> Gates:
        input_r, input_z, input_n = projected_BG.chunk(3, dim=1)
        state_r, state_z, state_n = recurrent_BG.chunk(3, dim=1)
        reset_BH = torch.sigmoid(input_r + state_r)
        update_BH = torch.sigmoid(input_z + state_z)
        return {
            "reset": reset_BH,
            "update": update_BH,
            "candidate": torch.tanh(input_n + reset_BH * state_n),
        }


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
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
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


# below this many steps, laying out the weights costs more than the faster loop saves
FEWEST_STEPS = 4


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

    half_pays = True

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
