"""Directories of any file system that Spark writes, by way of its JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._files.exists(self._here))

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._here))

    def rename(self, old: str, new: str) -> None:
        """Give a file in it another name."""
        self._files.rename(self._of(self._here, old), self._of(self._here, new))

    def remove(self) -> None:
        """Remove it with all that is in it, if it is there."""
        self._files.delete(self._here, True)
