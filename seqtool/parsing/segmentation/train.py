"""Training of segmenters: `train_segmenter`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool import checkpoint, runtime, storage
from seqtool.config import to_dict
from seqtool.errors import ConfigError
from seqtool.parsing.runs import RunRecord, absolute_path, absolute_paths, add_scores
from seqtool.parsing.segmentation.config import KIND, SegmenterConfig, default_config
from seqtool.parsing.segmentation.data import TrainingData, prepare_data
from seqtool.parsing.segmentation.model import model_card
from seqtool.parsing.segmentation.task import SegmenterTask
from seqtool.progress import Event
from seqtool.training import train
from seqtool.training_run import complete


@dataclass(frozen=True)
class TrainedSegmenter:
    """What `train_segmenter` returns.

    Attributes:
        path: the model directory.
        scores: F1 in percent, `dev_tokens`, `dev_words`, `dev_sentences`, `dev_multiword` where
            there are multiword tokens, and `dev_mean` of words and sentences; `train_seconds`, and
            the `characters_per_second` of training where a whole epoch was trained.
        seconds: training time, validation included, over all continuations.
        num_parameters: trained numbers.
        epochs: epochs completed.
    """

    path: Path
    scores: dict[str, float]
    seconds: float
    num_parameters: int
    epochs: int


def train_segmenter(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/segmenter",
    config: SegmenterConfig | None = None,
    *,
    dev: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    skip_invalid: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    on_data: Callable[[TrainingData], None] = lambda data: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
) -> TrainedSegmenter:
    """Train what splits raw text into sentences, tokens and words.

    Args:
        train_files: CoNLL-U; words, multiword tokens, the spaces between them, and parts of speech
            and relations where there are any. A run that is resumed knows its own.
        output: the model directory.
        config: all settings; those of the run when one is resumed.
        dev: CoNLL-U by whose words and sentences the best epoch is chosen; without it, a tenth of
            the treebank is kept for that.
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
        record = RunRecord.read(output, KIND, SegmenterConfig)
        record = dataclasses.replace(
            record,
            config=config or record.config,
            train=absolute_paths(train_files) or record.train,
            dev=absolute_path(dev) or record.dev,
            threads=record.threads if threads is None else threads,
        )
    else:
        checkpoint.check_output(output, force=force)
        if not train_files:
            raise ConfigError("no treebank is given", hint="name a CoNLL-U file")
        record = RunRecord(
            KIND,
            config or default_config(),
            absolute_paths(train_files),
            absolute_path(dev),
            skip_invalid=skip_invalid,
            threads=threads,
            command=command,
        )
    chosen = runtime.choose_device(device)
    runtime.set_threads(record.threads)
    runtime.prepare_device(chosen)
    config = record.config
    with ExitStack() as stack:
        if not resume:
            stack.enter_context(storage.replacing(output))
        data = prepare_data(record.train, record.dev, config, skip_invalid=record.skip_invalid)
        on_data(data)
        task = SegmenterTask(config, data, device=chosen, command=record.command)
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
        "train-segmenter",
        on_event=on_event,
        on_started=lambda: record.write(output) if resume else None,
    )
    scores = add_scores(output, run, task.items, model_card)
    return TrainedSegmenter(
        path=output,
        scores=dict(scores),
        seconds=run.finished.seconds,
        num_parameters=checkpoint.read_header(output).num_parameters,
        epochs=run.finished.epoch,
    )


def _fingerprint(config: SegmenterConfig, data: TrainingData) -> dict[str, Any]:
    """Return what a continued run must share with its beginning."""
    settings = to_dict(config)
    training = config.training
    return {
        "model": settings["model"],
        "learning": settings["learning"],
        "training": {"seed": training.seed, "optimiser": training.optimiser},
        "treebank": data.summary,
    }
