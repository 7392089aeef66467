"""n-gram models of texts that Spark reads: words counted, then the plan of `lm.ngram.engine`.

    lines of files -> words and their counts    GROUP BY the word; the vocabulary, on the driver
    lines of files -> ids -> `ends`             the longest n-gram that ends at each token
    `ends` -> `plan.estimate`                   SQL, and smoothing of whole contexts by the workers
    tables -> a model directory                 as they come, in trie order

The ids are those that the text has in memory, but that files are taken in the order of their names.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.vocabulary import BLANKS, BOS, EOS, EOS_ID, UNK, UNK_ID
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import WordReader, counted_tokenizer, limited
from seqtool.lm.ngram.engine.keys import Keys, Packer
from seqtool.lm.ngram.engine.output import write_table
from seqtool.lm.ngram.engine.plan import ENDS, Text, estimate
from seqtool.lm.ngram.model import NgramModel, save_table
from seqtool.lm.ngram.train import (
    NgramTraining,
    OnProgress,
    Stages,
    check_engine,
    check_output,
    check_words,
    write_copies,
)
from seqtool.spark.blocks import (
    LINES,
    Part,
    is_utf8,
    lines_before,
    not_utf8,
    parts_of,
    read_records,
    shown,
)
from seqtool.spark.engine import SparkEngine
from seqtool.spark.folders import Folder
from seqtool.spark.frames import check_column, mapped
from seqtool.spark.session import told
from seqtool.spark.workers import ROWS, Rows
from seqtool.text.prepared import SplitCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from seqtool.text.tokenizers import WordTokenizer

_WORD = re.compile(f"[^{BLANKS}]+")
_WORDS = {
    "word": "string",
    "count": "long",
    "file": "string",
    "block": "long",
    # of its first occurrence among those of the block's words; of an error, its line
    "place": "long",
    "sentences": "long",  # a row without a word tells of the block itself
    "tokens": "long",
    "longest": "long",
    "bytes": "long",
    "error": "string",
    "hint": "string",
}


@dataclass(frozen=True)
class CountedText:
    """What is known of a text whose words were counted.

    Attributes:
        tokenizer: reads it, with the vocabulary.
        sentences: how many.
        tokens: how many, with `</s>`.
        longest: the tokens of the longest sentence.
        num_bytes: of UTF-8.
        files: it was read from.
        words: all its words, in order of first occurrence.
    """

    tokenizer: WordTokenizer
    sentences: int
    tokens: int
    longest: int
    num_bytes: int
    files: list[str]
    words: list[str]


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
        inputs: text files, a sentence a line; directories and patterns, of any file system.
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
        ConfigError: settings that need the model in memory; no `temp` where the workers run on
            other machines.
        DataError: text that is not there, empty or damaged.
        OutputError: the output exists, or cannot be written.
    """
    check_engine("spark", config)
    output = Path(output)
    check_output([], output, force=force, arpa=arpa, parquet=parquet)
    if temp is None and not str(session.sparkContext.master).startswith("local["):
        raise ConfigError(
            "the workers of Spark run on other machines, and there is no folder for tables",
            hint="name one that all of them see with --temp: hdfs://..., s3a://..., a shared disk",
        )
    stages = Stages(on_progress)
    with told(), _folder(session, temp or str(output.absolute().parent)) as folder:
        records = read_records(session, inputs, LINES, field)
        with stages("reading"):
            text = _counted(records, config)
        tokenizer, allowed = text.tokenizer, None
        keys = Keys(len(tokenizer.vocabulary))
        _offer_ends(records, tokenizer, keys, config.order)
        places = None
        if config.discounts == "kenlm":
            places = np.full(keys.vocabulary_size, -4, np.int64)
            ids = tokenizer.vocabulary.encode(text.words)
            places[ids[::-1]] = np.arange(len(ids))[::-1]  # of words with one id, the first one's
        num_unknown = tokenizer.vocabulary.counts[UNK_ID]
        if config.limit_vocab is not None:
            tokenizer, allowed = limited(tokenizer, config.limit_vocab)
            num_unknown = tokenizer.vocabulary.counts[UNK_ID]
        check_words(tokenizer.vocabulary, arpa, parquet)
        engine = SparkEngine(session, folder)
        described = Text(keys, text.sentences, text.longest, places)
        with stages("estimating") as on_estimate:
            estimated = estimate(
                engine, described, config, allowed=allowed, on_progress=on_estimate
            )
        with stages("saving") as on_save:
            save_table(
                output,
                tokenizer,
                estimated.sizes,
                lambda file: write_table(file, engine, estimated, on_save),
                config=to_dict(config),
                scores={"train_seconds": sum(stages.seconds.values())},
                data=_described(text, num_unknown),
                command=command,
                statistics=estimated.statistics,
            )
    table = checkpoint.load(output, NgramModel).table
    warnings = write_copies(
        *(table, tokenizer.vocabulary, stages),
        arpa=arpa,
        parquet=parquet,
        force=force,
        threads=threads,
    )
    return NgramTraining(
        path=output,
        arpa=None if arpa is None else Path(arpa),
        parquet=None if parquet is None else Path(parquet),
        engine=f"spark, {session.sparkContext.master}",
        statistics=estimated.statistics,
        warnings=[*estimated.warnings, *warnings],
        scores={},
        num_tokens=text.tokens,
        num_sentences=text.sentences,
        num_unknown=num_unknown,
        vocabulary_size=len(tokenizer.vocabulary),
        seconds=stages.seconds,
    )


