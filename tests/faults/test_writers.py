"""Two processes that write to one place: one of them does, and neither makes a third thing."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from faults.conftest import SOAK, Clock
from faults.jobs import JOBS, final
from faults.runs import Commands, leftovers
from faults.test_kills import OutcomeOf

TRIES = 10 if SOAK else 1
NAMES = [name for name in JOBS if SOAK or name in ("prepare", "lm-raw-text")]


def at_once(
    commands: Commands, arguments: list[tuple[str, ...]], folder: Path
) -> list[tuple[int | None, str]]:
    """Run commands at the same time; return exit codes and what they told."""
    running = [commands.start(*words, cwd=folder, seconds=200) for words in arguments]
    ended = [process.wait() for process in running]
    return [(result.code, result.stderr) for result in ended]


def check(ended: list[tuple[int | None, str]]) -> None:
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
    name: str,
    options: tuple[str, ...],
    commands: Commands,
    outcome_of: OutcomeOf,
    clock: Clock,
    tmp_path: Path,
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for number in clock.tries(range(TRIES)):
        folder = tmp_path / str(number)
        shutil.copytree(outcome.old if options else outcome.before, folder, symlinks=True)
        ended = at_once(commands, [(*job.args, *options)] * 2, folder)
        check(ended)
        # what is finished meanwhile is replaced only when asked to; `fetch` is content with it
        assert options or name == "fetch" or {code for code, _ in ended} == {0, 1}
        assert final(folder) == outcome.weights
        assert leftovers(folder) == []
        shutil.rmtree(folder)


def test_two_exports_to_one_file(
    commands: Commands, outcome_of: OutcomeOf, clock: Clock, tmp_path: Path
) -> None:
    outcome = outcome_of(JOBS["ngram"])
    for number in clock.tries(range(TRIES)):
        folder = tmp_path / str(number)
        shutil.copytree(outcome.before, folder)
        shutil.copytree(outcome.old / "out", folder / "old")
        run = partial(at_once, commands, folder=folder)
        check(run([("ngram", "train", "words", "--order", "2", "-o", "new")]))
        (single,) = run([("ngram", "export", "new", "new.arpa")])
        (other,) = run([("ngram", "export", "old", "old.arpa")])
        assert single[0] == other[0] == 0
        check(run([("ngram", "export", which, "both.arpa") for which in ("new", "old")]))
        both = (folder / "both.arpa").read_bytes()
        assert both in [(folder / name).read_bytes() for name in ("new.arpa", "old.arpa")]
        assert leftovers(folder) == []
        shutil.rmtree(folder)


def test_two_that_resume_one_run(commands: Commands, outcome_of: OutcomeOf, tmp_path: Path) -> None:
    job, outcome = JOBS["lm"], outcome_of(JOBS["lm"])
    shutil.copytree(outcome.before, tmp_path / "run")
    words = list(job.args)
    words[words.index("--epochs=2")] = "--epochs=100000"
    first = commands.start(*words, cwd=tmp_path / "run")
    assert first.has_told("epoch 1/")
    ((code, told),) = at_once(commands, [("train-lm", "--resume", "-o", "out")], tmp_path / "run")
    os.kill(first.process, signal.SIGTERM)
    assert first.wait().code == 130
    assert code == 1
    assert told.splitlines() == [
        "error: out: another process is writing there",
        "hint: wait until it has ended, or choose another output",
    ]
