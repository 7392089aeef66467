"""The n-grams of a model as files of Parquet, a folder for each order.

    order=1/part-00000.parquet      ngram: text, words apart by a space
    order=2/part-00000.parquet      log_prob: float, nats; -inf where there is no probability
            part-00001.parquet      backoff: float, nats; none at the highest order

Readers of such folders (Spark, DuckDB, pyarrow, polars) take `order` as one more column. Order 1
has all words, in the order of their ids, `<unk>`, `</s>` and `<s>` among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqtool.core import storage
from seqtool.core.errors import OutputError
from seqtool.core.reading import Progress, load_pyarrow
from seqtool.core.vocabulary import BOS, Vocabulary
from seqtool.lm.ngram.arpa import word_columns
from seqtool.lm.ngram.table import BackoffTable

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
            folder = directory.absolute() / f"order={n}"  # s3:x would be in the network
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
    parts = [words.take(arrow.array(ids)) for ids in word_columns(table.levels, n, first, last)]
    compute = arrow.compute
    ngrams = compute.binary_join_element_wise(*parts, " ") if n > 1 else parts[0]
    log_probs = arrow.array(level.log_probs[first:last])
    if n == table.order:
        return [ngrams, log_probs, arrow.nulls(last - first, arrow.float32())]
    return [ngrams, log_probs, arrow.array(level.backoffs[first:last])]
