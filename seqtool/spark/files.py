"""Files as Spark reads and writes them: records, where in a file these are, and directories.

Spark cuts a file into blocks, and gives each to one task. A record is what stands between two
separators: a sentence of CoNLL-U or a paragraph of text (an empty line parts them), or a line.
Records of a block come in order, so that their lines follow from those before the block:

    file             block  value (bytes)
    big.conllu           0  # sent_id = 1 ...       line 1
    big.conllu           0  # sent_id = 2 ...       line 14
    big.conllu     8388608  # sent_id = 9 ...       line 1 + lines before the block
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.reading import DEFAULT_FIELD, JSON_LINES, NOT_UTF8, PARQUET, unpacked_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARAGRAPHS, LINES = "\n\n", "\n"  # what parts records
PART_BYTES = 1 << 20  # of records that are worked on together, about
_BOM = b"\xef\xbb\xbf"
_PART = re.compile(r"(part-[0-9]+)-.*?\.txt(.*)")
_LOCAL_FILE = "file:"


class Part(NamedTuple):
    """Whole records of a block, one after another.

    Attributes:
        file: as people name it.
        rank: the number of the file among all.
        block: the byte of it where the block begins.
        line: the 1-based line of the file where they begin.
        text: the records in UTF-8 with LF, a separator after each.
    """

    file: str
    rank: int
    block: int
    line: int
    text: bytes


@dataclass(frozen=True)
class Parts:
    """What joins the records of a task in a worker.

    Attributes:
        separator: `PARAGRAPHS` or `LINES`, as bytes.
        ranks: the number of each file.
        before: (file, block) as Spark names them -> the lines of the file before the block.
    """

    separator: bytes
    ranks: Mapping[str, int]
    before: Mapping[tuple[str, int], int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """Give parts of about `PART_BYTES`, in order.

        Raises:
            DataError: a record is not UTF-8.
        """
        rows = (
            row
            for batch in batches
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for (name, block), of_block in groupby(rows, lambda row: (row[0], row[1])):
            line, file, size = 1 + self.before.get((name, block), 0), shown(name), 0
            values: list[bytes] = []
            for _, _, value in of_block:
                if not values and (block, line) == (0, 1):
                    value = value.removeprefix(_BOM)
                values.append(value)
                size += len(value)
                if size >= PART_BYTES:
                    yield (part := self._part(file, block, line, values))
                    line += part.text.count(b"\n")
                    values, size = [], 0
            if values:
                yield self._part(file, block, line, values)

    def _part(self, file: str, block: int, line: int, values: list[bytes]) -> Part:
        # of records that empty lines part, only the last one of a file may end with a line end; of
        # a table, a text that ends with one has an empty line there
        is_ended = self.separator == b"\n\n" and values[-1].endswith(b"\n")
        text = self.separator.join(values) + (b"" if is_ended else self.separator)
        try:
            text.decode()
        except UnicodeDecodeError as error:
            byte = error.start - text.rfind(b"\n", 0, error.start)
            line += text.count(b"\n", 0, error.start)
            what = f"not UTF-8 at byte {byte} of the line"
            raise DataError(what, hint=NOT_UTF8, path=file, line=line) from error
        return Part(file, self.ranks[file], block, line, text.replace(b"\r\n", b"\n"))


@dataclass(frozen=True)
class Records:
    """The records of files.

    Attributes:
        frame: columns file, block and value (bytes).
        files: all of them, as people name them, in the order of their ranks.
        parts: makes parts of the rows of a task.
    """

    frame: DataFrame
    files: list[str]
    parts: Parts


def read_records(
    session: SparkSession, paths: Sequence[str], separator: str, field: str | None = None
) -> Records:
    """Return the records of files.

    Args:
        session: of Spark.
        paths: whatever Spark reads: files, directories and patterns, of any file system that it
            knows; .gz too, each as one block. Those named .parquet or .jsonl give a text a row.
            Ranks go by the order of paths, and by name within each.
        separator: `PARAGRAPHS` or `LINES`.
        field: the column of such texts; "text" when not given.

    Raises:
        DataError: a file that Spark would not unpack.
        ConfigError: there is no such column.
    """
    from pyspark.sql import functions

    name = unpacked_name(paths[0].rstrip("/"))
    for path in paths:
        if path.lower().endswith((".zst", ".xz", ".conllup")):
            hint = "pack text as .gz, write CoNLL-U, or leave --engine spark out"
            raise DataError("Spark does not read this kind of file", hint=hint, path=path)
    plain = session.read.option("lineSep", separator).option("recursiveFileLookup", "true")
    files = [file for path in paths for file in sorted(map(shown, plain.text(path).inputFiles()))]
    # files in a folder have other names than it: those that Spark writes end in .json
    if name.endswith((PARQUET, *JSON_LINES)):
        column = field or DEFAULT_FIELD
        rows = session.read.format("parquet" if name.endswith(PARQUET) else "json").load([*paths])
        if column not in rows.columns:
            hint = f"choose with --field one of: {', '.join(rows.columns)}"
            raise ConfigError(f"no column is called {column!r}", hint=hint)
        # the end of a text ends its last line
        value = functions.regexp_replace(column, r"\n\z", "")
        rows = rows.where(functions.col(column).isNotNull())
    elif field is not None:
        raise ConfigError(f"--field {field} is for .jsonl and .parquet", hint="leave --field out")
    else:
        rows, value = plain.text([*paths]), functions.col("value")
    frame = rows.select(
        functions.col("_metadata.file_path").alias("file"),
        functions.col("_metadata.file_block_start").alias("block"),
        value.cast("binary").alias("value"),  # not decoded: it may be no UTF-8
    )
    files = list(dict.fromkeys(files))
    ranks = {file: rank for rank, file in enumerate(files)}
    return Records(frame, files, Parts(separator.encode(), ranks, _lines_before(frame, separator)))


def _lines_before(records: DataFrame, separator: str) -> dict[tuple[str, int], int]:
    """Return the number of lines of its file before each block; this reads all files once more."""
    from pyspark.sql import functions

    value = functions.col("value").cast("string")
    ends = functions.length(value) - functions.length(functions.replace(value, functions.lit("\n")))
    lines = functions.sum(ends + len(separator)).alias("lines")
    before: dict[tuple[str, int], int] = {}
    sums: defaultdict[str, int] = defaultdict(int)
    for file, block, num in (
        records.groupBy("file", "block").agg(lines).sort("file", "block").collect()
    ):
        before[file, block] = sums[file]
        sums[file] += num
    return before


def shown(file: str) -> str:
    """Return the name of a file as people type it: of this machine's files, the path."""
    if not file.startswith(_LOCAL_FILE):
        return file
    return f"/{unquote(file.removeprefix(_LOCAL_FILE)).lstrip('/')}"


