"""Charts as PNG or PDF, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from seqtool.analysis.drawing.axes import number_text, plane_axes, str_of, x_axis, xs_of, y_axis
from seqtool.analysis.drawing.svg import LIGHT, MARKED, shortened, without_controls, wrapped
from seqtool.analysis.report import Chart, HeatMap
from seqtool.core.errors import ConfigError
from seqtool.core.storage import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

INCHES = 7.2  # across
LABEL = 130  # width of a name, in the pixels of an SVG
MARKERS = "osD^v"
FAINT = "#59636e"


def require_matplotlib() -> None:
    """Refuse to begin without it.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "matplotlib is not installed",
            hint="pip install 'seqtool[plot]', or name an .svg file, which needs no library",
        )


def save_image(charts: Sequence[Chart | HeatMap], path: Path) -> None:
    """Draw charts below one another into a .png or .pdf file.

    Raises:
        ConfigError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    heights = [_height(chart) for chart in charts]
    with rc_context({"font.size": 9, "axes.titlesize": 11, "axes.titleweight": "bold"}):
        figure: Figure = Figure(figsize=(INCHES, sum(heights)), layout="constrained")
        # each lays itself out: a wide legend of one makes no other narrow
        parts = figure.subfigures(len(charts), 1, squeeze=False, height_ratios=heights)[:, 0]
        for chart, part in zip(charts, parts, strict=True):
            axes = part.subplots()
            if isinstance(chart, HeatMap):
                _draw_heat_map(part, axes, chart)
            else:
                _draw(axes, chart)
            _frame(axes, chart)
        with atomic_file(path) as stream, warnings.catch_warnings():
            # letters that no font has are boxes; an SVG leaves them to the reader's fonts
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
            figure.savefig(stream, dpi=150, format=path.suffix[1:].lower())


def _height(chart: Chart | HeatMap) -> float:
    """Return how many inches a chart needs."""
    if isinstance(chart, HeatMap):
        return 2.4 + 0.22 * len(chart.rows)
    if chart.kind == "bars":
        return 1.4 + (0.12 + 0.13 * len(chart.series)) * len(x_axis(chart).names)
    return 5.6 if chart.kind == "plane" else 3.7


def _frame(axes: Axes, chart: Chart | HeatMap) -> None:
    axes.set_title("\n".join(wrapped(_plain(chart.title), 560)), loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if chart.note:
        note = "\n".join(wrapped(_plain(chart.note), 620))
        axes.set_xlabel(f"{axes.get_xlabel()}\n\n{note}")


def _plain(text: str) -> str:
    """Return a text in which no dollar begins a formula."""
    return without_controls(text).replace("$", r"\$")


def _name(text: str) -> str:
    """Return a name as a label has it, no longer than there is room."""
    return _plain(shortened(text, LABEL))


def _draw(axes: Axes, chart: Chart) -> None:
    """Draw lines, points, bars or a plane."""
    if chart.kind == "bars":
        _draw_bars(axes, chart)
    else:
        xs, ys = plane_axes(chart) if chart.kind == "plane" else (x_axis(chart), y_axis(chart))
        if xs.names:
            axes.set_xticks(range(len(xs.names)), list(map(_name, xs.names)), rotation=45)
        else:
            axes.set_xscale(chart.x_scale)
        axes.set_yscale(chart.y_scale)
        for number, series in enumerate(chart.series):
            x, colour = list(xs_of(series, xs)), LIGHT[number % len(LIGHT)]
            label = _name(series.label)
            if chart.kind == "lines":
                style = "--" if series.style == "dashed" else "-"
                has_marks = len(x) == 1 or (len(x) <= MARKED and style == "-")
                marker = MARKERS[number % len(MARKERS)] if has_marks else ""
                axes.plot(x, series.y, style, color=colour, label=label, marker=marker, ms=3.5)
                if series.low:
                    axes.fill_between(x, series.low, series.high, color=colour, alpha=0.16, lw=0)
            else:
                marker = MARKERS[number % len(MARKERS)]
                axes.scatter(x, series.y, s=12, color=colour, label=label, marker=marker)
                for place_x, place_y, name in zip(x, series.y, series.names, strict=False):
                    axes.annotate(
                        _name(name), (place_x, place_y), (3, 3), textcoords="offset points", size=7
                    )
        if chart.kind == "plane":
            _draw_discs(axes, chart)
            axes.set_aspect("equal")
            axes.set_xlim(xs.low, xs.high)
            axes.set_ylim(ys.low, ys.high)
        axes.set_xlabel(_plain(chart.x_label))
        axes.set_ylabel(_plain(chart.y_label))
    axes.grid(axis="both" if chart.kind == "plane" else "x" if chart.kind == "bars" else "y",
              color="#e3e6ea")  # fmt: skip
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    if any(labels):
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _draw_discs(axes: Axes, chart: Chart) -> None:
    from matplotlib.patches import Circle

    labels = list(dict.fromkeys(disc.label for disc in chart.discs))
    seen: set[str] = set()
    for disc in chart.discs:
        is_unit = "unit circle" in disc.label
        number = len(chart.series) + labels.index(disc.label)
        axes.add_patch(
            Circle(
                (disc.x, disc.y),
                disc.radius,
                fill=False,
                color="black" if is_unit else LIGHT[number % len(LIGHT)],
                alpha=0.9 if is_unit else 0.35,
                label="" if disc.label in seen else _name(disc.label),
            )
        )
        seen.add(disc.label)


def _draw_bars(axes: Axes, chart: Chart) -> None:
    """Draw lying bars, the first name at the top, as names have more room beside them."""
    names = x_axis(chart).names
    places = {name: number for number, name in enumerate(names)}
    each = 0.8 / max(1, len(chart.series))
    for number, series in enumerate(chart.series):
        y = [places[str_of(x)] + (number + 0.5) * each - 0.4 for x in series.x]
        ends = None
        if series.low:
            values = list(zip(series.y, series.low, series.high, strict=True))
            ends = [[v - low for v, low, _ in values], [high - v for v, _, high in values]]
        axes.barh(
            y,
            series.y,
            each * 0.92,
            color=LIGHT[number % len(LIGHT)],
            label=_name(series.label),
            xerr=ends,
        )
        for place, value in zip(y, series.y, strict=True):
            if math.isfinite(value):
                text = number_text(float(f"{value:.3g}") if abs(value) < 1000 else value)
                axes.annotate(text, (max(value, 0), place), (3, 0), textcoords="offset points",
                              va="center", size=7, color=FAINT)  # fmt: skip
    axes.set_yticks(range(len(names)), list(map(_name, names)))
    axes.invert_yaxis()
    axes.set_xscale(chart.y_scale)
    axes.set_xlabel(_plain(chart.y_label))
    axes.set_ylabel(_plain(chart.x_label))


def _draw_heat_map(figure: SubFigure, axes: Axes, chart: HeatMap) -> None:
    found = [value for row in chart.values for value in row if math.isfinite(value)]
    most = max(map(abs, found), default=1.0) or 1.0
    has_sign = any(value < 0 for value in found)
    image = axes.imshow(
        chart.values,
        cmap="PuOr" if has_sign else "Blues",
        vmin=-most if has_sign else 0,
        vmax=most,
        aspect="auto",
    )
    figure.colorbar(image, ax=axes, label=_plain(chart.value_label))
    axes.set_xticks(range(len(chart.columns)), list(map(_name, chart.columns)), rotation=90)
    axes.set_yticks(range(len(chart.rows)), list(map(_name, chart.rows)))
    axes.set_xlabel(_plain(chart.x_label))
    axes.set_ylabel(_plain(chart.y_label))
