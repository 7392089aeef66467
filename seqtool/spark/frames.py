"""Text annotated on Spark: DataFrames in and out, and files in, a directory of files out.

    import seqtool

    seqtool.spark.parse(frame, "runs/mine").where("upos = 'VERB'").groupBy("lemma").count()

A row is worked on by itself, so the result does not depend on how the frame is cut. All other
columns of a row come back with each row that it gives.

The result has one row a token, as a query wants it, and Parquet packs what repeats; with
`output="conllu"` it has one row a sentence, with its CoNLL-U, which keeps comments too.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtool.core.errors import ConfigError, ModelError
from seqtool.parsing.annotation import Annotation, Chunk, open_models
from seqtool.parsing.segmenter.documents import TextLayout
from seqtool.spark.files import PARAGRAPHS, Folder, Part, Records, common_folder, read_records
from seqtool.spark.session import user_errors
from seqtool.spark.workers import (
    Batches,
    Model,
    batch_of_rows,
    beside,
    check_texts,
    mapped,
    other_fields,
)
from seqtool.treebank.conllu import Broken, Item, sentences_of
from seqtool.treebank.sentence import COLUMNS, Sentence

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BROKEN_FOLDER = "_broken"
# the columns of a token are those of CoNLL-U, as texts: an id may be 3-4 or 5.1. The head is a
# number, null where there is none
TOKENS = {**dict.fromkeys(map(str.lower, COLUMNS), "string"), "head": "integer"}
_RESULTS = {"tokens": TOKENS, "conllu": {"conllu": "string"}}
_ABILITIES = {"parse": "parse_stream", "tag": "tag_stream", "segment": "segment"}  # of models
_SENT_ID = "# sent_id = "

Models = str | Path | Sequence[str | Path]
Output = Literal["tokens", "conllu"]


def parse(
    frame: DataFrame,
    model: Models,
    *,
    column: str = "text",
    is_conllu: bool = False,
    output: Output = "tokens",
    beam: int = 1,
    retag: bool = False,
    allow_missing: bool = False,
    scores: bool = False,
    ship: bool | None = None,
) -> DataFrame:
    """Parse the texts of a column.

    Args:
        frame: any DataFrame of Spark.
        model: the directory of a parser or a pipeline; several vote.
        column: of texts, each a document, or of CoNLL-U of one or more sentences each.
        is_conllu: whether the column holds CoNLL-U; plain text needs a pipeline.
        output: "tokens", one row a token with the columns of CoNLL-U, or "conllu", one row a
            sentence with its text in `conllu`. Both have `sentence`, its number in the row, and
            `error`: what is wrong with a sentence that is no CoNLL-U.
        beam: hypotheses per sentence.
        retag: predict also the tags and lemmas that are there.
        allow_missing: parse also sentences without columns that the parser reads.
        scores: write how probable each head is: MISC, Score=0.987.
        ship: send the model to the workers; when not given, unless these run on this machine.

    Raises:
        AnalysisException: of Spark, as where there is no such column.
        ConfigError: it holds no texts, or the model has not an option.
        ModelError: the model is no parser, or cannot split text or tag words.
    """
    options: dict[str, Any] = {"beam": beam, "scores": scores}
    # each, one kind of model alone has
    options |= {"retag": True} if retag else {"allow_missing": True} if allow_missing else {}
    annotation = Annotation("parse", None if is_conllu else TextLayout(), options=options)
    work = Work.of(annotation, _paths(model))
    tags = work.model.opened.has_tagger
    if (allow_missing and tags) or (retag and not tags):
        option, why = ("allow_missing", "tags words") if tags else ("retag", "has no tagger")
        raise ConfigError(f"{option} is not for a model that {why}", hint=f"leave {option} out")
    return annotated(frame, work, column, output=output, ship=ship)


def tag(
    frame: DataFrame,
    model: Models,
    *,
    column: str = "text",
    is_conllu: bool = False,
    output: Output = "tokens",
    retag: bool = False,
    ship: bool | None = None,
) -> DataFrame:
    """Tag the texts of a column; arguments and errors are those of `parse`."""
    layout = None if is_conllu else TextLayout()
    annotation = Annotation("tag", layout, options={"retag": retag})
    return annotated(frame, Work.of(annotation, _paths(model)), column, output=output, ship=ship)


def segment(
    frame: DataFrame,
    model: Models | None = None,
    *,
    column: str = "text",
    presegmented: bool = False,
    pretokenized: bool = False,
    output: Output = "tokens",
    ship: bool | None = None,
) -> DataFrame:
    """Split the texts of a column into sentences and words: by a model, or by rules without one.

    Args:
        frame: any DataFrame of Spark.
        model: the directory of a segmenter or a pipeline.
        column: of texts, each a document.
        presegmented: a line is a sentence.
        pretokenized: and blanks stand between all words; without a model.
        output: as of `parse`.
        ship: as of `parse`.

    Raises:
        AnalysisException, ConfigError, ModelError: as of `parse`.
    """
    paths = () if model is None else _paths(model)
    layout = TextLayout(not paths and not pretokenized, presegmented, pretokenized)
    work = Work.of(Annotation("segment", layout), paths)
    return annotated(frame, work, column, output=output, ship=ship)


def _paths(model: Models) -> tuple[str, ...]:
    models = [model] if isinstance(model, str | Path) else list(model)
    return tuple(str(path) for path in models)


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
        """Return work by the models at paths, which are opened here, to see what they can.

        Args:
            annotation: what is done.
            paths: several vote; none where rules split text.

        Raises:
            ConfigError: ways to split text that do not go together.
            ModelError: the model is missing, damaged or of another kind.
        """
        model = Model(tuple(map(str, paths)), open_models)
        path = Path(paths[0]) if paths else None
        if path is not None and not hasattr(model.opened, _ABILITIES[annotation.work]):
            hint = "choose another with -m"
            raise ModelError(f"cannot {annotation.work}", hint=hint, path=path)
        if annotation.layout is not None:
            annotation.layout.splitter(model.opened, path)
        return cls(annotation, model)

    def sentences(self, texts: Sequence[str]) -> Iterator[tuple[int, Sentence | Broken]]:
        """Give the annotated sentences of texts, each with the number of its text."""
        for item in sentences_of(self.annotation.annotated(self._items(texts), self.model.opened)):
            yield int(str(item.path if isinstance(item, Sentence) else item.error.path)), item

    def _items(self, texts: Sequence[str]) -> Iterator[Item]:
        """Give the sentences of texts; the path of each is the number of its text."""
        for number, text in enumerate(texts):
            if not text.strip():
                continue
            if self.annotation.layout is None:
                text = text.replace("\r\n", "\n").rstrip("\n") + "\n\n"
            chunk = Chunk(((str(number), 1, text.encode()),))
            for item in self.annotation.items(chunk, self.model.opened):
                if isinstance(item, Sentence):
                    item.path = str(number)
                yield item

    def written(self, item: Sentence | Broken) -> str:
        """Return what is written of a sentence."""
        ((_, content),) = self.annotation.written([item])
        return content.decode()


def annotated(
    frame: DataFrame, work: Work, column: str, *, output: Output, ship: bool | None = None
) -> DataFrame:
    """Return a frame with what is done to the texts of a column; see `parse`."""
    if output not in _RESULTS:
        raise ConfigError(f"no output is called {output!r}", hint="choose tokens or conllu")
    check_texts(frame, column)
    work.model.ship(frame.sparkSession, ship)
    names = {"sentence": "integer", **_RESULTS[output], "error": "string"}

    def annotate(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = batch.column(column).fill_null("").to_pylist()
            numbers = Counter[int]()
            rows: list[dict[str, Any]] = []
            places: list[int] = []  # of each row, that of its text
            for place, item in work.sentences(texts):
                numbers[place] += 1
                error = None
                if isinstance(item, Broken):
                    error = f"line {item.error.line}: {item.error.message}"
                cells = {"sentence": numbers[place], "error": error}
                rows += [cells | of_row for of_row in _rows(work, item, output)]
                places += [place] * (len(rows) - len(places))
            yield beside(batch, column, places, batch_of_rows(rows, names))

    return mapped(frame, annotate, names, other_fields(frame, column))


def _rows(work: Work, item: Sentence | Broken, output: Output) -> list[dict[str, Any]]:
    """Return the row of a sentence, or one for each of its lines; of a broken one, one of both."""
    if output == "conllu":
        return [{"conllu": work.written(item)}]
    if isinstance(item, Broken):
        return [{}]
    rows = [dict[str, Any](zip(TOKENS, line, strict=True)) for line in _lines(item)]
    for row in rows:
        row["head"] = int(row["head"]) if row["head"].isdigit() else None
    return rows


def _lines(sentence: Sentence) -> list[list[str]]:
    """Return the columns of the lines of a sentence: multiword tokens and empty nodes too."""
    lines: list[list[str]] = []
    done = 0
    for before, line in sentence.extras:
        lines += sentence.rows[done:before]
        lines.append(line.split("\t"))
        done = before
    return lines + sentence.rows[done:]


def annotate_files(
    session: SparkSession,
    paths: Sequence[str],
    work: Work,
    output: str,
    *,
    column: str | None = None,
    as_tokens: bool = False,
    invalid: str | None = None,
    ship: bool | None = None,
) -> int:
    """Annotate files and write what comes of it; return how many sentences are broken.

        out/part-00000.conllu   a file for each task, its blocks one after another
        out/part-00001.conllu
        out/_SUCCESS            written last, by Spark
        out/_broken/            broken sentences with file and line, if there are any

    Args:
        session: of Spark.
        paths: files, directories and patterns, of any file system that Spark reads.
        work: what is done.
        output: a directory that is not there yet.
        column: of texts, where the files are Parquet.
        as_tokens: write Parquet, a row a token, instead of CoNLL-U.
        invalid: a directory for broken sentences, `_broken` in the output if not given.
        ship: see `Model.ship`.

    Raises:
        DataError: no text; a sentence without columns that the parser reads.
        OutputError: a directory is there already, or Spark cannot read or write.
        ConfigError: both directories are the same.
    """
    from pyspark.sql import Observation, functions

    is_broken = functions.col("error").isNotNull()
    if invalid is not None and invalid.rstrip("/") == output.rstrip("/"):
        raise ConfigError("-o and --invalid name one directory", hint="give them two")
    with user_errors():
        target = Folder(session, output)
        broken_target = Folder(session, invalid or posixpath.join(output, BROKEN_FOLDER))
        target.refuse_present()
        broken_target.refuse_present()
        made: Output = "tokens" if as_tokens else "conllu"
        if column is None:
            records = read_records(session, paths, PARAGRAPHS)
            work.model.ship(session, ship)
            rows = _of_records(records, work, made)
            broken = _of_records(records, work, "conllu", only_broken=True)
        else:
            frame = session.read.parquet(*paths)
            rows = annotated(frame, work, column, output=made, ship=ship)
            broken = annotated(frame, work, column, output="conllu", ship=ship)
        observation = Observation()
        rows = rows.observe(observation, functions.count("error").alias("broken"))
        keeps = work.annotation.keeps_invalid and not as_tokens
        rows = (rows if keeps else rows.where(~is_broken)).drop("error")
        # Spark writes the last line end of a row
        value = functions.expr("left(conllu, length(conllu) - 1)")
        if as_tokens:
            with target.whole():
                rows.write.parquet(output)
        else:
            suffix = "conllu" if work.annotation.form == "conllu" else "txt"
            target.write_lines(rows.withColumn("value", value), suffix)
        num_broken = int(observation.get["broken"])
        if num_broken:
            comment = functions.concat(functions.lit("# "), "error", functions.lit("\n"), value)
            broken_target.write_lines(
                broken.where(is_broken).withColumn("value", comment), "conllu"
            )
    return num_broken


def _of_records(
    records: Records, work: Work, output: Output, *, only_broken: bool = False
) -> DataFrame:
    """Return the sentences or tokens of files; `sent_id`s of plain text are numbers in a block.

    They follow the byte where the block begins, unless it is the first one, and the file's name
    where there are several. With `only_broken`, nothing is annotated.
    """
    names = {"file": "string", "line": "long", "sent_id": "string", **_RESULTS[output]}
    names["error"] = "string"
    folder = common_folder(records.files) if len(records.files) > 1 else None
    parts_of = records.parts

    def annotate(batches: Batches) -> Iterator[pa.RecordBatch]:
        numbers = Counter[tuple[str, int]]()
        annotation = work.annotation
        for part in parts_of(batches):
            rows: list[dict[str, Any]] = []
            chunk = Chunk(((part.file, part.line, part.text),))
            items = annotation.items(chunk, work.model.opened)
            if only_broken:
                items = (item for item in items if isinstance(item, Broken))
            else:
                items = annotation.annotated(items, work.model.opened)
            for item in sentences_of(items):
                cells: dict[str, Any] = {"file": part.file}
                if isinstance(item, Broken):
                    cells["error"] = str(item.error)
                else:
                    if annotation.layout is not None:
                        numbers[part.file, part.block] += 1
                        _rename(item, part, numbers[part.file, part.block], folder)
                    cells |= {"line": item.line or part.line, "sent_id": item.sent_id or None}
                rows += [cells | row for row in _rows(work, item, output)]
            yield batch_of_rows(rows, names)

    return mapped(records.frame, annotate, names)


def _rename(sentence: Sentence, part: Part, number: int, folder: str | None) -> None:
    """Give a sentence of plain text an id that no other sentence of all files has."""
    start = "" if folder is None else f"{Path(part.file.removeprefix(folder)).with_suffix('')}-"
    name = f"{start}{part.block}-{number}" if part.block else f"{start}{number}"
    place = next(i for i, line in enumerate(sentence.comments) if line.startswith(_SENT_ID))
    sentence.comments[place] = f"{_SENT_ID}{name}"
