"""Recurrent cells, each written once as its equations, and run over a whole window.

    rnn      h' = f(W x + R h + b)
    lstm     i, f, o = sigmoid(W x + R h + b), g = tanh(W x + R h + b)
             c' = f * c + i * g;  h' = o * tanh(c'), or P (o * tanh(c')) with a projection
    gru      r, z = sigmoid(W x + R h + b), n = tanh(W x + b + r * (R h + b))
             h' = (1 - z) * n + z * h
    rhn      D times: s' = h * t + s * c with h = tanh(.), t, c = sigmoid(W x + R s + b)
    window   h = tanh(W [x(t-N+1); ...; x(t)] + b)

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, P output
width (H, but for a projection), G gates (G x H columns), S additions to the memory in a window, N
context tokens of the fixed window, D recurrence depth of the recurrent highway network.

A state is a tuple of tensors whose first dimension is B, so that streams can be selected and
repeated. `mask` (B, P) multiplies the recurrent state wherever it enters a product: variational
dropout, one mask per window, shared over time and depth (Gal & Ghahramani 2016; Zilly et al. 2017).
`update` (S, B, H) multiplies what is added to the memory, so that the memory is kept: recurrent
dropout without memory loss (Semeniuta et al. 2016). A cell drops its recurrent weights itself, in
training, one mask per window (Merity et al. 2018).

Whole windows of rnn (tanh, ReLU), lstm and gru run in the loops of torch.nn unless something inside
them is masked. torch has no loop for rhn: `highway` has. One of our own for the LSTM in bf16 had
whole training steps, beside torch's in bf16 (one core of an EPYC, AVX-512): of 256 units and 20
streams 47.4 and 46.6 ms, of 640 units and 64 streams 397 and 442. That was not worth its lines.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core import runtime
from seqtool.core.config import Registry
from seqtool.lm.neural.config import ModelConfig
from seqtool.training import hardware

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


class Cell(nn.Module, ABC):
    """One recurrent layer.

    Args:
        input_size: I.
        hidden_size: H, the width of the output.
        config: settings of the cell.

    Attributes:
        num_updates: how often something is added to the memory in each step; S / T.
        output_size: P.
        dropout_weights: share of the recurrent weights that is dropped in training.
    """

    num_updates = 0

    @property
    def bf16_on_cpu(self) -> bool:
        """Whether it pays to let its products be in bfloat16 on this CPU."""
        return False

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

    @abstractmethod
    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, P) and the state after it."""

    def step(self, inputs_BI: Tensor, state: State) -> State:
        """Return the state after one input; its first part is the output."""
        raise TypeError(f"{type(self).__name__} has no recurrent state")

    def gates(self, inputs_BI: Tensor, state: State) -> list[Gates]:
        """Return the gates and the candidate of each micro-step of `step`."""
        raise TypeError(f"{type(self).__name__} has no recurrent state")

    @abstractmethod
    def input_blocks(self) -> list[Tensor]:
        """Return views of the weights that read the inputs, one per gate, to initialise them."""

    def recurrent_blocks(self) -> list[Tensor]:
        """Return views (H, P) of the recurrent weights, one per gate, to initialise them."""
        return []

    def output_blocks(self) -> list[Tensor]:
        """Return the weights (P, H) of the projection, if there is one, to initialise them."""
        return []

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set the biases that the configuration names; all others are zero."""
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)


class _TorchCell(Cell):
    """A cell of torch.nn, whose loop runs unless something inside it is masked.

    Under autocast products alone are in bfloat16, but for torch's LSTM, which rounds its state too.

    Weights are those of torch.nn: `weight_ih_l0` (G x H, I), `weight_hh_l0` (G x H, P), and two
    biases, in its gate order.

    Attributes:
        has_loop: whether torch.nn has a loop for it.
    """

    has_loop = True

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__(input_size, hidden_size, config)
        self.inner = self._make(input_size, hidden_size, config)

    @abstractmethod
    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        """Return the module of torch.nn, whose weights are the cell's."""

    @abstractmethod
    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        """Return what torch.nn's loop gives: the outputs and each part of the state."""

    @abstractmethod
    def equations(
        self, input_BG: Tensor, state_BG: Tensor, state: State, update_BH: Mask = None
    ) -> tuple[State, Gates]:
        """Return the state after one step, and its gates.

        Args:
            input_BG: W x + b of all gates.
            state_BG: R h + b of all gates.
            state: the state before the step.
            update_BH: multiplies what is added to the memory.
        """

    def _products(self, inputs_BI: Tensor, state: State) -> tuple[Tensor, Tensor]:
        weight_GI, weight_GP, bias_input_G, bias_state_G = self._weights()[:4]
        input_BG = functional.linear(inputs_BI, weight_GI, bias_input_G)
        return input_BG, functional.linear(state[0], weight_GP, bias_state_G)

    def step(self, inputs_BI: Tensor, state: State) -> State:
        """Return the state after one input."""
        return self.equations(*self._products(inputs_BI, state), state)[0]

    def gates(self, inputs_BI: Tensor, state: State) -> list[Gates]:
        """Return the gates and the candidate of the only micro-step."""
        return [self.equations(*self._products(inputs_BI, state), state)[1]]

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, P) and the state after it."""
        weights: list[Tensor] = list(self._weights())
        dtype = state[0].dtype
        weights[1] = functional.dropout(weights[1], self.dropout_weights, self.training)
        if self.has_loop and mask_BP is None and update_SBH is None:
            # torch's loops have a dimension of layers before the others
            start = tuple(part[None].contiguous() for part in state)
            with warnings.catch_warnings():
                # cuDNN copies weights that dropout made, and says so; oneDNN has no projection
                warnings.filterwarnings("ignore", "RNN module weights are not part of single")
                warnings.filterwarnings("ignore", "LSTM with projections is not supported with")
                outputs_TBP, *last = self._loop(inputs_TBI, start, weights)
            return outputs_TBP.to(dtype), tuple(part[0].to(dtype) for part in last)
        weight_GI, weight_GP, bias_input_G, bias_state_G = weights[:4]
        # one product for all steps: only that with the state has to wait for the step before
        input_TBG = functional.linear(inputs_TBI, weight_GI, bias_input_G).to(dtype)
        updates = [None] * len(inputs_TBI) if update_SBH is None else update_SBH.unbind(0)
        outputs = []
        for input_BG, update_BH in zip(input_TBG.unbind(0), updates, strict=True):
            entering_BP = state[0] if mask_BP is None else state[0] * mask_BP
            state_BG = functional.linear(entering_BP, weight_GP, bias_state_G).to(dtype)
            state, _ = self.equations(input_BG, state_BG, state, update_BH)
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
    learnt (He et al. 2015), or the logistic function. torch has loops of the first two.
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

    def equations(
        self, input_BG: Tensor, state_BG: Tensor, state: State, update_BH: Mask = None
    ) -> tuple[State, Gates]:
        """Return h', which is the candidate itself."""
        new_BH = self.activate(input_BG + state_BG)
        return (new_BH,), {"candidate": new_BH}

    def slopes(self, inputs_BI: Tensor, state: State) -> Tensor:
        """Return f' of the sums of a step, (B, H)."""
        input_BH, state_BH = self._products(inputs_BI, state)
        sums_BH = (input_BH + state_BH).detach().requires_grad_()
        with torch.enable_grad():
            # f is elementwise: the gradient of the sum of f is f' at each place
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
    """

    num_updates = 1

    @property
    def bf16_on_cpu(self) -> bool:
        """Whether the processor has fast products of bfloat16, and torch a loop for it."""
        return runtime.has_bf16_products() and hardware.has_bf16_layers()

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        self.output_size = config.projection_size or hidden_size
        return nn.LSTM(input_size, hidden_size, proj_size=config.projection_size or 0)

    def initial_state(self, batch: int) -> State:
        """Return the zero state: output (B, P) and memory (B, H)."""
        (zeros_BP,) = super().initial_state(batch)
        return zeros_BP, zeros_BP.new_zeros(batch, self.hidden_size)

    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        return torch.lstm(inputs_TBI, start, weights, *self._options())

    def equations(
        self, input_BG: Tensor, state_BG: Tensor, state: State, update_BH: Mask = None
    ) -> tuple[State, Gates]:
        """Return h' and c', and the gates."""
        i, f, g, o = (input_BG + state_BG).chunk(4, dim=1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        added_BH = i * g if update_BH is None else i * g * update_BH
        memory_BH = f * state[1] + added_BH
        output_BP = o * torch.tanh(memory_BH)
        for weight_PH in self.output_blocks():
            output_BP = functional.linear(output_BP, weight_PH)
        return (output_BP, memory_BH), {"input": i, "forget": f, "candidate": g, "output": o}

    def output_blocks(self) -> list[Tensor]:
        """Return the weights (P, H) of the projection, if there is one."""
        return list(self._weights()[4:])

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set all to zero, but for the forget gate's."""
        super().initialise_biases(config)
        forget = slice(self.hidden_size, 2 * self.hidden_size)
        # one of torch's two biases: the gate has their sum
        nn.init.constant_(self._weights()[2][forget], config.forget_bias)