def _described(text: CountedText, num_unknown: int) -> dict[str, Any]:
    counts = SplitCounts(
        tokens=text.tokens,
        sentences=text.sentences,
        unknown=num_unknown,
        bytes=text.num_bytes,
    )
    sources = [{"path": file, "split": "train"} for file in text.files]
    return {"splits": {"train": asdict(counts)}, "sources": sources}


@contextmanager
def _folder(session: SparkSession, parent: str) -> Iterator[str]:
    """Give the name of a new folder for tables, and remove it with all that is in it then."""
    path = posixpath.join(parent, f"seqtool-tables-{uuid.uuid4().hex}")
    try:
        yield path
    finally:
        Folder(session, path).remove()


def _counted(records: DataFrame, config: NgramConfig) -> CountedText:
    """Count the words of a text.

    Raises:
        DataError: it has no words, is not UTF-8, or holds a special token that is refused.
    """
    rows = _word_rows(records, config)
    if broken := next((row for row in rows if row["error"] is not None), None):
        before = lines_before(records, LINES)[broken["file"], broken["block"]]
        line = broken["place"] + before
        raise DataError(broken["error"], hint=broken["hint"], path=shown(broken["file"]), line=line)
    blocks = [row for row in rows if row["word"] is None]
    words = {row["word"]: row["count"] for row in rows if row["word"] is not None}
    sentences, tokens, num_bytes = (
        sum(row[name] for row in blocks) for name in ("sentences", "tokens", "bytes")
    )
    if tokens == sentences:
        what = "the text has only empty lines" if sentences else "the text is empty"
        raise DataError(what, hint="give a text with words", path=records.inputFiles()[0])
    if config.special_tokens == "skip" and UNK in words:
        raise DataError(
            f"{UNK} stands in the text, and --special-tokens is skip, which Spark cannot do",
            hint=f"take {UNK} for the unknown word, with --special-tokens unk, or write it out",
        )
    return CountedText(
        counted_tokenizer(words, sentences, config),
        sentences,
        tokens,
        max(row["longest"] for row in blocks),
        num_bytes,
        [shown(file) for file in records.inputFiles()],
        list(words),
    )


