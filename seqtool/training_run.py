"""A training run from its first event to its last, for the function behind a `train-*` command."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seqtool import processes
from seqtool.errors import Interrupted, OutputError, from_os_error
from seqtool.progress import EpochDone, Event, RunFinished, RunStarted


@dataclass(frozen=True)
class CompletedRun:
    """A run that came to its end.

    Attributes:
        finished: its last event.
        items_per_second: of the median epoch trained now; None when there was none left to train.
    """

    finished: RunFinished
    items_per_second: float | None


def complete(
    events: Generator[Event, None, None],
    output: Path,
    command: str,
    *,
    on_event: Callable[[Event], None],
    on_started: Callable[[], None] = lambda: None,
) -> CompletedRun:
    """Go through the events of `seqtool.training.train`.

    Args:
        events: of the run.
        output: its directory.
        command: what trains, such as `train-lm`; the hints name it.
        on_event: called with every event.
        on_started: called once the run has begun: a resumed one has then accepted its settings.

    Raises:
        Interrupted: it was stopped; its state is saved.
        OutputError: something could not be written.
    """
    resume = f"continue with: {processes.program()} {command} --resume -o {output}"
    finished: RunFinished | None = None
    speeds: list[float] = []
    try:
        with closing(events):
            for event in events:
                if isinstance(event, RunStarted):
                    on_started()
                on_event(event)
                if isinstance(event, EpochDone):
                    speeds.append(event.items_per_second)
                elif isinstance(event, RunFinished):
                    finished = event
    except OSError as error:
        reason = from_os_error(error)
        raise OutputError(
            reason.message, hint=f"make room for it, then {resume}", path=reason.path or output
        ) from error
    assert finished is not None
    if finished.reason == "interrupted":
        raise Interrupted(
            f"the run was interrupted at step {finished.step:,}; the state is saved", hint=resume
        )
    return CompletedRun(finished, sorted(speeds)[len(speeds) // 2] if speeds else None)
