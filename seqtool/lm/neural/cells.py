"""Recurrent cells, each run over a whole window.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, P output
width (H, but for a projection), G gates (G x H columns), S additions to the memory in a window, N
context tokens of the fixed window, D recurrence depth of the recurrent highway cell (`highway`).

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

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core import runtime
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
        "rhn": "seqtool.lm.neural.highway:RecurrentHighwayCell",
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
        num_updates: how often something is added to the memory in each step; S / T.
        output_size: P.
        dropout_weights: share of the recurrent weights that is dropped in training.
    """

    num_updates = 0

    def __init__(self, input_size: int, hidden_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.output_size = hidden_size
        self.dropout_weights = config.dropout_weights

    @property
    def bf16_pays(self) -> bool:
        """Whether its products in bfloat16 are faster on this CPU, with all else in float32."""
        return False

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
            # torch's loops have a dimension of layers before the others
            start = tuple(part[None].contiguous() for part in state)
            with warnings.catch_warnings():
                if weights[1] is not self._weights()[1]:
                    # those that dropout made lie by themselves; cuDNN copies them, and says so
                    warnings.filterwarnings("ignore", "RNN module weights are not part of single")
                outputs_TBP, *last = self._loop(inputs_TBI, start, weights)
            return outputs_TBP, tuple(part[0] for part in last)
        weight_GI, weight_GP, bias_input_G, bias_state_G = weights[:4]
        # one product for all steps: only that with the state has to wait for the step before
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

    Under autocast, the loop of the CPU makes products in bfloat16, and keeps the state in float32.
    """

    num_updates = 1

    @property
    def bf16_pays(self) -> bool:
        """Whether this processor has fast products of bfloat16, and the loop of the CPU runs."""
        return numpy_is_fast() and runtime.has_bf16_products()

    def _make(self, input_size: int, hidden_size: int, config: ModelConfig) -> nn.RNNBase:
        self.output_size = config.projection_size or hidden_size
        return nn.LSTM(input_size, hidden_size, proj_size=config.projection_size or 0)

    def forward(
        self, inputs_TBI: Tensor, state: State, mask_BP: Mask = None, update_SBH: Mask = None
    ) -> tuple[Tensor, State]:
        """Run over a window; return the outputs (T, B, P) and the state after it.

        Where the loop of torch.nn cannot, or is slower, that of the CPU does.
        """
        is_fast = inputs_TBI.device.type == "cpu" and numpy_is_fast()
        bf16 = is_fast and torch.is_autocast_enabled("cpu")
        if not is_fast or (mask_BP is None and update_SBH is None and not bf16):
            return super().forward(inputs_TBI, state, mask_BP, update_SBH)
        from seqtool.lm.neural.lstm_cpu import FeatureMajorLSTM

        weight_GI, weight_GP, bias_input_G, bias_state_G, *projection = self._weights()
        outputs_TBP, memory_BH = FeatureMajorLSTM.apply(  # type: ignore[no-untyped-call]
            inputs_TBI.to(state[0].dtype),
            *state,
            weight_GI,
            functional.dropout(weight_GP, self.dropout_weights, self.training),
            bias_input_G + bias_state_G,  # torch has two, but their sum is all that counts
            mask_BP,
            update_SBH,
            projection[0] if projection else None,
            bf16,
            torch.is_grad_enabled(),
        )
        return outputs_TBP, (outputs_TBP[-1], memory_BH)

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

    def initialise_biases(self, config: ModelConfig) -> None:
        """Set all to zero, but for the forget gate's."""
        super().initialise_biases(config)
        forget = slice(self.hidden_size, 2 * self.hidden_size)
        # one of torch's two biases: the gate has their sum
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
        # n + z (h - n), which is torch.nn's (1 - z) n + z h
        return (torch.lerp(new_BH, state[0], gates["update"]),)

    def _gates(self, projected_BG: Tensor, recurrent_BG: Tensor) -> Gates:
        input_r, input_z, input_n = projected_BG.chunk(3, dim=1)
        state_r, state_z, state_n = recurrent_BG.chunk(3, dim=1)
        reset_BH = torch.sigmoid(input_r + state_r)
        update_BH = torch.sigmoid(input_z + state_z)
        return {
            "reset": reset_BH,
            "update": update_BH,
            # torch.nn's variant: the reset gate acts on the product, not on the state before it
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
        # the oldest input first: step t reads rows t to t + N - 1, of which the last is its own
        contexts = [all_SBI[n : n + num_steps] for n in range(self.num_tokens)]
        outputs_TBH = torch.tanh(
            functional.linear(torch.cat(contexts, dim=2), self.weight, self.bias)
        )
        # the last N - 1 inputs, older ones among them where the window has fewer
        return outputs_TBH, (all_SBI[num_steps:].transpose(0, 1),)
