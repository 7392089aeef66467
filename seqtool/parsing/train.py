"""Training of parsers: `train_parser`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool import checkpoint, runtime, storage
from seqtool.config import from_dict, to_dict
from seqtool.errors import ConfigError
from seqtool.parsing.config import ParserConfig, preset
from seqtool.parsing.gold import TrainingData, prepare_data
from seqtool.parsing.models import KIND, model_card
from seqtool.parsing.runs import (
    RunRecord,
    absolute_path,
    absolute_paths,
    add_scores,
    chosen_precision,
)
from seqtool.parsing.task import ParserTask
from seqtool.progress import Event
from seqtool.training import train
from seqtool.training_run import complete


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
    if resume:
        record = RunRecord.read(output, KIND, ParserConfig)
        config = config or record.config
        record = dataclasses.replace(
            record,
            config=config,
            train=absolute_paths(train_files) or record.train,
            dev=absolute_path(dev) or record.dev,
            threads=record.threads if threads is None else threads,
        )
    else:
        checkpoint.check_output(output, force=force)
        if not train_files:
            raise ConfigError("no treebank is given", hint="name a CoNLL-U file with trees")
        record = RunRecord(
            KIND,
            config or from_dict(ParserConfig, preset("fast")),
            absolute_paths(train_files),
            absolute_path(dev),
            absolute_path(embeddings),
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
    scores = add_scores(output, run, task.items, model_card)
    header = checkpoint.read_header(output)
    return TrainedParser(
        path=output,
        scores=dict(scores),
        seconds=run.finished.seconds,
        num_parameters=header.num_parameters,
        epochs=run.finished.epoch,
        system=header.config["model"]["system"],
    )


def _resolved(config: ParserConfig, device: str) -> ParserConfig:
    """The settings with precision `auto` decided."""
    precision = chosen_precision(config.training.precision, device)
    training = dataclasses.replace(config.training, precision=precision)  # type: ignore[arg-type]
    return dataclasses.replace(config, training=training)


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
