"""Prepared corpora of texts that Spark reads, the same as `text.prepared` makes in one process.

    blocks of texts -> lines before each           where lines are drawn for splits
                    -> symbols and their counts    the vocabulary, on the driver; or a sample of
                                                   lines, from which subwords are learnt there
                    -> ids                         a table in a folder for temporary files
    table of ids    -> cut into shards             a file of the corpus by one task each

Every id has its place in its split: those of the blocks before its own, and those before it in the
block. So a file is what stands between two places, in their order.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.reading import Progress
from seqtool.core.storage import atomic_directory, flush, write_json
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.spark.folders import temporary_folder
from seqtool.spark.frames import mapped
from seqtool.spark.session import Written, settled, user_errors
from seqtool.spark.texts import PLACES, TextPart, Texts, find_texts
from seqtool.spark.vocabularies import (
    Before,
    Pieces,
    Source,
    learn,
    lines_before_blocks,
    naming_line,
    sums_before,
)
from seqtool.spark.workers import Rows
from seqtool.text.preparation import (
    SPLITS,
    PrepareConfig,
    SplitPlan,
    plan_splits,
)
from seqtool.text.prepared import (
    INFO_FILE,
    PreparedCorpus,
    SplitCounts,
    check_output,
    describe_corpus,
    id_type,
    naming_output,
    refuse_empty_split,
)
from seqtool.text.shards import bounds, check_number, shard_path
from seqtool.text.spellings import spelt_out, words_path
from seqtool.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PIECE = 1 << 16  # bytes of a row of ids
_BATCH = 256  # such rows that a worker holds
_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_COUNTS = ("sentences", "unknown", "bytes")
_OF_IDS, _OF_WORDS = "ids", "words"  # what a file holds: ids, or unknown words as they are written
_IDS = {
    "split": "string",
    "kind": "string",  # of the file that it goes to
    "begin": "long",  # of the content among that of its block and split: ids, or bytes of words
    "end": "long",
    **dict.fromkeys(_COUNTS, "long"),
    "content": "binary",
    **PLACES,
}
_PARTS = {"file": "string", "position": "long", "content": "binary"}
_FILES = {"file": "string", "size": "long", "sentences": "long"}


def prepare(
    session: SparkSession,
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    config: PrepareConfig | None = None,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    shards: int = 1,
    temp: str | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> PreparedCorpus:
    """Turn text that Spark reads into a prepared corpus, the same that one process makes.

    Only the sums of the source files are not in its `corpus.json`.

    Args:
        session: of Spark.
        inputs: text files, directories and patterns, of any file system.
        output: the directory to make, on a disk that this machine and the workers see.
        config: unit, vocabulary, splits.
        valid: the validation text.
        test: the test text.
        shards: files that the training ids are cut into.
        temp: a folder for a table of ids that this machine and the workers see; beside the output
            when not given.
        force: replace a prepared corpus that is there; never another directory.
        on_progress: called with (steps done, their number).

    Raises:
        ConfigError: settings that contradict one another or the text, or that Spark does not have.
        DataError: text that is not there, damaged, not UTF-8, or a treebank.
        OutputError: the output exists, or cannot be written.
    """
    config = config or PrepareConfig()
    if config.column is not None:
        raise ConfigError(
            "a column of treebanks is read by one process",
            hint="leave --engine out, or --column",
        )
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    output = Path(output)
    check_local(output)
    check_output(output, force)
    parent = temp or str(output.absolute().parent)
    with user_errors(Written(parent, "--temp"), can_skip=False):
        plan = plan_splits(
            inputs,
            valid=valid,
            test=test,
            shares=config.split,
            find=partial(find_texts, session),
        )
        with (
            naming_output(output),
            atomic_directory(output) as directory,
            # left first, which stops tasks: they write into the directory
            temporary_folder(session, parent) as folder,
        ):
            _Preparation(session, directory, folder, config, plan, shards, on_progress).run()
    return PreparedCorpus.open(output)


def check_local(output: Path) -> None:
    """Refuse a directory of another file system: training reads ids from a disk.

    Raises:
        ConfigError: so it is.
    """
    if scheme := re.match(r"[a-z0-9]+:/", str(output)):
        raise ConfigError(
            f"a corpus is written to a disk that all machines see, not to {scheme[0]}/",
            hint="name a folder of such a disk with -o",
        )


@dataclass(frozen=True)
class _Preparation:
    """Fills the directory of a prepared corpus; see `prepare`."""

    session: SparkSession
    directory: Path  # empty
    folder: str  # for tables
    config: PrepareConfig
    plan: SplitPlan
    num_shards: int
    on_progress: Progress | None

    def run(self) -> None:
        """Write all files."""
        sources = [self._source(split) for split in SPLITS if split in self.plan.files]
        self._done(1)
        tokenizer, learnt_from = learn(sources[0])
        self._done(2)
        dtype = id_type(tokenizer.vocabulary).newbyteorder("<")
        tables = [self._encoded(source, tokenizer) for source in sources]
        table = self.session.read.parquet(*tables)
        self._done(3)
        sums = _sums(table)
        counts = {
            split: SplitCounts(**found.counts)
            for (split, kind), found in sums.items()
            if kind == _OF_IDS
        }
        for split, paths in self.plan.files.items():
            if split not in counts:
                refuse_empty_split(split, paths[0])
        if self.num_shards > 1:
            check_number(counts["train"].tokens, self.num_shards)
        files = [file for of, found in sums.items() for file in self._files(*of, found.size)]
        before = {of: found.before for of, found in sums.items()}
        written = self._write(table, files, before, dtype)
        shards = [
            {"begin": file.begin, "tokens": file.end - file.begin, "sentences": written[file.name]}
            for file in files
            if file.split == "train" and self.num_shards > 1
        ]
        self._done(4)
        tokenizer.save(self.directory)
        described = [
            {"path": path, "split": source.split}
            for source in sources
            for path in source.texts.files
        ]
        info = describe_corpus(
            self.config,
            self.plan,
            tokenizer,
            counts,
            sources=described,
            shards=shards,
            learnt_from=learnt_from,
        )
        write_json(self.directory / INFO_FILE, info)

    def _done(self, step: int) -> None:
        if self.on_progress is not None:
            self.on_progress(step, 4)

    def _source(self, split: str) -> Source:
        """Return the files of a split; where lines are drawn from them, their lines are counted."""
        texts = Texts.of(self.session, self.plan.files[split], self.config.field)
        if split != "train" or self.plan.shares is None:
            return Source(texts, split, self.config)
        return Source(texts, split, self.config, self.plan.shares, lines_before_blocks(texts))

    def _encoded(self, source: Source, tokenizer: Tokenizer) -> str:
        """Write a table of the ids of a source, and return where it is.

        Raises:
            DataError: a line that cannot be used.
        """
        from pyspark.sql import functions

        path = posixpath.join(self.folder, source.split)
        encode = partial(_encode, pieces=source.pieces, tokenizer=tokenizer)
        source.texts.mapped(encode, _IDS).write.parquet(path)
        refused = self.session.read.parquet(path).where(functions.col("error").isNotNull())
        if first := refused.orderBy("rank", "block").head():
            source.texts.refuse(first.asDict())
        return path

    def _files(self, split: str, kind: str, size: int) -> list[File]:
        if kind == _OF_WORDS:
            return [File(words_path(Path(), split).name, split, kind, 0, size)]
        if split != "train" or self.num_shards == 1:
            return [File(f"{split}.bin", split, kind, 0, size)]
        return [
            File(shard_path(Path(), split, number).name, split, kind, begin, end)
            for number, (begin, end) in enumerate(bounds(size, self.num_shards))
        ]

    def _write(
        self,
        table: DataFrame,
        files: Sequence[File],
        before: Mapping[tuple[str, str], Before],
        dtype: np.dtype[Any],
    ) -> dict[str, int]:
        """Write the files; return the sentences of each.

        Raises:
            OutputError: they are not here afterwards.
        """
        cut = partial(_cut, files=files, before=before, item_bytes=dtype.itemsize)
        write = partial(_write, directory=str(self.directory), dtype=dtype.str)
        with settled(self.session, _ROWS_AT_ONCE, str(_BATCH)):
            parts = mapped(table, cut, _PARTS).repartition(len(files), "file")
            parts = parts.sortWithinPartitions("file", "position")
            written = {row.file: row for row in mapped(parts, write, _FILES).collect()}
        for file in files:
            path = self.directory / file.name
            size = (file.end - file.begin) * (dtype.itemsize if file.kind == _OF_IDS else 1)
            if not path.is_file() or {path.stat().st_size, written[file.name].size} != {size}:
                raise OutputError(
                    f"{file.name}, which a worker wrote, is not there in full",
                    hint="name a directory with -o on a disk that all machines see",
                    path=self.directory.parent,
                )
            for left in self.directory.glob(f".{file.name}-*"):  # of a worker that was killed
                left.unlink(missing_ok=True)
        return {name: row.sentences for name, row in written.items()}


@dataclass
class _Sums:
    """What a table has of a file: where the content of each block begins, the size, the counts."""

    before: Before
    size: int
    counts: dict[str, int]


def _sums(table: DataFrame) -> dict[tuple[str, str], _Sums]:
    """Return what a table of `_IDS` has, by split and kind."""
    from pyspark.sql import functions

    of_blocks = table.groupBy("split", "kind", "rank", "block").agg(
        functions.max("end").alias("size"),
        *(functions.sum(name).alias(name) for name in _COUNTS),
    )
    blocks = [row.asDict() for row in of_blocks.collect()]
    result = {}
    for of in sorted({(row["split"], row["kind"]) for row in blocks}):
        rows = [row for row in blocks if (row["split"], row["kind"]) == of]
        before, size = sums_before(rows, "size")
        counts = {name: sum(row[name] or 0 for row in rows) for name in _COUNTS}
        result[of] = _Sums(before, size, {"tokens": size, **counts})
    return result


def _encode(
    parts: Iterator[TextPart], pieces: Pieces, tokenizer: Tokenizer
) -> Iterator[pa.RecordBatch]:
    """Give rows of `_IDS`: those of each text, and its unknown words where these are kept."""
    dtype = id_type(tokenizer.vocabulary).newbyteorder("<")
    rows = Rows(_IDS)
    size = _PIECE // dtype.itemsize
    for (rank, block), texts in groupby(parts, lambda text: (text.rank, text.block)):
        cut, done = pieces.of_block(rank, block), defaultdict[tuple[str, str], int](int)
        for text in texts:
            for piece in cut(text):
                try:
                    with naming_line(piece):
                        ids = tokenizer.encode_block(piece.block)
                except DataError as error:
                    raise text.refused(error) from error
                for first in range(0, len(ids), size):
                    some = ids[first : first + size]
                    begin = done[piece.split, _OF_IDS] + first
                    rows.add(
                        split=piece.split,
                        kind=_OF_IDS,
                        begin=begin,
                        end=begin + len(some),
                        sentences=np.count_nonzero(some == EOS_ID),
                        unknown=np.count_nonzero(some == UNK_ID),
                        bytes=0 if first else len(piece.block),
                        content=some.astype(dtype).tobytes(),
                        rank=rank,
                        block=block,
                    )
                done[piece.split, _OF_IDS] += len(ids)
                words = b"" if piece.split == "train" else spelt_out(tokenizer, piece.block, ids)
                begin = done[piece.split, _OF_WORDS]
                for first in range(0, len(words), _PIECE):
                    part = words[first : first + _PIECE]
                    rows.add(
                        split=piece.split,
                        kind=_OF_WORDS,
                        begin=begin + first,
                        end=begin + first + len(part),
                        content=part,
                        rank=rank,
                        block=block,
                    )
                done[piece.split, _OF_WORDS] += len(words)
                if len(rows) >= _BATCH:
                    yield rows.take()
    if len(rows):
        yield rows.take()


class File(NamedTuple):
    """A file of a corpus.

    Attributes:
        name: of it.
        split: whose it is.
        kind: what it holds.
        begin: the place of the first id, or byte of words, in the split.
        end: of the one after the last.
    """

    name: str
    split: str
    kind: str
    begin: int
    end: int


def _cut(
    batches: Iterable[pa.RecordBatch],
    files: Sequence[File],
    before: Mapping[tuple[str, str], Before],
    item_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Give rows of `_PARTS`: for each file what it has of the content of rows of `_IDS`."""
    rows = Rows(_PARTS)
    for batch in batches:
        for row in batch.to_pylist():
            of = row["split"], row["kind"]
            first = before[of][row["rank"], row["block"]] + row["begin"]
            last = first + row["end"] - row["begin"]
            item = item_bytes if row["kind"] == _OF_IDS else 1
            for file in files:
                begin, end = max(first, file.begin), min(last, file.end)
                if (file.split, file.kind) == of and begin < end:
                    part = row["content"][(begin - first) * item : (end - first) * item]
                    rows.add(file=file.name, position=begin, content=part)
        if len(rows):
            yield rows.take()


