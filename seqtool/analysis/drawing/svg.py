"""Charts as SVG: text stays text, and one style sheet serves light and dark pages.

Nothing is drawn by a library, so the same chart twice is the same bytes. All rules of the style
begin with the class of the picture, so that none leaks into a page that it stands in; a page that
allows no style of elements shows the pictures too, as these have attributes and classes only.

Hues are those of Okabe & Ito (2008), which people with any vision of colours tell apart, darker or
lighter where the ground asks for it; series also differ in their marks.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby

from seqtool.analysis.drawing.axes import (
    Axis,
    number_text,
    plane_axes,
    points_of,
    str_of,
    x_axis,
    xs_of,
    y_axis,
)
from seqtool.analysis.report import Chart, HeatMap, Series

LIGHT = ("#0072b2", "#d55e00", "#00855f", "#b0558a", "#9a6b00", "#3d3d3d", "#2c8fc4", "#7a4f9a")
DARK = ("#5ab4e8", "#f5904a", "#2fc39a", "#e397c4", "#e6b94a", "#d0d0d0", "#a5d8f5", "#b99ad8")
NUM_COLOURS = len(LIGHT)
CLASS = "seqtool-chart"
WIDE = 720
NARROW_BELOW = 520  # pictures of less width have fewer ticks

FONT = 12  # pixels
LINE = 16  # from one line of text to the next
TITLE_FONT, TITLE_LINE = 15, 20
MAX_HITS = 600  # values shown on hover, of a chart
MARKED = 30  # a line of more points has no marks; so many points have discs to be pointed at
MARK = 3.2  # radius
_CONTROLS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _rules(colours: Sequence[str], ink: str, faint: str, grid: str, ground: str) -> str:
    rules = [
        f".bg{{fill:{ground}}} text{{fill:{ink}}} .dim{{fill:{faint}}}",
        f".grid{{stroke:{grid}}} .axis{{stroke:{faint}}} .ink{{stroke:{ink}}}",
        f".inv{{fill:{ground}}} .heat{{fill:{colours[0]}}} .cold{{fill:{colours[1]}}}",
    ]
    rules += [f".s{n}{{stroke:{c}}} .f{n}{{fill:{c}}}" for n, c in enumerate(colours)]
    # the class of the picture before each selector
    return re.sub(r"(^|\s)(?=[.a-z][^{}]*\{)", rf"\1.{CLASS} ", " ".join(rules))


STYLE = (
    f".{CLASS}{{font:{FONT}px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;"
    "max-width:100%;height:auto}"
    f".{CLASS} .title{{font-size:{TITLE_FONT}px;font-weight:600}}"
    f".{CLASS} .line{{fill:none;stroke-width:2;stroke-linejoin:round}}"
    f".{CLASS} .hit{{fill-opacity:0}} .{CLASS} .hit:hover{{fill-opacity:.35}}"
    f".{CLASS} .bar:hover{{fill-opacity:.7}}"
    + _rules(LIGHT, "#1f2328", "#59636e", "#e3e6ea", "#ffffff")
    + "@media (prefers-color-scheme:dark){"
    + _rules(DARK, "#e6edf3", "#9aa4af", "#2b3138", "#15191e")
    + "}"
)


def without_controls(value: str) -> str:
    """Return a text in which what no font has and XML forbids is the replacement character."""
    return _CONTROLS.sub("\ufffd", value)


def text_of(value: str) -> str:
    """Return a text of data as XML has it."""
    return escape(without_controls(value))


def text_width(text: str, font: int = FONT) -> float:
    """Return about how wide a text is, in pixels: no font is asked."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    narrow = sum(letter in "iljtfI.,:;'|!()[] " for letter in text)
    return font * (wide + 0.62 * (len(text) - wide - narrow) + 0.36 * narrow)


