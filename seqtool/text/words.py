"""The fast path for words: bytes of text to ids, compiled by Numba.

A hash table from words to ids, laid out in flat arrays so that compiled code can read and grow it:

    slots    uint64 [2 * capacity]  0 = empty, else  high half of the word's hash | id + 1;  then
                                    the first 8 bytes of the word and of the blank that ends it
    hashes   uint64 [max_words]     the whole hash of each word, to rebuild `slots` when it grows
    starts   int64  [max_words+1]   word i is  arena[starts[i]:starts[i+1]]
    arena    uint8  [...]           the bytes of all words, one after another
    counts   int64  [max_words]     how often each word was added

So a word of up to 7 bytes is known from its slot alone. Two words of the same hash cannot be taken
for one another: the bytes are always compared. Words are split on space, tab, LF and CR only, which
are ASCII, so UTF-8 needs no decoding here. Some hundred words are split off and hashed before they
are looked up, so that their slots come from memory meanwhile.

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from seqtool.core.arrays import Ids
from seqtool.core.compiled import compiled, fetch, in_llvm, load
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID
from seqtool.text.tokenizers import SpecialTokens, refuse_special_words

_POLICIES: dict[str, int] = {"refuse": 0, "unknown": 1, "skip": 2}
_REFUSE, _UNKNOWN = _POLICIES["refuse"], _POLICIES["unknown"]
_DONE, _FULL, _SPECIAL = 0, 1, 2
_SPACE, _TAB, _LF, _CR = 32, 9, 10, 13
_HIGH = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0x00000000FFFFFFFF)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)  # from Pelle Evensen's rrxmrrxmsx mixers
_ONE, _SHIFT, _ZERO = np.uint64(1), np.uint64(32), np.uint64(0)
_ONES = np.uint64(0x0101010101010101)  # times a byte: eight of it
_HIGHEST = np.uint64(0x8080808080808080)
_BATCH = 256  # words; their slots fit into the first cache

_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)


@in_llvm
def _num_zeros(typing_context, bits):  # type: ignore[no-untyped-def]
    """Return the number of zeros below the lowest bit that is set, 64 for 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@compiled(types.uint64(types.uint64))
def _zero_bytes(chunk):  # type: ignore[no-untyped-def]
    """Set the highest bit of the first byte that is 0, and perhaps of some after it."""
    return (chunk - _ONES) & ~chunk & _HIGHEST


@compiled(types.uint64(types.uint64))
def _blanks(chunk):  # type: ignore[no-untyped-def]
    """Set the highest bit of the first byte that is a blank, and perhaps of some after it."""
    return (
        _zero_bytes(chunk ^ (_ONES * np.uint64(_SPACE)))
        | _zero_bytes(chunk ^ (_ONES * np.uint64(_LF)))
        | _zero_bytes(chunk ^ (_ONES * np.uint64(_TAB)))
        | _zero_bytes(chunk ^ (_ONES * np.uint64(_CR)))
    )


@compiled(types.uint64(types.uint64, types.uint64))
def _mix(hash_, chunk):  # type: ignore[no-untyped-def]
    hash_ = (hash_ ^ chunk) * _MULTIPLIER
    return hash_ ^ (hash_ >> _SHIFT)


