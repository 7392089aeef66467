"""Training of parsers: `train_parser`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from seqtool.core import checkpoint
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.parsing.parser.config import PRESETS, ParserConfig, check_encoder
from seqtool.parsing.parser.data import TrainingData, prepare_data
from seqtool.parsing.parser.model import Parser
from seqtool.parsing.parser.task import ParserTask
from seqtool.parsing.train import Kind, TreebankRecord, WordOptions, train_on_treebank
from seqtool.training.run import TrainedModel


@dataclass(frozen=True)
class TrainedParser(TrainedModel):
    """What `train_parser` returns; the scores are `dev_las` and `dev_uas` in percent.

    Attributes:
        system: the transition system, as chosen.
    """

    system: str


def train_parser(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/parser",
    config: ParserConfig | None = None,
    *,
    gold_tags: str | Path | None = None,
    **options: Unpack[WordOptions],
) -> TrainedParser:
    """Train a dependency parser.

    Args:
        train_files: CoNLL-U with trees. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, the preset `fast` if not given; those of the run when one is resumed.
        gold_tags: CoNLL-U, the sentences of `train_files` with gold tags, where theirs are
            predicted; an encoder learns from them what it cannot read.
        options: see `WordOptions`; the best epoch is chosen by LAS.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    trained = train_on_treebank(PARSER, train_files, output, config, gold_tags=gold_tags, **options)
    system = checkpoint.read_header(trained.path).config["model"]["system"]
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


PARSER = Kind(PRESETS, "a CoNLL-U file with trees", _read, ParserTask, Parser.card)
