"""Distillation: a parser learns from other parsers, its teachers, their trees and probabilities.

The teachers parse text together. Their trees are learnt beside those of the treebank, as if they
were gold ones (sequence-level distillation, Kim & Rush 2016; of several teachers, Kuncoro et al.
2016). They are written once, when a run begins, so that a run that is resumed reads the same ones.
They also tell, of the treebank and of the text, how probable they take what the student scores:

- Heads, of a student that scores arcs: the mean of all teachers' probabilities, as a vote has them,
  written once as well. Half of a word's loss is that of its gold head, and half is that of a head
  drawn from these (Hinton, Vinyals & Dean 2015). Teachers of any kind tell them.
- Transitions, of a student that chooses these. A teacher that has the student's transition system
  is asked in each configuration that the student comes through, those after its own mistakes too
  (Liu et al. 2018): the student is to give the transitions the probabilities that the teacher gives
  them, or the mean of those of several such teachers.

Where there is no other text, the teachers parse variants of the treebank's sentences: a word of an
open class gives way to one with the same tags (nonce sentences: Gulordava et al. 2018; as training
data, Vania et al. 2019). It is text of the treebank's own kind, with its tags, that they have not
learnt by heart:

    his dog sleeps on the sofa   ->   his cat sleeps on the table
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Ints
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.progress import progress_bar
from seqtool.core.reading import find_files, is_treebank
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE, TokenArrays, Types, token_rows
from seqtool.parsing.missing_columns import MISSING_HINT, ColumnCheck
from seqtool.parsing.model import chunks
from seqtool.parsing.parser.config import LONGEST_LEARNT, VARIANT, ParserConfig
from seqtool.parsing.parser.data import HeadShares, Teacher, TrainingData
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.vote import Vote
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import (
    DEPREL,
    FEATS,
    FORM,
    ID,
    LEMMA,
    NUM_COLUMNS,
    UPOS,
    XPOS,
    Sentence,
)

# in the run's directory
TAUGHT = "treebank/taught.conllu.gz"
HEAD_SHARES = "treebank/heads.safetensors"
LEAST_SHARE = 0.005  # of a word's heads that are less probable nothing is learnt
TEACHER_WORDS = 2000  # of sentences that the teachers are asked about together
TEACHER_BEAM = 4  # they parse once, and their trees are read in every epoch
OPEN_CLASSES = frozenset(["ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "SYM", "VERB", "X"])
COUNT_POWER = 0.75  # a word that occurs n times is drawn in proportion to n to this power
NUM_DRAWN = 256  # words that are drawn at a time: one by one would take most of the time


class _OpenWords:
    """The words of open classes, by their tags."""

    def __init__(self, treebank: Sequence[Sentence], generator: np.random.Generator) -> None:
        counts: defaultdict[tuple[str, ...], Counter[tuple[str, str]]] = defaultdict(Counter)
        for sentence in treebank:
            for place, row in enumerate(sentence.rows):
                # the first word of a sentence may be written with a capital for that alone
                if row[UPOS] in OPEN_CLASSES and (place or row[UPOS] == "PROPN"):
                    counts[row[UPOS], row[XPOS], row[FEATS]][row[FORM], row[LEMMA]] += 1
        self._counts, self._generator = counts, generator
        self._drawn: dict[tuple[str, ...], list[tuple[str, str]]] = {}

    def another(self, row: list[str], *, is_first: bool) -> list[str]:
        """Return a word with the tags of one, which may be the same; without any, the word."""
        tags = row[UPOS], row[XPOS], row[FEATS]
        if tags not in self._counts:
            return row
        if not self._drawn.get(tags):
            words = list(self._counts[tags])
            weights = np.asarray(list(self._counts[tags].values())) ** COUNT_POWER
            drawn = self._generator.choice(len(words), NUM_DRAWN, p=weights / weights.sum())
            self._drawn[tags] = [words[number] for number in drawn.tolist()]
        form, lemma = self._drawn[tags].pop()
        if is_first and row[FORM][:1].isupper():
            form = form[:1].upper() + form[1:]
        return [row[ID], form, lemma, *row[UPOS:]]


def variants(
    treebank: Iterable[Sentence], num: int, seed: int, *, words: float
) -> Iterator[Sentence]:
    """Give variants of all sentences of a treebank, one of each and then the next one of each.

    Of each they have the words in order, the tree, one comment, and no multiword tokens or empty
    nodes. Where no word has a UPOS tag of an open class, there are none.

    Args:
        treebank: sentences with trees.
        num: variants of each sentence.
        seed: of what is drawn.
        words: the share of the words of open classes that give way.
    """
    treebank = list(treebank) if num else []
    if not any(row[UPOS] in OPEN_CLASSES for sentence in treebank for row in sentence.rows):
        return
    generator = np.random.default_rng((seed, 2))
    open_words = _OpenWords(treebank, generator)
    for _ in range(num):
        for sentence in treebank:
            rows = _bare(sentence).rows
            for place in np.flatnonzero(generator.random(len(rows)) < words).tolist():
                rows[place] = open_words.another(rows[place], is_first=not place)
            yield Sentence([VARIANT], rows, [])


def check_teachers(teachers: Sequence[str], output: Path) -> None:
    """Refuse text without teachers, one teacher twice, and a run that would be its own teacher.

    Raises:
        ConfigError: it is so.
    """
    if not teachers:
        raise ConfigError(
            "--unlabelled is text for teachers to parse, and there are none",
            hint="name parsers over the same treebank with --distil",
        )
    for teacher in teachers:
        if [*teachers].count(teacher) > 1:
            raise ConfigError(f"{teacher} is named twice", hint="name each teacher once")
        if Path(teacher).resolve().is_relative_to(output.resolve()):
            raise ConfigError(
                f"the parser would replace {teacher}, which is to teach it",
                hint="choose another output with -o",
            )


def describe(teachers: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Return what a model's header tells of its teachers, and of the text that they parsed."""
    described = {"teachers": ", ".join(Path(teacher).name for teacher in teachers)}
    if files:
        described["unlabelled"] = ", ".join(Path(file).name for file in files)
    return described


