"""DuckDB as an engine: one process, in a memory that is told, with the rest on disk.

Tables t are DuckDB's own, in a file of a temporary folder. What is smoothed comes out of a sort, in
trie order, and goes into a file of Parquet as it comes, which later steps join and read.

A join and the sort of what it gives are one query, in which both hold memory at once. Where that is
too much, the join goes into a table first, and the sort reads that: 1.5 times the work of an order,
in half of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.lm.ngram.engine.database import Database, MemoryTooSmall
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.lm.ngram.engine.plan import ENDS

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 16  # rows


class DuckDB(Database):
    """A database as an engine; see `plan.Engine`."""

    _is_apart = False  # whether there is too little memory for a join and a sort at once

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
        if not self._is_apart and self._has_smoothed(name, sql, smoother):
            return
        self._is_apart = True  # of later orders, which are no smaller, too
        joined = f"joined_{name}"
        self.make(joined, sql)
        query = f"SELECT * FROM {joined}"
        if not self._has_smoothed(name, query, smoother):
            self.run("SET threads = 1")  # each of them has blocks of its own
            self._smooth(name, query, smoother)
        self.drop(joined)

    def _has_smoothed(self, name: str, sql: str, smoother: ContextSmoother) -> bool:
        """Do so, and return whether the memory was enough."""
        try:
            self._smooth(name, sql, smoother)
        except MemoryTooSmall:
            return False
        return True

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
