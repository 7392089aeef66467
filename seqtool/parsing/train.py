"""The scaffold of all trainings on treebanks: a run from start to end.

What differs between them is a `Kind`: presets, how a treebank is read, and the `TreebankTask` that
is learnt.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.checkpoint import Header
from seqtool.core.config import Config, to_dict
from seqtool.core.errors import ConfigError
from seqtool.core.progress import Event, shows_progress
from seqtool.parsing.config import C, Presets
from seqtool.parsing.encoding.encoder import dropout_mask
from seqtool.parsing.model import TreebankModel
from seqtool.training import hardware
from seqtool.training.config import Stage, TrainingConfig
from seqtool.training.loop import LAST, train
from seqtool.training.run import Record, TrainedModel, complete, finish
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import Sentence

T = TypeVar("T", bound=Config)
Data = TypeVar("Data")


class TreebankTask(ABC, Generic[T, Data]):
    """A task of `seqtool.training.loop.train` on a treebank.

    Args:
        config: all settings, `training` among them.
        data: what is learnt from; its `summary` has numbers that tell it from others.
        device: torch device of the network.
        command: what the user typed, for the model card.
    """

    larger_is_better = True
    _average: Any = None  # `encoder.AveragedWeights`, of a task that has them

    def __init__(self, config: T, data: Data, *, device: str = "cpu", command: str = "") -> None:
        self.config, self._data, self._device, self._command = config, data, device, command
        self._epoch = 0
        self._seed: int = config.training.seed  # type: ignore[attr-defined]
        hardware.seed_everything(self._seed)

    @abstractmethod
    def model(self) -> TreebankModel[Any]:
        """Return the model of the weights as they are."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Numbers that tell its data from others."""
        summary: Mapping[str, Any] = self._data.summary  # type: ignore[attr-defined]
        return summary

    @property
    def about(self) -> Mapping[str, Any]:
        """What the model's header tells of its data, and of what its scores are measured on."""
        return self.summary

    def set_progress(self, done: float) -> None:
        """Hear how far training is: all batches of a stage are learnt alike."""

    def rate_factor(self, index: int) -> float:
        """Return 1: every batch counts alike."""
        return 1.0

    def carried(self) -> dict[str, Tensor]:
        """Return what is carried from batch to batch: the averages, if there are any."""
        return {} if self._average is None else self._average.carried()

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""
        if self._average is not None:
            self._average.restore(tensors)

    def measured(self) -> Mapping[str, float]:
        """Return what is measured of the model after training, beside its scores: nothing."""
        return {}

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the model as a model directory."""
        model = self.model()
        model.tune(self._data)
        model.save(
            directory,
            scores=scores,
            data=self.about,
            command=self._command,
            versions={"torch": torch.__version__},
        )

    def _begin_step(self, index: int) -> None:
        """Begin to draw random numbers anew, so that a resumed run draws the same ones."""
        self._random = np.random.default_rng((self._seed, self._epoch, index))

    def _kept(self, values: Tensor, dropout: float) -> Tensor | float:
        return dropout_mask(values, dropout, self._random)

    def _drawn(self, chances: Tensor) -> Tensor:
        return torch.from_numpy(self._random.random(chances.shape, np.float32)) < chances


@dataclass(frozen=True)
class TreebankRecord(Record[C], Generic[C]):
    """`run.json` of a run on a treebank; see `seqtool.training.run.Record`.

    Attributes:
        kind: of the model.
        config: all settings; nothing is left to be chosen.
        train: the treebank's files.
        dev: those of the validation part; None for a tenth of the treebank.
        embeddings: a file of word vectors.
        skip_invalid: whether broken sentences are left out.
        threads: as they were asked for.
        command: what was typed.
        gold_tags: the sentences of `train` with gold tags, where those in `train` are predicted.
        distil: the directories of parsers that a parser learns from, its teachers.
        unlabelled: text for the teachers to parse; the run has what they made of it.
        init: the directory of a model that training begins from, instead of weights by chance.
    """

    kind: str
    config: C
    train: tuple[str, ...]
    dev: str | None = None
    embeddings: str | None = None
    skip_invalid: bool = False
    threads: int | None = None
    command: str = ""
    gold_tags: str | None = None
    distil: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    init: str | None = None


Read = Callable[[TreebankRecord[C], Path], tuple[C, Any]]


@dataclass(frozen=True)
class Kind(Generic[C]):
    """What tells the training of one kind of model from that of the others.

    Attributes:
        presets: its settings.
        treebank: what it is trained on, for a hint.
        read: reads the treebank of a record, of a run in some directory; also gives the settings,
            with what depends on the treebank chosen.
        task: makes the task of settings and data.
        card: makes the model card.
        bf16_on_cpu: whether precision `auto` may be bfloat16 on a CPU.
        begin: makes what the run reads beside the treebank, in the directory of a new run.
        ready: makes the task of a new run ready for its first step.
        stages: those of a run, by its record; none for one of all epochs.
    """

    presets: Presets[C]
    treebank: str
    read: Read[C]
    task: Callable[..., Any]
    card: Callable[[Header], str]
    bf16_on_cpu: bool = True
    begin: Callable[[TreebankRecord[C], Path], None] = lambda record, output: None
    ready: Callable[[Any, TreebankRecord[C]], None] = lambda task, record: None
    stages: Callable[[TreebankRecord[C]], Sequence[Stage]] = lambda record: ()


def conllu_of(files: Sequence[str], config: Any, *, skip_invalid: bool) -> Iterator[Sentence]:
    """Give the sentences of CoNLL-U whose trees are not looked at."""
    return read_conllu(files, check="columns", skip_invalid=skip_invalid)


def read_by(
    prepare: Callable[..., Any], sentences_of: Callable[..., Iterable[Sentence]] = conllu_of
) -> Read[Any]:
    """Return how a kind reads treebanks whose settings leave nothing to be chosen by them.

    Args:
        prepare: makes data of the sentences to train on, those of the validation part or None, the
            settings and, where there are such, `embeddings` and files that are `unlabelled`.
        sentences_of: gives the sentences of files.
    """

    def read(record: TreebankRecord[C], output: Path) -> tuple[C, Any]:
        config, invalid = record.config, record.skip_invalid
        dev = None if record.dev is None else [record.dev]
        train, valid = (
            None if files is None else sentences_of(files, config, skip_invalid=invalid)
            for files in (record.train, dev)
        )
        asked = {"embeddings": record.embeddings, "unlabelled": record.unlabelled}
        more = {name: value for name, value in asked.items() if value}
        return config, prepare(train, valid, config, **more)

    return read


class RecordOptions(TypedDict, total=False):
    """What every function that trains on a treebank may be given, and the record keeps.

    Attributes:
        dev: CoNLL-U by which the best epoch is chosen; without it, every tenth sentence of the
            treebank is kept for that.
        resume: continue the run in `output` where it was saved.
        force: replace a run that is there.
        skip_invalid: leave out broken sentences.
        threads: CPU threads; None leaves the choice to torch.
        command: what the user typed, for the model card.
    """

    dev: str | Path | None
    resume: bool
    force: bool
    skip_invalid: bool
    threads: int | None
    command: str


class WordRecordOptions(RecordOptions, total=False):
    """The same of what reads words.

    Attributes:
        embeddings: a file of word vectors that forms begin with.
    """

    embeddings: str | Path | None


class RunOptions(RecordOptions, total=False):
    """The options of training a segmenter.

    Attributes:
        device: auto (the default), cpu, cuda or mps.
        on_event: called with every event of the run.
        on_data: called with the data once they are read.
        should_stop: asked with the step number before each step; True saves and interrupts.
        progress: show on stderr how it goes on; if None, where there is no `on_event`.
    """

    progress: bool | None
    device: str
    on_event: Callable[[Event], None]
    on_data: Callable[[Any], None]
    should_stop: Callable[[int], bool] | None


class WordOptions(RunOptions, WordRecordOptions, total=False):
    """The options of training a tagger, a labeller or a parser."""


@shows_progress()
@runtime.writes_to("output")
def train_on_treebank(
    kind: Kind[C],
    train_files: Sequence[str | Path] | str | Path | None,
    output: str | Path,
    config: C | str | Mapping[str, Any] | None,
    *,
    progress: bool | None = None,
    resume: bool = False,
    device: str = "auto",
    on_event: Callable[[Event], None] | None = None,
    on_data: Callable[[Any], None] = lambda data: None,
    should_stop: Callable[[int], bool] | None = None,
    **given: Any,
) -> TrainedModel:
    """Train a model on a treebank, or go on with a run, to the finished model directory.

    What is None of `train_files` and `config` is that of the run that is resumed; a new one has the
    settings of the default preset. For the options see `WordOptions`; `open_record` takes what is
    `given` beside.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    begun = time.perf_counter()
    output = Path(output)
    record = open_record(
        kind.presets, output, config, train_files, wanted=kind.treebank, resume=resume, **given
    )
    device = hardware.choose_device(device)
    hardware.set_threads(record.threads)
    hardware.prepare_device(device)
    record = replace(record, config=with_precision(record.config, device, kind))
    with nullcontext() if resume else storage.replacing(output):
        if not resume:
            kind.begin(record, output)
        settings, data = kind.read(record, output)
        on_data(data)
        record = replace(record, config=settings)
        task = kind.task(settings, data, device=device, command=record.command)
        # a run that was stopped before it first saved its state begins as a new one does
        if not resume or not (output / LAST).is_dir():
            kind.ready(task, record)
        if not resume:
            record.write(output)
    events = train(
        task,
        settings.training,  # type: ignore[attr-defined]
        output,
        device=device,
        fingerprint=fingerprint(settings, data.summary),
        resume=resume,
        should_stop=should_stop,
        stages=kind.stages(record),
        begun=begun,
    )
    run = complete(
        events,
        output,
        checkpoint.trainer(record.kind),
        on_event=on_event or (lambda event: None),
        # a resumed run may have been given other settings, which it has accepted once it begins
        on_started=lambda: record.write(output) if resume else None,
    )
    return finish(output, run, task.items, kind.card, measured=task.measured())


