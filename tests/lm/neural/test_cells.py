"""Cells against torch.nn, transcribed equations, brute force and numerical gradients."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from toy_cells import ids, make

from seqtool.lm.neural.cells import CELLS, Cell, State
from seqtool.lm.neural.config import ModelConfig

# (T, B, I, H): one of everything, and odd sizes
SIZES = [(1, 1, 1, 1), (1, 3, 2, 5), (7, 1, 3, 2), (5, 3, 4, 6)]
TORCH_CELLS: list[tuple[str, dict[str, Any], type[nn.RNNBase]]] = [
    ("rnn", {"activation": "tanh"}, nn.RNN),
    ("rnn", {"activation": "relu"}, nn.RNN),
    ("lstm", {}, nn.LSTM),
    ("gru", {}, nn.GRU),
]
ACTIVATIONS: list[tuple[dict[str, Any], nn.Module]] = [
    ({"activation": "leaky-relu"}, nn.LeakyReLU(0.01)),
    ({"activation": "leaky-relu", "activation_slope": 0.2}, nn.LeakyReLU(0.2)),
    ({"activation": "parametric-relu"}, nn.PReLU(6)),
    ({"activation": "logistic"}, nn.Sigmoid()),
]
RHNS = [
    {"depth": depth, "carry": carry}
    for depth, carry in itertools.product((1, 2, 5), ("coupled", "separate"))
]
EVERY_CELL: list[tuple[str, dict[str, Any]]] = [
    *((name, settings) for name, settings, _ in TORCH_CELLS),
    *(("rnn", settings) for settings, _ in ACTIVATIONS),
    *(("rhn", settings) for settings in RHNS),
    *(("window", {"window": window}) for window in (1, 2, 4)),
]


def random_inputs(cell: Cell, num_steps: int, batch: int) -> tuple[Tensor, State]:
    """Return inputs (T, B, I) and a state, both to be differentiated."""
    generator = torch.Generator().manual_seed(num_steps)
    inputs = torch.randn(
        num_steps, batch, cell.input_size, generator=generator, dtype=torch.float64
    )
    state = tuple(
        torch.randn(part.shape, generator=generator, dtype=torch.float64).requires_grad_()
        for part in cell.initial_state(batch)
    )
    return inputs.requires_grad_(), state


class Result(NamedTuple):
    """What a run gives, and its gradients in the order of the leaves."""

    outputs: Tensor
    state: State
    gradients: tuple[Tensor, ...]


def differentiate(outputs: Tensor, state: State, leaves: list[Tensor]) -> Result:
    """Differentiate a random weighting of everything that comes out."""
    generator = torch.Generator().manual_seed(3)
    total = torch.zeros((), dtype=torch.float64)
    for part in (outputs, *state):
        weights = torch.randn(part.shape, generator=generator, dtype=torch.float64)
        total = total + (part * weights).sum()
    return Result(outputs, state, torch.autograd.grad(total, leaves))


def assert_same(one: Result, other: Result) -> None:
    for a, b in zip(
        (one.outputs, *one.state, *one.gradients),
        (other.outputs, *other.state, *other.gradients),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def run_torch(
    kind: type[nn.RNNBase], cell: Cell, inputs: Tensor, state: State, config: dict[str, Any]
) -> tuple[Tensor, State, list[Tensor]]:
    """Run a module of torch.nn with the cell's weights copied into it."""
    arguments = {"nonlinearity": config["activation"]} if "activation" in config else {}
    judge = kind(cell.input_size, cell.hidden_size, **arguments).double()
    own = dict(cell.named_parameters())
    with torch.no_grad():
        for name, parameter in judge.named_parameters():
            parameter.copy_(own[f"inner.{name}"])
    start: Any = tuple(part[None] for part in state)
    outputs, last = judge(inputs, start if kind is nn.LSTM else start[0])
    lasts = last if kind is nn.LSTM else (last,)
    return outputs, tuple(part[0] for part in lasts), list(judge.parameters())


@pytest.mark.parametrize("masked", [False, True], ids=["compiled", "steps"])
@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize(("name", "settings", "kind"), TORCH_CELLS, ids=ids)
def test_agrees_with_torch(
    name: str,
    settings: dict[str, Any],
    kind: type[nn.RNNBase],
    sizes: tuple[int, ...],
    masked: bool,
) -> None:
    num_steps, batch, input_size, hidden_size = sizes
    cell = make(name, input_size, hidden_size, **settings)
    inputs, state = random_inputs(cell, num_steps, batch)
    mask = torch.ones(batch, hidden_size, dtype=torch.float64) if masked else None
    ours = differentiate(*cell(inputs, state, mask), [inputs, *state, *cell.parameters()])
    outputs, last, weights = run_torch(kind, cell, inputs, state, settings)
    assert_same(ours, differentiate(outputs, last, [inputs, *state, *weights]))


