"""Training of classifiers: `train_classifier`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from seqtool.classification.config import LINEAR, LM, PRESETS, ClassifierConfig
from seqtool.classification.data import TrainingData, read_data
from seqtool.classification.model import Classifier
from seqtool.classification.task import ClassifierTask
from seqtool.core.errors import ConfigError
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.parsing.train import Kind, RunOptions, TreebankRecord, train_on_treebank
from seqtool.training.run import TrainedModel


class ClassifierOptions(RunOptions, total=False):
    """The options of training a classifier: those of `RunOptions`, where `dev` is a table.

    Attributes:
        lm: a neural language model, which is copied into the model directory. Its states after
            words are read too, or, of the encoder `lm`, training begins from its weights.
    """

    lm: str | Path | None


def train_classifier(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/classifier",
    config: ClassifierConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[ClassifierOptions],
) -> TrainedModel:
    """Train a classifier of texts.

    Args:
        train_files: .csv, .tsv or .jsonl with a column of texts and one of labels. A run that is
            resumed knows its own.
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"model": {"encoder": "bilstm"}}`; the preset `linear` if not given; those of the run
            when one is resumed.
        options: see `ClassifierOptions`; the best epoch is chosen by accuracy.

    Returns:
        Its scores are `dev_accuracy`, `dev_macro_f1` and `dev_majority_accuracy` in percent.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    chosen = PRESETS.chosen(config)
    if chosen is not None and not options.get("resume"):
        chosen.refuse_unread()
    return train_on_treebank(CLASSIFIER, train_files, output, chosen, **options)


def _read(
    record: TreebankRecord[ClassifierConfig], word_states: WordStates | None, output: Path
) -> tuple[ClassifierConfig, TrainingData]:
    """Return the settings and the data of a run."""
    config = record.config
    if word_states is not None and config.model.encoder == LINEAR:
        raise ConfigError(
            "a linear classifier reads no language model",
            hint="add --encoder lm, --encoder bilstm or --encoder none, or leave --lm out",
        )
    if word_states is None and config.model.encoder == LM:
        raise ConfigError(
            "the encoder lm begins from a language model, and none is given",
            hint="add --lm with a model that `seqtool train-lm` made, or choose another --encoder",
        )
    return config, read_data(record.train, record.dev, config, word_states=word_states)


CLASSIFIER = Kind(
    PRESETS,
    "a .csv, .tsv or .jsonl with texts and labels",
    _read,
    ClassifierTask,
    Classifier.card,
    bf16_on_cpu=False,  # its products are small
)