def asks_for_heads(config: ParserConfig) -> bool:
    """Return whether a student of such settings learns from its teachers how probable heads are."""
    is_neural_graph = (config.model.decoder, config.model.classifier) == ("graph", "neural")
    return is_neural_graph and config.learning.teacher_weight > 0


def with_teachers(data: TrainingData, teachers: Sequence[str], output: Path) -> TrainingData:
    """Return training data with what the teachers tell beside trees.

    That is how probable heads are, as `write_heads` wrote it into the run's directory `output`; or
    the teachers themselves, which tell the probabilities of transitions. They are asked in every
    epoch, so that a run that is resumed opens them again.

    Raises:
        ModelError: a teacher cannot be opened, or is no parser.
        ConfigError: there is no text that they have parsed, and none tells probabilities either.
    """
    if asks_for_heads(data.config):
        return dataclasses.replace(data, head_shares=read_heads(output, data.train.arrays))
    asked = teachers if data.config.learning.teacher_weight else ()
    parsers = [parser for path in asked for parser in _parsers(path)]
    asked_teachers = teachers_of(parsers, data.config, data.types, data.labels)
    if not (asked_teachers or data.num_taught):
        model = data.config.model
        decided = "arcs" if model.decoder == "graph" else f"{model.system} transitions"
        raise ConfigError(
            f"no teacher tells the probabilities of {decided}, and there is no text that they "
            "could parse",
            hint="give text with --unlabelled, or --set variants=2 and a treebank with UPOS tags",
        )
    return dataclasses.replace(data, teachers=asked_teachers)


def teachers_of(
    parsers: Sequence[Parser], config: ParserConfig, types: Types, labels: Labels
) -> tuple[Teacher, ...]:
    """Return those of some parsers that can be asked in a student's configurations.

    These are neural, and have learnt transitions of the same system one by one; they read no
    columns that the student does not.

    Args:
        parsers: members of an ensemble count one by one.
        config: of the student, with the system chosen.
        types: of the student.
        labels: of the student.
    """
    if (config.model.decoder, config.model.classifier) != ("transition", "neural"):
        return ()
    members = [member for parser in parsers for member in parser.members]
    return tuple(
        Teacher(
            member.config.model,
            _renumbered(member.weights, member.labels, labels),
            _symbols(member.types, types),
        )
        for member in members
        if member.config.model.decoder == "transition"
        and member.config.model.classifier == "neural"
        and member.config.model.system == config.model.system
        and member.config.learning.loss == "local"
        and {*member.types.lexical.columns} <= {*types.lexical.columns}
    )


