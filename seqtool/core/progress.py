"""Events of a training run, and how they are shown: Rich on a terminal, plain lines elsewhere.

Training yields events and never prints. `EventLog` writes them to `log.jsonl`, `Display` shows them
and `TensorBoard` hands them to the program of that name. Losses are nats per token.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from seqtool.core import terminal
from seqtool.core.errors import counted
from seqtool.core.units import perplexity_of

if TYPE_CHECKING:  # imported on use: Rich takes long
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID
    from rich.segment import Segment

P = ParamSpec("P")
R = TypeVar("R")

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
    time_limit: float | None = None  # seconds; where there is one, steps and epochs are not known
    precision: str = "float32"  # of products, as it really is
    precision_note: str = ""  # where it is not what was asked for, or slower


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
    passes: float = 1.0  # over the training part, with the last one as far as it came


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
        self._stream = open(os.devnull if path is None else path, "ab")  # noqa: SIM115
        if path is not None and keep_bytes is not None:
            self._stream.truncate(min(keep_bytes, self._stream.tell()))
            self._stream.seek(0, io.SEEK_END)

    def write(self, event: Event) -> None:
        """Append one event."""
        line = json.dumps({"time": round(time.time(), 3), **to_json(event)}, ensure_ascii=False)
        self._stream.write(line.encode("utf-8") + b"\n")
        self._stream.flush()

    def size(self) -> int:
        """Return the number of bytes written so far."""
        return self._stream.tell()

    def close(self) -> None:
        """Close the file."""
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


def _of(number: int, total: int, mark: str = ",") -> str:
    """Return a number with the total, if that is known; the mark stands between thousands."""
    return f"{number:{mark}}/{total:{mark}}" if total else f"{number:{mark}}"


def describe(event: Event, *, total_steps: int = 0, epochs: int = 0) -> str:
    """Return an event as one plain line."""
    match event:
        case RunStarted():
            machine = event.machine
            together = f" in each of {num} processes" if (num := machine.get("processes")) else ""
            whole = f"{counted(event.total_steps, 'step')} ({counted(event.epochs, 'epoch')})"
            rest = " of"
            if event.time_limit is not None:
                whole = f"{format_seconds(event.time_limit)}, as many epochs as fit in"
                rest = ", in all for"
            verb = f"continuing at step {event.step:,}{rest}" if event.resumed else "training for"
            return (
                f"{verb} {whole}, "
                f"{counted(event.num_parameters, 'parameter')}, on {machine.get('device', '?')} "
                f"with {counted(machine.get('threads', '?'), 'thread')}{together}"
                + (f"; {event.precision_note}" if event.precision_note else "")
            )
        case StepDone():
            is_text = event.items == TOKENS
            perplexity = f"perplexity {perplexity_of(event.loss):,.1f}  " if is_text else ""
            return (
                f"epoch {_of(event.epoch, epochs)}  step {_of(event.step, total_steps)}  "
                f"loss {event.loss:.3f}  {perplexity}{event.items_per_second:,.0f} {event.items}/s"
                f"  {format_seconds(event.seconds_left)} left"
            )
        case EpochDone():
            best = "  (best so far)" if event.is_best else ""
            loss = f"loss {event.loss:.3f}"
            if event.items == TOKENS:
                loss = f"perplexity {perplexity_of(event.loss):,.1f}"
            return (
                f"epoch {_of(event.epoch, epochs)}  train {loss}  {format_scores(event.scores)}  "
                f"{event.items_per_second:,.0f} {event.items}/s  lr {event.learning_rate:.4g}  "
                f"{format_seconds(event.seconds)}{best}"
            )
        case RunFinished():
            scores = f", {format_scores(event.best_scores)}" if event.best_scores else ""
            best = f": best epoch {event.best_epoch}{scores}" if event.best_epoch else ""
            return f"{event.reason} after {format_seconds(event.seconds)}{best}"


class Listener(AbstractContextManager[Any]):
    """Takes the events of one run by `show`; a context manager that closes it."""

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End, after the last event or an error."""


