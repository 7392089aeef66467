"""A process may die at any change of a file: the old or the new output is there, or can be had."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.conftest import SOAK, Clock
from faults.jobs import JOBS, Job, Outcome, final
from faults.runs import Commands, Result, leftovers

# tries of a job in `make test`; `make soak` tries as many as it has time for
SAMPLED = dict.fromkeys(("lm-raw-text", "segmenter", "tagger", "parser", "pipeline"), 1)
SAMPLE = 2


OutcomeOf = Callable[[Job], Outcome]


def moments(job: Job, events: int, chosen: random.Random) -> list[int]:
    """Return the changes at which the process dies, in random order."""
    num = events if SOAK else min(events, SAMPLED.get(job.name, SAMPLE))
    return chosen.sample(range(1, events + 1), num)


def was_reached(killed: Result, moment: int) -> bool:
    """Return whether it was killed; the run that was counted may have filled a cache, too."""
    if killed.signal == 9:
        return True
    assert killed.code == 0, killed
    assert moment - 5 < killed.events < moment, killed
    return False


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


@pytest.mark.parametrize("name", JOBS)
def test_a_killed_command_leaves_what_can_be_made_whole(
    name: str,
    counted_commands: Commands,
    outcome_of: OutcomeOf,
    chosen: random.Random,
    clock: Clock,
    tmp_path: Path,
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for moment in clock.tries(moments(job, outcome.events[0], chosen)):
        folder = tmp_path / f"kill-{moment}"
        shutil.copytree(outcome.before, folder, symlinks=True)
        killed = job.run(counted_commands, folder, do="kill", at=moment)
        if not was_reached(killed, moment):
            shutil.rmtree(folder)
            continue
        assert final(folder) in ({}, outcome.weights) or job.resumes, killed
        check_next_runs(counted_commands, job, folder, outcome)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", [name for name in JOBS if name != "fetch"])
def test_a_killed_command_over_a_finished_output_loses_nothing(
    name: str,
    counted_commands: Commands,
    outcome_of: OutcomeOf,
    chosen: random.Random,
    clock: Clock,
    tmp_path: Path,
) -> None:
    job, outcome = JOBS[name], outcome_of(JOBS[name])
    for moment in clock.tries(moments(job, outcome.events[1], chosen)):
        folder = tmp_path / f"kill-{moment}"
        shutil.copytree(outcome.old, folder, symlinks=True)
        killed = job.run(counted_commands, folder, "--force", do="kill", at=moment)
        if not was_reached(killed, moment):
            shutil.rmtree(folder)
            continue
        found = final(folder)
        assert found, f"neither the old nor the new is there\n{killed}"
        if not job.resumes:
            assert found in (outcome.old_weights, outcome.weights)
        used = job.works(counted_commands, folder)
        assert used.code == 0, used
        check_next_runs(counted_commands, job, folder, outcome)
        shutil.rmtree(folder)
