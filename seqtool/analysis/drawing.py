"""Charts as SVG, PNG or PDF by matplotlib (the extra `plot`), in one style for all.

The ground is white, so that a picture reads in print and on dark pages alike. The same chart twice
gives the same SVG: ids are drawn from a fixed salt, and no date is written. Text stays text there.

Hues are those of Okabe & Ito (2008), which people with any vision of colours tell apart, darker
where the white ground asks for it; series differ in their marks, too.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from seqtool.analysis.report import Chart, Series
from seqtool.core.errors import ConfigError
from seqtool.core.storage import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#00855f", "#b0558a", "#9a6b00", "#3d3d3d", "#2c8fc4", "#7a4f9a")
FAINT = "#59636e"
MARKERS = "osD^v"
FAR = 1000  # a dashed line so many times above all others leaves a log chart, as bounds do
PLANE_LABELS = ("unit circle", "Gersgorin's discs")
LABELLED = 0.12  # the least share that has its name written on it
MARKED = 30  # a line of more points has no marks
INCHES = 7.2  # across
MOST_PIXELS = 60_000  # of a height that can be drawn
LINE = 0.19  # inches of a line of a legend or a note
LETTERS = 96  # of such a line
NAME = 40  # letters of a name beside a bar, a row or a point
STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "grid.color": "#e3e6ea",
    "legend.frameon": False,
    "lines.markersize": 3.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "seqtool",
    "text.parse_math": False,  # a dollar in a text begins no formula
}
# no date, and no addresses
SVG_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_PLACES, _TAIL = re.compile(rb'(?<= )(?:d|x|y)="[^"]*"'), re.compile(rb"(\.\d\d)\d+")
_CONTROLS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_picture(path: Path) -> Path:
    """Return the file of a picture, .png where it has no suffix, before the work begins.

    Raises:
        ConfigError: a picture of this suffix cannot be drawn, or matplotlib is not installed.
    """
    path = path if path.suffix else Path(f"{path}.png")
    if path.suffix.lower() not in SUFFIXES:
        what, hint = f"a {path.suffix} file cannot be drawn", "name a .png, .svg or .pdf file"
        raise ConfigError(what, hint=hint, path=path)
    require_matplotlib()
    return path


def require_matplotlib() -> None:
    """Refuse to draw without it.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError("matplotlib is not installed", hint="pip install 'seqtool[plot]'")


def save_charts(charts: Sequence[Chart], path: Path) -> set[str]:
    """Draw charts below one another into one file; return the letters that no font has.

    Raises:
        ConfigError: there is no chart, no matplotlib, or such a file cannot be drawn.
        OSError: the file cannot be written.
    """
    path = check_picture(path)
    if not charts:
        raise ConfigError("there is no chart to draw", hint="leave -o out")
    with atomic_file(path) as stream:
        return _draw_charts(charts, stream, path.suffix[1:].lower())


def svg_of(chart: Chart) -> str:
    """Return a chart as an SVG element, for a page."""
    stream = io.BytesIO()
    _draw_charts([chart], stream, "svg")
    text = stream.getvalue().decode()
    return text[text.index("<svg") :]


def printable(text: str) -> str:
    """Return a text in which what no font has and XML forbids is the replacement character."""
    return _CONTROLS.sub("\ufffd", text)


def _draw_charts(charts: Sequence[Chart], stream: BinaryIO, suffix: str) -> set[str]:
    from matplotlib import style
    from matplotlib.figure import Figure

    families, missing = ["sans-serif"], set[str]()
    if suffix != "svg":  # which leaves letters to the fonts of the reader
        texts = json.dumps([asdict(chart) for chart in charts], ensure_ascii=False)
        families, missing = _fonts_of(printable(texts))
    heights = [_height(chart) for chart in charts]
    with style.context(["default", {**STYLE, "font.family": families}]), _quiet():
        figure = Figure(figsize=(INCHES, sum(heights)), layout="constrained")
        # each lays itself out: a wide legend of one makes no other narrow
        parts = figure.subfigures(len(charts), 1, squeeze=False, height_ratios=heights)[:, 0]
        for chart, part in zip(charts, parts, strict=True):
            part.suptitle(_wrapped(chart.title, 80), x=0.01, ha="left")
            if chart.note:
                part.supxlabel(_wrapped(chart.note), x=0.01, ha="left", size=8, color=FAINT)
            axes = part.subplots()
            axes.set(xlabel=printable(chart.x_label), ylabel=printable(chart.y_label))
            draw = _draw_bars if chart.kind in ("bars", "shares") else _draw_points
            draw(axes, chart)
            if labels := axes.get_legend_handles_labels()[1]:
                axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=_legend_shape(labels)[1])
        metadata = SVG_METADATA if suffix == "svg" else None
        dpi = min(150, MOST_PIXELS / sum(heights))
        picture = io.BytesIO()
        figure.savefig(picture, dpi=dpi, format=suffix, metadata=metadata)
        stream.write(_compact(picture.getvalue()) if suffix == "svg" else picture.getvalue())
    return missing


