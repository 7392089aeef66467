"""Events of a training run, and how they are shown: Rich on a terminal, plain lines elsewhere.

Training yields events and never prints. `EventLog` writes them to `log.jsonl`, `Display` shows them
and `TensorBoard` hands them to the program of that name. Losses are nats per token.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment

from seqtool.core import terminal
from seqtool.core.errors import counted
from seqtool.core.units import perplexity_of

OnProgress = Callable[[int, int | None], None]
PLAIN_LINE_SECONDS = 10.0
TOKENS = "tokens"  # the items of a text: a loss of them is a perplexity too


@dataclass(frozen=True)
class RunStarted:
    """Training begins, or continues at `step`."""

    step: int
    total_steps: int
    epochs: int
    num_parameters: int
    machine: Mapping[str, str]
    resumed: bool


@dataclass(frozen=True)
class GradientNorms:
    """The norm of the gradient of all dense weights together, over some steps.

    Attributes:
        norm: its mean before clipping.
        clipped_norm: its mean after it.
        clipped: the share of the steps that were clipped.
    """

    norm: float
    clipped_norm: float
    clipped: float


@dataclass(frozen=True)
class StepDone:
    """Some optimiser steps were made; loss and speed are over these steps."""

    epoch: int
    step: int
    loss: float
    items_per_second: float
    learning_rate: float
    seconds_left: float
    items: str = TOKENS
    gradients: GradientNorms | None = None


@dataclass(frozen=True)
class EpochDone:
    """An epoch ended and was validated; `scores` are those of the validation part."""

    epoch: int
    step: int
    loss: float
    scores: Mapping[str, float]
    is_best: bool
    items_per_second: float
    learning_rate: float
    seconds: float
    items: str = TOKENS
    gradients: GradientNorms | None = None


@dataclass(frozen=True)
class RunFinished:
    """Training ended; reason is "finished", "stopped early" or "interrupted"."""

    reason: str
    epoch: int
    step: int
    best_epoch: int
    best_scores: Mapping[str, float]
    seconds: float


Event = RunStarted | StepDone | EpochDone | RunFinished
_EVENT_NAMES = {
    RunStarted: "run_started",
    StepDone: "step",
    EpochDone: "epoch",
    RunFinished: "run_finished",
}


def to_json(event: Event) -> dict[str, Any]:
    """Return an event as one line of `log.jsonl` holds it; numbers that are not finite are null."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        return value

    return {"event": _EVENT_NAMES[type(event)], **plain(dataclasses.asdict(event))}


class EventLog:
    """`log.jsonl`: one event a line, flushed at once; none where another process writes it.

    What is there is cut to `keep_bytes` first: what came after a saved state is run again.
    """

    def __init__(self, path: Path | None, *, keep_bytes: int | None = None) -> None:
        self._stream = None if path is None else path.open("ab")
        if self._stream is not None and keep_bytes is not None:
            self._stream.truncate(min(keep_bytes, self._stream.tell()))
            self._stream.seek(0, io.SEEK_END)

    def write(self, event: Event) -> None:
        """Append one event."""
        if self._stream is None:
            return
        line = json.dumps({"time": round(time.time(), 3), **to_json(event)}, ensure_ascii=False)
        self._stream.write(line.encode("utf-8") + b"\n")
        self._stream.flush()

    def size(self) -> int:
        """Return the number of bytes written so far."""
        return 0 if self._stream is None else self._stream.tell()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


def format_seconds(seconds: float) -> str:
    """Return a duration as people read it: 0.4s, 42s, 3:07, 1:02:03."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores as `valid perplexity 92.31`."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in scores.items())


def _describe_step(event: StepDone, *, short: bool = False) -> str:
    perplexity = ""
    if event.items == TOKENS:
        value = perplexity_of(event.loss)
        perplexity = f"ppl {value:,.0f}  " if short else f"perplexity {value:,.1f}  "
    unit = "" if short else f" {event.items}"
    return f"loss {event.loss:.3f}  {perplexity}{event.items_per_second:,.0f}{unit}/s"


def describe(event: Event, *, total_steps: int = 0, epochs: int = 0) -> str:
    """Return an event as one plain line."""
    match event:
        case RunStarted():
            machine = event.machine
            together = f" in each of {num} processes" if (num := machine.get("processes")) else ""
            verb = f"continuing at step {event.step:,} of" if event.resumed else "training for"
            return (
                f"{verb} {counted(event.total_steps, 'step')} ({counted(event.epochs, 'epoch')}), "
                f"{counted(event.num_parameters, 'parameter')}, on {machine.get('device', '?')} "
                f"with {counted(machine.get('threads', '?'), 'thread')}{together}"
            )
        case StepDone():
            return (
                f"epoch {event.epoch}/{epochs}  step {event.step:,}/{total_steps:,}  "
                f"{_describe_step(event)}  {format_seconds(event.seconds_left)} left"
            )
        case EpochDone():
            best = "  (best so far)" if event.is_best else ""
            loss = f"loss {event.loss:.3f}"
            if event.items == TOKENS:
                loss = f"perplexity {perplexity_of(event.loss):,.1f}"
            return (
                f"epoch {event.epoch}/{epochs}  train {loss}  {format_scores(event.scores)}  "
                f"{event.items_per_second:,.0f} {event.items}/s  lr {event.learning_rate:.4g}  "
                f"{format_seconds(event.seconds)}{best}"
            )
        case RunFinished():
            scores = f", {format_scores(event.best_scores)}" if event.best_scores else ""
            best = f": best epoch {event.best_epoch}{scores}" if event.best_epoch else ""
            return f"{event.reason} after {format_seconds(event.seconds)}{best}"


class Listener(ABC):
    """Takes the events of one run as they come; a context manager that closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def show(self, event: Event) -> None:
        """Take one event."""

    @abstractmethod
    def close(self) -> None:
        """End, after the last event or an error."""


