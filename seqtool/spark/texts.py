"""Texts as workers read them: the same lines, in the same order, as one process reads.

    plain         cut at line ends into blocks, each read by one task
    .gz           the same, as one block
    .jsonl        the same; of each line the field (of all files, if a field is named)
    .zst, .xz     one block, unpacked by the worker
    .parquet      the rows of a column

The order is that of the files, which are numbered (the rank), then that of the blocks of a file. A
text that cannot be used ends the task with a row that says so: a task that fails would be tried
again, in vain.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from seqtool.core import reading
from seqtool.core.errors import DataError
from seqtool.core.reading import DEFAULT_FIELD, JSON_LINES, PARQUET, STDIN, unpacked_name
from seqtool.spark.blocks import (
    BLOCK,
    FILE,
    LINES,
    VALUE,
    is_utf8,
    lines_before,
    literal,
    not_utf8,
    parts_of,
)
from seqtool.spark.frames import check_column, mapped
from seqtool.spark.session import shown, user_errors
from seqtool.spark.workers import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PLAIN, _PACKED, _TABLE = "plain", "packed", "table"
# columns of what workers make: where it comes from, and what is wrong if something is
PLACES = {
    "rank": "long",
    "block": "long",
    "error": "string",
    "hint": "string",
    "line": "long",
    "unread": "long",  # 1 where the file cannot be read, whatever is made of it
}


class TextPart(NamedTuple):
    """Whole lines of a block, one after another.

    Attributes:
        path: the file, as people name it.
        rank: the number of the file.
        block: the byte of it where the block begins.
        line: the 1-based line of the block where they begin.
        content: the lines, each ended by LF.
        lines: of each line the one in the block, where these are not all the lines of it.
    """

    path: str
    rank: int
    block: int
    line: int
    content: bytes
    lines: Sequence[int] | None = None

    def refused(self, error: DataError) -> Refused:
        """Return the error of one of the lines, by its number here, as one of the block."""
        line = error.line or 1
        line = self.line + line - 1 if self.lines is None else self.lines[line - 1]
        return Refused(self.rank, self.block, line, error)


class UnreadText(DataError):
    """A file that cannot be read as a text: it is damaged, not UTF-8, or has bad lines."""


class Refused(Exception):
    """A text that cannot be used: where, by its line in the block if that is known, and why."""

    def __init__(self, rank: int, block: int, line: int | None, error: DataError) -> None:
        super().__init__(error.message)
        self.cells: dict[str, Any] = {"rank": rank, "block": block, "line": line}
        self.cells |= {"error": error.message, "hint": error.hint}


Make = Callable[[Iterator[TextPart]], "Iterator[pa.RecordBatch]"]


def find_texts(session: SparkSession, inputs: Sequence[str | Path]) -> list[str]:
    """Return the files that inputs stand for, in the order in which one process reads them.

    Those of this machine are found as one process finds them; others as Spark does, in the order of
    their names for each input.

    Raises:
        DataError: an input that Spark does not read, or that stands for no file.
    """
    files: list[str] = []
    for item in map(str, inputs):
        if item == STDIN:
            raise DataError("the workers of Spark cannot read stdin", hint="name files")
        if Path(item).exists():
            files += map(os.path.abspath, reading.find_files([item]))
            continue
        with user_errors():
            found = session.read.format("binaryFile").load(item).inputFiles()
        if not found:
            raise DataError("no files are there", hint="check the path", path=item)
        files += sorted(map(shown, found))
    for name, times in Counter(files).items():
        if reading.is_treebank(name):
            raise reading.is_no_text(name)
        if times > 1:
            hint = "name it once; Spark reads every file once"
            raise DataError("is named twice", hint=hint, path=name)
    return files


@dataclass(frozen=True)
class Texts:
    """Files that workers read.

    Attributes:
        files: all of them, in order.
        frames: those that are read alike, by their kind.
        field: that holds the text of JSON Lines or Parquet.
    """

    files: list[str]
    frames: Mapping[str, DataFrame]
    field: str | None = None

    @classmethod
    def of(cls, session: SparkSession, files: list[str], field: str | None = None) -> Texts:
        """Return the texts of files, as `find_texts` gives these.

        Raises:
            DataError: a file that Spark passes over.
            ConfigError: a file of Parquet without the column.
        """
        kinds: dict[str, list[str]] = {}
        for name in files:
            kinds.setdefault(_kind(name), []).append(literal(name))
        frames = {}
        for kind, paths in kinds.items():
            frames[kind] = _records(session, kind, paths, field)
        read = {shown(name) for frame in frames.values() for name in frame.inputFiles()}
        for name in files:
            if name not in read:
                what = "Spark passes over files whose names begin with . or _"
                raise DataError(what, hint="rename it", path=name)
        return cls(files, frames, field)

    def mapped(self, make: Make, names: Mapping[str, str]) -> DataFrame:
        """Return the rows that workers make of the blocks of all files, those of a task at a time.

        Args:
            make: called in a worker.
            names: of the columns that it makes, with their types; with `PLACES`, where the texts
                have not been read before.
        """
        ranks = {name: rank for rank, name in enumerate(self.files)}
        frames = []
        for kind, frame in self.frames.items():
            reader = partial(_READERS[kind], ranks=ranks, field=self.field)
            longest = reading.longest_line()
            work = partial(_telling, make=make, reader=reader, names=names, longest=longest)
            frames.append(mapped(frame, work, names))
        result = frames[0]
        for frame in frames[1:]:
            result = result.union(frame)
        return result

    def refuse(self, row: Mapping[str, Any]) -> NoReturn:
        """Raise the error of a row that tells one, with its file and line; of Parquet, no line.

        Raises:
            DataError: in any case; `UnreadText` where the file cannot be read.
        """
        path = self.files[row["rank"]]
        kind = _kind(path)
        # that of a table is one of the texts of a split, and no row of the file
        line = None if kind == _TABLE else row["line"]
        if line is not None and row["block"]:
            before = lines_before(self.frames[kind], LINES)
            line += next(
                number
                for (file, block), number in before.items()
                if (shown(file), block) == (path, row["block"])
            )
        error = UnreadText if row["unread"] else DataError
        raise error(row["error"], hint=row["hint"], path=path, line=line)


def _records(session: SparkSession, kind: str, paths: list[str], field: str | None) -> DataFrame:
    """Return the records of files of one kind: columns FILE, BLOCK and VALUE.

    Raises:
        ConfigError: a file of Parquet without the column.
    """
    from pyspark.sql import functions

    block = functions.col("_metadata.file_block_start")
    if kind == _PACKED:
        rows, value = session.read.format("binaryFile").load(paths), functions.col("content")
        block = functions.lit(0)
    elif kind == _TABLE:
        column = field or DEFAULT_FIELD
        rows = session.read.parquet(*paths)
        check_column(rows, column)
        # the end of a text ends its last line
        value = functions.regexp_replace(column, r"\n\z", "")
    else:
        rows = session.read.option("lineSep", LINES).text(paths)
        value = functions.col("value")
    return rows.select(
        functions.col("_metadata.file_path").alias(FILE),
        block.cast("long").alias(BLOCK),
        value.cast("binary").alias(VALUE),  # not decoded: it may be no UTF-8
    )


def _kind(name: str) -> str:
    if name.lower().endswith((".zst", ".xz")):
        return _PACKED
    return _TABLE if name.endswith(PARQUET) else _PLAIN


def _telling(
    batches: Iterable[pa.RecordBatch],
    make: Make,
    reader: Callable[[Iterable[pa.RecordBatch]], Iterator[TextPart]],
    names: Mapping[str, str],
    longest: int,
) -> Iterator[pa.RecordBatch]:
    """Give what is made of texts; of one that cannot be used, a row that says so."""
    reading.limit_lines(longest)

    def read() -> Iterator[TextPart]:
        try:
            yield from reader(batches)
        except Refused as refused:
            refused.cells["unread"] = 1
            raise

    try:
        yield from make(read())
    except Refused as refused:
        if "error" not in names:  # the texts have changed since they were read before
            raise
        rows = Rows(names)
        rows.add(**refused.cells)
        yield rows.take()
        for _ in batches:  # a task that is still sending them would fail, and be tried again
            pass


def _read_plain(
    batches: Iterable[pa.RecordBatch], ranks: Mapping[str, int], field: str | None
) -> Iterator[TextPart]:
    for part in parts_of(batches, LINES, None):
        path, rank = part.file, ranks[part.file]
        if not is_utf8(part):
            error = not_utf8(part)
            raise Refused(rank, part.block, error.line, error)
        text = part.text.replace(b"\r\n", b"\n")
        whole = TextPart(path, rank, part.block, part.line, text)
        if len(text) > reading.longest_line():
            _refuse_long_lines(whole)
        yield from _contents(whole, field)


def _refuse_long_lines(text: TextPart) -> None:
    for number, line in enumerate(text.content.split(b"\n"), start=1):
        if len(line) > (most := reading.longest_line()):
            what = f"a line of more than {most / (1 << 20):,.0f} MB"
            hint = "break the line, or raise --max-line MB"
            raise text.refused(DataError(what, hint=hint, line=number))


def _read_packed(
    batches: Iterable[pa.RecordBatch], ranks: Mapping[str, int], field: str | None
) -> Iterator[TextPart]:
    for batch in batches:
        for file, value in zip(batch.column(FILE), batch.column(VALUE), strict=True):
            path = shown(file.as_py())
            blocks = reading.read_open_file(io.BytesIO(value.as_py()), path, may_be_empty=True)
            try:
                for block in blocks:
                    text = TextPart(path, ranks[path], 0, blocks.place.first_line, block)
                    yield from _contents(text, field)
            except DataError as error:
                raise Refused(ranks[path], 0, error.line, error) from error


def _contents(text: TextPart, field: str | None) -> Iterator[TextPart]:
    """Give a text, or those that its lines of JSON hold."""
    try:
        if text.block == 0 and text.line == 1:
            reading.refuse_treebank(text.content, text.path)
        if field is None and not unpacked_name(text.path).endswith(JSON_LINES):
            yield text
            return
        held = reading.json_texts(text.content, text.path, text.line, field or DEFAULT_FIELD)
    except DataError as error:
        raise Refused(text.rank, text.block, error.line, error) from error
    if held[0]:
        yield text._replace(content=held[0], lines=held[1])


def _read_table(
    batches: Iterable[pa.RecordBatch], ranks: Mapping[str, int], field: str | None
) -> Iterator[TextPart]:
    def checked() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(VALUE).null_count:
                row = batch.column(VALUE).to_pylist().index(None)
                file, block = (batch.column(name)[row].as_py() for name in (FILE, BLOCK))
                hint = "leave out rows without text, or give them an empty one"
                raise Refused(
                    ranks[shown(file)], block, None, DataError("a row has no text", hint=hint)
                )
            yield batch

    for part in parts_of(checked(), LINES, None):
        text = part.text.replace(b"\r\n", b"\n")
        yield TextPart(part.file, ranks[part.file], part.block, part.line, text)


_READERS = {_PLAIN: _read_plain, _PACKED: _read_packed, _TABLE: _read_table}