def _compact(svg: bytes) -> bytes:
    """Return a picture whose places are hundredths of a point: matplotlib writes millionths."""
    return _PLACES.sub(lambda place: b" ".join(_TAIL.sub(rb"\1", place[0]).split()), svg)


def _fonts_of(text: str) -> tuple[list[str], set[str]]:
    """Return the installed fonts that a text needs, and its letters that none of them has."""
    from matplotlib.font_manager import fontManager, get_font

    files = {entry.name: entry.fname for entry in reversed(fontManager.ttflist)}
    # TeX's fonts have letters at places of their own, the last resort boxes for all of them
    named = [name for name in files if not name.startswith(("cm", "Last Resort"))]
    families: list[str] = []
    letters = {letter for letter in text if not letter.isspace()}
    # the one that comes with matplotlib first, so that English looks alike everywhere
    for name in sorted(named, key=lambda name: (name != "DejaVu Sans", "Sans" not in name, name)):
        charmap = get_font(files[name]).get_charmap() if letters else ()
        if not families or any(ord(letter) in charmap for letter in letters):
            families.append(name)
        letters = {letter for letter in letters if ord(letter) not in charmap}
    return families, letters


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep off stderr what nobody can act on; the caller says which letters no font has."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # a font has no bold letters; tables of it are left out
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
            yield
    finally:
        logging.disable(before)


def _wrapped(text: str, width: int = LETTERS) -> str:
    return textwrap.fill(printable(text), width)


def _name(text: str) -> str:
    """Return a name as a label has it, with an ellipsis in its middle where it is long."""
    text = printable(text)
    return text if len(text) <= NAME else f"{text[: NAME // 2]}…{text[-NAME // 2 + 1 :]}"


