"""The network: initialisation, dropout and connections."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from watched_networks import (
    KEPT,
    SHARE,
    VOCABULARY,
    Observed,
    assert_mean_is_one,
    batch,
    cells,
    make,
    mask_of,
)

from seqtool.lm.neural.cells import CELLS
from seqtool.lm.neural.network import NeuralNetwork

CELL_NAMES = sorted(CELLS)


# Initialisation.


def test_biases_are_zero_but_for_those_that_are_set() -> None:
    lstm = make(cell="lstm", hidden_size=6, forget_bias=1.5)
    (cell,) = cells(lstm)
    biases = dict(cell.named_parameters())
    total = biases["inner.bias_ih_l0"] + biases["inner.bias_hh_l0"]
    assert total.tolist() == [0.0] * 6 + [1.5] * 6 + [0.0] * 12  # i, f, g, o
    rhn = make(cell="rhn", hidden_size=2, depth=3, transform_bias=-4.0, carry="separate")
    assert dict(rhn.named_parameters())["cells.0.bias"].tolist() == [[0, 0, -4, -4, 4, 4]] * 3
    highway = make(cell="gru", hidden_size=3, layers=2, connection="highway", transform_bias=-1.0)
    for name, parameter in highway.named_parameters():
        if "bias" in name:
            assert parameter.tolist() == [-1.0 if "highways" in name else 0.0] * len(parameter)


@pytest.mark.parametrize("cell", CELL_NAMES)
def test_xavier_counts_each_gate_alone(cell: str) -> None:
    # Glorot & Bengio (2010): U(-a, a), a = sqrt(6 / (fan in + fan out)), the fan out of one gate
    settings = {"connection": "highway", "layers": 2, "init_range": 0.5, "window": 2}
    network = make(cell=cell, hidden_size=30, embedding_size=20, init="xavier", **settings)
    first = cells(network)[0]
    width = 2 * 20 if cell == "window" else 20
    blocks = [(block, width, 30) for block in first.input_blocks()]
    blocks += [(block, 30, 30) for block in first.recurrent_blocks()]
    blocks += [(network.softmax.weight, 30, VOCABULARY)]
    blocks += [(network.highways["1"].gate.weight, 30, 30)]  # type: ignore[union-attr, list-item]
    seen = sum(block.numel() for block, *_ in blocks[:-2])
    weights = [p for name, p in first.named_parameters() if "bias" not in name]
    assert seen == sum(parameter.numel() for parameter in weights)
    for block, fan_in, fan_out in blocks:
        bound = math.sqrt(6 / (fan_in + fan_out))
        assert 0.97 * bound < block.abs().max() <= bound
    assert 0.97 * 0.5 < network.embedding.weight.abs().max() <= 0.5


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "rhn"])
def test_orthogonal_and_identity_recurrence(cell: str) -> None:
    torch.manual_seed(0)
    eye = torch.eye(8)
    num_blocks = {"rnn": 1, "lstm": 4, "gru": 3, "rhn": 2 * 5}[cell]
    for kind in ("orthogonal", "identity"):
        network = make(cell=cell, hidden_size=8, recurrent_init=kind)
        blocks = cells(network)[0].recurrent_blocks()
        assert len(blocks) == num_blocks
        for block in blocks:
            product = block @ block.T if kind == "orthogonal" else block
            torch.testing.assert_close(product, eye.double(), rtol=0, atol=1e-6)
        assert kind == "identity" or not torch.equal(blocks[0], eye.double())


def test_identity_keeps_the_state_of_a_relu_network() -> None:
    # Le et al. (2015): h' = relu(0 + I h + 0) = h for a state that is not negative
    network = make(cell="rnn", activation="relu", hidden_size=5, recurrent_init="identity")
    state = torch.rand(3, 5, dtype=torch.float64)
    outputs, (last,) = cells(network)[0](torch.zeros(9, 3, 5, dtype=torch.float64), (state,))
    assert torch.equal(last, state)
    assert torch.equal(outputs, state.expand(9, 3, 5))


# Dropout, seen from outside: what enters and leaves each cell is compared with what would
# without it.


def input_mask(network: NeuralNetwork, ids_TB: Tensor) -> Tensor:
    return mask_of(Observed(network, ids_TB).given[0][0], network.embedding(ids_TB))


def output_mask(network: NeuralNetwork, ids_TB: Tensor) -> Tensor:
    seen = Observed(network, ids_TB)
    return mask_of(seen.hidden, seen.gave[-1])


@pytest.mark.parametrize(
    ("setting", "observe"), [("dropout_input", input_mask), ("dropout_output", output_mask)]
)
class TestUnitsDropped:
    def test_plain(self, setting: str, observe: Callable[[NeuralNetwork, Tensor], Tensor]) -> None:
        network = make(hidden_size=40, **{setting: SHARE}).train()
        mask = observe(network, batch(12))
        assert_mean_is_one(mask)
        assert not torch.equal(mask[0], mask[1])
        assert not torch.equal(mask[:, 0], mask[:, 1])
        assert not torch.equal(mask, observe(network, batch(12)))

    def test_variational(
        self, setting: str, observe: Callable[[NeuralNetwork, Tensor], Tensor]
    ) -> None:
        network = make(hidden_size=40, dropout="variational", **{setting: SHARE}).train()
        mask = observe(network, batch(12, num_streams=9))
        assert torch.equal(mask, mask[:1].expand_as(mask))
        assert_mean_is_one(mask[0])
        assert not torch.equal(mask[0, 0], mask[0, 1])
        assert not torch.equal(mask, observe(network, batch(12, num_streams=9)))


@pytest.mark.parametrize("dropout", ["plain", "variational"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "rhn"])
def test_state_has_one_mask_per_window_stream_and_layer(cell: str, dropout: str) -> None:
    network = make(cell=cell, hidden_size=60, layers=2, dropout_state=SHARE, dropout=dropout)
    masks = [mask for _, mask in Observed(network.train(), batch()).given]
    masks += [mask for _, mask in Observed(network.train(), batch()).given]
    for number, mask in enumerate(masks):
        assert mask is not None
        assert mask.shape == (4, 60)
        assert mask.unique().tolist() == pytest.approx([0.0, KEPT])
        assert_mean_is_one(mask)
        assert not torch.equal(mask[0], mask[1])
        for other in masks[:number]:
            assert other is not None
            assert not torch.equal(mask, other)
    assert [mask for _, mask in Observed(network.eval(), batch()).given] == [None, None]


# Connections.


@pytest.mark.parametrize("embedding_size", [5, 3])
@pytest.mark.parametrize("connection", ["plain", "residual", "dense", "highway"])
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_connections_are_their_formulas(cell: str, connection: str, embedding_size: int) -> None:
    network = make(
        cell=cell, hidden_size=5, embedding_size=embedding_size, layers=3, connection=connection
    )
    ids_TB = batch()
    below = [network.embedding(ids_TB)]  # the input of each layer
    for number, layer in enumerate(cells(network)):
        inputs = torch.cat(below, dim=2) if connection == "dense" else below[-1]
        outputs, _ = layer(inputs, layer.initial_state(4))
        joined = inputs.shape[2] == 5  # a first layer that changes the width is joined plainly
        if connection == "residual" and joined:
            outputs = outputs + inputs
        elif connection == "highway" and joined:
            gates = dict(network.highways[str(number)].named_parameters())
            t = torch.sigmoid(inputs @ gates["gate.weight"].T + gates["gate.bias"])
            outputs = t * outputs + (1 - t) * inputs
        below.append(outputs)
    hidden, states = network(ids_TB, network.initial_state(4))
    torch.testing.assert_close(hidden, below[-1], rtol=0, atol=1e-12)
    assert len(states) == 3


def test_autocast_on_a_cpu_leaves_the_layers_in_float32() -> None:
    network = make(cell="gru", hidden_size=6, layers=2).float()
    expected, _ = network(batch(), network.initial_state(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = network(batch(), network.initial_state(4))
    assert hidden.dtype == torch.float32
    assert torch.equal(hidden, expected)
