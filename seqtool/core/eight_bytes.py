"""Eight bytes of a text in one number, the first of them lowest: what compiled code asks of them.

A mark is the highest bit of a byte.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled

ONES = np.uint64(0x0101010101010101)  # times a byte: eight of it
HIGHEST = np.uint64(0x8080808080808080)
_ONE, _SEVEN, _LAST = np.uint64(1), np.uint64(7), np.uint64(56)
_SPACE, _TAB, _LF, _CR = (np.uint64(ord(blank)) for blank in " \t\n\r")


@compiled(types.uint64(types.uint64, types.uint64), forceinline=True)
def equal_to(chunk, byte):  # type: ignore[no-untyped-def]
    """Mark the first byte that is equal to one, and perhaps some after it; 0 if there is none."""
    different = chunk ^ (ONES * byte)
    return (different - ONES) & ~different & HIGHEST


@compiled(types.uint64(types.uint64), forceinline=True)
def blanks(chunk):  # type: ignore[no-untyped-def]
    """Mark the first byte that is a blank, and perhaps some after it; 0 if there is none."""
    return (
        equal_to(chunk, _SPACE)
        | equal_to(chunk, _LF)
        | equal_to(chunk, _TAB)
        | equal_to(chunk, _CR)
    )


@compiled(types.uint64(types.uint64, types.uint64), forceinline=True)
def num_continuing(chunk, marks):  # type: ignore[no-untyped-def]
    """Return how many bytes before the first mark go on with a character of UTF-8: 10xxxxxx.

    The byte with the mark is itself none of them. No mark stands for the end of the eight bytes.
    """
    before = marks ^ (marks - _ONE)  # the bits up to the lowest one that is set
    found = chunk & ~(chunk << _ONE) & HIGHEST & before
    return ((found >> _SEVEN) * ONES) >> _LAST
