"""Two processes that write to one place: one of them does, and neither makes a third thing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults.conftest import SOAK, Clock
from faults.jobs import JOBS, final
from faults.runs import ROOT, leftovers
from faults.test_kills import OutcomeOf

TRIES = 10 if SOAK else 1
NAMES = [name for name in JOBS if SOAK or name in ("prepare", "lm-raw-text")]


def at_once(arguments: list[tuple[str, ...]], folder: Path) -> list[tuple[int, str]]:
    """Run commands at the same time; return exit codes and what they told."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "seqtool", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for words in arguments
    ]
    told = [process.communicate(timeout=200)[1].decode() for process in running]
    return [(process.returncode, text) for process, text in zip(running, told, strict=True)]


def check(ended: list[tuple[int, str]]) -> None:
    """Check that at least one command did its work, and that the others say why they did not."""
    assert 0 in [code for code, _ in ended], ended
    for code, text in ended:
        assert code == 0 or (code == 1 and "error:" in text and "hint:" in text), ended
        assert "Traceback" not in text, ended


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, more) for name in NAMES for more in ((), ("--force",)) if name != "fetch" or not more],
)
def test_two_of_the_same(
    name: str, options: tuple[str, ...], outcome_of: OutcomeOf, clock: Clock, tmp_path: Path
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for number in clock.tries(range(TRIES)):
        folder = tmp_path / str(number)
        shutil.copytree(outcome.old if options else outcome.before, folder, symlinks=True)
        ended = at_once([(*job.args, *options)] * 2, folder)
        check(ended)
        # what is finished meanwhile is replaced only when asked to; `fetch` is content with it
        assert options or name == "fetch" or {code for code, _ in ended} == {0, 1}
        assert final(folder) == outcome.weights
        assert leftovers(folder) == []
        shutil.rmtree(folder)


def test_two_exports_to_one_file(outcome_of: OutcomeOf, clock: Clock, tmp_path: Path) -> None:
    outcome = outcome_of(JOBS["ngram"])
    for number in clock.tries(range(TRIES)):
        folder = tmp_path / str(number)
        shutil.copytree(outcome.before, folder)
        shutil.copytree(outcome.old / "out", folder / "old")
        check(at_once([("ngram", "train", "words", "--order", "2", "-o", "new")], folder))
        (single,) = at_once([("ngram", "export", "new", "new.arpa")], folder)
        (other,) = at_once([("ngram", "export", "old", "old.arpa")], folder)
        assert single[0] == other[0] == 0
        check(
            at_once([("ngram", "export", which, "both.arpa") for which in ("new", "old")], folder)
        )
        both = (folder / "both.arpa").read_bytes()
        assert both in [(folder / name).read_bytes() for name in ("new.arpa", "old.arpa")]
        assert leftovers(folder) == []
        shutil.rmtree(folder)


def test_two_that_resume_one_run(outcome_of: OutcomeOf, tmp_path: Path) -> None:
    job, outcome = JOBS["lm"], outcome_of(JOBS["lm"])
    shutil.copytree(outcome.before, tmp_path / "run")
    words = list(job.args)
    words[words.index("--epochs=2")] = "--epochs=100000"
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *words],
        cwd=tmp_path / "run",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"epoch 1/" in line:
            break
    ((code, told),) = at_once([("train-lm", "--resume", "-o", "out")], tmp_path / "run")
    process.terminate()
    process.communicate(timeout=60)
    assert code == 1
    assert told.splitlines() == [
        f"error: out: process {process.pid} is writing there",
        "hint: wait until it has ended, or choose another output",
    ]
