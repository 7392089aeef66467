"""A training run from its first event to its last, for the function behind a `train-*` command.

Beside the model, a run directory holds `run.json`: the settings and what the run was started with,
so that `--resume` needs nothing else typed. It is one JSON object with `format_version`, `config`
and the other attributes of a subclass of `Record`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Generic, Self, TypeVar

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.checkpoint import Header
from seqtool.core.config import Config, to_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError, OutputError, from_os_error
from seqtool.core.one_line import OneLine
from seqtool.core.progress import EpochDone, Event, Listener, RunFinished, RunStarted, StepDone

C = TypeVar("C", bound=Config)

# a field's annotation -> what JSON may hold for it
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "Path": (str,),
    "bool": (bool,),
    "str | None": (str, NoneType),
    "int | None": (int, NoneType),
    "tuple[str, ...]": (list,),
}


class Record(Generic[C]):
    """What `--resume` needs when nothing else is typed.

    A subclass is a frozen dataclass of these attributes and others, whose types are those of
    `_JSON_TYPES`.
    """

    config: C  # all settings
    threads: int | None  # CPU threads as they were asked for; None leaves the choice to torch
    command: str  # what was typed

    def write(self, output: Path) -> None:
        """Write `run.json` in the run directory."""
        content = {"format_version": checkpoint.FORMAT_VERSION, **vars(self)}
        content |= {name: str(value) for name, value in content.items() if isinstance(value, Path)}
        content["config"] = to_dict(self.config)
        storage.write_json(output / checkpoint.RUN, content)

    @classmethod
    def read_as(cls, output: Path, config: type[C], kind: str | None = None) -> Self:
        """Read `run.json` of a run directory; a ModelError if there is none of that kind.

        The kind is that of the model; None for a language model, whose record names none.
        """
        names = {field.name: str(field.type) for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        del names["config"]
        settings, content = _read(output, config, kind, names)
        return cls(config=settings, **content)  # type: ignore[call-arg]


def read_settings(output: Path, config: type[C], kind: str | None = None) -> C:
    """Return the settings that a run directory records; see `Record.read_as`."""
    return _read(output, config, kind, {})[0]


def _read(
    output: Path, config: type[C], kind: str | None, names: Mapping[str, str]
) -> tuple[C, dict[str, Any]]:
    """Return the settings of `run.json`, and other attributes; errors as of `Record.read_as`."""
    path = checkpoint.run_record(output)
    try:
        content = storage.read_object(path)
        if content.get("kind") != kind:
            what = f"the run is not one of a {kind or 'language model'}"
            raise ModelError(what, hint="name another with -o", path=output)
        checkpoint.check_format(content["format_version"], path)
        values = {name: _from_json(content[name], annotation) for name, annotation in names.items()}
        settings = checkpoint.stored_settings(config, content["config"], output / checkpoint.RUN)
        return settings, values
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "train one first, without --resume"
        raise ModelError("no run to resume is there", hint=hint, path=output) from error
    except (ValueError, KeyError, TypeError) as error:
        hint, path = "start again with --force", output / checkpoint.RUN
        raise ModelError("the run's record is damaged", hint=hint, path=path) from error


def _from_json(value: Any, kind: str) -> Any:
    """Return what JSON holds for a field as that field's value; a TypeError if of another type."""
    if type(value) not in _JSON_TYPES[kind] or (isinstance(value, int) and value < 0):
        raise TypeError(f"{value!r} is no {kind}")
    if kind == "tuple[str, ...]":
        return tuple(map(str, value))
    return Path(value) if kind == "Path" else value


@dataclass(frozen=True)
class CompletedRun:
    """A run that came to its end."""

    finished: RunFinished  # its last event
    items_per_second: float | None  # of the median epoch trained now; None when there was none left
    precision: str  # of its products, as the first event tells


@dataclass(frozen=True)
class Trained(OneLine):
    """What every function that trains returns, each with a class of its own."""

    path: Path  # the model directory

    @cached_property
    def model(self) -> Any:
        """The model, opened from `path`, to be used at once."""
        return checkpoint.load(self.path)


