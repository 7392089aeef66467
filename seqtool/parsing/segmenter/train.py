"""Training of segmenters: `train_segmenter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqtool.core.progress import Event
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.parsing.segmenter.config import PRESETS, SegmenterConfig
from seqtool.parsing.segmenter.data import TrainingData, prepare_data
from seqtool.parsing.segmenter.model import Segmenter
from seqtool.parsing.segmenter.task import SegmenterTask
from seqtool.parsing.train import Kind, TreebankRecord, train_on_treebank
from seqtool.training.run import TrainedModel


@dataclass(frozen=True)
class TrainedSegmenter(TrainedModel):
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
        dev: CoNLL-U by whose words and sentences the best epoch is chosen; without it, every
            tenth sentence of the treebank is kept for that.
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
    trained = train_on_treebank(
        SEGMENTER,
        train_files,
        output,
        config,
        dev=dev,
        resume=resume,
        force=force,
        skip_invalid=skip_invalid,
        device=device,
        threads=threads,
        on_event=on_event,
        on_data=on_data,
        should_stop=should_stop,
        command=command,
    )
    return TrainedSegmenter(**vars(trained))


def _read(
    record: TreebankRecord[SegmenterConfig], word_states: WordStates | None
) -> tuple[SegmenterConfig, TrainingData]:
    """Return the settings and the data of a run; a segmenter reads no language model."""
    data = prepare_data(record.train, record.dev, record.config, skip_invalid=record.skip_invalid)
    return record.config, data


SEGMENTER = Kind(
    PRESETS,
    "a CoNLL-U file",
    _read,
    SegmenterTask,
    Segmenter.card,
    bf16_on_cpu=False,  # its figures are those of float32
)
