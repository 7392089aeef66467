"""What the training runs on treebanks share: their record, and their course."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from seqtool.core import checkpoint, storage
from seqtool.core.checkpoint import Header
from seqtool.core.config import Config, from_dict, to_dict
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.progress import Event
from seqtool.training import hardware
from seqtool.training.config import TrainingConfig
from seqtool.training.loop import train
from seqtool.training.run import TrainedModel, complete, finish
from seqtool.training.task import Task

RUN_VERSION = 1

C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class RunRecord(Generic[C]):
    """What `--resume` needs when nothing else is typed: `run.json`.

    Attributes:
        kind: of the model.
        config: all settings; nothing is left to be chosen.
        train: the treebank's files.
        dev: those of the validation part; None for a tenth of the treebank.
        embeddings: a file of word vectors.
        skip_invalid: whether broken sentences are left out.
        threads: as they were asked for.
        command: what was typed.
        lm: the directory of a language model, which the run has a copy of.
    """

    kind: str
    config: C
    train: tuple[str, ...]
    dev: str | None = None
    embeddings: str | None = None
    skip_invalid: bool = False
    threads: int | None = None
    command: str = ""
    lm: str | None = None

    def write(self, output: Path) -> None:
        """Write `run.json` in the run directory."""
        content = {"format_version": RUN_VERSION, **vars(self)}
        content |= {"config": to_dict(self.config), "train": list(self.train)}
        storage.write_json(output / checkpoint.RUN, content)

    @classmethod
    def read(cls, output: Path, kind: str, config: type[C]) -> RunRecord[C]:
        """Read `run.json` of a run directory.

        Args:
            output: the directory.
            kind: of the model.
            config: the class of its settings.

        Raises:
            ModelError: there is no run of that kind, or its record is damaged.
        """
        storage.restore(output)
        path = output / checkpoint.RUN
        try:
            content = storage.read_object(path)
            if content.get("kind") != kind:
                raise ModelError(
                    f"the run is not one of a {kind}", hint="name another with -o", path=output
                )
            if content["format_version"] > RUN_VERSION:
                raise ModelError("made by a newer seqtool", hint="upgrade seqtool", path=path)
            settings = from_dict(config, content["config"])
            names = [field.name for field in dataclasses.fields(cls) if field.name != "config"]
            values = {name: content[name] for name in names}
            values["train"] = tuple(map(str, values["train"]))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ModelError(
                "no run to resume is there", hint="train one first, without --resume", path=output
            ) from error
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            raise ModelError(
                "the run's record is damaged", hint="start again with --force", path=path
            ) from error
        return cls(config=settings, **values)


def open_record(
    output: Path,
    kind: str,
    config: C | None,
    default: C,
    train_files: Sequence[str | Path] | str | Path | None,
    *,
    wanted: str,
    dev: str | Path | None,
    embeddings: str | Path | None = None,
    lm: str | Path | None = None,
    resume: bool,
    force: bool,
    skip_invalid: bool,
    threads: int | None,
    command: str,
) -> RunRecord[C]:
    """The record of a new run, or of one that is resumed, with what was given for it now.

    Args:
        output: the run's directory.
        kind: of the model.
        config: settings, if any are given.
        default: those of a new run without.
        train_files: its treebank.
        wanted: what that has to be, for a hint.
        dev: its validation part.
        embeddings: a file of word vectors; a run that is resumed has read its own.
        lm: the directory of a language model; a run that is resumed has a copy of its own.
        resume: take up the record that is there.
        force: replace a run that is there.
        skip_invalid: whether broken sentences are left out.
        threads: as they are asked for.
        command: what was typed.

    Raises:
        ModelError: there is no run to resume.
        ConfigError: no treebank is given, or one that cannot be read twice.
        OutputError: the directory exists, and nothing says what is to become of it.
    """
    if resume:
        record = RunRecord.read(output, kind, type(default))
        return dataclasses.replace(
            record,
            config=config or record.config,
            train=_absolute_paths(train_files) or record.train,
            dev=_absolute_path(dev) or record.dev,
            threads=record.threads if threads is None else threads,
        )
    checkpoint.check_output(output, force=force)
    if not train_files:
        raise ConfigError("no treebank is given", hint=f"name {wanted}")
    return RunRecord(
        kind,
        config or default,
        _absolute_paths(train_files),
        _absolute_path(dev),
        _absolute_path(embeddings),
        skip_invalid,
        threads,
        command,
        _absolute_path(lm),
    )


def _absolute_paths(paths: Sequence[str | Path] | str | Path | None) -> tuple[str, ...]:
    """Paths that stay right when the run is resumed elsewhere; `-` cannot be read twice.

    Raises:
        ConfigError: one is `-`.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    if paths and "-" in map(str, paths):
        raise ConfigError("a treebank cannot come from stdin", hint="write it to a file first")
    return tuple(str(Path(path).absolute()) for path in paths or ())