def _write(
    batches: Iterable[pa.RecordBatch], directory: str, dtype: str
) -> Iterator[pa.RecordBatch]:
    """Write the files of a task, of which it has all parts in order; give rows of `_FILES`.

    Raises:
        OutputError: the directory is not there, as on another machine, or cannot be written.
    """
    if not Path(directory).is_dir():
        raise OutputError(
            "the directory of the corpus is not on the machine of a worker",
            hint="name one with -o that all machines see",
            path=directory,
        )
    rows = Rows(_FILES)
    parts = (row for batch in batches for row in batch.to_pylist())
    for name, some in groupby(parts, lambda row: row["file"]):
        target = Path(directory, name)
        # a task that is tried again, or twice at a time, must not write into the same file
        unfinished = target.with_name(f".{name}-{uuid.uuid4().hex}")
        sentences = 0
        try:
            with unfinished.open("wb") as file:
                for part in some:
                    file.write(part["content"])
                    if target.suffix == ".bin":
                        ids = np.frombuffer(part["content"], dtype)
                        sentences += int(np.count_nonzero(ids == EOS_ID))
            flush(unfinished)
            size = unfinished.stat().st_size
            unfinished.replace(target)
        except OSError as error:
            raise OutputError(
                f"cannot be written: {error.strerror}", hint="free some space", path=target
            ) from error
        finally:
            unfinished.unlink(missing_ok=True)
        rows.add(file=name, size=size, sentences=sentences)
    if len(rows):
        yield rows.take()
