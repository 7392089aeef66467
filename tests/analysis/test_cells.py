"""The networks that are set by hand against what they are meant to compute, and maps."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.analysis import cells
from seqtool.core.errors import ConfigError

NUMBERS = st.integers(-100, 100)


def run(name: str, rows: list[tuple[float, ...]]) -> list[float]:
    _, outputs = cells.NETWORKS[name].run(np.asarray(rows, dtype=np.float64))
    return [float(output) for output in outputs]


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_the_sum(numbers: list[int]) -> None:
    assert run("sum", [(number,) for number in numbers]) == list(itertools.accumulate(numbers))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_the_comparison(pairs: list[tuple[int, int]]) -> None:
    outputs = run("comparison", pairs)
    first = second = 0
    for (one, other), output in zip(pairs, outputs, strict=True):
        first, second = first + one, second + other
        assert (output > 0.5, output < 0.5) == (first > second, first < second)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_the_parity(bits: list[int]) -> None:
    outputs = run("parity", [(bit,) for bit in bits])
    assert outputs == [total % 2 for total in itertools.accumulate(bits)]


def test_what_the_report_holds() -> None:
    report = cells.analyse()
    maps = report.values["maps"]
    assert [round(point["x"], 4) for point in maps["quadratic"]["fixed_points"]] == [0.1838, 0.8162]
    assert [round(point["slope"], 3) for point in maps["quadratic"]["fixed_points"]] == [
        0.368,
        1.632,
    ]
    assert len(maps["logistic"]["cycle"]) == 4
    assert len(maps["logistic"]["path"]) == 41
    assert maps["tanh"]["cycle"] == pytest.approx([0.9575], abs=5e-5)
    assert "The logistic map with a = 3.5 comes to a cycle of 4 numbers from 0.2." in report.remarks
    assert report.values["networks"]["parity"]["outputs"] == [0, 1, 1, 0, 1, 1, 0]
    json.dumps(report.values, allow_nan=False)
    for table in report.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    for chart in report.charts:
        assert all(len(series.x) == len(series.y) for series in chart.series)  # type: ignore[union-attr]


def test_options_of_maps() -> None:
    report = cells.analyse(networks=(), maps=["logistic"], parameter=2.0, start=0.1, num_steps=3)
    assert report.values["networks"] == {}
    assert report.values["maps"]["logistic"]["path"] == pytest.approx(
        [0.1, 0.18, 0.2952, 0.41611392]
    )
    assert report.values["maps"]["logistic"]["cycle"] == pytest.approx([0.5])
    growing = cells.analyse(networks=(), maps=["quadratic"], start=5.0, num_steps=30)
    found = growing.values["maps"]["quadratic"]
    assert all(math.isfinite(x) for x in found["path"])
    assert found["cycle"] == []
    assert "settles nowhere from 5" in growing.remarks[0]
    json.dumps(growing.values, allow_nan=False)


def test_impossible_options() -> None:
    with pytest.raises(ConfigError, match="no network is called 'product'"):
        cells.analyse(networks=["product"])
    with pytest.raises(ConfigError, match="no map is called 'logstic'") as caught:
        cells.analyse(maps=["logstic"])
    assert caught.value.hint == "did you mean logistic?"
    with pytest.raises(ConfigError, match="the network comparison reads 2 numbers in each step"):
        cells.analyse(networks=["comparison"], inputs=[[1.0]])
    with pytest.raises(ConfigError, match="the network parity reads bits"):
        cells.analyse(networks=["parity"], inputs=[[0.5]])
    with pytest.raises(ConfigError, match="num_steps is 0"):
        cells.analyse(num_steps=0)
