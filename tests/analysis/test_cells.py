"""The networks that are set by hand against what they are meant to compute, and maps."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.analysis import cells

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
    assert len(report.tables) == len(report.charts) - 3 == 6
