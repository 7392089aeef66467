"""Gates against their biases and their definition."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_recurrence import make_model, make_network, write_text

from seqtool.analysis import gates

IDS = np.random.default_rng(2).integers(0, 10, 25).astype(np.int32)
LOGISTIC = {b: 1 / (1 + math.exp(-b)) for b in (-1.5, 0.5, 2.0)}


def with_biases_only(biases: Sequence[float], **settings: Any) -> Any:
    """Return a network of zero weights but for the first bias vector of its cell, by gate."""
    network = make_network(4, **settings)
    for name, value in network.state_dict().items():
        value.zero_()
        if name in ("cells.0.inner.bias_ih_l0", "cells.0.bias"):
            value.copy_(torch.tensor(biases).repeat_interleave(4).expand_as(value))
    return network


@pytest.mark.parametrize(
    ("settings", "biases", "names"),
    [
        ({"cell": "lstm"}, (-1.5, 2.0, 0.7, 0.5), ("input", "forget", None, "output")),
        ({"cell": "gru"}, (-1.5, 2.0, 0.7), ("reset", "update", None)),
        ({"cell": "rhn", "depth": 3}, (0.7, -1.5), (None, "transform")),
        (
            {"cell": "rhn", "depth": 2, "carry": "separate"},
            (0.7, -1.5, 2.0),
            (None, "transform", "carry"),
        ),
    ],
)
def test_gates_of_a_cell_with_biases_only(
    settings: dict[str, Any], biases: tuple[float, ...], names: tuple[str | None, ...]
) -> None:
    values = gates.values_of_gates(with_biases_only(biases, **settings), IDS)
    depth = settings.get("depth", 1)
    wanted = dict(zip(names, biases, strict=True))
    del wanted[None]  # the candidate
    assert set(values) == {
        gates.GateName(0, level, str(name)) for level in range(depth) for name in wanted
    }
    for name, found_NH in values.items():
        expected = torch.full((len(IDS), 4), LOGISTIC[wanted[name.gate]], dtype=torch.float64)
        torch.testing.assert_close(found_NH, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "biases", "kept"),
    [
        ({"cell": "lstm"}, (-1.5, 2.0, 0.7, 0.5), LOGISTIC[2.0]),
        ({"cell": "gru"}, (-1.5, 2.0, 0.7), LOGISTIC[2.0]),
        ({"cell": "rhn", "depth": 3}, (0.7, -1.5), (1 - LOGISTIC[-1.5]) ** 3),
        ({"cell": "rhn", "depth": 2, "carry": "separate"}, (0.7, -1.5, 2.0), LOGISTIC[2.0] ** 2),
    ],
)
def test_half_life(settings: dict[str, Any], biases: tuple[float, ...], kept: float) -> None:
    values = gates.values_of_gates(with_biases_only(biases, **settings), IDS)
    (lives_H,) = gates.half_lives(values, settings["cell"]).values()
    assert lives_H.tolist() == pytest.approx([math.log(0.5) / math.log(kept)] * 4, rel=1e-12)
    # so much is left of the memory after so many steps
    assert kept ** float(lives_H[0]) == pytest.approx(0.5)


def test_a_plain_network_has_activations_and_no_half_life() -> None:
    network = make_network(cell="rnn")
    (found_NH,) = gates.values_of_gates(network, IDS).values()
    ids = torch.from_numpy(IDS).long()[:, None]
    expected, _ = network.run_layers(ids, network.initial_state(1))
    torch.testing.assert_close(found_NH, expected[:, 0], rtol=0, atol=1e-12)
    assert gates.half_lives(gates.values_of_gates(network, IDS), "rnn") == {}


def test_a_memory_that_loses_nothing_lives_for_ever(tmp_path: Path) -> None:
    model = make_model(4, cell="lstm")
    model.network.state_dict()["cells.0.inner.bias_ih_l0"][4:8] = 1e4
    report = gates.analyse([("m", model)], write_text(tmp_path / "t.txt"))
    assert report.values["m"]["half_life"] == {"m": [None] * 4}
    json.dumps(report.values, allow_nan=False)
    assert report.tables[1].rows == [["m", None, None, None]]
