"""Charts as lines of text: for the terminal, for 80 columns, with and without colours.

Points and lines are dots of braille characters, two across and four down in each (U+2800); where
there are several series and no colours, each has its letter instead. Bars are of blocks, a heat map
of shades.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

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
from seqtool.analysis.report import Chart, HeatMap

HEIGHT = 14  # lines of the area of the data
BRAILLE = 0x2800
# bits of the dots of a character: [row][column]
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
EIGHTHS = " ▏▎▍▌▋▊▉█"
FILLS = "█▓▒░"  # of bars beside each other, without colours
SHADES = " ░▒▓█"
SPARKS = "▁▂▃▄▅▆▇█"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_LABEL = 28


class Piece(NamedTuple):
    """A part of a line; `series` is the number of what it belongs to, None for labels."""

    text: str
    series: int | None = None


Line = list[Piece]


def chart_lines(chart: Chart | HeatMap, *, width: int = 80, colour: bool = False) -> list[Line]:
    """Return a chart as lines of text.

    Args:
        chart: what to draw.
        width: most characters of a line.
        colour: the pieces of a series will be shown in a colour of its own.
    """
    lines: list[Line] = [[Piece(chart.title)]]
    if isinstance(chart, HeatMap):
        lines += _heat_map(chart, width)
    elif chart.kind == "bars":
        lines += [*_legend(chart, colour), *_bars(chart, width, colour)]
    else:
        lines += [*_legend(chart, colour), *_dots(chart, width, colour)]
    if chart.note:
        lines += [[Piece(line)] for line in _wrapped(chart.note, width)]
    return lines


def sparkline(values: Sequence[float]) -> str:
    """Return a line of blocks, one a value, from the least to the largest; a blank for NaN."""
    found = [value for value in values if math.isfinite(value)]
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    span = (high - low) or 1.0
    return "".join(
        SPARKS[round((value - low) / span * (len(SPARKS) - 1))] if math.isfinite(value) else " "
        for value in values
    )


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes; wide letters take two."""
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


