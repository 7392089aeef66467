"""Scoring text with a backoff table, compiled by Numba.

Many tokens go up the orders together: the row of an n-gram is found among the continuations of its
context, which is the row that the token before it reached one order below.

    token      <s>  the  cat  sat
    order 1     V    t    c    s         row = word
    order 2          .    .    .         among the continuations of the row left of it, one line up
    order 3               .    .

Tables are far larger than the caches, so that nearly all the time is spent waiting for memory. What
is done at an order is therefore a row of short loops over all tokens; none branches on what was
read from the table, as a wrong guess of the processor would make it wait, and each asks for what
the next one reads. Up to 16 continuations are compared at once. Among more, the 16 are found by
halving; or, once a long text has been scored, the row itself in an index, which takes two reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from seqtool.core.arrays import Ids, Longs
from seqtool.core.instructions import element, fetch, num_zeros
from seqtool.core.jit import compiled
from seqtool.core.string_table import pair_hash
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.array_file import read_only
from seqtool.lm.ngram.table import BackoffTable, Float32, Int32, TableLevel

LINE = 16  # words of a cache line
CHUNK = 1024  # tokens that go through one loop: what they need fits into the first cache
PIECE = 8 * CHUNK  # tokens that go up all orders, in the second cache
INDEX_AFTER = 0.25  # tokens per n-gram of an order: an index takes about 5 ns for each n-gram

_HALF = np.uint64(32)
_ints = types.Array(types.int32, 1, "C", readonly=True)
_floats = types.Array(types.float32, 1, "C", readonly=True)
_some = types.int32[::1]

_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))


@intrinsic
def _matches(typing_context, words, index, word):  # type: ignore[no-untyped-def]
    """Compare `LINE` words from an index on with a word; bit i is set where the i-th is equal."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        line = ir.VectorType(_I32, LINE)
        address = element(context, builder, signature.args[0], *arguments[:2])
        found = builder.load(builder.bitcast(address, line.as_pointer()), align=4)
        nothing = ir.Constant(line, ir.Undefined)
        first = builder.insert_element(nothing, arguments[2], _I32(0))
        wanted = builder.shuffle_vector(first, nothing, ir.Constant(line, [0] * LINE))
        equal = builder.icmp_signed("==", found, wanted)
        return builder.zext(builder.bitcast(equal, _I16), _I64)

    return types.uint64(words, types.uint64, types.int32), generate


@compiled(types.int64(types.int64, types.int64, types.int64))
def _slot(context, word, num_slots):  # type: ignore[no-untyped-def]
    """Return where the search for an n-gram in an index begins."""
    # the high half of the hash times their number, its high half again: no division
    high = pair_hash(context, word) >> _HALF
    return np.int64((high * np.uint64(num_slots)) >> _HALF)


@compiled(types.int64(_ints))
def _num_indexed(begins):  # type: ignore[no-untyped-def]
    """Count the n-grams whose contexts have more than `LINE` continuations."""
    num = np.int64(0)
    for context in range(begins.shape[0] - 1):
        size = np.int64(begins[context + 1]) - begins[context]
        num += size if size > LINE else 0
    return num


@compiled(types.void(_ints, _ints, _some))
def _fill_index(words, begins, slots):  # type: ignore[no-untyped-def]
    """Put the rows of these n-grams into slots that are -1: each into the next that is free."""
    for context in range(begins.shape[0] - 1):
        begin, end = begins[context], begins[context + 1]
        if end - begin > LINE:
            for row in range(begin, end):
                slot = _slot(context, words[row], slots.shape[0])
                while slots[slot] >= 0:
                    slot += 1
                    if slot == slots.shape[0]:
                        slot = 0
                slots[slot] = row


class Level(NamedTuple):
    """The n-grams of order n, as `TableLevel` has them; none of the table is ever written.

    Attributes:
        words: `LINE` at least.
        lead: the place of the first of them in its cache line.
        begins: of each context.
        slots: the index, empty where there is none.
        log_probs: nats.
    """

    words: Int32
    lead: int
    begins: Int32
    slots: Int32
    log_probs: Float32


