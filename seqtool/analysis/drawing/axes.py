"""Axes: where a value stands, which values have a tick, and how numbers are written.

A place on an axis is from 0, its low end, to 1, its high end. Ticks are at 1, 2, 2.5 or 5 times a
power of ten; those of a log axis at powers of ten, or at 1, 2 and 5 times these where there are few
(after Heckbert 1990, "Nice numbers for graph labels").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from seqtool.analysis.report import Chart, Scale, Series

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
NEAR_ZERO = 0.35
MOST_DECADES = 7  # of a log axis with a tick at each
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A range of values, or a row of names.

    Attributes:
        low, high: the ends; of a log axis their log10.
        ticks: (value, how it is written), rising.
        is_log: whether places go by the logarithm.
        names: of an axis of names, which stand at 0, 1, 2 ...; empty for numbers.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False
    names: tuple[str, ...] = ()

    def place(self, value: float) -> float:
        """Return where a value stands; NaN for one that has no place, as 0 on a log axis."""
        if not math.isfinite(value) or (self.is_log and value <= 0):
            return math.nan
        value = math.log10(value) if self.is_log else value
        return (value - self.low) / (self.high - self.low)


def number_axis(
    values: Iterable[float],
    scale: Scale = "linear",
    *,
    num_ticks: int = 6,
    with_zero: bool = False,
    near_zero: float = NEAR_ZERO,
    margin: float = 0.03,
) -> Axis:
    """Return an axis on which all finite values have a place, with about so many ticks.

    Args:
        values: what is drawn.
        scale: linear or log; values that are not above 0 have no place on a log axis.
        num_ticks: wanted.
        with_zero: 0 has a place, too, as bars begin there.
        near_zero: so it has where the least value is above it, but below this share of the largest.
        margin: room beyond the outermost values, as a share of their range.
    """
    found = [float(value) for value in values if math.isfinite(value)]
    if scale == "log":
        return _log_axis([value for value in found if value > 0], margin, num_ticks)
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    begins_at_zero = low >= 0 and (with_zero or low <= near_zero * high)
    if begins_at_zero:
        low = 0.0
    ends_at_zero = with_zero and high <= 0 and low < 0
    if ends_at_zero:
        high = 0.0
    if low == high:
        around = abs(low) / 10 or 1.0
        if low.is_integer() and abs(low) < 10:
            around = 1.0
        low, high = low - around * (not begins_at_zero), high + around * (not ends_at_zero)
    room = margin * (high - low)
    are_whole = all(value.is_integer() for value in found)
    low, high = low - room * (not begins_at_zero), high + room * (not ends_at_zero)
    return range_axis(low, high, num_ticks, whole=are_whole)


def range_axis(low: float, high: float, num_ticks: int = 6, *, whole: bool = False) -> Axis:
    """Return the axis of just this range; `whole`: no ticks between whole numbers."""
    step = _nice_step((high - low) / max(num_ticks, 1))
    if whole and high - low >= 1:
        step = max(1.0, step if step != 2.5 else 5.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    decimals += not math.isclose(step * 10**decimals, round(step * 10**decimals))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(
        (number * step, _tick_text(number * step, decimals)) for number in range(first, last + 1)
    )
    return Axis(low, high, ticks)


def _nice_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * step for step in STEPS if power * step >= least * (1 - 1e-9))


def _tick_text(value: float, decimals: int) -> str:
    value += 0.0  # no "-0"
    if value and (abs(value) >= 1e6 or decimals > 4):
        return number_text(value)
    return f"{value:,.{decimals}f}"


def _log_axis(values: Sequence[float], margin: float, num_ticks: int) -> Axis:
    logs = [math.log10(value) for value in values] or [0.0, 1.0]
    low, high = min(logs), max(logs)
    room = margin * (high - low) or 0.1
    low, high = low - room, high + room
    decades = range(math.floor(low), math.ceil(high) + 1)
    whole = [power for power in decades if low <= power <= high]
    marks: Sequence[float] = (1,)
    if len(whole) < 3:
        marks = (1, 2, 5)
    every = max(1, -(-len(whole) // max(2, min(num_ticks + 1, MOST_DECADES))))
    ticks = tuple(
        (mark * 10.0**power, number_text(mark * 10.0**power))
        for power in decades
        if power % every == 0
        for mark in marks
        if low - 1e-9 <= math.log10(mark) + power <= high + 1e-9
    )
    if len(ticks) < 2:  # less than from one mark to the next: as if linear
        ticks = range_axis(10.0**low, 10.0**high, num_ticks).ticks
    return Axis(low, high, ticks, is_log=True)


def name_axis(names: Sequence[str]) -> Axis:
    """Return an axis with a place for each name."""
    ticks = tuple((float(number), name) for number, name in enumerate(names))
    return Axis(-0.5, max(1, len(names)) - 0.5, ticks, names=tuple(names))


def number_text(value: float) -> str:
    """Return a number as a label has it: 1,200, 0.05, 3.2·10⁻⁶, 10⁹, -4."""
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    size = abs(value)
    if 1e-3 <= size < 1e6:
        decimals = max(0, 3 - math.floor(math.log10(size)))
        text = f"{value:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        head, _, power = f"{value:.2e}".partition("e")
        head = head.rstrip("0").rstrip(".")
        raised = f"10{str(int(power)).translate(_RAISED)}"
        text = {"1": raised, "-1": f"-{raised}"}.get(head, f"{head}·{raised}")
    return text


def xs_of(series: Series, axis: Axis) -> Iterator[float]:
    """Give the values of a series along x; a name's is its number on the axis."""
    numbers = {name: float(number) for number, name in enumerate(axis.names)}
    for value in series.x:
        yield numbers[str_of(value)] if axis.names else float(value)


