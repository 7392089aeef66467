"""What the training loop asks of what it trains: the protocols `Task` and `OnlineTask`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


class Task(Protocol):
    """What is trained: a module, its batches, its loss and its validation.

    Where several processes train, each has a task of its own with a part of every batch, parts of
    equal size; `validate` gives all of them the same scores.
    """

    items: str  # what is counted ("tokens"); of tokens, the perplexity is shown
    score: str  # the key of `validate()` that decides which epoch is best
    larger_is_better: bool  # of that score

    @property
    def module(self) -> nn.Module:
        """Return the module that has every trained parameter."""

    def start_epoch(self, epoch: int) -> int:
        """Begin epoch `epoch` (from 0): reset what is carried; return its number of steps."""

    def set_progress(self, done: float) -> None:
        """Hear what share of the stage is done when the next batch is learnt, from 0 to 1."""

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss (nats per item) of batch `index` and its number of items.

        It depends on the weights, the random state and what is carried, and changes only these two.
        Its gradient may be that of more than its value, of penalties.
        """

    def rate_factor(self, index: int) -> float:
        """Return what the learning rate of batch `index` is multiplied by."""

    def validate(self) -> dict[str, float]:
        """Measure the module, in evaluation mode, on the validation part."""

    def carried(self) -> dict[str, Tensor]:
        """Return the tensors carried from batch to batch, to be saved."""

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the module as a model directory."""


@runtime_checkable
class OnlineTask(Task, Protocol):
    """A task that takes its steps itself: a perceptron, say, which has updates but no gradient.

    It works on the CPU. The parameters of its module need no gradient, so that no optimiser moves
    them; with its buffers they are all that is learnt, and are saved and restored as others are.
    `loss` only measures a batch.
    """

    def learn(self, index: int, rate: float) -> tuple[Tensor, int]:
        """Learn batch `index` at a learning rate; return the same as `loss`.

        The loss of each item is taken before it is learnt.
        """
