"""Charts are drawn alike by all; nothing of the data gets out of its place."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqtool.analysis.drawing.axes import Axis, name_axis, number_axis, number_text, range_axis
from seqtool.analysis.drawing.output import check_picture, save_charts
from seqtool.analysis.drawing.page import MAX_ROWS, page, texts_of, values_of
from seqtool.analysis.drawing.svg import (
    CLASS,
    STYLE,
    chart_svg,
    shortened,
    text_width,
    wrapped,
)
from seqtool.analysis.drawing.textual import chart_lines, sparkline
from seqtool.analysis.report import Chart, Disc, HeatMap, Report, Series, Table
from seqtool.core.errors import ConfigError

HOSTILE = "<script>alert(1)</script>\"&'\x1b[2J"
NAN = math.nan

LINES = Chart(
    f"Norms {HOSTILE}",
    "lines",
    "lag (tokens)",
    "norm",
    [
        Series(
            HOSTILE, [1, 2, 3, 4], [1, 0.1, NAN, 0.01], [0.9, 0.05, NAN, 0.001], [1, 0.2, NAN, 1]
        ),
        Series("bound", [1, 2, 3, 4], [1, 1, 1, 1], style="dashed"),
    ],
    y_scale="log",
    note=f"How to read it {HOSTILE}",
)
BARS = Chart(
    "LAS", "bars", "relation", "F1 (percent)",
    [Series("a", ["obj", HOSTILE], [80, 20.5]), Series("b", ["obj", HOSTILE], [70, NAN])],
)  # fmt: skip
WORDS = Chart(
    "A map", "points", "first", "second",
    [Series("", [0, 1, 2], [1, -1, 0], names=["the", HOSTILE, "고양이"])],
)  # fmt: skip
PLANE = Chart(
    "Spectrum", "plane", "real", "imaginary", [Series("w", [0.5, -0.5], [0.5, -2.5])],
    discs=[Disc(0, 0, 1, "unit circle"), Disc(0.2, 0, 0.7, HOSTILE)],
)  # fmt: skip
HEAT = HeatMap(
    "Confusions", "predicted", "gold", ["obj", HOSTILE], ["obj", "obl"],
    [[NAN, 3], [-2, 0]], "words", "The diagonal is left out.",
)  # fmt: skip
CHARTS = [LINES, BARS, WORDS, PLANE, HEAT]


def texts_in(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter()
            if node.tag.endswith("}text")]  # fmt: skip


def test_ticks_are_those_that_people_write() -> None:
    assert [text for _, text in number_axis([0, 100], margin=0).ticks] == [
        "0", "20", "40", "60", "80", "100",
    ]  # fmt: skip
    assert [text for _, text in range_axis(0.1, 0.9, 4).ticks] == ["0.2", "0.4", "0.6", "0.8"]
    assert [text for _, text in range_axis(0, 1, 4).ticks] == [
        "0.00",
        "0.25",
        "0.50",
        "0.75",
        "1.00",
    ]
    # epochs are whole
    assert [value for value, _ in number_axis([1, 2, 3], near_zero=0).ticks] == [1, 2, 3]
    assert [text for _, text in number_axis([1e-4, 1], "log").ticks] == [
        "10⁻⁴", "0.001", "0.01", "0.1", "1",
    ]  # fmt: skip
    assert [text for _, text in number_axis([20, 70], "log").ticks] == ["20", "50"]


@given(
    st.lists(st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda x: not 0 < abs(x) < 1e-12),
             min_size=1, max_size=6),
    st.integers(2, 9),
    st.booleans(),
)  # fmt: skip
@example([0.0, 0.0], 6, True)
def test_every_value_has_its_place_on_an_axis(
    values: list[float], num_ticks: int, with_zero: bool
) -> None:
    axis = number_axis(values, num_ticks=num_ticks, with_zero=with_zero)
    assert all(-1e-9 <= axis.place(value) <= 1 + 1e-9 for value in values)
    numbers = [value for value, _ in axis.ticks]
    assert numbers == sorted(numbers)
    assert len(numbers) <= num_ticks + 2
    assert all(-1e-6 <= axis.place(value) <= 1 + 1e-6 for value in numbers)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=6))
def test_every_value_above_zero_has_its_place_on_a_log_axis(values: list[float]) -> None:
    axis = number_axis([*values, 0.0, -1.0, math.inf, NAN], "log")
    assert all(-1e-9 <= axis.place(value) <= 1 + 1e-9 for value in values)
    assert all(math.isnan(axis.place(value)) for value in (0.0, -1.0, math.inf, NAN))
    assert axis.ticks


def test_names_stand_in_a_row() -> None:
    axis: Axis = name_axis(["a", "b"])
    assert [axis.place(value) for value, _ in axis.ticks] == [0.25, 0.75]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1200, "1,200"), (0.05, "0.05"), (3.2e-6, "3.2·10⁻⁶"), (1e9, "10⁹"), (-4, "-4"),
     (-1e-9, "-10⁻⁹"), (NAN, "none"), (-math.inf, "-∞"), (12.3456, "12.35"), (1, "1")],
)  # fmt: skip
def test_numbers_as_labels(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title[:8])
@pytest.mark.parametrize("width", [320, 720])
def test_svg_is_xml_in_which_text_stays_text(chart: Chart | HeatMap, width: int) -> None:
    svg = chart_svg(chart, width=width)
    root = ElementTree.fromstring(svg)
    assert not [node for node in root.iter() if node.tag.endswith("}script")]
    assert "<script" not in svg
    assert "\x1b" not in svg
    shown = " ".join(texts_in(svg))
    assert chart.title.split()[0] in shown
    assert chart.x_label in shown
    assert all(word in shown for word in chart.note.split()[:2])
    assert chart_svg(chart, width=width) == svg


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title[:8])
def test_nothing_is_drawn_beside_the_picture(chart: Chart | HeatMap) -> None:
    for width in (320, 720):
        root = ElementTree.fromstring(chart_svg(chart, width=width))
        height = float(root.attrib["height"])
        for node in root.iter():
            for name, limit in (("x", width), ("y", height), ("cx", width), ("cy", height)):
                place = float(node.attrib.get(name, 0))
                assert -1 <= place <= limit + 1, (node.tag, node.attrib)


def test_values_are_told_on_hover() -> None:
    root = ElementTree.fromstring(chart_svg(LINES))
    told = [node.text or "" for node in root.iter() if node.tag.endswith("}title")]
    assert "bound, lag 3: 1" in told
    assert any(text.endswith("lag 2: 0.1 (0.05 to 0.2)") for text in told)
    assert len(told) == 7  # a missing value has none


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        (BARS, ["a, obj: 80", "a, <script>: 20.5", "b, obj: 70"]),  # a missing value has none
        (WORDS, ["the, first 0: 1", "<script>, first 1: -1", "고양이, first 2: 0"]),
        (
            PLANE,
            [
                "unit circle: centre (0, 0), radius 1", "<script>: centre (0.2, 0), radius 0.7",
                "w: (0.5, 0.5)", "w: (-0.5, -2.5)",
            ],
        ),
        (HEAT, ["obj, <script>: 3", "obl, obj: -2", "obl, <script>: 0"]),
    ],
    ids=["bars", "points", "plane", "heat map"],
)  # fmt: skip
def test_every_mark_tells_its_value_on_hover(chart: Chart | HeatMap, expected: list[str]) -> None:
    root = ElementTree.fromstring(chart_svg(chart))
    told = [node.text or "" for node in root.iter() if node.tag.endswith("}title")]
    shown = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")
    assert [text.replace(shown, "<script>") for text in told] == expected


def test_a_gap_breaks_a_line() -> None:
    root = ElementTree.fromstring(chart_svg(LINES))
    lines = [node for node in root.iter() if node.tag.endswith("}polyline")]
    # two points, then one alone; and the four of the bound
    assert [len(node.attrib["points"].split()) for node in lines] == [2, 4]


def test_a_single_point_has_a_mark() -> None:
    chart = Chart("", "lines", "x", "y", [Series("", [1], [0], style="dashed")])
    root = ElementTree.fromstring(chart_svg(chart))
    assert [node.attrib["class"] for node in root.iter() if node.tag.endswith("}circle")] == [
        "f0", "hit f0",
    ]  # fmt: skip
    # an axis of zeros begins there
    assert number_axis([0, 0]).low == 0


def test_units_of_a_plane_are_equally_long() -> None:
    root = ElementTree.fromstring(chart_svg(PLANE))
    circles = [node.attrib for node in root.iter() if node.tag.endswith("}circle")]
    unit = next(c for c in circles if c["class"] == "ink")
    _, dot, _ = [c for c in circles if c["class"] == "f0"]  # in the legend, and at 0.5, 0.5
    radius = float(unit["r"])
    assert float(dot["cx"]) - float(unit["cx"]) == pytest.approx(radius / 2, abs=0.2)
    assert float(unit["cy"]) - float(dot["cy"]) == pytest.approx(radius / 2, abs=0.2)


def test_every_rule_is_of_the_picture_alone() -> None:
    rules = STYLE.replace("@media (prefers-color-scheme:dark){", "").replace("}}", "}")
    selectors = re.findall(r"([^{}]+)\{", rules)
    assert len(selectors) > 40
    assert [s for s in selectors if not s.strip().startswith(f".{CLASS}")] == []


def test_texts_are_cut_and_wrapped() -> None:
    assert shortened("short", 100) == "short"
    cut = shortened("runs/a-model-with-a-very-long-name", 90)
    assert cut.startswith("runs")
    assert "…" in cut
    assert text_width(cut) <= 90
    assert text_width("고양이") > text_width("abc")
    assert wrapped("one two three", text_width("one two")) == ["one two", "three"]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title[:8])
@pytest.mark.parametrize("colour", [True, False])
def test_text_has_room_in_its_width(chart: Chart | HeatMap, colour: bool) -> None:
    for width in (48, 80):
        # a title is a line whatever its length
        lines = chart_lines(chart, width=width, colour=colour)[1:]
        assert max(sum(len(piece.text) for piece in line) for line in lines) <= width + 30
        drawn = [line for line in lines if any(piece.series == 0 for piece in line)]
        assert isinstance(chart, HeatMap) or drawn


def test_lines_as_text() -> None:
    rising = Chart("Up", "lines", "x", "y", [Series("", [0, 1, 2], [0, 1, 2])])
    text = ["".join(piece.text for piece in line) for line in chart_lines(rising, width=30)]
    assert text[0] == "Up"
    assert "└" in text[-3]
    assert text[-1].strip() == "x"
    # the first dot is at the lower left, the last at the upper right
    dots = [[i for i, letter in enumerate(line) if "\u2800" < letter <= "\u28ff"] for line in text]
    rows = [places for places in dots if places]
    assert rows[0][-1] > rows[-1][0]
    assert sparkline([1, NAN, 3, 8]) == "▁ ▃█"


def test_bars_as_text_are_as_long_as_their_values() -> None:
    bars = Chart("B", "bars", "name", "value", [Series("", ["a", "bb"], [10, 5])])
    first, second = [
        "".join(piece.text for piece in line if piece.series == 0)
        for line in chart_lines(bars, width=60)[-2:]
    ]
    assert len(first) == pytest.approx(2 * len(second), abs=2)


def test_series_without_colours_have_letters() -> None:
    lines = ["".join(piece.text for piece in line) for line in chart_lines(LINES, width=60)]
    assert any(line.strip().startswith("B bound") for line in lines)
    coloured = chart_lines(LINES, width=60, colour=True)
    assert not any("A" in piece.text for line in coloured for piece in line if piece.series == 0)


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
    assert " style=" not in html  # the policy would forbid it
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody loads
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')]+)""", html)
    assert [link for link in links if not link.startswith(("#part-", "data:,"))] == []
    assert "default-src 'none'" in html
    assert html.count("<svg") == 2 * 2 * len(CHARTS)  # wide and narrow
    assert html.count("<details>") == 2 * len(CHARTS)
    assert html == page(f"Page {HOSTILE}", [REPORT, REPORT], about=HOSTILE)
    body = html[html.index("<body>") : html.index("</html>")].replace("&", "&amp;")
    ElementTree.fromstring(body)  # every tag is closed


