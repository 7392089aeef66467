"""Directories of any file system that Spark writes, by way of its JVM."""

from __future__ import annotations

import posixpath
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_SECONDS = 10  # at most, for what was stopped
_STAY_SECONDS = 0.5  # that a folder must be gone, before it is held to be
_POLL_SECONDS = 0.05


class Folder:
    """A directory.

    Args:
        session: of Spark.
        path: of the directory: one of this machine, or with a scheme, as s3a: or hdfs:.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        context = session.sparkContext
        # the JVM's file systems have no other door; pyspark is capped at the series that is tested
        self._jvm: Any = context._jvm
        self.path = path
        self._here = self._of(path)
        self._files = self._here.getFileSystem(context._jsc.hadoopConfiguration())

    def _of(self, *parts: Any) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(*parts)

    @property
    def url(self) -> str:
        """Where it is, on which file system: the same of all names of one path."""
        return str(self._files.makeQualified(self._here).toString())

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._files.exists(self._here))

    def local_path(self) -> Path | None:
        """Return where this process can open it; None on another file system."""
        is_local = self._files.getUri().getScheme() == "file"
        return Path(self._here.toUri().getPath()) if is_local else None

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._here))

    def rename(self, old: str, new: str) -> None:
        """Give a file in it another name."""
        self._files.rename(self._of(self._here, old), self._of(self._here, new))

    def remove(self) -> None:
        """Remove it with all that is in it, if it is there."""
        self._files.delete(self._here, True)


@contextmanager
def temporary_folder(session: SparkSession, parent: str) -> Iterator[str]:
    """Give the name of a new folder for tables, and remove it with all that is in it then.

    What Spark still does for the block, as after Ctrl-C, is stopped before: it would write there.
    """
    name = f"seqtool-tables-{uuid.uuid4().hex}"
    path = posixpath.join(parent, name)
    context, folder = session.sparkContext, Folder(session, path)
    context.addJobTag(name)
    try:
        yield path
    except BaseException:
        context.cancelJobsWithTag(name)
        _wait_for_tasks(session)
        _remove_for_good(folder)
        raise
    finally:
        context.removeJobTag(name)
        folder.remove()


def _wait_for_tasks(session: SparkSession) -> None:
    """Wait until no task runs, for a while: others may use the session, too."""
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until and _num_tasks(session):
        time.sleep(_POLL_SECONDS)


def _num_tasks(session: SparkSession) -> int:
    """Return how many tasks run now, as the scheduler has it.

    What the status tracker tells is late: for a while it counts none where some have begun.
    """
    context: Any = session.sparkContext
    numbers = context._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    num_tasks = 0
    while numbers.hasNext():
        num_tasks += numbers.next()
    return num_tasks


def _remove_for_good(folder: Folder) -> None:
    """Remove a folder until it stays away: the driver may be about to commit what tasks wrote."""
    gone_since = begin = time.monotonic()
    while time.monotonic() < min(gone_since + _STAY_SECONDS, begin + _WAIT_SECONDS):
        if folder.exists():
            folder.remove()
            gone_since = time.monotonic()
        time.sleep(_POLL_SECONDS)