class Below(NamedTuple):
    """The n-grams of order n - 1, the contexts.

    Attributes:
        log_probs: nats.
        backoffs: nats.
        row_of_bos: the row of `<s>`, -1 where it is none by itself.
    """

    log_probs: Float32
    backoffs: Float32
    row_of_bos: int


class Tokens(NamedTuple):
    """T tokens on their way up.

    Attributes:
        ids: [T + 1], that of the token before them first.
        rows_below: [T + 1] the row at order n - 1 of the n-gram that ends there, -1 for none.
        rows: [T + 1] is filled from the second on, in the same way, for order n.
        scores: [T] nats; written once the order matched is known, then the backoffs are added.
        orders: [T] is n where the n-gram is there.
    """

    ids: Int32
    rows_below: Int32
    rows: Int32
    scores: npt.NDArray[np.float64]
    orders: npt.NDArray[np.int16]


_level = types.NamedTuple((_ints, types.int64, _ints, _some, _floats), Level)
_below = types.NamedTuple((_floats, _floats, types.int64), Below)
_tokens = types.NamedTuple((_some, _some, _some, types.float64[::1], types.int16[::1]), Tokens)


@compiled(types.void(types.int64, types.boolean, _level, _below, _tokens, types.int32[:, ::1]))
def _extend(order, is_highest, level, below, text, room):  # type: ignore[no-untyped-def]
    """Go from order n - 1 to order n with T tokens.

    Args:
        order: n.
        is_highest: whether there is no longer n-gram.
        level: of order n.
        below: of order n - 1.
        text: the tokens.
        room: [9, CHUNK] to work in.
    """
    words, lead, begins, slots, log_probs = level
    log_probs_below, backoffs_below, row_of_bos = below
    tokens, rows_below, rows, scores, orders = text
    where, contexts, lows, sizes, listed = room[0], room[1], room[2], room[3], room[4]
    wide, places, candidates, found = room[5], room[6], room[7], room[8]
    zero, one, last = np.int64(0), np.uint64(1), np.int64(words.shape[0] - LINE)
    for start in range(0, scores.shape[0], room.shape[1]):
        end = min(start + room.shape[1], scores.shape[0])
        # Which tokens have a context at all. Lists are written at every turn, and grow by 0 or 1:
        # so there is no branch that the processor could guess wrong.
        num = zero
        for i in range(start, end):
            rows[i + 1] = -1  # until it is found
            context = row_of_bos if tokens[i] == EOS_ID else np.int64(rows_below[i])
            where[num], contexts[num] = i, context
            num += np.int64(context >= 0)
        for k in range(num):
            fetch(begins, np.uint64(contexts[k]))
        # the range of each context's continuations; wide ones are narrowed down first
        num_wide = zero
        for k in range(num):
            begin = begins[np.uint64(contexts[k])]
            lows[k], sizes[k] = begin, begins[np.uint64(contexts[k]) + one] - begin
            wide[num_wide] = k
            num_wide += np.int64(sizes[k] > LINE)
        # without an index, by halving, all searches one step at a time
        num_open = zero
        for k in range(num_wide if slots.shape[0] == 0 else zero):
            search = np.uint64(wide[k])
            # words are sorted, so that word w is among the first w + 1
            most = np.int64(tokens[np.uint64(where[search]) + one]) + 1
            spare = np.int64(sizes[search]) - most  # x >> 63 is -1 below 0, else 0: a minimum
            sizes[search] = most + (spare & (spare >> 63))
            wide[num_open] = search
            num_open += np.int64(sizes[search] > LINE)
        while num_open > 0:
            num_left = zero
            for k in range(num_open):
                search = np.uint64(wide[k])
                size, low = np.int64(sizes[search]), np.int64(lows[search])
                half = size >> 1
                token = np.int64(tokens[np.uint64(where[search]) + one])
                lag = token - np.int64(words[np.uint64(low + half)])
                lows[search] = low + (half & ~(lag >> 63))  # 0 where the middle is past the token
                sizes[search] = size - half
                wide[num_left] = search
                num_left += np.int64(size - half > LINE)
            num_open = num_left
        # narrow ones are compared at once; those still wide are for the index
        num_open = zero
        for k in range(num):
            listed[num_open] = k
            num_open += np.int64(sizes[k] > 0) & np.int64(sizes[k] <= LINE)
        for k in range(num_open):
            fetch(words, np.uint64(lows[np.uint64(listed[k])]))
        for k in range(num_open):
            search = np.uint64(listed[k])
            at = np.uint64(where[search]) + one
            low, size = np.int64(lows[search]), np.int64(sizes[search])
            # what is compared begins with the cache line if that holds all, and is in the array
            base = low - ((low + lead) & (LINE - 1))
            base += (low - base) & ((base + LINE - low - size) >> 63)
            base &= ~(base >> 63)
            base += (last - base) & ((last - base) >> 63)
            # of the words in this range only; no bit left is row -1
            bits = ((one << np.uint64(size)) - one) << np.uint64(low - base)
            bits &= _matches(words, np.uint64(base), tokens[at])
            rows[at] = (base + np.int64(num_zeros(bits))) | -np.int64(bits == np.uint64(0))
        num_open = zero if slots.shape[0] == 0 else num_wide
        for k in range(num_open):
            search = np.uint64(wide[k])
            token = tokens[np.uint64(where[search]) + one]
            # hashed once for each token and order; a search goes on in the next slots
            places[k] = _slot(np.int64(contexts[search]), np.int64(token), slots.shape[0])
            fetch(slots, np.uint64(places[k]))
        while num_open > 0:
            for k in range(num_open):
                candidates[k] = slots[np.uint64(places[k])]
            for k in range(num_open):
                search = np.uint64(wide[k])
                row, low = np.int64(candidates[k]), np.int64(lows[search])
                # a row of another context, or none: it is not read, row 0 is in its place
                is_outside = ((row - low) | (low + np.int64(sizes[search]) - 1 - row)) >> 63
                listed[k] = row & ~is_outside
                fetch(words, np.uint64(listed[k]))
            for k in range(num_open):
                found[k] = words[np.uint64(listed[k])]
            num_left = zero
            for k in range(num_open):
                search = wide[k]
                at = np.uint64(where[np.uint64(search)]) + one
                row = np.int64(candidates[k])
                is_other = np.int64(found[k] != tokens[at]) | np.int64(listed[k] != candidates[k])
                # row 0 itself is in the place of row 0 where it is of another context
                is_other |= np.int64(row < lows[np.uint64(search)])
                rows[at] = row | -is_other
                # an empty slot, -1, ends a search; after the last slot comes the first
                place = np.int64(places[k]) + 1
                places[num_left] = place & ((place - slots.shape[0]) >> 63)
                wide[num_left] = search
                num_left += is_other & np.int64(row >= 0)
            num_open = num_left
        # the probability is read where no longer n-gram was found than at the order below
        num_matched, num_found = zero, zero
        for i in range(start, end):
            is_found = np.int64(rows[i + 1] >= 0)
            listed[num_matched] = i
            found[num_found] = i
            num_matched += np.int64(rows_below[i + 1] >= 0) & (1 - is_found)
            num_found += is_found
        for k in range(num_matched):
            fetch(log_probs_below, np.uint64(rows_below[np.uint64(listed[k]) + one]))
        for k in range(num_matched):
            at = np.uint64(listed[k])
            scores[at] = log_probs_below[np.uint64(rows_below[at + one])]
        for k in range(num_found):
            orders[np.uint64(found[k])] = order
        # a context without this word costs its backoff
        num_missing = zero
        for k in range(num):
            listed[num_missing] = k
            num_missing += np.int64(rows[np.uint64(where[k]) + one] < 0)
        for k in range(num_missing):
            fetch(backoffs_below, np.uint64(contexts[np.uint64(listed[k])]))
        for k in range(num_missing):
            search = np.uint64(listed[k])
            scores[np.uint64(where[search])] += backoffs_below[np.uint64(contexts[search])]
        if is_highest:
            for k in range(num_found):
                fetch(log_probs, np.uint64(rows[np.uint64(found[k]) + one]))
            for k in range(num_found):
                at = np.uint64(found[k])
                scores[at] = log_probs[np.uint64(rows[at + one])]


