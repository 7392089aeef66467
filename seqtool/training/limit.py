"""A limit of time: how much of it has passed, and how much of the rest is left for training.

All that a run does counts, from reading its data on: steps, validations, saves; all but compiling,
which is done once for a machine (`core.compile_cache.working_time`). What is left is
reckoned anew before each step, from the time that steps and validations have taken so far. So a
wrong guess early in a run does no harm: it ends on time, after a validation. What a validation
takes is learnt early, and no epoch is validated where that leaves no time for a step before the
last validation: else a run would end while its rate is high.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqtool.core.compile_cache import working_time
from seqtool.training.config import Stage
from seqtool.training.hardware import Group
from seqtool.training.state import RunState

MEMORY = 0.99  # of a step's seconds in their running mean, from step to step
EARLY = 1 / 20  # of the limit, after which it is to be known what a validation takes
LITTLE = 1e-3  # weight of the first step, and of those of another stage, beside 1 of the others


class Countdown:
    """The time of one run, which has a limit.

    Args:
        limit: seconds of the whole run, all its continuations together.
        stages: of the run; each but the last may take a share of the time that is as large as that
            of its epochs.
        run: where the run stands.
        group: the processes that train together: all go by the means of what their clocks say, so
            that they make the same steps at the same rates.
        begun: when the run, or its continuation, began, as `working_time` tells.

    Attributes:
        elapsed: seconds of the run when `look` was called.
    """

    def __init__(
        self, limit: float, stages: Sequence[Stage], run: RunState, group: Group, begun: float
    ) -> None:
        self.limit, self._run, self._group, self._begun = limit, run, group, begun
        num_epochs = [stage.epochs for stage in stages]
        self._ends = [
            limit * sum(num_epochs[: number + 1]) / sum(num_epochs) for number in range(len(stages))
        ]
        self.elapsed = 0.0
        self._before = 0.0  # seconds of the continuations before this one
        self._sum, self._weight = 0.0, 0.0  # of the seconds of steps, late ones counted most

    def go_on(self) -> None:
        """Count what the run had taken when it was saved; one without a limit had counted less."""
        run = self._run
        self._before = max(run.elapsed, run.seconds)
        if num_steps := run.step - run.stage_step:
            self._sum, self._weight = run.stage_seconds / num_steps, 1.0
            self.forget()

    def look(self) -> None:
        """Read the clock, before anything is decided by it."""
        run, elapsed = self._run, self._before + working_time() - self._begun
        own = [elapsed, self._sum, self._weight, run.stage_seconds, run.validation_seconds]
        means = [total / self._group.size for total in self._group.totals(own)]
        self.elapsed, self._sum, self._weight, run.stage_seconds, run.validation_seconds = means

    def forget(self) -> None:
        """Let the steps until now count for little: others are to come."""
        if self._weight:
            self._sum, self._weight = LITTLE * self.step_seconds, LITTLE

    def note_step(self, seconds: float) -> None:
        """Take the time of a step; the first one opens compiled code, and counts for little."""
        weight = 1.0 if self._weight else LITTLE
        self._sum = MEMORY * self._sum + weight * seconds
        self._weight = MEMORY * self._weight + weight

    @property
    def step_seconds(self) -> float:
        """Return the seconds that a step takes; 0 before the first one."""
        return self._sum / self._weight if self._weight else 0.0

    @property
    def is_early(self) -> bool:
        """Whether an epoch may yet end soon enough to tell what a validation takes."""
        return self.elapsed <= EARLY * self.limit

    def has_room(self, stage: int, num_validations: int) -> bool:
        """Return whether there is time for a step of a stage besides so many validations.

        That is for half a step, so that the last whole one ends as near to the limit as it can.
        """
        validations = num_validations * self._run.validation_seconds
        return self._ends[stage] - self.elapsed - validations >= self.step_seconds / 2

    def seconds_left(self, stage: int, steps_to_epoch: int, steps_per_epoch: int) -> float:
        """Return the seconds that are left for the steps of a stage, its validations taken off.

        Args:
            stage: its number.
            steps_to_epoch: steps to the end of the running epoch.
            steps_per_epoch: steps of each epoch to come.
        """
        validation = self._run.validation_seconds
        left = self._ends[stage] - self.elapsed - validation  # the last one comes after all steps
        to_epoch = self.step_seconds * steps_to_epoch
        epoch = self.step_seconds * steps_per_epoch + validation
        # a share of a validation for a share of an epoch: without a jump where one more fits in
        num_others = max(0.0, left - to_epoch) / epoch if epoch else 0.0
        return left - num_others * validation
