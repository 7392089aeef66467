"""Records of one size, sorted: in memory, or on disk where they are too many.

A record is a row of W unsigned 64-bit integers. The first K of them are its key, by which records
are sorted; where K is less than W, records of one key become one, and the integer after the key is
their sum.

    records -> sorted in memory -> runs in a temporary file -> merged, as many at once as there is
                                                               memory for

n-grams are packed into keys that sort as they do: as many ids as fit into an integer, the first of
them highest.

Shapes: R records.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Ids
from seqtool.core.errors import OutputError, from_os_error
from seqtool.core.instructions import num_zeros
from seqtool.core.jit import compiled

Records = npt.NDArray[np.uint64]

_BITS = 11  # of a digit: its 2,048 runs of records are written to within the second cache
_DIGIT = np.uint64((1 << _BITS) - 1)
_WIDTH = np.uint64(_BITS)
_ZERO, _ALL = np.uint64(0), np.uint64(64)
_PIECE = 1 << 16  # bytes of a run that are read at once, at least
GIVEN = 1 << 16  # records that are given at once
LEAST = 1 << 24  # bytes of a table, however little memory there is
_DONE, _FULL, _EMPTY = range(3)

_records = types.uint64[:, ::1]
_int64 = types.int64[::1]


@compiled(types.int64(_records, _records, types.int64))
def _sort(records, spare, num_keys):  # type: ignore[no-untyped-def]
    """Sort records by their keys: a radix sort from the last digit to the first.

    Returns:
        1 if they are in `spare` then, which has room for as many, else 0.
    """
    num, width = records.shape
    source, target, passes = records, spare, 0
    places = np.empty(1 << _BITS, np.int64)
    for column in range(num_keys - 1, -1, -1):
        differing = _ZERO  # bits; the others do not matter
        for i in range(1, num):
            differing |= source[i, column] ^ source[0, column]
        while differing != _ZERO:
            # from the lowest bit that differs: a digit that all records share takes no pass
            shift = num_zeros(differing)
            places[:] = 0
            for i in range(num):
                places[(source[i, column] >> shift) & _DIGIT] += 1
            place = 0
            for digit in range(1 << _BITS):
                size = places[digit]
                places[digit] = place
                place += size
            for i in range(num):
                digit = (source[i, column] >> shift) & _DIGIT
                place = places[digit]
                places[digit] = place + 1
                for k in range(width):
                    target[place, k] = source[i, k]
            source, target = target, source
            passes += 1
            # bits that are sorted by are cleared; a shift by 64 or more has no defined result
            done = shift + _WIDTH
            differing = (differing >> done) << done if done < _ALL else _ZERO
    return passes % 2


@compiled(types.boolean(_records, types.int64, _records, types.int64, types.int64))
def _is_less(one, row, other, other_row, num_keys):  # type: ignore[no-untyped-def]
    for k in range(num_keys):
        if one[row, k] != other[other_row, k]:
            return one[row, k] < other[other_row, k]
    return False


@compiled(
    types.int64(types.uint64[:, :, ::1], _int64, _int64, _int64, _int64, _records, types.int64)
)
def _merge(pieces, heads, tails, heap, state, merged, num_keys):  # type: ignore[no-untyped-def]
    """Merge sorted runs until a piece of one is read, or there is no more room.

    Args:
        pieces: [runs, R, W], what was read of each run.
        heads: of each run, its next record in its piece.
        tails: of each run, one past the last record of its piece; 0 where the run has ended.
        heap: of runs by their next records, the least first; what has changed is at its top.
        state: how many runs are in the heap, and how many records were merged; updated.
        merged: receives the records.
        num_keys: K.

    Returns:
        `_DONE`, `_FULL`, or `_EMPTY` where the piece of the run at the top of the heap is read.
    """
    size, num = state[0], state[1]
    width = merged.shape[1]
    result = _DONE
    while size > 0:
        top = heap[0]
        # a run that has ended: the last one of the heap takes its place
        if tails[top] == 0:
            size -= 1
            top = heap[size]
        place = 0
        while 2 * place + 1 < size:  # let it sink to its place
            child = 2 * place + 1
            below = heap[child]
            if child + 1 < size:
                other = heap[child + 1]
                if _is_less(pieces[other], heads[other], pieces[below], heads[below], num_keys):
                    child, below = child + 1, other
            if not _is_less(pieces[below], heads[below], pieces[top], heads[top], num_keys):
                break
            heap[place] = below
            place = child
        heap[place] = top
        if size == 0:
            break
        run = heap[0]
        row = heads[run]
        piece = pieces[run]
        is_same = num > 0 and num_keys < width
        if is_same:
            for k in range(num_keys):
                is_same &= piece[row, k] == merged[num - 1, k]
        if is_same:
            merged[num - 1, num_keys] += piece[row, num_keys]
        else:
            if num == merged.shape[0]:
                # nothing of this record is taken yet: the next call begins with it
                result = _FULL
                break
            for k in range(width):
                merged[num, k] = piece[row, k]
            num += 1
        heads[run] = row + 1
        if row + 1 == tails[run]:
            result = _EMPTY
            break
    state[0], state[1] = size, num
    return result


@dataclass(frozen=True)
class Packing:
    """How the ids of an n-gram stand in the integers of a key.

    Attributes:
        order: n, ids of an n-gram.
        bits: of an id, up to 32.
    """

    order: int
    bits: int

    @property
    def num_words(self) -> int:
        """The integers of a key."""
        return -(-self.order // self._ids_per_word)

    @property
    def _ids_per_word(self) -> int:
        return 64 // self.bits

    def pack(self, ids: Ids) -> Records:
        """Return the keys [R, num_words] of n-grams, int32 [R, order]."""
        keys = np.zeros((len(ids), self.num_words), np.uint64)
        for n in range(self.order):
            word = keys[:, n // self._ids_per_word]
            word <<= np.uint64(self.bits)
            word |= ids[:, n].astype(np.uint64)
        return keys

    def unpack(self, keys: Records) -> Ids:
        """Return the n-grams, int32 [R, order], of keys [R, num_words]."""
        ids = np.empty((len(keys), self.order), np.int32)
        mask = np.uint64((1 << self.bits) - 1)
        for n in range(self.order):
            word, place = divmod(n, self._ids_per_word)
            # the last integer may hold fewer ids, which are its lowest bits
            num = min(self._ids_per_word, self.order - word * self._ids_per_word)
            ids[:, n] = (keys[:, word] >> np.uint64(self.bits * (num - 1 - place))) & mask
        return ids


@dataclass(frozen=True)
class Workspace:
    """Memory and disk for what may be too much for the memory.

    Attributes:
        folder: where temporary files are made. They have no name where the system allows that, and
            end with the process however it ends.
        room: gives the bytes of memory that may still be taken.
        least: bytes of a table that are taken in any case.
    """

    folder: Path
    room: Callable[[], int]
    least: int = LEAST

    def allows(self, num_bytes: int) -> bool:
        """Whether a table may take so many bytes more."""
        return num_bytes <= max(self.least, self.room())


class _Run(NamedTuple):
    """A sorted part of a file: its first record, and one past the last."""

    first: int
    last: int


class Runs:
    """Sorted runs of records in a temporary file, to be closed.

    Args:
        width: W.
        num_keys: K.
        space: the folder of the file, and the memory for merging.
    """

    def __init__(self, width: int, num_keys: int, space: Workspace) -> None:
        self._width, self._num_keys, self._space = width, num_keys, space
        self._runs: list[_Run] = []
        self._opened: IO[bytes] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def _file(self) -> IO[bytes]:
        if self._opened is None:
            self._opened = tempfile.TemporaryFile(dir=self._space.folder)  # noqa: SIM115
        return self._opened

    def close(self) -> None:
        """Give the disk back."""
        if self._opened is not None:
            with suppress(OSError):  # what a full disk has not taken is no loss now
                self._opened.close()

    def add(self, pieces: Iterable[Records]) -> None:
        """Write a run, which is given in pieces."""
        first = last = self._runs[-1].last if self._runs else 0
        with naming_folder(self._space.folder):
            self._file.seek(first * self._width * 8)
            for piece in pieces:
                self._file.write(np.ascontiguousarray(piece).data)
                last += len(piece)
        self._runs.append(_Run(first, last))

    def merged(self) -> Iterator[Records]:
        """Give all records in their order; may be called again."""
        # a piece for each run, and one for what is merged
        most = max(2, self._num_bytes() // _PIECE - 1)
        while len(self._runs) > most:
            self._shorten(most)
        yield from self._merge(self._runs)

    def _num_bytes(self) -> int:
        """Return what merging may take: half, as what is merged is sorted again."""
        return max(self._space.least, self._space.room()) // 2

    def _shorten(self, most: int) -> None:
        """Merge so many runs at once to one, into another file."""
        fewer = Runs(self._width, self._num_keys, self._space)
        try:
            for begin in range(0, len(self._runs), most):
                fewer.add(self._merge(self._runs[begin : begin + most]))
            # they change files, so that closing `fewer` gives the old one back
            self._opened, fewer._opened = fewer._opened, self._opened
            self._runs = fewer._runs
        finally:
            fewer.close()

    def _merge(self, runs: Sequence[_Run]) -> Iterator[Records]:
        num_bytes = min(self._num_bytes() // (len(runs) + 1), 1 << 22)
        num_rows = max(1, min(num_bytes // (8 * self._width), max(b - a for a, b in runs)))
        pieces = np.empty((len(runs), num_rows, self._width), np.uint64)
        heads, tails = np.zeros(len(runs), np.int64), np.zeros(len(runs), np.int64)
        reached = [run.first for run in runs]

        def read(number: int) -> None:
            """Read the next piece of a run."""
            num = min(num_rows, runs[number].last - reached[number])
            with naming_folder(self._space.folder):
                self._file.seek(reached[number] * self._width * 8)
                piece = pieces[number, :num].reshape(-1).view(np.uint8)
                if self._file.readinto(piece.data) != len(piece):  # type: ignore[attr-defined]
                    raise OSError(errno.EIO, "the temporary file has been cut")
            heads[number], tails[number] = 0, num
            reached[number] += num

        for number in range(len(runs)):
            read(number)
        heap = sorted(range(len(runs)), key=lambda run: pieces[run, 0, : self._num_keys].tolist())
        places, state = np.array(heap, np.int64), np.array([len(runs), 0], np.int64)
        merged = np.empty((max(2, num_rows), self._width), np.uint64)
        while result := _merge(pieces, heads, tails, places, state, merged, self._num_keys):
            if result == _EMPTY:
                read(int(places[0]))
                continue
            yield merged[:-1].copy()  # to the last one more may be added
            merged[0], state[1] = merged[-1], 1
        yield merged[: state[1]]


@contextmanager
def naming_folder(folder: Path) -> Iterator[None]:
    """Let an error of the disk name the folder of a temporary file.

    Raises:
        OutputError: it cannot be written or read.
    """
    try:
        yield
    except OSError as error:
        user_error = from_os_error(error)
        hint = "free some space, name another folder with --temp, or give more --memory"
        what = f"a temporary file cannot be written: {user_error.message}"
        raise OutputError(what, hint=hint, path=folder) from error


class Sorter:
    """Sorts records, in memory as long as there is room; to be closed.

    Args:
        width: W.
        num_keys: K.
        space: memory and disk.
        limit: how many records to keep, the first ones; all if None.
    """

    def __init__(
        self, width: int, num_keys: int, space: Workspace, limit: int | None = None
    ) -> None:
        self._num_keys, self._space, self._limit = num_keys, space, limit
        self._runs = Runs(width, num_keys, space)
        self._kept = np.empty((min(1 << 12, self._least(width)), width), np.uint64)
        self._num = 0
        self._is_sorted = False

    def _least(self, width: int) -> int:
        return max(2, self._space.least // (32 * width))  # four times is what sorting takes

    def close(self) -> None:
        """Give the disk back."""
        self._runs.close()

    def add(self, records: Records) -> None:
        """Take records, [R, W]."""
        while len(records):
            if self._num == len(self._kept):
                self._make_room()
            part = records[: len(self._kept) - self._num]
            self._kept[self._num : self._num + len(part)] = part
            self._num += len(part)
            records = records[len(part) :]

    def sorted(self) -> Iterator[Records]:
        """Give the records in their order, when all have been taken; may be called again."""
        if not self._is_sorted:
            self._sort()
            if len(self._runs):
                self._runs.add([self._kept[: self._num]])
                self._kept = self._kept[:0].copy()
            self._is_sorted = True
        left = self._limit
        for piece in self._runs.merged() if len(self._runs) else self._pieces():
            part = piece if left is None else piece[:left]
            yield part
            if left is not None:
                left -= len(part)
                if not left:
                    return

    def _pieces(self) -> Iterator[Records]:
        for begin in range(0, self._num, GIVEN):
            yield self._kept[begin : min(begin + GIVEN, self._num)]

    def _make_room(self) -> None:
        """Make room for more: the table grows, or loses what is beyond the limit, or is written."""
        size, width = self._kept.shape
        # a table twice as long, and then as much again to sort it
        if size < self._least(width) or self._space.allows(3 * self._kept.nbytes):
            self._kept = np.concatenate((self._kept, np.empty_like(self._kept)))
            return
        self._sort()
        # sorting may have cut it to the limit, and so made room enough
        if 2 * self._num > size:
            self._runs.add([self._kept[: self._num]])
            self._num = 0

    def _sort(self) -> None:
        kept = self._kept[: self._num]
        spare = np.empty_like(kept)
        if _sort(kept, spare, self._num_keys):
            kept[:] = spare
        if self._limit is not None:
            self._num = min(self._num, self._limit)


def sort_records(records: Records, spare: Records, num_keys: int) -> Records:
    """Return records sorted by their keys, in their memory or in that of `spare`, as much."""
    return spare if _sort(records, spare, num_keys) else records
