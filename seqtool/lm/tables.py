"""Tables for R, pandas or a spreadsheet: CSV or TSV, by the suffix of the file, quoted as CSV is.

What has no value is an empty cell; numbers that are not whole have six decimals.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from seqtool.core import terminal
from seqtool.core.errors import ConfigError, OutputError
from seqtool.core.storage import atomic_file

STDOUT = "-"
SEPARATORS = {".tsv": "\t", ".csv": ","}


def check_target(target: str | Path) -> None:
    """Refuse a table that could not be written, before the work begins.

    Raises:
        ConfigError: the suffix names no format.
        OutputError: the directory is not there.
    """
    if str(target) == STDOUT:
        return
    if Path(target).suffix.lower() not in SEPARATORS:
        hint = "name it .tsv or .csv, or - for TSV on stdout"
        raise ConfigError(f"{target} has no suffix of a table", hint=hint)
    if not Path(target).parent.is_dir():
        what = "the directory to write to is not there"
        raise OutputError(what, hint="make it first", path=target)


class Table:
    """A table that is being written; what is written first gives the columns their names."""

    def __init__(self, stream: TextIO, separator: str) -> None:
        self._writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
        self._is_empty = True

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows, given as columns of one length, the same ones in every call."""
        if self._is_empty:
            self._writer.writerow(columns)
            self._is_empty = False
        for row in zip(*columns.values(), strict=True):
            self._writer.writerow([f"{x:.6f}" if isinstance(x, float) else x for x in row])


@contextmanager
def open_table(target: str | Path) -> Iterator[Table]:
    """Open a table; a file appears under its name only when it is whole.

    Raises:
        ConfigError, OutputError: as of `check_target`.
    """
    check_target(target)
    if str(target) == STDOUT:
        shown = terminal.stream()
        yield Table(shown, "\t")
        shown.flush()
        return
    with (
        atomic_file(target) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream,
    ):
        yield Table(stream, SEPARATORS[Path(target).suffix.lower()])


def write_table(target: str | Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a whole table of which there are rows; see `open_table`."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    with open_table(target) as table:
        table.write(dict(zip(names, columns, strict=True)))