def _absolute_path(path: str | Path | None) -> str | None:
    """The same of a file that may not be given."""
    return None if path is None else str(Path(path).absolute())


def with_precision(training: TrainingConfig, device: str) -> TrainingConfig:
    """Settings with precision `auto` decided: bfloat16 also on a processor that it is faster on."""
    if training.precision != "auto":
        return training
    precision = hardware.resolve_precision("auto", device)
    if device == "cpu" and _bf16_is_faster():
        precision = "bf16"
    return dataclasses.replace(training, precision=precision)  # type: ignore[arg-type]


def _bf16_is_faster() -> bool:
    """Whether products of a small network's size take less than 0.7 of float32's time here."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 256, dtype=dtype)
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - begin)
        seconds[dtype] = min(times[1:])
    return seconds[torch.bfloat16] < 0.7 * seconds[torch.float32]


def fingerprint(config: Config, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a continued run must share with its beginning.

    Args:
        config: settings of sections `model`, `learning` and `training`.
        summary: numbers that tell its data from others.
    """
    settings = to_dict(config)
    return {
        "model": settings["model"],
        "learning": settings["learning"],
        "training": {name: settings["training"][name] for name in ("seed", "optimiser")},
        "treebank": dict(summary),
    }


class TreebankTask(Task, Protocol):
    """A task of the training loop that knows its settings, in which nothing is left to choose."""

    config: Any

    @property
    def summary(self) -> Mapping[str, Any]:
        """Numbers that tell its data from others."""


def train_on_treebank(
    record: RunRecord[C],
    output: Path,
    prepare: Callable[[RunRecord[C], str], TreebankTask],
    card: Callable[[Header], str],
    *,
    resume: bool,
    device: str,
    on_event: Callable[[Event], None],
    should_stop: Callable[[int], bool] | None,
) -> TrainedModel:
    """Train what a record says, or go on with it, to the finished model directory.

    Args:
        record: of the run.
        output: its directory.
        prepare: reads the treebank and returns the task; called with the record and the device.
        card: makes the model card.
        resume: go on where the run was saved.
        device: as it is asked for.
        on_event: called with every event of the run.
        should_stop: asked with the step number before each step; True saves and interrupts.

    Raises:
        Interrupted: it was stopped; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    device = hardware.choose_device(device)
    hardware.set_threads(record.threads)
    hardware.prepare_device(device)
    with nullcontext() if resume else storage.replacing(output):
        task = prepare(record, device)
        record = dataclasses.replace(record, config=task.config)
        if not resume:
            record.write(output)
    events = train(
        task,
        task.config.training,
        output,
        device=device,
        fingerprint=fingerprint(task.config, task.summary),
        resume=resume,
        should_stop=should_stop,
    )
    run = complete(
        events,
        output,
        f"train-{record.kind}",
        on_event=on_event,
        on_started=lambda: record.write(output) if resume else None,
    )
    return finish(output, run, task.items, card)
