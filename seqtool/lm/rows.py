"""The rows of a table as text, compiled by Numba: digits of numbers, quotes where they are needed.

    numbers    int64    1  3                    reals  float64   4.321928  inf
    texts      bytes    theold..., a cell is texts[ends[k]] to texts[ends[k + 1] - 1]

    row        1 <tab> the <tab> 4.321928 <lf>

Numbers that are not whole have six decimals, as Python rounds them: to the nearest of the exact
value. What is multiplied to find them is rounded, which matters only near the middle between two;
`is_plain` tells columns with such numbers apart, and others that are no plain ones.

Shapes: R rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import copysign, floor
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import types
from seqtool.core.arrays import Doubles, Longs
from seqtool.core.compiled import compiled
from seqtool.core.instructions import copy_bytes

DECIMALS = 1_000_000
LARGEST = 1e9  # of numbers that are not whole: more digits than that are Python's to write
MARGIN = 1e-9  # 1e6 times a number below 1 is rounded by 6e-11 at most

_TEXT, _NUMBER, _REAL = range(3)
_WIDEST = 21  # characters of an int64, and of a plain real number, with what follows
_ROWS = 1 << 13  # written at a time
_LOWEST = np.iinfo(np.int64).min  # whose opposite is no int64
_ZERO, _MINUS, _POINT, _LF, _CR, _QUOTE = (ord(sign) for sign in '0-.\n\r"')


_bytes = types.Array(types.uint8, 1, readonly=True)


@compiled(types.int64(types.uint8[::1], types.int64, types.int64))
def _write_digits(out, at, number):  # type: ignore[no-untyped-def]
    """Write a number, from 0, and return the place after it."""
    num, rest = 1, number // 10
    while rest:
        num += 1
        rest //= 10
    for place in range(at + num - 1, at - 1, -1):
        out[place] = _ZERO + number % 10
        number //= 10
    return at + num


@compiled(types.int64(types.uint8[::1], types.int64, _bytes, types.int64, types.int64, types.int64))
def _write_text(out, at, texts, begin, end, separator):  # type: ignore[no-untyped-def]
    """Write a cell, in quotation marks if it needs them, and return the place after it."""
    is_special = False
    for place in range(begin, end):
        byte = texts[place]
        is_special |= (byte == _QUOTE) | (byte == separator) | (byte == _CR) | (byte == _LF)
    if not is_special:
        size = end - begin
        copy_bytes(out, np.uint64(at), texts, np.uint64(begin), np.uint64(size))
        return at + size
    out[at] = _QUOTE
    at += 1
    for place in range(begin, end):
        if texts[place] == _QUOTE:
            out[at] = _QUOTE
            at += 1
        out[at] = texts[place]
        at += 1
    out[at] = _QUOTE
    return at + 1


@compiled(
    types.int64(
        types.uint8[::1], types.int64[:, ::1], types.int64[:, ::1], types.float64[:, ::1],
        types.boolean[:, ::1], _bytes, types.int64[:, ::1], types.int64, types.int64, types.int64,
    )
)  # fmt: skip
def _write_rows(out, layout, numbers, reals, missing, texts, ends, separator, first, last):  # type: ignore[no-untyped-def]
    """Write some rows, first to last - 1, and return their length.

    Args:
        out: room for them.
        layout: [C, 2] of each column the kind, and which of its kind it is.
        numbers: of each column of whole numbers, [_, R].
        reals: of each column of others, [_, R].
        missing: whether a cell is empty, [C, R].
        texts: of all columns of texts, a byte after each.
        ends: [_, R + 1], of each such column: where the next cell begins.
        separator: between cells.
        first: row.
        last: row.
    """
    at = 0
    for row in range(first, last):
        for column in range(layout.shape[0]):
            kind, which = layout[column, 0], layout[column, 1]
            if missing[column, row]:
                pass
            elif kind == _TEXT:
                begin = ends[which, row]
                at = _write_text(out, at, texts, begin, ends[which, row + 1] - 1, separator)
            elif kind == _NUMBER:
                number = numbers[which, row]
                if number < 0:
                    out[at] = _MINUS
                    at, number = at + 1, -number
                at = _write_digits(out, at, number)
            else:
                real = reals[which, row]
                if copysign(1.0, real) < 0:
                    out[at] = _MINUS
                    at, real = at + 1, -real
                whole = floor(real)
                # exact but for the product, and that is not near the middle
                part = np.int64(floor((real - whole) * DECIMALS + 0.5))
                at = _write_digits(out, at, np.int64(whole) + part // DECIMALS)
                out[at] = _POINT
                for place in range(at + 6, at, -1):
                    out[place] = _ZERO + part % 10
                    part //= 10
                at += 7
            out[at] = separator
            at += 1
        out[at - 1] = _LF
    return at


def is_plain(column: npt.NDArray[Any]) -> bool:
    """Return whether `rows_of` can write the numbers of a column."""
    values = np.ma.compressed(column) if isinstance(column, np.ma.MaskedArray) else column
    if values.dtype.kind in "biu":
        return np.can_cast(values.dtype, np.int64) and not (values == _LOWEST).any()
    if (
        values.dtype.kind != "f" or not (np.abs(values) < LARGEST).all()
    ):  # infinite, no numbers, large
        return False
    scaled = (np.abs(values) % 1.0) * DECIMALS
    return bool((np.abs(scaled % 1.0 - 0.5) > MARGIN).all())


def rows_of(
    columns: Sequence[Sequence[str] | npt.NDArray[Any]], num_rows: int, separator: str
) -> Iterator[str]:
    """Return rows, many at a time.

    Args:
        columns: texts; or plain numbers, masked where there is none.
        num_rows: R.
        separator: one character.
    """
    layout = np.empty((len(columns), 2), np.int64)
    numbers: list[Longs] = []
    reals: list[Doubles] = []
    ends: list[Longs] = []
    texts: list[bytes] = []
    missing = np.zeros((len(columns), num_rows), np.bool_)
    for place, column in enumerate(columns):
        if not isinstance(column, np.ndarray):
            layout[place] = _TEXT, len(ends)
            ends.append(sum(map(len, texts)) + _cells(column, texts))
            continue
        missing[place] = np.ma.getmaskarray(column)
        values = np.where(missing[place], 0, np.ma.getdata(column))
        if values.dtype.kind == "f":
            layout[place] = _REAL, len(reals)
            reals.append(values)
        else:
            layout[place] = _NUMBER, len(numbers)
            numbers.append(values)
    ends_KR = np.array(ends, np.int64).reshape(len(ends), num_rows + 1)
    arrays = (
        layout,
        np.array(numbers, np.int64).reshape(len(numbers), num_rows),
        np.array(reals, np.float64).reshape(len(reals), num_rows),
        missing,
        np.frombuffer(b"".join([*texts, b"\0"]), np.uint8),
        ends_KR,
    )
    for first in range(0, num_rows, _ROWS):
        last = min(first + _ROWS, num_rows)
        length = int((ends_KR[:, last] - ends_KR[:, first]).sum())
        # twice, as each character may be a quotation mark
        out = np.empty(2 * length + (last - first) * len(columns) * _WIDEST, np.uint8)
        size = _write_rows(out, *arrays, ord(separator), first, last)
        yield out[:size].tobytes().decode("utf-8", "surrogatepass")


def _cells(column: Sequence[str], texts: list[bytes]) -> Longs:
    """Append the cells of a column to the texts, and return where each begins, and the end."""
    data = ("\0".join(column) + "\0").encode("utf-8", "surrogatepass")
    texts.append(data)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0) + 1
    if len(ends) != len(column):  # a cell holds such a byte itself
        sizes = [len(cell.encode("utf-8", "surrogatepass")) + 1 for cell in column]
        ends = np.cumsum(sizes)
    return np.concatenate(([0], ends))
