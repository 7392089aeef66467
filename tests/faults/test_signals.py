"""Ctrl-C, SIGTERM and SIGHUP at any moment, once and twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from itertools import islice, product
from pathlib import Path

import pytest
from faults.conftest import SOAK, Clock
from faults.jobs import JOBS, final, lay_out
from faults.runs import ROOT, Commands, leftovers
from faults.test_kills import OutcomeOf, check_next_runs, moments

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAMES = [name for name in JOBS if SOAK or name in ("ngram", "lm")]


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_during_any_change_leaves_nothing_half_done(
    name: str,
    counted_commands: Commands,
    outcome_of: OutcomeOf,
    chosen: random.Random,
    clock: Clock,
    tmp_path: Path,
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    # every signal at a moment before the next moment
    tries = product(moments(job, outcome.events[outcome.has_old], chosen), SIGNALS)
    for moment, number in clock.tries(tries if SOAK else islice(tries, len(SIGNALS))):
        folder = tmp_path / f"{number}-{moment}"
        force = outcome.copy_to(folder)
        told = job.run(counted_commands, folder, *force, do="signal", at=moment, value=number)
        assert told.signal is None, f"{number} at change {moment}: {told}"
        assert "Traceback" not in told.stderr, told
        # a run that was in its last step is done
        assert told.code in (0, 130, 128 + number), f"at change {moment}: {told}"
        assert told.code == 0 or told.is_clean or told.code == 128 + number, told
        assert (told.code == 0) != ("interrupted: " in told.stderr), told
        assert final(folder) or not outcome.has_old, told
        assert leftovers(folder) in ([], [".out.old"]), f"at change {moment}: {told}"
        check_next_runs(counted_commands, job, folder, outcome)
        shutil.rmtree(folder)


TRAINING = ("train-lm", "t.txt", "--batch-size=4", "--bptt=8")


def _interrupted(
    arguments: list[str],
    folder: Path,
    numbers: list[int],
    after: float,
    *,
    ignored: Collection[int] = (),
) -> tuple[int, str]:
    """Send signals to a command, whatever the tests themselves were started with."""
    before = {
        number: signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        for number in SIGNALS
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "seqtool", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    try:
        time.sleep(after)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.05)
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return process.returncode, told.decode("utf-8", "replace")


# Python itself cannot be asked before it has started: the first moments are its own. Both suites
# take from one list, so that what the long one runs is collected in each
@pytest.mark.parametrize(
    ("number", "times", "after"),
    list(product(SIGNALS, (1, 2), (0.15, 0.3, 0.6, 1.2, 2.5)))[:: 1 if SOAK else 7],
)
def test_a_process_ends_without_a_traceback(
    number: int, times: int, after: float, tmp_path: Path
) -> None:
    lay_out(tmp_path)
    code, told = _interrupted(
        [*TRAINING, "--epochs=100000", "-o", "out"],
        tmp_path,
        [number] * times,
        after,
    )
    assert "Traceback" not in told, told
    assert code in (130, 128 + number, -number), told
    assert (tmp_path / "out" / "run.json").is_file() or not (tmp_path / "out").exists()
    assert leftovers(tmp_path) == []


def test_what_is_ignored_when_a_process_starts_stays_ignored(tmp_path: Path) -> None:
    """From its first moment on, while all is imported, to its end."""
    lay_out(tmp_path)
    code, told = _interrupted(
        [*TRAINING, "--epochs=3", "-o", "out"],
        tmp_path,
        [*SIGNALS] * 14,
        0.1,
        ignored=SIGNALS,  # as nohup and the & of a shell do
    )
    assert code == 0, told


@pytest.mark.parametrize("number", SIGNALS)
def test_one_that_is_ignored_stays_ignored_and_others_do_not(
    number: int, commands: Commands, tmp_path: Path
) -> None:
    lay_out(tmp_path)
    running = commands.start(
        *TRAINING, "--epochs=100000", "-o", "out", cwd=tmp_path, ignored=[number]
    )
    for line in ("training for", "epoch 1/", "epoch 2/"):
        assert running.has_told(line)
        for _ in range(10):
            os.kill(running.process, number)
            time.sleep(0.005)
    assert running.has_told("epoch 3/")
    os.kill(running.process, next(other for other in SIGNALS if other != number))
    told = running.wait()
    assert told.code == 130, told
    assert told.is_clean, told


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_ends_a_command_is_told(
    number: int, counted_commands: Commands, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    shutil.copytree(outcome_of(JOBS["prepare"]).before, tmp_path / "x")
    how = {"do": "signal", "at": 6, "value": number}
    told = JOBS["prepare"].run(counted_commands, tmp_path / "x", **how)
    name = {signal.SIGINT: "Ctrl-C"}.get(number, signal.Signals(number).name)
    assert (told.code, told.stdout) == (128 + number, "")
    assert told.stderr.splitlines()[-2:] == [
        f"interrupted: stopped by {name}",
        "hint: run the command again; a training that saved its state goes on with --resume",
    ]
    assert leftovers(tmp_path / "x") == []
    assert not (tmp_path / "x" / "out").exists()
