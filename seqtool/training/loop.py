"""The one training loop: a generator of events, over any task, that can be resumed exactly.

A run directory, while it trains:

    log.jsonl   every event
    last/       model, optimiser, random state and data position: what --resume continues from
    best/       the model directory of the best validation so far

`_Loop.events` reads from top to bottom: an epoch is its steps, then validation, then a save. Where
time is limited, progress is the share of the time that has passed, reading the data included; the
last epoch is as long as the time allows, and its validation comes after the limit.

A run that is stopped, or killed, and resumed ends with the same weights as one that was not, bit
for bit on the CPU with the same number of threads.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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
from seqtool.training.optimisers import Optimisers
from seqtool.training.state import RunState, StepSums
from seqtool.training.task import OnlineTask, Task

LAST, BEST = "last", "best"  # directories of a run: its state, and its best model
REPORT_SECONDS = 0.5
# nats per item above which a loss has exploded, and how often the first loss, if that is more
LOSS_LIMIT, LOSS_LIMIT_FACTOR = 50.0, 3.0


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
        TrainingError: the loss became NaN, infinite or exploded; the last save is kept.
        ModelError: the saved state is damaged or belongs to another configuration.
    """
    loop = _Loop(task, config, directory, device, group, stages or (Stage(config.epochs),))
    loop.begun = time.perf_counter() if begun is None else begun
    loop.fingerprint, loop.should_stop = fingerprint, should_stop or (lambda step: False)
    with group.agreed():
        resumed = resume and loop.restore()
    path = directory / "log.jsonl" if group.is_first else None
    loop.log = EventLog(path, keep_bytes=loop.run.log_bytes if resumed else 0)
    with closing(loop.log), loop.interruption.listening():
        for event in loop.events(resumed, float32_layers):
            loop.log.write(event)
            yield event


