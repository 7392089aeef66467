"""One HTML page of reports: charts as inline SVG, a table under each, nothing from elsewhere.

The page holds no script, and its policy lets a browser load nothing; the one style sheet is named
by its sum. Every text of data is escaped. What a point stands for is shown by the browser when it
is pointed at (`<title>`). Each chart is there twice, for wide and for narrow windows, so that
letters keep their size.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence

from seqtool.analysis.drawing.axes import number_text, points_of, str_of
from seqtool.analysis.drawing.svg import STYLE, WIDE, chart_svg, text_of
from seqtool.analysis.report import Cell, Chart, HeatMap, Report, Table

NARROW = 340
MAX_ROWS = 200  # of the table of a chart
MOST_DECIMALS = 6
MOST_RANGE = 1e5  # of the numbers of a column; beyond it each has three digits of its own

_PAGE_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;margin:0 auto;
max-width:820px;padding:16px 16px 64px;color:#1f2328;background:#fff}
h1{font-size:1.6em;line-height:1.2;margin:.6em 0}
h2{font-size:1.25em;margin:2.2em 0 .5em;padding-top:.6em;border-top:1px solid #d8dde3}
figure{margin:1.4em 0 2em}
figure svg{display:block;margin-left:-12px}
.narrow{display:none}
nav ul{padding-left:1.2em}
.remark{border-left:3px solid #0072b2;padding-left:12px;margin:.6em 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.86em;margin:.4em 0 1.2em}
caption{text-align:left;font-weight:600;padding:.3em 0}
th,td{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #d8dde3;vertical-align:top}
.number{text-align:right;font-variant-numeric:tabular-nums}
th{white-space:nowrap}
details{font-size:.95em}
summary{cursor:pointer;color:#59636e}
footer{margin-top:3em;color:#59636e;font-size:.9em}
a{color:#0060a8}
@media (max-width:600px){.wide{display:none!important}.narrow{display:block}}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#15191e}
h2,th,td{border-color:#333b44}summary,footer{color:#9aa4af}a{color:#5ab4e8}}
"""


def page(title: str, reports: Sequence[Report], *, about: str = "") -> str:
    """Return the page.

    Args:
        title: of the page.
        reports: a part each; several have a table of contents.
        about: a line at the end: what made it.
    """
    style = STYLE + _PAGE_STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{text_of(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n<body>\n<h1>{text_of(title)}</h1>\n"
    ]
    if len(reports) > 1:
        items = "".join(
            f'<li><a href="#part-{number}">{text_of(report.title)}</a></li>\n'
            for number, report in enumerate(reports, start=1)
        )
        parts.append(f"<nav><ul>\n{items}</ul></nav>\n")
    for number, report in enumerate(reports, start=1):
        parts.append(f'<section id="part-{number}">\n')
        if len(reports) > 1 or report.title != title:
            parts.append(f"<h2>{text_of(report.title)}</h2>\n")
        parts += _section(report)
        parts.append("</section>\n")
    if about:
        parts.append(f"<footer>{text_of(about)}</footer>\n")
    parts.append("</body>\n</html>\n")
    return "".join(parts)


def _section(report: Report) -> Iterator[str]:
    for remark in report.remarks:
        yield f'<p class="remark">{text_of(remark)}</p>\n'
    for chart in report.charts:
        yield "<figure>\n"
        for name, width in (("wide", WIDE), ("narrow", NARROW)):
            picture = chart_svg(chart, width=width, styled=False)
            yield f'<div class="{name}">{picture}</div>\n'
        yield f"<details><summary>The values as a table</summary>\n{_table(values_of(chart))}"
        yield "</details>\n</figure>\n"
    for table in report.tables:
        yield _table(table)


def _table(table: Table) -> str:
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    are_numbers = [
        bool(cells) and all(cell is None or isinstance(cell, int | float) for cell in cells)
        for cells in columns
    ]
    names = [' class="number"' if is_number else "" for is_number in are_numbers]

    def row(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{name}>{text_of(cell)}</{tag}>" for name, cell in zip(names, cells, strict=True)
        )

    body = "".join(f"<tr>{row('td', cells)}</tr>\n" for cells in texts_of(table))
    caption = f"<caption>{text_of(table.title)}</caption>" if table.title else ""
    return (
        f'<div class="scroll"><table>{caption}<thead><tr>{row("th", table.columns)}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def texts_of(table: Table) -> list[list[str]]:
    """Return the cells of a table as they are shown; one without a value is empty.

    The numbers of a column have as many decimals: four digits of the largest; and of numbers below
    1, two of the least.
    """
    columns = [_texts(column) for column in zip(*table.rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _texts(cells: Sequence[Cell]) -> list[str]:
    sizes = [
        abs(cell) for cell in cells if isinstance(cell, float) and cell and math.isfinite(cell)
    ]
    least, most = (min(sizes), max(sizes)) if sizes else (1.0, 1.0)
    decimals = max(0, 3 - math.floor(math.log10(most)))
    if most < 1:  # shares: the least of them shall not be 0
        decimals = max(decimals, 1 - math.floor(math.log10(least)))
    has_plain = decimals <= MOST_DECIMALS and most < 1e9 and most / least < MOST_RANGE
    return [_text(cell, decimals if has_plain else None) for cell in cells]


def _text(cell: Cell, decimals: int | None) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or math.isnan(cell):
        return ""
    if isinstance(cell, int):
        return f"{cell:,}"
    if math.isinf(cell):
        return number_text(cell)
    return f"{cell:.3g}" if decimals is None else f"{cell:,.{decimals}f}"


def values_of(chart: Chart | HeatMap) -> Table:
    """Return what a chart shows as a table, for those who cannot see it; at most `MAX_ROWS` rows.

    Series over the same x are columns beside each other; others follow one another.
    """
    if isinstance(chart, HeatMap):
        rows: list[list[Cell]] = [
            [name, *values] for name, values in zip(chart.rows, chart.values, strict=True)
        ]
        columns = [f"{chart.y_label} \\ {chart.x_label}", *chart.columns]
        return _limited(chart.value_label, columns, rows)
    series = chart.series
    has_names = any(one.names for one in series) or bool(chart.discs)
    same = len({tuple(map(str_of, one.x)) for one in series}) == 1 and not has_names
    if same:
        columns, parts = [chart.x_label], [list(map(_x_cell, series[0].x))]
        for one in series:
            name = one.label or chart.y_label
            columns.append(name)
            parts.append(list(one.y))
            if one.low:
                columns += [f"{name}, from", f"{name}, to"]
                parts += [list(one.low), list(one.high)]
        rows = [list(cells) for cells in zip(*parts, strict=True)]
        return _limited(chart.y_label, columns, rows)
    columns = ["series", "name", chart.x_label, chart.y_label]
    rows = [
        [one.label, one.names[i] if one.names else "", _x_cell(x), y]
        for one in series
        for i, (x, y) in enumerate(points_of(one))
    ]
    columns = [*columns, "radius"] if chart.discs else columns
    if chart.discs:
        rows = [[*row, None] for row in rows]
        rows += [[disc.label, "", disc.x, disc.y, disc.radius] for disc in chart.discs]
    kept = [i for i, column in enumerate(zip(*rows, strict=True)) if any(c != "" for c in column)]
    return _limited("", [columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _x_cell(x: float | str) -> Cell:
    return x if isinstance(x, str) else float(x)


def _limited(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    if len(rows) > MAX_ROWS:
        title = f"{title} (the first {MAX_ROWS} of {len(rows):,} rows)".strip()
    return Table(title, columns, rows[:MAX_ROWS])
