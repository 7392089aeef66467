"""Training of labellers: `train_labeller`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from seqtool.parsing.labeller.config import PRESETS, LabellerConfig
from seqtool.parsing.labeller.data import read_data
from seqtool.parsing.labeller.model import Labeller
from seqtool.parsing.labeller.task import LabellerTask
from seqtool.parsing.tagger.data import TrainingData
from seqtool.parsing.train import Kind, TreebankRecord, WordOptions, train_on_treebank
from seqtool.training.run import TrainedModel


def train_labeller(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/tagger",
    config: LabellerConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[WordOptions],
) -> TrainedModel:
    """Train a labeller of words, such as of named entities.

    Args:
        train_files: CoNLL-U with the labels in column MISC, or files with a word and its label in
            each line (`data.word_column` and `data.label_column` say where). A run that is resumed
            knows its own.
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"data": {"column": "NER"}}`; the preset `accurate` if not given; those of the run when
            one is resumed.
        options: see `WordOptions`; the best epoch is chosen by the F1 of entities.

    Returns:
        Its scores are `dev_accuracy` and, of labels of entities, `dev_precision`, `dev_recall` and
        `dev_f1`, in percent.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    return train_on_treebank(LABELLER, train_files, output, config, **options)


def _read(
    record: TreebankRecord[LabellerConfig], output: Path
) -> tuple[LabellerConfig, TrainingData]:
    """Return the settings and the data of a run."""
    data = read_data(
        record.train,
        record.dev,
        record.config,
        skip_invalid=record.skip_invalid,
        embeddings=record.embeddings,
    )
    return record.config, data


LABELLER = Kind(
    PRESETS,
    "a CoNLL-U file with labels in column MISC, or one of words and labels",
    _read,
    LabellerTask,
    Labeller.card,
)
