"""Charts into a file: the suffix says how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seqtool.analysis.drawing.svg import chart_svg
from seqtool.analysis.report import Chart, HeatMap
from seqtool.core.errors import ConfigError
from seqtool.core.storage import replace_text

SUFFIXES = (".svg", ".png", ".pdf")


def check_picture(path: Path) -> Path:
    """Return the file of a picture, .png where it has no suffix, before the work begins.

    Raises:
        ConfigError: a picture of this suffix cannot be drawn.
    """
    path = path if path.suffix else Path(f"{path}.png")
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"a {path.suffix} file cannot be drawn",
            hint="name a .png, .svg or .pdf file",
            path=path,
        )
    if path.suffix.lower() != ".svg":
        from seqtool.analysis.drawing.image import require_matplotlib

        require_matplotlib()
    return path


def save_charts(
    charts: Sequence[Chart | HeatMap],
    path: Path,
    *,
    on_missing: Callable[[set[str]], None] | None = None,
) -> Path:
    """Draw charts below one another into one file, and return its path.

    Args:
        charts: what to draw.
        path: .svg, .png or .pdf.
        on_missing: told the letters that no installed font has, if there are any. An SVG has
            letters as text and leaves them to the fonts of the reader.

    Raises:
        ConfigError: there is no chart, matplotlib is not installed, or it cannot draw such a file.
        OSError: the file cannot be written.
    """
    path = check_picture(path)
    if not charts:
        raise ConfigError("there is no chart to draw", hint="leave -o out")
    if path.suffix.lower() == ".svg":
        replace_text(path, chart_svg(charts))
    else:
        from seqtool.analysis.drawing.image import save_image

        missing = save_image(charts, path)
        if missing and on_missing is not None:
            on_missing(missing)
    return path
