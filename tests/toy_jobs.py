"""Jobs that a new process can import at once, without torch; each notes in a file what it did."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from seqtool.core.errors import DataError, Interrupted
from seqtool.core.progress import Event, RunFinished

SECONDS = 60  # after which a job that waits in vain fails


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait, as one job does for another, or for its parent."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def finish(
    number: int,
    *,
    threads: int,
    on_event: Callable[[Event], None],
    should_stop: Callable[[int], bool],
) -> tuple[int, int, int]:
    """Tell of one step, and return the number, the threads and the process."""
    on_event(RunFinished("finished", 1, number, 1, {}, 0.0))
    return number, threads, os.getpid()


def meet(
    own: Path,
    other: Path,
    *,
    threads: int,
    on_event: Callable[[Event], None],
    should_stop: Callable[[int], bool],
) -> None:
    """Return once both files are there: alone, neither of two such jobs ever does."""
    own.touch()
    wait_for(other.exists)


def train_until_stopped(
    saved: Path,
    *,
    threads: int,
    on_event: Callable[[Event], None],
    should_stop: Callable[[int], bool],
) -> None:
    """Save the state once it is said that one has to stop, as `train` does."""
    saved.with_suffix(".begun").write_text(str(os.getpid()))
    on_event(RunFinished("begun", 1, 7, 1, {}, 0.0))
    wait_for(lambda: should_stop(0))
    saved.touch()
    raise Interrupted("at step 0", hint="of the part")


def fail(
    begun: Path,
    how: str,
    *,
    threads: int,
    on_event: Callable[[Event], None],
    should_stop: Callable[[int], bool],
) -> None:
    """Fail once another job has begun: by a user's error, by a bug, or by the system."""
    wait_for(begun.exists)
    if how == "error":
        raise DataError("no word", hint="write one", path="a.conllu", line=3)
    if how == "bug":
        raise ValueError("of the code")
    os.kill(os.getpid(), signal.SIGKILL)
