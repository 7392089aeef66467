"""The events of a training run as TensorBoard reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqtool.core.errors import ConfigError
from seqtool.core.progress import EpochDone, Event, Listener, RunStarted, StepDone


class TensorBoard(Listener):
    """Writes the numbers of a run for TensorBoard, which is imported for this alone.

    Args:
        directory: where its files go; made with the first event.

    Raises:
        ConfigError: the extra `tensorboard` is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:  # now, so that nobody trains for hours to learn that it is missing
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "TensorBoard is not installed", hint="pip install 'seqtool[tensorboard]'"
            ) from error
        self._writer_class: Callable[..., Any] = SummaryWriter
        self._directory = directory
        self._writer: Any = None

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()

    def show(self, event: Event) -> None:
        """Write the numbers of one event."""
        if isinstance(event, RunStarted):  # not before: the run directory is made by then
            # steps after the saved state are run again: drop what was written of them
            purge = event.step + 1 if event.resumed else None
            self._writer = self._writer_class(str(self._directory), purge_step=purge)
        scalars: dict[str, float] = {}
        if isinstance(event, StepDone):
            scalars = {
                "train/loss": event.loss,
                "train/tokens_per_second": event.items_per_second,
                "train/learning_rate": event.learning_rate,
            }
        elif isinstance(event, EpochDone):
            scalars = {f"valid/{name}": value for name, value in event.scores.items()}
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, event.step)
