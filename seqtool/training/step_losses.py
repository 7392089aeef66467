"""The losses of training steps: fetched together, joined over processes, judged, summed up."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqtool.core.errors import TrainingError
from seqtool.training.processes import Group
from seqtool.training.state import RunState

# nats per item above which a loss has exploded, whatever the vocabulary
LOSS_LIMIT = 50.0
LOSS_LIMIT_FACTOR = 3.0
AFTER_FAILURE = "the last good state is kept: add --resume with a lower --lr or --clip"


class StepLosses:
    """The losses of a run's steps, those of the last few not yet known.

    Args:
        run: where the run stands; its sums grow as losses are fetched.
        items: what a task counts.
        group: the processes that train together.

    Attributes:
        pending: step, mean loss and items of the steps that are not yet fetched.
        nats, num_items: of the steps fetched since the last report.
    """

    def __init__(self, run: RunState, items: str, group: Group) -> None:
        self.run, self.items, self.group = run, items, group
        self.pending: list[tuple[int, Tensor, int]] = []
        self.forget()

    def forget(self) -> None:
        """Begin to sum up anew, for the next report."""
        self.nats, self.num_items = 0.0, 0

    def add(self, step: int, loss: Tensor, num_items: int) -> None:
        """Note a step, without waiting for its loss."""
        self.pending.append((step, loss.detach(), num_items))

    def fetch(self) -> None:
        """Fetch the pending losses, which waits for a GPU, and judge them.

        Raises:
            TrainingError: one is such that no training comes back from it.
        """
        if not self.pending:
            return
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
        totals = self.group.totals(
            [total for loss, items in losses for total in (loss * items, items)]
        )
        pairs = zip(totals[::2], totals[1::2], strict=True)
        return [(total / num_items, int(num_items)) for total, num_items in pairs]

    def judge(self, loss: float, step: int) -> None:
        """Refuse a loss that no training comes back from.

        Raises:
            TrainingError: it is NaN, infinite or far above that of the first batch.
        """
        if self.run.first_loss is None and math.isfinite(loss):
            self.run.first_loss = loss
        limit = max(LOSS_LIMIT, LOSS_LIMIT_FACTOR * (self.run.first_loss or 0.0))
        if math.isfinite(loss) and loss <= limit:
            return
        what = "is not a number" if math.isnan(loss) else "is infinite"
        if math.isfinite(loss):
            what = f"exploded to {loss:.1f} nats per {self.items.removesuffix('s')}"
        raise TrainingError(
            f"the loss {what} at step {step:,} (epoch {self.run.epoch + 1})", hint=AFTER_FAILURE
        )
