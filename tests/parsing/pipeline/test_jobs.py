"""Jobs in several processes: what they return, how they stop, and what becomes of their errors."""

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
from seqtool.parsing.pipeline.jobs import Job, run_jobs


def run(jobs: list[Job], *, num_processes: int = 2, **listeners: Any) -> dict[str, Any]:
    defaults: dict[str, Callable[..., Any]] = {
        "on_begin": lambda name: None,
        "on_event": lambda event, name: None,
        "should_stop": lambda step: False,
    }
    return run_jobs(jobs, num_processes=num_processes, threads=3, **{**defaults, **listeners})


@pytest.mark.parametrize("num_processes", [1, 2])
def test_every_job_is_done_and_its_events_arrive(num_processes: int, tmp_path: Path) -> None:
    jobs = [Job(f"job {number}", toy_jobs.finish, {"number": number}) for number in range(5)]
    if num_processes == 2:  # both go on at once, and only so do they end
        for own, other in ("ab", "ba"):
            paths = {"own": tmp_path / own, "other": tmp_path / other}
            jobs.insert(0, Job(own, toy_jobs.meet, paths))
    names: list[str] = []
    events: list[tuple[str, int]] = []
    results = run(
        jobs,
        num_processes=num_processes,
        on_begin=names.append,
        on_event=lambda event, name: events.append((name, event.step)),
    )
    assert sorted(names) == sorted(job.name for job in jobs)
    assert sorted(events) == [(f"job {number}", number) for number in range(5)]
    done = [results[f"job {number}"] for number in range(5)]
    assert [result[:2] for result in done] == [(number, 3) for number in range(5)]
    pids = {pid for *_, pid in done}
    assert len(pids) <= num_processes
    assert (os.getpid() in pids) == (num_processes == 1)
    assert not any(is_running(pid) for pid in pids - {os.getpid()})


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("error", DataError, "a.conllu:3: no word"),
        ("bug", ValueError, "of the code"),
        ("killed", TrainingError, "a process that trained a part was killed"),
    ],
)
def test_an_error_stops_the_others(
    how: str, kind: type[Exception], message: str, tmp_path: Path
) -> None:
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
    assert (type(caught.value), str(caught.value)) == (kind, message)
    assert saved.is_file() == (how != "killed")
    assert "never" not in names
    assert not is_running(int(begun.read_text()))
    if how == "bug":
        assert "in fail" in str(caught.value.__cause__)  # where
    else:
        assert caught.value.hint  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["asked", "signal"])
def test_an_interruption_saves_the_state_of_all(how: str, tmp_path: Path) -> None:
    jobs = [Job(name, toy_jobs.train_until_stopped, {"saved": tmp_path / name}) for name in "abc"]
    begun: set[str] = set()

    def on_event(event: Event, name: str) -> None:
        begun.add(name)
        if len(begun) == 2 and how == "signal":
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="the run was interrupted; the state is saved"):
        run(
            jobs,
            on_event=on_event,
            should_stop=lambda step: how == "asked" and len(begun) == 2 and step == 7,
        )
    assert [(tmp_path / name).is_file() for name in "abc"] == [True, True, False]


PROGRAM = """
import sys
from pathlib import Path
import toy_jobs
from seqtool.parsing.pipeline.jobs import Job, run_jobs

print("begun", flush=True)
jobs = [Job(name, toy_jobs.train_until_stopped, {"saved": Path(name)}) for name in sys.argv[1:]]
nothing = lambda *arguments: None
listeners = dict.fromkeys(("on_begin", "on_event", "should_stop"), nothing)
run_jobs(jobs, num_processes=2, threads=1, **listeners)
"""


def test_without_their_parent_all_end(root: Path, tmp_path: Path) -> None:
    """A program with no `if __name__ == "__main__"`, which no process is to run again."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    begun = [tmp_path / "a.begun", tmp_path / "b.begun"]
    parent = subprocess.Popen(
        [sys.executable, program, tmp_path / "a", tmp_path / "b"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))},
        stdout=subprocess.PIPE,
        text=True,
    )
    toy_jobs.wait_for(lambda: all(path.is_file() and path.read_text() for path in begun))
    parent.kill()
    assert parent.communicate()[0] == "begun\n"
    toy_jobs.wait_for(lambda: not any(is_running(int(path.read_text())) for path in begun))
