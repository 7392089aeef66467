"""The fast path for words: bytes of text to ids, compiled by Numba.

Words are split on space, tab, LF and CR only, which are ASCII, so UTF-8 needs no decoding here.
Some hundred words are split off and hashed before they are looked up in a `StringTable`, so that
their slots come from memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Bytes, Ids, Longs
from seqtool.core.eight_bytes import ONES, blanks
from seqtool.core.errors import ModelError
from seqtool.core.instructions import fetch, load, num_zeros
from seqtool.core.jit import compiled
from seqtool.core.string_table import (
    SEED,
    StringTable,
    bytes_in,
    enter,
    find,
    mix,
    string_hash,
    strings,
)
from seqtool.core.vocabulary import (
    BOS,
    EOS,
    EOS_ID,
    UNK,
    UNK_ID,
    SpecialTokens,
    refuse_special_words,
)

_POLICIES: dict[str, int] = {"refuse": 0, "unknown": 1, "skip": 2}
_REFUSE, _UNKNOWN = _POLICIES["refuse"], _POLICIES["unknown"]
_DONE, _FULL, _SPECIAL = 0, 1, 2
_SPACE, _TAB, _LF, _CR = 32, 9, 10, 13
_ZERO, _ONE, _EIGHT = np.uint64(0), np.uint64(1), np.uint64(8)
_END = np.uint64(_LF)  # what ends every string in a table
_BATCH = 256  # words; their slots fit into the first cache


_end_hash_first = types.Tuple((types.int64, types.uint64, types.uint64))


@compiled(_end_hash_first(bytes_in, types.int64), forceinline=True)
def scan_word(block, begin):  # type: ignore[no-untyped-def]
    """Return where the word ends that begins here, and its `string_hash`: eight bytes at a time."""
    size, position = block.shape[0], begin
    hash_, first, length = SEED, _ZERO, _EIGHT
    # a chain of one multiplication for eight bytes; most words need one
    while length == _EIGHT:  # of the chunk; less when the word ends in it
        if position + 8 <= size:
            chunk = load(block, np.uint64(position))
        else:  # as if line ends came after the block
            chunk = ONES * _END
            for i in range(size - 1, position - 1, -1):
                chunk = (chunk << _EIGHT) | np.uint64(block[i])
        length = num_zeros(blanks(chunk)) >> np.uint64(3)  # 8 where there is no blank
        if length < _EIGHT:
            bits = length << np.uint64(3)
            # the bytes of the word and the LF, as in `string_hash`: blanks of any kind end it alike
            chunk = (chunk & ((_ONE << bits) - _ONE)) | (_END << bits)
        if position == begin:
            first = chunk
        hash_ = mix(hash_, chunk)
        position += np.int64(length)
    return position, mix(hash_, _ZERO), first


@compiled(
    types.UniTuple(types.int64, 2)(
        bytes_in, types.int64, types.uint64[::1], types.int64[:, ::1], types.uint64[:, ::1]
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
    while position < size and num < _BATCH:
        byte = block[position]
        # one comparison for nearly every byte of a word
        if byte <= _SPACE and byte in (_SPACE, _LF, _TAB, _CR):
            position += 1
            if byte == _LF:
                places[0, num], places[1, num] = position - 1, 0
                num += 1
            continue
        begin = position
        position, hash_, first = scan_word(block, begin)
        fetch(slots, np.uint64(2) * (hash_ & mask))  # on its way while the next ones are hashed
        places[0, num], places[1, num] = begin, position
        chunks[0, num], chunks[1, num] = hash_, first
        num += 1
    return num, position


@compiled(
    types.int64(
        bytes_in,
        types.int64[::1],
        strings,
        types.int64[::1],
        types.int32[::1],
        types.boolean,
        types.int64,
        types.int64,
    )
)
def _scan(block, state, table, counts, out, insert, bos_id, policy):  # type: ignore[no-untyped-def]
    """Append the ids of a block's words to `out`, and `EOS_ID` at each line's end.

    `state` is [position in block, ids written, number of words] and is brought up to date; the
    caller goes on from there after making room.
    """
    position, written, num_words = state[0], state[1], state[2]
    slots, starts, text = table.slots, table.starts, table.text
    places, chunks = np.empty((2, _BATCH), np.int64), np.empty((2, _BATCH), np.uint64)
    result = _DONE
    while position < block.shape[0] and result == _DONE:
        # split a batch off before the first look-up: the slots are fetched meanwhile
        num, position = _split(block, position, slots, places, chunks)
        for k in range(num):
            start, end, hash_, first = places[0, k], places[1, k], chunks[0, k], chunks[1, k]
            if end == 0:
                out[written] = EOS_ID
                written += 1
                continue
            slot, found = find(slots, starts, text, hash_, first, block, start, end)
            if found < 0:
                if not insert:
                    out[written] = UNK_ID
                    written += 1
                    continue
                is_full = num_words == counts.shape[0]
                if is_full or starts[num_words] + end - start > text.shape[0]:
                    position = start  # this word is split off again when there is room
                    result = _FULL
                    break
                found = np.int64(num_words)
                enter(table, slot, hash_, first, found, block, start, end)
                num_words += 1
            elif found in (EOS_ID, bos_id):  # a line's end is no word, so this one is literal
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
    state[0], state[1], state[2] = position, written, num_words
    return result


@compiled(
    types.void(
        bytes_in,
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        strings,
        types.int32[::1],
    )
)
def _look_up(data, begins, ends, table, found):  # type: ignore[no-untyped-def]
    """Write the numbers of strings of a text, -1 for those that are not there."""
    for i in range(begins.shape[0]):
        begin, end = begins[i], ends[i]
        hash_, first = string_hash(data, begin, end)
        _, number = find(table.slots, table.starts, table.text, hash_, first, data, begin, end)
        found[i] = number


def look_up(table: StringTable, data: Bytes, begins: Longs, ends: Longs) -> Ids:
    """Return the numbers of words that stand in a text, -1 for those that are not in the table.

    Args:
        table: of words.
        data: the text.
        begins: of each word in it, [N].
        ends: [N].
    """
    found = np.empty(len(begins), np.int32)
    _look_up(data, begins, ends, table.arrays, found)
    return found


class WordTable:
    """Words and their ids, by order of insertion, read from and written to by compiled code.

    It begins with `symbols`, `<unk>` and `</s>` first. A literal `<s>` or `</s>` in a text becomes
    a DataError with its line in the block, the unknown word, or nothing, by `special_tokens`.
    """

    def __init__(
        self, symbols: Iterable[str] = (UNK, EOS), special_tokens: SpecialTokens = "refuse"
    ) -> None:
        words = [*symbols, BOS]
        self.bos_id = len(words) - 1
        self._policy = _POLICIES[special_tokens]
        self._table = StringTable(words)
        self._counts = np.zeros(len(self._table.arrays.hashes), np.int64)
        # kept between blocks, as fresh pages cost time; one thread takes it, others make their own
        self._outs = [np.empty(0, np.int32)]
        text = "\n".join(words)
        has_blanks = text.count("\n") >= len(words) or any(blank in text for blank in " \t\r")
        if has_blanks or "" in words or len(self._table) != len(words):
            what = "the vocabulary holds words with blanks in them"
            raise ModelError(what, hint="prepare the text again")

    def __len__(self) -> int:
        return len(self._table)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each word was added so far, shape (words,)."""
        return self._counts[: len(self)]

    @property
    def nbytes(self) -> int:
        """The memory of the table."""
        return self._table.nbytes + self._counts.nbytes + sum(out.nbytes for out in self._outs)

    def word(self, index: int) -> str:
        """Return the word with this id."""
        return self._table.text(index)

    def look_up(self, data: Bytes, begins: Longs, ends: Longs) -> Ids:
        """Return the ids of words that stand in a text, -1 for those not here; see `look_up`."""
        return look_up(self._table, data, begins, ends)

    def add(self, block: bytes) -> Ids:
        """Return the ids of a block's words, new words given the next ids; see `encode`."""
        return self._encode(block, insert=True)

    def encode(self, block: bytes) -> Ids:
        """Return the ids of a block's words, `UNK_ID` for those not here, `EOS_ID` at each LF."""
        return self._encode(block, insert=False)

    def _encode(self, block: bytes, *, insert: bool) -> Ids:
        data = np.frombuffer(block, np.uint8)
        try:
            out = self._outs.pop()
        except IndexError:  # another thread has it
            out = np.empty(0, np.int32)
        if len(out) < len(block):
            out = np.empty(len(block), np.int32)  # an id takes a byte at least
        state = np.array([0, 0, len(self)], np.int64)
        while True:
            arrays = self._table.arrays
            result = _scan(
                data,
                state,
                arrays,
                self._counts,
                out,
                insert,
                self.bos_id,
                self._policy,
            )
            self._table.count(int(state[2]))
            if result == _DONE:
                ids = out[: state[1]].copy()
                self._outs[:] = [out]
                return ids
            if result == _SPECIAL:
                refuse_special_words(block)
                raise AssertionError("a special word was found, then not found")
            self._table.make_room(1, len(block))
            more = np.zeros(len(self._table.arrays.hashes) - len(self._counts), np.int64)
            self._counts = np.concatenate([self._counts, more])
