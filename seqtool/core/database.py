"""DuckDB: tables in a file, in a memory that is told, with what does not fit beside it on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from seqtool.core.errors import ConfigError, DataError, OutputError, did_you_mean

ENGINES = ("auto", "memory", "duckdb", "spark")  # what counts a text
LEAST = 200_000_000  # bytes that it needs in any case


class MemoryTooSmall(DataError):
    """A query that DuckDB has too little memory for."""


def check_engine(engine: str) -> None:
    """Refuse an engine that is none.

    Raises:
        ConfigError: so it is.
    """
    if engine not in ENGINES:
        raise ConfigError(f"no engine is called {engine!r}", hint=did_you_mean(engine, ENGINES))


def missing_package() -> str | None:
    """Return the name of a package that a database needs and that is not installed."""
    for name in ("duckdb", "pyarrow"):
        try:
            import_module(name)
        except ImportError:
            return name
    return None


def check_packages() -> None:
    """Refuse to begin without a package.

    Raises:
        ConfigError: it is not installed.
    """
    if name := missing_package():
        raise ConfigError(
            f"the engine duckdb needs {name}, which is not installed",
            hint="pip install 'seqtool[scale]'",
        )


def check_folder(folder: Path) -> None:
    """Refuse a folder for temporary files that is not there.

    Raises:
        OutputError: it names the folder.
    """
    if not folder.is_dir():
        what = "the folder for temporary files is not there"
        raise OutputError(what, hint="make it first, or name another with --temp", path=folder)


class Database:
    """A database in a folder, to be closed.

    Args:
        folder: an empty folder for its files, which is removed by others.
        memory: how many bytes it may take.
        threads: how many to use.
    """

    def __init__(self, folder: Path, memory: int, threads: int) -> None:
        import duckdb

        self.folder = folder
        settings: dict[str, Any] = {
            "memory_limit": f"{max(memory, LEAST) / 1e6:.0f}MB",
            "temp_directory": str(folder / "spilled"),
            "threads": threads,
            "preserve_insertion_order": False,
        }
        self.connection = duckdb.connect(folder / "counts.duckdb", config=settings)

    def close(self) -> None:
        """End it; its files stay."""
        self.connection.close()

    def run(self, sql: str) -> Any:
        """Run a query, and return what DuckDB gives of it."""
        with self.naming():
            return self.connection.execute(sql)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Let an error of the disk or the memory say what to do.

        Raises:
            OutputError: a temporary file cannot be written.
            MemoryTooSmall: there is too little memory.
        """
        import duckdb

        try:
            yield
        except (
            duckdb.IOException,
            duckdb.OutOfMemoryException,
            duckdb.TransactionException,
            OSError,
        ) as error:
            told = str(error)
            # where rows have been given, pyarrow hands on what DuckDB says as an OSError; and the
            # memory is what is told of, too, where the disk has no room for what it has none for
            if "Out of Memory Error" not in told or "temp_directory" in told:
                raise self._full(error) from error
            raise MemoryTooSmall(
                f"DuckDB has too little memory: {_first_line(error)}",
                hint="raise --memory, or lower --threads",
            ) from error

    def _full(self, error: Exception) -> OutputError:
        return OutputError(
            f"a temporary file cannot be written: {_first_line(error)}",
            hint="free some space, or name another folder with --temp",
            path=self.folder.parent,
        )


def _first_line(error: Exception) -> str:
    """Return what DuckDB or the system says, without its advice."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).partition("\n")[0]
