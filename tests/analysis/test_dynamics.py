"""Where maps settle: known fixed points and cycles, and a network with two basins."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_models import word_tokenizer
from toy_recurrence import NETWORKS, WORDS, make_model, make_network, write_text

from seqtool.analysis import dynamics, recurrence
from seqtool.lm.neural.model import NeuralLanguageModel


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def quadratic(states: Tensor) -> Tensor:
    return states * states + 0.15


def test_the_quadratic_map() -> None:
    sink, source = dynamics.fixed_points(quadratic, column(-1.5, -0.2, 0.0, 0.7, 0.9, 3.0))
    assert (sink.kind, source.kind) == ("sink", "source")
    # x = x^2 + 0.15: x = (1 -+ sqrt(0.4)) / 2, and the slope is 2 x
    assert float(sink.states) == pytest.approx((1 - math.sqrt(0.4)) / 2, abs=1e-12)
    assert float(source.states) == pytest.approx((1 + math.sqrt(0.4)) / 2, abs=1e-12)
    assert [f"{float(point.states):.4f}" for point in (sink, source)] == ["0.1838", "0.8162"]
    assert [f"{point.spectral_radius:.3f}" for point in (sink, source)] == ["0.368", "1.632"]
    # the basin: all between -0.8162 and 0.8162; what is beyond grows for ever
    starts = column(-0.9, -0.8, 0.0, 0.5, 0.81, 0.82, 2.0)
    (found,) = dynamics.attractors(quadratic, starts)
    assert found.starts == [1, 2, 3, 4]
    assert found.period == 1
    assert float(found.states) == pytest.approx(float(sink.states), abs=1e-9)
    assert f"{found.spectral_radius:.3f}" == "0.368"


def test_the_logistic_map_has_a_cycle_of_four() -> None:
    def logistic(states: Tensor) -> Tensor:
        return 3.5 * states * (1 - states)

    (cycle,) = dynamics.attractors(logistic, column(0.1, 0.2, 0.5, 0.9))
    assert cycle.period == 4
    assert cycle.starts == [0, 1, 2, 3]
    states = cycle.states[:, 0]
    torch.testing.assert_close(logistic(states), states.roll(-1), rtol=0, atol=1e-9)
    # of the product of the slopes over the cycle: it attracts
    slopes = (3.5 * (1 - 2 * states)).prod().abs()
    assert cycle.spectral_radius == pytest.approx(float(slopes), rel=1e-9)
    assert cycle.spectral_radius < 1
    points = dynamics.fixed_points(logistic, column(0.1, 0.6))
    assert sorted(float(point.states) for point in points) == pytest.approx([0.0, 1 - 1 / 3.5])
    assert {point.kind for point in points} == {"source"}


def test_tanh_of_twice_the_state() -> None:
    """As a map, and as an RNN of one unit that reads nothing."""
    network = make_network(1, cell="rnn")
    network.state_dict()["cells.0.inner.weight_hh_l0"].fill_(2.0)
    for name in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0"):
        network.state_dict()[f"cells.0.inner.{name}"].zero_()
    of_network = dynamics.state_map(network, torch.zeros(1, dtype=torch.float64))
    for step in (lambda states: torch.tanh(2 * states), of_network):
        points = dynamics.fixed_points(step, column(-3.0, -0.1, 0.0, 0.1, 3.0))
        at = {f"{float(point.states):.4f}".replace("-0.0000", "0.0000"): point for point in points}
        assert {name: point.kind for name, point in at.items()} == {
            "-0.9575": "sink",
            "0.9575": "sink",
            "0.0000": "source",
        }
        assert at["0.0000"].spectral_radius == pytest.approx(2.0)
        found = dynamics.attractors(step, column(-3.0, -0.1, 0.2, 0.1, 3.0))
        assert [attractor.starts for attractor in found] == [[2, 3, 4], [0, 1]]


def test_a_rotation_that_shrinks_has_a_saddle_nowhere() -> None:
    """A plane that turns by a quarter has cycles of four; one that also stretches an axis, none."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    found = dynamics.attractors(lambda states: states @ turn.t(), torch.eye(2).double())
    assert [attractor.period for attractor in found] == [4]  # both starts are on one cycle
    stretch = torch.diag(torch.tensor([0.5, 2.0], dtype=torch.float64))
    (point,) = dynamics.fixed_points(lambda states: states @ stretch, torch.ones(1, 2).double())
    assert point.kind == "saddle"
    assert point.states.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_map_of_a_network_is_its_step(name: str) -> None:
    network = make_network(**NETWORKS[name])
    ids = np.array([4, 7, 2, 2, 2], np.int32)
    step = dynamics.state_map(network, network.embedding.weight[2])
    flat = network.flat_state(recurrence.states_at(network, ids, [2]))
    expected = network.flat_state(recurrence.states_at(network, ids, [5]))
    found = step(step(step(flat)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def two_basins() -> NeuralLanguageModel:
    """Return a unit that keeps its sign, and an output that likes `a` where it is above zero."""
    network = make_network(1, cell="rnn")
    state = network.state_dict()
    for name in state:
        state[name].zero_()
    state["cells.0.inner.weight_hh_l0"].fill_(2.0)
    state["cells.0.inner.bias_ih_l0"].fill_(-0.01)  # zero falls to the lower side
    state["softmax.weight"][2] = 4.0
    return NeuralLanguageModel(network, word_tokenizer(WORDS))


def test_a_network_with_two_basins_is_told(tmp_path: Path) -> None:
    text = write_text(tmp_path / "t.txt", words="aab")
    report = dynamics.analyse([("m", two_basins())], text, num_tokens=200)
    assert report.remarks[0].startswith("warning: m has 2 basins: after 100 tokens")
    starts = {told["start"]: told for told in report.values["m"]["starts"]}
    basins = {name: told["basin"] for name, told in starts.items()}
    assert basins["zero"] == basins["after the text"]
    assert len(set(basins.values())) == 2
    # by hand: the logit of `a` is 4 h, those of all nine others are 0
    low, high = -1.0, 1.0
    for _ in range(100):
        low, high = math.tanh(2 * low - 0.01), math.tanh(2 * high - 0.01)
    ids = recurrence.read_text("m", two_basins(), text, split="valid", num_tokens=200, needed=1)
    share = float((ids[100:] == 2).mean())
    by_basin = {told["basin"]: told["second_half"] for told in report.values["m"]["starts"]}
    for h, basin in ((low, basins["zero"]), (high, 3 - basins["zero"])):
        nats = math.log(math.exp(4 * h) + 9) - share * 4 * h
        assert by_basin[basin] == pytest.approx(math.exp(nats), rel=1e-6)
    json.dumps(report.values, allow_nan=False)


def test_perplexity_by_start_is_that_of_the_model(tmp_path: Path) -> None:
    model = make_model(cell="lstm", layers=2)
    text = write_text(tmp_path / "t.txt")
    ids = recurrence.read_text("m", model, text, split="valid", num_tokens=300, needed=1)
    flat = model.network.flat_state(model.network.initial_state(2))
    flat[1] += 0.5
    nats, ends = dynamics.nats_by_start(model.network, ids, flat)
    (scores,) = model.score_ids([ids])
    np.testing.assert_allclose(-nats[:, 0].numpy(), scores.log_probs, rtol=0, atol=1e-12)
    assert not nats[0, 0].equal(nats[0, 1])
    state = recurrence.states_at(model.network, recurrence.inputs_of(ids), [300])
    torch.testing.assert_close(ends[:1], model.network.flat_state(state))


def test_a_network_that_forgets_is_not_warned_of(tmp_path: Path) -> None:
    text = write_text(tmp_path / "t.txt")
    for settings in ({"cell": "gru"}, NETWORKS["rnn-maxent"]):
        model = make_model(scale=0.3, **settings)
        report = dynamics.analyse([("m", model)], text, tokens=["a"])
        assert not any(remark.startswith("warning") for remark in report.remarks)
        assert set(report.values["m"]["inputs"]) == {"a", "mean input"}
        (attractor,) = report.values["m"]["inputs"]["a"]["attractors"]
        assert attractor["period"] == 1
        assert len(attractor["starts"]) == 24
        (point,) = report.values["m"]["inputs"]["a"]["fixed_points"]
        assert point["kind"] == "sink"
        assert point["spectral_radius"] == pytest.approx(attractor["spectral_radius"], abs=1e-6)
