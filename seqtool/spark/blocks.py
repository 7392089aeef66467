"""Text files as Spark reads them: records, and where in a file these are.

Spark cuts a file into blocks, and gives each to one task. A record is what stands between two
separators: a sentence of CoNLL-U or a paragraph of text (an empty line parts them), or a line.
Records of a block come in order, so their lines are counted from the beginning of the block:

    file             block  value (bytes)
    big.conllu           0  # sent_id = 1 ...       line 1 of the block, and of the file
    big.conllu           0  # sent_id = 2 ...       line 14 of both
    big.conllu     8388608  # sent_id = 9 ...       line 1 of its block; `lines_before` the block
                                                    are counted only if somebody asks

The bytes are the file's own: the encoding is checked by whoever reads them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import (
    DEFAULT_FIELD,
    JSON_LINES,
    NOT_UTF8,
    STDIN,
    unpacked_name,
)
from seqtool.spark.session import shown, user_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARAGRAPHS, LINES = "\n\n", "\n"  # what parts records
FILE, BLOCK, VALUE = "file", "block", "value"
PART_BYTES = 1 << 20  # of records that are worked on together, about

Place = tuple[str, int]  # a file, and the byte of it where a block begins
LinesBefore = Mapping[Place, int]

_BOM = b"\xef\xbb\xbf"
_GLOB = re.compile(r"([\\*?\[\]{}])")  # of a pattern of file names


class Part(NamedTuple):
    """Records of a block, one after another.

    Attributes:
        source: the file, as Spark names it.
        block: the byte of it where the block begins.
        line: the 1-based line where they begin: of the file if the lines before the block are
            known, else of the block.
        text: the records, with separators between them and after the last.
    """

    source: str
    block: int
    line: int
    text: bytes

    @property
    def file(self) -> str:
        """The file, as people name it."""
        return shown(self.source)


def read_records(
    session: SparkSession,
    paths: Sequence[str],
    separator: str,
    field: str | None = None,
    on_damaged: Callable[[DataError], None] | None = None,
) -> DataFrame:
    """Return the records of files with their file and block: columns FILE, BLOCK and VALUE.

    Args:
        session: of Spark.
        paths: whatever Spark reads: files, directories and patterns, of any file system that it
            knows; .gz too, each as one block. Those named .parquet or .jsonl give a text a row.
        separator: `PARAGRAPHS` or `LINES`.
        field: the column of such texts; "text" when not given.
        on_damaged: called with what is wrong with each file of .gz that cannot be read to its end,
            and is left out; without it, Spark refuses such a file where it is read.

    Raises:
        DataError: a path that Spark does not read; no file can be read.
        ConfigError: there is no such column.
    """
    from pyspark.sql import functions

    names = [unpacked_name(path.rstrip("/")) for path in paths]
    for path, name in zip(paths, names, strict=True):
        if path == STDIN:
            raise DataError("the workers of Spark cannot read stdin", hint="name files")
        if name.endswith(".conllup"):
            raise DataError(
                "is CoNLL-U Plus, whose columns stand in its first line alone",
                hint="parse it without --engine spark, or write it as CoNLL-U",
                path=path,
            )
        if (suffix := path.lower()[-4:]).endswith((".zst", ".xz")):
            what = f"Spark reads no .{suffix.rpartition('.')[2]}"
            raise DataError(what, hint="pack it as .gz, or unpack it", path=path)
    if on_damaged is not None:
        paths = _without_damaged(session, paths, on_damaged)
    value = functions.col("value")
    # files in a folder have other names than it: those that Spark writes end in .json
    if names[0].endswith((".parquet", *JSON_LINES)):
        kind = "parquet" if names[0].endswith(".parquet") else "json"
        rows = session.read.format(kind).load(list(paths))
        column = field or DEFAULT_FIELD
        if column not in rows.columns:
            hint = f"choose with --field one of: {', '.join(rows.columns)}"
            raise ConfigError(f"no column is called {column!r}", hint=hint)
        rows = rows.where(functions.col(column).isNotNull())
        # the end of a text ends its last line
        value = functions.regexp_replace(column, r"\n\z", "")
    elif field is not None:
        raise ConfigError(f"--field {field} is for .jsonl and .parquet", hint="leave --field out")
    else:
        rows = session.read.option("lineSep", separator).text(list(paths))
    return rows.select(
        functions.col("_metadata.file_path").alias(FILE),
        functions.col("_metadata.file_block_start").alias(BLOCK),
        value.cast("binary").alias(VALUE),  # not decoded: it may be no UTF-8
    )


def sound_files(session: SparkSession, files: list[str]) -> tuple[list[str], list[DataError]]:
    """Return the files that Spark can unpack to their ends, and what is wrong with the others.

    Only those of .gz are read for that, by the workers: once, and once more for each that is
    damaged, as Spark names one at a time.

    Raises:
        DataError: no file can be read.
    """
    packed = [file for file in files if file.lower().endswith(".gz")]
    damaged: dict[str, DataError] = {}
    while packed:
        try:
            with user_errors():
                rows = session.read.text([*map(literal, packed)])
                rows.write.format("noop").mode("overwrite").save()
            break
        except DataError as error:
            if error.path is None or str(error.path) not in packed:
                raise
            packed.remove(str(error.path))
            damaged[str(error.path)] = error
    sound = [file for file in files if file not in damaged]
    errors = [damaged[file] for file in files if file in damaged]
    if errors and not sound:
        raise errors[0]
    return sound, errors


def _without_damaged(
    session: SparkSession, paths: Sequence[str], on_damaged: Callable[[DataError], None]
) -> list[str]:
    """Return paths as they are or, where files of .gz are damaged, patterns of the others."""
    files = sorted(map(shown, session.read.text([*paths]).inputFiles()))
    sound, damaged = sound_files(session, files)
    for error in damaged:
        on_damaged(error)
    if not damaged:
        return [*paths]
    return [*map(literal, sound)]


def literal(file: str) -> str:
    """Return a pattern that is the name of one file."""
    return _GLOB.sub(r"\\\1", file)


def lines_before(records: DataFrame, separator: str) -> dict[Place, int]:
    """Return the number of lines of its file before each block.

    This reads all files once more, in the JVM alone.
    """
    from pyspark.sql import functions

    value = functions.col(VALUE).cast("string")
    ends = functions.length(value) - functions.length(functions.replace(value, functions.lit("\n")))
    counts = (
        records.select(FILE, BLOCK, (ends + len(separator)).alias("lines"))
        .groupBy(FILE, BLOCK)
        .agg(functions.sum("lines").alias("lines"))
        .orderBy(FILE, BLOCK)
        .collect()
    )
    before: dict[Place, int] = {}
    sums: defaultdict[str, int] = defaultdict(int)
    for file, block, lines in counts:
        before[file, block] = sums[file]
        sums[file] += lines
    return before


def parts_of(batches: Iterable[Any], separator: str, before: LinesBefore | None) -> Iterator[Part]:
    """Join the records of Arrow batches to parts of about `PART_BYTES`.

    Args:
        batches: what `read_records` gave, of one task.
        separator: of the records.
        before: the lines before each block; None: lines are counted from there.
    """
    line, place = 1, ("", -1)
    end = separator.encode()
    rows = (
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for here, group in groupby(rows, lambda row: (row[0], row[1])):
        if here != place:
            place = here
            line = 1 + (before.get(here, 0) if before is not None else 0)
        held: list[bytes] = []
        size = 0
        for _, _, value in group:
            if not held and here[1] == 0 and line == 1:
                value = value.removeprefix(_BOM)
            held.append(value)
            size += len(value) + len(end)
            if size >= PART_BYTES:
                yield (part := _part(place, line, held, end))
                line += part.text.count(b"\n")
                held, size = [], 0
        if held:
            yield (part := _part(place, line, held, end))
            line += part.text.count(b"\n")


def _part(place: Place, line: int, values: list[bytes], end: bytes) -> Part:
    # of records that empty lines part, only the last one of a file may end with a line end; of a
    # table, a text that ends with one has an empty line there
    is_ended = end == PARAGRAPHS.encode() and values[-1].endswith(b"\n")
    last = b"" if is_ended else end
    return Part(place[0], place[1], line, end.join(values) + last)


def is_utf8(part: Part) -> bool:
    """Whether records are text."""
    try:
        part.text.decode()
    except UnicodeDecodeError:
        return False
    return True


def not_utf8(part: Part) -> DataError:
    """Return the error of records of which one is not UTF-8, with its line and its byte."""
    try:
        part.text.decode()
    except UnicodeDecodeError as error:
        line = part.line + part.text.count(b"\n", 0, error.start)
        byte = error.start - part.text.rfind(b"\n", 0, error.start)
        return DataError(
            f"not UTF-8 at byte {byte} of the line",
            hint=NOT_UTF8,
            path=part.file,
            line=line,
        )
    raise ValueError("the part is UTF-8")
