"""n-gram models of texts that Spark reads: words counted, then the plan of `lm.ngram.engine`.

    lines of files -> words and their counts    GROUP BY the word; the vocabulary, on the driver
    lines of files -> ids -> `ends`             the longest n-gram that ends at each token
    `ends` -> `plan.estimate`                   SQL, and smoothing of whole contexts by the workers
    tables -> a model directory                 as they come, in trie order

The ids are those that the text has in memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core import checkpoint, reading
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import PARQUET, unpacked_name
from seqtool.core.vocabulary import BLANKS, BOS, EOS, EOS_ID, UNK, UNK_ID
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import WordReader, counted_tokenizer, limited
from seqtool.lm.ngram.engine.keys import Keys, Packer
from seqtool.lm.ngram.engine.output import save_estimated
from seqtool.lm.ngram.engine.plan import ENDS, Text, estimate
from seqtool.lm.ngram.model import NgramModel
from seqtool.lm.ngram.train import (
    NgramTraining,
    OnProgress,
    Stages,
    check_engine,
    check_output,
    check_words,
    unknown_warnings,
    write_copies,
)
from seqtool.spark.blocks import sound_files
from seqtool.spark.counting import counted
from seqtool.spark.engine import SparkEngine
from seqtool.spark.folders import temporary_folder
from seqtool.spark.frames import check_column, mapped
from seqtool.spark.session import Written, user_errors
from seqtool.spark.texts import TextPart, Texts, UnreadText, find_texts
from seqtool.spark.workers import Rows
from seqtool.text.prepared import SplitCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from seqtool.text.tokenizers import WordTokenizer

_PARTS = "spark.sql.shuffle.partitions"
_PARTITION_BYTES = 64_000_000
_ROW_BYTES = 32  # of an n-gram, about
_SHORT_BYTES = 5 << 20  # of a text up to which it was measured that to compile once is cheaper
_WORD = re.compile(f"[^{BLANKS}]+")


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
    """

    tokenizer: WordTokenizer
    sentences: int
    tokens: int
    longest: int
    num_bytes: int
    files: list[str]


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
    skip_invalid: bool = False,
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
        skip_invalid: as well; all packed files are read once more for it, and the text once more
            for each file that is not UTF-8.
        temp: a folder for tables that this machine and the workers see; beside the output when not
            given, which is for workers on this machine.
        threads: that write the ARPA file.
        command: what the user typed.
        on_progress: called with the stage and its progress.

    Raises:
        ConfigError: settings that need the text in memory; no `temp` where the workers run on
            other machines.
        DataError: text that is not there, empty or damaged.
        OutputError: the output exists, or cannot be written.
    """
    check_engine("spark", config)
    output = Path(output)
    check_output(config.files, output, force=force, arpa=arpa, parquet=parquet)
    if temp is None and not str(session.sparkContext.master).startswith("local["):
        raise ConfigError(
            "the workers of Spark run on other machines, and there is no folder for tables",
            hint="name one that all of them see with --temp: hdfs://..., s3a://..., a shared disk",
        )
    stages = Stages(on_progress)
    parent = temp or str(output.absolute().parent)
    with user_errors(Written(parent, "--temp")), temporary_folder(session, parent) as folder:
        with stages("reading"):
            texts, text, skipped = _read(session, inputs, field, config, skip=skip_invalid)
        tokenizer, allowed = text.tokenizer, None
        keys = Keys(len(tokenizer.vocabulary))
        _offer_ends(texts, tokenizer, keys, config.order)
        num_unknown = tokenizer.vocabulary.counts[UNK_ID]
        if config.limit_vocab is not None:
            tokenizer, allowed = limited(tokenizer, config.limit_vocab)
            num_unknown = tokenizer.vocabulary.counts[UNK_ID]
        check_words(tokenizer.vocabulary, arpa, parquet)
        engine = SparkEngine(session, folder)
        described = Text(keys, text.sentences, text.longest)
        num_bytes = text.tokens * _ROW_BYTES
        with stages("estimating") as on_estimate, _divided(session, num_bytes):
            estimated = estimate(
                engine, described, config, allowed=allowed, on_progress=on_estimate
            )
        with stages("saving") as on_save:
            statistics = save_estimated(
                output,
                tokenizer,
                engine,
                estimated,
                on_progress=on_save,
                config=to_dict(config),
                scores={"train_seconds": sum(stages.seconds.values())},
                data=_described(text, num_unknown),
                command=command,
            )
    table = checkpoint.load(output, NgramModel).table
    warnings = write_copies(
        table,
        tokenizer.vocabulary,
        stages,
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
        statistics=statistics,
        warnings=[
            *unknown_warnings(config, num_unknown, text.tokens - text.sentences),
            *estimated.warnings,
            *warnings,
        ],
        scores={},
        num_tokens=text.tokens,
        num_sentences=text.sentences,
        num_unknown=num_unknown,
        vocabulary_size=len(tokenizer.vocabulary),
        seconds=stages.seconds,
        skipped=[str(error) for error in skipped],
    )


def is_short(inputs: Sequence[str]) -> bool:
    """Whether a text is so short that most of the work is what the JVM compiles: `spark_session`.

    Packed texts, Parquet, patterns and other file systems are not: their sizes are not known.
    """
    if not all(Path(item).exists() for item in inputs):
        return False
    files = [Path(file) for file in reading.find_files(inputs)]
    if any(unpacked_name(file) != file.name.lower() or file.suffix == PARQUET for file in files):
        return False
    return sum(file.stat().st_size for file in files) <= _SHORT_BYTES


def _described(text: CountedText, num_unknown: int) -> dict[str, Any]:
    counts = SplitCounts(
        tokens=text.tokens,
        sentences=text.sentences,
        unknown=num_unknown,
        bytes=text.num_bytes,
    )
    sources = [{"path": file, "split": "train"} for file in text.files]
    return {"splits": {"train": asdict(counts)}, "sources": sources}


def _read(
    session: SparkSession,
    inputs: Sequence[str],
    field: str | None,
    config: NgramConfig,
    *,
    skip: bool,
) -> tuple[Texts, CountedText, list[DataError]]:
    """Return a text, its words, and what is wrong with each file that is left out of it."""
    files = find_texts(session, inputs)
    skipped: list[DataError] = []
    if skip:
        files, skipped = sound_files(session, files)
    while True:
        texts = Texts.of(session, files, field)
        try:
            return texts, _counted(texts, config), skipped
        except UnreadText as error:
            if not skip or len(files) == 1:
                raise
            files = [name for name in files if name != str(error.path)]
            skipped.append(error)


@contextmanager
def _divided(session: SparkSession, num_bytes: int) -> Iterator[None]:
    """Let what is grouped, joined and sorted be cut by its size, unless a setting says how.

    Spark cuts into 200 parts, however much there is: too many of a small text, and of a large one
    parts that the memory of a task has no room for.
    """
    if _PARTS in session.conf.getAll:
        yield
        return
    least = 2 * session.sparkContext.defaultParallelism
    session.conf.set(_PARTS, str(max(least, -(-num_bytes // _PARTITION_BYTES))))
    try:
        yield
    finally:
        session.conf.unset(_PARTS)


def _counted(texts: Texts, config: NgramConfig) -> CountedText:
    """Count the words of a text.

    Raises:
        DataError: it has no words, is not UTF-8, or holds a special token that is refused.
    """
    words, blocks = counted(texts, partial(_Words, config=config))
    sentences, tokens, num_bytes = (
        sum(row[name] for row in blocks) for name in ("sentences", "tokens", "bytes")
    )
    if tokens == sentences:
        what = "the text has only empty lines" if sentences else "the text is empty"
        raise DataError(what, hint="give a text with words", path=texts.files[0])
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
        texts.files,
    )


class _Words:
    """Counts the words of a block; see `counting.Counter`."""

    def __init__(self, rank: int, block: int, config: NgramConfig) -> None:
        self._reader, self._longest = WordReader(config), 0

    def add(self, text: TextPart) -> None:
        """Count those of some lines."""
        ends = np.flatnonzero(self._reader.add(text.content) == EOS_ID)
        self._longest = max(self._longest, int(np.diff(ends, prepend=-1).max()))

    def symbols(self) -> Iterator[tuple[str, int]]:
        """Give the words in order of first occurrence, with their counts; `<unk>` the first."""
        table = self._reader.table
        for word, count in enumerate(table.counts.tolist()):
            if count and word not in (EOS_ID, table.bos_id):
                yield table.word(word), count

    def totals(self) -> dict[str, int]:
        """Return what there is of the block."""
        reader = self._reader
        return {
            "sentences": reader.num_sentences,
            "tokens": reader.num_tokens,
            "longest": self._longest,
            "bytes": reader.num_bytes,
        }


def _offer_ends(texts: Texts, tokenizer: WordTokenizer, keys: Keys, order: int) -> None:
    """Make the view `ENDS`: the longest n-gram that ends at each token."""
    import pyarrow as pa

    names = keys.columns(order)

    def pack(parts: Iterable[TextPart]) -> Iterator[pa.RecordBatch]:
        packer = Packer(keys, order)
        for text in parts:
            columns = packer.pack(tokenizer.encode_block(text.content))
            yield pa.RecordBatch.from_arrays([*map(pa.array, columns)], names=names)

    texts.mapped(pack, dict.fromkeys(names, "long")).createOrReplaceTempView(ENDS)


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
