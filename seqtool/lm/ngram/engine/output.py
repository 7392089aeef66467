"""The table of a model, written as an engine gives its n-grams: never all of it in memory.

The rows of an order come in trie order, and so do their contexts, which are rows of the order
below. Going through both at once tells where the rows of each context begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numba import types

from seqtool.core.arrays import Longs
from seqtool.core.errors import DataError
from seqtool.core.jit import compiled
from seqtool.core.reading import Progress
from seqtool.lm.array_file import ArrayWriter, map_arrays
from seqtool.lm.ngram.counts import MOST
from seqtool.lm.ngram.engine.plan import Engine, Estimated
from seqtool.lm.ngram.smoothing import take_logarithms
from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, table_shapes

_PIECE = 1 << 17  # words that are given at once

_columns = types.int64[:, ::1]


@compiled(
    types.void(
        _columns,
        _columns,
        types.float32[::1],
        types.int64[::1],
        types.int64,
        types.int32[::1],
        types.float32[::1],
    )
)
def _match(contexts, of_rows, weights_of_rows, state, first, ends, weights):  # type: ignore[no-untyped-def]
    """Find the rows of each context, until the contexts or the rows at hand are used up.

    Args:
        contexts: [K, C], in order.
        of_rows: [K, R], the context of each row, in the same order.
        weights_of_rows: [R], its backoff weight.
        state: the next context, and the next row; updated.
        first: the number of the first row.
        ends: [C], one past the number of the last row of each context; written.
        weights: [C], written where a context has a row.
    """
    context, row = state[0], state[1]
    while context < contexts.shape[1]:
        while row < of_rows.shape[1]:
            is_same = True
            for k in range(contexts.shape[0]):
                is_same &= of_rows[k, row] == contexts[k, context]
            if not is_same:
                break
            weights[context] = weights_of_rows[row]
            row += 1
        if row == of_rows.shape[1]:
            break  # the next rows may be this context's, too
        ends[context] = first + row
        context += 1
    state[0], state[1] = context, row


def write_table(
    path: Path, engine: Engine, estimated: Estimated, on_progress: Progress | None = None
) -> BackoffTable:
    """Write the table of a model to a file, and return it, mapped from there.

    Args:
        path: the file.
        engine: with the tables of the model.
        estimated: the model.
        on_progress: called with (n-grams written, their number).

    Raises:
        DataError: an order has more n-grams than a model can hold.
        OSError: it cannot be written.
    """
    for n, size in enumerate(estimated.sizes, start=1):
        if size > MOST:
            raise DataError(
                f"{size:,} n-grams of order {n} are more than a model can hold, {MOST:,}",
                hint="leave rare ones out with --prune, or choose a lower --order",
            )
    with ArrayWriter(path, table_shapes(estimated.sizes)) as writer:
        log_probs = estimated.words.probabilities.copy()
        log_probs[-1] = 1  # <s>: to be replaced
        take_logarithms(log_probs)
        log_probs[-1] = BOS_NATS
        words = estimated.kept_words()
        writer.append("1.log_probs", log_probs[words])
        done = len(words)
        for n in range(2, len(estimated.sizes) + 1):
            for num in _write_order(writer, engine, estimated, n):
                done += num
                if on_progress is not None:
                    on_progress(done, sum(estimated.sizes))
    return BackoffTable.from_arrays(map_arrays(path), len(words) - 1, is_checked=True)


def _write_order(
    writer: ArrayWriter, engine: Engine, estimated: Estimated, n: int
) -> Iterator[int]:
    """Write the rows of an order from 2 on, and the weights of their contexts; give how many."""
    rows = _Rows(writer, engine, estimated, n)
    writer.append(f"{n}.begins", np.zeros(1, np.int32))
    state = np.zeros(2, np.int64)
    for contexts in _contexts(engine, estimated, n - 1):
        ends = np.empty(contexts.shape[1], np.int32)
        weights = np.ones(contexts.shape[1], np.float32)  # whose logarithm is 0
        # the rows at hand stay: they may be of these contexts
        state[0] = 0
        while True:
            _match(contexts, rows.contexts, rows.weights, state, rows.first, ends, weights)
            if state[0] == len(ends):
                break
            num = rows.take_more()
            state[1] = 0
            if not num:  # nothing follows the contexts that are left
                ends[state[0] :] = rows.first
                break
            yield num
        take_logarithms(weights)
        writer.append(f"{n - 1}.backoffs", weights)
        writer.append(f"{n}.begins", ends)
    assert state[1] == len(rows.weights), "rows without their context"
    assert not rows.take_more(), "rows without their context"


class _Rows:
    """The rows of an order, some at a time; what is taken is written.

    Attributes:
        contexts: [K, R], the context of each row at hand.
        weights: [R], the backoff weights of these, as ratios.
        first: the number of the first row at hand.
    """

    def __init__(self, writer: ArrayWriter, engine: Engine, estimated: Estimated, n: int) -> None:
        self._writer, self._keys, self._order = writer, estimated.keys, n
        self._numbers = estimated.numbers()
        self._batches = engine.read_smoothed(f"p{n}", estimated.keys, n)
        columns = len(estimated.keys.columns(n - 1))
        self.contexts, self.weights = np.empty((columns, 0), np.int64), np.empty(0, np.float32)
        self.first = 0

    def take_more(self) -> int:
        """Take the next rows, and return their number: 0 at the end."""
        self.first += len(self.weights)
        batch = next(self._batches, None)
        if batch is None:
            self.contexts, self.weights = self.contexts[:, :0].copy(), self.weights[:0].copy()
            return 0
        columns = [batch.column(name).to_numpy() for name in self._keys.columns(self._order)]
        self.contexts = np.stack(self._keys.contexts(columns, self._order))
        self.weights = np.array(batch.column("g").to_numpy(), np.float32)
        log_probs = np.array(batch.column("p").to_numpy(), np.float32)
        take_logarithms(log_probs)
        words = self._keys.words(columns, self._order)[-1]
        self._writer.append(f"{self._order}.words", self._numbers[words])
        self._writer.append(f"{self._order}.log_probs", log_probs)
        return len(self.weights)


def _contexts(engine: Engine, estimated: Estimated, n: int) -> Iterator[Longs]:
    """Give the n-grams of an order as contexts, [K, C]."""
    if n == 1:
        words = estimated.kept_words().astype(np.int64)
        for begin in range(0, len(words), _PIECE):
            yield words[None, begin : begin + _PIECE].copy()
        return
    names = estimated.keys.columns(n)
    for batch in engine.read_smoothed(f"p{n}", estimated.keys, n):
        yield np.stack([batch.column(name).to_numpy() for name in names])
