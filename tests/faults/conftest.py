"""What the tests of faults share: a loaded program, and what jobs do undisturbed."""

from __future__ import annotations

import fcntl
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.jobs import Job, Outcome, undisturbed
from faults.runs import Commands, shim


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """A process that has seqtool loaded."""
    running = Commands()
    yield running
    running.close()


@pytest.fixture
def counted_commands(commands: Commands) -> Commands:
    """The same, where changes of files can be counted; skips where they cannot."""
    if shim() is None:
        pytest.skip("no C compiler for the library that counts changes of files, or no Linux")
    return commands


@pytest.fixture
def chosen(request: pytest.FixtureRequest) -> random.Random:
    """A generator of random numbers that is the same for a test each time."""
    return random.Random(request.node.name)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time do something."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory of all workers of a session of tests."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session")
def outcome_of(commands: Commands, shared_folder: Path) -> Callable[[Job], Outcome]:
    """What a job does undisturbed; each is run once, for all workers of a session of tests."""
    folder = shared_folder / "outcomes"
    folder.mkdir(exist_ok=True)

    def find(job: Job) -> Outcome:
        work, file = folder / job.name, folder / f"{job.name}.json"
        with locked(folder / f"{job.name}.lock"):
            if not file.exists():
                shutil.rmtree(work, ignore_errors=True)  # another worker has failed here
                work.mkdir()
                file.write_text(undisturbed(commands, job, work).to_json(), "utf-8")
        return Outcome.from_json(file.read_text("utf-8"))

    return find