@cache
def _safe_console() -> type[Console]:
    from rich.console import Console

    class SafeConsole(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
            """Give pieces of what is drawn, whose texts a terminal only shows."""
            for segment in super().render(*arguments, **options):
                if not segment.control:
                    segment = segment._replace(text=terminal.safe(segment.text))
                yield segment

        def on_broken_pipe(self) -> None:
            """Let the error of a pipe that nobody reads say so."""
            raise

    return SafeConsole


def open_console(*, err: bool = False, **settings: Any) -> Console:
    """Return what draws on stdout or stderr; nothing in the texts that it draws moves a terminal.

    A notebook gets what a file would: lines.

    Args:
        err: stderr.
        settings: those of Rich's Console.
    """
    return _safe_console()(
        file=terminal.stream(err=err, draws=True), force_jupyter=False, **settings
    )


def _bars(console: Console, *columns: ProgressColumn) -> Progress:
    """Return bars that begin with their name, and vanish when they stop."""
    from rich.progress import Progress, TextColumn

    name = TextColumn("{task.description}", markup=False)
    return Progress(name, *columns, console=console, transient=True)


class Display(Listener):
    """Shows the events of one run on stderr, or of several that have names.

    On a terminal a live bar with the epoch, step, loss, perplexity, items per second and the time
    left; elsewhere a line per epoch and one every ten seconds between.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or open_console(err=True, highlight=False)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}  # of the bars, by the name of the run
        self._begun: dict[str, RunStarted] = {}
        self._shown_at: dict[str, float] = {}  # when a line was shown last
        self._num_parts = self._num_done = 0  # of a run that has some

    def close(self) -> None:
        """Give the terminal back."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = None

    def plan(self, parts: Sequence[str]) -> None:
        """Show from now on how many of all parts are done."""
        self._num_parts = len(parts)

    def estimate(self, seconds: float) -> None:
        """Say about how long all parts take together."""
        minutes = counted(max(1, round(seconds / 60)), "minute")
        self.note(f"all {self._num_parts} parts will take about {minutes}")

    def show(self, event: Event, name: str = "") -> None:
        """Show one event, of the run of that name."""
        self._shown_at.setdefault(name, time.monotonic())
        if isinstance(event, RunStarted):
            self._begun[name] = event
        if isinstance(event, RunFinished):
            self._num_done += 1
            if self._bars is not None and name in self._tasks:
                self._bars.remove_task(self._tasks.pop(name))
                if not self._tasks:
                    self.close()  # started again, it would erase what is above it
            if event.reason == "interrupted":
                return  # the error says more
        if isinstance(event, StepDone):
            if name in self._tasks:
                return self._move_bar(name, event)
            if time.monotonic() - self._shown_at[name] < PLAIN_LINE_SECONDS:
                return
        begun = self._begun.get(name)
        steps, epochs = (begun.total_steps, begun.epochs) if begun else (0, 0)
        line = describe(event, total_steps=steps, epochs=epochs)
        if self._num_parts and isinstance(event, RunFinished):
            line += f" ({self._num_done} of {self._num_parts} parts)"
        self.note(_prefix(name) + line)
        self._shown_at[name] = time.monotonic()
        if isinstance(event, RunStarted) and self._console.is_terminal:
            self._add_bar(name, event)

    def note(self, text: str) -> None:
        """Show a line, above the bars; printed in another way, it would be overwritten by them."""
        # a file gets a line as it is; on a terminal no word of it is broken at the edge
        self._console.print(text, markup=False, soft_wrap=not self._console.is_terminal)

    def _add_bar(self, name: str, begun: RunStarted) -> None:
        if self._bars is None:
            from rich.progress import BarColumn, TextColumn

            width = max(6, min(20, self._console.width - 74))  # the numbers need the rest
            state = TextColumn("{task.fields[state]}")
            self._bars = _bars(self._console, BarColumn(bar_width=width), state)
        limit = begun.time_limit
        self._tasks[name] = self._bars.add_task(
            f"{_prefix(name)}epoch -{f'/{begun.epochs}' if begun.epochs else ''}",
            total=begun.total_steps if limit is None else limit,
            completed=begun.step if limit is None else 0,
            state=_of(begun.step, begun.total_steps, ""),
        )
        self._bars.start()

    def _move_bar(self, name: str, event: StepDone) -> None:
        assert self._bars is not None
        begun = self._begun[name]
        limit, step = begun.time_limit, _of(event.step, begun.total_steps, "")
        perplexity = f"ppl {perplexity_of(event.loss):,.0f}  " if event.items == TOKENS else ""
        self._bars.update(
            self._tasks[name],
            description=f"{_prefix(name)}epoch {_of(event.epoch, begun.epochs)}",
            completed=event.step if limit is None else limit - event.seconds_left,
            state=f"{step} loss {event.loss:.3f}  {perplexity}"
            f"{event.items_per_second:,.0f}/s  {format_seconds(event.seconds_left)} left",
        )


def _prefix(name: str) -> str:
    return f"{name}: " if name else ""


def shows_progress(*, has_parts: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function that trains show how it goes on, by its argument `progress`.

    True shows it on stderr, False does not; None, the default, does where no `on_event` is given.
    The function itself hears of `on_event` alone. With `has_parts` it trains several models, and
    each is announced by `on_part`.
    """

    @contextmanager
    def opened(arguments: dict[str, Any]) -> Iterator[Callable[..., None]]:
        with Display() as display:
            if has_parts:
                arguments.setdefault("on_part", lambda part: display.note(f"{part} begins"))
                arguments.setdefault("on_plan", display.plan)
                arguments.setdefault("on_estimate", display.estimate)
            yield display.show

    return partial(_shown, "on_event", opened)


def shows_stages(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that works in stages show them, by its argument `progress`.

    As `shows_progress`, with `on_progress` in place of `on_event`.
    """
    return _shown("on_progress", lambda arguments: stage_bars(), function)


def _shown(
    argument: str,
    opened: Callable[[dict[str, Any]], AbstractContextManager[Callable[..., None]]],
    function: Callable[P, R],
) -> Callable[P, R]:
    @wraps(function)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        own: Any = kwargs.get(argument)
        progress = kwargs.pop("progress", None)
        if not (own is None if progress is None else progress):
            return function(*args, **kwargs)
        with opened(kwargs) as show:

            def both(*event: Any) -> None:
                if own is not None:
                    own(*event)
                show(*event)

            kwargs[argument] = both
            return function(*args, **kwargs)

    return shown


@contextmanager
def stage_bars(*, is_bytes: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a bar per stage of the work on a terminal; nothing elsewhere."""
    if not terminal.stream(err=True).isatty():
        yield lambda stage, done, total: None
        return
    from rich import progress as rich

    amount = rich.DownloadColumn() if is_bytes else rich.TaskProgressColumn(show_speed=True)
    left = rich.TimeRemainingColumn(elapsed_when_finished=True)
    with _bars(open_console(err=True), rich.BarColumn(bar_width=30), amount, left) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():  # a stage that tells nothing ends when the next begins
                    bars.update(task, completed=1, total=1)
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show


@contextmanager
def progress_bar(description: str, *, is_bytes: bool = False) -> Iterator[OnProgress]:
    """Show a bar on stderr while a long command works, and give its `on_progress(done, total)`.

    Nothing is shown when stderr is no terminal: the command's summary says what was done.
    """
    with stage_bars(is_bytes=is_bytes) as show:
        show(description, 0, None)
        yield partial(show, description)
