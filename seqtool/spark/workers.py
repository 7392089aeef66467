"""What a worker of Spark does to annotate text: open the model once, then read, parse and write.

    records of files -> parts, chunks of a corpus -> `parsing.annotation` -> CoNLL-U, or tokens
    rows             -> sentences                 -> `parsing.annotation` -> CoNLL-U, or tokens

CoNLL-U of files comes as rows of many sentences, as they are joined when they are written; of the
rows of a DataFrame, as a row for each sentence. Tokens are a row each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core.errors import DataError, ModelError, SeqtoolError
from seqtool.parsing.annotation import Annotation, Chunk, open_models, renumbered
from seqtool.spark.blocks import Part, is_utf8, not_utf8
from seqtool.spark.session import WorkerError
from seqtool.spark.shipping import Model
from seqtool.treebank.conllu import Broken, Item, batches_in, sentences_of
from seqtool.treebank.sentence import COLUMNS, HEAD, Sentence

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1 << 13  # given to Spark together, about
ABILITIES = {"parse": "parse_stream", "tag": "tag_stream", "segment": "segment"}  # of models

# the columns of a token are those of CoNLL-U, as texts: an id may be 3-4 or 5.1. HEAD is a number,
# null where there is none
TOKENS = {name.lower(): "integer" if name == COLUMNS[HEAD] else "string" for name in COLUMNS}
BROKEN = "broken"  # how many broken sentences a row stands for
ERROR = "error"  # what is wrong with a row of a DataFrame

CONLLU_OF_FILES = {"value": "string", BROKEN: "integer"}
TOKENS_OF_FILES = {
    "file": "string",
    "line": "long",  # of the file, where the sentence begins
    "sent_id": "string",
    **TOKENS,
    BROKEN: "integer",
}


@dataclass(frozen=True)
class Work:
    """What is done, and by which model.

    Attributes:
        annotation: see there.
        model: that does it.
    """

    annotation: Annotation
    model: Model

    @classmethod
    def of(cls, annotation: Annotation, paths: Sequence[str | Path]) -> Work:
        """Return work by the models at paths, once they were opened here, to see what they can.

        Args:
            annotation: what is done.
            paths: several vote; none where rules split text.

        Raises:
            ConfigError: ways to split text that do not go together.
            ModelError: the model is missing, damaged or of another kind.
        """
        model = Model(tuple(map(str, paths)), open_models).stamped()
        path = Path(paths[0]) if paths else None
        if path is not None and not hasattr(model.opened, ABILITIES[annotation.work]):
            what = f"cannot {annotation.work}"
            raise ModelError(what, hint="choose another with -m", path=path)
        if annotation.layout is not None:
            annotation.layout.splitter(model.opened, path)
        return cls(annotation, model)


@contextmanager
def telling_driver() -> Iterator[None]:
    """Raise a user's error within the block so that the driver can tell it.

    Raises:
        WorkerError: in its place.
    """
    try:
        yield
    except SeqtoolError as error:
        raise WorkerError(error) from error


def record_batch(columns: Mapping[str, Any], names: Mapping[str, str]) -> pa.RecordBatch:
    """Return columns as Spark takes them, with the types of its names."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "integer": pa.int32(), "long": pa.int64()}
    kinds |= {"double": pa.float64(), "binary": pa.binary()}
    arrays = [pa.array(columns[name], kinds[kind]) for name, kind in names.items()]
    return pa.RecordBatch.from_arrays(arrays, names=[*names])


