"""Pictures of trees as PDF, a sentence a page, by matplotlib (the extra `plot`).

What is drawn is the SVG picture, element by element, so that both look alike. Letters come from the
first installed font that has them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO
from xml.etree import ElementTree

from seqtool.core.errors import ConfigError, DataError
from seqtool.core.fonts import Fonts, without_remarks
from seqtool.treebank.drawing.marked import turned
from seqtool.treebank.drawing.picture import Picture
from seqtool.treebank.drawing.style import LIGHT, SIZES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIXELS = 96.0  # of an inch
POINT = 72 / PIXELS  # of a pixel
_COMMAND = re.compile(r"([MVHQLlhvz])([^A-Za-z]*)")
_MOVED = re.compile(r"translate\(([-\d.]+) ([-\d.]+)\)")
_NUMBER = re.compile(r"-?[\d.]+(?:e-?\d+)?")
_MARKED = {"wrong": LIGHT.wrong, "gold": LIGHT.gold, "differs": LIGHT.differs}


def require_matplotlib() -> None:
    """Refuse to begin without it.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        hint = "pip install 'seqtool[plot]', or write .svg or .html, which need no library"
        raise ConfigError("a PDF needs matplotlib, which is not installed", hint=hint)


def write_pdf(pictures: Iterable[Picture], stream: BinaryIO) -> set[str]:
    """Draw pictures, a page each; return the letters that no installed font has.

    Raises:
        ConfigError: matplotlib is not installed.
        DataError: there is nothing to draw.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    fonts = Fonts()
    # text as text (TrueType), not as curves; nothing that changes from run to run
    with (
        rc_context({"pdf.fonttype": 42}),
        warnings.catch_warnings(),
        without_remarks(),
        PdfPages(stream, metadata={"CreationDate": None}) as pages,
    ):
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        for picture in pictures:
            size = (picture.width / PIXELS, picture.height / PIXELS)
            figure = Figure(figsize=size)
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
            for element, left, top in _elements(picture):
                _draw(axes, element, left, top, fonts)
            pages.savefig(figure)
        if not pages.get_pagecount():
            raise DataError("there is no sentence to draw", hint="see what the file holds")
    return fonts.missing


def _elements(
    picture: Picture,
) -> Iterator[tuple[ElementTree.Element, float, float]]:
    """Give the elements that are drawn, each with its class complete, and how far it is moved."""
    root = ElementTree.fromstring(f"<svg>{picture.elements}</svg>")
    pending: list[tuple[ElementTree.Element, str, float, float]] = [(root, "", 0.0, 0.0)]
    while pending:
        element, kind, left, top = pending.pop()
        if place := _MOVED.match(element.get("transform", "")):
            left, top = left + float(place[1]), top + float(place[2])
        element.set("class", f"{element.get('class', '')} {kind}".strip())
        if element.tag in ("path", "text"):
            yield element, left, top
        pending += ((child, element.get("class", ""), left, top) for child in reversed(element))


def _draw(axes: Axes, element: ElementTree.Element, left: float, top: float, fonts: Fonts) -> None:
    from matplotlib.patches import PathPatch

    kinds = element.get("class", "").split()
    marked = next((_MARKED[kind] for kind in kinds if kind in _MARKED), None)
    if element.tag == "text":
        x, y = float(element.get("x", "")) + left, float(element.get("y", "")) + top
        side = "starts" if "starts" in kinds else "ends" if "ends" in kinds else "middle"
        # where a text begins is its right edge, if it is written so
        from_right = {"starts": "right", "ends": "left", "middle": "center"}
        from_left = {"starts": "left", "ends": "right", "middle": "center"}
        size = next(SIZES[kind] for kind in kinds if kind in SIZES)
        ink = LIGHT.ink if kinds[0] in ("form", "relation") else LIGHT.faint
        text = element.text or ""
        is_turned = element.get("direction") == "rtl"
        if is_turned:
            text = turned(text)
        axes.text(
            x,
            y,
            text,
            ha=(from_right if is_turned else from_left)[side],
            va="baseline",
            fontsize=size * POINT,
            color=marked or ink,
            family=fonts.families(text),
            parse_math=False,
        )
        return
    is_arrow = "arrow" in kinds
    colour = marked or LIGHT.line
    width = 1.8 if marked and "gold" not in kinds else 1.2
    axes.add_patch(
        PathPatch(
            _path(element.get("d", ""), left, top),
            facecolor=colour if is_arrow else "none",
            edgecolor="none" if is_arrow else colour,
            linewidth=width * POINT,
            linestyle=(0, (4, 3)) if "gold" in kinds and not is_arrow else "solid",
            capstyle="butt",
        )
    )


def _path(text: str, left: float, top: float) -> Any:
    """Return the path of an SVG's attribute `d`, of which pictures use these commands."""
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    x = y = 0.0

    def add(code: Any, *places: tuple[float, float]) -> None:
        points.extend((px + left, py + top) for px, py in places)
        codes.extend([code] * len(places))

    for letter, inside in _COMMAND.findall(text):
        numbers = [float(number) for number in _NUMBER.findall(inside)]
        # a letter in lower case counts from where the last one ended
        if letter == "z":
            add(Path.CLOSEPOLY, (x, y))
        elif letter in "Hh":
            x = numbers[0] + (x if letter == "h" else 0)
            add(Path.LINETO, (x, y))
        elif letter in "Vv":
            y = numbers[0] + (y if letter == "v" else 0)
            add(Path.LINETO, (x, y))
        elif letter == "Q":
            add(Path.CURVE3, (numbers[0], numbers[1]), (numbers[2], numbers[3]))
            x, y = numbers[2:]
        else:
            relative = letter == "l"
            x, y = (numbers[0] + relative * x, numbers[1] + relative * y)
            add(Path.MOVETO if letter == "M" else Path.LINETO, (x, y))
    return Path(points, codes)
