"""What the tables of all models share: figures that are kept, rows by name, one core, and the end.

A table is filled row by row. The figures of a row are written as soon as they are there, so that
the same command goes on where it was stopped. `PYTHONPATH=tests python -m benchmarks.NAME` fills
one.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from seqtool.core import checkpoint, storage
from seqtool.core.errors import ConfigError, SeqtoolError, did_you_mean, from_os_error

Figures = dict[str, dict[str, Any]]  # of each row, by its name


class Named(Protocol):
    """A row, which has a name."""

    @property
    def name(self) -> str:
        """The name, in files and on the command line."""


R = TypeVar("R", bound=Named)


def kept_figures(file: Path, about: Mapping[str, Any], other: str) -> Figures:
    """Return the figures of a file, none if it is not there; its folder is made.

    Raises:
        ConfigError: they are not of what `about` says, but `other`, or with other settings.
    """
    kept = storage.read_object(file) if file.exists() else {}
    if kept and kept["about"] != about:
        raise ConfigError(
            f"{file.parent} has {other}, or with other settings",
            hint="give another OUT, or the files and settings that it was made with",
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    figures: Figures = kept.get("figures", {})
    return figures


def write_table(
    file: Path,
    about: Mapping[str, Any],
    figures: Figures,
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
) -> str:
    """Write figures, and beside them the table in Markdown; return the table."""
    storage.write_json(file, {"about": about, "figures": figures})
    text = checkpoint.table(columns, lines)
    storage.replace_text(file.with_suffix(".md"), text + "\n")
    return text


def chosen_rows(names: str, rows: Sequence[R]) -> list[R]:
    """Return the rows of a list of names, in the order of the table; all of an empty one."""
    wanted = [name for name in names.split(",") if name]
    known = [row.name for row in rows]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"no row is called {name!r}", hint=did_you_mean(name, known))
    return [row for row in rows if not wanted or row.name in wanted]


def speed(values: Sequence[float]) -> str:
    """Return the median of speeds, with three digits; nothing of none."""
    if not values:
        return ""
    value = statistics.median(values)
    digits = 3 - len(str(int(value)))
    return f"{round(value, digits):,.0f}"


def seconds_of(action: Callable[[], object]) -> float:
    """Return the seconds of the processor that something takes."""
    start = time.process_time()
    action()
    return time.process_time() - start


@contextmanager
def on_one_core() -> Iterator[None]:
    """Stay on one core, where the system lets us, with one thread for products."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    if before:
        os.sched_setaffinity(0, {min(before)})
    try:
        with threadpool_limits(1):
            yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


def say(text: str) -> None:
    """Tell on stderr what is done next."""
    print(f"== {text}", file=sys.stderr, flush=True)


def exit_code(fill: Callable[[], None]) -> int:
    """Fill a table; return 0, or the code of an error, which is told in two lines."""
    try:
        fill()
    except (SeqtoolError, OSError) as raised:
        error = from_os_error(raised) if isinstance(raised, OSError) else raised
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: stopped\nhint: the same command goes on", file=sys.stderr)
        return 130
    return 0
