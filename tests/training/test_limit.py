"""Limits of time, by a clock that only a task moves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from process_groups import together
from torch import Tensor
from toy_tasks import NUM_STEPS, ToyTask

from seqtool.core.progress import Event, RunFinished, StepDone
from seqtool.training import loop
from seqtool.training.config import SCHEDULES, Stage, TrainingConfig
from seqtool.training.hardware import joined
from seqtool.training.loop import train


@dataclass
class Clock:
    """Seconds, which only pass where a task says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)
    return clock


class TimedTask(ToyTask):
    """A task whose steps and validations take time by the clock."""

    def __init__(
        self,
        clock: Clock,
        *,
        step: float = 1.0,
        validation: float = 0.0,
        steps_per_epoch: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.clock, self.step_time, self.validation_time = clock, step, validation
        self.steps_per_epoch = steps_per_epoch
        self.epochs: list[int] = []

    def start_epoch(self, epoch: int) -> int:
        super().start_epoch(epoch)
        self.epochs.append(epoch)
        return self.steps_per_epoch

    def loss(self, index: int) -> tuple[Tensor, int]:
        self.clock.now += self.step_time
        return super().loss(index % NUM_STEPS)

    def rate_factor(self, index: int) -> float:
        return 1.0

    def validate(self) -> dict[str, float]:
        self.clock.now += self.validation_time
        return super().validate()


def run(
    directory: Path,
    task: TimedTask,
    *,
    resume: bool = False,
    stop_at: int | None = None,
    stages: Sequence[Stage] = (),
    begun: float | None = None,
    **settings: Any,
) -> list[Event]:
    config = TrainingConfig(**{"epochs": 2, **settings})
    directory.mkdir(exist_ok=True)
    return list(
        train(
            task,
            config,
            directory,
            device="cpu",
            fingerprint={},
            resume=resume,
            should_stop=lambda step: step == stop_at,
            stages=stages,
            begun=begun,
        )
    )


def rates(events: Sequence[Event]) -> list[float]:
    return [event.learning_rate for event in events if isinstance(event, StepDone)]


def finished(events: Sequence[Event]) -> RunFinished:
    assert isinstance(events[-1], RunFinished)
    return events[-1]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("step", "validation"), [(1.0, 0.0), (0.5, 7.0), (2.0, 3.0)])
def test_every_schedule_ends_at_the_limit(
    tmp_path: Path, clock: Clock, schedule: str, step: float, validation: float
) -> None:
    task = TimedTask(clock, step=step, validation=validation)
    events = run(
        tmp_path, task, schedule=schedule, time_limit="5m", learning_rate=0.1, optimiser="sgd"
    )
    assert finished(events).reason == "finished"
    # within a step, and the last validations
    assert clock.now - 1000.0 == pytest.approx(300.0 + validation, abs=step + validation)
    assert (tmp_path / "weights.safetensors").exists()
    of_steps = rates(events)
    assert max(of_steps) > 0.09 or schedule in ("divide", "step", "plateau", "cyclic")
    assert of_steps[-1] < 0.11 * max(of_steps)


def test_reading_counts_in_a_resumed_run(tmp_path: Path, clock: Clock) -> None:
    """Of 100 seconds, 50 are reading before the stop and 10 after it."""
    run(tmp_path, TimedTask(clock), stop_at=20, time_limit="100s", begun=clock.now - 50.0)
    begun = clock.now - 10.0
    events = run(tmp_path, TimedTask(clock), resume=True, time_limit="100s", begun=begun)
    assert finished(events).step == 40


@pytest.mark.parametrize("stops", [(1,), (7, 30), (10, 11, 90)])
def test_a_resumed_run_counts_the_time_before(
    tmp_path: Path, clock: Clock, stops: tuple[int, ...]
) -> None:
    settings: dict[str, Any] = {"schedule": "cosine", "time_limit": "2m", "learning_rate": 1.0}
    of_steps: list[float] = []
    for number, stop in enumerate((*stops, None)):
        events = run(tmp_path, TimedTask(clock), resume=number > 0, stop_at=stop, **settings)
        of_steps += rates(events)
        clock.now += 10_000.0  # until somebody continues
    expected = rates(run(tmp_path / "whole", TimedTask(clock), **settings))
    assert of_steps == pytest.approx(expected, abs=0.03)
    # what has ended has ended; a longer limit goes on
    step = finished(events).step
    assert finished(run(tmp_path, TimedTask(clock), resume=True, **settings)).step == step
    longer = run(tmp_path, TimedTask(clock), resume=True, **{**settings, "time_limit": "3m"})
    assert finished(longer).step > step + 50


def test_a_run_without_a_limit_goes_on_with_one_and_the_other_way(
    tmp_path: Path, clock: Clock
) -> None:
    run(tmp_path, TimedTask(clock, validation=5.0), stop_at=15, epochs=8)
    before = clock.now
    run(tmp_path, TimedTask(clock, validation=5.0), resume=True, time_limit="100s")
    # 15 steps and one validation had been made; the last validation comes after the limit
    assert clock.now - before == pytest.approx(85.0, abs=1.0)
    assert finished(run(tmp_path, TimedTask(clock), resume=True, epochs=12)).epoch == 12


@pytest.mark.parametrize("stop_at", [None, 5, 33])
def test_each_stage_has_its_share_of_the_time(
    tmp_path: Path, clock: Clock, stop_at: int | None
) -> None:
    stages = (Stage(6), Stage(2, rate=0.5))
    settings: dict[str, Any] = {"schedule": "cosine", "time_limit": "80s", "learning_rate": 1.0}
    task = TimedTask(clock, step=2.0)
    events = run(tmp_path, task, stages=stages, stop_at=stop_at, **settings)
    of_steps = rates(events)
    if stop_at is not None:
        task = TimedTask(clock, step=2.0)
        events = run(tmp_path, task, stages=stages, resume=True, **settings)
        of_steps += rates(events)
    assert clock.now - 1000.0 == pytest.approx(80.0, abs=2.0)
    # 60 seconds of the first stage, then 20 of the second one at half the rate
    assert of_steps[29] == pytest.approx(0.0, abs=0.01)
    assert of_steps[15] == pytest.approx(0.5, abs=0.01)
    assert of_steps[35] == pytest.approx(0.25, abs=0.01)
    # a task knows the second stage by its first epoch
    assert task.epochs[-1] == 6
    # epochs are counted without those that there was no time for
    assert finished(events).epoch == 4


def test_processes_of_unequal_speed_end_together(tmp_path: Path, clock: Clock) -> None:
    def action(rank: int) -> tuple[int, float, float]:
        with joined("cpu") as group:
            task = TimedTask(clock, step=1.0 + rank, validation=3.0)
            task.module.unused.requires_grad_(False)  # processes wait for every gradient
            config = TrainingConfig(schedule="cosine", time_limit="60s")
            (tmp_path / "run").mkdir(exist_ok=True)
            events = list(
                train(task, config, tmp_path / "run", device="cpu", fingerprint={}, group=group)
            )
            # the rates decide the weights, as every process has the same gradients
            return (
                finished(events).step,
                rates(events)[-1],
                float(task.module.linear.weight.detach().sum()),
            )

    one, other = together(tmp_path, action)
    assert one == other
    # steps of 1.5 seconds on average, ten to an epoch, and a validation after each epoch
    assert 30 < int(one[1:].partition(",")[0]) <= 38
