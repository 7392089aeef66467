"""Estimation where the n-grams do not fit into memory: one plan, and the engines that run it.

What can be refused before a text is read is checked here, where nothing large is imported.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

from seqtool.core import storage
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.runtime import memory_limit, size_text

# bytes that the process may take at least: where DuckDB had 0.2 GB, the peak was 0.53 GB of a text
# of 125 MB, and 0.60 GB of one of 250 MB
_LEAST_IN_ALL = 500_000_000


def missing_package() -> str | None:
    """Return the name of a package that the engine needs and that is not installed."""
    return next((name for name in ("duckdb", "pyarrow") if find_spec(name) is None), None)


def temporary_folder(
    output: Path, temp: str | Path | None, memory: int | None
) -> AbstractContextManager[Path]:
    """Make an empty folder, removed in the end, for what is counted of an output's text.

    Args:
        output: beside which it is, if there is no `temp`.
        temp: the folder to make it in.
        memory: how many bytes the process may take; what it has and half of what is free when None.

    Raises:
        ConfigError: a package is not installed.
        DataError: less memory than any text takes.
        OutputError: the folder is not there, or DuckDB would take its name for another.
    """
    if name := missing_package():
        what = f"the engine duckdb needs {name}, which is not installed"
        raise ConfigError(what, hint="pip install 'seqtool[scale]'")
    limit = memory_limit() if memory is None else memory
    if limit < _LEAST_IN_ALL:
        what = f"the engine duckdb needs {size_text(_LEAST_IN_ALL)} of memory for any text"
        there = "are given" if memory is not None else "may be taken"
        hint = f"give it --memory {_LEAST_IN_ALL // 10**6}M or more"
        raise DataError(f"{what}, but {size_text(limit)} {there}", hint=hint)
    if temp is not None:
        check_folder(Path(temp))
    sibling = output if temp is None else Path(temp) / "seqtool"
    sibling = sibling.with_name(f"{sibling.name}-counts")
    # DuckDB reads a backslash as a slash, and what follows ? as an option
    if set("\\?") & set(sibling.absolute().as_posix()):
        raise OutputError(
            "DuckDB writes nothing to a path that holds \\ or ?",
            hint="name another folder for temporary files with --temp",
            path=sibling.parent,
        )
    return storage.temporary_sibling(sibling)


def check_folder(folder: Path) -> None:
    """Refuse a folder for temporary files that is not there: an OutputError."""
    if not folder.is_dir():
        what = "the folder for temporary files is not there"
        raise OutputError(what, hint="make it first, or name another with --temp", path=folder)