def test_under_each_chart_stand_its_own_values() -> None:
    html = page("Page", [REPORT])
    figures = html.split("<figure>")[1:]
    assert len(figures) == len(CHARTS)
    for figure, chart in zip(figures, CHARTS, strict=True):
        picture, _, rest = figure.partition("<details>")
        table = rest.partition("</details>")[0]
        assert chart.title.split()[0] in picture
        cells = ["".join(row) for row in re.findall(r"<td[^>]*>([^<]*)</td>", table)]
        expected = [cell for row in texts_of(values_of(chart)) for cell in row]
        assert list(map(unescape, cells)) == [
            text.replace("\x1b", "\N{REPLACEMENT CHARACTER}") for text in expected
        ]


def test_the_policy_names_the_one_style_sheet() -> None:
    import base64
    import hashlib

    html = page("Page", [REPORT])
    (style,) = re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in html


def test_every_chart_is_a_table_too() -> None:
    table = values_of(LINES)
    assert table.columns == [
        "lag (tokens)", HOSTILE, f"{HOSTILE}, from", f"{HOSTILE}, to", "bound",
    ]  # fmt: skip
    assert [row[0] for row in table.rows] == [1, 2, 3, 4]
    assert values_of(BARS).columns == ["relation", "a", "b"]
    assert values_of(BARS).rows[0] == ["obj", 80, 70]
    assert values_of(BARS).rows[1][:2] == [HOSTILE, 20.5]
    assert values_of(WORDS).rows[0] == ["the", 0, 1]
    assert values_of(PLANE).rows[-1] == [HOSTILE, 0.2, 0, 0.7]
    assert values_of(HEAT).rows[1] == ["obl", -2, 0]
    many = Chart("", "lines", "x", "y", [Series("", list(range(999)), list(range(999)))])
    assert len(values_of(many).rows) == MAX_ROWS
    assert "of 999 rows" in values_of(many).title


