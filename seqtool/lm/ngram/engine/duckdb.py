"""DuckDB as an engine: one process, in a byte budget, with the rest in files of a temporary folder.

Tables t are DuckDB's own. What is smoothed comes out of a sort, in trie order, and goes into a file
of Parquet as it comes, which later steps join and read.

A join and the sort of what it gives are one query, in which both hold memory at once. Where that is
too much, the join goes into a table first, and the sort reads that: 1.5 times the work of an order,
in half of the memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Ids
from seqtool.core.errors import DataError, OutputError
from seqtool.core.runtime import (
    check_memory,
    give_back_memory,
    memory_available,
    memory_limit,
)
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.lm.ngram.engine.keys import Keys, Packer
from seqtool.lm.ngram.engine.plan import ENDS, Text

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 16  # rows
_PIECE = 1 << 18  # tokens that are packed at once
_LEAST = 200_000_000  # bytes that DuckDB needs in any case
# of the memory that is free at the beginning, DuckDB takes some more than it is allowed for a
# while, and what passes between it and here is not its own; nor are its code and pyarrow's, which
# are as large however little there is
_SHARE, _OUTSIDE = 0.75, 200_000_000


class MemoryTooSmall(DataError):
    """A query that DuckDB has too little memory for."""


class DuckDB:
    """A database in a folder as an engine, to be closed; see `plan.Engine`.

    Args:
        folder: an empty folder for its files, which is removed by others.
        threads: how many to use.
        memory: how many bytes the process may take, of which it takes what is free; what the
            process has and half of what is free when None.

    Raises:
        DataError: too little memory.
    """

    _is_apart = False  # whether there is too little memory for a join and a sort at once

    def __init__(self, folder: Path, threads: int, memory: int | None) -> None:
        import duckdb

        give_back_memory()  # of the reading
        limit = memory_limit() if memory is None else memory
        check_memory(_LEAST, "the tables of DuckDB", "free some memory", limit)
        available = memory_available(limit) or 0
        budget = max(_LEAST, int(min(_SHARE * available, available - _OUTSIDE)))
        self._shown = folder.parent
        self.folder = folder.absolute()  # s3:x would be in the network
        settings: dict[str, Any] = {
            "memory_limit": f"{budget / 1e6:.0f}MB",
            "temp_directory": str(self.folder / "spilled"),
            "threads": threads,
            "preserve_insertion_order": False,
        }
        with self.naming():
            self.connection = duckdb.connect(self.folder / "counts.duckdb", config=settings)

    def close(self) -> None:
        """End it; its files stay."""
        self.connection.close()

    def run(self, sql: str) -> Any:
        """Run a query, and return what DuckDB gives of it."""
        with self.naming():
            return self.connection.execute(sql)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        with self.naming():  # rows are made while they are fetched
            rows: list[tuple[Any, ...]] = self.connection.execute(sql).fetchall()
        return rows

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Let an error of the disk or the memory say what to do.

        Raises:
            OutputError: a temporary file cannot be written.
            MemoryTooSmall: there is too little memory.
        """
        import duckdb

        caught = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.TransactionException)
        try:
            yield
        except (*caught, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            # where rows have been given, pyarrow hands on what DuckDB says as an OSError; and the
            # memory is what is told of, too, where the disk has no room for what it has none for
            if "Out of Memory Error" in str(error) and "temp_directory" not in str(error):
                hint = "raise --memory, or lower --threads"
                raise MemoryTooSmall(
                    f"DuckDB has too little memory: {reason}", hint=hint
                ) from error
            raise OutputError(
                f"a temporary file cannot be written: {reason.removeprefix('IO Error: ')}",
                hint="free some space, or name another folder with --temp",
                path=self._shown,
            ) from error

    def take(self, ends: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Take the ends of a text, which are read once."""
        import pyarrow as pa

        self.connection.register(ENDS, pa.RecordBatchReader.from_batches(schema, iter(ends)))

    def make(self, name: str, sql: str) -> None:
        """Make a table of what a query gives."""
        self.run(f"CREATE TABLE {name} AS {sql}")

    def read(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Give the rows of a query."""
        with self.naming():
            yield from self.connection.sql(sql).to_arrow_reader(_BATCH)

    def smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
        """Write a file of Parquet of what the smoother makes of a query."""
        if not self._is_apart:
            try:
                return self._smooth(name, sql, smoother)
            except MemoryTooSmall:
                self._is_apart = True  # of later orders, which are no smaller, too
        joined = f"joined_{name}"
        self.make(joined, sql)
        query = f"SELECT * FROM {joined}"
        try:
            self._smooth(name, query, smoother)
        except MemoryTooSmall:
            self.run("SET threads = 1")  # each of them has blocks of its own
            self._smooth(name, query, smoother)
        self.drop(joined)

    def _smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
        """Do so, from the beginning, whatever was written before."""
        import pyarrow.parquet as pq

        columns = smoother.keys.columns(smoother.order)
        # sorted numbers are close to one another
        encoding = dict.fromkeys(columns, "DELTA_BINARY_PACKED")
        path = self.folder / f"{name}.parquet"
        in_order = f"{sql} ORDER BY {', '.join(columns)}"
        options = {"use_dictionary": False, "compression": "none", "column_encoding": encoding}
        with self.naming(), pq.ParquetWriter(path, smoother.schema(), **options) as writer:
            for batch in smoother(self.read(in_order)):
                writer.write_batch(batch)
        quoted = str(path).replace("'", "''")
        self.run(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{quoted}')")

    def read_smoothed(self, name: str, keys: Keys, order: int) -> Iterator[pa.RecordBatch]:
        """Give such a table as it was written."""
        import pyarrow.parquet as pq

        path = self.folder / f"{name}.parquet"
        # not the whole file ahead, which is what buffers are for otherwise
        with self.naming(), pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(_BATCH)

    def drop(self, name: str) -> None:
        """Give up a table."""
        path = self.folder / f"{name}.parquet"
        self.run(f"DROP {'VIEW' if path.exists() else 'TABLE'} {name}")
        path.unlink(missing_ok=True)


def text_pieces(ids: npt.NDArray[Any]) -> Iterator[Ids]:
    """Give a text piece by piece; pages of a mapped file are let go when they have been read."""
    mapped = ids._mmap if isinstance(ids, np.memmap) else None  # type: ignore[attr-defined]
    for begin in range(0, len(ids), _PIECE):
        yield np.array(ids[begin : begin + _PIECE], np.int32)
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


def describe_text(ids: npt.NDArray[Any], keys: Keys) -> Text:
    """Return what is known of a text when it was read once.

    Raises:
        DataError: it is not of this vocabulary, or the last sentence has no end.
    """
    num_sentences = longest = length = 0
    for piece in text_pieces(ids):
        if not 0 <= piece.min() <= piece.max() < keys.vocabulary_size:
            raise DataError("the ids are not of this vocabulary", hint="prepare the text again")
        ends = np.flatnonzero(piece == EOS_ID)
        if len(ends):
            longest = max(longest, length + int(ends[0]) + 1, int(np.diff(ends).max(initial=0)))
            # so that adding the whole piece leaves what comes after its last end
            length = -int(ends[-1]) - 1
        length += len(piece)
        num_sentences += len(ends)
    if length:
        raise DataError("the last sentence has no end", hint="prepare the text again")
    return Text(keys, num_sentences, longest)


def take_text(engine: DuckDB, ids: npt.NDArray[Any], vocabulary_size: int, order: int) -> Text:
    """Give the engine the longest n-gram that ends at each token, which it reads once.

    Args:
        engine: the engine.
        ids: the text, mapped, [T]; `EOS_ID` after each sentence and no `<s>`.
        vocabulary_size: V.
        order: the length of the longest n-grams.

    Raises:
        DataError: ids that are not of this vocabulary, or a last sentence without an end.
    """
    import pyarrow as pa

    keys = Keys(vocabulary_size)
    text = describe_text(ids, keys)
    packer = Packer(keys, order)
    schema = pa.schema([(name, pa.int64()) for name in keys.columns(order)])

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in text_pieces(ids):
            yield pa.RecordBatch.from_arrays([*map(pa.array, packer.pack(piece))], schema=schema)

    engine.take(batches(), schema)
    return text
