"""How commands show a report: in the terminal, as JSON, as a picture, as a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import JsonOption, emit, note, note_letters, option, show_table, typed
from seqtool.core.errors import ConfigError, OutputError
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.analysis.report import Chart, Report

PictureOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Draw the charts there (.svg, .png, .pdf)."
    ),
]


@dataclass(frozen=True)
class ShownOptions:
    """Where a report goes."""

    output: PictureOption = None
    html: Path | None = option(None, "Write one page with all tables and charts instead.", "FILE")
    as_json: JsonOption = False

    def check(self) -> None:
        """Refuse what cannot be written, before the work begins.

        Raises:
            ConfigError: both are one file, a picture that cannot be drawn, or no matplotlib.
            OutputError: the directory is not there.
        """
        if self.output is None and self.html is None:
            return
        from seqtool.analysis.drawing import SUFFIXES, check_picture, require_matplotlib

        if self.output is not None:
            check_picture(self.output)
        if self.html is not None and self.html.suffix.lower() in SUFFIXES:
            what = f"--html writes a page, and {self.html.name} would be a picture"
            raise ConfigError(what, hint="name a picture with -o, and the page .html")
        if self.html is not None and self.html == self.output:
            raise ConfigError("-o and --html name the same file", hint="give them two names")
        check_folders(self.output, self.html)
        require_matplotlib()


def check_folders(*paths: Path | None) -> None:
    """Raise an OutputError where the directory of a file to write is not there."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            what = "the directory to write to is not there"
            raise OutputError(what, hint="make it first", path=path)


def refuse_unnamed(path: Path) -> None:
    """Raise an OutputError where a file is there that the user has not named with -o."""
    if path.exists():
        hint = f"replace it with -o {shlex.quote(str(path))}, or name another file"
        raise OutputError("is there already", hint=hint, path=path)


def to_json(report: Report) -> dict[str, Any]:
    """Return what `--json` prints of a report."""
    return {"title": report.title, "remarks": list(report.remarks), **report.values}


def show(report: Report, options: ShownOptions) -> None:
    """Show a report, or write it where the options say; JSON goes to stdout beside it.

    Raises:
        ConfigError: the picture cannot be drawn.
        OSError: a file cannot be written.
    """
    written: list[Path] = []
    if options.output is not None:
        written.append(save_picture(report.charts, options.output))
    if options.html is not None:
        write_page(options.html, report.title, [report])
        written.append(options.html)
    if options.as_json:
        return emit(to_json(report))
    for path in written:
        echo(path)
    if not written:
        show_report(report)
    elif options.html is None:  # a page has them
        for remark in report.remarks:
            note(remark)


def save_picture(charts: Sequence[Chart], path: Path) -> Path:
    """Draw charts into a file and return its name, .png where it has no suffix.

    Raises:
        ConfigError: the picture cannot be drawn.
        OSError: the file cannot be written.
    """
    from seqtool.analysis.drawing import check_picture, save_charts

    path = check_picture(path)
    if missing := save_charts(charts, path):
        note_letters(missing)
    return path


def write_page(path: Path, title: str, reports: Sequence[Report]) -> None:
    """Write reports as one page.

    Raises:
        OSError: the file cannot be written.
    """
    from seqtool.analysis.page import page
    from seqtool.core.storage import replace_text

    replace_text(path, page(title, reports, about=f"Made by: {typed()}"))


def show_report(report: Report) -> None:
    """Print a report to stdout: its tables and its remarks."""
    from seqtool.analysis.report import cell_texts

    for table in report.tables:
        show_table(table.title, table.columns, cell_texts(table))
        echo()
    for remark in report.remarks:
        echo(remark)