class _Loop:
    """One run of `train`, with the same arguments."""

    fingerprint: Mapping[str, Any]
    should_stop: Callable[[int], bool]
    begun: float
    log: EventLog

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        directory: Path,
        device: str,
        group: Group,
        stages: Sequence[Stage],
    ) -> None:
        self.task, self.config, self.group, self.stages = task, config, group, stages
        self.ends = list(accumulate(stage.epochs for stage in stages))
        self.limit = config.limit_seconds
        is_online = isinstance(task, OnlineTask)
        self.device = "cpu" if is_online else device
        self.asked = "float32" if is_online else config.precision
        self.precision = hardware.resolve_precision(self.asked, self.device)
        self.last, self.best = directory / LAST, directory / BEST
        self.interruption = Interruption()
        self.run = RunState()  # all that is saved; the rest is made again when it is resumed
        self.steps_per_epoch = task.start_epoch(0)
        # the task drew its weights from the seed; what is random in steps differs by process
        hardware.seed_everything(config.seed, group.rank)
        self.optimisers = Optimisers(task.module, config)
        self.loss = group.parallel(task.module, task.loss)
        self.recent, self.recent_seconds = StepSums(), 0.0  # since the last report
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
            if self.best.is_dir() or (self.last.parent / checkpoint.HEADER).is_file():
                what = "the state of the run, from which it would go on, is no longer there"
                hint = "put it back, or start again with --force"
                raise ModelError(what, hint=hint, path=self.last)
            return False
        self.run, self.steps_per_epoch = state.restore(
            self.last, self.task, self.optimisers, self.fingerprint, self.group
        )
        if self.run.averaging_since is not None:
            self.optimisers.average_from(self.run.averaging_since)
        self.begun -= max(self.run.elapsed, self.run.seconds)  # it may have had no limit
        return True

    def events(self, resumed: bool, float32_layers: str) -> Generator[Event, None, None]:
        """Train to the end, or until interrupted."""
        run = self.run
        if not resumed:
            self.save()  # so that a run that is stopped before its first save can be resumed
        yield self.start_event(resumed, float32_layers)
        self.saved_at = time.perf_counter()
        while not (reason := self.end_reason()):
            self.begin_epoch()
            while run.index < self.steps_per_epoch and not self.is_time_up():
                if self.group.any(self.interruption.requested or self.should_stop(run.step)):
                    reason = "interrupted"
                    break
                self.step()
                if self.recent_seconds >= REPORT_SECONDS:
                    yield self.report()
                is_due = time.perf_counter() - self.saved_at >= 60.0 * self.config.save_minutes
                if run.index < self.steps_per_epoch and self.group.any(is_due):
                    self.save()
            if reason:
                if self.recent.items:
                    yield self.report()
                self.save()
                break
            yield self.validate()
            self.save()
        if reason != "interrupted" and self.group.is_first and self.best.is_dir():
            checkpoint.promote(self.best, self.best.parent)
        best = (run.best_epoch, run.best_scores)
        passes = run.step / max(1, self.steps_per_epoch)
        yield RunFinished(reason, run.epoch, run.step, *best, run.seconds, passes)

    def start_event(self, resumed: bool, float32_layers: str) -> RunStarted:
        """Return the first event, which says what the precision of the run really is."""
        is_limited = self.limit is not None
        precision, note = hardware.describe_precision(self.asked, self.device, float32_layers)
        return RunStarted(
            step=self.run.step,
            total_steps=0 if is_limited else self.steps_until(self.ends[-1]),
            epochs=0 if is_limited else self.ends[-1],
            num_parameters=count_parameters(self.task.module),
            machine=hardware.describe_machine(self.device, self.group.size),
            resumed=resumed,
            time_limit=self.limit,
            precision=precision,
            precision_note=note,
        )

    def end_reason(self) -> str:
        """Return why no further epoch is trained; empty if one is, or is to be completed."""
        run, patience = self.run, self.config.patience
        if run.index:
            return ""
        is_time_up = self.limit is not None and run.epoch > 0 and run.elapsed >= self.limit
        if is_time_up or (self.limit is None and run.epoch >= self.ends[-1]):
            return "finished"
        return "stopped early" if patience and run.epochs_since_best >= patience else ""

    def begin_epoch(self) -> None:
        """Begin an epoch, or go on with it."""
        run, config = self.run, self.config
        if run.index == 0:
            _, begin, end = self.stage()
            is_over = self.limit is not None and run.elapsed >= self.stage_end()
            if is_over and begin < run.planned_epoch and end < self.ends[-1]:
                run.skipped_epochs += end - run.planned_epoch
            self.steps_per_epoch = self.task.start_epoch(run.planned_epoch)
            if run.planned_epoch == self.stage()[1]:
                run.stage_step, run.stage_elapsed = run.step, run.elapsed
            is_due = not config.asgd_trigger and run.epoch >= config.average_after
            if config.optimiser == "asgd" and is_due:
                self.begin_averaging()
        self.task.module.train()

    def step(self) -> None:
        """Make one step."""
        task, run, begin = self.task, self.run, time.perf_counter()
        stage, at = self.position()
        self.rate = stage.rate * learning_rate(self.config, at)
        task.set_progress(min(1.0, at.done))
        rate = self.rate * task.rate_factor(run.index)
        norms: list[Tensor] = []
        if isinstance(task, OnlineTask):
            loss, num_items = task.learn(run.index, rate)
        else:
            with hardware.autocast(self.device, self.precision):
                loss, num_items = self.loss(run.index)
            loss.backward()  # type: ignore[no-untyped-call]
            norms = [self.optimisers.step(rate)]
        run.step += 1
        run.index += 1
        value, *norm = torch.stack([loss.detach(), *norms]).tolist()  # waits for a GPU, once
        if self.group.size > 1:  # that of the joint batch of all processes
            nats, total = self.group.totals([value * num_items, num_items])
            value, num_items = nats / total, int(total)
        self.check_loss(value)
        for sums in (run.sums, self.recent):
            sums.add(value, num_items, norm[0] if norm else None, self.config.clip_norm or math.inf)
        seconds = time.perf_counter() - begin
        run.seconds += seconds
        run.epoch_seconds += seconds
        self.recent_seconds += seconds

    def check_loss(self, loss: float) -> None:
        """Refuse a loss that is NaN, infinite or far above that of the first batch."""
        run = self.run
        if run.first_loss is None and math.isfinite(loss):
            run.first_loss = loss
        if loss <= max(LOSS_LIMIT, LOSS_LIMIT_FACTOR * (run.first_loss or 0.0)):
            return
        what = "is not a number" if math.isnan(loss) else "is infinite"
        if math.isfinite(loss):
            what = f"exploded to {loss:.1f} nats per {self.task.items.removesuffix('s')}"
        where = f"at step {run.step:,} (epoch {run.epoch + 1})"
        raise TrainingError(f"the loss {what} {where}", hint=state.AFTER_FAILURE)

    def report(self) -> StepDone:
        """Return the event of the steps since the last report."""
        run, sums = self.run, self.recent
        seconds_left = run.seconds / run.step * (self.steps_until(self.ends[-1]) - run.step)
        if self.limit is not None:
            seconds_left = max(0.0, self.limit - run.elapsed)
        event = StepDone(
            epoch=run.epoch + 1,
            step=run.step,
            loss=sums.nats / sums.items,
            items_per_second=sums.items / max(1e-9, self.recent_seconds),
            learning_rate=self.rate,
            seconds_left=seconds_left,
            items=self.task.items,
            gradients=sums.gradients,
        )
        self.recent, self.recent_seconds = StepSums(), 0.0
        return event

    def validate(self) -> EpochDone:
        """Validate, keep the model if it is the best so far, and end the epoch."""
        task, run, begin = self.task, self.run, time.perf_counter()
        task.module.eval()
        with self.optimisers.averaged(), torch.no_grad():
            scores = task.validate()
            if not all(map(math.isfinite, scores.values())):
                what = f"validation gave {format_scores(scores)} after step {run.step:,}"
                raise TrainingError(f"{what} (epoch {run.epoch + 1})", hint=state.AFTER_FAILURE)
            new, old = scores[task.score], run.best_scores.get(task.score)
            is_best = old is None or (new > old if task.larger_is_better else new < old)
            if is_best and self.group.is_first:
                task.save_model(self.best, scores)
                storage.drop_kept(self.best.parent)  # from here on, the new model is usable
        run.seconds += time.perf_counter() - begin
        done = EpochDone(
            epoch=run.epoch + 1,
            step=run.step,
            loss=run.sums.nats / max(1, run.sums.items),
            scores=scores,
            is_best=is_best,
            items_per_second=run.sums.items / max(1e-9, run.epoch_seconds),
            learning_rate=self.rate,
            seconds=run.epoch_seconds,
            items=task.items,
            gradients=run.sums.gradients,
        )
        num_recent = self.config.asgd_trigger if self.config.optimiser == "asgd" else 0
        if is_triggered(run.validations, new, num_recent, task.larger_is_better):
            self.begin_averaging()
        run.validations.append(new)
        run.epoch, run.index, run.epoch_seconds = run.epoch + 1, 0, 0.0
        run.sums, self.recent, self.recent_seconds = StepSums(), StepSums(), 0.0
        run.epochs_since_best += 1
        run.epochs_since_plateau += 1
        if is_best:
            run.best_epoch, run.best_scores = run.epoch, dict(scores)
            run.epochs_since_best = run.epochs_since_plateau = 0
        elif run.epochs_since_plateau >= self.config.plateau_patience:
            run.num_plateaus, run.epochs_since_plateau = run.num_plateaus + 1, 0
        return done

    def begin_averaging(self) -> None:
        """Average the weights from the next step on, unless they are averaged already."""
        if self.run.averaging_since is None:
            self.run.averaging_since = self.run.step
            self.optimisers.average_from(self.run.step)

    def save(self) -> None:
        """Write the state."""
        self.is_time_up()
        self.run.log_bytes = self.log.size()
        state.save(self.last, self.task, self.optimisers, self.run, self.fingerprint, self.group)
        self.saved_at = time.perf_counter()

    def is_time_up(self) -> bool:
        """Look at the clock: whether the stage has no time for another step of an epoch."""
        if self.limit is None:
            return False
        elapsed = self.group.totals([time.perf_counter() - self.begun])[0] / self.group.size
        self.run.elapsed = elapsed  # of the run and its continuations, the mean of all processes
        return self.run.index > 0 and elapsed >= self.stage_end()

    def stage_end(self) -> float:
        """Return after how many seconds the running stage ends; the time goes with the epochs."""
        return (self.limit or 0.0) * self.stage()[2] / self.ends[-1]

    def steps_until(self, epoch: int) -> int:
        """Return how many steps will have been made when an epoch begins.

        All epochs to come are taken to be as long as this one.
        """
        run = self.run
        epochs_left = max(0, epoch - run.planned_epoch)
        return run.step - run.index + self.steps_per_epoch * epochs_left

    def stage(self) -> tuple[Stage, int, int]:
        """Return the running stage, or the last one after the end; its first epoch and its end."""
        number = bisect_right(self.ends[:-1], self.run.planned_epoch)
        stage, end = self.stages[number], self.ends[number]
        return stage, end - stage.epochs, end

    def position(self) -> tuple[Stage, Position]:
        """Return the running stage, and where in it the next batch stands."""
        run, (stage, begin, end) = self.run, self.stage()
        step, total_steps = run.step - run.stage_step, self.steps_until(end) - run.stage_step
        time_passed = None
        if self.limit is not None:
            whole = self.stage_end() - run.stage_elapsed
            time_passed = min(1.0, (run.elapsed - run.stage_elapsed) / whole) if whole > 0 else 1.0
            if end < self.ends[-1]:  # whose epochs may come to an end first
                time_passed = max(time_passed, min(1.0, step / total_steps))
        epoch = run.planned_epoch - begin + run.index / self.steps_per_epoch
        return stage, Position(step, total_steps, epoch, run.num_plateaus, time_passed)


def is_triggered(
    earlier: Sequence[float], score: float, num_recent: int, larger_is_better: bool
) -> bool:
    """Whether averaging begins: validation no longer improves (Merity et al. 2018, algorithm 1).

    That is when it is worse than the best of all earlier epochs but the last `num_recent`.
    """
    if not num_recent or not (earlier := earlier[:-num_recent]):
        return False
    return score < max(earlier) if larger_is_better else score > min(earlier)


def count_parameters(module: nn.Module) -> int:
    """Return the number of trained numbers, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
