"""The rows of a table as text, compiled by Numba: digits of numbers, quotes where they are needed.

    numbers    int64    1  3                    reals  float64   4.321928  inf
    texts      bytes    the old..., a cell is texts[begins[k]] to texts[ends[k] - 1]

    row        1 <tab> the <tab> 4.321928 <lf>

Numbers that are not whole have six decimals, as Python rounds them: to the nearest of the exact
value. What is multiplied to find them is rounded, which matters only near the middle between two;
`is_plain` tells columns with such numbers apart, and others that are no plain ones.

Nearly all cells are short: eight bytes are written at once, with the separator among them, and what
follows is written over those that are too many.

Shapes: R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import starmap
from math import copysign, floor
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Bools, Bytes, Longs
from seqtool.core.eight_bytes import equal_to
from seqtool.core.instructions import load, store
from seqtool.core.jit import compiled

DECIMALS = 1_000_000
LARGEST = 1e9  # of numbers that are not whole: more digits than that are Python's to write
MARGIN = 1e-9  # 1e6 times a number below 1 is rounded by 6e-11 at most

_TEXT, _NUMBER, _REAL = range(3)
_WIDEST = 21  # characters of an int64, and of a plain real number, with what follows
_SPARE = 8  # bytes behind an array that may be read or written, and are of no account
_ROWS = 1 << 13  # written at a time
_ZERO, _MINUS, _POINT, _LF, _CR, _QUOTE = (ord(sign) for sign in '0-.\n\r"')
_SHORT = 10_000  # numbers below it have their digits in a list
_SEPARATOR_AT = np.uint64(48)  # bits: after six digits
_SIZE_AT = np.uint64(56)  # where a short number has how many bytes it is written in
_ONE = np.uint64(1)
_BITS = np.uint64(8)  # of a byte
_TEN = np.uint64(10)

_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_shorts = types.Array(types.uint64, 1, "C", readonly=True)


class Cells(Sequence[str]):
    """Texts that stand in one array of bytes, as Python's own strings would take long to make.

    Args:
        data: UTF-8.
        begins: of each text in it, [R].
        ends: [R].
    """

    def __init__(self, data: Bytes, begins: Longs, ends: Longs) -> None:
        self.data, self.begins, self.ends = data, begins, ends

    @classmethod
    def of(cls, texts: Sequence[str]) -> Cells:
        """Return the cells of strings; what is no character of UTF-8 is written as an escape."""
        data = ("\0".join(texts) + "\0").encode("utf-8", "backslashreplace")
        array = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(array == 0)
        if len(ends) != len(texts):  # a text holds such a byte itself, or there is none
            sizes = [len(text.encode("utf-8", "backslashreplace")) + 1 for text in texts]
            ends = np.cumsum(sizes, dtype=np.int64) - 1
        return cls(array, np.concatenate(([0], ends[:-1] + 1))[: len(ends)], ends)

    def __len__(self) -> int:
        return len(self.begins)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Cells: ...
    def __getitem__(self, place: int | slice) -> str | Cells:
        if isinstance(place, slice):
            return self.take(place)
        return self._text(self.begins[place], self.ends[place])

    def __iter__(self) -> Iterator[str]:
        return starmap(self._text, zip(self.begins.tolist(), self.ends.tolist(), strict=True))

    def _text(self, begin: int, end: int) -> str:
        return self.data[begin:end].tobytes().decode()

    def take(self, rows: Longs | Bools | slice) -> Cells:
        """Return the texts of some rows."""
        return Cells(self.data, self.begins[rows], self.ends[rows])


class Numbers(Sequence[float | None]):
    """Numbers of which some are missing, as `numpy.ma` takes 8 ms to import.

    Args:
        values: [R]; where one is missing, any number.
        missing: [R].
    """

    def __init__(self, values: npt.NDArray[Any], missing: Bools) -> None:
        self.values, self.missing = values, missing

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> float | None: ...
    @overload
    def __getitem__(self, place: slice) -> Numbers: ...
    def __getitem__(self, place: int | slice) -> float | Numbers | None:
        if isinstance(place, slice):
            return Numbers(self.values[place], self.missing[place])
        number: float = self.values[place].item()
        return None if self.missing[place] else number

    def __iter__(self) -> Iterator[float | None]:
        pairs = zip(self.values.tolist(), self.missing.tolist(), strict=True)
        return (None if is_missing else number for number, is_missing in pairs)


Plain = Sequence[str] | npt.NDArray[Any] | Numbers  # what `rows_of` takes


@compiled(types.int64(types.uint8[::1], types.int64, types.uint64), forceinline=True)
def _write_long(out, at, number):  # type: ignore[no-untyped-def]
    """Write a number, from 0, and return the place after it."""
    num, rest = 1, number // _TEN
    while rest:
        num += 1
        rest //= _TEN
    for place in range(at + num - 1, at - 1, -1):
        out[place] = _ZERO + np.int64(number % _TEN)
        number //= _TEN
    return at + num


@compiled(
    types.int64(types.uint8[::1], types.int64, types.int64, _shorts, types.uint64),
    forceinline=True,
)
def _write_number(out, at, number, shorts, separator):  # type: ignore[no-untyped-def]
    """Write a number and a separator, and return the place after them."""
    if np.uint64(number) < np.uint64(_SHORT):  # not below 0 either
        shown = shorts[np.uint64(number)]
        store(out, np.uint64(at), shown)
        return at + np.int64(shown >> _SIZE_AT)
    size = np.uint64(number)
    if number < 0:
        out[at] = _MINUS
        at, size = at + 1, np.uint64(0) - size
    at = _write_long(out, at, size)
    out[at] = separator
    return at + 1


@compiled(
    types.int64(types.uint8[::1], types.int64, types.float64, _shorts, _shorts, types.uint64),
    forceinline=True,
)
def _write_real(out, at, real, shorts, digits, separator):  # type: ignore[no-untyped-def]
    """Write a number with six decimals and a separator, and return the place after them."""
    if copysign(1.0, real) < 0:
        out[at] = _MINUS
        at, real = at + 1, -real
    whole = np.int64(floor(real))
    # exact but for the product, and that is not near the middle
    part = np.int64(floor((real - whole) * DECIMALS + 0.5))
    if part == DECIMALS:
        whole, part = whole + 1, np.int64(0)
    at = _write_number(out, at, whole, shorts, separator)
    out[at - 1] = _POINT
    # four digits, and the last two of the other four
    first = digits[np.uint64(part // 100)]
    last = digits[np.uint64(part % 100)] >> np.uint64(16) << np.uint64(32)
    store(out, np.uint64(at), first | last | (separator << _SEPARATOR_AT))
    return at + 7


@compiled(types.uint64(types.uint64, types.uint64), forceinline=True)
def _special(chunk, separator):  # type: ignore[no-untyped-def]
    """Return another number than 0 if one of eight bytes makes a cell need quotation marks."""
    of_line = equal_to(chunk, np.uint64(_CR)) | equal_to(chunk, np.uint64(_LF))
    return of_line | equal_to(chunk, np.uint64(_QUOTE)) | equal_to(chunk, separator)


@compiled(
    types.int64(types.uint8[::1], types.int64, _bytes, types.int64, types.int64, types.uint64)
)
def _write_quoted(out, at, texts, begin, end, separator):  # type: ignore[no-untyped-def]
    """Write a cell in quotation marks and a separator, and return the place after them."""
    out[at] = _QUOTE
    at += 1
    for place in range(begin, end):
        if texts[place] == _QUOTE:
            out[at] = _QUOTE
            at += 1
        out[at] = texts[place]
        at += 1
    out[at], out[at + 1] = _QUOTE, separator
    return at + 2


@compiled(
    types.int64(types.uint8[::1], types.int64, _bytes, types.int64, types.int64, types.uint64),
    forceinline=True,
)
def _write_text(out, at, texts, begin, end, separator):  # type: ignore[no-untyped-def]
    """Write a cell, in quotation marks if it needs them, and a separator; return the place after.

    `_SPARE` bytes behind the end of the texts are read.
    """
    place, written = begin, at
    while place + 8 <= end:
        chunk = load(texts, np.uint64(place))
        if _special(chunk, separator):
            return _write_quoted(out, at, texts, begin, end, separator)
        store(out, np.uint64(written), chunk)
        place, written = place + 8, written + 8
    used = np.uint64(end - place) * _BITS
    chunk = load(texts, np.uint64(place)) & ((_ONE << used) - _ONE)  # none of the signs is 0
    if _special(chunk, separator):
        return _write_quoted(out, at, texts, begin, end, separator)
    store(out, np.uint64(written), chunk | (separator << used))
    return written + end - place + 1


@compiled(
    types.int64(
        types.uint8[::1],
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.float64[:, ::1],
        types.boolean[:, ::1],
        _bytes,
        types.int64[:, ::1],
        types.int64[:, ::1],
        _shorts,
        _shorts,
        types.uint64,
        types.int64,
    )
)
def _write_rows(  # type: ignore[no-untyped-def]
    out, layout, numbers, reals, missing, texts, begins, ends, shorts, digits, separator, num_rows
):
    """Write rows, and return how many bytes they are.

    Args:
        out: uint8, large enough, with `_SPARE` bytes more.
        layout: [C, 2], of each column what it is, and which of its kind.
        numbers: int64 [-, R or more].
        reals: float64 [-, R or more].
        missing: bool [C, R or more], cells without a value.
        texts: of all cells, and `_SPARE` bytes more.
        begins: [-, R or more], where the cells begin.
        ends: [-, R or more].
        shorts: the numbers below `_SHORT` with the separator, as `_short_numbers` makes them.
        digits: four of each of these numbers, the first one lowest.
        separator: a byte.
        num_rows: R.
    """
    at = np.int64(0)
    for r in range(num_rows):
        row = np.uint64(r)
        for c in range(layout.shape[0]):
            column = np.uint64(c)
            kind, which = layout[column, np.uint64(0)], np.uint64(layout[column, np.uint64(1)])
            if missing[column, row]:
                out[np.uint64(at)] = separator
                at += 1
            elif kind == _NUMBER:
                at = _write_number(out, at, numbers[which, row], shorts, separator)
            elif kind == _TEXT:
                begin, end = begins[which, row], ends[which, row]
                at = _write_text(out, at, texts, begin, end, separator)
            else:
                at = _write_real(out, at, reals[which, row], shorts, digits, separator)
        out[at - 1] = _LF
    return at


@compiled(types.boolean(types.Array(types.float64, 1, "C", readonly=True)))
def _are_plain(values):  # type: ignore[no-untyped-def]
    """Return whether no number is large, infinite, none, or near the middle between two."""
    num = np.int64(0)
    for k in range(values.shape[0]):  # all of them: many are looked at at once
        size = abs(values[np.uint64(k)])
        is_small = size < LARGEST
        part = size if is_small else 0.0
        scaled = (part - np.int64(part)) * DECIMALS
        is_far = abs(scaled - np.int64(scaled) - 0.5) > MARGIN
        num += np.int64(1) if is_small & is_far else np.int64(0)
    return num == values.shape[0]


def is_plain(column: npt.NDArray[Any] | Numbers) -> bool:
    """Return whether `rows_of` can write the numbers of a column."""
    values = column.values[~column.missing] if isinstance(column, Numbers) else column
    if values.dtype.kind in "biu":
        return np.can_cast(values.dtype, np.int64)
    return values.dtype.kind == "f" and _are_plain(np.ascontiguousarray(values, np.float64))


def rows_of(columns: Sequence[Plain], num_rows: int, separator: str) -> Iterator[memoryview]:
    """Return rows as UTF-8, many at a time; what is given is overwritten by what follows.

    Args:
        columns: texts, or plain numbers.
        num_rows: R.
        separator: one character.
    """
    kinds = [_kind_of(column) for column in columns]
    layout = np.array([(kind, kinds[:at].count(kind)) for at, kind in enumerate(kinds)], np.int64)
    cells, texts = _in_one_array(
        column if isinstance(column, Cells) else Cells.of(column)
        for column in columns
        if not isinstance(column, np.ndarray | Numbers)
    )
    shorts = _short_numbers(separator)
    room = min(_ROWS, num_rows)
    numbers = np.zeros((kinds.count(_NUMBER), room), np.int64)
    reals = np.zeros((kinds.count(_REAL), room))
    begins, ends = np.empty((2, len(cells), room), np.int64)
    missing = np.zeros((len(columns), room), np.bool_)
    arrays = {_NUMBER: numbers, _REAL: reals}
    out = np.empty(0, np.uint8)
    for first in range(0, num_rows, _ROWS):
        part = slice(first, first + _ROWS)
        num = min(_ROWS, num_rows - first)
        for place, ((kind, which), column) in enumerate(zip(layout, columns, strict=True)):
            if isinstance(column, np.ndarray):
                arrays[kind][which, :num] = column[part]
            elif isinstance(column, Numbers):
                missing[place, :num] = column.missing[part]
                arrays[kind][which, :num] = np.where(column.missing[part], 0, column.values[part])
        for which, column in enumerate(cells):
            begins[which, :num], ends[which, :num] = column.begins[part], column.ends[part]
        length = int((ends[:, :num] - begins[:, :num]).sum())
        # twice, as each character may be a quotation mark
        size = 2 * length + num * len(columns) * _WIDEST + _SPARE
        if len(out) < size:
            out = np.empty(size, np.uint8)
        size = _write_rows(
            out,
            layout,
            numbers,
            reals,
            missing,
            texts,
            begins,
            ends,
            *shorts,
            ord(separator),
            num,
        )
        yield out[:size].data


def _kind_of(column: Plain) -> int:
    if not isinstance(column, np.ndarray | Numbers):
        return _TEXT
    values = column.values if isinstance(column, Numbers) else column
    return _REAL if values.dtype.kind == "f" else _NUMBER


def _in_one_array(columns: Iterable[Cells]) -> tuple[list[Cells], Bytes]:
    """Return cells in one array, and the array, with `_SPARE` bytes behind them."""
    arrays: dict[int, tuple[int, Bytes]] = {}  # what several columns share stands there once
    size = 0
    found = []
    for column in columns:
        if id(column.data) not in arrays:
            arrays[id(column.data)] = size, column.data
            size += len(column.data)
        start, _ = arrays[id(column.data)]
        found.append((column, start))
    spare = np.zeros(_SPARE, np.uint8)
    data = np.concatenate([*(array for _, array in arrays.values()), spare])
    return [Cells(data, cells.begins + start, cells.ends + start) for cells, start in found], data


@cache
def _short_numbers(separator: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the numbers below `_SHORT` as text in eight bytes, the first one lowest.

    Returns:
        Each with a separator behind it, and in the last byte how many bytes these are; and its four
        digits, among them the zeros before it.
    """
    numbers = np.arange(_SHORT, dtype=np.uint64)
    digits = np.zeros(_SHORT, np.uint64)
    for place, power in enumerate((1000, 100, 10, 1)):
        digit = numbers // np.uint64(power) % np.uint64(10) + np.uint64(_ZERO)
        digits |= digit << np.uint64(8 * place)
    nums = 1 + sum((numbers >= power).astype(np.uint64) for power in (10, 100, 1000))
    shown = digits >> (np.uint64(32) - nums * _BITS) | np.uint64(ord(separator)) << (nums * _BITS)
    return shown | (nums + _ONE) << _SIZE_AT, digits
