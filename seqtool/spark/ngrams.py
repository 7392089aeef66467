"""n-grams of texts that Spark reads: words counted, then the plan of `lm.ngram.engine`.

    lines of files -> words and their counts    GROUP BY the word; the vocabulary, on the driver
    lines of files -> ids -> `ends`             the longest n-gram that ends at each token
    `ends` -> `plan.estimate`                   SQL, and smoothing of whole contexts by the workers
    tables -> a model directory                 as they come, in trie order

The ids are those that the text has in memory. Every table is a directory of Parquet files in one
folder, which the workers and the driver see. What is smoothed is cut into ranges of contexts, each
sorted and smoothed by one task, so its files are in trie order, one after another.
"""

from __future__ import annotations

import posixpath
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import Place
from seqtool.core.storage import temporary_sibling
from seqtool.core.vocabulary import BLANKS, BOS, EOS, EOS_ID, UNK, UNK_ID
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import counted_tokenizer, limited, word_counter
from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.lm.ngram.engine.keys import Keys, Packer
from seqtool.lm.ngram.engine.plan import ENDS, Text
from seqtool.lm.ngram.train import (
    Job,
    NgramTraining,
    OnDisk,
    OnProgress,
    Stages,
    TrainingText,
    check_words,
    estimate,
    save,
)
from seqtool.spark.files import LINES, Folder, Records, read_records
from seqtool.spark.session import user_errors
from seqtool.spark.workers import Batches, check_texts, is_local, mapped, record_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from seqtool.text.tokenizers import WordTokenizer

_BATCH = 1 << 17  # rows
_WORD = re.compile(f"[^{BLANKS}]+")
_SUMS = ("tokens", "sentences", "bytes", "longest")  # of a block
_COUNTS = {
    "word": "string",  # none in the row of the sums of a block
    "count": "long",
    **dict.fromkeys(("rank", "block", "place"), "long"),  # of its first occurrence
    **dict.fromkeys(_SUMS, "long"),
}
_TRIES, _WAIT_SECONDS = 20, 0.5  # to remove a folder where Spark may still write