def shortened(text: str, width: float, font: int = FONT) -> str:
    """Return a text that is no wider, with an ellipsis in its middle where it was."""
    if text_width(text, font) <= width:
        return text
    keep = len(text) - 1
    while keep > 2 and text_width(
        text[: keep - keep // 2] + "…" + text[len(text) - keep // 2 :]
    ) > (width * FONT / font):
        keep -= 1
    return f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"


def wrapped(text: str, width: float, font: int = FONT) -> list[str]:
    """Return a text as lines that are no wider, if no word is."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", font) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def chart_svg(
    charts: Chart | HeatMap | Sequence[Chart | HeatMap],
    *,
    width: int = WIDE,
    styled: bool = True,
) -> str:
    """Return a picture of one chart, or of several below one another.

    Args:
        charts: what to draw.
        width: in pixels; the height follows.
        styled: with the style sheet, as a file by itself needs it; a page has it once, as `STYLE`.
    """
    several = [charts] if isinstance(charts, Chart | HeatMap) else list(charts)
    body: list[str] = []
    top = 0.0
    for chart in several:
        picture = _Picture(width)
        picture.draw(chart)
        body.append(f'<g transform="translate(0 {_n(top)})">')
        body += [*picture.parts, "</g>"]
        top += picture.height + 12
    height = math.ceil(top)
    names = "; ".join(chart.title for chart in several)
    style = f"<style>{STYLE}</style>" if styled else ""
    ground = f'<rect class="bg" width="{width}" height="{height}"/>' if styled else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{CLASS}" role="img" '
        f'aria-label="{text_of(names)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{style}{ground}{"".join(body)}</svg>\n'
    )


def _n(value: float) -> str:
    """Return a coordinate, to a tenth of a pixel."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class _Picture:
    """One chart as elements; `height` grows as parts are added from the top."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.is_narrow = width < NARROW_BELOW
        self.parts: list[str] = []
        self.height = 8.0
        # the area of the data, once there is one
        self.left = self.right = self.top = self.bottom = 0.0

    def draw(self, chart: Chart | HeatMap) -> None:
        """Draw a chart with its title, and its note below."""
        self.lines(chart.title, "title", TITLE_FONT, TITLE_LINE)
        if isinstance(chart, HeatMap):
            self.heat_map(chart)
        else:
            self.legend(chart)
            if chart.kind == "bars" and _lies(chart, self.width):
                self.lying_bars(chart)
            else:
                self.axes_and_data(chart)
        if chart.note:
            self.height += 4
            self.lines(chart.note, "dim", FONT, LINE)

    def lines(self, text: str, name: str, font: int, line: int) -> None:
        """Write a text from margin to margin, on as many lines as it needs."""
        is_bold = name == "title"
        for part in wrapped(text, (self.width - 24) / (1.08 if is_bold else 1.0), font):
            self.height += line
            self.text(12, self.height - 4, part, name=name)

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "", name: str = "", turn: bool = False
    ) -> None:
        """Write a text; `anchor` middle or end; `turn`ed, it goes up from right below."""
        attributes = f' text-anchor="{anchor}"' if anchor else ""
        attributes += f' class="{name}"' if name else ""
        attributes += f' transform="rotate(-55 {_n(x)} {_n(y)})"' if turn else ""
        self.parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{attributes}>{text_of(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, name: str, more: str = "") -> None:
        """Draw a straight line."""
        self.parts.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{name}"{more}/>'
        )

    # --- legend

    def legend(self, chart: Chart) -> None:
        """Write what the colours stand for, above the data: in rows, as many as it takes."""
        items: list[tuple[str, Callable[[float, float], None]]] = []
        for number, series in enumerate(chart.series):
            if series.label:
                items.append((series.label, self._swatch(chart, series, number)))
        for number, label in enumerate(_disc_labels(chart)):
            if label:
                items.append((label, self._ring(_disc_class(chart, number, label))))
        if not items:
            return
        x, self.height = 12.0, self.height + LINE + 2
        for label, draw in items:
            shown = shortened(label, self.width - 24 - 30)
            size = 28 + text_width(shown)
            if x > 12 and x + size > self.width - 12:
                x, self.height = 12.0, self.height + LINE
            draw(x, self.height - 8)
            self.text(x + 24, self.height - 4, shown)
            x += size + 14
        self.height += 4

    def _swatch(self, chart: Chart, series: Series, number: int) -> Callable[[float, float], None]:
        def draw(x: float, y: float) -> None:
            colour = number % NUM_COLOURS
            if chart.kind == "bars":
                self.parts.append(
                    f'<rect x="{_n(x + 3)}" y="{_n(y - 5)}" width="14" height="10" '
                    f'class="f{colour}"/>'
                )
                return
            if chart.kind == "lines":
                self.line(x, y, x + 20, y, f"line s{colour}", _dash(series))
            if chart.kind != "lines" or _has_marks(series):
                self.mark(x + 10, y, number)

        return draw

    def _ring(self, name: str) -> Callable[[float, float], None]:
        def draw(x: float, y: float) -> None:
            self.parts.append(
                f'<circle cx="{_n(x + 10)}" cy="{_n(y)}" r="6" class="line {name}" '
                f'stroke-width="1.5"/>'
            )

        return draw

    def mark(self, x: float, y: float, number: int, tip: str = "") -> None:
        """Draw the mark of a series, each of its own shape; a tip is told on hover."""
        r, name = MARK, f"f{number % NUM_COLOURS}"
        match number % 5:
            case 0:
                shape, corners = f'circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(r)}"', []
            case 1:
                shape, corners = "polygon", [(-r, -r), (r, -r), (r, r), (-r, r)]
            case 2:
                shape, corners = "polygon", [(0, -1.3 * r), (1.2 * r, r), (-1.2 * r, r)]
            case 3:
                shape, corners = (
                    "polygon",
                    [(0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)],
                )
            case _:
                shape, corners = "polygon", [(0, 1.3 * r), (1.2 * r, -r), (-1.2 * r, -r)]
        if corners:
            points = " ".join(f"{_n(x + dx)},{_n(y + dy)}" for dx, dy in corners)
            shape += f' points="{points}"'
        element = shape.partition(" ")[0]
        inside = f"><title>{text_of(tip)}</title></{element}>" if tip else "/>"
        self.parts.append(f'<{shape} class="{name}"{inside}')

    # --- lines, points, standing bars, planes

    def axes_and_data(self, chart: Chart) -> None:
        """Draw both axes and what stands between them."""
        if chart.kind == "plane":
            xs, ys = plane_axes(chart, 5 if self.is_narrow else 7)
        else:
            xs, ys = x_axis(chart, 5 if self.is_narrow else 9), y_axis(chart)
        labels = max((text_width(label) for _, label in ys.ticks), default=0.0)
        self.height += LINE
        self.text(12, self.height - 3, chart.y_label, name="dim")
        self.left, self.right = 18 + labels, self.width - 18.0
        self.top = self.height + 8
        size = 230.0 if self.is_narrow else 270.0
        if chart.kind == "plane":
            size = min(self.right - self.left, 400.0)
            self.right = self.left + size
        self.bottom = self.top + size
        self.vertical_axis(ys, has_base=chart.kind == "bars")
        self.horizontal_axis(xs, chart.x_label, is_grid=chart.kind == "plane")
        if chart.kind == "plane":
            self.discs(chart, xs, ys)
        if chart.kind == "lines":
            for number, series in enumerate(chart.series):
                self.band(series, number, xs, ys)
        hits = sum(len(series.y) for series in chart.series)
        every = -(-hits // MAX_HITS) or 1
        for number, series in enumerate(chart.series):
            if chart.kind == "bars":
                self.standing_bars(series, number, len(chart.series), xs, ys)
                continue
            if chart.kind == "lines":
                self.curve(series, number, xs, ys)
            else:
                self.scatter(chart, series, number, xs, ys, tells=hits > MARKED)
            if chart.kind == "lines" or hits <= MARKED:
                self.hits(chart, series, number, every, xs, ys)
        if chart.kind in ("points", "plane"):
            self.point_names(chart, xs, ys)

    def at(self, xs: Axis, ys: Axis, x: float, y: float) -> tuple[float, float]:
        """Return where a pair of values is, in pixels."""
        return (
            self.left + xs.place(x) * (self.right - self.left),
            self.bottom - ys.place(y) * (self.bottom - self.top),
        )

    def vertical_axis(self, ys: Axis, *, has_base: bool) -> None:
        """Draw the grid, and write the values left of it; bars have a line at 0 as their base."""
        for value, label in ys.ticks:
            y = self.bottom - ys.place(value) * (self.bottom - self.top)
            is_base = has_base and not ys.is_log and value == 0
            self.line(self.left, y, self.right, y, "axis" if is_base else "grid")
            self.text(self.left - 6, y + 4, label, anchor="end", name="dim")

    def horizontal_axis(self, xs: Axis, label: str, *, is_grid: bool = False) -> None:
        """Draw the lower line; write the values below it, each where there is room."""
        self.line(self.left, self.bottom, self.right, self.bottom, "axis")
        room = (self.right - self.left) / max(1, len(xs.ticks))
        widest = max((text_width(text) for _, text in xs.ticks), default=0.0)
        turns = bool(xs.names) and widest > room - 4
        below = self.bottom + 16
        last = -math.inf
        for value, text in xs.ticks:
            x = self.left + xs.place(value) * (self.right - self.left)
            if is_grid:
                self.line(x, self.top, x, self.bottom, "grid")
            elif not xs.names:
                self.line(x, self.bottom, x, self.bottom + 4, "axis")
            if turns:
                if x - last < 11:  # no two of them touch
                    continue
                last = x
                shown = shortened(text, 110)
                self.text(x + 4, self.bottom + 12, shown, anchor="end", name="dim", turn=True)
                below = max(below, self.bottom + 16 + 0.82 * text_width(shown))
                continue
            half = text_width(text) / 2
            if x - half < last + 6:
                continue
            last = x + half
            anchor, place = "middle", x
            if x + half > self.width - 4:
                anchor, place = "end", self.width - 4
            self.text(place, self.bottom + 17, text, anchor=anchor, name="dim")
        self.height = below + 6
        if label:
            self.height += LINE
            middle = (self.left + self.right) / 2
            self.text(middle, self.height - 3, label, anchor="middle", name="dim")

    def band(self, series: Series, number: int, xs: Axis, ys: Axis) -> None:
        """Fill what is between `low` and `high`, where both are."""
        if not series.low:
            return
        rows = [
            (self.at(xs, ys, x, low), self.at(xs, ys, x, high))
            for x, low, high in zip(xs_of(series, xs), series.low, series.high, strict=True)
        ]
        for is_there, run in groupby(rows, key=lambda row: _finite(*row[0], *row[1])):
            ends = list(run)
            if is_there and len(ends) > 1:
                around = [high for _, high in ends] + [low for low, _ in reversed(ends)]
                points = " ".join(f"{_n(x)},{_n(y)}" for x, y in around)
                self.parts.append(
                    f'<polygon points="{points}" class="f{number % NUM_COLOURS}" '
                    'fill-opacity=".16"/>'
                )

    def curve(self, series: Series, number: int, xs: Axis, ys: Axis) -> None:
        """Draw a line, broken where a value is missing; few points have marks."""
        points = [self.at(xs, ys, x, y) for x, y in zip(xs_of(series, xs), series.y, strict=True)]
        for is_there, run in groupby(points, key=lambda point: _finite(*point)):
            piece = list(run)
            if is_there and len(piece) > 1:
                path = " ".join(f"{_n(x)},{_n(y)}" for x, y in piece)
                self.parts.append(
                    f'<polyline points="{path}" class="line s{number % NUM_COLOURS}"'
                    f"{_dash(series)}/>"
                )
        if _has_marks(series):
            for point in points:
                if _finite(*point):
                    self.mark(*point, number)

    def scatter(
        self, chart: Chart, series: Series, number: int, xs: Axis, ys: Axis, *, tells: bool
    ) -> None:
        """Draw points; `low` and `high` are the ends of error bars.

        Where there are too many points for discs, the marks themselves tell their values.
        """
        spans = zip(series.low, series.high, strict=True) if series.low else None
        for index, (x, y) in enumerate(zip(xs_of(series, xs), series.y, strict=True)):
            point = self.at(xs, ys, x, y)
            if spans is not None:
                low, high = next(spans)
                ends = self.at(xs, ys, x, low)[1], self.at(xs, ys, x, high)[1]
                if _finite(point[0], *ends):
                    self.line(point[0], ends[0], point[0], ends[1], f"s{number % NUM_COLOURS}")
            if _finite(*point):
                self.mark(*point, number, tooltip(chart, series, index) if tells else "")

    def hits(
        self, chart: Chart, series: Series, number: int, every: int, xs: Axis, ys: Axis
    ) -> None:
        """Lay unseen discs over the points, which tell their values."""
        for index, (x, y) in enumerate(zip(xs_of(series, xs), series.y, strict=True)):
            point = self.at(xs, ys, x, y)
            if index % every or not _finite(*point):
                continue
            self.parts.append(
                f'<circle cx="{_n(point[0])}" cy="{_n(point[1])}" r="7" '
                f'class="hit f{number % NUM_COLOURS}">'
                f"<title>{text_of(tooltip(chart, series, index))}</title></circle>"
            )

    def discs(self, chart: Chart, xs: Axis, ys: Axis) -> None:
        """Draw discs in their true size, those that are not within view cut off."""
        labels = _disc_labels(chart)
        x0, y0 = self.at(xs, ys, 0, 0)
        if self.left <= x0 <= self.right:
            self.line(x0, self.top, x0, self.bottom, "axis")
        if self.top <= y0 <= self.bottom:
            self.line(self.left, y0, self.right, y0, "axis")
        unit = (self.right - self.left) / (xs.high - xs.low)
        for disc in chart.discs:
            x, y = self.at(xs, ys, disc.x, disc.y)
            name = _disc_class(chart, labels.index(disc.label), disc.label)
            tip = f"{disc.label}: centre {_pair(disc.x, disc.y)}, radius {number_text(disc.radius)}"
            self.parts.append(
                f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(disc.radius * unit)}" '
                f'fill="none" class="{name}" stroke-opacity="{".9" if name == "ink" else ".35"}">'
                f"<title>{text_of(tip.removeprefix(': '))}</title></circle>"
            )

    def point_names(self, chart: Chart, xs: Axis, ys: Axis) -> None:
        """Write names beside points, each where it covers neither another nor a point."""
        points = [
            (self.at(xs, ys, x, y), name)
            for series in chart.series
            for x, y, name in zip(xs_of(series, xs), series.y, series.names, strict=False)
        ]
        taken = [(x - 3, y - 3, x + 3, y + 3) for (x, y), _ in points]
        for (x, y), name in points:
            if not (name and _finite(x, y)):
                continue
            size = text_width(name)
            for left, base in ((x + 6, y + 4), (x - 6 - size, y + 4), (x - size / 2, y - 6),
                               (x - size / 2, y + 15)):  # fmt: skip
                box = (left, base - 9, left + size, base + 2)
                inside = self.left <= left and left + size <= self.width - 4
                inside = inside and self.top <= box[1] and box[3] <= self.bottom
                if inside and not any(_overlap(box, other) for other in taken):
                    taken.append(box)
                    self.text(left, base, name)
                    break

    # --- bars

    def standing_bars(
        self, series: Series, number: int, num_series: int, xs: Axis, ys: Axis
    ) -> None:
        """Draw the bars of one series: its share of the place of each name."""
        group = (self.right - self.left) / len(xs.names)
        each = min(0.8 * group / num_series, 46.0)
        base = self._base(ys)
        for index, (x, y) in enumerate(zip(xs_of(series, xs), series.y, strict=True)):
            place = self.at(xs, ys, x, y)
            if not _finite(*place):
                continue
            left = place[0] + (number - num_series / 2) * each
            top, low = min(place[1], base), max(place[1], base)
            self.bar(left + each * 0.04, top, each * 0.92, low - top, number, series, index)
            if series.low:
                ends = [self.at(xs, ys, x, v)[1] for v in (series.low[index], series.high[index])]
                if _finite(*ends):
                    self.line(left + each / 2, ends[0], left + each / 2, ends[1], "ink")

    def _base(self, ys: Axis) -> float:
        """Return where bars begin: at 0, or at the low end of a log axis."""
        place = 0.0 if ys.is_log else min(1.0, max(0.0, ys.place(0.0)))
        return self.bottom - place * (self.bottom - self.top)

    def bar(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        number: int,
        series: Series,
        index: int,
    ) -> None:
        """Draw a bar that tells its value."""
        tip = f"{str_of(series.x[index])}: {_value_of(series, index)}"
        tip = f"{series.label}, {tip}" if series.label else tip
        self.parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(max(height, 0.5))}" '
            f'class="bar f{number % NUM_COLOURS}"><title>{text_of(tip)}</title></rect>'
        )

    def lying_bars(self, chart: Chart) -> None:
        """Draw bars from left to right, as names that are long or many have room on lines."""
        names = x_axis(chart).names
        values = y_axis(chart, 4 if self.is_narrow else 6)
        num = len(chart.series)
        each = 13.0
        row = num * each + 6
        widest = max((text_width(name) for name in names), default=0.0)
        label = min(widest, 0.42 * self.width)
        self.height += LINE if chart.x_label else 0
        if chart.x_label:
            self.text(12, self.height - 3, chart.x_label, name="dim")
        self.left, self.right = 20 + label, self.width - 48.0
        self.top = self.height + 4
        self.bottom = self.top + row * len(names)
        scale = self.right - self.left
        for value, text in values.ticks:
            x = self.left + values.place(value) * scale
            is_base = not values.is_log and value == 0
            self.line(x, self.top, x, self.bottom, "axis" if is_base else "grid")
            self.text(x, self.bottom + 15, text, anchor="middle", name="dim")
        base = self.left + (0.0 if values.is_log else max(0.0, values.place(0.0))) * scale
        rows = {name: self.top + number * row + 3 for number, name in enumerate(names)}
        for name, y in rows.items():
            middle = y + num * each / 2 + 4
            self.text(14 + label, middle, shortened(name, label), anchor="end")
        for number, series in enumerate(chart.series):
            for index, (place, y) in enumerate(points_of(series)):
                end = self.left + values.place(float(y)) * scale
                if not _finite(end):
                    continue
                top = rows[str_of(place)] + number * each
                self.bar(
                    min(base, end), top + 0.5, abs(end - base), each - 1, number, series, index
                )
                if series.low:
                    low, high = (
                        self.left + values.place(v) * scale
                        for v in (series.low[index], series.high[index])
                    )
                    if _finite(low, high):
                        self.line(low, top + each / 2, high, top + each / 2, "ink")
                        end = max(end, high)
                beyond = max(end, base) + 4
                self.text(beyond, top + each / 2 + 4, number_text(_short(y)), name="dim")
        self.height = self.bottom + 20
        if chart.y_label:
            self.height += LINE
            middle = (self.left + self.right) / 2
            self.text(middle, self.height - 3, chart.y_label, anchor="middle", name="dim")

    # --- heat maps

    def heat_map(self, chart: HeatMap) -> None:
        """Draw a grid: the more of the hue, the more of what the colour tells."""
        found = [v for row in chart.values for v in row if math.isfinite(v)]
        low, high = (min(found), max(found)) if found else (0.0, 1.0)
        most = max(abs(low), abs(high)) or 1.0
        self._colour_bar(chart.value_label, low, high, most)
        label = min(max((text_width(name) for name in chart.rows), default=0.0), 0.36 * self.width)
        self.height += LINE
        self.text(12, self.height - 3, chart.y_label, name="dim")
        self.left, self.top = 20 + label, self.height + 4
        cell = min((self.width - 14 - self.left) / max(1, len(chart.columns)), 46.0)
        row_height = max(13.0, min(cell, 22.0))
        self.right = self.left + cell * len(chart.columns)
        self.bottom = self.top + row_height * len(chart.rows)
        # a value has room in a cell, or none has
        texts = {v: number_text(_short(v)) for v in found}
        writes = max((text_width(text, 10) for text in texts.values()), default=0) < cell - 3
        for r, (name, values) in enumerate(zip(chart.rows, chart.values, strict=True)):
            y = self.top + r * row_height
            shown = shortened(name, label)
            self.text(14 + label, y + row_height / 2 + 4, shown, anchor="end")
            for c, (column, value) in enumerate(zip(chart.columns, values, strict=True)):
                if not math.isfinite(value):
                    continue
                share = abs(value) / most
                tip = f"{name}, {column}: {number_text(value)}"
                x = self.left + c * cell
                hue = "cold" if value < 0 else "heat"
                self.parts.append(
                    f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(cell - 1)}" '
                    f'height="{_n(row_height - 1)}" class="{hue}" fill-opacity="{share:.3f}">'
                    f"<title>{text_of(tip)}</title></rect>"
                )
                if writes:
                    name_of = ' class="inv"' if share > 0.55 else ""
                    self.parts.append(
                        f'<text x="{_n(x + cell / 2)}" y="{_n(y + row_height / 2 + 3.5)}" '
                        f'text-anchor="middle" font-size="10" pointer-events="none"{name_of}>'
                        f"{texts[value]}</text>"
                    )
        turns = any(text_width(name) > cell - 6 for name in chart.columns)
        below = self.bottom + 16
        every = max(1, math.ceil(11 / cell))
        for c, name in enumerate(chart.columns):
            if c % every:
                continue
            x = self.left + (c + 0.5) * cell
            shown = shortened(name, 110) if turns else name
            anchor = "end" if turns else "middle"
            self.text(x + 4 * turns, self.bottom + 14, shown, anchor=anchor, turn=turns)
            below = max(below, self.bottom + 16 + 0.82 * text_width(shown) * turns)
        self.height = below + 4 + LINE
        middle = (self.left + self.right) / 2
        self.text(middle, self.height - 3, chart.x_label, anchor="middle", name="dim")

    def _colour_bar(self, label: str, low: float, high: float, most: float) -> None:
        """Show what the colours mean: from the least value to the largest."""
        self.height += LINE + 2
        left, steps = 12.0, 24
        start = min(low, 0.0)
        text = number_text(_short(start))
        self.text(left, self.height - 4, text, name="dim")
        left += text_width(text) + 6
        for step in range(steps):
            value = start + (high - start) * (step + 0.5) / steps
            self.parts.append(
                f'<rect x="{_n(left + 5 * step)}" y="{_n(self.height - 14)}" width="5" height="11" '
                f'class="{"cold" if value < 0 else "heat"}" '
                f'fill-opacity="{abs(value) / most:.3f}"/>'
            )
        left += 5 * steps + 6
        self.text(left, self.height - 4, f"{number_text(_short(high))}   {label}", name="dim")


def tooltip(chart: Chart, series: Series, index: int) -> str:
    """Return what a point tells when it is pointed at: its name, its series and its values."""
    what = series.names[index] if series.names else series.label
    x = str_of(series.x[index])
    if chart.kind == "plane":
        return f"{what}: {_pair(float(series.x[index]), series.y[index])}"
    label = chart.x_label.partition(" (")[0]
    where = x if isinstance(series.x[index], str) else f"{label} {x}"
    values = f"{where}: {_value_of(series, index)}"
    return f"{what}, {values}" if what else values


def _pair(x: float, y: float) -> str:
    return f"({number_text(x)}, {number_text(y)})"


def _value_of(series: Series, index: int) -> str:
    text = number_text(series.y[index])
    if not series.low:
        return text
    return f"{text} ({number_text(series.low[index])} to {number_text(series.high[index])})"


def _short(value: float) -> float:
    """Return a value to three digits, as there is room for."""
    return float(f"{value:.3g}") if abs(value) < 1000 else round(value)


def _finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _has_marks(series: Series) -> bool:
    # a single point has no line, whatever the style
    return len(series.y) == 1 or (len(series.y) <= MARKED and series.style == "solid")


def _dash(series: Series) -> str:
    return ' stroke-dasharray="6 4"' if series.style == "dashed" else ""


def _disc_labels(chart: Chart) -> list[str]:
    return list(dict.fromkeys(disc.label for disc in chart.discs))


def _disc_class(chart: Chart, number: int, label: str) -> str:
    """Return the class of a disc: that of the series of the same name, the next, or ink."""
    labels = [series.label for series in chart.series]
    if label in labels:
        return f"s{labels.index(label) % NUM_COLOURS}"
    return "ink" if "unit circle" in label else f"s{(len(labels) + number) % NUM_COLOURS}"


def _lies(chart: Chart, width: int) -> bool:
    """Return whether bars lie: their names would not fit side by side below them."""
    names = x_axis(chart).names
    widest = max((text_width(name) for name in names), default=0.0)
    return widest + 8 > (width - 80) / max(1, len(names))


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
