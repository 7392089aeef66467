"""The session of Apache Spark: the one that is active, or a new one; what Spark says, in two lines.

In `spark-submit`, in a notebook or in another program there may be a session already, with a master
and settings of its own: it is taken as it is. Else one begins here, and ends with the command.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import unquote

from seqtool.core import errors
from seqtool.core.errors import ConfigError, DataError, OutputError, SeqtoolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
RETRIES = 4  # how often a task is tried, as on a cluster; of `local[N]`, Spark alone tries once
# of a session that begins here, where nothing else is said
SETTINGS = {
    "spark.app.name": "seqtool",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.files.openCostInBytes": str(1 << 20),
}
_LEAST_BLOCKS = "spark.sql.files.minPartitionNum"
_BLOCKS_PER_CORE = 4  # so that no core waits long for the last one
_LOG_LEVEL = "spark.log.level"
_PYTHON = "PYSPARK_PYTHON"  # the variable of the environment that says which Python workers are
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"  # of the JVM that starts, by the same; settings come after them
_LOCAL = re.compile(r"local\[([0-9]+|\*)\]")
_FROM_WORKER = re.compile(r"seqtool-error (\{.*\})")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_CONDITION = re.compile(r"^\[([A-Z_.]+)\] ")
_UNREAD = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] Encountered error while reading file (.+?)\.\s")
_CAUSE = "Caused by: "
_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_FRAME = "at "  # what a line of a Java stack begins with
_FILE_SYSTEM = "org.apache.hadoop.fs."  # by which Spark writes results; not what it shuffles
_LOCAL_FILE = "file:"


class WorkerError(Exception):
    """A user's error in a worker, written so that the driver finds it in what Spark tells."""

    def __init__(self, error: SeqtoolError) -> None:
        content = {
            "kind": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "path": error.path,
            "line": error.line,
        }
        super().__init__(f"seqtool-error {json.dumps(content)}")


class Written(NamedTuple):
    """What Spark writes, for the error of a disk that is full.

    Attributes:
        path: of the folder.
        option: of the command line that names another one.
    """

    path: str
    option: str


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """Return the settings of `--spark-conf KEY=VALUE`.

    Raises:
        ConfigError: one is no such pair.
    """
    conf = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not (sign and key.startswith("spark.")):
            raise ConfigError(
                f"--spark-conf is {pair!r}, but must be a setting of Spark and its value",
                hint="write it as spark.executor.memory=4g; repeat --spark-conf for each",
            )
        conf[key] = value
    return conf