def _legend_shape(labels: Sequence[str]) -> tuple[int, int]:
    """Return how many lines of text a legend takes, and its columns."""
    lines = [line for label in labels for line in label.split("\n")]
    columns = max(1, min(len(labels), LETTERS // (max(map(len, lines)) + 8))) if labels else 1
    return math.ceil(len(lines) / columns), columns


def _height(chart: Chart) -> float:
    """Return how many inches a chart needs."""
    note = LINE * len(_wrapped(chart.note).split("\n"))
    labels = [series.label for series in chart.series if series.label]
    if chart.kind == "plane":
        labels += PLANE_LABELS[: 1 + bool(chart.discs)]
    shown = list(map(_wrapped, labels))
    extra = note + LINE * _legend_shape(shown)[0] * bool(shown)
    if chart.kind in ("bars", "shares"):
        return extra + 1.1 + (0.12 + 0.13 * _bars_of_a_name(chart)) * len(_names_of(chart))
    return extra + (5.4 if chart.kind == "plane" else 3.4)


def _names_of(chart: Chart) -> dict[str, int]:
    """Return the places of names along x, in their order; none where x are numbers."""
    names = [str(x) for series in chart.series for x in series.x if isinstance(x, str)]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _finite(values: Sequence[float]) -> list[float]:
    """Return values with a gap where one is infinite."""
    return [value if math.isfinite(value) else math.nan for value in values]


def _places(series: Series, names: dict[str, int]) -> list[float]:
    return [names[x] if isinstance(x, str) else float(x) for x in series.x]


def _shown(series: Series, number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "label": _wrapped(series.label)}


def _draw_points(axes: Axes, chart: Chart) -> None:
    """Draw lines, points or a plane."""
    names = _names_of(chart)
    for number, series in enumerate(chart.series):
        x, y = _places(series, names), _finite(series.y)
        marker = MARKERS[number % len(MARKERS)]
        shown = _shown(series, number)
        if chart.kind == "lines":
            style = "--" if series.style == "dashed" else "-"
            has_marks = len(x) == 1 or (len(x) <= MARKED and style == "-")
            axes.plot(x, y, style, marker=marker if has_marks else "", **shown)
            if series.low:
                low, high = _finite(series.low), _finite(series.high)
                axes.fill_between(x, low, high, color=shown["color"], alpha=0.16, lw=0)
            continue
        axes.scatter(x, y, s=12, marker=marker, **shown)
        for at_x, at_y, name in zip(x, y, series.names, strict=False):
            axes.annotate(_name(name), (at_x, at_y), (3, 3), textcoords="offset points", size=7)
    if chart.x_scale == "log":
        _scale_by_log(axes, "x", [float(x) for series in chart.series for x in series.x])
    if chart.y_scale == "log":
        solid = [y for one in chart.series if one.style == "solid" for y in one.y if y < math.inf]
        ys = [y for one in chart.series for y in (*one.y, *one.low, *one.high)]
        _scale_by_log(axes, "y", [y for y in ys if y <= FAR * max(solid, default=1)])
    if names:
        axes.set_xticks(list(names.values()), list(map(_name, names)))
    elif chart.x_scale == "linear" and all(x % 1 == 0 for one in chart.series for x in one.x):
        axes.locator_params(axis="x", integer=True)
    if chart.kind == "plane":
        _draw_discs(axes, chart)


def _draw_discs(axes: Axes, chart: Chart) -> None:
    from matplotlib.patches import Circle

    circle, discs = PLANE_LABELS
    axes.add_patch(Circle((0, 0), 1, fill=False, color="black", alpha=0.9, label=circle))
    colour = COLOURS[(len(chart.series) + 1) % len(COLOURS)]
    for number, (centre, radius) in enumerate(chart.discs):
        label = "" if number else discs
        patch = Circle((centre, 0), radius, fill=False, color=colour, alpha=0.35, label=label)
        axes.add_patch(patch)
    axes.set_aspect("equal", adjustable="datalim")
    axes.autoscale_view()


def _scale_by_log(axes: Axes, which: str, values: Iterable[float]) -> None:
    """Scale an axis by the logarithm, with plain numbers: at 1, 2, 3 and 5, too, of few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    logs = [math.log10(value) for value in values if 0 < value < math.inf] or [0.0, 1.0]
    room = 0.04 * (max(logs) - min(logs)) or 0.1
    low, high = 10 ** (min(logs) - room), 10 ** (max(logs) + room)
    axes.set(**{f"{which}lim": (low, high), f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if high < 1000 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    axis.set_minor_locator(NullLocator())


def _number(value: float) -> str:
    """Return a number of a label, of three digits or to the next whole one; "" of an infinite."""
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _draw_bars(axes: Axes, chart: Chart) -> None:
    """Draw lying bars, the first name at the top, as names have more room beside them."""
    names = _names_of(chart)
    each = 0.8 / max(1, _bars_of_a_name(chart))
    begins = [0.0] * len(names)
    for number, series in enumerate(chart.series):
        places, values = _places(series, names), _finite(series.y)
        shown = _shown(series, number)
        if chart.kind == "shares":
            bars = axes.barh(places, values, each, left=begins, **shown)
            written = [_name(series.label) if value >= LABELLED else "" for value in values]
            axes.bar_label(bars, written, label_type="center", size=7, color="white")
            begins = [begin + value for begin, value in zip(begins, values, strict=True)]
            continue
        y = [place + (number + 0.5) * each - 0.4 for place in places]
        bars = axes.barh(y, values, each * 0.92, **shown)
        axes.bar_label(bars, list(map(_number, series.y)), padding=3, size=7, color=FAINT)
    axes.set_yticks(list(names.values()), list(map(_name, names)))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel=printable(chart.y_label), ylabel=printable(chart.x_label))


def _bars_of_a_name(chart: Chart) -> int:
    """Return how many bars lie below each other: shares lie one behind the other."""
    return 1 if chart.kind == "shares" else len(chart.series)