def _cut(text: str, width: int) -> str:
    if _columns_of(text) <= width:
        return text
    while text and _columns_of(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _padded(text: str, width: int) -> str:
    text = _cut(text, width)
    return text + " " * (width - _columns_of(text))


def _uses_letters(chart: Chart, colour: bool) -> bool:
    return not colour and len(chart.series) + len(_rings(chart)) > 1


def _rings(chart: Chart) -> list[str]:
    return list(dict.fromkeys(disc.label for disc in chart.discs))


def _legend(chart: Chart, colour: bool) -> Iterator[Line]:
    labels = [series.label for series in chart.series] + _rings(chart)
    for number, label in enumerate(labels):
        if not label:
            continue
        if chart.kind == "bars":
            mark = FILLS[0 if colour else number % len(FILLS)] * 2
        elif _uses_letters(chart, colour):
            mark = LETTERS[number % len(LETTERS)]
        else:
            mark = "⠶⠶"
        yield [Piece("  "), Piece(mark, number), Piece(f" {label}")]


class _Canvas:
    """Cells of characters, in which dots are set; the last series in a cell gives its colour."""

    def __init__(self, columns: int, rows: int, *, letters: bool) -> None:
        self.columns, self.rows, self.letters = columns, rows, letters
        self.bits = [[0] * columns for _ in range(rows)]
        self.owners: list[list[int | None]] = [[None] * columns for _ in range(rows)]
        self.written: dict[tuple[int, int], str] = {}
        self.points: set[tuple[int, int]] = set()  # cells of points, not of lines between them

    def put(self, x: float, y: float, series: int, *, is_point: bool = True) -> None:
        """Set the dot at a place, from 0 to 1 each way, y from below."""
        if not (0 <= x <= 1 and 0 <= y <= 1):
            return
        across = min(int(x * 2 * self.columns), 2 * self.columns - 1)
        down = min(int((1 - y) * 4 * self.rows), 4 * self.rows - 1)
        self.bits[down // 4][across // 2] |= DOTS[down % 4][across % 2]
        self.owners[down // 4][across // 2] = series
        if is_point:
            self.points.add((down // 4, across // 2))

    def line(self, first: tuple[float, float], last: tuple[float, float], series: int) -> None:
        """Set the dots of a straight line."""
        far = max(
            abs(last[0] - first[0]) * 2 * self.columns, abs(last[1] - first[1]) * 4 * self.rows, 1
        )
        steps = math.ceil(far)
        for step in range(steps + 1):
            share = step / steps
            self.put(
                first[0] + share * (last[0] - first[0]),
                first[1] + share * (last[1] - first[1]),
                series,
                is_point=False,
            )

    def write(self, x: float, y: float, name: str, series: int) -> None:
        """Write a name right of a place, if there is room that nothing else takes."""
        row = min(int((1 - y) * self.rows), self.rows - 1)
        begin = min(int(x * self.columns), self.columns - 1) + 1
        end = begin + _columns_of(name)
        if end > self.columns or any(
            self.owners[row][column] is not None for column in range(begin, end)
        ):
            return
        for column in range(begin, end):
            self.owners[row][column] = series
            self.written[row, column] = ""  # the second half of a wide letter
        column = begin
        for letter in name:
            self.written[row, column] = letter
            column += _columns_of(letter)

    def row(self, number: int) -> Line:
        """Return a row, a piece for each run of one series."""
        pieces: Line = []
        cells = zip(self.bits[number], self.owners[number], strict=True)
        for column, (bits, owner) in enumerate(cells):
            letter = " "
            if (number, column) in self.written:
                letter = self.written[number, column]
            elif owner is not None:
                letter = chr(BRAILLE + bits)
                if self.letters:
                    letter = LETTERS[owner % 26] if (number, column) in self.points else "·"
            if pieces and pieces[-1].series == owner:
                pieces[-1] = Piece(pieces[-1].text + letter, owner)
            else:
                pieces.append(Piece(letter, owner))
        return pieces


def _dots(chart: Chart, width: int, colour: bool) -> Iterator[Line]:
    is_plane = chart.kind == "plane"
    # bands are not drawn, so that they need no room
    chart = replace(chart, series=[replace(one, low=(), high=()) for one in chart.series])
    xs, ys = plane_axes(chart, 5) if is_plane else (x_axis(chart, 6), y_axis(chart, 5))
    left = max((len(label) for _, label in ys.ticks), default=1) + 1
    rows = 20 if is_plane else HEIGHT
    columns = min(2 * rows, width - left - 1) if is_plane else width - left - 1
    canvas = _Canvas(columns, rows, letters=_uses_letters(chart, colour))
    rings = _rings(chart)
    for disc in chart.discs:
        owner = len(chart.series) + rings.index(disc.label)
        for step in range(240):
            angle = math.tau * step / 240
            x, y = disc.x + disc.radius * math.cos(angle), disc.y + disc.radius * math.sin(angle)
            canvas.put(xs.place(x), ys.place(y), owner)
    found: list[tuple[int, list[tuple[float, float]]]] = []
    for number, series in reversed(list(enumerate(chart.series))):  # the first lies on top
        places = [
            (xs.place(x), ys.place(y)) for x, y in zip(xs_of(series, xs), series.y, strict=True)
        ]
        found.append((number, places))
        if chart.kind == "lines":
            for first, last in pairwise(places):
                if all(map(math.isfinite, (*first, *last))):
                    canvas.line(first, last, number)
    for number, places in found:
        for place in places:
            if all(map(math.isfinite, place)):
                canvas.put(*place, number)
    if not canvas.letters:
        for number, series in enumerate(chart.series):
            for x, y, name in zip(xs_of(series, xs), series.y, series.names, strict=False):
                if math.isfinite(xs.place(x)) and math.isfinite(ys.place(y)):
                    canvas.write(xs.place(x), ys.place(y), name, number)
    labels = {
        min(rows - 1, int((1 - ys.place(value)) * rows)): label
        for value, label in ys.ticks
        if 0 <= ys.place(value) <= 1
    }
    yield [Piece(_cut(chart.y_label, width))]
    for number in range(rows):
        label = labels.get(number, "")
        edge = "┤" if label else "│"
        yield [Piece(f"{label:>{left - 1}}{edge}"), *canvas.row(number)]
    yield [Piece(f"{'':>{left - 1}}└{'─' * columns}")]
    yield [Piece(" " * left + _tick_line(xs, columns))]
    yield [Piece(" " * left + _cut(chart.x_label, width - left).center(columns).rstrip())]


def _tick_line(axis: Axis, columns: int) -> str:
    """Return the labels of an axis below it, each where it does not touch the one before."""
    line, end = [" "] * columns, -1
    for value, label in axis.ticks:
        begin = round(axis.place(value) * (columns - 1) - (len(label) - 1) / 2)
        begin = max(0, min(begin, columns - len(label)))
        if begin > end and len(label) <= columns:
            line[begin : begin + len(label)] = label
            end = begin + len(label)
    return "".join(line).rstrip()


def _bars(chart: Chart, width: int, colour: bool) -> Iterator[Line]:
    names, values = x_axis(chart).names, y_axis(chart)
    label = min(MAX_LABEL, max(map(_columns_of, names), default=0))
    numbers = {
        (number, str_of(x)): float(y)
        for number, series in enumerate(chart.series)
        for x, y in points_of(series)
    }
    texts = {key: _number(value) for key, value in numbers.items()}
    room = max((len(text) for text in texts.values()), default=1) + 1
    area = max(10, width - label - room - 2)
    yield [Piece(_cut(f"{chart.x_label}: {chart.y_label}", width))]
    zero = 0.0 if values.is_log else max(0.0, values.place(0.0))
    for name in names:
        for number in range(len(chart.series)):
            value = numbers.get((number, name), math.nan)
            line = [Piece(_padded(name if number == 0 else "", label) + " ")]
            place = values.place(value)
            if math.isfinite(place):
                fill = FILLS[0 if colour else number % len(FILLS)]
                blank = round(min(zero, place) * area)
                size = abs(place - zero) * area
                whole = int(size)
                bar = fill * whole
                if fill == "█" and not blank:
                    bar += EIGHTHS[int((size - whole) * 8)].strip()
                line += [Piece(" " * blank), Piece(bar, number), Piece(f" {texts[number, name]}")]
            yield line


def _number(value: float) -> str:
    return number_text(float(f"{value:.3g}") if abs(value) < 1000 else value)


def _heat_map(chart: HeatMap, width: int) -> Iterator[Line]:
    """Give a grid of values, or of shades where values have no room."""
    found = [value for row in chart.values for value in row if math.isfinite(value)]
    most = max((abs(value) for value in found), default=0.0) or 1.0
    label = min(MAX_LABEL, max(map(_columns_of, chart.rows), default=0))
    texts = [[_number(v) if math.isfinite(v) else "" for v in row] for row in chart.values]
    cell = max([len(text) for row in texts for text in row], default=1)
    head = max(map(_columns_of, chart.columns), default=1)
    room = (width - label) // max(1, len(chart.columns)) - 1
    yield [Piece(_cut(f"{chart.value_label}; rows: {chart.y_label}", width))]
    if room >= max(cell, min(head, 5)):
        size = min(room, max(cell, head))
        columns = "".join(f" {_padded(name, size)}" for name in chart.columns).rstrip()
        yield [Piece(" " * label + columns)]
        for name, row in zip(chart.rows, texts, strict=True):
            cells = "".join(f" {text:<{size}}" for text in row)
            yield [Piece(f"{_padded(name, label)}{cells}".rstrip())]
    else:
        size = max(1, min(3, (width - label - 1) // max(1, len(chart.columns))))
        for name, values in zip(chart.rows, chart.values, strict=True):
            cells = "".join(
                SHADES[math.ceil(abs(v) / most * (len(SHADES) - 1)) if math.isfinite(v) else 0]
                * size
                for v in values
            )
            yield [Piece(f"{_padded(name, label)} {cells}".rstrip())]
        shades = ", ".join(
            f"{shade} to {_number(most * number / (len(SHADES) - 1))}"
            for number, shade in enumerate(SHADES)
            if number
        )
        yield [Piece(shades)]
    columns = f"columns: {chart.x_label}"
    if chart.columns:
        columns += f", from {chart.columns[0]} to {chart.columns[-1]}"
    yield [Piece(_cut(columns, width))]
