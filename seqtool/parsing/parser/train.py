"""Training of parsers: `train_parser`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Unpack

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError
from seqtool.parsing.parser.config import PRESETS, ParserConfig
from seqtool.parsing.parser.data import TrainingData, prepare_data
from seqtool.parsing.parser.distillation import (
    TAUGHT,
    asks_for_heads,
    check_teachers,
    describe,
    variants,
    with_teachers,
    write_heads,
    write_taught,
)
from seqtool.parsing.parser.graph.task import GraphTask
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.transition.crf.task import GlobalTask
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.sparse.task import LinearTransitionTask, MiraTask
from seqtool.parsing.sparse.transitions import chosen
from seqtool.parsing.train import Kind, TreebankRecord, WordOptions, train_on_treebank
from seqtool.training.config import Stage
from seqtool.training.run import TrainedModel
from seqtool.training.task import Task
from seqtool.treebank.conllu import held_out, read_conllu
from seqtool.treebank.sentence import Sentence


@dataclass(frozen=True)
class TrainedParser(TrainedModel):
    """What `train_parser` returns; the scores are `dev_las` and `dev_uas` in percent.

    Attributes:
        system: the transition system, as chosen; of a graph-based parser the trees that it builds,
            `projective` or `all`.
    """

    system: str


class ParserOptions(WordOptions, total=False):
    """The options of training a parser.

    Attributes:
        gold_tags: CoNLL-U, the sentences of the treebank with gold tags, where its own are
            predicted; an encoder learns from them what it cannot read.
        distil: the directories of parsers, or of pipelines, over the same treebank, from which the
            parser learns: they parse variants of the treebank's sentences and what is `unlabelled`
            together, and tell how probable they take heads or transitions to be.
        unlabelled: files of CoNLL-U, whose trees are not looked at, or, where there is a pipeline
            among the teachers, of plain text.
        init: the directory of a parser of the same treebank and settings, which global training
            begins from, without a local training of its own.
    """

    gold_tags: str | Path | None
    distil: Sequence[str | Path] | str | Path
    unlabelled: Sequence[str | Path] | str | Path
    init: str | Path | None


def train_parser(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/parser",
    config: ParserConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[ParserOptions],
) -> TrainedParser:
    """Train a dependency parser.

    Args:
        train_files: CoNLL-U with trees.
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"training": {"epochs": 5}}`; the preset `fast` if not given.
        options: see `ParserOptions`; the best epoch is chosen by LAS.

    Raises:
        Interrupted, SeqtoolError: see `seqtool.parsing.train.train_on_treebank`.
    """
    trained = train_on_treebank(PARSER, train_files, output, config, **options)
    model = checkpoint.read_header(trained.path).config["model"]
    system = model["trees" if model.get("decoder") == "graph" else "system"]
    return TrainedParser(**vars(trained), system=system)


def _read(record: TreebankRecord[ParserConfig], output: Path) -> tuple[ParserConfig, TrainingData]:
    """Return the settings, with the system chosen, and the data of a run."""
    config = record.config
    if record.embeddings is not None and config.model.classifier == "linear":
        raise ConfigError(
            "--embeddings are for vectors of words, and a linear classifier has none",
            hint="leave them out, or take --classifier neural",
        )
    has_templates = (config.model.decoder, config.model.classifier) == ("transition", "linear")
    if has_templates:  # before anything is read
        chosen(config.model.templates, config.model.fields)
    data = prepare_data(
        record.train,
        record.dev,
        config,
        skip_invalid=record.skip_invalid,
        embeddings=record.embeddings,
        gold_tags=record.gold_tags,
        taught=_taught(output),
    )
    if has_templates:
        # as a list, which stays that of the model when the standard ones change
        groups = (*data.types.lexical.groups, *data.types.tags.groups)
        model = data.config.model
        model = dataclasses.replace(model, templates=chosen(model.templates, model.fields, groups))
        data = dataclasses.replace(data, config=dataclasses.replace(data.config, model=model))
    if record.distil:
        data = with_teachers(data, record.distil, output)
        data.summary.update(describe(record.distil, record.unlabelled))
    if record.init is not None:
        data = dataclasses.replace(data, initial=record.init)
        data.summary["initial"] = Path(record.init).name
    return data.config, data


def _make_task(config: ParserConfig, data: TrainingData, *, device: str, command: str) -> Task:
    """Return the task of a parser with such settings."""
    if (config.model.decoder, config.model.classifier) == ("graph", "linear"):
        return MiraTask(config, data, device=device, command=command)
    if config.model.classifier == "linear":
        return LinearTransitionTask(config, data, device=device, command=command)
    if config.learning.loss == "global":
        return GlobalTask(config, data, device=device, command=command)
    family = GraphTask if config.model.decoder == "graph" else ParserTask
    return family(config, data, device=device, command=command)


def _begin(record: TreebankRecord[ParserConfig], output: Path) -> None:
    """Refuse an initial parser that cannot be one; let the teachers parse, if there are any."""
    if record.init is not None:
        if record.config.learning.loss != "global":
            raise ConfigError(
                "--init is what global training begins from, and the loss is "
                f"{record.config.learning.loss}",
                hint="add --loss global, or leave out --init",
            )
        if Path(record.init).resolve().is_relative_to(output.resolve()):
            raise ConfigError(
                f"the parser would replace {record.init}, which it begins from",
                hint="choose another output with -o",
            )
        checkpoint.load(record.init, Parser)  # an error comes before the treebank is read
    if record.distil or record.unlabelled:
        check_teachers(record.distil, output)
        # what is broken there is found before the teachers work for minutes
        for files in filter(None, (record.train, record.dev)):
            for _ in read_conllu(files, skip_invalid=record.skip_invalid):
                pass
    if not record.distil:
        return
    learning = record.config.learning
    made = variants(
        _treebank(record),
        learning.variants,
        record.config.training.seed,
        words=learning.variant_words,
    )
    first = list(islice(made, 1))  # without UPOS tags there is none
    if record.unlabelled or first:
        write_taught(record.distil, record.unlabelled, chain(first, made), output)
    if asks_for_heads(record.config):
        write_heads(record.distil, _treebank(record), _taught(output), output)


def _taught(output: Path) -> str | None:
    """Return what the teachers of a run have parsed, if there is such."""
    path = output / TAUGHT
    return str(path) if path.is_file() else None


def _treebank(record: TreebankRecord[ParserConfig]) -> Iterator[Sentence]:
    """Give the sentences of the training part: without those that are held out."""
    sentences = read_conllu(record.train, skip_invalid=record.skip_invalid)
    for sentence, is_dev in held_out(sentences):
        if record.dev is not None or not is_dev:
            yield sentence


def _ready(task: Task, record: TreebankRecord[ParserConfig]) -> None:
    """Let global training begin from a parser, if one is given."""
    if record.init is not None:
        assert isinstance(task, GlobalTask)
        task.begin_from(checkpoint.load(record.init, Parser))


def _stages(record: TreebankRecord[ParserConfig]) -> tuple[Stage, ...]:
    """Return the stages of a run: global training comes after local training, or after `init`."""
    config = record.config
    local = Stage(config.training.epochs)
    if config.learning.loss != "global":
        return (local,)
    beams = Stage(config.learning.global_epochs, config.learning.global_rate)
    return (local, beams) if record.init is None else (beams,)


PARSER = Kind(
    PRESETS,
    "a CoNLL-U file with trees",
    _read,
    _make_task,
    Parser.card,
    begin=_begin,
    ready=_ready,
    stages=_stages,
)