def _symbols(own: Types, wanted: Types) -> tuple[Ints, ...]:
    """Return the symbols that a parser has for another one's types."""
    places = [wanted.lexical.columns.index(column) for column in own.lexical.columns]
    # of its own, so that the parser keeps none of them
    met = own.as_new()
    numbers = [NONE_TYPE, ROOT_TYPE]
    numbers += [met.add(tuple([key[place] for place in places])) for key in wanted.texts()]
    return tuple(table[numbers] for table in met.arrays())


def _renumbered(weights: Mapping[str, Floats], own: Labels, wanted: Labels) -> Mapping[str, Floats]:
    """Return a classifier's weights with labels and transitions numbered as another one's.

    A transition that the classifier does not know is never chosen: its score is minus infinity. An
    arc of a label that it does not know looks as one without the mark of a lifted arc, or as none.
    """
    arcs = [own.arcs.index(label) if label in own.arcs else -1 for label in wanted.arcs]
    roots = [own.roots.index(label) if label in own.roots else -1 for label in wanted.roots]
    places = {label: number for number, label in enumerate(own.names, start=1)}
    seen = [places.get(label, places.get(label.partition(LIFTED)[0], 0)) for label in wanted.names]
    left, right, root = own.segments[2:5].tolist()
    transitions = np.asarray(
        [
            *(0, 1),
            *(left + place if place >= 0 else -1 for place in arcs),
            *(right + place if place >= 0 else -1 for place in arcs),
            *(root + place if place >= 0 else -1 for place in roots),
        ]
    )
    output, bias = weights["output.weight"][transitions], weights["output.bias"][transitions]
    output[transitions < 0], bias[transitions < 0] = 0.0, -np.inf
    return {
        **weights,
        "labels.weight": weights["labels.weight"][[0, *seen]],
        "output.weight": output,
        "output.bias": bias,
    }


def _parsers(path: str) -> Sequence[Parser]:
    """Return the parser in a directory, that of a pipeline, or those that vote.

    Raises:
        ModelError: there is none.
    """
    parser = _parser_of(checkpoint.load(path), path)
    return parser.parsers if isinstance(parser, Vote) else [parser]


def _parser_of(model: Any, path: str) -> Parser | Vote:
    """Return a parser, or that of a pipeline; raise ModelError of another model."""
    parser = getattr(model, "parser", model)
    if not isinstance(parser, Parser | Vote):
        hint = "name parsers, or what `seqtool train-parser --raw` made"
        raise ModelError("is no parser, so it teaches none", hint=hint, path=path)
    return parser


def check_columns(teachers: Sequence[str], treebank: Iterable[Sentence]) -> None:
    """Refuse a treebank without columns that a teacher reads, as it would tell rubbish.

    Raises:
        ModelError: a teacher cannot be opened, or is no parser.
        DataError: the treebank misses a column.
    """
    parsers = [(path, parser) for path in teachers for parser in _parsers(path)]
    checks = [ColumnCheck(parser.types, from_start=False) for _, parser in parsers]
    for chunk in _learnable_chunks(treebank):
        for (path, parser), check in zip(parsers, checks, strict=True):
            try:
                parser.encode(chunk, check)
            except DataError as error:
                error.hint = (
                    f"it is the teacher {path}: name those that read the treebank's columns"
                )
                raise


def write_taught(
    teachers: Sequence[str], files: Sequence[str], made: Iterable[Sentence], output: Path
) -> None:
    """Parse text by all teachers together, and write it into the directory of a run.

    Args:
        teachers: directories of parsers, or of pipelines, which can also read plain text.
        files: CoNLL-U, whose trees are not looked at, or plain text.
        made: variants of the treebank's sentences, whose trees are not looked at, either.
        output: the directory of the run.

    Raises:
        ModelError: a teacher cannot be opened, or their labels differ.
        ConfigError: plain text, and no teacher that can split it.
        DataError: a file that cannot be read, or lacks columns that a teacher reads.
    """
    model = checkpoint.load(list(teachers))
    _parser_of(model, teachers[0])
    paths = find_files(files, treebanks=True, texts=True) if files else []
    texts = [path for path in paths if not is_treebank(path)]
    if texts and not hasattr(model, "read_text"):
        raise ConfigError(
            f"{texts[0]} is plain text, and no teacher can split it into words",
            hint="name a model of `seqtool train-parser --raw` in --distil, or give CoNLL-U",
        )
    target = output / TAUGHT
    target.parent.mkdir(exist_ok=True)
    try:
        write_conllu(map(_bare, _parsed(model, paths, made)), target)
    except DataError as error:
        if error.hint == MISSING_HINT:
            error.hint = (
                "tag it with `seqtool tag`, or name a model of `train-parser --raw` in --distil"
            )
        raise


