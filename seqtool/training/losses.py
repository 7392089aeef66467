"""The losses and gradient norms of a run's steps: fetched some at a time, judged, and summed up."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqtool.core.errors import TrainingError
from seqtool.core.progress import GradientNorms
from seqtool.training.hardware import Group
from seqtool.training.state import AFTER_FAILURE, RunState
from seqtool.training.task import Task

# nats per item above which a loss has exploded, whatever the vocabulary
LOSS_LIMIT = 50.0
LOSS_LIMIT_FACTOR = 3.0


class StepLosses:
    """The losses of a run's steps, of the last few not yet known; fetched, they add to its sums."""

    def __init__(self, run: RunState, task: Task, group: Group) -> None:
        self.run, self.items, self.group = run, task.items, group
        self.pending: list[tuple[int, Tensor, int]] = []  # step, mean loss, number of items
        self.forget()

    def forget(self) -> None:
        """Begin to sum up anew: what is fetched from now on is of the next report."""
        self.nats, self.num_items = 0.0, 0

    def add(self, step: int, loss: Tensor, num_items: int) -> None:
        """Note a step, without waiting for its loss."""
        self.pending.append((step, loss.detach(), num_items))

    def fetch(self) -> None:
        """Fetch the pending losses, which waits for a GPU, and judge them."""
        if not self.pending:
            return
        # one copy from the device for all of them
        values = torch.stack([loss for _, loss, _ in self.pending]).tolist()
        losses = self.joint(list(zip(values, [items for _, _, items in self.pending], strict=True)))
        for (value, num_items), (step, _, _) in zip(losses, self.pending, strict=True):
            self.judge(value, step)
            self.nats += value * num_items
            self.num_items += num_items
            self.run.loss_sum += value * num_items
            self.run.num_items += num_items
        self.pending.clear()

    def joint(self, losses: list[tuple[float, int]]) -> list[tuple[float, int]]:
        """Return mean losses and numbers of items of the joint batches of all processes."""
        if self.group.size == 1:
            return losses
        sums = [total for loss, items in losses for total in (loss * items, items)]
        totals = self.group.totals(sums)
        pairs = zip(totals[::2], totals[1::2], strict=True)
        return [(total / num_items, int(num_items)) for total, num_items in pairs]

    def judge(self, loss: float, step: int) -> None:
        """Refuse a loss that is NaN, infinite or far above that of the first batch."""
        if self.run.first_loss is None and math.isfinite(loss):
            self.run.first_loss = loss
        limit = max(LOSS_LIMIT, LOSS_LIMIT_FACTOR * (self.run.first_loss or 0.0))
        if math.isfinite(loss) and loss <= limit:
            return
        what = "is not a number" if math.isnan(loss) else "is infinite"
        if math.isfinite(loss):
            what = f"exploded to {loss:.1f} nats per {self.items.removesuffix('s')}"
        where = f"at step {step:,} (epoch {self.run.epoch + 1})"
        raise TrainingError(f"the loss {what} {where}", hint=AFTER_FAILURE)


class StepNorms:
    """The norms of a run's gradients, of the last steps not yet known; fetched, they add up."""

    def __init__(self, run: RunState, clip_norm: float) -> None:
        self.run, self.clip_norm = run, clip_norm or math.inf
        self.pending: list[Tensor] = []
        self.forget()

    def forget(self) -> None:
        """Begin to sum up anew: what is fetched from now on is of the next report."""
        self.before, self.after, self.num_clipped, self.num = 0.0, 0.0, 0, 0

    def fetch(self) -> None:
        """Fetch the pending norms, which waits for a GPU."""
        if not self.pending:
            return
        for norm in torch.stack(self.pending).tolist():
            clipped, is_clipped = min(norm, self.clip_norm), norm > self.clip_norm
            self.before, self.after = self.before + norm, self.after + clipped
            self.num_clipped, self.num = self.num_clipped + is_clipped, self.num + 1
            self.run.norm_sum += norm
            self.run.clipped_norm_sum += clipped
            self.run.num_clipped += is_clipped
            self.run.num_norms += 1
        self.pending.clear()

    def since_report(self) -> GradientNorms | None:
        """Return the means since the last report, and begin to sum up anew."""
        self.fetch()
        means = mean_norms(self.before, self.after, self.num_clipped, self.num)
        self.forget()
        return means


def mean_norms(before: float, after: float, num_clipped: int, num: int) -> GradientNorms | None:
    """Return means from sums over `num` steps; None of no step."""
    return GradientNorms(before / num, after / num, num_clipped / num) if num else None
