"""What the tests of faults share: a loaded program, and how much of the long suite is run."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from faults.jobs import Job, Outcome, undisturbed
from faults.runs import Commands, shim

SOAK = bool(os.environ.get("SEQTOOL_SOAK"))
TRIED: Counter[str] = Counter()  # for the table of `make soak`
FEWEST = 3  # tries of a test, however long they take
T = TypeVar("T")


class Clock:
    """The time that a test of the long suite may take: an equal share of what its file may."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def tries(self, items: Iterable[T]) -> Iterator[T]:
        """Give items while there is time, `FEWEST` of them at least."""
        for number, item in enumerate(items):
            if number >= FEWEST and time.monotonic() > self._end:
                TRIED["cut"] += 1
                return
            yield item


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """A clock that starts with the test; without a limit in `make test`."""
    seconds = float(os.environ.get("SEQTOOL_SOAK_SECONDS", "inf"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return Clock(seconds * workers / len(request.session.items))


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """A process that has seqtool loaded."""
    running = Commands()
    yield running
    TRIED["tries"] += running.num_runs
    running.close()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the tests that failed, and those that ran no command."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers' reports come here too
        TRIED["failed"] += report.failed
        TRIED["tries"] += report.when == "call"


def pytest_sessionfinish() -> None:
    """Add what was counted to the record."""
    if record := os.environ.get("SEQTOOL_SOAK_RECORD"):
        with open(record, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(TRIED) + "\n")


@pytest.fixture
def counted_commands(commands: Commands) -> Commands:
    """The same, where changes of files can be counted; skips where they cannot."""
    if shim() is None:
        pytest.skip("no C compiler for the library that counts changes of files, or no Linux")
    return commands


@pytest.fixture
def chosen(request: pytest.FixtureRequest) -> random.Random:
    """A generator of random numbers that is the same for a test each time."""
    return random.Random(f"{request.node.name} {os.environ.get('SEQTOOL_SOAK_SEED', '')}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time do something."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of all workers of a session of tests."""
    folder = tmp_path_factory.getbasetemp()
    # each worker has a folder in that of the session
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def outcome_of(commands: Commands, shared_folder: Path) -> Callable[[Job], Outcome]:
    """What a job does undisturbed; each is run once, for all workers of a session of tests."""
    folder = shared_folder / "outcomes"
    folder.mkdir(exist_ok=True)
    known: dict[str, Outcome] = {}

    def find(job: Job) -> Outcome:
        if job.name not in known:
            work, file = folder / job.name, folder / f"{job.name}.json"
            with locked(folder / f"{job.name}.lock"):
                if not file.exists():
                    shutil.rmtree(work, ignore_errors=True)  # another worker has failed here
                    work.mkdir()
                    file.write_text(undisturbed(commands, job, work).to_json(), "utf-8")
            known[job.name] = Outcome.from_json(file.read_text("utf-8"))
        return known[job.name]

    return find