def count_ngrams(
    frame: DataFrame, order: int, *, column: str = "text", boundaries: bool = False
) -> DataFrame:
    """Return the n-grams of the texts of a column, with how often each occurs.

    Args:
        frame: any DataFrame of Spark.
        order: their length in words.
        column: of texts, a sentence a line; words stand between spaces, tabs and line ends alone.
        boundaries: count n-grams with `<s>` and `</s>` too.

    Returns:
        `ngram`, its words with single spaces between them, and `count`; in no order.

    Raises:
        AnalysisException: of Spark, as where there is no such column.
        ConfigError: it holds no texts, or the order is below 1.
    """
    from pyspark.sql import functions

    check_texts(frame, column)
    if order < 1:
        raise ConfigError(f"the order is {order}, but must be 1 or more", hint="give 3, say")
    names = {"ngram": "string", "count": "long"}

    def count(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts: Counter[str] = Counter()
            for text in filter(None, batch.column(column).to_pylist()):
                for line in text.removesuffix("\n").split("\n"):
                    words = _WORD.findall(line)
                    if boundaries:
                        words = [BOS, *words, EOS]
                    places = range(len(words) - order + 1)
                    counts.update(" ".join(words[place : place + order]) for place in places)
            yield record_batch({"ngram": [*counts], "count": [*counts.values()]}, names)

    counted = mapped(frame.select(column), count, names)
    return counted.groupBy("ngram").agg(functions.sum("count").alias("count"))


def train_ngram(
    session: SparkSession,
    inputs: Sequence[str],
    output: str | Path,
    config: NgramConfig,
    *,
    field: str | None = None,
    arpa: str | Path | None = None,
    parquet: str | Path | None = None,
    force: bool = False,
    temp: str | None = None,
    threads: int = 1,
    command: str = "",
    on_progress: OnProgress | None = None,
) -> NgramTraining:
    """Estimate an n-gram model of files that Spark reads; the numbers are those of one machine.

    Args:
        session: of Spark.
        inputs: text files, a sentence a line; directories and patterns, of any file system, in the
            order of one process: as they are named, and by name within each.
        output: the model directory, on this machine.
        config: all settings.
        field: the column of .jsonl and .parquet that holds the text.
        arpa: as of `lm.ngram.train.train_ngram`.
        parquet: as well.
        force: as well.
        temp: a folder for tables that this machine and the workers see; beside the output when not
            given, which is for workers on this machine.
        threads: that write the ARPA file.
        command: what the user typed.
        on_progress: called with the stage and its progress.

    Raises:
        ConfigError: settings that need the text in memory; no `temp` where the workers run on
            other machines.
        DataError: text that is not there, empty or damaged.
        OutputError: the output exists, or Spark cannot read or write.
    """
    job = Job(
        inputs=(),  # of any file system
        output=Path(output),
        config=config,
        stages=Stages(on_progress),
        engine="spark",
        arpa=None if arpa is None else Path(arpa),
        parquet=None if parquet is None else Path(parquet),
        force=force,
        threads=threads,
        command=command,
    )
    if temp is None and not is_local(session):
        raise ConfigError(
            "the workers of Spark run on other machines, and there is no folder for tables",
            hint="name one that all of them see with --temp: hdfs://..., s3a://..., a shared disk",
        )
    parent = temp or str(job.output.absolute().parent)
    with (
        user_errors(),
        temporary_folder(session, parent) as folder,
        temporary_sibling(job.output) as local_folder,
    ):
        with job.stages("reading"):
            records = read_records(session, [*map(str, inputs)], LINES, field)
            words, counts = _count_words(records, config)
            tokenizer, allowed = counted_tokenizer(words, counts["sentences"], config), None
        keys = Keys(len(tokenizer.vocabulary))
        _make_ends(records, tokenizer, keys, config.order)
        if config.limit_vocab is not None:
            tokenizer, allowed = limited(tokenizer, config.limit_vocab)
        num_unknown = tokenizer.vocabulary.counts[UNK_ID]
        longest = counts.pop("longest")
        check_words(job, tokenizer)
        reading = TrainingText(
            tokenizer=tokenizer,
            data={
                "splits": {"train": {**counts, "unknown": num_unknown}},
                "sources": [{"path": file, "split": "train"} for file in records.files],
            },
            num_unknown=num_unknown,
            engine=f"spark, {session.sparkContext.master}",
            allowed=allowed,
            folder=local_folder,
        )
        text = Text(keys, counts["sentences"], longest)
        estimated = estimate(job, OnDisk(SparkEngine(session, folder), text), reading)
        return save(job, estimated, reading)


def _count_words(records: Records, config: NgramConfig) -> tuple[dict[str, int], dict[str, int]]:
    """Count the words of a text: by the block, and then by the word.

    Returns:
        The words in order of first occurrence, with their counts; and the sums `_SUMS`.

    Raises:
        DataError: it has no words, or holds a special token that is refused.
    """
    from pyspark.sql import functions

    parts_of = records.parts

    def count(batches: Batches) -> Iterator[pa.RecordBatch]:
        for (rank, block), parts in groupby(parts_of(batches), lambda part: part[1:3]):
            reader, longest = word_counter(config), 0
            for part in parts:
                with Place(part.file, part.line).locating():
                    ids = reader.add(part.text)
                ends = np.flatnonzero(ids == EOS_ID)
                longest = max(longest, int(np.diff(ends, prepend=-1).max()))
            # in order of first occurrence; `<unk>` the first
            table = reader.table
            numbers = np.flatnonzero(table.counts)
            numbers = numbers[(numbers != EOS_ID) & (numbers != table.bos_id)]
            num = len(numbers)
            columns = {
                "word": [*map(table.word, numbers.tolist()), None],
                "count": [*table.counts[numbers].tolist(), 0],
                "rank": [rank] * (num + 1),
                "block": [block] * (num + 1),
                "place": [*range(num), -1],
            }
            sums = (reader.num_tokens, reader.num_sentences, reader.num_bytes, longest)
            for name, value in zip(_SUMS, sums, strict=True):
                columns[name] = [*[0] * num, value]
            yield record_batch(columns, _COUNTS)

    counts = (
        mapped(records.frame, count, _COUNTS)
        .groupBy("word")
        .agg(
            functions.sum("count").alias("count"),
            functions.min(functions.struct("rank", "block", "place")).alias("first"),
            functions.max("longest").alias("longest"),
            *(functions.sum(name).alias(name) for name in _SUMS if name != "longest"),
        )
    )
    rows = counts.orderBy("first").select("word", "count", *_SUMS).toArrow().to_pylist()
    sums = next((row for row in rows if row["word"] is None), dict.fromkeys(_SUMS, 0))
    words = {row["word"]: row["count"] for row in rows if row["word"] is not None}
    if sums["tokens"] == sums["sentences"]:
        what = "the text has only empty lines" if sums["sentences"] else "the text is empty"
        raise DataError(what, hint="give a text with words", path=records.files[0])
    if config.special_tokens == "skip" and UNK in words:
        raise DataError(
            f"{UNK} stands in the text, and --special-tokens is skip, which Spark cannot do",
            hint=f"take {UNK} for the unknown word, with --special-tokens unknown, or write it out",
        )
    return words, {name: sums[name] for name in _SUMS}


def _make_ends(records: Records, tokenizer: WordTokenizer, keys: Keys, order: int) -> None:
    """Make the view `ENDS`: the longest n-gram that ends at each token."""
    names = dict.fromkeys(keys.columns(order), "long")
    parts_of = records.parts

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        packer = Packer(keys, order)
        for part in parts_of(batches):
            columns = packer.pack(tokenizer.encode_block(part.text))
            yield record_batch(dict(zip(names, columns, strict=True)), names)

    mapped(records.frame, pack, names).createOrReplaceTempView(ENDS)


@contextmanager
def temporary_folder(session: SparkSession, parent: str) -> Iterator[str]:
    """Give the name of a new folder for tables, and remove it with all that is in it then.

    What Spark still does for the block, as after Ctrl-C, is stopped before. The driver may yet
    commit what tasks wrote, so the folder is removed until it stays away.
    """
    name = f"seqtool-tables-{uuid.uuid4().hex}"
    context, folder = session.sparkContext, Folder(session, posixpath.join(parent, name))
    context.addJobTag(name)
    try:
        yield folder.path
    except BaseException:
        context.cancelJobsWithTag(name)
        for _ in range(_TRIES):
            folder.remove()
            time.sleep(_WAIT_SECONDS)
            if not folder.exists():
                break
        raise
    finally:
        context.removeJobTag(name)
        folder.remove()


class SparkEngine:
    """Tables of Spark in a folder, which others remove; see `plan.Engine`.

    Args:
        session: of Spark.
        folder: an empty one, on any file system that Spark writes.
    """

    def __init__(self, session: SparkSession, folder: str) -> None:
        self._session, self._folder = session, folder

    def make(self, name: str, sql: str) -> None:
        """Make a table of what a query gives."""
        self._write(name, self._session.sql(sql))

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        return [tuple(row) for row in self._session.sql(sql).collect()]

    def read(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Give the rows of a query, of which the driver holds all at once."""
        yield from self._session.sql(sql).toArrow().to_batches()

    def smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
        """Make a table of what the smoother makes of a query."""
        from pyspark.sql import functions
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = smoother.keys.columns(smoother.order)
        *first, last = columns
        # in trie order as well, and alike where contexts are
        contexts: list[Column | str] = [*first, functions.shiftright(last, smoother.keys.bits)]

        def smooth(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return smoother(batches)

        rows = self._session.sql(sql).repartitionByRange(*contexts)
        rows = rows.sortWithinPartitions(*columns)
        self._write(name, rows.mapInArrow(smooth, from_arrow_schema(smoother.schema())))

    def read_smoothed(self, name: str, keys: Keys, order: int) -> Iterator[pa.RecordBatch]:
        """Give such a table in trie order; of another machine's, the driver holds a task's rows."""
        import pyarrow.parquet as pq

        folder = Folder(self._session, posixpath.join(self._folder, name))
        for file in folder.names():
            if not file.startswith("part-"):
                continue
            path = posixpath.join(folder.path, file)
            if (local := folder.local_path()) is not None:
                # not the whole file ahead, which is what buffers are for otherwise
                with pq.ParquetFile(local / file, pre_buffer=False) as stored:
                    yield from stored.iter_batches(_BATCH)
            else:
                # Spark may read a large file in pieces
                rows = self._session.read.parquet(path).coalesce(1)
                in_order = rows.sortWithinPartitions(*keys.columns(order))
                yield from in_order.toArrow().to_batches()

    def drop(self, name: str) -> None:
        """Give up a table."""
        self._session.catalog.dropTempView(name)
        Folder(self._session, posixpath.join(self._folder, name)).remove()

    def _write(self, name: str, rows: DataFrame) -> None:
        path = posixpath.join(self._folder, name)
        rows.write.parquet(path)
        self._session.read.schema(rows.schema).parquet(path).createOrReplaceTempView(name)
