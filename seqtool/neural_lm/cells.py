"""Recurrent cells, each run over a whole window.

Dimensions in names: T steps of the window, B parallel streams, I input width, H units, G gates
(G x H columns), N context tokens of the fixed window.

A cell answers `initial_state(batch)` and `forward(inputs, state, mask)`. A state is a tuple of
tensors whose first dimension is B, so that streams can be selected and repeated. `mask` (B, H)
multiplies the recurrent state wherever it enters a product: variational dropout, one mask per
window, shared over time and depth (Gal & Ghahramani 2016; Zilly et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
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
        "rhn": "seqtool.neural_lm.highway:RecurrentHighwayCell",
        "window": "seqtool.neural_lm.cells:WindowCell",
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
    """

    half_pays = False

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