def _parsed(model: Any, paths: Sequence[str], made: Iterable[Sentence]) -> Iterator[Sentence]:
    """Give the sentences of files, and variants, with trees."""
    num_done = 0

    def sentences() -> Iterator[Sentence]:
        for path in paths:
            if is_treebank(path):
                yield from read_conllu(path, check="columns", skip_option="")
            else:
                yield from model.read_text(Path(path))
        yield from made

    with progress_bar("the teachers parse") as on_progress:
        for sentence in model.parse_stream(sentences(), beam=TEACHER_BEAM):
            num_done += 1
            on_progress(num_done, None)
            yield sentence


def write_heads(
    teachers: Sequence[str], treebank: Iterable[Sentence], taught: str | None, output: Path
) -> None:
    """Write how probable the teachers take heads to be into the directory of a run.

    They are asked about the treebank and, behind it, about what they have parsed.

    Args:
        teachers: directories of parsers, or of pipelines.
        treebank: the sentences of the training part, in order.
        taught: the file that `write_taught` wrote; None without.
        output: the directory of the run.

    Raises:
        ModelError: a teacher cannot be opened, or their labels differ.
    """
    parser = _parser_of(checkpoint.load(list(teachers)), teachers[0])
    # of each word how many heads it has, and these; of no sentences, none
    counts, heads, shares = (
        [np.empty(0, np.int32)],
        [np.empty(0, np.int16)],
        [np.empty(0, np.float16)],
    )
    num_done = 0
    with progress_bar("the teachers tell heads") as on_progress:
        for chunk in _learnable_chunks(chain(treebank, read_conllu(taught) if taught else ())):
            for table in parser.head_probabilities(chunk, beam=TEACHER_BEAM):
                table = np.where(table < LEAST_SHARE, np.float32(0), table)
                has_share = table > 0
                total = table.sum(1, keepdims=True)
                table /= np.where(total > 0, total, np.float32(1))
                counts.append(has_share.sum(1, dtype=np.int32))
                heads.append(has_share.nonzero()[1].astype(np.int16))
                shares.append(table[has_share].astype(np.float16))
            num_done += len(chunk)
            on_progress(num_done, None)
    (output / HEAD_SHARES).parent.mkdir(exist_ok=True)
    arrays: dict[str, npt.NDArray[Any]] = {
        "counts": np.concatenate(counts),
        "heads": np.concatenate(heads),
        "shares": np.concatenate(shares),
    }
    save_file(arrays, output / HEAD_SHARES)


def _learnable_chunks(sentences: Iterable[Sentence]) -> Iterator[list[Sentence]]:
    """Give sentences that are not too long to learn from, some at a time."""
    learnable = (sentence for sentence in sentences if len(sentence) <= LONGEST_LEARNT)
    for chunk in chunks(learnable, TEACHER_WORDS):
        yield [sentence for sentence in chunk if isinstance(sentence, Sentence)]


def read_heads(output: Path, arrays: TokenArrays) -> HeadShares:
    """Return what `write_heads` wrote about the sentences of token arrays.

    Raises:
        ModelError: it is not there, or tells of other sentences.
    """
    try:
        table = load_file(output / HEAD_SHARES)
        num_shares, heads, shares = (table[name] for name in ("counts", "heads", "shares"))
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(
            "has no readable file of its teachers' marginals of heads",
            hint="begin the run anew, with --force",
            path=output / HEAD_SHARES,
        ) from error
    is_learnt = arrays.lengths <= LONGEST_LEARNT
    rows = token_rows(arrays.tokens[is_learnt] + 1, arrays.lengths[is_learnt] - 1)
    if len(num_shares) != len(rows):
        raise ModelError(
            "tells of the heads of another treebank",
            hint="give the treebank that the run began with, or begin anew with --force",
            path=output / HEAD_SHARES,
        )
    counts = np.zeros(len(arrays.types) + 1, np.int64)
    counts[rows + 1] = num_shares
    return HeadShares(np.cumsum(counts), heads, shares)


def _bare(sentence: Sentence) -> Sentence:
    """Return a sentence without what no parser reads: most of a file, where there is much text."""
    rest = ["_"] * (NUM_COLUMNS - DEPREL - 1)
    comments = [comment for comment in sentence.comments if comment == VARIANT]
    return Sentence(comments, [[*row[: DEPREL + 1], *rest] for row in sentence.rows], [])