@compiled(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
        *(_bytes_in, types.int64, types.uint64[::1]),
        *(types.int64[:, ::1], types.uint64[:, ::1]),
    )
)
def _split(block, position, slots, places, chunks):  # type: ignore[no-untyped-def]
    """Split words off a block, from a position on.

    Args:
        block: of text.
        position: in it.
        slots: to look them up in.
        places: [2, _BATCH] is filled with begin and end of each; an end of 0 is a line's.
        chunks: [2, _BATCH] is filled with the hash and the first chunk of each.

    Returns:
        Their number and the position after them.
    """
    mask = np.uint64(slots.shape[0] // 2 - 1)
    num, size = np.int64(0), block.shape[0]
    space = np.uint64(_SPACE)
    while position < size and num < _BATCH:
        byte = block[position]
        if byte <= _SPACE and byte in (_SPACE, _LF, _TAB, _CR):
            position += 1
            if byte == _LF:
                places[0, num], places[1, num] = position - 1, 0
                num += 1
            continue
        begin, hash_, first, length = position, _SEED, _ZERO, np.uint64(8)
        while length == np.uint64(8):  # of the chunk; less when the word ends in it
            if position + 8 <= size:
                chunk = load(block, np.uint64(position))
            else:  # as if blanks came after the block
                chunk = _ONES * space
                for i in range(size - 1, position - 1, -1):
                    chunk = (chunk << np.uint64(8)) | np.uint64(block[i])
            length = _num_zeros(_blanks(chunk)) >> np.uint64(3)
            if length < np.uint64(8):
                bits = length << np.uint64(3)
                chunk = (chunk & ((_ONE << bits) - _ONE)) | (space << bits)
            if position == begin:
                first = chunk
            hash_ = _mix(hash_, chunk)
            position += np.int64(length)
        hash_ = _mix(hash_, _ZERO)
        fetch(slots, np.uint64(2) * (hash_ & mask))
        places[0, num], places[1, num] = begin, position
        chunks[0, num], chunks[1, num] = hash_, first
        num += 1
    return num, position


@compiled(
    types.int64(
        _bytes_in,
        types.int64[::1],
        types.uint64[::1],
        types.uint64[::1],
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
        types.int32[::1],
        types.boolean,
        types.int64,
        types.int64,
    )
)
def _scan(  # type: ignore[no-untyped-def]
    block, state, slots, hashes, starts, arena, counts, out, insert, bos_id, policy
):
    """Append the ids of a block's words to `out`, and `EOS_ID` at each line's end.

    `state` is [position in block, ids written, number of words, bytes of the arena used] and is
    brought up to date; the caller goes on from there after making room.
    """
    position, written, num_words, used = state[0], state[1], state[2], state[3]
    mask, two = np.uint64(slots.shape[0] // 2 - 1), np.uint64(2)
    places, chunks = np.empty((2, _BATCH), np.int64), np.empty((2, _BATCH), np.uint64)
    result = _DONE
    while position < block.shape[0] and result == _DONE:
        num, position = _split(block, position, slots, places, chunks)
        for k in range(num):
            start, end, hash_, first = places[0, k], places[1, k], chunks[0, k], chunks[1, k]
            if end == 0:
                out[written] = EOS_ID
                written += 1
                continue
            slot = hash_ & mask
            found = np.int64(-1)
            while slots[two * slot] != _ZERO:
                entry = slots[two * slot]
                if slots[two * slot + _ONE] == first and (entry ^ hash_) & _HIGH == _ZERO:
                    candidate = np.int64(entry & _LOW) - 1
                    if end - start < 8:
                        found = candidate
                        break
                    begin = starts[candidate]
                    if starts[candidate + 1] - begin == end - start:
                        same = 8
                        while same < end - start and arena[begin + same] == block[start + same]:
                            same += 1
                        if same == end - start:
                            found = candidate
                            break
                slot = (slot + _ONE) & mask
            if found < 0:
                if not insert:
                    out[written] = UNK_ID
                    written += 1
                    continue
                if (
                    num_words == hashes.shape[0]
                    or 4 * num_words >= slots.shape[0]
                    or used + end - start > arena.shape[0]
                ):
                    position = start
                    result = _FULL
                    break
                found = np.int64(num_words)
                slots[two * slot] = (hash_ & _HIGH) | np.uint64(found + 1)
                slots[two * slot + _ONE] = first
                hashes[found] = hash_
                for i in range(start, end):
                    arena[used] = block[i]
                    used += 1
                num_words += 1
                starts[num_words] = used
            elif found in (EOS_ID, bos_id):
                if policy == _REFUSE:
                    position = start
                    result = _SPECIAL
                    break
                if policy == _UNKNOWN:
                    counts[UNK_ID] += insert
                    out[written] = UNK_ID
                    written += 1
                continue
            if insert:
                counts[found] += 1
            out[written] = found
            written += 1
    state[0], state[1], state[2], state[3] = position, written, num_words, used
    return result


@compiled(types.void(types.uint64[::1], types.uint64[::1], types.uint64[::1]))
def _move_slots(old, new, hashes):  # type: ignore[no-untyped-def]
    mask, two = np.uint64(new.shape[0] // 2 - 1), np.uint64(2)
    for k in range(0, old.shape[0], 2):
        if old[k] != _ZERO:
            slot = hashes[(old[k] & _LOW) - _ONE] & mask
            while new[two * slot] != _ZERO:
                slot = (slot + _ONE) & mask
            new[two * slot], new[two * slot + _ONE] = old[k], old[k + 1]


class WordTable:
    """Words and their ids, by order of insertion, read from and written to by compiled code.

    Args:
        symbols: the words to begin with, `<unk>` and `</s>` first.
        special_tokens: what a literal `<s>` or `</s>` in a text becomes: an error, the unknown
            word, or nothing.
    """

    def __init__(
        self, symbols: Iterable[str] = (UNK, EOS), special_tokens: SpecialTokens = "refuse"
    ) -> None:
        words = [*symbols, BOS]
        self.bos_id = len(words) - 1
        self._policy = _POLICIES[special_tokens]
        capacity = 1 << max(12, (2 * len(words)).bit_length())
        text = "\n".join(words).encode(errors="surrogatepass")
        self._slots = np.zeros(2 * capacity, np.uint64)
        self._hashes = np.empty(capacity // 2, np.uint64)
        self._starts = np.zeros(capacity // 2 + 1, np.int64)
        self._arena = np.empty(max(len(text), 1 << 16), np.uint8)
        self._counts = np.zeros(capacity // 2, np.int64)
        self._out = np.empty(0, np.int32)  # kept between blocks: fresh pages cost time
        self._num_words = self._used = 0
        # no table holds `</s>` yet, so that here it is inserted as any word
        self._encode(text, insert=True, bos_id=-1, policy=_UNKNOWN)
        self._counts[:] = 0
        num_lines = text.count(b"\n") + 1
        has_blanks = num_lines != len(words) or len(text.translate(None, b" \t\r")) < len(text)
        if has_blanks or self._num_words != len(words):
            raise ModelError(
                "the vocabulary holds words with blanks in them", hint="prepare the text again"
            )

    def __len__(self) -> int:
        return self._num_words

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each word was added so far, shape (words,)."""
        return self._counts[: self._num_words]

    def word(self, index: int) -> str:
        """Return the word with this id."""
        return self._arena[self._starts[index] : self._starts[index + 1]].tobytes().decode()

    def add(self, block: bytes) -> Ids:
        """Return the ids of a block's words, new words given the next ids; see `encode`."""
        return self._encode(block, insert=True, bos_id=self.bos_id, policy=self._policy)

    def encode(self, block: bytes) -> Ids:
        """Return the ids of a block's words, `UNK_ID` for those not here, `EOS_ID` at each LF.

        Raises:
            DataError: a literal `<s>` or `</s>`, if refused, with its line in the block.
        """
        return self._encode(block, insert=False, bos_id=self.bos_id, policy=self._policy)

    def _encode(self, block: bytes, *, insert: bool, bos_id: int, policy: int) -> Ids:
        data = np.frombuffer(block, np.uint8)
        if len(self._out) < len(block):
            self._out = np.empty(len(block), np.int32)
        state = np.array([0, 0, self._num_words, self._used], np.int64)
        while True:
            result = _scan(
                data,
                state,
                self._slots,
                self._hashes,
                self._starts,
                self._arena,
                self._counts,
                self._out,
                insert,
                bos_id,
                policy,
            )
            written, self._num_words, self._used = state[1:].tolist()
            if result == _DONE:
                return self._out[:written].copy()
            if result == _SPECIAL:
                refuse_special_words(block)
                raise AssertionError("a special word was found, then not found")
            self._grow(len(block))

    def _grow(self, room: int) -> None:
        """Make room for more words, and for at least `room` more bytes of them."""
        if self._used + room > len(self._arena):
            self._arena = _longer(self._arena, max(2 * len(self._arena), self._used + room))
        if 4 * self._num_words >= len(self._slots) or self._num_words == len(self._hashes):
            capacity = len(self._slots)
            self._hashes = _longer(self._hashes, capacity // 2)
            self._starts = _longer(self._starts, capacity // 2 + 1)
            self._counts = _longer(self._counts, capacity // 2)
            slots = np.zeros(2 * capacity, np.uint64)
            _move_slots(self._slots, slots, self._hashes)
            self._slots = slots


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    result = np.zeros(size, array.dtype)
    result[: len(array)] = array
    return result
