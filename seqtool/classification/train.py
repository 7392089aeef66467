"""Training of classifiers: `train_classifier`, and its task of the training loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seqtool.classification.config import LINEAR, LM, PRESETS, ClassifierConfig
from seqtool.classification.data import TrainingData, read_data
from seqtool.classification.evaluation import evaluate
from seqtool.classification.model import (
    LM_FOLDER,
    LM_SUM,
    Classifier,
    open_language_model,
    sum_of,
)
from seqtool.classification.network import (
    LinearNetwork,
    ReadingNetwork,
    TunedNetwork,
    network_of,
)
from seqtool.classification.ngrams import Bags, laid_out
from seqtool.core import checkpoint
from seqtool.core.arrays import Halves, Longs
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import NUM_SPECIALS, UNK_ID
from seqtool.parsing.data import POOL_BATCHES
from seqtool.parsing.encoding.encoder import AveragedWeights, unknown_chances
from seqtool.parsing.train import (
    Kind,
    RunOptions,
    TreebankRecord,
    TreebankTask,
    train_on_treebank,
)
from seqtool.training.hardware import choose_device
from seqtool.training.run import TrainedModel


class ClassifierTask(TreebankTask[ClassifierConfig, TrainingData]):
    """The choice of labels, for `seqtool.training.loop.train`."""

    items = "texts"
    score = "dev_accuracy"

    def __init__(self, config: ClassifierConfig, data: TrainingData, **options: str) -> None:
        super().__init__(config, data, **options)
        reader, num_labels = data.reader, len(data.labels)
        self._ids: list[Any] = [reader.ids(text) for text in data.train.texts]
        self._lengths = np.array([len(ids) for ids in self._ids], np.int64)
        self._lm_states: list[Halves] | None = None
        self.module: LinearNetwork | ReadingNetwork | TunedNetwork
        if isinstance(reader, Bags):
            self.module = LinearNetwork(len(reader.known), num_labels)
        else:
            self.module = network_of(config.model, len(reader.known), num_labels, data.lm)
            if isinstance(self.module, TunedNetwork):
                self.module.set_dropout(config.learning)
                counts = np.bincount(np.concatenate(self._ids))
            else:
                counts = np.array(reader.vocabulary.counts, np.int64)
            counts[:NUM_SPECIALS] = 0
            self._chances = unknown_chances(counts, config.learning.dropout_words)
            self._lm_states = reader.states(data.train.texts)
        self.module.to(self._device)
        self._average: AveragedWeights = AveragedWeights(self.module, config.learning.averaging)
        self._batches: list[Longs] = []

    def start_epoch(self, epoch: int) -> int:
        """Draw batches of texts of like lengths; return their number."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        order = generator.permutation(len(self._lengths))
        size = self.config.learning.batch_texts
        batches: list[Longs] = []
        for begin in range(0, len(order), POOL_BATCHES * size):
            pool = order[begin : begin + POOL_BATCHES * size]
            pool = pool[np.argsort(self._lengths[pool], kind="stable")]
            batches += [pool[start : start + size] for start in range(0, len(pool), size)]
        self._batches = [batches[place] for place in generator.permutation(len(batches))]
        return len(self._batches)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`, in nats per text."""
        self._average.update()
        self._begin_step(index)
        texts, network = self._batches[index], self.module
        if isinstance(network, LinearNetwork):
            arrays = laid_out([self._ids[text] for text in texts.tolist()])
            scores_BK = network(*(torch.from_numpy(each).to(self._device) for each in arrays))
        else:
            scores_BK = self._network_scores(network, texts)
        labels_B = torch.from_numpy(self._data.label_ids[texts]).to(self._device)
        return functional.cross_entropy(scores_BK.float(), labels_B), len(texts)

    def _network_scores(self, network: ReadingNetwork | TunedNetwork, texts: Longs) -> Tensor:
        learning, chosen = self.config.learning, texts.tolist()
        words_T = torch.from_numpy(np.concatenate([self._ids[i] for i in chosen])).long()
        words_T = torch.where(self._drawn(self._chances[words_T]), UNK_ID, words_T)
        inputs = [words_T.to(self._device), torch.from_numpy(self._lengths[texts])]
        if self._lm_states is not None:
            states = np.concatenate([self._lm_states[i] for i in chosen])
            inputs.append(torch.from_numpy(states).to(self._device).float())

        def kept(values: Tensor, setting: str) -> Tensor | float:
            return self._kept(values, getattr(learning, setting))

        scores_BK: Tensor = network(*inputs, kept=kept)
        return scores_BK

    def model(self) -> Classifier:
        """Return the classifier of the averaged weights."""
        data, weights = self._data, self._average.arrays()
        return Classifier(self.config, data.labels, data.reader, weights, data.lm)

    def validate(self) -> dict[str, float]:
        """Return the scores of the validation part, in percent."""
        dev = self._data.dev
        predicted = [prediction.label for prediction in self.model().pipe(dev.texts)]
        scores = evaluate(self._data.labels, dev.labels or (), predicted).scores
        return {f"dev_{name}": score for name, score in scores.items()}


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
    lm, device = options.pop("lm", None), choose_device(options.get("device", "auto"))
    kind = dataclasses.replace(
        CLASSIFIER, begin=partial(_begin, lm=lm), read=partial(_read, lm=lm, device=device)
    )
    return train_on_treebank(kind, train_files, output, PRESETS.chosen(config), **options)


def _begin(
    record: TreebankRecord[ClassifierConfig], output: Path, *, lm: str | Path | None
) -> None:
    """Copy the language model of a new run, if there is one."""
    if lm is None:
        return
    if Path(lm).resolve().is_relative_to(output.resolve()):
        what = f"the classifier would replace {lm}, which it reads"
        raise ConfigError(what, hint="choose another output with -o")
    open_language_model(lm)
    checkpoint.copy(lm, output / LM_FOLDER)


def _read(
    record: TreebankRecord[ClassifierConfig],
    output: Path,
    *,
    lm: str | Path | None = None,
    device: str = "cpu",
) -> tuple[ClassifierConfig, TrainingData]:
    """Return the settings and the data of a run, whose language model is its own copy of `lm`."""
    path, encoder = output / LM_FOLDER, record.config.model.encoder
    if lm is not None and not (path.is_dir() and sum_of(lm) == sum_of(path)):
        what = "--lm is not what the run began with"
        raise ConfigError(what, hint="leave it out with --resume")
    if not path.is_dir():
        if encoder == LM:
            raise ConfigError(
                "the encoder lm begins from a language model, and none is given",
                hint="add --lm with a model that `seqtool train-lm` made, or choose another "
                "--encoder",
            )
        return record.config, read_data(record.train, record.dev, record.config)
    if encoder == LINEAR:
        raise ConfigError(
            "a linear classifier reads no language model",
            hint="add --encoder lm or --encoder bilstm, or leave --lm out",
        )
    model = open_language_model(path, device=device)
    data = read_data(record.train, record.dev, record.config, lm=model)
    data.summary.update({"lm_unit": model.tokenizer.unit, LM_SUM: sum_of(path)})
    return record.config, data


CLASSIFIER = Kind(
    PRESETS,
    "a .csv, .tsv or .jsonl with texts and labels",
    _read,
    ClassifierTask,
    Classifier.card,
    bf16_on_cpu=False,  # its products are small
)