@pytest.mark.parametrize(("settings", "activation"), ACTIVATIONS, ids=ids)
def test_activations_agree_with_torch(settings: dict[str, Any], activation: nn.Module) -> None:
    cell = make("rnn", 4, 6, **settings)
    inputs, state = random_inputs(cell, 5, 3)
    ours = differentiate(*cell(inputs, state), [inputs, *state, *cell.parameters()])
    reader, recurrent = nn.Linear(4, 6).double(), nn.Linear(6, 6).double()
    activation = activation.double()
    own = dict(cell.named_parameters())
    slopes = [own.pop("slope_H")] if "slope_H" in own else []
    modules = {"ih": reader, "hh": recurrent}
    with torch.no_grad():
        for name, value in own.items():  # inner.weight_ih_l0
            kind, _, which = name.removeprefix("inner.").removesuffix("_l0").partition("_")
            modules[which].get_parameter(kind).copy_(value)
        for parameter, value in zip(activation.parameters(), slopes, strict=True):
            parameter.copy_(value)
    (hidden,), outputs = state, []
    for step in inputs:
        hidden = activation(reader(step) + recurrent(hidden))
        outputs.append(hidden)
    leaves = [*activation.parameters()]
    for name in own:
        kind, _, which = name.removeprefix("inner.").removesuffix("_l0").partition("_")
        leaves.append(modules[which].get_parameter(kind))
    theirs = differentiate(torch.stack(outputs), (hidden,), [inputs, *state, *leaves])
    assert_same(ours, theirs)


@pytest.mark.parametrize(("name", "settings", "kind"), TORCH_CELLS, ids=ids)
def test_mask_is_a_scaling_of_recurrent_columns(
    name: str, settings: dict[str, Any], kind: type[nn.RNNBase]
) -> None:
    # R (m * h) = (R diag(m)) h, and only there: what else reads h (the GRU's carry) sees it whole
    cell = make(name, 3, 4, **settings)
    inputs, state = random_inputs(cell, 6, 2)
    mask = torch.tensor([[0.0, 2.0, 2.0, 0.0], [2.0, 0.0, 2.0, 2.0]], dtype=torch.float64)
    outputs, last = cell(inputs, state, mask)
    for stream in range(2):
        scaled = make(name, 3, 4, **settings)
        with torch.no_grad():
            for block in scaled.recurrent_blocks():
                block *= mask[stream]
        alone = slice(stream, stream + 1)
        expected, expected_last, _ = run_torch(
            kind, scaled, inputs[:, alone], tuple(part[alone] for part in state), settings
        )
        torch.testing.assert_close(outputs[:, alone], expected, rtol=0, atol=1e-12)
        for part, expected_part in zip(last, expected_last, strict=True):
            torch.testing.assert_close(part[alone], expected_part, rtol=0, atol=1e-12)


def transcribed_rhn(
    cell: Cell, inputs: Tensor, state: Tensor, mask: Tensor | None, depth: int, carry: str
) -> Tensor:
    """Zilly et al. (2017), eqs. 6-9, one stream and one micro-step at a time.

    s_l = h_l * t_l + s_(l-1) * c_l                              (6)
    h_l = tanh(W_H x [l = 1] + R_(H l) s_(l-1) + b_(H l))        (7)
    t_l = sigmoid(W_T x [l = 1] + R_(T l) s_(l-1) + b_(T l))     (8)
    c_l = sigmoid(W_C x [l = 1] + R_(C l) s_(l-1) + b_(C l))     (9), or 1 - t_l when coupled
    """
    weights = dict(cell.named_parameters())
    size = cell.hidden_size
    rows = {"H": slice(0, size), "T": slice(size, 2 * size), "C": slice(2 * size, 3 * size)}
    gates = "HTC" if carry == "separate" else "HT"
    w = {gate: weights["weight_input"][rows[gate]] for gate in gates}
    r = {
        (gate, level): weights["weight_state"][level][:, rows[gate]].T
        for gate in gates
        for level in range(depth)
    }
    b = {
        (gate, level): weights["bias"][level, rows[gate]]
        for gate in gates
        for level in range(depth)
    }
    streams = []
    for stream in range(inputs.shape[1]):
        s = state[stream]
        outputs = []
        for x in inputs[:, stream]:
            for level in range(depth):
                noisy = s if mask is None else s * mask[stream]
                sums = {gate: r[gate, level] @ noisy + b[gate, level] for gate in gates}
                if level == 0:
                    sums = {gate: value + w[gate] @ x for gate, value in sums.items()}
                h, t = torch.tanh(sums["H"]), torch.sigmoid(sums["T"])
                c = torch.sigmoid(sums["C"]) if carry == "separate" else 1 - t
                s = h * t + s * c
            outputs.append(s)
        streams.append(torch.stack(outputs))
    return torch.stack(streams, dim=1)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize("settings", RHNS, ids=ids)
