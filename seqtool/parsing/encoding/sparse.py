"""Sparse features: the hash by which they find their weights, and the sums of these.

A feature is its template's number and some values; its hash is a place in an array of 2^bits
weights. Features that share a place share its weight (Weinberger et al. 2009): what is rare is
then learnt less well, and nothing has to be looked up. Where a feature has a weight for each of
several outcomes (transitions, tags), these are a row that begins at its place.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.instructions import fetch, real
from seqtool.core.jit import compiled

SEEN = "sparse.seen"  # the array of a model that is bytes: bits of the places that were learnt
TOGETHER = 4  # rows that are added at once

_int = types.int64
_table = types.int32[:, ::1]
_weights = (types.float32[::1], types.uint16[::1])  # as they are learnt, and as they are read

# an odd number, whose product takes the low bits of a value to all bits above (Knuth: 2^64 / the
# golden ratio), as Numba has it: a whole number with a sign
FACTOR = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
TOP = np.int64(36)  # bits from here on are the best mixed ones


@compiled(types.int64(types.int64, types.int64))
def mix(state, value):  # type: ignore[no-untyped-def]
    """Return the state of a hash after one more value; products wrap around."""
    state = (state ^ value) * FACTOR
    # the high bits are mixed best; they come down to where the next product spreads them
    return state ^ (state >> 32)


@compiled(types.int64(types.int64, types.int64))
def place_of(state, num_bits):  # type: ignore[no-untyped-def]
    """Return the place of a feature among 2^num_bits weights, of no more than 26 bits."""
    # 26 bits from bit 36 on stay below the sign, which the shift would repeat
    return (state * FACTOR) >> TOP & ((1 << num_bits) - 1)


@compiled(types.void(types.int64[::1], types.int32[::1], types.int32[::1], _int, types.int32[::1]))
def hash_templates(values, parts, ends, num_bits, row):  # type: ignore[no-untyped-def]
    """Note the places of the features of all templates, [templates].

    Args:
        values: int64, what is looked at, each once.
        parts: of one template after another, the numbers of its values.
        ends: [templates], where the parts of each end.
        num_bits: of a hash.
        row: is written.
    """
    begin = 0
    for template in range(ends.shape[0]):
        # not from template 0 on: a hash of zeros would stay 0
        state = mix(0, template + 1)
        for part in range(begin, ends[template]):
            state = mix(state, values[parts[part]])
        begin = ends[template]
        row[template] = place_of(state, num_bits)


@compiled([types.void(_table, _int, kind, types.float32[::1]) for kind in _weights])
def sum_rows(rows, place, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores of all outcomes in one place, by the rows of its features.

    Weights are float32, or halves as their bits: fewer lines of memory, and the sums are the same.
    """
    num_rows, num = rows.shape[1], scores.shape[0]
    scores[:] = 0.0
    at = 0
    while at + TOGETHER <= num_rows:
        # rows are far from each other, and memory takes longer than adding: the next are asked for
        for ahead in range(at + TOGETHER, min(at + 2 * TOGETHER, num_rows)):
            for line in range(0, num, 16):  # 16 floats are a line of the cache
                fetch(weights, rows[place, ahead] + line)
        a, b = rows[place, at], rows[place, at + 1]
        c, d = rows[place, at + 2], rows[place, at + 3]
        for outcome in range(num):
            scores[outcome] += (real(weights, a + outcome) + real(weights, b + outcome)) + (
                real(weights, c + outcome) + real(weights, d + outcome)
            )
        at += TOGETHER
    while at < num_rows:
        a = rows[place, at]
        for outcome in range(num):
            scores[outcome] += real(weights, a + outcome)
        at += 1


@compiled([types.void(_table, kind, types.float32[:, ::1]) for kind in _weights])
def score_rows(rows, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores of the outcomes in all places, [N, T]; see `sum_rows`."""
    for place in range(rows.shape[0]):
        sum_rows(rows, place, weights, scores[place])