@contextmanager
def spark_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    compiles_once: bool = False,
) -> Iterator[SparkSession]:
    """Give the session of a command; one that began here ends with the block.

    Args:
        master: of Spark; all cores of this machine when not given, unless there is a session, or
            `spark-submit` has a master.
        conf: settings of Spark, by name.
        compiles_once: the JVM has little work: it is soon done, or the workers' Python has nearly
            all of it. On this machine the JVM then compiles its code once, which is done sooner,
            and not again for speed.

    Raises:
        ConfigError: Spark or Java is not installed, Spark does not start, or a session is active
            and another master is asked for.
    """
    conf = dict(conf or {})
    pyspark = _pyspark()
    active = pyspark.SparkSession.getActiveSession()
    if active is not None:
        yield _settled(active, master, conf)
        return
    with _without_tracebacks():
        session = _begin(pyspark, master, conf, compiles_once=compiles_once)
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Within the block, what speaks with the JVM logs nothing: all that it logs, it raises too."""

    def is_other(record: logging.LogRecord) -> bool:
        return record.module not in ("java_gateway", "clientserver")

    root = logging.getLogger()
    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)


def _pyspark() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyspark.sql
    except ImportError as error:
        raise ConfigError(
            "Apache Spark needs pyspark, which is not installed",
            hint="install it: pip install 'seqtool[scale]'",
        ) from error
    return pyspark.sql


def _settled(session: SparkSession, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Return a session that is active already, with the settings that it can still take."""
    if master is not None and _retrying(master) != (current := session.sparkContext.master):
        raise ConfigError(
            f"--master is {master}, but a session of Spark runs already, on {current}",
            hint="leave --master out",
        )
    for key, value in conf.items():
        if not session.conf.isModifiable(key) and session.conf.get(key, None) != value:
            raise ConfigError(
                f"{key} cannot change while a session of Spark runs",
                hint="set it where the session begins, as with spark-submit --conf",
            )
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _begin(
    pyspark: Any, master: str | None, conf: Mapping[str, str], *, compiles_once: bool
) -> SparkSession:
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # there is a JVM, which has a master
    if not is_submitted:
        _check_java()
    settings = dict(conf) if is_submitted else {**SETTINGS, **conf}
    if master is None and not is_submitted:
        master = settings.get("spark.master", DEFAULT_MASTER)
    if master is not None:
        settings["spark.master"] = _retrying(master)
    builder = pyspark.SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    is_quiet = not is_submitted and _LOG_LEVEL not in conf
    is_here = master is not None and _LOCAL.fullmatch(master)
    compiling = _compiling_once() if compiles_once and is_here else nullcontext()
    with tempfile.TemporaryFile() as log:
        try:
            quiet = _stderr_to(log.fileno()) if is_quiet else nullcontext()
            with quiet, _own_python(master), compiling, _own_interrupts():
                session: SparkSession = builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            lines = [*log.read().decode(errors="replace").splitlines(), *str(error).splitlines()]
            errors_of = [line for line in lines if "rror" in line or "xception" in line]
            raise ConfigError(
                f"Apache Spark did not start: {(errors_of or lines)[0].strip()}",
                hint="check --master and --spark-conf; --spark-conf spark.log.level=INFO tells all",
            ) from error
    if not is_submitted and _LEAST_BLOCKS not in conf:
        cores = session.sparkContext.defaultParallelism
        session.conf.set(_LEAST_BLOCKS, str(_BLOCKS_PER_CORE * cores))
    return session


def _retrying(master: str) -> str:
    """Return a master whose tasks are tried again when a worker dies, as those of a cluster are."""
    local = _LOCAL.fullmatch(master)
    return f"local[{local[1]},{RETRIES}]" if local else master


def _check_java() -> None:
    """Refuse to begin without Java.

    Raises:
        ConfigError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise ConfigError(
            f"Apache Spark needs Java, and there is none in JAVA_HOME, which is {home}",
            hint="set JAVA_HOME to the folder of Java 17 or 21, or unset it",
        )
    if not home and shutil.which("java") is None:
        raise ConfigError(
            "Apache Spark needs Java, which is not installed",
            hint="install Java 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless), or "
            "set JAVA_HOME",
        )


@contextmanager
def _own_python(master: str | None) -> Iterator[None]:
    """Let workers of this machine, of a session that begins within the block, be this Python."""
    if master is None or not master.startswith("local") or _PYTHON in os.environ:
        yield
        return
    os.environ[_PYTHON] = sys.executable
    try:
        yield
    finally:
        del os.environ[_PYTHON]


@contextmanager
def _compiling_once() -> Iterator[None]:
    """Let a JVM that starts within the block compile its code once.

    A setting of Spark would take the place of that in the user's `spark-defaults.conf`.
    """
    before = os.environ.get(_JVM_OPTIONS)
    os.environ[_JVM_OPTIONS] = f"{before or ''} -XX:TieredStopAtLevel=1".lstrip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = before


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Let Ctrl-C be answered as before the block: Spark answers it in its own way, for good."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _stderr_to(handle: int) -> Iterator[None]:
    """Let processes that are started within the block write there what they have for stderr.

    The JVM prints lines at its start that no setting keeps back.
    """
    own = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Within the block, Spark does not warn of pandas 3, of which nothing is used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def user_errors(written: Written | None = None, *, can_skip: bool = True) -> Iterator[None]:
    """Turn what Spark raises within the block into a user's error.

    Args:
        written: in the block.
        can_skip: whether the command has `--skip-invalid`, which leaves out files of .gz.

    Raises:
        SeqtoolError: what a worker raised, or the first line of what Spark tells.
    """
    try:
        with without_pandas_warning():
            yield
    except SeqtoolError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise_user_error(error, written, can_skip=can_skip)


def shown(file: str) -> str:
    """Return the name of a file as people type it: of this machine's files, the path."""
    if not file.startswith(_LOCAL_FILE):
        return file
    path = unquote(file.removeprefix(_LOCAL_FILE))
    return f"/{path.lstrip('/')}"