def test_rhn_agrees_with_its_equations(
    settings: dict[str, Any], sizes: tuple[int, ...], masked: bool
) -> None:
    num_steps, batch, input_size, hidden_size = sizes
    cell = make("rhn", input_size, hidden_size, **settings)
    inputs, state = random_inputs(cell, num_steps, batch)
    generator = torch.Generator().manual_seed(5)
    mask = None
    if masked:
        mask = torch.empty(batch, hidden_size, dtype=torch.float64)
        mask = mask.bernoulli_(0.5, generator=generator) * 2
    leaves = [inputs, *state, *cell.parameters()]
    expected = transcribed_rhn(cell, inputs, state[0], mask, **settings)
    assert_same(
        differentiate(*cell(inputs, state, mask), leaves),
        differentiate(expected, (expected[-1],), leaves),
    )


@pytest.mark.parametrize("carry", ["coupled", "separate"])
@pytest.mark.parametrize("bias", [-4.0, -2.0, 0.0, 1.0])
@pytest.mark.parametrize("depth", [1, 3, 10])
def test_rhn_carries_its_state_at_initialisation(carry: str, bias: float, depth: int) -> None:
    # with zero weights h = tanh(0) = 0, so per micro-step only the carry gate acts: 1 - sigmoid(b)
    config = ModelConfig(cell="rhn", hidden_size=4, depth=depth, carry=carry, transform_bias=bias)
    cell = CELLS["rhn"](3, 4, config).double()
    for parameter in cell.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        cell.initialise_biases(config)
    inputs, (state,) = random_inputs(cell, 6, 2)
    outputs, _ = cell(inputs, (state,))
    per_step = (1 - torch.sigmoid(torch.tensor(bias, dtype=torch.float64))) ** depth
    for t in range(6):
        torch.testing.assert_close(outputs[t], state * per_step ** (t + 1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 5])
@pytest.mark.parametrize("num_steps", [1, 2, 7])
def test_window_is_a_concatenation_of_the_last_tokens(num_tokens: int, num_steps: int) -> None:
    cell = make("window", 3, 4, window=num_tokens)
    weights = dict(cell.named_parameters())
    inputs, _ = random_inputs(cell, num_steps, 2)
    outputs, _ = cell(inputs, cell.initial_state(2))
    for t, stream in itertools.product(range(num_steps), range(2)):
        context = [
            inputs[at, stream] if at >= 0 else torch.zeros(3, dtype=torch.float64)
            for at in range(t - num_tokens + 1, t + 1)
        ]
        expected = torch.tanh(weights["weight"] @ torch.cat(context) + weights["bias"])
        torch.testing.assert_close(outputs[t, stream], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize(("name", "settings"), EVERY_CELL, ids=ids)
def test_pieces_give_what_the_whole_gives(
    name: str, settings: dict[str, Any], sizes: tuple[int, ...], masked: bool
) -> None:
    num_steps, batch, input_size, hidden_size = sizes
    cell = make(name, input_size, hidden_size, **settings)
    inputs, state = random_inputs(cell, num_steps, batch)
    mask = torch.full((batch, hidden_size), 0.7, dtype=torch.float64) if masked else None
    whole, last = cell(inputs, state, mask)
    assert whole.shape == (num_steps, batch, hidden_size)
    for cut in range(1, num_steps):
        first, between = cell(inputs[:cut], state, mask)
        second, end = cell(inputs[cut:], between, mask)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=1e-12)
        for part, expected in zip(end, last, strict=True):
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-12)