def open_record(
    presets: Presets[C],
    output: Path,
    config: C | str | Mapping[str, Any] | None,
    train_files: Sequence[str | Path] | str | Path | None,
    *,
    wanted: str,
    resume: bool = False,
    force: bool = False,
    **given: Any,
) -> TreebankRecord[C]:
    """Return the record of a new run, or of one that is resumed, with what is given for it now.

    A run that is resumed has read its own `embeddings` and `init`, and has a copy of what its
    teachers (`distil`) made of the text that is `unlabelled`. A hint names what the treebank has to
    be, `wanted`. For others that are `given` see `TreebankRecord`.

    Raises:
        ModelError: there is no run to resume.
        ConfigError: no treebank is given, or one that cannot be read twice; a run that is resumed
            has begun with other word vectors, models or texts.
        OutputError: the directory exists, and nothing says what is to become of it.
    """
    if not resume:
        checkpoint.check_output(output, force=force)
    chosen = presets.chosen(config)
    given["train"] = train_files
    for name in ("train", "distil", "unlabelled"):
        given[name] = _absolute(given.get(name))
    for name in ("dev", "embeddings", "gold_tags", "init"):
        given[name] = next(iter(_absolute(given.get(name))), None)
    asked = TreebankRecord(presets.kind, chosen or presets.configuration(), **given)
    if not resume:
        if not asked.train:
            raise ConfigError("nothing is given to train on", hint=f"name {wanted}")
        return asked
    storage.recover(output)
    record = TreebankRecord.read_as(output, presets.config, presets.kind)
    for name in ("embeddings", "distil", "unlabelled", "init"):
        if given[name] and given[name] != getattr(record, name):
            raise ConfigError(
                f"--{name} is not what the run began with", hint="leave it out with --resume"
            )
    names = ("train", "dev", "gold_tags", "threads")
    changed = {name: given[name] for name in names if given.get(name) not in (None, ())}
    return replace(record, config=chosen or record.config, **changed)