@compiled(types.void(types.int32[:, ::1], types.int64[::1], types.int32[:, ::1]))
def _take_rows(rows, places, contexts):  # type: ignore[no-untyped-def]
    """Copy the rows of some places, of all orders but the highest: those that are contexts."""
    for place in range(places.shape[0]):
        for column in range(contexts.shape[1]):
            contexts[place, column] = rows[column, places[place]]


class Scorer:
    """A table, and the indexes that pay once much was scored; they change no score.

    Args:
        table: of V words.
    """

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self._num_scored = 0
        self._levels = [_level_of(level) for level in table.levels]
        self._below = [
            Below(
                read_only(level.log_probs),
                read_only(level.backoffs),
                table.vocabulary_size if n == 1 else -1,
            )
            for n, level in enumerate(table.levels, start=1)
        ]

    def score(
        self, ids: Ids, contexts: Int32 | None = None, places: Longs | None = None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
        """Score whole sentences, each from `<s>`.

        Args:
            ids: [T], each in 0 to V - 1, `EOS_ID` after each sentence.
            contexts: [P, N - 1] of a table of order N is filled: in column n - 1 the row at order n
                of the n words before a token, -1 where the table does not hold them.
            places: [P], the tokens whose contexts these are, in order; all tokens when not given.

        Returns:
            The nats and the order matched of every token, [T] each.
        """
        levels = self.table.levels
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.table.vocabulary_size:
            raise ValueError("an id is outside the vocabulary")
        orders = np.ones(len(ids), np.int16)
        if len(levels) == 1:
            return levels[0].log_probs[ids].astype(np.float64), orders
        self._num_scored += len(ids)
        self._build_indexes()
        if contexts is not None and places is None:
            places = np.arange(len(ids))
        tokens = np.empty(len(ids) + 1, np.int32)
        tokens[0], tokens[1:] = EOS_ID, ids
        scores = np.empty(len(ids))
        rows = np.empty((len(levels), PIECE + 1), np.int32)
        rows[:, 0] = -1
        room = np.empty((9, CHUNK), np.int32)
        for begin in range(0, len(ids), PIECE):
            end = min(begin + PIECE, len(ids))
            piece = tokens[begin : end + 1]
            rows[0, : len(piece)] = piece
            for n in range(2, len(levels) + 1):
                found = scores[begin:end], orders[begin:end]
                text = Tokens(piece, rows[n - 2], rows[n - 1], *found)
                is_highest = n == len(levels)
                _extend(n, is_highest, self._levels[n - 1], self._below[n - 2], text, room)
            if contexts is not None and places is not None:
                # a row ends at its token, so it is the context of the next
                first, last = np.searchsorted(places, (begin, end))
                _take_rows(rows, places[first:last] - begin, contexts[first:last])
            rows[:, 0] = rows[:, end - begin]
        if contexts is not None and places is not None:
            at_start = np.flatnonzero(tokens[places] == EOS_ID)
            contexts[at_start] = -1
            contexts[at_start, 0] = self.table.vocabulary_size  # <s>
        return scores, orders

    def _build_indexes(self) -> None:
        """Index the orders for which it pays; from then on their slots are never all empty."""
        for n, level in enumerate(self.table.levels[1:], start=1):
            is_due = self._num_scored >= INDEX_AFTER * len(level)
            if is_due and not len(self._levels[n].slots):
                num_slots = min(2 * _num_indexed(level.begins) + 1, np.iinfo(np.int32).max)
                slots = np.full(num_slots, -1, np.int32)
                _fill_index(level.words, level.begins, slots)
                self._levels[n] = self._levels[n]._replace(slots=slots)


def _level_of(level: TableLevel) -> Level:
    words = level.words
    if len(words) < LINE:  # so many are compared at once
        words = np.pad(words, (0, LINE - len(words)))
    lead = words.ctypes.data // words.itemsize % LINE
    no_slots = np.empty(0, np.int32)
    begins, log_probs = read_only(level.begins), read_only(level.log_probs)
    return Level(read_only(words), lead, begins, no_slots, log_probs)