@dataclass(frozen=True)
class TrainedModel(Trained):
    """What the functions behind `train-*` commands return that train one network."""

    shown = ("path", "scores", "seconds", "num_parameters", "epochs")

    # of the validation part, `train_seconds`, and the items of the task per second of training
    # where a whole epoch was trained
    scores: dict[str, float]
    seconds: float  # training time, validation included, over all continuations
    num_parameters: int  # trained numbers
    epochs: int  # completed
    precision: str  # of products, as it really was
    passes: float  # over the training part, with the last one as far as it came

    @property
    def is_fit(self) -> bool:
        """Whether all of the training part was read once: else the model is not fit for use."""
        return self.passes >= 1


def complete(
    events: Generator[Event, None, None],
    output: Path,
    command: str,
    *,
    on_event: Callable[[Event], None],
    on_started: Callable[[], None] = lambda: None,
) -> CompletedRun:
    """Go through the events of `seqtool.training.loop.train`.

    `on_started` is called once the run has begun: a resumed one has then accepted its settings.
    Hints name the `command` that trains, such as `train-lm`. An Interrupted error says that it was
    stopped with its state saved, an OutputError that something could not be written.
    """
    resume = f"continue with: {runtime.resuming(command, output)}"
    finished: RunFinished | None = None
    precision = ""
    speeds: list[float] = []
    try:
        with closing(events):
            for event in events:
                if isinstance(event, RunStarted):
                    precision = event.precision
                    on_started()
                on_event(event)
                if isinstance(event, EpochDone):
                    speeds.append(event.items_per_second)
                elif isinstance(event, RunFinished):
                    finished = event
    except OSError as error:
        reason = from_os_error(error)
        hint, path = f"make room for it, then {resume}", reason.path or output
        raise OutputError(reason.message, hint=hint, path=path) from error
    assert finished is not None
    if finished.reason == "interrupted":
        what = f"the run was interrupted at step {finished.step:,}; the state is saved"
        raise Interrupted(what, hint=resume)
    return CompletedRun(finished, sorted(speeds)[len(speeds) // 2] if speeds else None, precision)


def finish(
    output: Path,
    run: CompletedRun,
    items: str,
    card: Callable[[Header], str],
    *,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> TrainedModel:
    """Write scores, the time of training and its speed into the header and card of the best model.

    The speed is that of `items`, such as tokens. `measured` are scores of the finished model,
    beside those of its validation.
    """
    header = checkpoint.read_header(output)
    scores = {**header.scores, **measured, "train_seconds": run.finished.seconds}
    if run.items_per_second is not None:
        scores[f"{items}_per_second"] = run.items_per_second
    header = dataclasses.replace(header, scores=scores, precision=run.precision)
    checkpoint.amend(output, header, card(header))
    seconds, epochs = run.finished.seconds, run.finished.epoch
    passes = run.finished.passes
    return TrainedModel(
        output, scores, seconds, header.num_parameters, epochs, run.precision, passes
    )


class TensorBoard(Listener):
    """Writes the numbers of a run for TensorBoard, which is imported for this alone.

    The directory is made with the first event. A ConfigError says how to install the extra.
    """

    def __init__(self, directory: Path) -> None:
        try:  # now, so that nobody trains for hours to learn that it is missing
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            hint = "pip install 'seqtool[tensorboard]'"
            raise ConfigError("TensorBoard is not installed", hint=hint) from error
        self._writer_class: Callable[..., Any] = SummaryWriter
        self._directory = directory
        self._writer: Any = None

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()

    def show(self, event: Event) -> None:
        """Write the numbers of one event."""
        scalars: dict[str, float] = {}
        match event:
            case RunStarted():  # not before: the run directory is made by then
                # steps after the saved state are run again: drop what was written of them
                purge = event.step + 1 if event.resumed else None
                self._writer = self._writer_class(str(self._directory), purge_step=purge)
            case StepDone():
                scalars = {
                    "train/loss": event.loss,
                    "train/tokens_per_second": event.items_per_second,
                    "train/learning_rate": event.learning_rate,
                }
                if event.gradients is not None:
                    scalars["train/gradient_norm"] = event.gradients.norm
                    scalars["train/clipped_steps"] = event.gradients.clipped
            case EpochDone():
                scalars = {f"valid/{name}": value for name, value in event.scores.items()}
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, event.step)
