"""The one training loop: a generator of events, over any task, that can be resumed exactly.

A run directory, while it trains:

    log.jsonl   every event
    last/       model, optimiser, random state and data position: what --resume continues from
    best/       the model directory of the best validation so far

`train` writes and yields what `_Loop.events` gives, which reads from top to bottom: an epoch is its
steps, then validation, then a save. `StepLosses` fetches and judges the losses of the steps.

Where time is limited, a stage's progress is the share of its time that has passed, read before each
step, and the last validation comes after it. All that a run does counts, from reading its data on,
but compiling. An epoch near the end is not validated, as the rate would not come to its end.

A run that is stopped, or killed, and resumed ends with the same weights as one that was not, bit
for bit on the CPU with the same number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqtool.core import checkpoint, storage
from seqtool.core.errors import ModelError, TrainingError
from seqtool.core.progress import (
    EpochDone,
    Event,
    EventLog,
    RunFinished,
    RunStarted,
    StepDone,
    format_scores,
)
from seqtool.core.signals import Interruption
from seqtool.training import hardware, state
from seqtool.training.config import Position, Stage, TrainingConfig, learning_rate
from seqtool.training.hardware import ALONE, Group
from seqtool.training.losses import StepLosses, StepNorms, mean_norms
from seqtool.training.optimisers import Optimisers
from seqtool.training.state import RunState
from seqtool.training.task import OnlineTask, Task

LAST, BEST = "last", "best"  # directories of a run: its state, and its best model
REPORT_SECONDS = 0.5
# after how many steps losses are fetched: each fetch waits for a GPU
FETCH_STEPS = {"cpu": 1, "cuda": 16, "mps": 16}


def train(
    task: Task,
    config: TrainingConfig,
    directory: Path,
    *,
    device: str,
    fingerprint: Mapping[str, Any],
    resume: bool = False,
    should_stop: Callable[[int], bool] | None = None,
    group: Group = ALONE,
    stages: Sequence[Stage] = (),
    begun: float | None = None,
    float32_layers: str = "",
) -> Generator[Event, None, None]:
    """Train `task` in `directory`, yielding events; the caller shows them.

    Args:
        task: what is trained.
        config: settings of the loop.
        directory: the run directory; `last/` and `best/` are written in it.
        device: torch device of the module.
        fingerprint: what must not differ between a run and its continuation (model, data).
        resume: continue from `last/` where it is there.
        should_stop: asked with the step number before each step; True stops as Ctrl-C does.
        group: the processes that train together; the first one writes, all yield the events.
        stages: what the run is divided into; one of all epochs if none is given.
        begun: from when on a limit of time counts, as `time.perf_counter` tells; now if not given.
        float32_layers: those that stay in float32 where the rest is in bf16, such as "gru layers".

    Raises:
        TrainingError: the loss became NaN, infinite or exploded; `last/` holds the last good state.
        ModelError: the saved state is damaged or belongs to another configuration.
    """
    should_stop = should_stop or (lambda step: False)
    stages = tuple(stages) or (Stage(config.epochs),)
    begun = time.perf_counter() if begun is None else begun
    loop = _Loop(
        task=task,
        config=config,
        directory=directory,
        device=device,
        fingerprint=fingerprint,
        should_stop=should_stop,
        group=group,
        stages=stages,
        begun=begun,
        float32_layers=float32_layers,
    )
    with group.agreed():
        resumed = resume and loop.restore()
    path = directory / "log.jsonl" if group.is_first else None
    loop.log = EventLog(path, keep_bytes=loop.run.log_bytes if resumed else 0)
    try:
        with loop.interruption.listening():
            for event in loop.events(resumed):
                loop.log.write(event)
                yield event
    finally:
        loop.log.close()


@dataclass(eq=False)
class _Loop:
    """One run of `train`, with the same arguments."""

    task: Task
    config: TrainingConfig
    directory: Path
    device: str
    fingerprint: Mapping[str, Any]
    should_stop: Callable[[int], bool]
    group: Group
    stages: Sequence[Stage]
    begun: float
    float32_layers: str

    def __post_init__(self) -> None:
        task, config, group = self.task, self.config, self.group
        if isinstance(task, OnlineTask):
            self.device = "cpu"
        self.last, self.best = self.directory / LAST, self.directory / BEST
        self.log: EventLog  # opened by `train` once it is known whether the run is resumed
        self.interruption = Interruption()
        self.is_interrupted = False
        self.run = RunState()  # all that is saved; the rest is made again when it is resumed
        self.limit = config.limit_seconds
        self.elapsed_before = 0.0  # seconds of the continuations before this one
        self.steps_per_epoch = task.start_epoch(0)
        # the task drew its weights from the seed; what is random in steps differs by process
        hardware.seed_everything(config.seed, group.rank)
        self.optimisers = Optimisers(task.module, config)
        self.loss = group.parallel(task.module, task.loss)
        self.precision = hardware.resolve_precision(config.precision, self.device)
        if isinstance(task, OnlineTask):
            self.precision = "float32"
        self.fetch_steps = FETCH_STEPS[self.device.partition(":")[0]]
        self.losses = StepLosses(self.run, task, group)
        self.norms = StepNorms(self.run, config.clip_norm)
        self.clock = self.saved_at = time.perf_counter()  # when `tick` last counted
        self.report_seconds = 0.0  # of training since the last report
        self.rate = 0.0  # of the last step, but for the task's factor
        with group.agreed():
            for path in (self.last, self.best) if group.is_first else ():
                storage.recover(path)

    def restore(self) -> bool:
        """Take back the saved state, if there is one; return whether there is.

        Raises:
            ModelError: there is none, though the run came to a model: it would begin anew, over it.
        """
        if not self.last.is_dir():
            if self.best.is_dir() or (self.directory / checkpoint.HEADER).is_file():
                raise ModelError(
                    "the state of the run, from which it would go on, is no longer there",
                    hint="put it back, or start again with --force",
                    path=self.last,
                )
            return False
        self.steps_per_epoch = state.restore(
            self.last,
            self.task,
            self.optimisers,
            self.run,
            self.fingerprint,
            self.group,
        )
        if self.run.averaging_since is not None:
            self.optimisers.average_from(self.run.averaging_since)
        self.elapsed_before = max(self.run.elapsed, self.run.seconds)  # it may have had no limit
        return True

    def events(self, resumed: bool) -> Generator[Event, None, None]:
        """Train to the end, or until interrupted."""
        run = self.run
        self.begin_step, self.begin_seconds = run.step, run.seconds
        if not resumed:
            self.save()  # so that a run that is stopped before its first save can be resumed
        is_limited = self.limit is not None
        yield RunStarted(
            step=run.step,
            total_steps=0 if is_limited else self.total_steps,
            epochs=0 if is_limited else self.epochs,
            num_parameters=count_parameters(self.task.module),
            machine=hardware.describe_machine(self.device, self.group.size),
            resumed=resumed,
            time_limit=self.limit,
            **self.describe_precision(),
        )
        self.clock = self.saved_at = time.perf_counter()
        while not (reason := self.end_reason()):
            yield from self.finish_epoch()
            # finish_epoch has saved already: nothing of the epoch is lost
            if self.is_interrupted:
                reason = "interrupted"
                break
            if not self.is_validation_due():
                run.epoch, run.index = run.epoch + 1, 0
            else:
                # else the last save took what time was left for the epoch
                if run.index or not self.steps_per_epoch:
                    yield self.validate()
                self.end_stage()
            self.save()
        if reason != "interrupted" and self.group.is_first and self.best.is_dir():
            checkpoint.promote(self.best, self.best.parent)
        best = (run.best_epoch, run.best_scores)
        passes = run.step / max(1, self.steps_per_epoch)
        yield RunFinished(reason, run.epoch, run.step, *best, run.seconds, passes)

    def describe_precision(self) -> dict[str, str]:
        """Return what the precision of the run really is, and what its user should know of it."""
        note, layers = hardware.precision_note(self.config.precision, self.device), ""
        if self.precision == "bf16":
            layers = self.float32_layers or ("" if self.device == "cpu" else "recurrent layers")
        if layers and self.device == "cpu":
            note = "; ".join(filter(None, (note, f"in bf16, but for the {layers} in float32")))
        precision = f"bf16, {layers} in float32" if layers else self.precision
        return {"precision": precision, "precision_note": note}

    def end_reason(self) -> str:
        """Return why no further step is to be made; empty if there is one."""
        run, patience = self.run, self.config.patience
        if self.limit is None:  # a run that had a limit may not have validated its last epoch
            is_over = run.epoch >= self.epochs and (run.index > 0 or self.is_validated)
        else:
            is_ended = run.epoch > 0 and run.index == 0 and self.is_validated
            is_over = is_ended and run.elapsed >= self.limit
        if is_over:
            return "finished"
        if run.index == 0 and patience and run.epochs_since_best >= patience:
            return "stopped early"
        return ""

    def finish_epoch(self) -> Generator[Event, None, None]:
        """Make the remaining steps of the running epoch, fewer when interrupted or out of time."""
        run = self.run
        if run.index == 0:
            self.steps_per_epoch = self.task.start_epoch(run.planned_epoch)
            if run.planned_epoch == self.stage()[1]:
                run.stage_step = run.step
                run.stage_elapsed = 0.0 if self.limit is None else self.elapsed()
            is_due = not self.config.asgd_trigger and run.epoch >= self.config.average_after
            if self.config.optimiser == "asgd" and is_due:
                self.begin_averaging()
        self.task.module.train()
        while run.index < self.steps_per_epoch:
            if self.group.any(self.interruption.requested or self.should_stop(run.step)):
                self.losses.fetch()
                if self.losses.num_items:
                    yield self.report()
                self.save()
                self.is_interrupted = True
                return
            if self.is_time_up():
                self.losses.fetch()  # those of a GPU's last steps
                if self.losses.num_items and self.report_seconds >= REPORT_SECONDS:
                    yield self.report()
                break
            self.step()
            if self.losses.pending:  # nothing is known of these steps yet
                continue
            if self.report_seconds >= REPORT_SECONDS:
                yield self.report()
            is_due = time.perf_counter() - self.saved_at >= 60.0 * self.config.save_minutes
            if run.index < self.steps_per_epoch and self.group.any(is_due):
                self.save()  # at the end of the epoch, after validation

    def elapsed(self) -> float:
        """Return the seconds of the run and its continuations, the mean of all processes."""
        own = self.elapsed_before + time.perf_counter() - self.begun
        return self.group.totals([own])[0] / self.group.size

    def stage_end(self) -> float:
        """Return after how many seconds the running stage ends; the time goes with the epochs."""
        assert self.limit is not None
        number, begin = self.stage()
        return self.limit * (begin + self.stages[number].epochs) / self.epochs

    @property
    def is_validated(self) -> bool:
        """Whether nothing was learnt since the last validation."""
        return self.run.num_items == 0

    def is_time_up(self) -> bool:
        """Whether the stage has no time for another step.

        Its first step is always made, and so is the first one after an epoch without a validation,
        as there is none at the beginning of an epoch.
        """
        run = self.run
        if self.limit is None:
            return False
        run.elapsed = self.elapsed()
        if run.step == run.stage_step or (run.index == 0 and not self.is_validated):
            return False
        return run.elapsed >= self.stage_end()

    def is_validation_due(self) -> bool:
        """Whether what was trained is to be validated, at the end of an epoch or of the time.

        An epoch is where another one like it, with its validation, ends in time.
        """
        run, (number, begin) = self.run, self.stage()
        if self.limit is None or not 0 < self.steps_per_epoch == run.index:
            return True
        is_last = run.planned_epoch + 1 == begin + self.stages[number].epochs
        if is_last and number + 1 < len(self.stages):
            return True
        run.elapsed, end = self.elapsed(), self.stage_end()
        epoch_seconds = run.epoch_seconds + run.validation_seconds
        return run.elapsed + epoch_seconds < end or run.elapsed >= end

    def step(self) -> None:
        """Make one step; on a CPU its loss is known to be sound before an optimiser's."""
        run = self.run
        stage, at = self.position()
        self.rate = stage.rate * learning_rate(self.config, at)
        self.task.set_progress(min(1.0, at.done))
        rate = self.rate * self.task.rate_factor(run.index)
        if isinstance(self.task, OnlineTask):
            self.losses.add(run.step + 1, *self.task.learn(run.index, rate))
            self.losses.fetch()
        else:
            with hardware.autocast(self.device, self.precision):
                loss, num_items = self.loss(run.index)
            loss.backward()  # type: ignore[no-untyped-call]
            self.losses.add(run.step + 1, loss, num_items)
            if len(self.losses.pending) >= self.fetch_steps or (
                run.index + 1 == self.steps_per_epoch
            ):
                self.losses.fetch()
            self.norms.pending.append(self.optimisers.step(rate))
        run.step += 1
        run.index += 1
        seconds = self.tick()
        run.seconds += seconds
        run.epoch_seconds += seconds
        self.report_seconds += seconds

    def report(self) -> StepDone:
        """Return the event of the steps since the last report."""
        run = self.run
        per_step = (run.seconds - self.begin_seconds) / max(1, run.step - self.begin_step)
        seconds_left = per_step * (self.total_steps - run.step)
        if self.limit is not None:
            seconds_left = max(0.0, self.limit - run.elapsed)
        event = StepDone(
            epoch=run.epoch + 1,
            step=run.step,
            loss=self.losses.nats / self.losses.num_items,
            items_per_second=self.losses.num_items / max(1e-9, self.report_seconds),
            learning_rate=self.rate,
            seconds_left=seconds_left,
            items=self.task.items,
            gradients=self.norms.since_report(),
        )
        self.losses.forget()
        self.report_seconds = 0.0
        return event

    def validate(self) -> EpochDone:
        """Validate, keep the model if it is the best so far, and end the epoch."""
        task, run = self.task, self.run
        task.module.eval()
        self.tick()
        with self.optimisers.averaged(), torch.no_grad():
            scores = task.validate()
            if not all(math.isfinite(score) for score in scores.values()):
                what = f"validation gave {format_scores(scores)} after step {run.step:,}"
                raise TrainingError(f"{what} (epoch {run.epoch + 1})", hint=state.AFTER_FAILURE)
            new, old = scores[task.score], run.best_scores.get(task.score)
            is_best = old is None or (new > old if task.larger_is_better else new < old)
            if is_best and self.group.is_first:
                task.save_model(self.best, scores)
                storage.drop_kept(self.best.parent)  # from here on, the new model is usable
        run.validation_seconds = self.tick()
        run.seconds += run.validation_seconds
        self.norms.fetch()
        done = EpochDone(
            epoch=run.epoch + 1,
            step=run.step,
            loss=run.loss_sum / max(1, run.num_items),
            scores=scores,
            is_best=is_best,
            items_per_second=run.num_items / max(1e-9, run.epoch_seconds),
            learning_rate=self.rate,
            seconds=run.epoch_seconds,
            items=self.task.items,
            gradients=mean_norms(
                run.norm_sum, run.clipped_norm_sum, run.num_clipped, run.num_norms
            ),
        )
        self.watch_for_trigger(new)
        self.end_epoch(scores, is_best=is_best)
        return done

    def watch_for_trigger(self, score: float) -> None:
        """Begin averaging once validation no longer improves (Merity et al. 2018, algorithm 1).

        That is when it is worse than the best of all epochs but the last `asgd_trigger`.
        """
        run, num_recent = self.run, self.config.asgd_trigger
        is_averaged = self.config.optimiser == "asgd"
        if is_averaged and num_recent and (earlier := run.validations[:-num_recent]):
            larger = self.task.larger_is_better
            if score < max(earlier) if larger else score > min(earlier):
                self.begin_averaging()
        run.validations.append(score)

    def begin_averaging(self) -> None:
        """Average the weights from the next step on, unless they are averaged already."""
        if self.run.averaging_since is None:
            self.run.averaging_since = self.run.step
            self.optimisers.average_from(self.run.step)

    def end_epoch(self, scores: dict[str, float], *, is_best: bool) -> None:
        """Count the epoch, note the best, and fire the plateau rule."""
        run = self.run
        run.epoch, run.index = run.epoch + 1, 0
        run.loss_sum, run.num_items, run.epoch_seconds = 0.0, 0, 0.0
        run.norm_sum, run.clipped_norm_sum, run.num_clipped, run.num_norms = 0.0, 0.0, 0, 0
        self.losses.forget()
        self.norms.forget()
        self.report_seconds = 0.0
        if is_best:
            run.best_epoch, run.best_scores = run.epoch, dict(scores)
            run.epochs_since_best = run.epochs_since_plateau = 0
            return
        run.epochs_since_best += 1
        run.epochs_since_plateau += 1
        if run.epochs_since_plateau >= self.config.plateau_patience:
            run.num_plateaus += 1
            run.epochs_since_plateau = 0

    def end_stage(self) -> None:
        """End the stage that ran where there is no time left for it."""
        run, (number, begin) = self.run, self.stage()
        if self.limit is None:
            return
        run.elapsed = self.elapsed()
        # a stage is not ended before its first epoch
        is_over = run.elapsed >= self.stage_end() and run.planned_epoch > begin
        if is_over and number + 1 < len(self.stages):
            run.skipped_epochs += begin + self.stages[number].epochs - run.planned_epoch

    def save(self) -> None:
        """Write the state, unless it is a bad one; what it takes counts as no training time."""
        if self.limit is not None:
            self.run.elapsed = self.elapsed()
        if self.run.step and not self.end_reason():
            self.probe()
        self.norms.fetch()
        self.run.log_bytes = self.log.size()
        state.save(self.last, self.task, self.optimisers, self.run, self.fingerprint, self.group)
        self.clock = self.saved_at = time.perf_counter()

    def probe(self) -> None:
        """Judge the last step by the loss of the next batch, and leave no trace of it."""
        if self.run.index == 0:
            self.task.start_epoch(self.run.planned_epoch)
        carried = self.task.carried()
        self.task.module.train()
        gpus = [self.device] if self.device.startswith("cuda") else []
        with (
            torch.random.fork_rng(gpus),
            torch.no_grad(),
            hardware.autocast(self.device, self.precision),
        ):
            loss, num_items = self.task.loss(self.run.index)
        ((mean, _),) = self.losses.joint([(float(loss), num_items)])
        self.losses.judge(mean, self.run.step + 1)
        self.task.restore_carried(carried)

    @property
    def epochs(self) -> int:
        """Return the epochs of all stages."""
        return sum(stage.epochs for stage in self.stages)

    @property
    def total_steps(self) -> int:
        """Return the steps of the whole run, if all epochs to come are as long as this one."""
        return self.steps_until(self.epochs)

    def steps_until(self, epoch: int) -> int:
        """Return how many steps will have been made when an epoch begins, as `total_steps` does."""
        run = self.run
        epochs_left = max(0, epoch - run.planned_epoch)
        return run.step - run.index + self.steps_per_epoch * epochs_left

    def stage(self) -> tuple[int, int]:
        """Return the number of the running stage, or the last one's after the end.

        Also returns its first epoch.
        """
        begin = 0
        for number, stage in enumerate(self.stages[:-1]):
            if self.run.planned_epoch < begin + stage.epochs:
                return number, begin
            begin += stage.epochs
        return len(self.stages) - 1, begin

    def position(self) -> tuple[Stage, Position]:
        """Return the running stage, and where in it the next batch stands."""
        run, (number, begin) = self.run, self.stage()
        stage = self.stages[number]
        step = run.step - run.stage_step
        total_steps = self.steps_until(begin + stage.epochs) - run.stage_step
        time_passed = None
        if self.limit is not None:
            whole = self.stage_end() - run.stage_elapsed
            time_passed = min(1.0, (run.elapsed - run.stage_elapsed) / whole) if whole > 0 else 1.0
            if number + 1 < len(self.stages):  # whose epochs may come to an end first
                time_passed = max(time_passed, min(1.0, step / total_steps))
        at = Position(
            step=step,
            total_steps=total_steps,
            epoch=run.planned_epoch - begin + run.index / self.steps_per_epoch,
            num_plateaus=run.num_plateaus,
            time_passed=time_passed,
        )
        return stage, at

    def tick(self) -> float:
        """Return the seconds since the last tick, and count them from now."""
        now = time.perf_counter()
        seconds, self.clock = now - self.clock, now
        return seconds


def count_parameters(module: nn.Module) -> int:
    """Return the number of trained numbers, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
