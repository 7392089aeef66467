"""DuckDB as an engine: one process, in a memory that is told, with the rest on disk.

Tables t are DuckDB's own, in a file of a temporary folder. What is smoothed comes out of a sort, in
trie order, and goes into a file of Parquet as it comes, which later steps join and read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core.errors import DataError, OutputError
from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.lm.ngram.engine.plan import ENDS

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 17  # rows
LEAST = 200_000_000  # bytes that it needs in any case


def missing_package() -> str | None:
    """Return the name of a package that this engine needs and that is not installed."""
    for name in ("duckdb", "pyarrow"):
        try:
            import_module(name)
        except ImportError:
            return name
    return None


class DuckDB:
    """A database in a folder, to be closed; see `plan.Engine`.

    Args:
        folder: an empty folder for its files, which is removed by others.
        memory: how many bytes it may take.
        threads: how many to use.
    """

    def __init__(self, folder: Path, memory: int, threads: int) -> None:
        import duckdb

        self._folder = folder
        settings: dict[str, Any] = {
            "memory_limit": f"{max(memory, LEAST) / 1e6:.0f}MB",
            "temp_directory": str(folder / "spilled"),
            "threads": threads,
            "preserve_insertion_order": False,
        }
        self._connection = duckdb.connect(folder / "counts.duckdb", config=settings)

    def close(self) -> None:
        """End it; its files stay."""
        self._connection.close()

    def take(self, ends: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Take the ends of a text, which are read once."""
        import pyarrow as pa

        self._connection.register(ENDS, pa.RecordBatchReader.from_batches(schema, iter(ends)))

    def make(self, name: str, sql: str) -> None:
        """Make a table of what a query gives."""
        with self._naming():
            self._connection.execute(f"CREATE TABLE {name} AS {sql}")

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        with self._naming():
            return self._connection.execute(sql).fetchall()

    def read(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Give the rows of a query."""
        with self._naming():
            yield from self._connection.sql(sql).to_arrow_reader(_BATCH)

    def smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
        """Write a file of Parquet of what the smoother makes of a query."""
        import pyarrow.parquet as pq

        columns = smoother.keys.columns(smoother.order)
        # sorted numbers are close to one another
        encoding = dict.fromkeys(columns, "DELTA_BINARY_PACKED")
        path = self._folder / f"{name}.parquet"
        in_order = f"{sql} ORDER BY {', '.join(columns)}"
        options = {"use_dictionary": False, "compression": "none", "column_encoding": encoding}
        with self._naming(), pq.ParquetWriter(path, smoother.schema(), **options) as writer:
            for batch in smoother(self.read(in_order)):
                writer.write_batch(batch)
        quoted = str(path).replace("'", "''")
        self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{quoted}')")

    def read_smoothed(self, name: str, keys: Keys, order: int) -> Iterator[pa.RecordBatch]:
        """Give such a table as it was written."""
        import pyarrow.parquet as pq

        path = self._folder / f"{name}.parquet"
        # not the whole file ahead, which is what buffers are for otherwise
        with self._naming(), pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(_BATCH)

    def drop(self, name: str) -> None:
        """Give up a table."""
        self._connection.execute(f"DROP TABLE {name}")

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Let an error of the disk or the memory say what to do."""
        import duckdb

        try:
            yield
        except (duckdb.IOException, duckdb.TransactionException, OSError) as error:
            raise self._full(error) from error
        except duckdb.OutOfMemoryException as error:
            # it is told so too where the disk has no room for what the memory has none for
            if "temp_directory" in str(error):
                raise self._full(error) from error
            raise DataError(
                f"DuckDB has too little memory: {_first_line(error)}",
                hint="raise --memory, or lower --threads",
            ) from error

    def _full(self, error: Exception) -> OutputError:
        return OutputError(
            f"a temporary file cannot be written: {_first_line(error)}",
            hint="free some space, or name another folder with --temp",
            path=self._folder.parent,
        )


def _first_line(error: Exception) -> str:
    """Return what DuckDB or the system says, without its advice."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).partition("\n")[0]
