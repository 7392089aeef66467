"""DataFrames in, DataFrames out: what models say of the texts in a column.

    import seqtool

    seqtool.spark.parse(frame, "runs/mine").where("upos = 'VERB'").groupBy("lemma").count()

Each worker opens the model once, from the path that is given, or from the archive that Spark ships
to it. A row is worked on by itself, so the result does not depend on how the frame is cut. All
other columns of a row come back with each row that it gives.

The result has one row a token, as a query wants it, and Parquet packs what repeats; with
`output="conllu"` it has one row a sentence, with its CoNLL-U, which keeps comments too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.parsing.annotation import Annotation
from seqtool.parsing.segmenter.documents import Layout
from seqtool.spark import workers
from seqtool.spark.session import without_pandas_warning
from seqtool.spark.workers import Work

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
        ConfigError: there is no such column, it holds no texts, or the model has not an option.
        ModelError: the model is no parser, or cannot split text or tag words.
    """
    options: dict[str, Any] = {"beam": beam, "scores": scores}
    # each, one kind of model alone has
    options |= {"retag": True} if retag else {"allow_missing": True} if allow_missing else {}
    annotation = Annotation("parse", None if is_conllu else Layout(), options=options)
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
    layout = None if is_conllu else Layout()
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
        ConfigError, ModelError: as of `parse`.
    """
    paths = () if model is None else _paths(model)
    layout = Layout(not paths and not pretokenized, presegmented, pretokenized)
    work = Work.of(Annotation("segment", layout), paths)
    return annotated(frame, work, column, output=output, ship=ship)


def _paths(model: Models) -> tuple[str, ...]:
    models = [model] if isinstance(model, str | Path) else list(model)
    return tuple(str(path) for path in models)


def annotated(
    frame: DataFrame,
    work: Work,
    column: str,
    *,
    output: Output,
    ship: bool | None = None,
) -> DataFrame:
    """Return a frame with what is done to the texts of a column; see `parse`."""
    if output not in ("tokens", "conllu"):
        raise ConfigError(f"no output is called {output!r}", hint="choose tokens or conllu")
    as_tokens = output == "tokens"
    check_column(frame, column)
    work.model.ship(frame.sparkSession, ship)
    results = workers.results_of_rows(as_tokens=as_tokens)
    kept = [field for field in frame.schema.fields if field.name != column]
    if taken := [field.name for field in kept if field.name in results]:
        raise ConfigError(
            f"the frame has a column {taken[0]!r}, as the result has",
            hint="rename it, or drop it",
        )

    def annotate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return workers.of_rows(batches, work, column, as_tokens=as_tokens)

    return mapped(frame, annotate, results, kept)


def mapped(
    frame: DataFrame,
    make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    names: Mapping[str, str],
    kept: Sequence[Any] = (),
) -> DataFrame:
    """Return what workers make of the Arrow batches of a frame, those of one task after another.

    Args:
        frame: any.
        make: called in a worker; a user's error that it raises can be told by the driver.
        names: of the columns that it makes, with their types.
        kept: fields of Spark, which stand before these.
    """
    from pyspark.sql.types import StructType

    schema = StructType(list(kept))
    for name, kind in names.items():
        schema = schema.add(name, kind)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with workers.telling_driver():
            yield from make(batches)

    with without_pandas_warning():
        return frame.mapInArrow(work, schema)


def check_column(frame: DataFrame, column: str) -> None:
    """Refuse a column that holds no texts.

    Raises:
        ConfigError: there is none of this name, or of another type.
    """
    kinds = dict(frame.dtypes)
    if column not in kinds:
        raise ConfigError(f"no column is called {column!r}", hint=did_you_mean(column, kinds))
    if kinds[column] != "string":
        raise ConfigError(
            f"the column {column!r} is {kinds[column]}, but must be string",
            hint="name a column of texts",
        )
