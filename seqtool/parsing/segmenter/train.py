"""Training of segmenters: `train_segmenter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from seqtool.parsing.segmenter.config import PRESETS, SegmenterConfig
from seqtool.parsing.segmenter.data import TrainingData, prepare_data
from seqtool.parsing.segmenter.model import Segmenter
from seqtool.parsing.segmenter.task import SegmenterTask
from seqtool.parsing.train import Kind, RunOptions, TreebankRecord, train_on_treebank
from seqtool.training.run import TrainedModel


def train_segmenter(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/segmenter",
    config: SegmenterConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> TrainedModel:
    """Train what splits raw text into sentences, tokens and words.

    Args:
        train_files: CoNLL-U; words, multiword tokens, the spaces between them, and parts of speech
            and relations where there are any. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, or some as a dictionary, such as `{"training": {"epochs": 5}}`; those
            of the run when one is resumed.
        options: see `RunOptions`; the best epoch is chosen by words and sentences.

    Returns:
        Its scores are F1 in percent, `dev_tokens`, `dev_words`, `dev_sentences`, `dev_multiword`
        where there are multiword tokens, and `dev_mean` of words and sentences.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    return train_on_treebank(SEGMENTER, train_files, output, config, **options)


def _read(
    record: TreebankRecord[SegmenterConfig], output: Path
) -> tuple[SegmenterConfig, TrainingData]:
    """Return the settings and the data of a run."""
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
