"""Charts into a file: the suffix says how they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
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


def save_charts(charts: Sequence[Chart | HeatMap], path: Path) -> Path:
    """Draw charts below one another into one file, and return its path.

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

        save_image(charts, path)
    return path
