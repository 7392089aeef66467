"""Jobs side by side: what they return, how they stop, and what becomes of their errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy_jobs
from process_groups import is_running

from seqtool.core.errors import DataError, Interrupted, SeqtoolError, TrainingError
from seqtool.core.progress import Event
from seqtool.parsing.pipeline.jobs import Job, Team


def run(*waves: list[Job], num_processes: int = 2, **listeners: Any) -> dict[str, Any]:
    defaults: dict[str, Callable[..., Any]] = {
        "on_begin": lambda name: None,
        "on_event": lambda event, name: None,
        "should_stop": lambda step: False,
    }
    with Team(**{**defaults, **listeners}) as team:
        results: dict[str, Any] = {}
        for jobs in waves:
            results |= team.run(jobs, num_processes=num_processes, threads=3)
        return results


@pytest.mark.parametrize("num_processes", [1, 2])
def test_every_job_is_done_and_told_of(num_processes: int, tmp_path: Path) -> None:
    jobs = [Job(f"job {number}", toy_jobs.finish, {"number": number}) for number in range(5)]
    begun: list[str] = []
    events: list[tuple[str, int]] = []

    def on_event(event: Event, name: str) -> None:
        events.append((name, event.step))

    if num_processes == 2:  # both go on at once, and only so do they end
        names = (tmp_path / "a", tmp_path / "b")
        for own, other in (names, names[::-1]):
            jobs.insert(0, Job(own.name, toy_jobs.meet, {"own": own, "other": other}))
    results = run(
        jobs[:5], jobs[5:], num_processes=num_processes, on_begin=begun.append, on_event=on_event
    )
    assert begun == [job.name for job in jobs]
    assert sorted(events) == [(f"job {number}", number) for number in range(5)]
    found = [results[f"job {number}"] for number in range(5)]
    assert [result[:2] for result in found] == [(number, 3) for number in range(5)]
    pids = {pid for *_, pid in found}
    assert len(pids) <= num_processes
    assert (os.getpid() in pids) == (num_processes == 1)
    assert not any(is_running(pid) for pid in pids - {os.getpid()})


@pytest.mark.parametrize("how", ["error", "bug", "killed"])
def test_an_error_stops_the_others_with_their_state_saved(how: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    begun = saved.with_suffix(".begun")
    jobs = [
        Job("long", toy_jobs.train_until_stopped, {"saved": saved}),
        Job("bad", toy_jobs.fail, {"begun": begun, "how": how}),
        Job("never", toy_jobs.finish, {"number": 1}),
    ]
    names: list[str] = []
    with pytest.raises((SeqtoolError, ValueError)) as caught:
        run(jobs, on_begin=names.append)
    assert saved.is_file()
    assert names == ["long", "bad"]
    assert not is_running(int(begun.read_text()))
    error = caught.value
    if how == "error":
        assert isinstance(error, DataError)
        assert (str(error), error.hint) == ("a.conllu:3: no word", "write one")
    elif how == "bug":
        assert str(error) == "of the code"
        assert "in fail" in error.__notes__[0]  # where
    else:
        assert isinstance(error, TrainingError)
        assert str(error) == "the process that trained bad was killed by signal 9"
        assert "fewer --threads" in error.hint


@pytest.mark.parametrize("how", ["asked", "signal"])
def test_an_interruption_saves_the_state_of_all(how: str, tmp_path: Path) -> None:
    jobs = [Job(name, toy_jobs.train_until_stopped, {"saved": tmp_path / name}) for name in "abc"]
    begun: set[str] = set()

    def on_event(event: Event, name: str) -> None:
        begun.add(name)
        if len(begun) == 2 and how == "signal":
            signal.raise_signal(signal.SIGTERM)

    def should_stop(step: int) -> bool:
        assert step in (0, 7)
        return how == "asked" and len(begun) == 2

    with pytest.raises(Interrupted, match="the run was interrupted; the state is saved"):
        run(jobs, on_event=on_event, should_stop=should_stop)
    assert [(tmp_path / name).is_file() for name in "abc"] == [True, True, False]


PROGRAM = """
import sys
from pathlib import Path
import toy_jobs
from process_groups import is_running
from seqtool.parsing.pipeline.jobs import Job, Team

print("begun", flush=True)
jobs = [Job(name, toy_jobs.train_until_stopped, {"saved": Path(name)}) for name in sys.argv[1:]]
nothing = lambda *arguments: None
with Team(nothing, nothing, nothing) as team:
    team.run(jobs, num_processes=2)
"""


def test_without_their_parent_all_save_and_end(tmp_path: Path) -> None:
    """A program with no `if __name__ == "__main__"`, which no process is to run again."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    paths = [tmp_path / "a", tmp_path / "b"]
    places = os.pathsep.join([*map(str, (Path(__file__).parents[2], Path(__file__).parents[3]))])
    parent = subprocess.Popen(
        [sys.executable, program, *paths],
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.PIPE,
        text=True,
    )
    begun = [path.with_suffix(".begun") for path in paths]
    toy_jobs.wait_for(lambda: all(path.is_file() and path.read_text() for path in begun))
    parent.kill()
    output, _ = parent.communicate()
    assert output == "begun\n"
    toy_jobs.wait_for(lambda: all(path.is_file() for path in paths))
    toy_jobs.wait_for(lambda: not any(is_running(int(path.read_text())) for path in begun))
