"""Charts as pictures and pages: what is written, and that it holds what was to be shown."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from seqtool.analysis.drawing import save_charts, svg_of
from seqtool.analysis.page import page
from seqtool.analysis.report import Chart, Report, Series, Table, cell_texts

pytest.importorskip("matplotlib", reason="matplotlib is not installed: make install")

HOSTILE = '<script>"&$\x1b[31m'
SHOWN = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")
NAN = math.nan
STEPS = [1, 2, 3, 4]
BAND = {"low": [0.5, 0.05, NAN, 0.1], "high": [2.0, 0.2, NAN, 0.3]}
CURVES = [
    Series(HOSTILE, STEPS, [1.0, 0.1, NAN, 0.2], **BAND),
    Series("bound", STEPS, [1.0, 1.0, 1.0, 1.0], style="dashed"),
]
BARS = [Series("a", ["obj", HOSTILE], [80, 20.5]), Series("b", ["obj", HOSTILE], [70, NAN])]
POINTS = [Series("", [0, 1], [1, -1], names=["the", HOSTILE])]
PLANE = [Series("w", [0.5, -0.5], [0.5, -2.5])]
# each with the labels that are to be there
CHARTS = [
    (Chart("Lines", "lines", "lag", "norm", CURVES, y_scale="log", note="Read it so."),
     [SHOWN, "bound", "lag", "norm", "Read it so."]),
    (Chart("Bars", "bars", "relation", "F1 (percent)", BARS),
     ["a", "b", "obj", SHOWN, "80", "20.5", "70", "relation", "F1 (percent)"]),
    (Chart("Map", "points", "first", "second", POINTS), ["the", SHOWN, "first", "second"]),
    (Chart("Plane", "plane", "real", "imaginary", PLANE, discs=[(0.2, 0.7), (0.1, 0.7)]),
     ["w", "unit circle", "Gersgorin's discs", "real", "imaginary"]),
]  # fmt: skip


@pytest.mark.parametrize(("chart", "labels"), CHARTS)
def test_each_chart_as_svg_and_png(chart: Chart, labels: list[str], tmp_path: Path) -> None:
    for suffix, start in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
        assert save_charts([chart], tmp_path / f"x{suffix}") == set()
        assert (tmp_path / f"x{suffix}").read_bytes().startswith(start)
    svg = svg_of(chart)
    texts = [node.text for node in ElementTree.fromstring(svg).iter()]
    assert [label for label in [chart.title, *labels] if label not in texts] == []
    assert "<script" not in svg
    assert svg_of(chart) == svg  # no date


def test_a_page_escapes_all_and_needs_nothing() -> None:
    charts = [chart for chart, _ in CHARTS]
    table = Table(HOSTILE, ["model", HOSTILE], [[HOSTILE, 1.5], ["b", None]])
    report = Report(f"A title {HOSTILE}", [f"A remark {HOSTILE}"], [table], charts)
    html = page(f"Page {HOSTILE}", [report, report], about=HOSTILE)
    assert "<script" not in html
    assert "\x1b" not in html
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')]+)""", html)
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    assert "default-src 'none'" in html
    assert html.count("<svg") == 2 * len(charts)
    ElementTree.fromstring(html[html.index("<body>") : html.index("</html>")])


def test_numbers_of_a_column_have_as_many_decimals() -> None:
    table = Table("", ["a", "b", "c"], [[1.0, 0.002, None], [123.456, 0.5, 7]])
    assert cell_texts(table) == [["1.0", "0.0020", ""], ["123.5", "0.5000", "7"]]
    assert cell_texts(Table("", ["norm"], [[2.0], [3e-8]])) == [["2"], ["3e-08"]]
    assert cell_texts(Table("", ["x"], [[math.inf], [NAN]])) == [["∞"], [""]]