def _absolute(paths: Sequence[str | Path] | str | Path | None) -> tuple[str, ...]:
    """Return paths that stay right when the run is resumed elsewhere; `-` cannot be read twice."""
    if isinstance(paths, str | Path):
        paths = [paths]
    if paths and "-" in map(str, paths):
        raise ConfigError(
            "what is trained on cannot come from stdin", hint="write it to a file first"
        )
    return tuple(str(Path(path).absolute()) for path in paths or ())


def with_precision(config: C, device: str, kind: Kind[Any]) -> C:
    """Return settings in which precision `auto` is decided, by the machine's features alone.

    What is asked for stays, as the run may go on where it can be had.
    """
    training: TrainingConfig = config.training  # type: ignore[attr-defined]
    if training.precision == "bf16":
        return config
    is_open = training.precision == "auto" and kind.bf16_on_cpu
    precision = hardware.resolve_precision("fast" if is_open else training.precision, device)
    training = replace(training, precision=precision)  # type: ignore[arg-type]
    return replace(config, training=training)  # type: ignore[type-var]


def fingerprint(config: Config, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a resumed run must share with its beginning; the summary is that of its data."""
    settings = to_dict(config)
    return {
        "model": settings["model"],
        "learning": settings.get("learning", {}),
        "training": {name: settings["training"][name] for name in ("seed", "optimiser")},
        "treebank": dict(summary),
    }
