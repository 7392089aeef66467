"""The n-grams of a model as files of Parquet, a folder for each order.

    order=1/part-00000.parquet      ngram: text, words apart by a space
    order=2/part-00000.parquet      log_prob: float, nats; -inf where there is no probability
                                    backoff: float, nats; none at the highest order

Readers of such folders (Spark, DuckDB, pyarrow, polars) take `order` as one more column. Order 1
has all words, in the order of their ids, `<unk>`, `</s>` and `<s>` among them.
"""

from __future__ import annotations

from pathlib import Path

from seqtool.core import storage
from seqtool.core.errors import OutputError
from seqtool.core.reading import Progress, load_pyarrow
from seqtool.core.vocabulary import BOS, Vocabulary
from seqtool.lm.ngram.arpa import word_columns
from seqtool.lm.ngram.table import BackoffTable

_ROWS = 1 << 17  # of a row group, which readers share among themselves
_FILE = "part-00000.parquet"


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
    if next(path.glob("order=1/*.parquet"), None) is None:
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
    types = arrow.string(), arrow.float32(), arrow.float32()
    schema = arrow.schema([*zip(("ngram", "log_prob", "backoff"), types, strict=True)])
    words = arrow.array([*vocabulary.symbols, BOS])
    done, total = 0, sum(map(len, table.levels))
    with storage.atomic_directory(path) as directory:
        for n, level in enumerate(table.levels, start=1):
            folder = directory.absolute() / f"order={n}"  # s3:x would be in the network
            folder.mkdir()
            with parquet.ParquetWriter(folder / _FILE, schema, compression="zstd") as writer:
                for first in range(0, len(level), _ROWS):
                    last = min(first + _ROWS, len(level))
                    ids = word_columns(table.levels, n, first, last)
                    ngrams = [words.take(arrow.array(column)) for column in ids]
                    if n > 1:
                        ngrams = [arrow.compute.binary_join_element_wise(*ngrams, " ")]
                    backoffs = arrow.nulls(last - first, arrow.float32())
                    if n < table.order:
                        backoffs = arrow.array(level.backoffs[first:last])
                    columns = [*ngrams, arrow.array(level.log_probs[first:last]), backoffs]
                    writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=schema))
                    done += last - first
                    if on_progress is not None:
                        on_progress(done, total)
