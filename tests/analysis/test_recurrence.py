"""The maps that networks are, against the networks themselves, finite differences and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor
from toy_recurrence import NETWORKS, make_model, make_network

from seqtool.analysis import recurrence
from seqtool.lm.neural.cells import Cell
from seqtool.lm.neural.network import NeuralNetwork

IDS = np.random.default_rng(2).integers(0, 10, 30).astype(np.int32)


def differences(function: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-6) -> Tensor:
    """Return the Jacobian [M, S] of a function of a vector [S], by central differences."""
    columns = []
    for direction in torch.eye(len(at), dtype=torch.float64):
        above, below = function(at + step * direction), function(at - step * direction)
        columns.append((above - below) / (2 * step))
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_those_of_the_network(name: str) -> None:
    network = make_network(**NETWORKS[name])
    states = recurrence.states_at(network, IDS, [0, 4, 21])
    ids_TB = recurrence.cut(IDS, [0, 4, 21], 6)
    for layers in recurrence.make_steps(network, ids_TB, states):
        last = layers
    _, expected = network.run_layers(recurrence.as_tensor(IDS)[:6, None], network.initial_state(1))
    for layer, state in zip(last, expected, strict=False):
        for part, expected_part in zip(layer.after, state, strict=True):
            torch.testing.assert_close(part[:1], expected_part, rtol=0, atol=1e-12)
    _, expected = network.run_layers(recurrence.as_tensor(IDS)[:27, None], network.initial_state(1))
    for layer, state in zip(last, expected, strict=False):
        for part, expected_part in zip(layer.after, state, strict=True):
            torch.testing.assert_close(part[2:], expected_part, rtol=0, atol=1e-12)


def random_steps(network: NeuralNetwork) -> list[recurrence.LayerStep]:
    states = recurrence.states_at(network, IDS, [3, 9])
    (layers,) = recurrence.make_steps(network, recurrence.cut(IDS, [3, 9], 1), states)
    return layers


@pytest.mark.parametrize("name", NETWORKS)
def test_temporal_jacobians_are_finite_differences(name: str) -> None:
    for layer in random_steps(make_network(**NETWORKS[name])):
        found = recurrence.temporal_jacobians(layer.cell, layer.inputs_BI, layer.before)
        for row in range(2):
            like = tuple(part[row : row + 1] for part in layer.before)

            def step(flat: Tensor, layer: recurrence.LayerStep = layer, row: int = row) -> Tensor:
                like = tuple(part[row : row + 1] for part in layer.before)
                state = recurrence.unflatten(flat[None], like)
                _, after = layer.cell(layer.inputs_BI[None, row : row + 1], state)
                return recurrence.flatten(after)[0]

            expected = differences(step, recurrence.flatten(like)[0])
            torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", NETWORKS)
def test_gates_make_the_step(name: str) -> None:
    """The candidate and the gates give the next state by the cell's own equation."""
    for layer in random_steps(make_network(**NETWORKS[name])):
        memory = layer.before[-1]
        for gates in layer.cell.gates(layer.inputs_BI, layer.before):
            new = gates["candidate"]
            if "forget" in gates:
                memory = gates["forget"] * memory + gates["input"] * new
            elif "update" in gates:
                memory = (1 - gates["update"]) * new + gates["update"] * memory
            elif "transform" in gates:
                carry = gates.get("carry", 1 - gates["transform"])
                memory = new * gates["transform"] + memory * carry
            else:
                memory = new
        torch.testing.assert_close(memory, layer.after[-1], rtol=0, atol=1e-14)


@hypothesis_settings(max_examples=40)
@given(
    name=st.sampled_from(
        [
            name
            for name in NETWORKS
            if "-" not in name or "rnn" in name or "sep" in name or "proj" in name
        ]
    ),
    scale=st.floats(0.05, 4.0),
    seed=st.integers(0, 1000),
)
def test_no_product_exceeds_the_bound(name: str, scale: float, seed: int) -> None:
    network = make_network(4, scale=scale, seed=seed, **NETWORKS[name])
    states = recurrence.states_at(network, IDS, [2])
    steps = recurrence.make_steps(network, recurrence.cut(IDS, [2], 6), states)
    for of_layer in zip(*steps, strict=True):
        bound, product = 1.0, torch.eye(1, dtype=torch.float64)
        for number, layer in enumerate(of_layer):
            arguments = layer.cell, layer.inputs_BI, layer.before
            matrix = recurrence.temporal_jacobians(*arguments)[0]
            product = matrix @ product if number else matrix
            bound *= float(recurrence.jacobian_bounds(*arguments))
            assert float(recurrence.spectral_norms(product)) <= bound * (1 + 1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"cell": "rnn"},
        {"cell": "rnn", "activation": "logistic"},
        {"cell": "lstm"},
        {"cell": "lstm", "projection_size": 1},
        {"cell": "gru"},
        {"cell": "rhn", "depth": 2},
        {"cell": "rhn", "depth": 2, "carry": "separate"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_one_unit_meets_the_bound(settings: dict[str, Any]) -> None:
    """Of one unit a slope is the sum of the terms of the bound, each with a sign.

    So a bound that lacks a term is exceeded by some network, and one with a term too many, or too
    large, is met by none.
    """
    size = 1 + ("projection_size" in settings)
    shares = []
    for seed in range(30):
        network = make_network(size, scale=3.0, seed=seed, **settings)
        positions = [2, 7, 12, 20]
        states = recurrence.states_at(network, IDS, positions)
        ((layer,),) = recurrence.make_steps(network, recurrence.cut(IDS, positions, 1), states)
        arguments = layer.cell, layer.inputs_BI, layer.before
        norms = recurrence.spectral_norms(recurrence.temporal_jacobians(*arguments))
        shares += (norms / recurrence.jacobian_bounds(*arguments)).tolist()
    assert 0.99 < max(shares) <= 1 + 1e-9


def test_the_bound_of_a_plain_network_is_gamma_times_the_norm() -> None:
    network = make_network(cell="rnn")
    cell = network.cells[0]
    assert isinstance(cell, Cell)
    (layer,) = random_steps(network)
    (weight,) = cell.recurrent_blocks()
    gamma = (1 - layer.after[0] ** 2).amax(dim=1)  # the slope of tanh, from its value
    expected = gamma * np.linalg.norm(weight.numpy(), 2)
    found = recurrence.jacobian_bounds(cell, layer.inputs_BI, layer.before)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_a_fresh_network_is_that_of_the_seed() -> None:
    model = make_model(cell="gru", layers=2)
    torch.manual_seed(7)
    expected = NeuralNetwork(model.network.config, 10).double()
    before = torch.get_rng_state()
    found = recurrence.initial_model(model, 7).network
    assert torch.get_rng_state().equal(before)
    for name, value in expected.state_dict().items():
        assert found.state_dict()[name].equal(value), name


def test_an_adaptive_layer_keeps_its_ranks() -> None:
    from seqtool.lm.neural.config import OutputConfig

    output = OutputConfig(layer="adaptive", cutoffs=(3, 6))
    model = make_model(cell="gru", output=output)
    ranks = model.network.state_dict()["softmax.ranks_V"]
    ranks.copy_(ranks.flip(0))
    drawn = recurrence.initial_model(model, 1).network
    assert drawn.state_dict()["softmax.ranks_V"].equal(ranks)
