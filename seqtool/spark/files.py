"""Files in, a directory of files out: what `--engine spark` makes of a corpus.

    out/part-00000.conllu   a file for each task, its blocks one after another
    out/part-00001.conllu
    out/_SUCCESS            written last, by Spark
    out/_broken/            sentences that are broken, with their file and line, if there are any

A reader of Spark passes over names that begin with a line. With Parquet there is a row a token.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.spark import workers
from seqtool.spark.blocks import (
    PARAGRAPHS,
    Part,
    lines_before,
    parts_of,
    read_records,
)
from seqtool.spark.folders import Folder
from seqtool.spark.frames import Output, annotated, mapped
from seqtool.spark.session import Written, shown, user_errors
from seqtool.spark.workers import BROKEN, ERROR, Work

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

BROKEN_FOLDER = "_broken"
_CONLLU = "left(conllu, length(conllu) - 1)"  # Spark writes the last line end of a row
_PART = re.compile(r"(part-[0-9]+)-.*?\.txt(.*)")


@dataclass(frozen=True)
class Corpus:
    """Where a corpus is.

    Attributes:
        paths: files, directories and patterns, of any file system that Spark reads.
        column: of Parquet; None for text files.
    """

    paths: Sequence[str]
    column: str | None = None


def annotate_files(
    session: SparkSession,
    corpus: Corpus,
    work: Work,
    output: str,
    *,
    as_tokens: bool = False,
    invalid: str | None = None,
    ship: bool | None = None,
    on_damaged: Callable[[DataError], None] | None = None,
) -> int:
    """Annotate a corpus and write what comes of it; return how many sentences are broken.

    Args:
        session: of Spark.
        corpus: what is read.
        work: what is done.
        output: a directory that is not there yet.
        as_tokens: write Parquet, a row a token, instead of CoNLL-U.
        invalid: a directory for broken sentences, `_broken` in the output if not given.
        ship: see `shipping.Model.ship`.
        on_damaged: called with what is wrong with each packed file that cannot be read to its end,
            and is left out; without it, such a file is an error.

    Raises:
        DataError: a file that cannot be read, or no text; a sentence without columns that the
            parser reads.
        ModelError: the model is missing, damaged or of another kind.
        OutputError: a directory is there already or cannot be written.
        ConfigError: the two directories are the same, or one is in the other.
    """
    with user_errors():
        target = Target(session, output)
        inside = Target(session, posixpath.join(output, BROKEN_FOLDER))
        broken_target = inside
        if invalid is not None:
            broken_target = Target(session, invalid, "--invalid")
            if broken_target.url != inside.url:  # else it is named as it is without the option
                check_apart(target, broken_target)
        if corpus.column is not None:
            made = _of_parquet(session, corpus, work, as_tokens=as_tokens, ship=ship)
        else:
            work.model.ship(session, ship)
            records = read_records(session, corpus.paths, PARAGRAPHS, on_damaged=on_damaged)
            made = _of_texts(records, work, as_tokens=as_tokens)
        suffix = "conllu" if work.annotation.form == "conllu" else "txt"
        try:
            num_broken = target.write(made.rows, as_tokens=as_tokens, suffix=suffix)
        except DataError as error:
            if error.line is None or made.placed is None:
                raise
            num_broken = target.write(made.placed(), as_tokens=as_tokens, suffix=suffix)
        if num_broken:
            broken_target.write(made.broken(), as_tokens=False, suffix="conllu")
    return num_broken


class Made(NamedTuple):
    """What is to be written.

    Attributes:
        rows: with the column `BROKEN`.
        broken: gives the broken sentences.
        placed: gives `rows` of which an error says the line of the file, not of the block; None
            where theirs do so.
    """

    rows: DataFrame
    broken: Callable[[], DataFrame]
    placed: Callable[[], DataFrame] | None = None


def _of_texts(records: DataFrame, work: Work, *, as_tokens: bool) -> Made:
    folder = common_folder([*map(shown, records.inputFiles())])

    def made(
        make: Callable[[Iterable[Part]], Iterator[pa.RecordBatch]],
        names: Mapping[str, str],
        *,
        is_placed: bool = True,
    ) -> DataFrame:
        before = lines_before(records, PARAGRAPHS) if is_placed else None
        return mapped(records, lambda batches: make(parts_of(batches, PARAGRAPHS, before)), names)

    def conllu(*, is_placed: bool) -> DataFrame:
        def make(parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
            return workers.conllu_of_files(parts, work, folder)

        return made(make, workers.CONLLU_OF_FILES, is_placed=is_placed)

    def broken() -> DataFrame:
        return made(workers.broken_of_files, workers.CONLLU_OF_FILES)

    if as_tokens:
        tokens = workers.TOKENS_OF_FILES
        return Made(made(lambda parts: workers.tokens_of_files(parts, work), tokens), broken)
    if work.annotation.layout is not None:  # a document begins at line 1
        return Made(conllu(is_placed=True), broken)
    # lines are told of errors alone, and counting them takes about as long as reading
    return Made(conllu(is_placed=False), broken, lambda: conllu(is_placed=True))


def _of_parquet(
    session: SparkSession, corpus: Corpus, work: Work, *, as_tokens: bool, ship: bool | None
) -> Made:
    from pyspark.sql import functions

    assert corpus.column is not None
    frame = session.read.parquet(*corpus.paths)
    output: Output = "tokens" if as_tokens else "conllu"
    rows = annotated(frame, work, corpus.column, output=output, ship=ship)
    is_broken = functions.col(ERROR).isNotNull()
    rows = rows.withColumn(BROKEN, is_broken.cast("int"))
    if as_tokens:
        return Made(rows.drop(ERROR), lambda: _broken_of_rows(frame, work, corpus, is_broken))
    value = functions.when(~is_broken, functions.expr(_CONLLU))
    rows = rows.select(value.alias("value"), BROKEN)
    return Made(rows, lambda: _broken_of_rows(frame, work, corpus, is_broken))


def _broken_of_rows(frame: DataFrame, work: Work, corpus: Corpus, is_broken: Column) -> DataFrame:
    from pyspark.sql import functions

    assert corpus.column is not None
    rows = annotated(frame, work, corpus.column, output="conllu").where(is_broken)
    error_line = functions.concat(
        functions.lit("# "), ERROR, functions.lit("\n"), functions.expr(_CONLLU)
    )
    return rows.select(error_line.alias("value"), functions.lit(1).alias(BROKEN))


def common_folder(files: Sequence[str]) -> str | None:
    """Return the folder of files, with a slash at its end; None of one file."""
    if len(files) < 2:
        return None
    return f"{posixpath.commonpath([posixpath.dirname(file) for file in files])}/"


def check_apart(one: Target, other: Target) -> None:
    """Refuse two directories of which one would be in the way of the other.

    Raises:
        ConfigError: they are the same, or one is in the other.
    """
    inner, outer = sorted((one, other), key=lambda target: len(target.url), reverse=True)
    options = [target.written.option for target in (inner, outer)]
    if inner.url == outer.url:
        raise ConfigError(
            f"{options[0]} and {options[1]} both write to {inner.written.path}",
            hint="give them two directories",
        )
    if inner.url.startswith(f"{outer.url.rstrip('/')}/"):
        raise ConfigError(
            f"{inner.written.path} of {options[0]} is in {outer.written.path} of {options[1]}",
            hint="name a directory beside it",
        )


class Target:
    """A directory that is written by Spark's workers, whole or not at all.

    Args:
        session: of Spark.
        path: of the directory, of any file system that Spark writes.
        option: that names it.

    Attributes:
        written: the path, and its option.

    Raises:
        OutputError: it is there already.
    """

    def __init__(self, session: SparkSession, path: str, option: str = "-o") -> None:
        self._folder, self.written = Folder(session, path), Written(path, option)
        self._refuse_present()

    @property
    def url(self) -> str:
        """Where it is, on which file system."""
        return self._folder.url

    def _refuse_present(self) -> None:
        if self._folder.exists():
            path, option = self.written
            hint = f"choose another output with {option}"
            raise OutputError("exists already", hint=hint, path=path)

    def write(self, rows: DataFrame, *, as_tokens: bool, suffix: str) -> int:
        """Write rows, and return the sum of their column `BROKEN`, which is left out.

        Args:
            rows: those that hold nothing else are left out too.
            as_tokens: as Parquet, not the column `value` as text.
            suffix: of the names of text files, without a point.
        """
        from pyspark.sql import Observation, functions

        seen = Observation()
        rows = rows.observe(seen, functions.sum(BROKEN).alias(BROKEN))
        rows = rows.where(functions.col("id" if as_tokens else "value").isNotNull()).drop(BROKEN)
        if as_tokens:
            self.write_parquet(rows)
        else:
            with self._whole():
                rows.write.text(self._folder.path)
                self._rename(suffix)
        return int(seen.get[BROKEN] or 0)

    def write_parquet(self, rows: DataFrame) -> None:
        """Write all rows as Parquet."""
        with self._whole():
            rows.write.parquet(self._folder.path)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Remove what there is of the directory if the block does not end well.

        Raises:
            OutputError: it is there by now; it is not removed.
            SeqtoolError: see `user_errors`.
        """
        self._refuse_present()
        try:
            with user_errors(self.written):
                yield
        except BaseException:
            self._folder.remove()
            raise

    def _rename(self, suffix: str) -> None:
        """Name text files by what they hold, as readers know them by their names."""
        for name in self._folder.names():
            if found := _PART.fullmatch(name):
                self._folder.rename(name, f"{found[1]}.{suffix}{found[2]}")
