"""Gradients through time against powers, rotations and finite differences."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_recurrence import NETWORKS, make_model, make_network, write_text

from seqtool.analysis import gradients, recurrence
from seqtool.core.errors import ConfigError, DataError
from seqtool.lm.neural.network import NeuralNetwork

IDS = np.random.default_rng(2).integers(0, 10, 70).astype(np.int32)


def linear_network(recurrent: torch.Tensor) -> NeuralNetwork:
    """Return a network whose units are linear: a parametric ReLU of slope 1."""
    network = make_network(len(recurrent), cell="rnn", activation="parametric-relu")
    state = network.state_dict()
    state["cells.0.slope_H"].fill_(1.0)
    state["cells.0.inner.weight_hh_l0"].copy_(recurrent)
    state["embedding.weight"].mul_(1e-3)  # no state grows large, no probability is 1
    return network


@pytest.mark.parametrize(("w", "at_50"), [(1.1, "117.39"), (0.9, "0.0051538")])
def test_a_linear_network_gives_powers(w: float, at_50: str) -> None:
    network = linear_network(w * torch.eye(6, dtype=torch.float64))
    norms = gradients.loss_gradients(network, IDS, [55, 60, 69], 50)
    for k in range(51):
        torch.testing.assert_close(norms[k], norms[0] * w**k, rtol=1e-10, atol=0)
    assert f"{float(norms[50, 0] / norms[0, 0]):.5g}" == at_50
    (steps,) = gradients.layer_jacobians(network, IDS, [55, 60], 50)
    for found in (steps.radii, steps.largest, steps.smallest):
        assert found.tolist() == pytest.approx([w, w], rel=1e-12)
    # the bound is met: gamma is 1, and the norm of w I is w
    assert steps.norms[50].tolist() == pytest.approx([w**50] * 2, rel=1e-10)
    assert steps.bounds[50].tolist() == pytest.approx([w**50] * 2, rel=1e-10)


def test_a_rotation_keeps_the_gradient_at_all_lags() -> None:
    cos, sin = math.cos(0.3), math.sin(0.3)
    rotation = torch.block_diag(*[torch.tensor([[cos, -sin], [sin, cos]])] * 3).double()
    rotation /= rotation[0].norm()  # of float32 before
    norms = gradients.loss_gradients(linear_network(rotation), IDS, [55, 69], 50)
    torch.testing.assert_close(norms, norms[:1].expand(51, 2), rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_finite_differences(name: str) -> None:
    network = make_network(4, **NETWORKS[name])
    lags, position = 3, 12
    norms = gradients.loss_gradients(network, IDS, [position], lags)
    read = recurrence.inputs_of(IDS)
    for k in range(1, lags + 1):
        # the state after step t - k is that before the step which follows
        begin = position - k + 1
        states = recurrence.states_at(network, read, [begin])

        def loss(flat: torch.Tensor, begin: int = begin, states=states) -> float:  # type: ignore[no-untyped-def]
            parts = iter(torch.split(flat, [part.shape[1] for layer in states for part in layer]))
            moved = [tuple(next(parts)[None] for _ in layer) for layer in states]
            if len(states) > network.config.layers:  # the last words are no numbers
                moved[-1] = states[-1]
            ids = recurrence.as_tensor(read[begin : position + 1])[:, None]
            hidden, _ = network(ids, moved)
            output = network.output(ids, states)
            targets = recurrence.as_tensor(IDS[begin : position + 1])
            return -float(output.target_log_probs(hidden[:, 0], targets)[-1])

        at = torch.cat([part[0].double() for layer in states for part in layer])
        size = sum(part.shape[1] for layer in states[: network.config.layers] for part in layer)
        slopes = []
        for direction in torch.eye(len(at), dtype=torch.float64)[:size]:
            above, below = loss(at + 1e-5 * direction), loss(at - 1e-5 * direction)
            slopes.append((above - below) / 2e-5)
        assert float(norms[k]) == pytest.approx(math.hypot(*slopes), rel=1e-6, abs=1e-10)


def test_an_rhn_whose_gates_are_shut_has_the_identity() -> None:
    network = make_network(cell="rhn", depth=4)
    network.state_dict()["cells.0.bias"][:, 5:] = -1e4  # the logistic function of it is 0
    (steps,) = gradients.layer_jacobians(network, IDS, [30], 10)
    assert steps.norms[10].tolist() == [1.0]
    assert steps.bounds[10].tolist() == [1.0]
    assert steps.radii.tolist() == steps.smallest.tolist() == [1.0]
    norms = gradients.loss_gradients(network, IDS, [30], 10)
    torch.testing.assert_close(norms, norms[:1].expand(11, 1), rtol=1e-14, atol=0)


def test_the_chain_of_jacobians_is_the_gradient() -> None:
    """Of one layer: d L(t) / d state(t-k) is d L(t) / d h(t) times the product."""
    network = make_network(cell="gru")
    norms = gradients.loss_gradients(network, IDS, [20], 5)
    (steps,) = gradients.layer_jacobians(network, IDS, [20], 5)
    assert float(norms[5]) <= float(norms[0] * steps.norms[5]) * (1 + 1e-12)
    assert float(steps.norms[5]) <= float(steps.bounds[5])


def test_what_the_report_holds(tmp_path: Path) -> None:
    text = write_text(tmp_path / "t.txt")
    models = [("one", make_model(cell="rnn")), ("two", make_model(cell="lstm", layers=2))]
    report = gradients.analyse(models, text, lags=12, num_positions=20, num_jacobians=2)
    of_one, of_two = (report.values["models"][name] for name in ("one", "two"))
    assert (of_one["positions"], len(of_two["layers"])) == (20, 2)
    assert of_one["share_of_lag_0"]["median"][0] == 1.0
    assert [series.label for series in report.charts[0].series] == ["one", "two"]
    json.dumps(report.values, allow_nan=False)
    with pytest.raises(ConfigError, match="must be at least 1"):
        gradients.analyse(models, text, lags=0)
    with pytest.raises(DataError, match=r"has 300 tokens for one, but 401 are needed"):
        gradients.analyse(models, text, lags=400)
