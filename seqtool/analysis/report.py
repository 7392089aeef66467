"""What an analysis returns: numbers for JSON, and tables and charts that show them.

An analysis computes and says what is to be seen; `drawing` and `page` show it, so that all charts
look alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | int | float | None
Scale = Literal["linear", "log"]
Style = Literal["solid", "dashed"]
MOST_DECIMALS = 6
MOST_RANGE = 1e5  # of the numbers of a column; beyond it each has three digits of its own


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns.

    Attributes:
        title: what it tells, one line.
        columns: their names, with units where they have some ("surprisal (bits)").
        rows: each as long as `columns`; None where there is no value.
    """

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Series:
    """One line, one set of points, or the bars of one colour.

    Attributes:
        label: its name in the legend; "" for none.
        x: [N], numbers, or names in a chart of bars.
        y: [N]; NaN leaves a gap.
        low, high: [N], a band around a line, or the ends of error bars; empty for none.
        names: [N], what a point is called, in a scatter plot; empty for none.
        style: a line may be dashed, as a bound or a reference is.
    """

    label: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    names: Sequence[str] = ()
    style: Style = "solid"


@dataclass(frozen=True)
class Chart:
    """A chart of one pair of axes.

    Attributes:
        title: what is to be seen, one line.
        kind: lines, points, bars beside each other, shares that make one bar of a name, or the
            complex plane with equal units (points, the unit circle and `discs`).
        x_label, y_label: the axes, with units in brackets.
        series: what is drawn.
        x_scale, y_scale: of the axes.
        discs: of a plane, Gersgorin's: centres on the real axis, and radii.
        note: a sentence under it; how to read it.
    """

    title: str
    kind: Literal["lines", "points", "bars", "shares", "plane"]
    x_label: str
    y_label: str
    series: list[Series]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    discs: Sequence[tuple[float, float]] = ()
    note: str = ""


@dataclass
class Report:
    """All that an analysis found.

    Attributes:
        title: the analysis, one line.
        remarks: what a reader should know, a sentence each: warnings first.
        tables, charts: in the order to be shown.
        values: what `--json` prints.
    """

    title: str
    remarks: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


def cell_texts(table: Table) -> list[list[str]]:
    """Return the cells of a table as they are shown; one without a value is empty.

    The numbers of a column have as many decimals: four digits of the largest; and of numbers below
    1, two of the least.
    """
    columns = [_texts_of_column(column) for column in zip(*table.rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _texts_of_column(cells: Sequence[Cell]) -> list[str]:
    sizes = [abs(c) for c in cells if isinstance(c, float) and c and math.isfinite(c)]
    least, most = (min(sizes), max(sizes)) if sizes else (1.0, 1.0)
    decimals = max(0, 3 - math.floor(math.log10(most)))
    if most < 1:  # shares: the least of them shall not be 0
        decimals = max(decimals, 1 - math.floor(math.log10(least)))
    has_plain = decimals <= MOST_DECIMALS and most < 1e9 and most / least < MOST_RANGE
    return [_cell_text(cell, f",.{decimals}f" if has_plain else ".3g") for cell in cells]


def _cell_text(cell: Cell, decimals: str) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or math.isnan(cell):
        return ""
    if math.isinf(cell):
        return "∞" if cell > 0 else "-∞"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:{decimals}}"
