"""A command that is killed, interrupted, or fails to write: nothing is lost or half done."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults.jobs import JOBS, Job, Outcome, final, lay_out
from faults.runs import ROOT, Commands, leftovers

OutcomeOf = Callable[[Job], Outcome]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLOW = ("lm-raw-text", "parser", "pipeline")  # tried once, others twice
FAULTS: dict[str, dict[str, Any]] = {
    "kill": {"do": "kill"},
    "full disk": {"do": "errors", "value": errno.ENOSPC},
    "bad disk": {"do": "error", "value": errno.EIO},
    **{number.name: {"do": "signal", "value": number} for number in SIGNALS},
}
CASES = [
    *((name, "kill", is_over) for name in JOBS for is_over in (False, True)),
    *((name, f"{x} disk", True) for name in ("prepare", "lm", "mixture") for x in ("full", "bad")),
    *((name, number.name, True) for name in ("ngram", "lm") for number in SIGNALS),
]


def check_next_runs(commands: Commands, job: Job, folder: Path, outcome: Outcome) -> None:
    """Check that nothing is lost, and that the next commands end as if nothing had happened."""
    there = final(folder)
    again = job.run(commands, folder)
    assert again.is_clean, again
    if again.code == 0:
        assert there in ({}, outcome.weights), f"a plain run replaced what was there\n{again}"
    else:
        assert "exists" in again.stderr, again
        assert final(folder) == there, f"a refused run changed what was there\n{again}"
        resumed = job.run(commands, folder, "--resume") if job.resumes else None
        if resumed is None or resumed.code != 0 or final(folder) == outcome.old_weights:
            if resumed is not None:
                assert "--resume" not in again.stderr or "no run to resume" not in resumed.stderr, (
                    f"what the hint advises is refused\n{again}\n{resumed}"
                )
                assert resumed.is_clean, resumed
            forced = job.run(commands, folder, "--force")
            assert forced.code == 0, forced
    assert final(folder) == outcome.weights
    assert leftovers(folder) == []


@pytest.mark.parametrize(("name", "fault", "is_over"), CASES)
def test_a_disturbed_command_leaves_what_can_be_made_whole(
    name: str,
    fault: str,
    is_over: bool,
    counted_commands: Commands,
    outcome_of: OutcomeOf,
    chosen: random.Random,
    tmp_path: Path,
) -> None:
    """At any change of a file, without an output and over a finished one."""
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    if is_over and not outcome.has_old and fault == "kill":
        pytest.skip("the command has no --force")
    is_over = is_over and outcome.has_old
    events, number = outcome.events[is_over], FAULTS[fault].get("value", 0)
    num_tries = 1 if name in SLOW or fault.startswith("SIG") else 2
    for moment in chosen.sample(range(1, events + 1), min(events, num_tries)):
        folder = tmp_path / str(moment)
        shutil.copytree(outcome.old if is_over else outcome.before, folder, symlinks=True)
        force = ("--force",) if is_over else ()
        stopped = job.run(counted_commands, folder, *force, at=moment, **FAULTS[fault])
        there, told = final(folder), f"at change {moment}: {stopped}"
        assert there or not is_over, told
        if fault == "kill":
            # the run that was counted may have filled a cache, too: then this one ends before
            assert stopped.signal == 9 or (stopped.code == 0 and stopped.events < moment), told
            assert job.resumes or there in ({}, outcome.old_weights, outcome.weights), told
            assert not is_over or job.works(counted_commands, folder).code == 0, told
        else:
            codes = (0, 130, 128 + number) if fault.startswith("SIG") else (0, 1)
            assert stopped.signal is None, told
            assert stopped.code in codes, told
            assert stopped.is_clean or stopped.code == 128 + number, told
            assert "Traceback" not in stopped.stderr, told
            # what could not be written was no part of the output, or all was there
            assert stopped.code != 0 or there == outcome.weights, told
            left = leftovers(folder)
            if fault == "full disk":  # where no renaming works, none can be undone
                left = [name for name in left if not name.endswith(".old")]
            assert left in ([], [".out.old"]), told
        check_next_runs(counted_commands, job, folder, outcome)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["prepare", "lm", "mixture"])
def test_a_read_only_disk_is_reported_by_writers_and_serves_readers(
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
        assert refused.code == 1, refused
    assert final(tmp_path / "run") == outcome.old_weights
    assert leftovers(tmp_path) == []


TRAINING = ("train-lm", "t.txt", "--batch-size=4", "--bptt=8")


# Python itself cannot be asked before it has started: the first moments are its own
@pytest.mark.parametrize(
    ("number", "times", "after"),
    [(2, 1, 0.15), (2, 2, 0.6), (15, 1, 0.3), (15, 2, 1.2), (1, 1, 0.6)],
)
def test_a_process_ends_without_a_traceback(
    number: int, times: int, after: float, tmp_path: Path
) -> None:
    lay_out(tmp_path)
    code, told = _signalled(
        (*TRAINING, "--epochs=100000", "-o", "out"), tmp_path, [number] * times, after
    )
    assert "Traceback" not in told, told
    assert code in (130, 128 + number, -number), told
    assert (tmp_path / "out" / "run.json").is_file() or not (tmp_path / "out").exists()
    assert leftovers(tmp_path) == []


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    """As nohup and the & of a shell have them, from the first moment to the end."""
    lay_out(tmp_path)
    words = (*TRAINING, "--epochs=3", "-o", "out")
    code, told = _signalled(words, tmp_path, [*SIGNALS] * 14, 0.1, is_ignored=True)
    assert code == 0, told


def _signalled(
    words: tuple[str, ...],
    folder: Path,
    numbers: list[int],
    after: float,
    *,
    is_ignored: bool = False,
) -> tuple[int, str]:
    """Send signals to a command, whatever the tests themselves were started with."""

    def prepare() -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=prepare,
    )
    try:
        time.sleep(after)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.05)
        told = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    return process.returncode, told.decode("utf-8", "replace")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_ends_a_command_is_named(
    number: int, counted_commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    shutil.copytree(outcome_of(JOBS["prepare"]).before, tmp_path / "x")
    how = {"do": "signal", "at": 6, "value": number}
    told = JOBS["prepare"].run(counted_commands, tmp_path / "x", **how)
    name = {signal.SIGINT: "Ctrl-C"}.get(number, signal.Signals(number).name)
    assert (told.code, told.stdout) == (128 + number, "")
    assert told.stderr.splitlines()[-2] == f"interrupted: stopped by {name}"
    assert told.stderr.splitlines()[-1].startswith("hint: ")
    assert leftovers(tmp_path / "x") == []
    assert not (tmp_path / "x" / "out").exists()


def test_one_of_two_writers_of_one_output_writes(
    commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    for name, options in (("prepare", ()), ("lm-raw-text", ()), ("lm-raw-text", ("--force",))):
        job, outcome = JOBS[name], outcome_of(JOBS[name])
        folder = tmp_path / f"{name}{options}"
        shutil.copytree(outcome.old if options else outcome.before, folder, symlinks=True)
        words = (*job.args, *options)
        running = [commands.start(*words, cwd=folder, seconds=200) for _ in range(2)]
        ended = [process.wait() for process in running]
        assert all(result.is_clean for result in ended), ended
        codes = {result.code for result in ended}
        # what is finished meanwhile is not replaced unasked
        assert codes == {0, 1} or (options and codes == {0}), ended
        assert final(folder) == outcome.weights
        assert leftovers(folder) == []


def test_a_run_that_goes_on_is_not_resumed(
    commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    job, outcome = JOBS["lm"], outcome_of(JOBS["lm"])
    shutil.copytree(outcome.before, tmp_path / "run")
    words = [word.replace("--epochs=2", "--epochs=100000") for word in job.args]
    first = commands.start(*words, cwd=tmp_path / "run")
    assert first.has_told("epoch 1/")
    second = commands("train-lm", "--resume", "-o", "out", cwd=tmp_path / "run")
    assert second.code == 1
    assert "error: out: another process is writing there\nhint: " in second.stderr
    os.kill(first.process, signal.SIGTERM)
    assert first.wait().code in (130, 128 + signal.SIGTERM)