class _SafeConsole(Console):
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Give pieces of what is drawn, whose texts a terminal only shows."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=terminal.safe(segment.text))


def open_console(*, err: bool = False, **settings: Any) -> Console:
    """Return what draws on stdout or stderr; nothing in the texts that it draws moves a terminal.

    Args:
        err: stderr.
        settings: those of Rich's Console.
    """
    return _SafeConsole(file=terminal.drawn(err=err), **settings)


class Display(Listener):
    """Shows the events of one run on stderr, or of several that have names.

    On a terminal a live bar with the epoch, step, loss, perplexity, tokens per second and the time
    left; elsewhere a line per epoch and one every ten seconds between.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or open_console(err=True, highlight=False)
        self._progress: Progress | None = None
        self._runs: dict[str, _ShownRun] = {}
        self._is_narrow = self._console.width < 105

    def close(self) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()

    def show(self, event: Event, name: str = "") -> None:
        """Show one event, of the run of that name."""
        run = self._runs.setdefault(name, _ShownRun(f"{name}: " if name else ""))
        match event:
            case RunStarted():
                run.total_steps, run.epochs = event.total_steps, event.epochs
                self._line(run, event)
                if self._console.is_terminal:
                    self._start_bar(run, event)
            case StepDone():
                self._step(run, event)
            case EpochDone():
                self._line(run, event)
            case RunFinished():
                self._stop_bar(run)
                if event.reason != "interrupted":  # of an interruption the error tells more
                    self._line(run, event)

    def note(self, text: str) -> None:
        """Show a line, above the bars; printed in another way, it would be overwritten by them."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _line(self, run: _ShownRun, event: Event) -> None:
        self.note(run.prefix + describe(event, total_steps=run.total_steps, epochs=run.epochs))
        run.last_line = time.monotonic()

    def _start_bar(self, run: _ShownRun, event: RunStarted) -> None:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}epoch {task.fields[epoch]}", markup=False),
                BarColumn(bar_width=6 if self._is_narrow else 20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                console=self._console,
                transient=True,
            )
        run.task = self._progress.add_task(
            run.prefix,
            total=event.total_steps,
            completed=event.step,
            epoch=f"-/{event.epochs}",
            state="",
        )
        self._progress.start()

    def _stop_bar(self, run: _ShownRun) -> None:
        if self._progress is not None and run.task is not None:
            self._progress.remove_task(run.task)
            run.task = None
            if not self._progress.task_ids:  # started again, it would erase what is above it
                self._progress.stop()
                self._progress = None

    def _step(self, run: _ShownRun, event: StepDone) -> None:
        if self._progress is not None and run.task is not None:
            left = f"{format_seconds(event.seconds_left)} left"
            state = f"{_describe_step(event, short=self._is_narrow)}  {left}"
            epoch = f"{event.epoch}/{run.epochs}"
            self._progress.update(run.task, completed=event.step, epoch=epoch, state=state)
        elif time.monotonic() - run.last_line >= PLAIN_LINE_SECONDS:
            self._line(run, event)


@dataclass
class _ShownRun:
    """What a display knows of a run."""

    prefix: str  # of its lines
    total_steps: int = 0
    epochs: int = 0
    task: TaskID | None = None  # its bar, if there is one
    last_line: float = dataclasses.field(default_factory=lambda: time.monotonic())  # when shown


@contextmanager
def progress_bar(description: str, *, is_bytes: bool = False) -> Iterator[OnProgress]:
    """Show a bar on stderr while a long command works, and give its `on_progress(done, total)`.

    Nothing is shown when stderr is no terminal: the command's summary says what was done.
    """
    if not terminal.stream(err=True).isatty():
        yield lambda done, total: None
        return
    amounts: list[ProgressColumn] = [MofNCompleteColumn()]
    if is_bytes:
        amounts = [DownloadColumn(), TransferSpeedColumn()]
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        *amounts,
        TimeRemainingColumn(),
        console=open_console(err=True),
        transient=True,
    ) as progress:
        task = progress.add_task(description, total=None)

        def on_progress(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        yield on_progress