class GRUCell(_TorchCell):
    """Gated recurrent unit (Cho et al. 2014; gates r, z, n as torch.nn has).

    As in torch.nn, the reset gate acts on the product with the state, not on the state before it.
    """

    num_updates = 1

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        return nn.GRU(input_size, hidden_size)

    def _loop(self, inputs_TBI: Tensor, start: State, weights: list[Tensor]) -> Sequence[Tensor]:
        return torch.gru(inputs_TBI, start[0], weights, *self._options())

    def equations(
        self, input_BG: Tensor, state_BG: Tensor, state: State, update_BH: Mask = None
    ) -> tuple[State, Gates]:
        """Return h' = n + z (h - n), and the gates."""
        input_r, input_z, input_n = input_BG.chunk(3, dim=1)
        state_r, state_z, state_n = state_BG.chunk(3, dim=1)
        r, z = torch.sigmoid(input_r + state_r), torch.sigmoid(input_z + state_z)
        n = torch.tanh(input_n + r * state_n)
        added_BH = n if update_BH is None else n * update_BH
        gates = {"reset": r, "update": z, "candidate": n}
        return (torch.lerp(added_BH, state[0], z),), gates


class RecurrentHighwayCell(Cell):
    """Recurrent highway network (Zilly et al. 2017, eqs. 6-9).

    In each of D micro-steps, s' = h * t + s * c with h = tanh(.), t = sigmoid(.) and the carry gate
    c = 1 - t (coupled) or a sigmoid of its own; the input enters the first micro-step only.

    Weights, gates in the order h, t (, c):
        weight_input   (G x H, I)
        weight_state   (D, H, G x H)   used as `state @ weight`
        bias           (D, G x H)
    """

    @property
    def bf16_on_cpu(self) -> bool:
        """True: it has a loop of its own for it."""
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
        weight_DHG = functional.dropout(self.weight_state, self.dropout_weights, self.training)
        from seqtool.lm.neural import highway  # imports Numba

        run = highway.loop_for(inputs_TBI, update_SBH)
        if run is not None:
            weights = self.weight_input, weight_DHG, self.bias
            outputs_TBH = run(inputs_TBI, state[0], *weights, mask_BP, update_SBH)
            return outputs_TBH, (outputs_TBH[-1],)
        (state_BH,), outputs = state, []
        updates = iter([None] * len(inputs_TBI) * self.depth if update_SBH is None else update_SBH)
        for inputs_BI in inputs_TBI.unbind(0):
            for level in range(self.depth):
                state_BH, _ = self.micro_step(
                    level, inputs_BI, state_BH, weight_DHG[level], mask_BP, next(updates)
                )
            outputs.append(state_BH)
        return torch.stack(outputs), (state_BH,)

    def micro_step(
        self,
        level: int,
        inputs_BI: Tensor,
        state_BH: Tensor,
        weight_HG: Tensor | None = None,
        mask_BH: Mask = None,
        update_BH: Mask = None,
    ) -> tuple[Tensor, Gates]:
        """Return the state after micro-step `level`, from 0, and its gates.

        The weight is the cell's own unless another one is given.
        """
        weight_HG = self.weight_state[level] if weight_HG is None else weight_HG
        entering_BH = state_BH if mask_BH is None else state_BH * mask_BH
        sums_BG = functional.linear(entering_BH, weight_HG.t(), self.bias[level])
        if level == 0:
            sums_BG = sums_BG + functional.linear(inputs_BI, self.weight_input)
        h, t, *carry = torch.split(sums_BG.to(state_BH.dtype), self.hidden_size, dim=1)
        h, t = torch.tanh(h), torch.sigmoid(t)
        gates, added_BH = (
            {"candidate": h, "transform": t},
            h if update_BH is None else h * update_BH,
        )
        if not carry:  # coupled: c = 1 - t
            return torch.lerp(state_BH, added_BH, t), gates
        gates["carry"] = torch.sigmoid(carry[0])
        return added_BH * t + state_BH * gates["carry"], gates

    def step(self, inputs_BI: Tensor, state: State) -> State:
        """Return the state after one input."""
        (state_BH,) = state
        for level in range(self.depth):
            state_BH, _ = self.micro_step(level, inputs_BI, state_BH)
        return (state_BH,)

    def gates(self, inputs_BI: Tensor, state: State) -> list[Gates]:
        """Return the gates and the candidate of each micro-step."""
        (state_BH,), all_gates = state, []
        for level in range(self.depth):
            state_BH, gates = self.micro_step(level, inputs_BI, state_BH)
            all_gates.append(gates)
        return all_gates

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
        # the oldest input first: step t reads rows t to t + N - 1, of which the last is its own
        contexts = [all_SBI[n : n + num_steps] for n in range(self.num_tokens)]
        outputs_TBH = torch.tanh(
            functional.linear(torch.cat(contexts, dim=2), self.weight, self.bias)
        )
        # the last N - 1 inputs, older ones among them where the window has fewer
        return outputs_TBH, (all_SBI[num_steps:].transpose(0, 1),)
