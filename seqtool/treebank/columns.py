"""Texts of columns FORM to FEATS and their numbers, looked up by compiled code.

A hash table, laid out in flat arrays:

    slots    uint64 [capacity]  0 = empty, else  high half of the text's hash | number + 1
    hashes   uint64 [room]      the whole hash of each text, to rebuild `slots` when it grows
    starts   int64  [room + 1]  text i is  arena[starts[i]:starts[i+1]]
    arena    uint8  [...]       the bytes of all texts, and seven more

Two texts of the same hash cannot be taken for one another: the bytes are always compared.

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Bytes, Ints, Longs
from seqtool.core.compiled import compiled, copy_bytes, load
from seqtool.treebank.scanner import FORM_AT, HEAD_AT

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)  # from Pelle Evensen's rrxmrrxmsx mixers
_HIGH = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0x00000000FFFFFFFF)
_ONE, _HALF, _EMPTY = np.uint64(1), np.uint64(32), np.uint64(0)
_SLACK = 7  # bytes behind a text that are loaded with its last ones

_int = types.int64
_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)
_numbers = types.uint64[::1]


@compiled(types.uint64(types.uint64, types.uint64))
def _mix(hash_, chunk):  # type: ignore[no-untyped-def]
    hash_ = (hash_ ^ chunk) * _MULTIPLIER
    return hash_ ^ (hash_ >> _HALF)


@compiled(types.uint64(_int))
def _mask_of(count):  # type: ignore[no-untyped-def]
    """All bits of the first `count` bytes of eight, fewer than eight."""
    return (_ONE << np.uint64(8 * count)) - _ONE


@compiled(types.uint64(_bytes_in, _int, _int))
def _hash(data, begin, end):  # type: ignore[no-untyped-def]
    hash_, at = _mix(_SEED, np.uint64(end - begin)), begin
    while at + 8 <= end:
        hash_ = _mix(hash_, load(data, np.uint64(at)))
        at += 8
    return _mix(hash_, load(data, np.uint64(at)) & _mask_of(end - at))


@compiled(types.boolean(_bytes_in, _int, _int, types.uint8[::1], _int))
def _is_same(data, begin, end, arena, at):  # type: ignore[no-untyped-def]
    while begin + 8 <= end:
        if load(data, np.uint64(begin)) != load(arena, np.uint64(at)):
            return False
        begin += 8
        at += 8
    different = load(data, np.uint64(begin)) ^ load(arena, np.uint64(at))
    return different & _mask_of(end - begin) == _EMPTY


@compiled(
    _int(
        *(_bytes_in, types.int64[:, ::1], _numbers, _numbers),
        *(types.int64[::1], types.uint8[::1], _int, types.int32[::1]),
    )
)
def _look_up(  # type: ignore[no-untyped-def]
    data, words, slots, hashes, starts, arena, num_texts, numbers
):
    """Fill in the numbers of words; new texts get the next ones. There is room for them all.

    Returns:
        How many texts there are now.
    """
    mask = np.uint64(slots.shape[0] - 1)
    for word in range(words.shape[0]):
        begin, end = words[word, FORM_AT], words[word, HEAD_AT] - 1
        hash_ = _hash(data, begin, end)
        slot, found = hash_ & mask, np.int64(-1)
        while slots[slot] != _EMPTY:
            entry = slots[slot]
            if (entry ^ hash_) & _HIGH == _EMPTY:
                candidate = np.int64(entry & _LOW) - 1
                start = starts[candidate]
                if starts[candidate + 1] - start == end - begin and _is_same(
                    data, begin, end, arena, start
                ):
                    found = candidate
                    break
            slot = (slot + _ONE) & mask
        if found < 0:
            found = num_texts
            num_texts += 1
            slots[slot] = (hash_ & _HIGH) | np.uint64(num_texts)
            hashes[found] = hash_
            copy_bytes(arena, starts[found], data, begin, end - begin)
            starts[num_texts] = starts[found] + end - begin
        numbers[word] = found
    return num_texts


@compiled(types.void(_numbers, _numbers, _int))
def _fill_slots(slots, hashes, num_texts):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.shape[0] - 1)
    for number in range(num_texts):
        slot = hashes[number] & mask
        while slots[slot] != _EMPTY:
            slot = (slot + _ONE) & mask
        slots[slot] = (hashes[number] & _HIGH) | np.uint64(number + 1)


class Analyses:
    """The texts met so far, in this order."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all texts."""
        self._num_texts = 0
        self._slots: npt.NDArray[np.uint64] = np.zeros(1 << 14, np.uint64)
        self._hashes: npt.NDArray[np.uint64] = np.empty(1 << 13, np.uint64)
        self._starts: Longs = np.zeros((1 << 13) + 1, np.int64)
        self._arena: Bytes = np.zeros(1 << 18, np.uint8)

    def __len__(self) -> int:
        return self._num_texts

    @property
    def num_bytes(self) -> int:
        """Memory of the table."""
        arrays = (self._slots, self._hashes, self._starts, self._arena)
        return sum(array.nbytes for array in arrays)

    def text(self, number: int) -> str:
        """The columns with this number, tabs between them."""
        return self._arena[self._starts[number] : self._starts[number + 1]].tobytes().decode()

    def numbers(self, data: Bytes, words: Longs) -> Ints:
        """The numbers of words, new ones for texts not met yet.

        Args:
            data: bytes of CoNLL-U, with at least four more columns behind each text.
            words: their places, as `PlainSentences` has them.
        """
        self._make_room(len(words), int((words[:, HEAD_AT] - words[:, FORM_AT]).sum()))
        numbers = np.empty(len(words), np.int32)
        self._num_texts = _look_up(
            *(data, words, self._slots, self._hashes),
            *(self._starts, self._arena, self._num_texts, numbers),
        )
        return numbers

    def _make_room(self, num_texts: int, num_bytes: int) -> None:
        """Make room for so many more; at least half of the slots stay empty."""
        needed = int(self._starts[self._num_texts]) + num_bytes + _SLACK
        if needed > len(self._arena):
            self._arena = np.resize(self._arena, 2 * needed)
        needed = self._num_texts + num_texts
        if needed > len(self._hashes):
            room = 1 << needed.bit_length()
            self._hashes = np.resize(self._hashes, room)
            self._starts = np.resize(self._starts, room + 1)
            self._slots = np.zeros(2 * room, np.uint64)
            _fill_slots(self._slots, self._hashes, self._num_texts)
