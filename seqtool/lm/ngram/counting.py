"""Compiled counting: each order is read in the order of its n-grams, and that gives the next order.

Every token ends one n-gram of each order that its sentence has room for, so an n-gram in the text
is known by its end. Let the ends of all n-grams of order n be sorted by their n-grams. Going
through them and dealing each to the pile of the word before its n-gram, and then putting the piles
one after another, sorts the n-grams of order n+1: one stable pass of a radix sort, from the last
word to the first, for each order. What is known of an n-gram when it is dealt, its row, is the
suffix of the longer one, so that equal n-grams are told by first word and suffix alone:

    the text          a b a </s>           ends: 0 1 2 3

    piles of order 1  </s>: 3     a: 0 2   b: 1
    piles of order 2  a: 3 1      b: 2     <s>: 0      that is, "a </s>", "a b", "b a", "<s> a"

An entry of a pile is one integer, of the n-gram's suffix (its row at the order below), whether the
n-gram is the first of its context, and its end:

    suffix, 31 bits | is the first, 1 bit | end, 31 bits

`<s>` stands in no text: it is the `</s>` before a sentence, read from the right.

Work is shared among threads by first words: part t deals the n-grams whose first word is in
cuts[t]:cuts[t+1]. Each pile has one run of room for every part, as long as the tokens that follow
its word in the text and are in that part; an order fills it, less what sentences end too early.

This module imports Numba (0.3 s), so it is imported on use only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Ints, Longs
from seqtool.core.compiled import compiled
from seqtool.core.vocabulary import EOS_ID

_END = 0x7FFFFFFF
_STARTS_CONTEXT = 0x80000000
_BLOCK = 512

_int32 = types.int32[::1]
_int64 = types.int64[::1]
_table = types.int32[:, ::1]


class Piles(NamedTuple):
    """The piles of one order; K parts, T tokens, V + 1 words.

    Attributes:
        entries: int64 [T].
        starts: int32 [K, V + 1], where each part's run of each pile begins in the entries.
        stops: int32 [K, V + 1], where it ends.
        cuts: int64 [K + 1], the first words of each part.
    """

    entries: Longs
    starts: Ints
    stops: Ints
    cuts: Longs


class Dealt(NamedTuple):
    """What one part deals to the piles of the next order.

    Attributes:
        entries: int64 [T], of all parts; each has runs of its own.
        heads: int32 [V + 1, 2], of each pile where the next entry goes, and the last row that was
            dealt to it.
        found: int64 [K], how many n-grams of the next order begin with a word of each part.
    """

    entries: Longs
    heads: Ints
    found: Longs


class Level(NamedTuple):
    """The arrays of a `CountLevel` that is being filled; `adjusted` is empty at the last order."""

    words: Ints
    begins: Ints
    suffixes: Ints
    counts: Ints
    adjusted: Ints


class Range(NamedTuple):
    """What one part fills of a level: contexts of the order below, and rows from one on."""

    context: int
    last_context: int
    row: int


_piles = types.NamedTuple((_int64, _table, _table, _int64), Piles)  # type: ignore[no-untyped-call]
_dealt = types.NamedTuple((_int64, _table, _int64), Dealt)  # type: ignore[no-untyped-call]
_level = types.NamedUniTuple(_int32, 5, Level)  # type: ignore[no-untyped-call]
_range = types.NamedUniTuple(types.int64, 3, Range)  # type: ignore[no-untyped-call]


@compiled(types.void(_int32, _int32, _int32))
def renumber(ids, final_ids, result):  # type: ignore[no-untyped-def]
    """Exchange provisional ids for final ones."""
    for token in range(ids.shape[0]):
        result[token] = final_ids[ids[token]]


@compiled(types.int64(_int32, _int32))
def count_words(ids, counts):  # type: ignore[no-untyped-def]
    """Count words; return the length of the longest sentence with its `</s>`, -1 for a bad id."""
    longest = length = 0
    for token in range(ids.shape[0]):
        word = ids[token]
        if word < 0 or word >= counts.shape[0]:
            return -1
        counts[word] += 1
        length += 1
        if word == EOS_ID:
            longest = max(longest, length)
            length = 0
    return longest


@compiled(types.void(_int32, types.int64, _int32, _int64, _int64, _table))
def deal_words(ids, first_token, heads, cuts, entries, room):  # type: ignore[no-untyped-def]
    """Deal the tokens of whole sentences to the piles of their words: order 1.

    In place of a suffix, an entry holds the word before. `room[t, w]` gets the number of tokens
    that follow w (`<s>`: begin a sentence) and are in part t.
    """
    bos = heads.shape[0] - 1
    before = bos
    for token in range(ids.shape[0]):
        word = ids[token]
        head = heads[word]
        entries[head] = (before << 32) | (first_token + token)
        heads[word] = head + 1
        part = 0
        while word >= cuts[part + 1]:  # few parts: faster than a search
            part += 1
        room[part, before] += 1
        before = bos if word == EOS_ID else word


@compiled(types.void(_piles, types.int64, types.int64, _int32, _dealt))
def deal_pairs(piles, first, last, adjusted, dealt):  # type: ignore[no-untyped-def]
    """Read the piles first:last of order 1, and deal what they hold to those of order 2."""
    source, starts, stops, cuts = piles
    target, heads, found = dealt
    for word in range(first, last):
        # the parts in their order, which is that of the text: dealing is a stable sort
        for run in range(starts.shape[0]):
            for i in range(starts[run, word], stops[run, word]):
                before = source[i] >> 32
                if heads[before, 1] < word:  # this pair is dealt for the first time
                    heads[before, 1] = word
                    adjusted[word] += 1
                    part = 0
                    while before >= cuts[part + 1]:
                        part += 1
                    found[part] += 1
                head = heads[before, 0]
                target[head] = (word << 32) | (source[i] & _END)
                heads[before, 0] = head + 1


@compiled(
    types.void(
        *(types.int64, _int32, _piles, types.int64, types.int64),
        *(_range, _int32, _level, _dealt),
    )
)
def read_level(  # type: ignore[no-untyped-def]
    order, ids, piles, first, last, filled, context_words, level, dealt
):
    """Read the piles first:last of an order from 2 up, and deal what they hold to the next order.

    Args:
        order: n.
        ids: the text.
        piles: of order n.
        first: of the words whose piles are read.
        last: one past them.
        filled: the contexts and rows that these make.
        context_words: the last word of each n-gram of the order below.
        level: order n, its rows filled in.
        dealt: receives the entries of order n + 1; nothing at the last order.
    """
    source, starts, stops, cuts = piles
    words, begins, suffixes, counts, adjusted = level
    target, heads, found = dealt
    bos = heads.shape[0] - 1
    is_last = adjusted.shape[0] == 0
    row, context = filled.row - 1, filled.context - 1
    context_row = 0  # the first row of the context
    befores = np.empty(_BLOCK, np.int32)
    lasts = np.empty(_BLOCK, np.int32)
    block = np.int64(-_BLOCK)
    for word in range(first, last):
        if order == 2:  # the context is the word, whether it is in the text or not
            context = word
            context_row = row + 1
            begins[word] = row + 1
        suffix = -1  # equal n-grams have one first word and one suffix, and lie side by side
        for run in range(starts.shape[0]):
            for i in range(starts[run, word], stops[run, word]):
                if i >= block + _BLOCK:
                    # many at once, so that the waits for memory overlap; between piles, entries
                    # are old or 0, and what is read for them is not used
                    block = np.int64(i)
                    for k in range(min(_BLOCK, source.shape[0] - block)):
                        end = source[block + k] & _END
                        lasts[k] = ids[end]
                        befores[k] = ids[max(end - order, 0)]
                entry = source[i]
                end = entry & _END
                if entry >> 32 != suffix:  # the next n-gram
                    suffix = entry >> 32
                    row += 1
                    words[row] = lasts[i - block]
                    suffixes[row] = suffix
                    counts[row] = 0
                    if not is_last:
                        adjusted[row] = 0
                    if entry & _STARTS_CONTEXT:
                        context += 1
                        while context_words[context] == EOS_ID:  # which nothing follows
                            begins[context] = row
                            context += 1
                        begins[context] = row
                        context_row = row
                counts[row] += 1
                if is_last:
                    continue
                if word == bos:  # nothing stands before it: its count is the adjusted one
                    adjusted[row] += 1
                    continue
                before = befores[i - block]
                if before == EOS_ID or end < order:
                    before = bos
                head, latest = heads[before, 0], heads[before, 1]
                starts_context = 0
                if latest < row:  # a longer n-gram that was not met yet
                    heads[before, 1] = row
                    adjusted[row] += 1
                    part = 0
                    while before >= cuts[part + 1]:
                        part += 1
                    found[part] += 1
                    if latest < context_row:  # nor any of its context
                        starts_context = _STARTS_CONTEXT
                target[head] = (row << 32) | starts_context | end
                heads[before, 0] = head + 1
    if order > 2:  # contexts after the last one that has any n-gram
        for rest in range(context + 1, filled.last_context):
            begins[rest] = row + 1