class Rows:
    """Rows that are gathered as columns, until they are given to Spark.

    Args:
        names: of the columns, with their types as Spark writes these.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._columns: dict[str, list[Any]] = {name: [] for name in names}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def add(self, **cells: Any) -> None:
        """Add a row; cells that are not named are empty."""
        for name, column in self._columns.items():
            column.append(cells.get(name))

    def add_tokens(self, sentence: Sentence, /, **cells: Any) -> int:
        """Add a row for each line of a sentence, all with these cells; return their number."""
        lines = lines_of(sentence)
        tokens = dict(zip(TOKENS, zip(*lines, strict=True), strict=True))
        for name, column in self._columns.items():
            if name not in tokens:
                column.extend([cells.get(name)] * len(lines))
            elif TOKENS[name] == "integer":
                column.extend([int(head) if head.isdigit() else None for head in tokens[name]])
            else:
                column.extend(tokens[name])
        return len(lines)

    def take(self) -> pa.RecordBatch:
        """Return the rows, and begin anew."""
        batch = record_batch(self._columns, self._names)
        for column in self._columns.values():
            column.clear()
        return batch


def lines_of(sentence: Sentence) -> list[list[str]]:
    """Return the columns of the lines of a sentence: multiword tokens and empty nodes too."""
    if not sentence.extras:
        return sentence.rows
    lines: list[list[str]] = []
    done = 0
    for before, line in sentence.extras:
        lines += sentence.rows[done:before]
        lines.append(line.split("\t"))
        done = before
    return lines + sentence.rows[done:]


def sound(parts: Iterable[Part], *, is_text: bool) -> Iterator[Part | Broken]:
    """Pass parts on; of CoNLL-U, sentences that are not UTF-8 are taken out of theirs.

    Raises:
        DataError: when iterated: a text is not UTF-8, or holds a NUL.
    """
    for part in parts:
        if is_utf8(part):
            if is_text and b"\0" in part.text:
                raise DataError(
                    "a NUL, so this is no text",
                    hint="name a text file; convert it if it is UTF-16: iconv -f UTF-16 -t UTF-8",
                    path=part.file,
                    line=part.line + part.text.count(b"\n", 0, part.text.index(b"\0")),
                )
            yield part
        elif is_text:
            raise not_utf8(part)
        else:
            yield from _records(part)


def _records(part: Part) -> Iterator[Part | Broken]:
    line = part.line
    for text in part.text.removesuffix(b"\n\n").split(b"\n\n"):
        record = part._replace(line=line, text=text + b"\n\n")
        line += record.text.count(b"\n")
        if is_utf8(record):
            yield record
        else:
            yield Broken(text.decode(errors="replace"), not_utf8(record))


def conllu_of_files(
    parts: Iterable[Part], work: Work, folder: str | None
) -> Iterator[pa.RecordBatch]:
    """Give rows of `CONLLU_OF_FILES`: what is written of many sentences, without its last line end.

    That, Spark writes after each row.

    Args:
        parts: of files.
        work: what is done to them.
        folder: that of all files, with a slash, where there are several: the `sent_id`s of plain
            text then begin with the rest of the file's name. They go on with the byte where the
            block begins, unless it is the first, and the number of the sentence in the block.
    """
    rows = Rows(CONLLU_OF_FILES)
    annotation, model = work.annotation, work.model.opened
    is_text = annotation.layout is not None
    place, number = ("", 0), 0
    for part in sound(parts, is_text=is_text):
        if isinstance(part, Broken):
            kept = part.to_conllu().encode() if annotation.keeps_invalid else b""
            num_broken = 1
        else:
            done = annotation.annotate(_chunk(part), model)
            kept, num_broken = b"".join(content for _, content in done.parts), len(done.broken)
            if is_text and annotation.form == "conllu":
                number = number if place == (part.file, part.block) else 0
                place = (part.file, part.block)
                kept = renumbered(kept, number, _start_of_ids(part, folder))
                number += done.seen.num_sentences
        rows.add(value=kept[:-1].decode() if kept else None, broken=num_broken)
        yield rows.take()


def _chunk(part: Part) -> Chunk:
    return Chunk(((part.file, part.line, part.text.replace(b"\r\n", b"\n")),))


def _start_of_ids(part: Part, folder: str | None) -> str:
    file = "" if folder is None else f"{Path(part.file.removeprefix(folder)).with_suffix('')}-"
    return f"{file}{part.block}-" if part.block else file


def tokens_of_files(parts: Iterable[Part], work: Work) -> Iterator[pa.RecordBatch]:
    """Give rows of `TOKENS_OF_FILES`, and one without a token for each broken sentence."""
    rows = Rows(TOKENS_OF_FILES)
    annotation, model = work.annotation, work.model.opened
    for part in sound(parts, is_text=annotation.layout is not None):
        if isinstance(part, Broken):
            rows.add(broken=1)
            continue
        items = annotation.items(_chunk(part), model)
        for item in sentences_of(annotation.annotated(items, model)):
            if isinstance(item, Broken):
                rows.add(broken=1)
            else:
                name = item.sent_id or None
                rows.add_tokens(item, file=part.file, line=item.line or part.line, sent_id=name)
            if len(rows) >= ROWS:
                yield rows.take()
    if len(rows):
        yield rows.take()


def broken_of_files(parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    """Give broken sentences of CoNLL-U as rows of `CONLLU_OF_FILES`: a comment tells the error."""
    rows = Rows(CONLLU_OF_FILES)
    for part in sound(parts, is_text=False):
        items = (
            [part]
            if isinstance(part, Broken)
            else batches_in(_chunk(part).stretches, skip_invalid=True)
        )
        for item in items:
            if isinstance(item, Broken):
                rows.add(value=f"# {item.error}\n{item.to_conllu()}"[:-1], broken=1)
                yield rows.take()


def of_rows(
    batches: Iterable[pa.RecordBatch], work: Work, column: str, *, as_tokens: bool
) -> Iterator[pa.RecordBatch]:
    """Annotate the rows of a DataFrame, each a text, or CoNLL-U of one or more sentences.

    Gives the columns of the row beside what `results_of_rows` tells; a sentence that is not CoNLL-U
    is given once, with what is wrong in `ERROR`. A row that holds nothing gives nothing.
    """
    import pyarrow as pa

    annotation, model = work.annotation, work.model.opened
    results = Rows(results_of_rows(as_tokens=as_tokens))
    for batch in batches:
        kept = [place for place, name in enumerate(batch.schema.names) if name != column]
        texts = batch.column(column).to_pylist()
        places: list[int] = []
        number, last = 0, -1
        for item in sentences_of(annotation.annotated(_row_items(texts, annotation, model), model)):
            row = int(str(item.path if isinstance(item, Sentence) else item.error.path))
            number = number + 1 if row == last else 1
            last = row
            num = 1
            if isinstance(item, Broken):
                error = f"line {item.error.line}: {item.error.message}"
                results.add(sentence=number, conllu=item.to_conllu(), error=error)
            elif as_tokens:
                num = results.add_tokens(item, sentence=number)
            else:
                results.add(sentence=number, conllu=item.to_conllu())
            places += [row] * num
        made = results.take()
        chosen = batch.select(kept).take(pa.array(places, pa.int64()))
        yield pa.RecordBatch.from_arrays(
            [*chosen.columns, *made.columns], names=[*chosen.schema.names, *made.schema.names]
        )


def results_of_rows(*, as_tokens: bool) -> dict[str, str]:
    """Return the columns of what `of_rows` gives beside those of the row, with their types.

    `sentence` is the number of the sentence in the row's text, from 1.
    """
    return {
        "sentence": "integer",
        **(TOKENS if as_tokens else {"conllu": "string"}),
        ERROR: "string",
    }


def _row_items(texts: Sequence[str | None], annotation: Annotation, model: Any) -> Iterator[Item]:
    """Give the sentences of texts; the path of each is the number of its text."""
    for row, text in enumerate(texts):
        if not text or text.isspace():
            continue
        if annotation.layout is None:
            text = text.replace("\r\n", "\n").removesuffix("\n") + "\n"
        for item in annotation.items(Chunk(((str(row), 1, text.encode()),)), model):
            if isinstance(item, Sentence):
                item.path = str(row)
            yield item
