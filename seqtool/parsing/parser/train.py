"""Training of parsers: `train_parser`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint
from seqtool.core.progress import Event
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.parsing.parser.config import PRESETS, ParserConfig, check_encoder, stages
from seqtool.parsing.parser.data import TrainingData, prepare_data
from seqtool.parsing.parser.graph.task import GraphTask
from seqtool.parsing.parser.model import Parser
from seqtool.parsing.parser.transition.crf.task import GlobalTask
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.train import Kind, TreebankRecord, train_on_treebank
from seqtool.training.run import TrainedModel
from seqtool.training.task import Task


@dataclass(frozen=True)
class TrainedParser(TrainedModel):
    """What `train_parser` returns; the scores are `dev_las` and `dev_uas` in percent.

    Attributes:
        system: the transition system, as chosen; of a graph-based parser the trees that it builds,
            `projective` or `all`.
    """

    system: str


def train_parser(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/parser",
    config: ParserConfig | str | Mapping[str, Any] | None = None,
    *,
    progress: bool | None = None,
    dev: str | Path | None = None,
    embeddings: str | Path | None = None,
    lm: str | Path | None = None,
    gold_tags: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    skip_invalid: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_data: Callable[[TrainingData], None] = lambda data: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
) -> TrainedParser:
    """Train a dependency parser.

    Args:
        train_files: CoNLL-U with trees. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"training": {"epochs": 5}}`; the preset `fast` if not given; those of the run when one
            is resumed.
        progress: show on stderr how it goes on; if None, where there is no `on_event`.
        dev: CoNLL-U by whose LAS the best epoch is chosen; without it, every tenth sentence of the
            treebank is kept for that.
        embeddings: a file of word vectors that forms begin with.
        lm: a neural language model whose states after words are read too; it is copied into the
            model directory.
        gold_tags: CoNLL-U, the sentences of `train_files` with gold tags, where theirs are
            predicted; an encoder learns from them what it cannot read.
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
        PARSER,
        train_files,
        output,
        config,
        progress=progress,
        resume=resume,
        device=device,
        on_event=on_event,
        on_data=on_data,
        should_stop=should_stop,
        dev=dev,
        embeddings=embeddings,
        lm=lm,
        gold_tags=gold_tags,
        force=force,
        skip_invalid=skip_invalid,
        threads=threads,
        command=command,
    )
    model = checkpoint.read_header(trained.path).config["model"]
    system = model["trees" if model.get("decoder") == "graph" else "system"]
    return TrainedParser(**vars(trained), system=system)


def _read(
    record: TreebankRecord[ParserConfig], word_states: WordStates | None
) -> tuple[ParserConfig, TrainingData]:
    """Return the settings, with the system chosen, and the data of a run."""
    if record.lm is not None:
        check_encoder(record.config)
    data = prepare_data(
        record.train,
        record.dev,
        record.config,
        skip_invalid=record.skip_invalid,
        embeddings=record.embeddings,
        word_states=word_states,
        gold_tags=record.gold_tags,
    )
    return data.config, data


def _make_task(config: ParserConfig, data: TrainingData, *, device: str, command: str) -> Task:
    """Return the task of a parser with such settings."""
    family: type[GraphTask | ParserTask] = GraphTask
    if config.model.decoder == "transition":
        family = GlobalTask if config.learning.loss == "global" else ParserTask
    return family(config, data, device=device, command=command)


PARSER = Kind(PRESETS, "a CoNLL-U file with trees", _read, _make_task, Parser.card, stages=stages)
