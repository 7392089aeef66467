"""Small networks whose weights are set by hand, and maps of one number: dynamics to understand.

Dimensions in names: T steps, I inputs, H hidden units.

The three networks are those of introductory lectures on recurrent networks (G. Hinton's; R. Grosse,
CSC 321):

    sum           one linear unit that reads the input and itself, each times 1
    comparison    two inputs, the second times -1: the unit holds the difference of their sums, and
                  a logistic output tells how far the first is larger
    parity        two threshold units read the input bit and the last output: OR and AND; the output
                  is OR and not AND, so it is 1 after an odd number of ones
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqtool.analysis.dynamics import Map, attractors, fixed_points
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Doubles

MAPS: dict[str, tuple[str, Callable[[Tensor, float], Tensor], float, float]] = {
    # name: formula, f(x, a), a and the start
    "logistic": ("x' = a x (1 - x)", lambda x, a: a * x * (1 - x), 3.5, 0.2),
    "quadratic": ("x' = x^2 + a", lambda x, a: x * x + a, 0.15, 0.0),
    "tanh": ("x' = tanh(a x)", lambda x, a: torch.tanh(a * x), 2.0, 0.1),
}
NUM_STARTS = 21  # from which fixed points of a map are looked for
NUM_STEPS = 40  # of a map


@dataclass(frozen=True)
class HandSetNetwork:
    """A recurrent network: h = f(W x + R h + U y + b), y = g(V h + c), h and y beginning at zero.

    Attributes:
        units: what the hidden units are called.
        inputs: W [H, I].
        recurrent: R [H, H].
        output: V [H].
        feedback: U [H]: what the last output gives; zero for none.
        biases: b [H], or one for all.
        output_bias: c.
        activation, output_activation: f and g.
    """

    units: Sequence[str]
    inputs: Doubles
    recurrent: Doubles
    output: Doubles
    feedback: Doubles | float = 0.0
    biases: Doubles | float = 0.0
    output_bias: float = 0.0
    activation: Literal["linear", "threshold"] = "linear"
    output_activation: Literal["linear", "threshold", "logistic"] = "linear"

    def run(self, inputs_TI: Doubles) -> tuple[Doubles, Doubles]:
        """Return the hidden units [T, H] and the output [T] after each input."""
        hidden_H, y = np.zeros(len(self.units)), 0.0
        states, outputs = [], []
        for input_I in inputs_TI:
            sums_H = self.inputs @ input_I + self.recurrent @ hidden_H + self.feedback * y
            hidden_H = _ACTIVATIONS[self.activation](sums_H + self.biases)
            total = np.asarray(self.output @ hidden_H + self.output_bias)
            y = float(_ACTIVATIONS[self.output_activation](total))
            states.append(hidden_H)
            outputs.append(y)
        return np.asarray(states), np.asarray(outputs)


_ACTIVATIONS: dict[str, Callable[[Doubles], Doubles]] = {
    "linear": lambda sums: sums,
    "threshold": lambda sums: np.asarray(sums > 0, dtype=np.float64),
    "logistic": lambda sums: (1 + np.tanh(sums / 2)) / 2,  # exp would overflow
}


def _array(*numbers: Any) -> Doubles:
    return np.asarray(numbers, dtype=np.float64)


NETWORKS: Mapping[str, HandSetNetwork] = {
    "sum": HandSetNetwork(("sum",), _array([1]), _array([1]), _array(1)),
    "comparison": HandSetNetwork(
        ("difference of the sums",),
        inputs=_array([1, -1]),
        recurrent=_array([1]),
        output=_array(5),  # steep: a difference of 1 gives 0.993
        output_activation="logistic",
    ),
    "parity": HandSetNetwork(
        ("OR", "AND"),
        inputs=_array([1], [1]),
        recurrent=_array([0, 0], [0, 0]),
        feedback=_array(1, 1),
        biases=_array(-0.5, -1.5),  # above zero with one of two, and with both
        output=_array(1, -1),
        output_bias=-0.5,
        activation="threshold",
        output_activation="threshold",
    ),
}
# what they read: the lectures' kind of sequence
SEQUENCES: Mapping[str, Sequence[Sequence[float]]] = {
    "sum": ((2,), (-0.5,), (1,), (1,)),
    "comparison": ((2, -2), (0, 3.5), (1, 2.2), (4, 0)),
    "parity": ((0,), (1,), (0,), (1,), (1,), (0,), (1,)),
}


def analyse() -> Report:
    """Run the networks that are set by hand, and maps of one number."""
    report = Report("Hand-set cells and maps", values={"networks": {}, "maps": {}})
    for name, network in NETWORKS.items():
        rows_TI = _array(*SEQUENCES[name])
        hidden_TH, outputs_T = network.run(rows_TI)
        steps = list(range(1, len(outputs_T) + 1))
        inputs = [f"input {number + 1}" for number in range(rows_TI.shape[1])]
        columns = ["step", *inputs, *network.units, "output"]
        rows = np.column_stack([rows_TI, hidden_TH, outputs_T]).tolist()
        rows = [[step, *row] for step, row in zip(steps, rows, strict=True)]
        report.tables.append(Table(f"The network {name}, step by step", columns, rows))
        series = [
            Series(unit, steps, units_T)
            for unit, units_T in zip(network.units, hidden_TH.T.tolist(), strict=True)
        ]
        series.append(Series("output", steps, outputs_T.tolist(), style="dashed"))
        report.charts.append(Chart(f"The network {name}", "lines", "step", "activation", series))
        report.values["networks"][name] = {
            "inputs": rows_TI.tolist(),
            "hidden": hidden_TH.tolist(),
            "outputs": outputs_T.tolist(),
        }
    for name in MAPS:
        _add_map(report, name)
    return report


def _add_map(report: Report, name: str) -> None:
    """Add the fixed points of a map, where it settles, and its way there."""
    formula, function, a, start = MAPS[name]
    step = partial(_apply, function, a)
    path = follow(step, start, NUM_STEPS)
    grid_BS = torch.linspace(-2.0, 2.0, NUM_STARTS, dtype=torch.float64)[:, None]
    rows: list[list[Cell]] = [
        [float(point.states), float(point.eigenvalues.real[0]), point.kind]
        for point in fixed_points(step, grid_BS)
    ]
    title = f"Fixed points of {formula} with a = {a:g}"
    report.tables.append(Table(title, ("x", "slope of the map", "kind"), rows))
    settled = attractors(step, torch.tensor([[start]], dtype=torch.float64))
    cycle = settled[0].states[:, 0].tolist() if settled else []
    where = f"comes to a cycle of {len(cycle)} numbers" if cycle else "settles nowhere"
    if len(cycle) == 1:
        where = f"comes to {cycle[0]:.6g}"
    report.remarks.append(f"The {name} map with a = {a:g} {where} from {start:g}.")
    note = f"{formula}, a = {a:g}, from x(0) = {start:g}."
    over_time = [Series("x", list(range(len(path))), path)]
    chart = Chart(f"The {name} map over time", "lines", "step", "x", over_time, note=note)
    report.charts += [chart, _web_chart(name, formula, a, path, step)]
    report.values["maps"][name] = {
        "parameter": a,
        "start": start,
        "path": path,
        "fixed_points": [{"x": x, "slope": slope, "kind": kind} for x, slope, kind in rows],
        "cycle": cycle,
    }


def _apply(function: Callable[[Tensor, float], Tensor], a: float, states_BS: Tensor) -> Tensor:
    return function(states_BS, a)


def follow(step: Map, start: float, num_steps: int) -> list[float]:
    """Return x(0), x(1), ... of a map of one number; fewer where it grows beyond all numbers."""
    state = torch.tensor([[start]], dtype=torch.float64)
    path = [start]
    while len(path) <= num_steps and bool(torch.isfinite(state := step(state))):
        path.append(float(state))
    return path


def _web_chart(name: str, formula: str, a: float, path: Sequence[float], step: Map) -> Chart:
    """Draw the map, the diagonal, and the way between them."""
    low, high = min(*path, -0.1), max(*path, 1.0)
    grid = np.linspace(low, high, 101)
    images = step(torch.from_numpy(grid)[:, None])[:, 0].tolist()
    web_x = [x for x in path[:-1] for _ in range(2)]
    web_y = [path[0], *(x for x in path[1:] for _ in range(2))][: len(web_x)]
    series = [
        Series(formula, grid.tolist(), images),
        Series("x(t+1) = x(t)", [low, high], [low, high], style="dashed"),
        Series("from step to step", web_x, web_y),
    ]
    note = f"a = {a:g}. Fixed points are where the curve meets the diagonal; slopes beyond +-1 "
    note += "send states away."
    return Chart(f"The {name} map", "lines", "x(t)", "x(t+1)", series, note=note)
