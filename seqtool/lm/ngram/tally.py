"""How often each n-gram of one order occurs in a text: a hash table that goes to disk.

A table that is full grows; where there is no memory for that, its n-grams are sorted and written to
disk as one run. The runs are merged at the end.

    ids -> table of n-grams -> [runs of them -> merged]
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import types

from seqtool.core.arrays import Ids
from seqtool.core.instructions import fetch, flat
from seqtool.core.jit import compiled
from seqtool.core.string_table import SEED, mix
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.records import GIVEN, Packing, Records, Runs, Workspace, sort_records

_BATCH = 256  # n-grams; their slots fit into the first cache
_FEWEST = 1 << 11  # slots of a table
_ID_BITS = 32  # of an id while the vocabulary is not known
_ZERO, _ONE, _HALF = np.uint64(0), np.uint64(1), np.uint64(32)

_slots = types.uint64[:, ::1]


@compiled(types.uint64(_slots, types.int64, types.int64))
def _hash(keys, row, num_words):  # type: ignore[no-untyped-def]
    hash_ = SEED
    for k in range(num_words):
        hash_ = mix(hash_, keys[row, k])
    return hash_


@compiled(types.void(_slots, _slots))
def _move(old, new):  # type: ignore[no-untyped-def]
    """Enter all n-grams of a table in an empty one."""
    num_words = old.shape[1] - 1
    mask = np.uint64(new.shape[0] - 1)
    for i in range(old.shape[0]):
        if old[i, num_words] != _ZERO:
            slot = _hash(old, i, num_words) & mask
            while new[slot, num_words] != _ZERO:
                slot = (slot + _ONE) & mask
            for k in range(num_words + 1):
                new[slot, k] = old[i, k]


@compiled(types.void(_slots))
def _close_up(slots):  # type: ignore[no-untyped-def]
    """Move all n-grams of a table to its beginning."""
    num, last = 0, slots.shape[1] - 1
    for i in range(slots.shape[0]):
        if slots[i, last] != _ZERO:
            if i != num:
                for k in range(last + 1):
                    slots[num, k] = slots[i, k]
            num += 1


@compiled(types.void(types.int32[::1], *[types.int64] * 3, _slots, types.int64[::1]))
def _count(ids, order, bos, edges, slots, state):  # type: ignore[no-untyped-def]
    """Count the n-grams that end at tokens of a text, as far as the table has room for them.

    Args:
        ids: of the text; at least `order` - 1 tokens before the first one that is counted, if the
            sentence has them.
        order: n.
        bos: the id of `<s>`.
        edges: 1 to count n-grams with `<s>` and `</s>` too, except `<s>` alone, else 0.
        slots: [S, words of a key + 1], of each n-gram its key, and how often it was counted.
        state: the next token, how many words its sentence has before it, the words of the longest
            sentence, how many n-grams the table holds; updated.
    """
    position, length, longest, num = state[0], state[1], state[2], state[3]
    most = slots.shape[0] - slots.shape[0] // 3  # more would make long rows of taken slots
    mask = np.uint64(slots.shape[0] - 1)
    num_words = slots.shape[1] - 1
    numbers, width = flat(slots), np.uint64(slots.shape[1])
    keys = np.zeros((_BATCH, num_words), np.uint64)
    places = np.empty(_BATCH, np.uint64)
    while position < ids.shape[0] and num + _BATCH <= most:
        # the slots of a batch are fetched from memory while the keys of the next are made
        filled = 0
        while position < ids.shape[0] and filled < _BATCH:
            ends = ids[position] == EOS_ID
            if (edges or not ends) and length + 1 + edges >= order:
                begin = position + 1 - order
                for word in range(num_words):
                    key = _ZERO
                    for n in range(2 * word, min(2 * word + 2, order)):
                        # `<s>` stands in no text
                        id_ = bos if n == 0 and length + 1 < order else ids[begin + n]
                        key = (key << _HALF) | np.uint64(id_)
                    keys[filled, word] = key
                slot = _hash(keys, filled, num_words) & mask
                places[filled] = slot
                fetch(numbers, slot * width)
                filled += 1
            if ends:
                longest = max(longest, length)
                length = 0
            else:
                length += 1
            position += 1
        for i in range(filled):
            slot = places[i]
            while slots[slot, num_words] != _ZERO:
                is_same = True
                for k in range(num_words):
                    is_same &= slots[slot, k] == keys[i, k]
                if is_same:
                    break
                slot = (slot + _ONE) & mask
            if slots[slot, num_words] == _ZERO:
                num += 1
                for k in range(num_words):
                    slots[slot, k] = keys[i, k]
            slots[slot, num_words] += _ONE
    state[0], state[1], state[2], state[3] = position, length, longest, num


class Tally:
    """How often each n-gram of one order occurs; to be closed.

    Args:
        order: n.
        bos: the id of `<s>`.
        edges: whether n-grams with `<s>` and `</s>` are counted too.
        space: memory and disk.

    Attributes:
        longest: words of the longest sentence.
        packing: of the keys.
    """

    def __init__(self, order: int, bos: int, edges: bool, space: Workspace) -> None:
        self.packing = Packing(order, _ID_BITS)
        self.longest = 0
        self._order, self._bos, self._edges, self._space = order, bos, edges, space
        self._width = self.packing.num_words + 1
        self._slots = self._empty_table(_FEWEST)
        self._num = 0  # n-grams in the table
        self._length = 0  # words of the sentence that is not yet at its end
        self._num_sentences = 0
        self._runs = Runs(self._width, self._width - 1, space)

    def close(self) -> None:
        """Give the disk back."""
        self._runs.close()

    def add(self, ids: Ids, first: int = 0) -> None:
        """Count the n-grams that end at ids[first:], which follow on what was added before.

        What is before it are the last tokens that were added before: `order` of them, or all.
        """
        state = np.array([first, self._length, self.longest, self._num], np.int64)
        while True:
            _count(ids, self._order, self._bos, int(self._edges), self._slots, state)
            self._num = int(state[3])
            if state[0] == len(ids):
                break
            self._make_room()
            state[3] = self._num
        self._length, self.longest = int(state[1]), int(state[2])
        if self._edges:
            self._num_sentences += int(np.count_nonzero(ids[first:] == EOS_ID))

    def records(self) -> Iterator[Records]:
        """Give each n-gram once: its key and its number; in no order if all were in memory.

        The tally is used up by it.
        """
        if self._edges and self._order == 1:  # `<s>` ends no n-gram
            yield np.array([[self._bos, self._num_sentences]], np.uint64)
        if not len(self._runs):
            _close_up(self._slots)
            for begin in range(0, self._num, GIVEN):
                yield self._slots[begin : min(begin + GIVEN, self._num)]
        elif self._num:
            self._write()
        self._slots = self._slots[:0].copy()
        if len(self._runs):
            yield from self._runs.merged()

    def _make_room(self) -> None:
        if self._space.allows(2 * self._slots.nbytes):
            slots = self._empty_table(2 * len(self._slots))
            _move(self._slots, slots)
            self._slots = slots
            return
        self._write()
        if self._slots.nbytes > self._space.least and self._space.room() < 0:
            size = len(self._slots) // 2  # words have come that need the memory
            self._slots = self._slots[:0].copy()
            self._slots = self._empty_table(size)
        else:
            self._slots[:] = 0

    def _empty_table(self, num_slots: int) -> Records:
        # not `np.zeros`, which Linux gives in pages of 4 KB, each with a fault of its own
        slots = np.empty((num_slots, self._width), np.uint64)
        slots[:] = 0
        return slots

    def _write(self) -> None:
        """Write the n-grams to disk."""
        _close_up(self._slots)
        # at least a third of the slots is free: room to sort as many n-grams at a time
        spare = self._slots[self._num :]
        for begin in range(0, self._num, len(spare)):
            records = self._slots[begin : min(begin + len(spare), self._num)]
            self._runs.add([sort_records(records, spare[: len(records)], self._width - 1)])
        self._num = 0
