"""Spectra against Gersgorin's theorem, products of depths, and what initialisation promises."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from toy_recurrence import NETWORKS, make_model, make_network, write_text

from seqtool.analysis import recurrence, spectra
from seqtool.core.errors import DataError
from seqtool.lm.neural.cells import RecurrentHighwayCell
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork

IDS = np.random.default_rng(2).integers(0, 10, 30).astype(np.int32)
# in thousandths: where numbers differ by hundreds of orders of magnitude, LAPACK may give up
MATRICES = st.integers(1, 7).flatmap(
    lambda size: arrays.arrays(np.int64, (size, size), elements=st.integers(-5000, 5000)).map(
        lambda matrix: matrix / 1000
    )
)


@given(MATRICES)
def test_eigenvalues_lie_in_the_discs(matrix: np.ndarray) -> None:
    found = spectra.spectrum_of(torch.from_numpy(matrix))
    distances = (found.eigenvalues[:, None] - found.centres[None, :]).abs() - found.radii[None, :]
    # what is computed are the eigenvalues of a matrix that differs by some roundings
    assert float(distances.amin(dim=1).max()) <= 1e-12 * max(1.0, found.norm)
    assert found.spectral_radius <= found.norm * (1 + 1e-9) + 1e-12
    trace = float(found.eigenvalues.real.sum())
    assert trace == pytest.approx(float(np.trace(matrix)), abs=1e-9 * max(1.0, found.norm))
    assert math.sqrt(float((found.singular_values**2).sum())) == pytest.approx(
        float(np.linalg.norm(matrix)), rel=1e-12, abs=1e-12
    )


def test_spectra_by_hand() -> None:
    found = spectra.spectrum_of(torch.diag(torch.tensor([0.5, -2.0, 1.0])))
    assert found.radii.tolist() == [0.0, 0.0, 0.0]
    assert found.centres.tolist() == [0.5, -2.0, 1.0]
    assert found.eigenvalues.tolist() == [-2.0, 1.0, 0.5]
    assert found.singular_values.tolist() == [2.0, 1.0, 0.5]
    # nilpotent: nothing is left after two steps, but one step stretches by 3
    found = spectra.spectrum_of(torch.tensor([[0.0, 3.0], [0.0, 0.0]]))
    assert (found.spectral_radius, found.norm) == (0.0, 3.0)


@pytest.mark.parametrize("carry", ["coupled", "separate"])
def test_depths_multiply_to_the_step(carry: str) -> None:
    network = make_network(cell="rhn", depth=4, carry=carry)
    states = recurrence.states_at(network, IDS, [9])
    ((layer,),) = recurrence.make_steps(network, recurrence.cut(IDS, [9], 1), states)
    assert isinstance(layer.cell, RecurrentHighwayCell)
    product = torch.eye(5, dtype=torch.float64)
    for matrix in spectra.depth_jacobians(layer.cell, layer.inputs_BI, layer.before[0]):
        product = matrix @ product
    whole = recurrence.temporal_jacobians(layer.cell, layer.inputs_BI, layer.before)[0]
    torch.testing.assert_close(product, whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("depth", "bias"), [(1, -2.0), (5, -2.0), (5, -4.0), (10, -3.0)])
def test_discs_of_a_fresh_highway_stand_at_its_carry(depth: int, bias: float) -> None:
    config = ModelConfig(
        cell="rhn", hidden_size=40, depth=depth, transform_bias=bias, init_range=0.01
    )
    torch.manual_seed(1)
    network = NeuralNetwork(config, 10).double().eval().requires_grad_(False)
    states = recurrence.states_at(network, IDS, [9])
    ((layer,),) = recurrence.make_steps(network, recurrence.cut(IDS, [9], 1), states)
    matrix = recurrence.temporal_jacobians(layer.cell, layer.inputs_BI, layer.before)[0]
    found = spectra.spectrum_of(matrix)
    expected = (1 - 1 / (1 + math.exp(-bias))) ** depth
    assert found.centres.tolist() == pytest.approx([expected] * 40, abs=0.01)


@pytest.mark.parametrize("name", NETWORKS)
def test_recurrent_matrices_read_the_state(name: str) -> None:
    """Of each gate: its input moves by the matrix times what the state moves."""
    network = make_network(**NETWORKS[name])
    cell = network.get_submodule("cells.0")
    matrices = spectra.recurrent_matrices(cell, network.config.cell, "m")  # type: ignore[arg-type]
    found = {named.label: named.matrix for named in matrices}
    blocks = cell.recurrent_blocks()  # type: ignore[operator]
    assert len(found) == len(blocks)
    assert all(matrix.shape == (5, 5) for matrix in found.values())
    if network.config.cell == "rhn":
        gates = 2 if network.config.carry == "coupled" else 3
        assert list(found)[:2] == ["m: candidate, depth 1", "m: transform gate, depth 1"]
        expected = cell.weight_state[1, :, 5:10].t()  # type: ignore[index]
        assert found["m: transform gate, depth 2"].equal(expected)
        assert len(found) == gates * network.config.depth


def test_what_the_report_holds(tmp_path: Path) -> None:
    text = write_text(tmp_path / "t.txt")
    models = [("r", make_model(cell="rhn", depth=2)), ("l", make_model(cell="lstm"))]
    report = spectra.analyse(models, text, tokens=["b", "</s>"])
    highway, lstm = report.values["r"], report.values["l"]
    assert (len(highway["weights"]), len(lstm["jacobians"])) == (4, 2)
    assert len(highway["jacobians"]) == 6  # two tokens, the step and its two depths
    assert all(len(one["eigenvalues"]) == 10 for one in lstm["jacobians"].values())
    # of the highway: two gates, and two tokens; of the LSTM: four gates, and two tokens
    assert len(report.charts) == (2 + 2) + (4 + 2)
    json.dumps(report.values, allow_nan=False)
    with pytest.raises(DataError, match="has no token 'zebra'"):
        spectra.analyse(models, text, tokens=["zebra"])
