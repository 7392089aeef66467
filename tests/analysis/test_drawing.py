"""Charts as pictures and pages: what is written, and that it holds what was to be shown."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from seqtool.analysis.drawing import check_picture, save_charts, svg_of
from seqtool.analysis.page import page
from seqtool.analysis.report import Chart, Report, Series, Table, cell_texts
from seqtool.core.errors import ConfigError

pytest.importorskip("matplotlib", reason="the extra plot is not installed")

HOSTILE = '<script>"&$\x1b[31m'
SHOWN = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")
NAN = math.nan
LINES = Chart(
    "Lines", "lines", "lag (tokens)", "norm",
    [
        Series(HOSTILE, [1, 2, 3, 4], [1.0, 0.1, NAN, 0.2],
               low=[0.5, 0.05, NAN, 0.1], high=[2.0, 0.2, NAN, 0.3]),
        Series("bound", [1, 2, 3, 4], [1.0, 1.0, 1.0, 1.0], style="dashed"),
    ],
    y_scale="log", note="How to read it.",
)  # fmt: skip
BARS = Chart(
    "Bars", "bars", "relation", "F1 (percent)",
    [Series("a", ["obj", HOSTILE], [80, 20.5]), Series("b", ["obj", HOSTILE], [70, NAN])],
)  # fmt: skip
WORDS = Chart("Map", "points", "first", "second",
              [Series("", [0, 1], [1, -1], names=["the", HOSTILE])])  # fmt: skip
PLANE = Chart(
    "Plane", "plane", "real part", "imaginary part", [Series("w", [0.5, -0.5], [0.5, -2.5])],
    discs=[(0.2, 0.7), (0.1, 0.7)],
)  # fmt: skip
CHARTS = [LINES, BARS, WORDS, PLANE]
LABELS = {
    "Lines": [SHOWN, "bound", "lag (tokens)", "norm", "How to read it."],
    "Bars": ["a", "b", "obj", SHOWN, "80", "20.5", "70", "relation", "F1 (percent)"],
    "Map": ["the", SHOWN, "first", "second"],
    "Plane": ["w", "unit circle", "Gersgorin's discs", "real part", "imaginary part"],
}


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_an_svg_is_xml_that_holds_every_label(chart: Chart) -> None:
    svg = svg_of(chart)
    root = ElementTree.fromstring(svg)
    assert not [node for node in root.iter() if node.tag.endswith("}script")]
    texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
    assert [label for label in [chart.title, *LABELS[chart.title]] if label not in texts] == []
    assert svg_of(chart) == svg
    assert "metadata" not in svg  # no date


@pytest.mark.parametrize(
    ("suffix", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")]
)
def test_the_suffix_says_how_charts_are_drawn(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"charts{suffix}"
    assert save_charts(CHARTS, path) == set()
    assert path.read_bytes().startswith(start)
    if suffix == ".svg":
        texts = [node.text for node in ElementTree.parse(path).getroot().iter()]
        assert [chart.title for chart in CHARTS if chart.title not in texts] == []
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_letters_that_no_font_has_are_told(tmp_path: Path) -> None:
    chart = Chart("", "lines", "x", "y", [Series("a\U000e0fff", [1, 2], [1, 2])])
    assert save_charts([chart], tmp_path / "x.png") == {"\U000e0fff"}
    assert save_charts([chart], tmp_path / "x.svg") == set()  # the reader's fonts may have them


def test_a_file_without_suffix_and_one_that_cannot_be_drawn(tmp_path: Path) -> None:
    assert check_picture(tmp_path / "x").name == "x.png"
    with pytest.raises(ConfigError, match="cannot be drawn") as caught:
        check_picture(tmp_path / "x.nonsense")
    assert ".svg" in caught.value.hint


def test_without_matplotlib_the_error_names_the_extra() -> None:
    script = """
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

class NoMatplotlib(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "matplotlib" else super().find_spec(name, path, target)

sys.meta_path[:] = [NoMatplotlib if f is PathFinder else f for f in sys.meta_path]
from seqtool.cli.app import main
sys.exit(main(["analyse", "cells", "-o", "cells.svg"]))
"""
    typed = [sys.executable, "-c", script]
    run = subprocess.run(typed, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    error, hint = run.stderr.splitlines()
    assert "matplotlib is not installed" in error
    assert "seqtool[plot]" in hint


REPORT = Report(
    f"A title {HOSTILE}",
    [f"A remark {HOSTILE}"],
    [Table(HOSTILE, ["model", HOSTILE], [[HOSTILE, 1.5], ["b", None]])],
    CHARTS,
)


def test_a_page_escapes_all_and_needs_nothing() -> None:
    html = page(f"Page {HOSTILE}", [REPORT, REPORT], about=HOSTILE)
    assert "<script" not in html
    assert "\x1b" not in html
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')]+)""", html)
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    assert "default-src 'none'" in html
    assert html.count("<svg") == 2 * len(CHARTS)
    assert html == page(f"Page {HOSTILE}", [REPORT, REPORT], about=HOSTILE)
    body = html[html.index("<body>") : html.index("</html>")]
    ElementTree.fromstring(body)  # every tag is closed


def test_numbers_of_a_column_have_as_many_decimals() -> None:
    table = Table("", ["a", "b", "c"], [[1.0, 0.002, None], [123.456, 0.5, 7]])
    assert cell_texts(table) == [["1.0", "0.0020", ""], ["123.5", "0.5000", "7"]]
    wide = Table("", ["norm"], [[2.0], [3e-8]])
    assert cell_texts(wide) == [["2"], ["3e-08"]]
    assert cell_texts(Table("", ["x"], [[math.inf], [NAN]])) == [["∞"], [""]]
