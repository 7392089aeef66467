"""Backoff tables that no text gave: suffixes may be missing, and there may be no probability."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from lm.ngram.references import Ngram, Rows

from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, TableLevel

LOG_PROBS = st.floats(-9, 0, width=32) | st.just(-math.inf)


def build(rows: Rows, size: int, order: int) -> BackoffTable:
    """The table of a dictionary of n-grams: log-probability and backoff in nats."""
    lower: list[Ngram] = [()]
    levels = []
    for n in range(1, order + 1):
        ngrams = sorted(ngram for ngram in rows if len(ngram) == n)
        contexts = [ngram[:-1] for ngram in ngrams]
        begins = np.cumsum([0, *(contexts.count(context) for context in lower)])
        values = np.array([rows[ngram] for ngram in ngrams], np.float32).reshape(-1, 2)
        levels.append(
            TableLevel(
                np.array([ngram[-1] for ngram in ngrams], np.int32),
                begins.astype(np.int32),
                values[:, 0].copy(),
                values[:, 1].copy() if n < order else np.zeros(0, np.float32),
            )
        )
        lower = ngrams
    return BackoffTable(tuple(levels), size)


@st.composite
def random_rows(draw: st.DrawFn, size: int, order: int) -> Rows:
    """N-grams over `size` words and `<s>`; the context of each is there, its suffix perhaps not."""
    rows: Rows = {}
    contexts: list[Ngram] = [()]
    for n in range(1, order + 1):
        found: list[Ngram] = []
        for context in contexts:
            words = range(size + 1) if n == 1 else draw(st.sets(st.integers(0, size - 1)))
            found += [(*context, word) for word in sorted(words)]
        for ngram in found:
            rows[ngram] = (draw(LOG_PROBS), draw(LOG_PROBS | st.just(0.0)))
        contexts = [ngram for ngram in found if ngram[-1] != 1 and draw(st.booleans())]
    rows[(size,)] = (BOS_NATS, rows[(size,)][1])
    return rows


def some_table() -> BackoffTable:
    """Order 3 over `<unk>`, `</s>`, a, b (2, 3) and `<s>` (4); "b a" is no row, "a b a" is."""
    return build(
        {
            (0,): (-3.0, 0.0),
            (1,): (-1.0, 0.0),
            (2,): (-1.5, -0.25),
            (3,): (-2.0, -0.5),
            (4,): (BOS_NATS, -0.125),
            (2, 3): (-0.5, -0.75),
            (4, 2): (-0.75, -1.0),
            (2, 3, 2): (-0.0625, 0.0),
            (4, 2, 1): (-0.375, 0.0),
        },
        4,
        3,
    )
