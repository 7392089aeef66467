"""Tables for R, pandas or a spreadsheet: CSV, TSV, JSON Lines or Parquet, by the file's suffix.

Text is quoted as RFC 4180 has it, in TSV too: a cell that holds the separator, a quotation mark or
a line end stands in quotation marks, and those inside it are doubled. Nothing else is escaped, so a
reader that knows of quotes gets every cell as it was; what has no value is an empty cell.

    sentence  token   surprisal
    1         a       4.321928
    1         "5""x"  10.287712                  the token has a quotation mark between 5 and x

JSON Lines have an object for each row, with null for no value. Parquet keeps the types and all
digits; it needs pyarrow (the extra `parquet`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TextIO

import numpy as np
import numpy.typing as npt

from seqtool.core import terminal
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.reading import JSON_LINES, load_pyarrow, unpacked_name
from seqtool.core.storage import atomic_file, refuse_input

STDOUT = "-"
PARQUET = ".parquet"
SEPARATORS = {".tsv": "\t", ".csv": ","}
_ROWS = 1 << 13  # written at a time

Target = str | Path | TextIO
Column = Sequence[Any] | npt.NDArray[Any]


class Table(Protocol):
    """A table that is being written; what is written first gives the columns their names."""

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append rows, given as columns of one length, the same ones in every call.

        A column holds texts, numbers or truths; None where there is no value.
        """
        ...


def check_names(names: Iterable[str], others: Iterable[str], path: str) -> None:
    """Refuse names of columns of a table, at `path`, that others beside them have.

    Raises:
        DataError: there is one.
    """
    if clash := set(names) & set(others):
        raise DataError(
            f"has a column {min(clash)!r}, which is the name of one of the result",
            hint="give it another name",
            path=path,
            line=1,
        )


