"""Charts as PNG or PDF, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.analysis.drawing.axes import (
    Axis,
    number_text,
    plane_axes,
    str_of,
    x_axis,
    xs_of,
    y_axis,
)
from seqtool.analysis.drawing.svg import (
    LIGHT,
    MARKED,
    shortened,
    text_width,
    without_controls,
    wrapped,
)
from seqtool.analysis.report import Chart, HeatMap
from seqtool.core.errors import ConfigError
from seqtool.core.fonts import Fonts, without_remarks
from seqtool.core.storage import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

INCHES = 7.2  # across
# widths of texts, in the pixels of an SVG, which has about as many across
LEGEND = 600
NAME = 290  # beside a bar, a row or a point
TURNED = 110  # below an axis
SWATCH = 50  # of a legend, with the blanks around it
LEGEND_LINE = 0.19  # inches
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


def save_image(charts: Sequence[Chart | HeatMap], path: Path) -> set[str]:
    """Draw charts below one another into a .png or .pdf file; return letters that no font has.

    Raises:
        ConfigError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    heights = [_height(chart) for chart in charts]
    fonts = Fonts()
    letters = "".join(without_controls(text) for chart in charts for text in _texts(asdict(chart)))
    style: Any = {"font.size": 9, "axes.titlesize": 11, "axes.titleweight": "bold"}
    style["font.family"] = fonts.families(letters)
    with rc_context(style), without_remarks():
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
            # letters that no font has are boxes, of which the caller tells
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
            figure.savefig(stream, dpi=150, format=path.suffix[1:].lower())
    return fonts.missing


def _texts(value: Any) -> Iterator[str]:
    """Give all texts of a chart that is a dictionary, at whatever depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _height(chart: Chart | HeatMap) -> float:
    """Return how many inches a chart needs."""
    if isinstance(chart, HeatMap):
        return 2.4 + 0.22 * len(chart.rows)
    legend = LEGEND_LINE * _legend_shape(_labels(chart))[0]
    if chart.kind == "bars":
        return legend + 1.4 + (0.12 + 0.13 * len(chart.series)) * len(x_axis(chart).names)
    return legend + (5.6 if chart.kind == "plane" else 3.7)


def _labels(chart: Chart) -> list[str]:
    """Return the texts of the legend, each once."""
    labels = [*(series.label for series in chart.series), *(disc.label for disc in chart.discs)]
    return [_legend_text(label) for label in dict.fromkeys(labels) if label]


def _legend_text(label: str) -> str:
    """Return a label on as many lines as it takes; only a word wider than the picture is cut."""
    return "\n".join(_name(line, LEGEND) for line in wrapped(label, LEGEND))


def _legend_shape(labels: Sequence[str]) -> tuple[int, int]:
    """Return how many lines of text a legend takes, and its columns."""
    lines = [line for label in labels for line in label.split("\n")]
    widest = max(map(text_width, lines), default=0.0)
    num_columns = max(1, min(len(labels), int((LEGEND + SWATCH) / (widest + SWATCH))))
    return math.ceil(len(lines) / num_columns), num_columns


def _frame(axes: Axes, chart: Chart | HeatMap) -> None:
    title = "\n".join(wrapped(_plain(chart.title), 560))
    lines = 0
    if isinstance(chart, Chart) and (labels := _labels(chart)):
        lines, num_columns = _legend_shape(labels)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=num_columns, frameon=False,
                    borderpad=0.2, borderaxespad=0.3)  # fmt: skip
    # above the legend, which stands above the data as in an SVG
    axes.set_title(title, loc="left", pad=6 + (72 * LEGEND_LINE * lines + 6) * bool(lines))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if chart.note:
        note = "\n".join(wrapped(_plain(chart.note), 620))
        axes.set_xlabel(f"{axes.get_xlabel()}\n\n{note}")


def _plain(text: str) -> str:
    """Return a text in which no dollar begins a formula."""
    return without_controls(text).replace("$", r"\$")


def _name(text: str, width: float = NAME) -> str:
    """Return a name as a label has it, no longer than there is room."""
    return _plain(shortened(text, width))


def _range(axis: Axis) -> tuple[float, float]:
    """Return the ends of an axis as values."""
    return (10.0**axis.low, 10.0**axis.high) if axis.is_log else (axis.low, axis.high)


def _draw(axes: Axes, chart: Chart) -> None:
    """Draw lines, points, bars or a plane."""
    if chart.kind == "bars":
        _draw_bars(axes, chart)
    else:
        xs, ys = (
            plane_axes(chart, 7) if chart.kind == "plane" else (x_axis(chart, 9), y_axis(chart))
        )
        axes.set_xscale(chart.x_scale if not xs.names else "linear")
        axes.set_yscale(chart.y_scale)
        for number, series in enumerate(chart.series):
            x, colour = list(xs_of(series, xs)), LIGHT[number % len(LIGHT)]
            label = _legend_text(series.label)
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
        # the same numbers at the same places as in an SVG
        axes.set(xlim=_range(xs), ylim=_range(ys))
        turn: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(
            [value for value, _ in xs.ticks],
            [_name(text, TURNED) for _, text in xs.ticks],
            **(turn if xs.names else {}),
        )
        axes.set_yticks([value for value, _ in ys.ticks], [text for _, text in ys.ticks])
        axes.minorticks_off()
        axes.set_xlabel(_plain(chart.x_label))
        axes.set_ylabel(_plain(chart.y_label))
    axes.grid(axis="both" if chart.kind == "plane" else "x" if chart.kind == "bars" else "y",
              color="#e3e6ea")  # fmt: skip
    axes.set_axisbelow(True)


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
                label="" if disc.label in seen else _legend_text(disc.label),
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
            label=_legend_text(series.label),
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
    values_axis = y_axis(chart)
    axes.set_xlim(_range(values_axis))
    axes.set_xticks([v for v, _ in values_axis.ticks], [text for _, text in values_axis.ticks])
    axes.minorticks_off()
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
    axes.set_xticks(range(len(chart.columns)), [_name(name, TURNED) for name in chart.columns],
                    rotation=90)  # fmt: skip
    axes.set_yticks(range(len(chart.rows)), list(map(_name, chart.rows)))
    axes.set_xlabel(_plain(chart.x_label))
    axes.set_ylabel(_plain(chart.y_label))
