"""Training beyond memory: a text of ids on disk -> an engine -> a model directory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, Ids
from seqtool.core.errors import DataError
from seqtool.core.reading import Progress
from seqtool.core.runtime import (
    check_memory,
    give_back_memory,
    memory_available,
    memory_limit,
)
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.engine.database import LEAST
from seqtool.lm.ngram.engine.duckdb import DuckDB
from seqtool.lm.ngram.engine.keys import Keys, Packer
from seqtool.lm.ngram.engine.plan import Engine, Estimated, Text, estimate

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE = 1 << 18  # tokens that are packed at once
# of the memory that is free at the beginning, DuckDB takes some more than it is allowed for a
# while, and what passes between it and here is not its own; nor are its code and pyarrow's, which
# are as large however little there is
_SHARE, _OUTSIDE = 0.75, 200_000_000


@contextmanager
def estimated_on_disk(
    ids: npt.NDArray[Any],
    vocabulary_size: int,
    config: NgramConfig,
    folder: Path,
    *,
    threads: int = 1,
    memory: int | None = None,
    allowed: Bools | None = None,
    on_progress: Progress | None = None,
) -> Iterator[tuple[Engine, Estimated]]:
    """Estimate a model with DuckDB; the same numbers as `smoothing.estimate` gives.

    The engine, and the model in its tables, are there as long as the block lasts.

    Args:
        ids: the text, mapped; `EOS_ID` after each sentence and no `<s>`.
        vocabulary_size: V.
        config: the smoothing, its settings, and what is pruned by counts.
        folder: for temporary files; what is in it afterwards is no more of use.
        threads: how many to use.
        memory: how many bytes the process may take; what it has and half of what is free when None.
        allowed: as for `smoothing.estimate`.
        on_progress: called with (steps done, their number).

    Raises:
        DataError: too little memory, or an order that no sentence is long enough for.
        OutputError: a temporary file cannot be written.
    """
    keys = Keys(vocabulary_size)
    text = describe_text(ids, keys)
    with closing(open_engine(folder, threads, memory)) as engine:
        engine.take(*_ends(ids, keys, config.order))
        yield engine, estimate(engine, text, config, allowed=allowed, on_progress=on_progress)


def open_engine(folder: Path, threads: int, memory: int | None) -> DuckDB:
    """Return DuckDB in an empty folder, with what is free of the memory that the process may take.

    Raises:
        DataError: that is too little.
    """
    give_back_memory()  # of the reading
    limit = memory_limit() if memory is None else memory
    check_memory(LEAST, "the tables of DuckDB", "free some memory", limit)
    available = memory_available(limit) or 0
    return DuckDB(folder, int(min(_SHARE * available, available - _OUTSIDE)), threads)


def text_pieces(ids: npt.NDArray[Any]) -> Iterator[Ids]:
    """Give a text piece by piece; pages of a mapped file are let go when they have been read."""
    mapped = ids._mmap if isinstance(ids, np.memmap) else None  # type: ignore[attr-defined]
    for begin in range(0, len(ids), _PIECE):
        yield np.array(ids[begin : begin + _PIECE], np.int32)
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


def describe_text(ids: npt.NDArray[Any], keys: Keys) -> Text:
    """Return what is known of a text when it was read once.

    Raises:
        DataError: it is not of this vocabulary, or the last sentence has no end.
    """
    num_sentences = longest = length = 0
    for piece in text_pieces(ids):
        if not 0 <= piece.min() <= piece.max() < keys.vocabulary_size:
            raise DataError("the ids are not of this vocabulary", hint="prepare the text again")
        ends = np.flatnonzero(piece == EOS_ID)
        if len(ends):
            longest = max(longest, length + int(ends[0]) + 1, int(np.diff(ends).max(initial=0)))
            # so that adding the whole piece leaves what comes after its last end
            length = -int(ends[-1]) - 1
        length += len(piece)
        num_sentences += len(ends)
    if length:
        raise DataError("the last sentence has no end", hint="prepare the text again")
    return Text(keys, num_sentences, longest)


def _ends(
    ids: npt.NDArray[Any], keys: Keys, order: int
) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
    """Return the longest n-gram that ends at each token, and the columns of these."""
    import pyarrow as pa

    packer = Packer(keys, order)
    schema = pa.schema([(name, pa.int64()) for name in keys.columns(order)])

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in text_pieces(ids):
            yield pa.RecordBatch.from_arrays([*map(pa.array, packer.pack(piece))], schema=schema)

    return batches(), schema
