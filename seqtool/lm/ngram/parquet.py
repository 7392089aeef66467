"""The n-grams of a model as files of Parquet, a folder for each order.

    order=1/part-00000.parquet      ngram: text, words apart by a space
    order=2/part-00000.parquet      log_prob: float, nats; -inf where there is no probability
            part-00001.parquet      backoff: float, nats; none at the highest order

Readers of such folders (Spark, DuckDB, pyarrow, polars) take `order` as one more column. Order 1
has all words, in the order of their ids, `<unk>`, `</s>` and `<s>` among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core import storage
from seqtool.core.database import Database, missing_package
from seqtool.core.errors import ModelError, OutputError
from seqtool.core.parquet import load_pyarrow
from seqtool.core.reading import Progress
from seqtool.core.runtime import available_threads, memory_available, memory_limit
from seqtool.core.string_table import StringTable
from seqtool.core.vocabulary import BOS, EOS, UNK, Vocabulary
from seqtool.lm.array_file import ArrayWriter
from seqtool.lm.ngram.suffixes import contexts_of
from seqtool.lm.ngram.table import BackoffTable, Float32, Int32, TableLevel, table_shapes
from seqtool.lm.ngram.trie import Found, context_rows, sorted_level, word_columns
from seqtool.text.words import look_up

_ROWS = 1 << 17  # at once
_ROWS_PER_FILE = 1 << 24
_COLUMNS = ("ngram", "log_prob", "backoff")


def is_parquet(path: str | Path) -> bool:
    """Return whether a directory holds the n-grams of a model."""
    return next(Path(path).glob("order=1/*.parquet"), None) is not None


def check_directory(path: str | Path, *, force: bool) -> None:
    """Refuse, before the work begins, a directory that is there; with `force`, of other files.

    Raises:
        ConfigError: pyarrow is not installed.
        OutputError: it names the directory.
    """
    load_pyarrow()
    path = Path(path)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_parquet(path):
        what = "exists and holds no n-grams, so it will not be replaced"
        raise OutputError(what, hint="choose another directory with --parquet", path=path)
    if not force:
        hint = "replace it with --force, or choose another with --parquet"
        raise OutputError("exists already", hint=hint, path=path)


def write_parquet(
    table: BackoffTable,
    vocabulary: Vocabulary,
    path: str | Path,
    *,
    force: bool = False,
    on_progress: Progress | None = None,
) -> None:
    """Write a table as a directory, which is there whole or not; memory is that of some rows.

    Args:
        table: what to write.
        vocabulary: its words, none of which holds a blank.
        path: the directory.
        force: replace one that is there.
        on_progress: called with (n-grams written, their number).

    Raises:
        ConfigError: pyarrow is not installed.
        OutputError: the directory is there, or cannot be written.
    """
    check_directory(path, force=force)
    arrow, parquet = load_pyarrow()
    fields = zip(_COLUMNS, (arrow.string(), arrow.float32(), arrow.float32()), strict=True)
    schema = arrow.schema([*fields])
    words = arrow.array([*vocabulary.symbols, BOS])
    done, total = 0, sum(map(len, table.levels))
    with storage.atomic_directory(path) as directory:
        for n, level in enumerate(table.levels, start=1):
            folder = directory / f"order={n}"
            folder.mkdir()
            for number, begin in enumerate(range(0, len(level), _ROWS_PER_FILE)):
                end = min(begin + _ROWS_PER_FILE, len(level))
                file = folder / f"part-{number:05}.parquet"
                with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                    for first in range(begin, end, _ROWS):
                        last = min(first + _ROWS, end)
                        batch = _batch(arrow, table, words, n, first, last)
                        writer.write_batch(arrow.RecordBatch.from_arrays(batch, schema=schema))
                        done += last - first
                        if on_progress is not None:
                            on_progress(done, total)


def _batch(arrow: Any, table: BackoffTable, words: Any, n: int, first: int, last: int) -> list[Any]:
    """Return some rows of an order as columns."""
    level = table.levels[n - 1]
    parts = [words.take(arrow.array(ids)) for ids in word_columns(table, n, first, last)]
    compute = arrow.compute
    ngrams = compute.binary_join_element_wise(*parts, " ") if n > 1 else parts[0]
    log_probs = arrow.array(level.log_probs[first:last])
    if n == table.order:
        return [ngrams, log_probs, arrow.nulls(last - first, arrow.float32())]
    return [ngrams, log_probs, arrow.array(level.backoffs[first:last])]


class ParquetReader:
    """Reads what `write_parquet` wrote, or another program in this form; rows may be in any order.

    What is in trie order goes through as it comes. An order that is not is sorted: by a database,
    or in memory where there is none.

    Args:
        path: the directory.
        on_progress: called with (n-grams read, their number).

    Attributes:
        sizes: the n-grams of each order.
        vocabulary: of the model.

    Raises:
        ConfigError: pyarrow is not installed.
        ModelError: it is no such directory, or damaged.
    """

    def __init__(self, path: Path, on_progress: Progress | None = None) -> None:
        self._arrow, self._parquet = load_pyarrow()
        self._path, self._on_progress = path, on_progress
        self._files: list[list[Path]] = []
        while files := sorted(path.glob(f"order={len(self._files) + 1}/*.parquet")):
            self._files.append(files)
        if not self._files:
            raise self._error("it has no files order=1/*.parquet", path)
        self.sizes = [
            sum(self._open(file).metadata.num_rows for file in files) for files in self._files
        ]
        self._done = 0
        self._levels: list[TableLevel] = []
        symbols = self._words()
        self.vocabulary = Vocabulary(symbols)
        self._names = StringTable([*symbols, BOS])

    def write(self, path: Path) -> None:
        """Write the table to a file, as `write_arrays` does; memory is that of some rows.

        Raises:
            ModelError: the directory is damaged.
            OSError: it cannot be written.
        """
        first, order = self._levels[0], len(self.sizes)
        with ArrayWriter(path, table_shapes(self.sizes)) as writer:
            writer.append("1.log_probs", first.log_probs)
            if order > 1:
                writer.append("1.backoffs", first.backoffs)
            for n in range(2, order + 1):
                done = self._done
                try:
                    self._write_level(writer, n, self._found(n))
                except _OutOfOrder:
                    self._done = done  # they are read again
                    folder = path.with_name(f"{path.name}-sorted")
                    self._write_level(writer, n, self._sorted(n, folder))
                if n < order:
                    words, begins = (writer.mapped(f"{n}.{name}") for name in ("words", "begins"))
                    nothing = np.empty(0, np.float32)
                    self._levels.append(TableLevel(words, begins, nothing, nothing))

    def _write_level(self, writer: ArrayWriter, n: int, found: Iterable[Found]) -> None:
        """Write an order whose n-grams come in trie order.

        Raises:
            _OutOfOrder: they do not.
        """
        names = ["words", "begins", "log_probs", *(["backoffs"] if n < len(self.sizes) else [])]
        writer.begin_again(*(f"{n}.{name}" for name in names))
        writer.append(f"{n}.begins", np.zeros(1, np.int32))
        done = context = 0  # n-grams, and contexts all of whose n-grams are written
        last = -1
        for contexts, words, log_probs, backoffs in found:
            keys = contexts.astype(np.int64) * (len(self.vocabulary) + 1) + words
            steps = np.diff(keys, prepend=last)
            if (steps <= 0).any():
                if (steps[steps <= 0] == 0).all():
                    raise self._error("an n-gram is there a second time", self._file)
                raise _OutOfOrder
            last = int(keys[-1])
            whole = np.arange(context, contexts[-1])
            ends = done + np.searchsorted(contexts, whole, side="right")
            writer.append(f"{n}.begins", ends.astype(np.int32))
            columns = zip(
                ("words", "log_probs", "backoffs"), (words, log_probs, backoffs), strict=True
            )
            for name, column in columns:
                if name in names:
                    writer.append(f"{n}.{name}", column)
            done, context = done + len(words), int(contexts[-1])
        num = len(self._levels[-1]) - context
        writer.append(f"{n}.begins", np.full(num, done, np.int32))

    def _sorted(self, n: int, folder: Path) -> Iterator[Found]:
        """Give the n-grams of an order in trie order; the folder is for a database."""
        if missing_package():
            level, _, again = sorted_level(
                [*self._found(n)], len(self._levels[-1]), len(self.vocabulary)
            )
            if again is not None:
                raise self._error("an n-gram is there a second time", self._file)
            yield contexts_of(level), level.words, level.log_probs, level.backoffs
            return
        columns = ("context", "word", "log_prob", "backoff")
        with storage.temporary_sibling(folder) as place:
            memory = memory_available(memory_limit()) or 0
            database = Database(
                place,
                memory // 2,
                available_threads(),
                more_memory="free some memory",
                more_room="free some space, or write elsewhere with -o",
            )
            with closing(database):
                database.run(
                    "CREATE TABLE ngrams (context INT, word INT, log_prob FLOAT, backoff FLOAT)"
                )
                for found in self._found(n):
                    batch = self._arrow.table(dict(zip(columns, found, strict=True)))
                    with database.naming():
                        database.connection.register("found", batch)
                        database.run("INSERT INTO ngrams SELECT * FROM found")
                        database.connection.unregister("found")
                with database.naming():
                    rows = database.connection.sql("SELECT * FROM ngrams ORDER BY context, word")
                    for batch in rows.to_arrow_reader(_ROWS):
                        contexts, words, log_probs, backoffs = (
                            np.array(batch.column(name).to_numpy()) for name in columns
                        )
                        yield contexts, words, log_probs, backoffs

    def _words(self) -> list[str]:
        """Read order 1, and return the words."""
        words: list[str] = []
        found: list[tuple[Float32, Float32]] = []
        for _, batch in self._batches(1):
            words += batch.column("ngram").to_pylist()
            found.append(_numbers(batch))
        place = {word: row for row, word in enumerate(words)}
        file = self._files[0][0]
        missing = [word for word in (UNK, EOS, BOS) if word not in place]
        if missing or len(place) < len(words):
            what = f"it lacks {missing[0]}" if missing else "a word is there a second time"
            raise self._error(what, file)
        others = [word for word in words if word not in (UNK, EOS, BOS)]
        symbols = [UNK, EOS, *others]
        rows = np.array([place[word] for word in [*symbols, BOS]], np.int64)
        log_probs, backoffs = (np.concatenate(part)[rows] for part in zip(*found, strict=True))
        num = len(rows)
        ids, begins = np.arange(num, dtype=np.int32), np.array([0, num], np.int32)
        self._levels.append(TableLevel(ids, begins, log_probs, backoffs))
        return symbols

    def _found(self, n: int) -> Iterator[Found]:
        """Give the n-grams of an order as they come."""
        for file, batch in self._batches(n):
            self._file = file
            columns = self._columns(batch, n, self._names, file)
            contexts = context_rows(self._levels, columns, len(self.vocabulary))
            if (contexts < 0).any():
                ngram = batch.column("ngram")[int((contexts < 0).argmax())].as_py()
                raise self._error(f"no n-gram of order {n - 1} begins as {ngram!r} does", file)
            if (contexts == len(self._levels[-1])).any():
                raise self._error("an n-gram is of no sentence", file)
            yield contexts, columns[-1].copy(), *_numbers(batch)

    def _columns(self, batch: Any, n: int, names: StringTable, file: Path) -> Int32:
        """Return the words of n-grams, int32 [n, R]."""
        text = "\n".join(batch.column("ngram").to_pylist()) + "\n"
        data = np.frombuffer(text.encode(), np.uint8)
        ends = np.flatnonzero((data == ord(" ")) | (data == ord("\n")))
        is_last = data[ends] == ord("\n")
        if len(ends) != n * batch.num_rows or not is_last[n - 1 :: n].all():
            raise self._error(f"an n-gram has not {n} words", file)
        begins = np.concatenate(([0], ends[:-1] + 1))
        ids = look_up(names, data, begins, ends)
        if (ids < 0).any():
            place = int((ids < 0).argmax())
            word = data[begins[place] : ends[place]].tobytes().decode()
            raise self._error(f"the word {word!r} is none of order 1", file)
        return np.ascontiguousarray(ids.reshape(-1, n).T)

    def _batches(self, n: int) -> Iterator[tuple[Path, Any]]:
        for file in self._files[n - 1]:
            with self._open(file) as opened:
                for batch in opened.iter_batches(_ROWS, columns=list(_COLUMNS)):
                    yield file, batch
                    self._done += batch.num_rows
                    if self._on_progress is not None:
                        self._on_progress(self._done, sum(self.sizes))

    def _open(self, file: Path) -> Any:
        try:
            opened = self._parquet.ParquetFile(file, pre_buffer=False)
        except (OSError, self._arrow.ArrowException) as error:
            raise self._error(f"damaged: {error}", file) from error
        missing = [name for name in _COLUMNS if name not in opened.schema_arrow.names]
        if missing:
            raise self._error(f"it has no column {missing[0]!r}", file)
        return opened

    def _error(self, what: str, path: Path) -> ModelError:
        hint = "name a directory that --parquet of `seqtool ngram train` wrote, or write it again"
        return ModelError(what, hint=hint, path=path)


class _OutOfOrder(Exception):
    """n-grams that are not in trie order."""


def _numbers(batch: Any) -> tuple[Float32, Float32]:
    """Return log-probabilities and backoffs; 0 where there is none."""
    columns = (batch.column(name).fill_null(0) for name in ("log_prob", "backoff"))
    log_probs, backoffs = (np.array(column.to_numpy(), np.float32) for column in columns)
    return log_probs, backoffs