class Folder:
    """A directory of any file system that Spark knows, by way of its JVM.

    Args:
        session: of Spark.
        path: of the directory: one of this machine, or with a scheme, as s3a: or hdfs:.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        context = session.sparkContext
        # the JVM's file systems have no other door; pyspark is capped at the series that is tested
        self._new_path: Any = context._jvm.org.apache.hadoop.fs.Path
        self.path, self._here = path, self._new_path(path)
        self._files = self._here.getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._files.exists(self._here))

    def refuse_present(self) -> None:
        """Refuse a directory that is there.

        Raises:
            OutputError: it is.
        """
        if self.exists():
            raise OutputError("exists already", hint="choose another output", path=self.path)

    def local_path(self) -> Path | None:
        """Return where this process can open it; None on another file system."""
        is_local = self._files.getUri().getScheme() == "file"
        return Path(self._here.toUri().getPath()) if is_local else None

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._here))

    def remove(self) -> None:
        """Remove it with all that is in it, if it is there."""
        self._files.delete(self._here, True)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let Spark write it within the block, whole or not at all.

        Raises:
            OutputError: it is there already.
        """
        self.refuse_present()
        try:
            yield
        except BaseException:
            self.remove()
            raise

    def write_lines(self, rows: DataFrame, suffix: str) -> None:
        """Write the column `value` of rows, in files whose names say what they hold."""
        with self.whole():
            rows.select("value").write.text(self.path)
            for name in self.names():
                if part := _PART.fullmatch(name):
                    new = self._new_path(self._here, f"{part[1]}.{suffix}{part[2]}")
                    self._files.rename(self._new_path(self._here, name), new)


def common_folder(files: Sequence[str]) -> str:
    """Return the folder of files, with a slash at its end."""
    return f"{posixpath.commonpath([posixpath.dirname(file) for file in files])}/"
