"""Disks that are full, files that may not grow, directories that nobody may write."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest
from faults.conftest import SOAK
from faults.jobs import JOBS, final, lay_out
from faults.runs import Commands, leftovers
from faults.test_kills import OutcomeOf, check_next_runs, moments

NAMES = [name for name in JOBS if SOAK or name not in ("pipeline", "tagger", "segmenter")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("do", "value"), [("errors", errno.ENOSPC), ("error", errno.EIO)])
def test_a_failing_disk_is_told_and_loses_nothing(
    name: str,
    do: str,
    value: int,
    counted_commands: Commands,
    outcome_of: OutcomeOf,
    chosen: random.Random,
    tmp_path: Path,
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for moment in moments(job, outcome.events[1] or outcome.events[0], chosen):
        folder = tmp_path / f"full-{moment}"
        shutil.copytree(outcome.old if outcome.events[1] else outcome.before, folder)
        force = ["--force"] if outcome.events[1] else []
        stopped = job.run(counted_commands, folder, *force, do=do, at=moment, value=value)
        assert stopped.is_clean, f"at change {moment}: {stopped}"
        if stopped.code == 0:  # what it could not write was no part of the output
            assert do == "error", stopped
            assert final(folder) == outcome.weights, stopped
        else:
            assert stopped.code == 1, stopped
            assert final(folder) or not outcome.events[1], f"at change {moment}: {stopped}"
        assert leftovers(folder) in ([], ["out/.kept.old"]), f"at change {moment}: {stopped}"
        check_next_runs(counted_commands, job, folder, outcome)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_on_the_size_of_files_is_told(
    name: str, commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for size in (1000, 5000):
        folder = tmp_path / str(size)
        shutil.copytree(outcome.old if outcome.events[1] else outcome.before, folder)
        force = ["--force"] if outcome.events[1] else []
        stopped = job.run(commands, folder, *force, file_size=size)
        assert stopped.is_clean, stopped
        assert final(folder) or not outcome.events[1], stopped
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_too_little_memory_is_told(
    name: str, commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for size in (1 << 20, 1 << 25, (1 << 30) + (1 << 23)):  # no room at all, and a little of it
        folder = tmp_path / str(size)
        shutil.copytree(outcome.old if outcome.events[1] else outcome.before, folder)
        force = ["--force"] if outcome.events[1] else []
        stopped = job.run(commands, folder, *force, memory=size)
        assert stopped.is_clean, stopped
        assert final(folder) or not outcome.events[1], stopped
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=hidden_size=20000"),
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=embedding_size=9000000"),
        ("train-tagger", "t.conllu", "--set=model.encoder_size=20000"),
    ],
    ids=lambda words: words[-1],
)
def test_a_model_that_is_too_large_is_told(
    words: tuple[str, ...], commands: Commands, tmp_path: Path
) -> None:
    lay_out(tmp_path / "work")
    stopped = commands(*words, "-o", "out", cwd=tmp_path / "work", memory=3 << 29)
    assert stopped.code == 1, stopped
    assert "error: out of memory\n" in stopped.stderr, stopped
    assert stopped.is_clean, stopped
    assert not leftovers(tmp_path / "work"), stopped
