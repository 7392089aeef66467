"""The session of Apache Spark: the one that is active, or a new one; its errors in two lines."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from seqtool.core import errors
from seqtool.core.errors import ConfigError, OutputError, SeqtoolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# of a session that begins here; a user's settings come after them
SETTINGS = {
    "spark.app.name": "seqtool",
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.files.openCostInBytes": str(1 << 20),
}
_RETRIES = 4  # how often a task is tried, as on a cluster; of `local[N]`, Spark alone tries once
_LOCAL = re.compile(r"local\[([0-9]+|\*)\]")
_FROM_WORKER = re.compile(r"seqtool-error (\{.*\})")
_CONDITION = re.compile(r"\[[A-Z_.]{4,}\] [^\n]+")
_ERROR_LINE = re.compile(r"^(?:Caused by: )?([\w.]*(?:Error|Exception): [^\n]+)", re.MULTILINE)
_SHOWN = 300  # characters of each of Spark's messages


class WorkerError(Exception):
    """A user's error in a worker, written so that the driver finds it in what Spark says."""

    def __init__(self, error: SeqtoolError) -> None:
        content = {
            "kind": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "path": error.path,
            "line": error.line,
        }
        super().__init__(f"seqtool-error {json.dumps(content, default=str)}")


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """Return the settings of `--spark-conf KEY=VALUE`.

    Raises:
        ConfigError: one is no such pair.
    """
    for pair in pairs:
        if not re.match(r"spark\.[^=]+=", pair):
            raise ConfigError(
                f"--spark-conf is {pair!r}, but must be a setting of Spark and its value",
                hint="write it as spark.executor.memory=4g; repeat --spark-conf for each",
            )
    return dict(pair.split("=", 1) for pair in pairs)


@contextmanager
def spark_session(
    master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Give the session of a command; one that began here ends with the block.

    Args:
        master: of Spark; all cores of this machine when not given, unless there is a session, or
            `spark-submit` has a master.
        conf: settings of Spark, by name.

    Raises:
        ConfigError: Spark is not installed, or does not start.
    """
    try:
        with without_pandas_warning():
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            "Apache Spark needs pyspark, which is not installed",
            hint="install it: pip install 'seqtool[scale]'",
        ) from error
    is_new = SparkSession.getActiveSession() is None
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # there is a JVM, which has a master
    settings = dict(conf or {})
    if is_new and not is_submitted:
        settings = {**SETTINGS, **settings}
    if master is not None:
        settings["spark.master"] = master
    if "spark.master" in settings:
        settings["spark.master"] = _LOCAL.sub(rf"local[\1,{_RETRIES}]", settings["spark.master"])
        if settings["spark.master"].startswith("local"):  # workers of this machine are this Python
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Apache Spark did not start: {str(error).strip().splitlines()[0][:_SHOWN]}",
            hint="install Java 17 or 21 (JAVA_HOME names its folder); check --master and "
            "--spark-conf",
        ) from error
    try:
        yield session
    finally:
        if is_new:
            session.stop()


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Within the block, Spark does not warn of pandas 3, of which nothing is used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn what Spark raises within the block into a user's error.

    Raises:
        SeqtoolError: what a worker raised; else `OutputError` with Spark's own message.
    """
    try:
        with without_pandas_warning():
            yield
    except SeqtoolError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise user_error(str(error)) from error


def user_error(text: str) -> SeqtoolError:
    """Return the user's error that a message of Spark stands for."""
    if from_worker := _FROM_WORKER.search(text):
        content = json.loads(from_worker[1])
        kind: type[SeqtoolError] = getattr(errors, content.pop("kind"))
        return kind(content.pop("message"), **content)
    # the condition, as [PATH_NOT_FOUND] ..., and the last cause, as a full disk
    condition, causes = _CONDITION.search(text), _ERROR_LINE.findall(text)
    parts = [condition[0]] if condition else []
    if causes and (condition is None or condition[0] not in causes[-1]):
        parts.append(causes[-1])
    parts = parts or text.strip().splitlines()[:1]
    what = "; ".join(part[:_SHOWN] for part in parts)
    return OutputError(f"Spark: {what}", hint="run it again with --debug to see all of it")
