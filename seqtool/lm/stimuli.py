"""Stimuli: a CSV or TSV with a text in each row, and columns that say what it is.

item,condition,text
1,match,"The dogs in the garden bark ."
1,mismatch,"The dogs in the garden barks ."
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from seqtool.core.errors import DataError, did_you_mean
from seqtool.core.reading import JSON_LINES, read_blocks, unpacked_name
from seqtool.core.vocabulary import BLANKS
from seqtool.lm.tables import SEPARATORS, parse_table

if TYPE_CHECKING:
    from seqtool.core.arrays import Longs
    from seqtool.lm.rows import Cells

ITEM = "item"


@dataclass(frozen=True)
class Stimuli:
    """The rows of a file of stimuli.

    Attributes:
        path: of the file.
        texts: of each row.
        lines: where each row begins in the file, from 1.
        names: of the other columns, that of the item first, which is called "item".
        values: of these columns in each row.
    """

    path: str
    texts: list[str]
    lines: list[int]
    names: list[str]
    values: list[list[str]]

    def columns(self, rows: Longs) -> dict[str, Cells]:
        """Return what the other columns have in some rows, from 0."""
        return {name: cells.take(rows) for name, cells in self._cells.items()}

    @cached_property
    def _cells(self) -> dict[str, Cells]:
        from seqtool.lm.rows import Cells

        columns = zip(*self.values, strict=True)
        return dict(zip(self.names, map(Cells.of, columns), strict=True))

    def empty_rows(self) -> list[int]:
        """Return the lines of the rows whose text has no words, which get no rows of surprisal."""
        # of white space, words are parted by blanks alone: a no-break space is one
        pairs = zip(self.lines, self.texts, strict=True)
        return [line for line, text in pairs if not text.strip(f"{BLANKS}\r\n")]

    def located(self, error: DataError) -> DataError:
        """Return an error about a row, from 1, with the file and its line."""
        line = None if error.line is None else self.lines[error.line - 1]
        return DataError(error.message, hint=error.hint, path=self.path, line=line)


def is_stimuli(path: str | Path) -> bool:
    """Whether a file's name says that it is a table."""
    return unpacked_name(path).endswith(tuple(SEPARATORS))


def read_stimuli(path: str | Path, text_column: str | None, item_column: str | None) -> Stimuli:
    """Read a file of stimuli, in UTF-8, packed or not, with quotes as RFC 4180 has them.

    Args:
        path: a file; of another suffix than .csv and .tsv, or "-" for stdin, the first line tells
            the separator.
        text_column: the name of the column of texts.
        item_column: that of the column that tells items apart; None for none.

    Raises:
        DataError: it is no such table, has no such column, or has another column "item".
    """
    if unpacked_name(path).endswith(JSON_LINES):
        raise DataError(
            "holds JSON Lines, not a table of CSV or TSV",
            hint="leave --text-column out and name the field with --field, or write it as .csv",
            path=path,
        )
    table = parse_table(b"".join(read_blocks([path])).decode(), path)
    shown, names, rows = table.path, table.names, table.rows
    if text_column is None:
        raise DataError(
            "is a table, so its column of texts must be named",
            hint=f"add --text-column NAME, one of: {', '.join(names)}",
            path=shown,
        )
    places = {name: place for place, name in enumerate(names)}
    for name in filter(None, (text_column, item_column)):
        if name not in places:
            hint = did_you_mean(name, names)
            raise DataError(f"has no column {name!r}", hint=hint, path=shown, line=1)
    if item_column not in (None, ITEM) and ITEM in names and text_column != ITEM:
        raise DataError(
            f"has a column {ITEM!r}, which is what the column {item_column!r} is to be called",
            hint=f"rename {ITEM!r} in the first line, or leave --item-column out: both are kept",
            path=shown,
            line=1,
        )
    kept = [name for name in names if name not in (text_column, item_column)]
    if item_column is not None:
        kept.insert(0, item_column)
    if not rows:
        raise DataError("has no rows", hint="give a row for each text", path=shown)
    return Stimuli(
        shown,
        [row[places[text_column]] for row in rows],
        table.lines,
        [ITEM if name == item_column else name for name in kept],
        [[row[places[name]] for name in kept] for row in rows],
    )