def test_numbers_of_a_column_have_as_many_decimals() -> None:
    table = Table("", ["a", "b", "c"], [[1.0, 0.002, None], [123.456, 0.5, 7]])
    assert texts_of(table) == [["1.0", "0.0020", ""], ["123.5", "0.5000", "7"]]
    wide = Table("", ["norm"], [[2.0], [3e-8]])
    assert texts_of(wide) == [["2"], ["3e-08"]]


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_files(tmp_path: Path, suffix: str) -> None:
    if suffix != ".svg":
        pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    path = save_charts(CHARTS, tmp_path / f"charts{suffix}")
    starts = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    assert path.read_bytes().startswith(starts[suffix])
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def drawn_figure(chart: Chart, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the figure that is saved as a picture of a chart."""
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    from matplotlib.figure import Figure

    figures: list[Any] = []
    save = Figure.savefig

    def keep(figure: Any, *args: Any, **settings: Any) -> None:
        save(figure, *args, **settings)
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    save_charts([chart], path)
    figures[0].draw_without_rendering()  # where all is at the resolution that the figure has now
    (part,) = figures[0].subfigs
    return part


def test_a_picture_has_the_numbers_and_the_names_of_its_svg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    from matplotlib.text import Text

    long = [f"runs/{'experiment-' * 5}{end} on the development part" for end in "ab"]
    series = [Series(label, [1, 2, 3], [4.0, 60.0, 550.0]) for label in long]
    chart = Chart("Learning", "lines", "epoch", "perplexity", series, y_scale="log")
    (axes,) = drawn_figure(chart, tmp_path / "x.png", monkeypatch).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "3"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        *("5", "10", "20", "50", "100", "200", "500")
    ]
    assert [tick for tick in axes.get_yticklabels(minor=True) if tick.get_text()] == []
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [" ".join(text.split()) for text in legend] == long
    extent = axes.get_legend().get_window_extent()
    assert extent.x1 <= axes.figure.bbox.x1
    (title,) = (text for text in axes.findobj(Text) if text.get_text() == "Learning")
    assert title.get_window_extent().y0 >= extent.y1


def test_letters_that_no_font_has_are_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    missing: set[str] = set()
    chart = Chart("", "lines", "x", "y", [Series("a\U000e0fff", [1, 2], [1, 2])])
    save_charts([chart], tmp_path / "x.png", on_missing=missing.update)
    assert missing == {"\U000e0fff"}


def test_hangul_is_drawn_with_a_font_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    from seqtool.core.fonts import Fonts

    if len(Fonts().families("말")) < 2:
        pytest.skip("no font with Hangul")
    chart = Chart("모델", "lines", "x", "y", [Series("말뭉치", [1, 2], [1, 2])])
    (axes,) = drawn_figure(chart, tmp_path / "x.png", monkeypatch).axes
    families = Fonts().families("말")
    assert axes.get_legend().get_texts()[0].get_fontfamily() == families


def test_a_file_without_suffix_and_one_that_cannot_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    assert check_picture(tmp_path / "x").name == "x.png"
    with pytest.raises(ConfigError, match="cannot be drawn") as caught:
        check_picture(tmp_path / "x.nonsense")
    assert ".svg" in caught.value.hint


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtool.analysis.drawing.image.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="matplotlib is not installed") as caught:
        check_picture(Path("x.png"))
    assert "seqtool[plot]" in caught.value.hint
    assert check_picture(Path("x.svg")) == Path("x.svg")


def test_a_browser_shows_the_page_without_complaint(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium")
    path = tmp_path / "page.html"
    path.write_text(page("Page", [REPORT]), encoding="utf-8")
    for width in (400, 1000):
        picture = tmp_path / f"{width}.png"
        run = subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2000",
             f"--screenshot={picture}", path.as_uri()],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert picture.stat().st_size > 10_000, run.stderr
        assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
