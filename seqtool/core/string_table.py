"""The hash table that compiled functions share: byte strings and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.instructions import copy_bytes, load
from seqtool.core.jit import compiled

SEED = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)  # from Pelle Evensen's rrxmrrxmsx mixers
_HIGH, _LOW = np.uint64(0xFFFFFFFF00000000), np.uint64(0x00000000FFFFFFFF)
_ZERO, _ONE, _TWO, _HALF = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(32)
_LF = np.uint64(10)

bytes_in = types.Array(types.uint8, 1, "C", readonly=True)


class Strings(NamedTuple):
    """The arrays of a `StringTable`, S slots and room for N = S / 2 strings."""

    # [2 S]: slot i is 0 where it is empty, else the high half of the string's hash and its number
    # plus one; then the first 8 bytes of the string and the LF that ends it
    slots: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]  # [N], the whole ones, to fill new slots when they are too few
    starts: npt.NDArray[np.int64]  # [N + 1], string n is text[starts[n]:starts[n + 1]]
    text: npt.NDArray[np.uint8]  # the bytes of all strings, one after another


strings = types.NamedTuple(
    (types.uint64[::1], types.uint64[::1], types.int64[::1], types.uint8[::1]), Strings
)


@compiled(types.uint64(types.uint64, types.uint64))
def mix(hash_, chunk):  # type: ignore[no-untyped-def]
    """Return the hash of what `hash_` is the hash of, with eight bytes more."""
    hash_ = (hash_ ^ chunk) * _MULTIPLIER
    return hash_ ^ (hash_ >> _HALF)  # the high bits depend on more than the low ones


@compiled(types.uint64(types.uint32, types.uint32))
def pair_hash(first, second):  # type: ignore[no-untyped-def]
    """Return the hash of two ids."""
    return mix(mix(SEED, (np.uint64(first) << _HALF) | np.uint64(second)), _ZERO)


@compiled(types.uint64(bytes_in, types.int64, types.int64), forceinline=True)
def _last_chunk(data, at, end):  # type: ignore[no-untyped-def]
    """Return the bytes from `at` on, fewer than eight, then the LF that ends every string."""
    bits = np.uint64(8 * (end - at))
    if at + 8 <= data.shape[0]:
        chunk = load(data, np.uint64(at)) & ((_ONE << bits) - _ONE)
    else:  # what is behind the array is not ours to read
        chunk = _ZERO
        for i in range(end - 1, at - 1, -1):
            chunk = (chunk << np.uint64(8)) | np.uint64(data[i])
    return chunk | (_LF << bits)


@compiled(
    types.UniTuple(types.uint64, 2)(bytes_in, types.int64, types.int64),
    forceinline=True,
)
def string_hash(data, begin, end):  # type: ignore[no-untyped-def]
    """Return the hash of a string without LF, and its first eight bytes with the LF after it."""
    at, hash_ = begin, SEED
    first = load(data, np.uint64(at)) if at + 8 <= end else _last_chunk(data, at, end)
    while at + 8 <= end:
        hash_ = mix(hash_, load(data, np.uint64(at)))
        at += 8
    return mix(mix(hash_, _last_chunk(data, at, end)), _ZERO), first


@compiled(
    types.Tuple((types.uint64, types.int64))(
        types.uint64[::1],
        types.int64[::1],
        types.uint8[::1],
        types.uint64,
        types.uint64,
        bytes_in,
        types.int64,
        types.int64,
    ),
    forceinline=True,
)
def find(slots, starts, text, hash_, first, data, begin, end):  # type: ignore[no-untyped-def]
    """Look up data[begin:end], whose hash and first bytes `string_hash` has given.

    Returns:
        Its slot and its number; the slot to `enter` it in and -1 where it is not there.
    """
    mask = np.uint64(slots.shape[0] // 2 - 1)
    slot = hash_ & mask
    while slots[_TWO * slot] != _ZERO:
        entry = slots[_TWO * slot]
        if slots[_TWO * slot + _ONE] == first and (entry ^ hash_) & _HIGH == _ZERO:
            number = np.int64(entry & _LOW) - 1
            size = end - begin
            if size < 8:  # the LF in the first bytes says that this is all
                return slot, number
            start = starts[number]
            if starts[number + 1] - start == size:
                same = np.int64(8)
                while same + 8 <= size and (
                    load(text, np.uint64(start + same)) == load(data, np.uint64(begin + same))
                ):
                    same += 8
                # the last eight bytes, some of them for a second time
                if same + 8 > size and (
                    load(text, np.uint64(start + size - 8)) == load(data, np.uint64(end - 8))
                ):
                    return slot, number
        slot = (slot + _ONE) & mask
    return slot, np.int64(-1)


@compiled(
    types.void(
        strings,
        types.uint64,
        types.uint64,
        types.uint64,
        types.int64,
        bytes_in,
        types.int64,
        types.int64,
    )
)
def enter(table, slot, hash_, first, number, data, begin, end):  # type: ignore[no-untyped-def]
    """Give data[begin:end] the next number; `slot` is from `find`, and there must be room."""
    table.slots[_TWO * slot] = (hash_ & _HIGH) | np.uint64(number + 1)
    table.slots[_TWO * slot + _ONE] = first
    table.hashes[number] = hash_
    start = table.starts[number]
    copy_bytes(table.text, start, data, begin, end - begin)
    table.starts[number + 1] = start + end - begin


@compiled(types.int64(strings, types.int64, bytes_in))
def _enter_lines(table, number, data):  # type: ignore[no-untyped-def]
    """Enter each line that is not there yet; return how many strings there are then."""
    begin = 0
    for i in range(data.shape[0]):
        if data[i] == 10:
            hash_, first = string_hash(data, begin, i)
            slot, found = find(table.slots, table.starts, table.text, hash_, first, data, begin, i)
            if found < 0:
                enter(table, slot, hash_, first, number, data, begin, i)
                number += 1
            begin = i + 1
    return number


@compiled(types.void(types.uint64[::1], types.uint64[::1], types.uint64[::1]))
def _move_slots(old, new, hashes):  # type: ignore[no-untyped-def]
    mask = np.uint64(new.shape[0] // 2 - 1)
    for k in range(0, old.shape[0], 2):
        if old[k] != _ZERO:
            slot = hashes[(old[k] & _LOW) - _ONE] & mask
            while new[_TWO * slot] != _ZERO:
                slot = (slot + _ONE) & mask
            new[_TWO * slot], new[_TWO * slot + _ONE] = old[k], old[k + 1]


class StringTable:
    """Byte strings without LF and their numbers, in order of insertion: a hash table.

    Open addressing with linear probing, in flat arrays that compiled code reads and grows: it calls
    `string_hash`, `find` and `enter`. At most half of the slots are taken. Two strings of one hash
    are never taken for one another: the bytes are compared; those of up to 7 bytes in the slot.
    """

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.arrays = Strings(  # what compiled code works on
            np.zeros(1 << 13, np.uint64),
            np.empty(1 << 11, np.uint64),
            np.zeros((1 << 11) + 1, np.int64),
            np.empty(1 << 16, np.uint8),
        )
        self._num = 0
        data = b"".join(b"%s\n" % text.encode(errors="surrogatepass") for text in texts)
        self.make_room(len(texts), len(data))
        self.count(_enter_lines(self.arrays, 0, np.frombuffer(data, np.uint8)))

    def __len__(self) -> int:
        return self._num

    def count(self, num: int) -> None:
        """Take note of how many strings there are, after compiled code entered some."""
        self._num = num

    @property
    def num_bytes(self) -> int:
        """How long all strings are together."""
        return int(self.arrays.starts[self._num])

    @property
    def nbytes(self) -> int:
        """The memory of the table."""
        return sum(array.nbytes for array in self.arrays)

    def text(self, number: int) -> str:
        """Return the string with this number."""
        begin, end = self.arrays.starts[number : number + 2]
        return self.arrays.text[begin:end].tobytes().decode()

    def make_room(self, num: int, num_bytes: int) -> None:
        """Make room for so many more strings of so many bytes together."""
        slots, hashes, starts, text = self.arrays
        needed = self.num_bytes + num_bytes
        if needed > len(text):
            text = _longer(text, max(2 * len(text), needed))
        if self._num + num > len(hashes):
            room = 1 << (self._num + num - 1).bit_length()
            hashes, starts = _longer(hashes, room), _longer(starts, room + 1)
            old, slots = slots, np.zeros(4 * room, np.uint64)
            _move_slots(old, slots, hashes)
        self.arrays = Strings(slots, hashes, starts, text)


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    result = np.empty(size, array.dtype)
    result[: len(array)] = array
    return result
