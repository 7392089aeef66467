"""DuckDB: tables in a file, in a memory that is told, with what does not fit beside it on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seqtool.core import storage
from seqtool.core.errors import ConfigError, DataError, OutputError, did_you_mean
from seqtool.core.runtime import memory_limit, size_text

ENGINES = ("auto", "memory", "duckdb", "spark")  # what counts a text
LEAST = 200_000_000  # bytes that it needs in any case
# bytes that the process may take at least: where DuckDB had 0.2 GB, the peak was 0.53 GB of a text
# of 125 MB, and 0.60 GB of one of 250 MB
LEAST_IN_ALL = 500_000_000


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
    return next((name for name in ("duckdb", "pyarrow") if find_spec(name) is None), None)


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


def check_least(memory: int | None = None) -> None:
    """Refuse, before a text is read, less memory than any text takes.

    Args:
        memory: how many bytes the process may take; what it has and half of what is free when None.

    Raises:
        DataError: so it is.
    """
    limit = memory_limit() if memory is None else memory
    if limit < LEAST_IN_ALL:
        what = f"the engine duckdb needs {size_text(LEAST_IN_ALL)} of memory for any text"
        there = "are given" if memory is not None else "may be taken"
        hint = f"give it --memory {LEAST_IN_ALL // 10**6}M or more"
        raise DataError(f"{what}, but {size_text(limit)} {there}", hint=hint)


def temporary_folder(output: Path, temp: str | Path | None) -> AbstractContextManager[Path]:
    """Make an empty folder, removed in the end, for what is counted of an output's text.

    Args:
        output: beside which it is, if there is no `temp`.
        temp: the folder to make it in.

    Raises:
        OutputError: that is not there, or DuckDB would take its name for another.
    """
    if temp is not None:
        check_folder(Path(temp))
    sibling = output if temp is None else Path(temp) / "seqtool"
    sibling = sibling.with_name(f"{sibling.name}-counts")
    # not as they are read by DuckDB: a backslash as a slash, and what follows ? as an option
    if set("\\?") & set(sibling.absolute().as_posix()):
        raise OutputError(
            "DuckDB writes nothing to a path that holds \\ or ?",
            hint="name another folder for temporary files with --temp",
            path=sibling.parent,
        )
    return storage.temporary_sibling(sibling)


class Database:
    """A database in a folder, to be closed.

    Args:
        folder: an empty folder for its files, which is removed by others.
        memory: how many bytes it may take.
        threads: how many to use.
    """

    def __init__(self, folder: Path, memory: int, threads: int) -> None:
        import duckdb

        self._shown = folder.parent
        self.folder = folder.absolute()  # s3:x would be in the network
        settings: dict[str, Any] = {
            "memory_limit": f"{max(memory, LEAST) / 1e6:.0f}MB",
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
