"""How commands show a report: in the terminal, as JSON, as a picture, as a page."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import JsonOption, emit, note, note_letters, show_table, typed
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, OutputError
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.analysis.report import Chart, HeatMap, Report

COLUMNS = 80  # of what is no terminal
WIDEST = 110
# of the terminal, for series in turn; those of 16 that light and dark themes show
STYLES = ("blue", "red", "green", "magenta", "yellow", "cyan", "bright_blue", "bright_red")

PictureOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Draw the charts into this file (.svg, .png, .pdf) instead of showing them.",
    ),
]


@dataclass(frozen=True)
class ShownOptions:
    """Where a report goes."""

    output: PictureOption = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write one page with all tables and charts, which needs no network, instead of "
            "showing them.",
        ),
    ] = None
    as_json: JsonOption = False

    def check(self) -> None:
        """Refuse what cannot be written, before the work begins.

        Raises:
            ConfigError: both are one file, or a picture that cannot be drawn.
            OutputError: the directory is not there.
        """
        if self.output is None and self.html is None:
            return
        from seqtool.analysis.drawing.output import SUFFIXES, check_picture

        if self.output is not None:
            check_picture(self.output)
        if self.html is not None and self.html.suffix.lower() in SUFFIXES:
            raise ConfigError(
                f"--html writes a page, and {self.html.name} would be a picture",
                hint="name a picture with -o, and the page .html",
            )
        if self.html is not None and self.html == self.output:
            raise ConfigError("-o and --html name the same file", hint="give them two names")
        check_folders(self.output, self.html)


def check_folders(*paths: Path | None) -> None:
    """Refuse files whose directory is not there.

    Raises:
        OutputError: it is not.
    """
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise OutputError(
                "the directory to write to is not there", hint="make it first", path=path
            )


def refuse_unnamed(path: Path) -> None:
    """Refuse to replace a file that the user has not named with -o.

    Raises:
        OutputError: it is there.
    """
    if path.exists():
        hint = f"replace it with -o {shlex.quote(str(path))}, or name another file"
        raise OutputError("is there already", hint=hint, path=path)


def to_json(report: Report) -> dict[str, Any]:
    """Return what `--json` prints of a report."""
    return {"title": report.title, "remarks": list(report.remarks), **report.values}


def show(report: Report, options: ShownOptions, *, with_charts: bool = True) -> None:
    """Show a report, or write it where the options say; JSON goes to stdout beside it.

    Args:
        report: what to show.
        options: where.
        with_charts: in the terminal; files have them always.

    Raises:
        ConfigError: the picture cannot be drawn.
        OSError: a file cannot be written.
    """
    written: list[Path] = []
    if options.output is not None:
        from seqtool.analysis.drawing.output import save_charts

        written.append(save_charts(report.charts, options.output, on_missing=note_letters))
    if options.html is not None:
        write_page(options.html, report.title, [report])
        written.append(options.html)
    if options.as_json:
        return emit(to_json(report))
    if written:
        for path in written:
            echo(path)
        for remark in report.remarks if options.html is None else ():
            note(remark)  # a page has them
        return
    show_report(report, with_charts=with_charts)


def write_page(path: Path, title: str, reports: Sequence[Report]) -> None:
    """Write reports as one page.

    Raises:
        OSError: the file cannot be written.
    """
    from seqtool.analysis.drawing.page import page
    from seqtool.core.storage import replace_text

    replace_text(path, page(title, reports, about=f"Made by: {typed()}"))


def show_report(report: Report, *, with_charts: bool = True) -> None:
    """Print a report to stdout: its tables, its charts, its remarks."""
    from seqtool.analysis.drawing.page import texts_of

    for table in report.tables:
        show_table(table.title, table.columns, texts_of(table))
        echo()
    for chart in report.charts if with_charts else ():
        show_chart(chart)
        echo()
    for remark in report.remarks:
        echo(remark)


def show_chart(chart: Chart | HeatMap) -> None:
    """Print a chart: in colours on a terminal, in 80 columns elsewhere."""
    from seqtool.analysis.drawing.textual import chart_lines

    if not terminal.stream().isatty():
        for line in chart_lines(chart, width=COLUMNS):
            echo("".join(piece.text for piece in line).rstrip())
        return
    from rich.text import Text

    from seqtool.core.progress import open_console

    console = open_console(highlight=False)
    width = min(WIDEST, shutil.get_terminal_size((COLUMNS, 24)).columns)
    for line in chart_lines(chart, width=width, colour=console.color_system is not None):
        text = Text(no_wrap=True, overflow="crop")
        for piece in line:
            style = "" if piece.series is None else STYLES[piece.series % len(STYLES)]
            text.append(piece.text, style)
        console.print(text)