def points_of(series: Series) -> Iterator[tuple[float | str, float]]:
    """Give x and y of each point of a series."""
    xs: Sequence[float | str] = series.x
    yield from zip(xs, series.y, strict=True)


def str_of(value: float | str) -> str:
    """Return what an axis of names calls a value."""
    return value if isinstance(value, str) else number_text(value)


def x_axis(chart: Chart, num_ticks: int = 8) -> Axis:
    """Return the horizontal axis of a chart: of names, if these are bars or x are names."""
    values = [value for series in chart.series for value in series.x]
    if chart.kind == "bars" or any(isinstance(value, str) for value in values):
        return name_axis(list(dict.fromkeys(map(str_of, values))))
    discs = [disc.x + sign * disc.radius for disc in chart.discs for sign in (-1, 1)]
    numbers = [float(value) for value in values]
    return number_axis([*numbers, *discs], chart.x_scale, num_ticks=num_ticks, near_zero=0.0)


def y_axis(chart: Chart, num_ticks: int = 6) -> Axis:
    """Return the vertical axis of a chart; bars begin at 0."""
    values = [float(v) for series in chart.series for v in (*series.y, *series.low, *series.high)]
    values += [disc.y + sign * disc.radius for disc in chart.discs for sign in (-1, 1)]
    is_bars = chart.kind == "bars"
    return number_axis(values, chart.y_scale, num_ticks=num_ticks, with_zero=is_bars)


def plane_axes(chart: Chart, num_ticks: int = 6) -> tuple[Axis, Axis]:
    """Return the axes of a plane, whose units are equally long: both span the same range."""
    xs, ys = x_axis(chart, num_ticks), y_axis(chart, num_ticks)
    half = max(xs.high - xs.low, ys.high - ys.low) / 2
    axes = []
    for axis in (xs, ys):
        middle = (axis.low + axis.high) / 2
        axes.append(range_axis(middle - half, middle + half, num_ticks))
    return axes[0], axes[1]
