"""A training run from its first event to its last, for the function behind a `train-*` command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seqtool.core import checkpoint, runtime
from seqtool.core.checkpoint import Header
from seqtool.core.errors import Interrupted, OutputError, from_os_error
from seqtool.core.progress import EpochDone, Event, RunFinished, RunStarted


@dataclass(frozen=True)
class CompletedRun:
    """A run that came to its end.

    Attributes:
        finished: its last event.
        items_per_second: of the median epoch trained now; None when there was none left to train.
    """

    finished: RunFinished
    items_per_second: float | None


@dataclass(frozen=True)
class TrainedModel:
    """What the functions behind `train-*` commands return, each with a class of its own.

    Attributes:
        path: the model directory.
        scores: of the validation part, `train_seconds`, and the items of the task per second of
            training where a whole epoch was trained.
        seconds: training time, validation included, over all continuations.
        num_parameters: trained numbers.
        epochs: epochs completed.
    """

    path: Path
    scores: dict[str, float]
    seconds: float
    num_parameters: int
    epochs: int


def complete(
    events: Generator[Event, None, None],
    output: Path,
    command: str,
    *,
    on_event: Callable[[Event], None],
    on_started: Callable[[], None] = lambda: None,
) -> CompletedRun:
    """Go through the events of `seqtool.training.loop.train`.

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
    resume = f"continue with: {runtime.program()} {command} --resume -o {output}"
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


def finish(
    output: Path,
    run: CompletedRun,
    items: str,
    card: Callable[[Header], str],
    *,
    measured: Mapping[str, float] | None = None,
) -> TrainedModel:
    """Write scores, the time of training and its speed into the header and card of the best model.

    Args:
        output: the model directory.
        run: what trained it.
        items: what the speed is of, such as `tokens`.
        card: makes the model card.
        measured: scores of the finished model, beside those of its validation.
    """
    header = checkpoint.read_header(output)
    scores = {**header.scores, **(measured or {}), "train_seconds": run.finished.seconds}
    if run.items_per_second is not None:
        scores[f"{items}_per_second"] = run.items_per_second
    header = dataclasses.replace(header, scores=scores)
    checkpoint.amend(output, header, card(header))
    return TrainedModel(
        path=output,
        scores=scores,
        seconds=run.finished.seconds,
        num_parameters=header.num_parameters,
        epochs=run.finished.epoch,
    )
