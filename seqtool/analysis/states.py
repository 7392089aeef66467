"""The states of a network after each word of a text, as files for NumPy and for tables.

    states.npy    float32 [rows, H], a row for each word
    states.tsv    row  sentence  number  word  start  end

`row` is that of the array, from 0; `sentence` and `number` (of the word in it) count from 1.
`start` and `end` are characters, from 0: of the line, or of a treebank's sentence, whose tokens
stand a space apart but for `SpaceAfter=No`; all words of a multiword token stand where it does.

A language model's states are those of `lm.states`; a tagger's or parser's are those of its
bidirectional encoder, which has read the whole sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.core.errors import ConfigError, DataError, ModelError, OutputError
from seqtool.core.reading import Progress, is_text, read_blocks
from seqtool.core.storage import atomic_file
from seqtool.lm.model import LanguageModel
from seqtool.lm.states import Pool, SentenceStates, Span, check_layer, word_states
from seqtool.lm.stimuli import is_stimuli
from seqtool.lm.tables import check_target, open_table
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.parsing.segmenter.documents import TextLayout
from seqtool.parsing.tagger.model import Tagger
from seqtool.treebank.conllu import Broken, read_conllu
from seqtool.treebank.sentence import FORM, MISC, Sentence

Part = Literal["tagger", "parser"]

NPY = ".npy"
COLUMNS = ("row", "sentence", "number", "word", "start", "end")
SENTENCES = 256  # read together


class Written(NamedTuple):
    """What was written: rows of an array, their width, and sentences."""

    rows: int
    width: int
    sentences: int


def write_states(
    model: object,
    inputs: Sequence[str],
    output: str | Path,
    *,
    layer: int | None = None,
    pool: Pool = "last",
    part: Part | None = None,
    raw: bool = False,
    allow_missing: bool = False,
    on_progress: Progress | None = None,
) -> Written:
    """Write the states of the words of a text, and a table of these words beside them.

    Memory does not grow with the text. The files appear when they are whole.

    Args:
        model: a neural language model, a tagger, a parser with an encoder, or a pipeline of such.
        inputs: text for a language model, a sentence a line; for the others CoNLL-U, whose tags
            are kept, or plain text that a pipeline splits.
        output: a file named `.npy`; the table has its name, but for `.tsv`.
        layer: from 1, and 0 for the embedding of a language model; the last one when not given.
        pool: of a language model, see `lm.states`.
        part: of a pipeline; its parser when not given.
        raw: the inputs are plain text for a pipeline, as files named .txt are anyway.
        allow_missing: let a parser read also sentences without columns that it reads, as tags.
        on_progress: called with bytes read and in all.

    Raises:
        ConfigError: there is no such layer, the output has another suffix, or an option is for
            another kind of model.
        DataError: inputs that cannot be used, or without a word.
        ModelError: the model has no states, or cannot read plain text.
        OutputError: a file that is no table of an earlier array has the name of the table.
    """
    path = Path(output)
    if path.suffix != NPY:
        what = f"the output is {output}, but its name must end with {NPY}"
        raise ConfigError(what, hint="name it states.npy")
    table = path.with_suffix(".tsv")
    check_target(table)
    if table.exists() and not path.exists():  # else both are of an earlier call
        hint = f"move it away, or choose another output than {output}"
        raise OutputError("is there already", hint=hint, path=table)
    is_lm = isinstance(model, LanguageModel)
    misplaced = {"part": is_lm and part is not None, "raw": is_lm and raw}
    misplaced["pool"] = not is_lm and pool != "last"
    for option, is_given in misplaced.items():
        if is_given:
            whose = "parsers" if is_lm else "language models: a parser reads whole words"
            raise ConfigError(f"{option} is for {whose}", hint="leave it out")
    if isinstance(model, LanguageModel):
        for name in filter(is_stimuli, inputs):
            what = "is a table, whose other cells and commas would be read as words"
            raise DataError(what, hint="write its texts to a file, one a line (.txt)", path=name)
        blocks = read_blocks(inputs, on_progress=on_progress)
        lines = (line for block in blocks for line in block.decode().split("\n")[:-1])
        return _write(word_states(model, lines, layer=layer, pool=pool), path, inputs)
    reader = _reader(model, part)
    if layer is not None:
        check_layer(layer, reader.num_layers)
    sentences: Iterable[Sentence | Broken]
    if raw or all(map(is_text, inputs)):
        if not isinstance(model, Pipeline):
            hint = "give CoNLL-U, or a model of `seqtool train-parser --raw`"
            raise ModelError("cannot read plain text: it has no segmenter", hint=hint)
        sentences = TextLayout().read(inputs, model, None)
    else:
        sentences = read_conllu(inputs, check="columns", on_progress=on_progress)
    if isinstance(model, Pipeline) and isinstance(reader, Parser):
        sentences = model.tag_stream(sentences)
    states = _encoder_states(reader, sentences, layer, allow_missing=allow_missing)
    return _write(states, path, inputs)


def _reader(model: object, part: Part | None) -> Tagger | Parser:
    """Return what has an encoder."""
    hint = "choose one of train-lm, of train-tagger, or of train-parser --encoder bilstm"
    if isinstance(model, Pipeline):
        model = model.tagger if part == "tagger" else model.detailed
        hint = "its tagger has some: --part tagger"
    elif part is not None:
        raise ConfigError("part is for models of several parts", hint="leave it out")
    if isinstance(model, Tagger | Parser) and model.num_layers:
        return model
    what = "the parser has no encoder" if isinstance(model, Parser) else "the model has no states"
    raise ModelError(what, hint=hint)


def _encoder_states(
    reader: Tagger | Parser,
    items: Iterable[Sentence | Broken],
    layer: int | None,
    *,
    allow_missing: bool,
) -> Iterator[SentenceStates]:
    read = reader.sentence_states
    if isinstance(reader, Parser):
        read = partial(reader.sentence_states, allow_missing=allow_missing)
    sentences = (item for item in items if isinstance(item, Sentence))
    while chunk := list(islice(sentences, SENTENCES)):
        for sentence, vectors in zip(chunk, read(chunk, layer), strict=True):
            yield SentenceStates(spans_of(sentence), vectors)


def spans_of(sentence: Sentence) -> list[Span]:
    """Return the words of a sentence, and where they stand in its text: see above."""
    tokens = {first: (last, columns) for first, last, columns in sentence.multiword_tokens()}
    spans: list[Span] = []
    start = 0
    while len(spans) < len(sentence):
        first = len(spans) + 1
        last, columns = tokens.get(first, (first, sentence.rows[first - 1]))
        end = start + len(columns[FORM])
        forms = [row[FORM] for row in sentence.rows[first - 1 : last]]
        spans += [Span(form, start, end) for form in forms]
        start = end + ("SpaceAfter=No" not in columns[MISC].split("|"))
    return spans


def _write(items: Iterator[SentenceStates], path: Path, inputs: Sequence[str]) -> Written:
    num_rows = num_sentences = width = 0
    with open_rows(path) as write, open_table(path.with_suffix(".tsv")) as table:
        while chunk := list(islice(items, SENTENCES)):
            words = [
                (number, place, *word)
                for number, states in enumerate(chunk, start=num_sentences + 1)
                for place, word in enumerate(states.words, start=1)
            ]
            vectors = np.concatenate([states.vectors for states in chunk])
            write(vectors)
            rows = range(num_rows, num_rows + len(words))
            columns = [[*rows], *map(list, zip(*words, strict=True))]
            if words:
                table.write(dict(zip(COLUMNS, columns, strict=True)))
            num_rows, num_sentences = num_rows + len(words), num_sentences + len(chunk)
            width = vectors.shape[1]
        if not num_rows:
            raise DataError("there are no words", hint="give a text with words", path=inputs[0])
    return Written(num_rows, width, num_sentences)


@contextmanager
def open_rows(path: str | Path) -> Iterator[Callable[[Floats], None]]:
    """Give a function that appends rows, [R, H], to a new `.npy` file, which holds them in the end.

    How many there are stands at the beginning of the file: it is written twice. Headers of NumPy
    keep room for the first axis to grow.
    """
    with atomic_file(path) as raw:
        num_rows = 0
        width: int | None = None

        def header() -> None:
            shape = (num_rows, width or 0)
            content = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(raw, content)

        def write(rows: Floats) -> None:
            nonlocal num_rows, width
            if width is None:
                width = rows.shape[1]
                header()
            raw.write(np.ascontiguousarray(rows, "<f4").data)
            num_rows += len(rows)

        yield write
        raw.seek(0)
        header()