def check_target(target: Target | None, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a table that could not be written, or over `inputs`, before the work begins.

    Raises:
        ConfigError: the suffix names no format, or that of Parquet and pyarrow is not installed.
        OutputError: the directory is not there, or the file is read.
    """
    if not isinstance(target, str | Path) or str(target) == STDOUT:
        return
    suffix = _suffix(target)
    if suffix == PARQUET:
        load_pyarrow()
    elif suffix not in (*SEPARATORS, *JSON_LINES):
        raise ConfigError(
            f"{target} has no suffix of a table",
            hint="name it .tsv, .csv, .jsonl or .parquet, or - for TSV on stdout",
        )
    if not Path(target).parent.is_dir():
        raise OutputError(
            "the directory to write to is not there", hint="make it first", path=target
        )
    if Path(target).is_dir():
        raise OutputError("is a directory", hint="name a file in it", path=target)
    refuse_input(target, inputs)


@contextmanager
def open_table(target: Target) -> Iterator[Table]:
    """Open a table; a file appears under its name only when it is whole.

    Args:
        target: a file, its suffix .csv, .tsv, .jsonl or .parquet; a pipe or a device, which gets
            TSV, as does "-", standard output, or a stream.

    Raises:
        ConfigError, OutputError: as of `check_target`.
    """
    check_target(target)
    if not isinstance(target, str | Path) or str(target) == STDOUT:
        stream = terminal.stream() if isinstance(target, str | Path) else target

        def write(data: bytes) -> None:
            stream.write(data.decode())
            stream.flush()  # a reader at the other end of a pipe sees each row once it is known

        yield _LinesTable(write, "\t")
        return
    suffix = _suffix(target)
    with atomic_file(target) as raw:
        if suffix != PARQUET:
            yield _LinesTable(raw.write, SEPARATORS.get(suffix))
            return
        with closing(_ParquetTable(raw)) as table:
            yield table


def write_table(target: Target, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a whole table of which there are rows; see `open_table`."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    with open_table(target) as table:
        table.write(dict(zip(names, columns, strict=True)))


@dataclass(frozen=True)
class ParsedTable:
    """A table that was read.

    Attributes:
        path: of the file, as messages name it.
        names: of the columns: the first row.
        rows: the others, each with a cell for each column.
        lines: where each of these begins in the file, from 1.
    """

    path: str
    names: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        place = self.names.index(name)
        return [row[place] for row in self.rows]


def parse_table(content: str, path: str | Path) -> ParsedTable:
    """Return a table of text, with quotes as RFC 4180 has them; empty lines are no rows.

    Args:
        content: of the file.
        path: of the file, whose suffix shows the separator where the first line has it; else the
            first of tab, comma and semicolon that this line has.

    Raises:
        DataError: it is no such table, or two columns have one name.
    """
    shown = "<stdin>" if str(path) == STDOUT else str(path)
    header = content.partition("\n")[0]
    separator = SEPARATORS.get(Path(unpacked_name(path)).suffix, "\t" if "\t" in header else ",")
    if separator not in header:  # spreadsheets in many languages write semicolons
        separator = next((sign for sign in "\t,;" if sign in header), separator)
    lines, rows = zip(*table_rows(io.StringIO(content, newline=""), separator, shown), strict=True)
    return ParsedTable(shown, rows[0], [*rows[1:]], [*lines[1:]])


def table_rows(text: Iterable[str], separator: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table with the 1-based lines where they begin; the first are the names.

    Raises:
        DataError: as of `parse_table`, when the row is read.
    """
    csv.field_size_limit(sys.maxsize)  # the reader of files limits lines: --max-line
    # strict: a quotation mark that is no quoting is an error, where it would swallow other cells
    reader = csv.reader(text, delimiter=separator, strict=True)
    names: list[str] = []
    begin = 1
    try:
        for row in reader:
            if row and names and len(row) != len(names):
                what = f"{len(row)} cells in this row, but {len(names)} columns"
                hint = "quote cells that hold the separator"
                raise DataError(what, hint=hint, path=path, line=begin)
            if row and not names and len(set(names := row)) < len(row):
                twice = next(name for name in names if names.count(name) > 1)
                hint = "give each column a name of its own"
                raise DataError(
                    f"two columns are named {twice!r}", hint=hint, path=path, line=begin
                )
            if row:
                yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        what = f"no table: {error}"
        hint = "quote cells that hold quotes, separators or line ends, and double quotes in them"
        raise DataError(what, hint=hint, path=path, line=begin) from error
    if not names:
        raise DataError("has no rows", hint="name the columns in the first line", path=path)


def _suffix(target: str | Path) -> str:
    path = Path(target)
    # what /dev/stdout or >(...) names is no file, and has no suffix
    return ".tsv" if path.exists() and not path.is_file() else path.suffix.lower()


def plain(column: Column) -> Sequence[Any]:
    """Return the cells of a column as Python's own values."""
    return column.tolist() if isinstance(column, np.ndarray) else column


class _LinesTable:
    """CSV or TSV with a separator, else JSON Lines; its bytes go to `write_bytes`."""

    def __init__(self, write_bytes: Callable[[bytes], object], separator: str | None) -> None:
        self._write_bytes, self._separator = write_bytes, separator
        # the csv module leaves carriage returns without quotes before Python 3.13
        self._is_special = re.compile(f'[{separator}"\r\n]').search
        self._has_header = separator is None

    def write(self, columns: Mapping[str, Column]) -> None:
        if not self._has_header:
            self._write_rows(columns, [[name] for name in columns])
            self._has_header = True
        (length,) = {len(column) for column in columns.values()}
        for begin in range(0, length, _ROWS):
            parts = (column[begin : begin + _ROWS] for column in columns.values())
            self._write_rows(columns, [plain(part) for part in parts])

    def _write_rows(self, names: Iterable[str], columns: Sequence[Sequence[Any]]) -> None:
        rows: Iterable[str]
        if self._separator is None:
            cells = (map(_finite, row) for row in zip(*columns, strict=True))
            objects = (dict(zip(names, row, strict=True)) for row in cells)
            rows = (json.dumps(row, ensure_ascii=False) for row in objects)
        else:
            formats, parts = zip(*map(self._cells, columns), strict=True)
            row_format = self._separator.join(formats)  # one for all cells of a row is fast
            rows = map(row_format.__mod__, zip(*parts, strict=True))
        # what is no character of UTF-8 is written as an escape
        self._write_bytes("".join(f"{row}\n" for row in rows).encode("utf-8", "backslashreplace"))

    def _cells(self, values: Sequence[Any]) -> tuple[str, Iterable[Any]]:
        """Return the format of a column's cells, and what is put into it."""
        kinds = set(map(type, values))
        if kinds == {float}:
            return "%.6f", values
        if kinds in ({int}, {bool}):
            return "%d", values
        if kinds <= {str}:
            return "%s", map(self._text, values) if self._is_special("".join(values)) else values
        return "%s", map(self._cell, values)

    def _text(self, text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if self._is_special(text) else text

    def _cell(self, value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.6f}"
        if value is None or isinstance(value, str):
            return self._text(value or "")
        return str(int(value))


def _finite(cell: Any) -> Any:
    """Return a cell, None where it is a number that JSON cannot hold."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


class _ParquetTable:
    """Parquet; the types of the columns are those of the first rows."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._arrow, self._module = load_pyarrow()
        self._writer: Any = None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, columns: Mapping[str, Column]) -> None:
        table = self._arrow.table(dict(columns))
        if self._writer is None:
            # a column without any value yet is one of numbers: texts always are there
            is_null, double = self._arrow.types.is_null, self._arrow.float64()
            fields = [(f.name, double if is_null(f.type) else f.type) for f in table.schema]
            self._writer = self._module.ParquetWriter(self._raw, self._arrow.schema(fields))
        # whole numbers may follow where the first cells were empty
        self._writer.write_table(table.cast(self._writer.schema))
