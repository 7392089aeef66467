"""Disks that are full, files that may not grow, directories that nobody may write."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from faults.conftest import SOAK, Clock
from faults.jobs import JOBS, final, lay_out
from faults.runs import Commands, leftovers
from faults.test_kills import OutcomeOf, check_next_runs, moments
from faults.test_writers import at_once

NAMES = [name for name in JOBS if SOAK or name in ("prepare", "lm", "mixture")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("do", "value"), [("errors", errno.ENOSPC), ("error", errno.EIO)])
def test_a_failing_disk_is_told_and_loses_nothing(
    name: str,
    do: str,
    value: int,
    counted_commands: Commands,
    outcome_of: OutcomeOf,
    chosen: random.Random,
    clock: Clock,
    tmp_path: Path,
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for moment in clock.tries(moments(job, outcome.events[outcome.has_old], chosen)):
        folder = tmp_path / f"full-{moment}"
        force = outcome.copy_to(folder)
        stopped = job.run(counted_commands, folder, *force, do=do, at=moment, value=value)
        assert stopped.is_clean, f"at change {moment}: {stopped}"
        if stopped.code == 0:  # what it could not write was no part of the output, or all was there
            assert final(folder) == outcome.weights, stopped
        else:
            assert stopped.code == 1, stopped
            assert final(folder) or not outcome.has_old, f"at change {moment}: {stopped}"
        left = leftovers(folder)
        if do == "errors":  # where no renaming works, none can be undone
            left = [name for name in left if not name.endswith(".old")]
        assert left in ([], [".out.old"]), f"at change {moment}: {stopped}"
        check_next_runs(counted_commands, job, folder, outcome)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_read_only_disk_is_told_by_writers_and_serves_readers(
    name: str, counted_commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    shutil.copytree(outcome.old, tmp_path / "run")
    read_only: dict[str, Any] = {"do": "errors", "at": 1, "value": errno.EROFS}
    used = counted_commands(*job.use, cwd=tmp_path / "run", **read_only)
    assert (used.code, used.events) == (0, 0), used
    for more in ([], ["--force"], ["--resume"] if job.resumes else []):
        refused = job.run(counted_commands, tmp_path / "run", *more, **read_only)
        assert refused.is_clean, refused
        assert refused.code == 1 or name == "fetch", refused
    assert final(tmp_path / "run") == outcome.old_weights
    assert leftovers(tmp_path) == []


def test_a_corpus_that_shrinks_is_told(
    commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    job, outcome = JOBS["lm"], outcome_of(JOBS["lm"])
    folder = tmp_path / "run"
    shutil.copytree(outcome.before, folder)
    words = [word.replace("--epochs=2", "--epochs=100000") for word in job.args]
    running = commands.start(*words, cwd=folder, seconds=60)
    assert running.has_told("epoch 1/")
    os.truncate(folder / "words" / "train.bin", 8)
    told = running.wait()
    assert told.code == 1, told
    assert "error: words/train.bin: has been cut while it was read\nhint: " in told.stderr
    resumed = at_once(commands, [("train-lm", "--resume", "-o", "out")], folder)
    assert "has 8 bytes instead of" in resumed[0][1]


@pytest.mark.parametrize(
    "words",
    [
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=hidden_size=20000"),
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=embedding_size=1000000"),
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
