"""One HTML page of reports: charts as inline SVG, tables, nothing from elsewhere.

The page holds no script, and its policy lets a browser load nothing. Every text of data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from seqtool.analysis.drawing import printable, svg_of
from seqtool.analysis.report import Report, Table, cell_texts

# the pictures have attributes of style
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;margin:0 auto;
max-width:820px;padding:16px 16px 64px;color:#1f2328;background:#fff}
h1{font-size:1.6em;line-height:1.2;margin:.6em 0}
h2{font-size:1.25em;margin:2.2em 0 .5em;padding-top:.6em;border-top:1px solid #8884}
figure{margin:1.4em 0 2em}
figure svg{display:block;max-width:100%;height:auto}
nav ul{padding-left:1.2em}
.remark{border-left:3px solid #0072b2;padding-left:12px;margin:.6em 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.86em;margin:.4em 0 1.2em}
caption{text-align:left;font-weight:600;padding:.3em 0}
th,td{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #8884;vertical-align:top}
.number{text-align:right;font-variant-numeric:tabular-nums}
th{white-space:nowrap}
footer{margin-top:3em;opacity:.7;font-size:.9em}
a{color:#0072b2}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#15191e}a{color:#5ab4e8}}
"""


def page(title: str, reports: Sequence[Report], *, about: str = "") -> str:
    """Return the page.

    Args:
        title: of the page.
        reports: a part each; several have a table of contents.
        about: a line at the end: what made it.
    """
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{_text(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{_text(title)}</h1>\n"
    ]
    if len(reports) > 1:
        items = "".join(
            f'<li><a href="#part-{number}">{_text(report.title)}</a></li>\n'
            for number, report in enumerate(reports, start=1)
        )
        parts.append(f"<nav><ul>\n{items}</ul></nav>\n")
    for number, report in enumerate(reports, start=1):
        parts.append(f'<section id="part-{number}">\n')
        if report.title != title:
            parts.append(f"<h2>{_text(report.title)}</h2>\n")
        parts += _section(report)
        parts.append("</section>\n")
    parts.append(f"<footer>{_text(about)}</footer>\n</body>\n</html>\n")
    return "".join(parts)


def _text(text: str) -> str:
    return escape(printable(text))


def _section(report: Report) -> Iterator[str]:
    for remark in report.remarks:
        yield f'<p class="remark">{_text(remark)}</p>\n'
    for chart in report.charts:
        yield f"<figure>\n{svg_of(chart)}</figure>\n"
    for table in report.tables:
        yield _table(table)


def _table(table: Table) -> str:
    kinds = [
        ' class="number"'
        if all(isinstance(row[i], int | float | None) for row in table.rows)
        else ""
        for i in range(len(table.columns))
    ]

    def row(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{kind}>{_text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )

    body = "".join(f"<tr>{row('td', cells)}</tr>\n" for cells in cell_texts(table))
    return (
        f'<div class="scroll"><table><caption>{_text(table.title)}</caption>'
        f"<thead><tr>{row('th', table.columns)}</tr></thead>\n"
        f"<tbody>\n{body}</tbody></table></div>\n"
    )
