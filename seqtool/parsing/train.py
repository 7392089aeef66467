"""Training of parsers: `train_parser`, and what it records to be resumed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqtool import checkpoint, runtime, storage
from seqtool.config import from_dict, to_dict
from seqtool.errors import (
    ConfigError,
    ModelError,
)
from seqtool.parsing.config import ParserConfig, preset
from seqtool.parsing.gold import TrainingData, prepare_data
from seqtool.parsing.task import ParserTask
from seqtool.progress import Event
from seqtool.training import train
from seqtool.training_run import CompletedRun, complete

RUN_VERSION = 1


@dataclass(frozen=True)
class TrainedParser:
    """What `train_parser` returns.

    Attributes:
        path: the model directory.
        scores: `dev_las` and `dev_uas` in percent, `train_seconds`, and the
            `configurations_per_second` of training where a whole epoch was trained.
        seconds: training time, validation included, over all continuations.
        num_parameters: trained numbers.
        epochs: epochs completed.
        system: the transition system, as chosen.
    """

    path: Path
    scores: dict[str, float]
    seconds: float
    num_parameters: int
    epochs: int
    system: str


@dataclass(frozen=True)
class RunRecord:
    """What `--resume` needs when nothing else is typed: `run.json`.

    Attributes:
        config: all settings; nothing is left to be chosen.
        train: the treebank's files.
        dev: those of the validation part; None for a tenth of the treebank.
        embeddings: a file of word vectors.
        skip_invalid: whether broken sentences are left out.
        threads: as they were asked for.
        command: what was typed.
    """

    config: ParserConfig
    train: tuple[str, ...]
    dev: str | None = None
    embeddings: str | None = None
    skip_invalid: bool = False
    threads: int | None = None
    command: str = ""

    def write(self, output: Path) -> None:
        """Write `run.json` in the run directory."""
        content = {"format_version": RUN_VERSION, "kind": "parser", **vars(self)}
        content |= {"config": to_dict(self.config), "train": list(self.train)}
        storage.replace_text(output / checkpoint.RUN, storage.to_json(content))

    @classmethod
    def read(cls, output: Path) -> RunRecord:
        """Read `run.json` of a run directory.

        Raises:
            ModelError: there is no run of a parser, or its record is damaged.
        """
        path = output / checkpoint.RUN
        try:
            content = storage.read_object(path)
            if content.get("kind") != "parser":
                raise ModelError(
                    "the run is not one of a parser", hint="name another with -o", path=output
                )
            if content["format_version"] > RUN_VERSION:
                raise ModelError("made by a newer seqtool", hint="upgrade seqtool", path=path)
            config = from_dict(ParserConfig, content["config"])
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
        return cls(config, **values)


def train_parser(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/parser",
    config: ParserConfig | None = None,
    *,
    dev: str | Path | None = None,
    embeddings: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    skip_invalid: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    on_data: Callable[[TrainingData], None] = lambda data: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
) -> TrainedParser:
    """Train a dependency parser.

    Args:
        train_files: CoNLL-U with trees. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, the preset `fast` if not given; those of the run when one is resumed.
        dev: CoNLL-U by whose LAS the best epoch is chosen; without it, every tenth sentence of the
            treebank is kept for that.
        embeddings: a text file of word vectors that forms begin with.
        resume: continue the run in `output` where it was saved.
        force: replace a run that is there.
        skip_invalid: leave out broken sentences.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves the choice to torch.
        on_event: called with every event of the run.
        on_data: called with the data once they are read.
        should_stop: asked with the step number before each step; True saves and interrupts.
        command: what the user typed, for the model card.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    output = Path(output)
    if isinstance(train_files, str | Path):
        train_files = [train_files]
    if resume:
        record = RunRecord.read(output)
        config = config or record.config
        record = dataclasses.replace(
            record,
            config=config,
            train=_absolute(train_files) or record.train,
            dev=record.dev if dev is None else str(Path(dev).absolute()),
            threads=record.threads if threads is None else threads,
        )
    else:
        checkpoint.check_output(output, force=force)
        if not train_files:
            raise ConfigError("no treebank is given", hint="name a CoNLL-U file with trees")
        record = RunRecord(
            config or from_dict(ParserConfig, preset("fast")),
            _absolute(train_files),
            None if dev is None else str(Path(dev).absolute()),
            None if embeddings is None else str(Path(embeddings).absolute()),
            skip_invalid,
            threads,
            command,
        )
    chosen = runtime.choose_device(device)
    runtime.set_threads(record.threads)
    runtime.prepare_device(chosen)
    with ExitStack() as stack:
        if not resume:
            stack.enter_context(storage.replacing(output))
        data = prepare_data(
            record.train,
            record.dev,
            record.config,
            skip_invalid=record.skip_invalid,
            embeddings=record.embeddings,
        )
        config = _resolved(data.config, chosen)
        record = dataclasses.replace(record, config=config)
        on_data(data)
        task = ParserTask(config, data, device=chosen, command=record.command)
        if not resume:
            record.write(output)
    events = train(
        task,
        config.training,
        output,
        device=chosen,
        fingerprint=_fingerprint(config, data),
        resume=resume,
        should_stop=should_stop,
    )
    run = complete(
        events,
        output,
        "train-parser",
        on_event=on_event,
        on_started=lambda: record.write(output) if resume else None,
    )
    return _finish(output, run)


def _absolute(paths: Sequence[str | Path] | None) -> tuple[str, ...]:
    """Paths that stay right when the run is resumed elsewhere; `-` cannot be read twice.

    Raises:
        ConfigError: one is `-`.
    """
    if paths and "-" in map(str, paths):
        raise ConfigError("a treebank cannot come from stdin", hint="write it to a file first")
    return tuple(str(Path(path).absolute()) for path in paths or ())


def _resolved(config: ParserConfig, device: str) -> ParserConfig:
    """The settings with precision `auto` decided: bfloat16 on a processor that it is faster on."""
    if config.training.precision != "auto":
        return config
    precision = runtime.resolve_precision("auto", device)
    if device == "cpu" and _bf16_is_faster():
        precision = "bf16"
    training = dataclasses.replace(config.training, precision=precision)  # type: ignore[arg-type]
    return dataclasses.replace(config, training=training)


def _bf16_is_faster() -> bool:
    """Whether products of the classifier's size take less than 0.7 of float32's time here."""
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


def _fingerprint(config: ParserConfig, data: TrainingData) -> dict[str, Any]:
    """Return what a continued run must share with its beginning."""
    settings = to_dict(config)
    training = config.training
    return {
        "model": settings["model"],
        "learning": settings["learning"],
        "training": {"seed": training.seed, "optimiser": training.optimiser},
        "treebank": data.summary,
    }


def _finish(output: Path, run: CompletedRun) -> TrainedParser:
    """Write the scores of the best model into its header and card."""
    from seqtool.parsing.models import model_card

    header = checkpoint.read_header(output)
    scores = {**header.scores, "train_seconds": run.finished.seconds}
    if run.items_per_second is not None:
        scores["configurations_per_second"] = run.items_per_second
    header = dataclasses.replace(header, scores=scores)
    checkpoint.amend(output, header, model_card(header))
    return TrainedParser(
        path=output,
        scores=scores,
        seconds=run.finished.seconds,
        num_parameters=header.num_parameters,
        epochs=run.finished.epoch,
        system=header.config["model"]["system"],
    )
