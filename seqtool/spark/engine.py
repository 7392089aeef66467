"""Spark as an engine that estimates n-gram models; see `lm.ngram.engine.plan`.

Every table is a directory of Parquet files in one folder, which the workers and the driver see.
What is smoothed is cut into ranges of contexts, each sorted and smoothed by one task, so its files
are in trie order, one after another.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.spark.folders import Folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_BATCH = 1 << 17  # rows


class SparkEngine:
    """Tables of Spark in a folder, which others remove; see `plan.Engine`.

    Args:
        session: of Spark.
        folder: an empty one, on any file system that Spark writes.
    """

    def __init__(self, session: SparkSession, folder: str) -> None:
        self._session, self._folder = session, folder

    def make(self, name: str, sql: str) -> None:
        """Make a table of what a query gives."""
        self._write(name, self._session.sql(sql))

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        return [tuple(row) for row in self._session.sql(sql).collect()]

    def read(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Give the rows of a query, of which the driver holds all at once."""
        yield from self._session.sql(sql).toArrow().to_batches()

    def smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
        """Make a table of what the smoother makes of a query."""
        from pyspark.sql import functions
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = smoother.keys.columns(smoother.order)
        *first, last = columns
        # in trie order as well, and alike where contexts are
        contexts: list[Column | str] = [*first, functions.shiftright(last, smoother.keys.bits)]

        def smooth(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return smoother(batches)

        rows = self._session.sql(sql).repartitionByRange(*contexts)
        rows = rows.sortWithinPartitions(*columns)
        self._write(name, rows.mapInArrow(smooth, from_arrow_schema(smoother.schema())))

    def read_smoothed(self, name: str, keys: Keys, order: int) -> Iterator[pa.RecordBatch]:
        """Give such a table in trie order; of another machine's, the driver holds a task's rows."""
        import pyarrow.parquet as pq

        folder = Folder(self._session, posixpath.join(self._folder, name))
        for file in folder.names():
            if not file.startswith("part-"):
                continue
            path = posixpath.join(folder.path, file)
            if (local := folder.local_path()) is not None:
                # not the whole file ahead, which is what buffers are for otherwise
                with pq.ParquetFile(local / file, pre_buffer=False) as stored:
                    yield from stored.iter_batches(_BATCH)
            else:
                # Spark may read a large file in pieces
                rows = self._session.read.parquet(path).coalesce(1)
                in_order = rows.sortWithinPartitions(*keys.columns(order))
                yield from in_order.toArrow().to_batches()

    def drop(self, name: str) -> None:
        """Give up a table."""
        self._session.catalog.dropTempView(name)
        Folder(self._session, posixpath.join(self._folder, name)).remove()

    def _write(self, name: str, rows: DataFrame) -> None:
        path = posixpath.join(self._folder, name)
        rows.write.parquet(path)
        self._session.read.schema(rows.schema).parquet(path).createOrReplaceTempView(name)
