"""n-grams to lines of ARPA files, compiled by Numba.

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from seqtool.core.compiled import compiled
from seqtool.lm.ngram.table import BOS_NATS

STEP = 16  # words are copied in steps of so many bytes, and then cut to their length

_DECIMALS = 10_000_000  # seven decimals: an error of at most 5e-8 in log10
_SCALE = _DECIMALS / math.log(10)
_LEAST = -1e11  # nats; below it a probability is written as none
_BOS = np.float32(BOS_NATS)
_NUMBER_SIZE = 24  # bytes of the longest number that is written
_SPACE, _TAB, _LF, _MINUS, _POINT, _ZERO, _NINE = 32, 9, 10, 45, 46, 48, 57

_int32_in = types.Array(types.int32, 1, "C", readonly=True)
_float32_in = types.Array(types.float32, 1, "C", readonly=True)


@compiled(types.void(types.int64, _int32_in, types.int32[::1]))
def climb(first, begins, rows):  # type: ignore[no-untyped-def]
    """Turn ascending rows of one order into the rows of their contexts.

    Args:
        first: the context of the first row.
        begins: of the order of `rows`.
        rows: changed in place.
    """
    context = first
    for i in range(rows.shape[0]):
        while begins[context + 1] <= rows[i]:
            context += 1
        rows[i] = context


@compiled(types.int64(types.uint8[::1], types.int64, types.float32))
def _put_number(out, position, nats):  # type: ignore[no-untyped-def]
    """Write a log-probability in log10 and return where it ends."""
    if not nats > _LEAST or nats == _BOS:
        out[position], out[position + 1], out[position + 2] = _MINUS, _NINE, _NINE
        return position + 3
    scaled = np.int64(np.rint(np.abs(np.float64(nats)) * _SCALE))
    if scaled == 0:
        out[position] = _ZERO
        return position + 1
    if nats < 0:
        out[position] = _MINUS
        position += 1
    whole = scaled // _DECIMALS
    fraction = scaled - whole * _DECIMALS
    if whole < 10:
        out[position] = _ZERO + whole
        position += 1
    else:
        size = 1
        limit = 10
        while limit <= whole:
            size += 1
            limit *= 10
        for i in range(size):
            out[position + size - 1 - i] = _ZERO + whole % 10
            whole //= 10
        position += size
    out[position] = _POINT
    # two chains of divisions, which the processor can run side by side
    high = fraction // 1000
    low = fraction - high * 1000
    out[position + 1] = _ZERO + high // 1000
    out[position + 2] = _ZERO + high // 100 % 10
    out[position + 3] = _ZERO + high // 10 % 10
    out[position + 4] = _ZERO + high % 10
    out[position + 5] = _ZERO + low // 100
    out[position + 6] = _ZERO + low // 10 % 10
    out[position + 7] = _ZERO + low % 10
    return position + 8


@compiled(
    types.int64(
        types.Array(types.int32, 2, "C", readonly=True),
        types.int64,
        _float32_in,
        _float32_in,
        _int32_in,
        types.int64[::1],
        types.uint8[::1],
        types.uint8[::1],
        types.int64[::1],
    )
)
def put_rows(columns, row, log_probs, backoffs, begins, starts, text, out, state):  # type: ignore[no-untyped-def]
    """Write n-grams as lines until all are written or `out` has no room for the next.

    Args:
        columns: [order, R], the words of each n-gram.
        row: where to begin.
        log_probs: [R] nats; above 0 by rounding is written as 0; -inf and that of `<s>` as -99.
        backoffs: [R] nats, or empty for the highest order.
        begins: [R + 1], of the order above: one without continuations or backoff needs no backoff.
        starts: word i is text[starts[i]:starts[i + 1]].
        text: the words; `STEP` bytes more at its end.
        out: the lines.
        state: the number of bytes written is left in state[0]; in state[1] what the next needs.

    Returns:
        The row to go on from.
    """
    order = columns.shape[0]
    position = 0
    state[1] = 0
    while row < columns.shape[1]:
        needed = 2 * _NUMBER_SIZE + STEP + order
        for k in range(order):
            needed += starts[columns[k, row] + 1] - starts[columns[k, row]]
        if position + needed > out.shape[0]:
            state[1] = needed
            break
        position = _put_number(out, position, min(log_probs[row], np.float32(0.0)))
        out[position] = _TAB
        for k in range(order):
            position += 1
            start = starts[columns[k, row]]
            size = starts[columns[k, row] + 1] - start
            done = 0
            while True:
                for j in range(STEP):
                    out[position + done + j] = text[start + done + j]
                done += STEP
                if done >= size:
                    break
            position += size
            out[position] = _SPACE
        if backoffs.shape[0] and (backoffs[row] != 0 or begins[row + 1] > begins[row]):
            out[position] = _TAB
            position = _put_number(out, position + 1, backoffs[row])
        out[position] = _LF
        position += 1
        row += 1
    state[0] = position
    return row
