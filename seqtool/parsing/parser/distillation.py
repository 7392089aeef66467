"""What a parser learns from other parsers: text that these, its teachers, have parsed together.

Their trees are learnt beside those of the treebank, as if they were gold ones (sequence-level
distillation, Kim & Rush 2016; of several teachers, Kuncoro et al. 2016). They are written once,
when a run begins, so that a run that is resumed reads the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.progress import progress_bar
from seqtool.core.reading import find_files, is_treebank
from seqtool.parsing.parser import columns
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import DEPREL, NUM_COLUMNS, Sentence

TAUGHT = "treebank/taught.conllu.gz"  # in the run's directory
BEAM = 4  # of teachers that have one: they parse once, and their trees are read in every epoch


def check_teachers(teachers: Sequence[str], files: Sequence[str], output: Path) -> None:
    """Refuse teachers without text, text without teachers, and a run that would be its own teacher.

    Raises:
        ConfigError: it is so.
    """
    if not files:
        raise ConfigError(
            "--distil is without text for the teachers to parse",
            hint="give some with --unlabelled, plain or CoNLL-U: the more, the better",
        )
    if not teachers:
        raise ConfigError(
            "--unlabelled is text for teachers to parse, and there are none",
            hint="name parsers over the same treebank with --distil",
        )
    for teacher in teachers:
        if Path(teacher).resolve().is_relative_to(output.resolve()):
            raise ConfigError(
                f"the parser would replace {teacher}, which is to teach it",
                hint="choose another output with -o",
            )


def describe(teachers: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Return what a model's header tells of its teachers; nothing if it had none."""
    if not teachers:
        return {}
    return {
        "teachers": ", ".join(Path(teacher).name for teacher in teachers),
        "unlabelled": ", ".join(Path(file).name for file in files),
    }


def write_taught(teachers: Sequence[str], files: Sequence[str], output: Path) -> None:
    """Parse text by all teachers together, and write it into the directory of a run.

    Args:
        teachers: directories of parsers, or of pipelines, which can also read plain text.
        files: CoNLL-U, whose trees are not looked at, or plain text.
        output: the directory of the run.

    Raises:
        ModelError: a teacher cannot be opened, or their labels differ.
        ConfigError: plain text, and no teacher that can split it.
        DataError: a file that cannot be read, or lacks columns that a teacher reads.
    """
    model = checkpoint.load(list(teachers))
    if not hasattr(model, "parse_stream"):
        hint = "name parsers, or what `seqtool train-parser --raw` made"
        raise ModelError("is no parser, so it teaches none", hint=hint, path=teachers[0])
    paths = find_files(files, treebanks=True)
    texts = [path for path in paths if not is_treebank(path)]
    if texts and not hasattr(model, "read_text"):
        raise ConfigError(
            f"{texts[0]} is plain text, and no teacher can split it into words",
            hint="name a model of `seqtool train-parser --raw` in --distil, or give CoNLL-U",
        )
    target = output / TAUGHT
    target.parent.mkdir(exist_ok=True)
    try:
        write_conllu(map(_bare, _parsed(model, paths)), target)
    except DataError as error:
        if error.hint != columns.HINT:
            raise
        hint = "tag it with `seqtool tag`, or name a model of `train-parser --raw` in --distil"
        raise DataError(error.message, hint=hint, path=error.path, line=error.line) from error


def _parsed(model: Any, paths: Sequence[str]) -> Iterator[Sentence]:
    """Give the sentences of files with trees."""
    num_done = 0

    def sentences() -> Iterator[Sentence]:
        for path in paths:
            if is_treebank(path):
                yield from read_conllu(path, check="columns", skip_option="")
            else:
                yield from model.read_text(Path(path))

    with progress_bar("the teachers parse") as on_progress:
        for sentence in model.parse_stream(sentences(), beam=BEAM):
            num_done += 1
            on_progress(num_done, None)
            yield sentence


def _bare(sentence: Sentence) -> Sentence:
    """Return a sentence without what no parser reads: most of a file, where there is much text."""
    rest = ["_"] * (NUM_COLUMNS - DEPREL - 1)
    return Sentence([], [[*row[: DEPREL + 1], *rest] for row in sentence.rows], [])