def raise_user_error(
    error: Exception, written: Written | None = None, *, can_skip: bool = True
) -> NoReturn:
    """Raise the user's error that an exception of Spark stands for; see `user_errors`."""
    text = str(error)
    if found := _FROM_WORKER.search(text):
        content = json.loads(found[1])
        kind: type[SeqtoolError] = getattr(errors, content.pop("kind"))
        raise kind(content.pop("message"), **content) from error
    if missing := _MISSING.search(text):
        raise ConfigError(
            f"the Python of Spark's workers has no {missing[1]}",
            hint="install seqtool there, or send an environment: seqtool help past-one-machine",
        ) from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    condition = _CONDITION.match(text)
    name = condition[1] if condition else ""
    if name == "PATH_NOT_FOUND":
        path = re.search(r"does not exist: (\S+?)\.? ", text)
        raise DataError(
            "no such file or directory",
            hint="check the path; each worker must be able to read it",
            path=path[1] if path else None,
        ) from error
    if name == "PATH_ALREADY_EXISTS":
        raise OutputError("the output exists already", hint="choose another with -o") from error
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    if full := _FULL.search(text):
        raise _full_disk(full, written) from error
    if unread := _UNREAD.search(text):
        reason = causes[-1].rpartition(": ")[2] if causes else "it cannot be read"
        file = shown(unread[1])
        hint = "fetch or write it again"
        if file.lower().endswith(".gz"):  # the option leaves out no others
            skip = ", or leave such files out with --skip-invalid" if can_skip else ""
            hint = f"fetch or pack it again{skip}"
        raise DataError(
            f"the file is damaged: {reason[:1].lower()}{reason[1:300]}", hint=hint, path=file
        ) from error
    what = (causes[-1] if causes else (lines or ["it ended"])[0])[:300]
    raise OutputError(
        f"Spark gave up: {what}",
        hint="run it again with --debug to see all that Spark tells",
    ) from error


def _full_disk(full: re.Match[str], written: Written | None) -> OutputError:
    """Return the error of a full disk: by the stack, of what is written, or of Spark's own files.

    Args:
        full: where Spark tells the reason.
        written: see `user_errors`.
    """
    reason = full[0].lower()
    stack = [line.strip() for line in full.string[full.end() :].splitlines()[1:]]
    frames = [*takewhile(lambda line: line.startswith(_FRAME), stack)]
    if written is not None and any(_FILE_SYSTEM in frame for frame in frames):
        return OutputError(
            f"Spark cannot write a file: {reason}",
            hint=f"free some space, or name another folder with {written.option}",
            path=written.path,
        )
    return OutputError(
        f"Spark cannot write a temporary file: {reason}",
        hint="free some space, or name another folder with --spark-conf spark.local.dir=DIR",
        path=_local_folders(),
    )


def _local_folders() -> str | None:
    """Return where Spark writes what it shuffles and sorts; None where other machines know."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None or not str(session.sparkContext.master).startswith("local"):
        return None
    context = session.sparkContext
    default = context._jvm.java.lang.System.getProperty("java.io.tmpdir")
    named = os.environ.get("SPARK_LOCAL_DIRS") or context.getConf().get("spark.local.dir", default)
    return None if named is None else str(named)