def _word_rows(records: DataFrame, config: NgramConfig) -> list[dict[str, Any]]:
    """Return the words of a text by their first occurrence, and what there is of it in all."""
    from pyspark.sql import functions

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _count_words(parts_of(batches, LINES, None), config)

    counts = mapped(records, count, _WORDS)
    sums = ("count", "sentences", "tokens", "bytes")
    first = functions.min(functions.struct("file", "block", "place")).alias("first")
    grouped = counts.groupBy("word", "error", "hint").agg(
        first, functions.max("longest").alias("longest"), *map(_sum, sums)
    )
    rows: list[dict[str, Any]] = (
        grouped.orderBy("first").select("*", "first.*").drop("first").toArrow().to_pylist()
    )
    return rows


def _sum(name: str) -> Column:
    from pyspark.sql import functions

    return functions.sum(name).alias(name)


def _count_words(parts: Iterable[Part], config: NgramConfig) -> Iterator[pa.RecordBatch]:
    """Give rows of `_WORDS`: the words of each block, and one without a word for all of it.

    A text that cannot be used ends the task with a row of its own: a task that fails would be tried
    again, in vain.
    """
    rows = Rows(_WORDS)
    for (_, block), some in groupby(parts, lambda part: (part.file, part.block)):
        reader = WordReader(config)
        longest = 0
        for part in some:
            file = part.source
            try:
                if not is_utf8(part):
                    raise not_utf8(part)
                ids = reader.add(part.text.replace(b"\r\n", b"\n"))
            except DataError as error:
                # of what is not UTF-8, the line is one of the block; else one of the part
                line = (error.line or 1) + (0 if error.path else part.line - 1)
                rows.add(file=file, block=block, place=line, error=error.message, hint=error.hint)
                yield rows.take()
                return
            ends = np.flatnonzero(ids == EOS_ID)
            longest = max(longest, int(np.diff(ends, prepend=-1).max()))
        counts = reader.table.counts.tolist()
        for word, count in enumerate(counts):
            if count and word not in (EOS_ID, reader.table.bos_id):
                name = reader.table.word(word)
                rows.add(word=name, count=count, file=file, block=block, place=word)
            if len(rows) >= ROWS:
                yield rows.take()
        rows.add(
            file=file,
            block=block,
            place=-1,
            sentences=reader.num_sentences,
            tokens=reader.num_tokens,
            longest=longest,
            bytes=reader.num_bytes,
        )
    if len(rows):
        yield rows.take()


def _offer_ends(records: DataFrame, tokenizer: WordTokenizer, keys: Keys, order: int) -> None:
    """Make the view `ENDS`: the longest n-gram that ends at each token."""
    import pyarrow as pa

    names = keys.columns(order)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packer = Packer(keys, order)
        for part in parts_of(batches, LINES, None):
            text = part.text.replace(b"\r\n", b"\n")
            columns = packer.pack(tokenizer.encode_block(text))
            yield pa.RecordBatch.from_arrays([*map(pa.array, columns)], names=names)

    mapped(records, pack, dict.fromkeys(names, "long")).createOrReplaceTempView(ENDS)


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
        ConfigError: there is no such column, it holds no texts, or an order below 1.
    """
    from pyspark.sql import functions

    check_column(frame, column)
    if order < 1:
        raise ConfigError(f"the order is {order}, but must be 1 or more", hint="give 3, say")
    names = {"ngram": "string", "count": "long"}

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = Rows(names)
        for batch in batches:
            counts: Counter[str] = Counter()
            for text in filter(None, batch.column(column).to_pylist()):
                for line in text.removesuffix("\n").split("\n"):
                    words = _WORD.findall(line)
                    if boundaries:
                        words = [BOS, *words, EOS]
                    places = range(len(words) - order + 1)
                    counts.update(" ".join(words[place : place + order]) for place in places)
            for ngram, num in counts.items():
                rows.add(ngram=ngram, count=num)
            yield rows.take()

    counted = mapped(frame.select(column), count, names)
    return counted.groupBy("ngram").agg(functions.sum("count").alias("count"))
