"""n-grams of every order with their counts, in trie order, counted by compiled loops.

Each order is read in the order of its n-grams, and that gives the next order. Every token ends one
n-gram of each order that its sentence has room for, so an n-gram in the text is known by its end.
Let the ends of all n-grams of order n be sorted by their n-grams. Going through them and dealing
each to the pile of the word before its n-gram, and then putting the piles one after another, sorts
the n-grams of order n+1: one stable pass of a radix sort, from the last word to the first, for each
order. What is known of an n-gram when it is dealt, its row, is the suffix of the longer one, so
that equal n-grams are told by first word and suffix alone:

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
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Ints, Longs
from seqtool.core.errors import DataError
from seqtool.core.jit import compiled
from seqtool.core.reading import Progress
from seqtool.core.runtime import check_memory
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.ngram.config import LESS_MEMORY

_END = 0x7FFFFFFF
_STARTS_CONTEXT = 0x80000000
_BLOCK = 512  # entries whose words are asked for ahead, so that the waits for memory overlap

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


class Range(NamedTuple):
    """What one part fills of a level: contexts of the order below, and rows from one on."""

    context: int
    last_context: int
    row: int


_piles = types.NamedTuple((_int64, _table, _table, _int64), Piles)
_dealt = types.NamedTuple((_int64, _table, _int64), Dealt)
# the arrays of a `CountLevel` that is being filled
_level = types.UniTuple(_int32, 5)
_range = types.NamedUniTuple(types.int64, 3, Range)


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
        types.int64, _int32, _piles, types.int64, types.int64, _range, _int32, _level, _dealt
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
        level: order n, its rows filled in; `adjusted` is empty at the last order.
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


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

MOST = 2**31 - 2  # tokens, and n-grams of one order


@dataclass(frozen=True)
class CountLevel:
    """The n-grams of one order, N rows in trie order; the order below has M.

    Attributes:
        words: int32 [N], the last word of each.
        begins: int32 [M + 1], the rows of context c are begins[c] to begins[c + 1] - 1; at order 1
            the only context is the empty one.
        suffixes: int32 [N], the row at the order below of the n-gram without its first word; empty
            at order 1.
        counts: int32 [N], occurrences in the text.
        adjusted: int32 [N], the number of distinct words before it; `counts` itself at the highest
            order and for n-grams that begin with `<s>` (Kneser & Ney 1995; Heafield et al. 2013).
    """

    words: Int32
    begins: Int32
    suffixes: Int32
    counts: Int32
    adjusted: Int32

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Counts:
    """The n-grams of orders 1 to N.

    Attributes:
        levels: one per order; order 1 has V + 1 rows, the row is the word, `<s>` the last.
        vocabulary_size: V.
        num_tokens: tokens of the text, one `</s>` per sentence counted, `<s>` not.
        num_sentences: sentences of the text.
        last_in_suffix_order: per order below the highest, the row that comes last when n-grams are
            sorted from their last word to their first, words in order of first occurrence; not for
            orders above one where that begins with `<s>`. Empty when not asked for.
    """

    levels: tuple[CountLevel, ...]
    vocabulary_size: int
    num_tokens: int
    num_sentences: int
    last_in_suffix_order: tuple[int, ...] = ()

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.levels)


def count_ngrams(
    ids: npt.NDArray[Any],
    order: int,
    vocabulary_size: int,
    *,
    threads: int = 1,
    kenlm_quirk: bool = False,
    memory: int | None = None,
    on_progress: Progress | None = None,
) -> Counts:
    """Count the n-grams of all orders up to one; none goes beyond its sentence.

    Args:
        ids: the text, shape (tokens,), `EOS_ID` after each sentence and no `<s>`.
        order: the length of the longest n-grams; `<s>` and `</s>` count.
        vocabulary_size: V; all ids are less.
        threads: how many to use; the result is the same.
        kenlm_quirk: fill `last_in_suffix_order`.
        memory: how many bytes the process may take; what the machine has when None.
        on_progress: called with (orders done, their number).

    Raises:
        DataError: no text, ids that are none of this vocabulary, an order that no sentence is long
            enough for, too many tokens or n-grams, more n-grams than memory has room for.
    """
    if not 0 < len(ids) <= MOST:
        problem = f"{len(ids):,} tokens are too many" if len(ids) else "there is no text"
        raise DataError(problem, hint=f"give a text of 1 to {MOST:,} tokens")
    text = np.ascontiguousarray(ids, np.int32)
    if text[-1] != EOS_ID:
        raise DataError("the last sentence has no end", hint="prepare the text again")
    levels: list[CountLevel] = []
    with ThreadPoolExecutor(threads) as pool:
        piles = _Piles(text, vocabulary_size, threads, pool, memory)
        refuse_high_order(order, piles.longest)
        for n in range(1, order + 1):
            is_last = n == order
            levels.append(
                piles.read_words(is_last) if n == 1 else piles.read(n, levels[-1], is_last)
            )
            if on_progress is not None:
                on_progress(n, order)
    last = _last_in_suffix_order(levels, text) if kenlm_quirk else []
    num_sentences = int(levels[0].counts[vocabulary_size])
    return Counts(tuple(levels), vocabulary_size, len(text), num_sentences, tuple(last))


def refuse_high_order(order: int, longest: int) -> None:
    """Refuse an order that no sentence is long enough for, the longest having so many tokens.

    Raises:
        DataError: so it is.
    """
    if order > longest + 1:
        raise DataError(
            f"order {order} is more than the longest sentence has room for, which has "
            f"{longest - 1} words",
            hint=f"choose an order up to {longest + 1}: <s> and </s> count as words",
        )


class _Piles:
    """The ends of all n-grams of one order, a pile for each first word.

    Args:
        ids: the text, int32 [T].
        vocabulary_size: V.
        num_parts: K, how many parts the work is divided into.
        pool: does the parts at the same time.
        memory: as for `count_ngrams`.

    Attributes:
        counts: int32 [V + 1], occurrences of each word, and of `<s>`.
        longest: tokens of the longest sentence.
    """

    def __init__(
        self,
        ids: Int32,
        vocabulary_size: int,
        num_parts: int,
        pool: ThreadPoolExecutor,
        memory: int | None,
    ) -> None:
        self._ids, self._pool, self._parts = ids, pool, range(num_parts)
        self._memory = memory
        ends = _cut_sentences(ids, num_parts)
        texts = [ids[ends[part] : ends[part + 1]] for part in self._parts]
        room = np.zeros((num_parts, vocabulary_size + 1), np.int32)
        lengths = self._each(lambda part: count_words(texts[part], room[part, :-1]))
        if min(lengths) < 0:
            raise DataError("the ids are not of this vocabulary", hint="prepare the text again")
        self.longest = max(lengths)
        self.counts = room.sum(axis=0, dtype=np.int32)
        self.counts[-1] = self.counts[EOS_ID]
        self._cuts = _cut_words(self.counts, num_parts)

        self._starts = _lay_out(room)  # of the runs of each pile in the entries, int32 [K, V + 1]
        self._stops = self._starts.copy()
        self._entries = np.zeros(len(ids), np.int64)
        self._spare = self._entries[:0]  # the room for the next order
        rooms = np.zeros((num_parts, num_parts, vocabulary_size + 1), np.int32)
        self._each(
            lambda part: deal_words(
                texts[part], ends[part], self._stops[part], self._cuts, self._entries, rooms[part]
            )
        )
        self._later_starts = _lay_out(rooms.sum(axis=0, dtype=np.int32))  # from order 2 on
        self._rows = self._cuts  # of the piles' n-grams, by part, int64 [K + 1]

    def read_words(self, is_last: bool) -> CountLevel:
        """Return order 1; replace the piles by those of order 2 unless it is the last."""
        words = np.arange(len(self.counts), dtype=np.int32)
        begins = np.array([0, len(words)], np.int32)
        if is_last:
            return CountLevel(words, begins, np.empty(0, np.int32), self.counts, self.counts)
        adjusted = np.zeros_like(self.counts)
        adjusted[-1] = self.counts[-1]

        piles = self._piles()
        self._deal(lambda part, dealt: deal_pairs(piles, *self._words(part), adjusted, dealt))
        return CountLevel(words, begins, np.empty(0, np.int32), self.counts, adjusted)

    def read(self, order: int, below: CountLevel, is_last: bool) -> CountLevel:
        """Return an order from 2 up; replace the piles by those of the next.

        Args:
            order: the order of the piles.
            below: the order below.
            is_last: this is the highest order.
        """
        num_rows = int(self._rows[-1])
        if num_rows > MOST:
            raise DataError(
                f"{num_rows:,} different {order}-grams are too many", hint="choose a lower order"
            )
        if is_last:
            self._spare = self._spare[:0].copy()  # make room for what is returned
        num_bytes = 4 * (5 * num_rows + len(below))
        check_memory(num_bytes, f"{num_rows:,} different {order}-grams", LESS_MEMORY, self._memory)
        words, suffixes, counts = (np.empty(num_rows, np.int32) for _ in range(3))
        adjusted = np.empty(0 if is_last else num_rows, np.int32)
        begins = np.empty(len(below) + 1, np.int32)
        begins[-1] = num_rows
        level = words, begins, suffixes, counts, adjusted
        piles, rows, contexts = self._piles(), self._rows, self._contexts

        def deal(part: int, dealt: Dealt) -> None:
            filled = Range(int(contexts[part]), int(contexts[part + 1]), int(rows[part]))
            read_level(
                order, self._ids, piles, *self._words(part), filled, below.words, level, dealt
            )

        self._deal(deal, is_last)
        return CountLevel(words, begins, suffixes, counts, counts if is_last else adjusted)

    def _piles(self) -> Piles:
        return Piles(self._entries, self._starts, self._stops, self._cuts)

    def _words(self, part: int) -> tuple[int, int]:
        """Return the first of the words that are a part's, and one past the last."""
        return int(self._cuts[part]), int(self._cuts[part + 1])

    def _deal(self, deal: Callable[[int, Dealt], None], is_last: bool = False) -> None:
        """Have each part read its piles, and take what was dealt as the new piles."""
        num_parts = len(self._parts)
        if not len(self._spare) and not is_last:
            self._spare = np.zeros_like(self._entries)
        heads = np.full((num_parts, len(self.counts), 2), -1, np.int32)
        heads[:, :, 0] = self._later_starts
        found = np.zeros((num_parts, num_parts), np.int64)
        self._each(lambda part: deal(part, Dealt(self._spare, heads[part], found[part])))
        self._entries, self._spare = self._spare, self._entries
        self._starts = self._later_starts
        self._stops = heads[:, :, 0].copy()
        self._contexts, self._rows = self._rows, np.append(0, np.cumsum(found.sum(axis=0)))

    def _each(self, work: Callable[[int], Any]) -> list[Any]:
        return list(self._pool.map(work, self._parts))


def _cut_sentences(ids: Int32, num_parts: int) -> list[int]:
    """Return where parts of about the same length begin and end, each of whole sentences."""
    cuts = [0]
    for part in range(1, num_parts):
        cut = max(cuts[-1], part * len(ids) // num_parts)
        while cut > cuts[-1] and ids[cut - 1] != EOS_ID:
            cut += 1
        cuts.append(cut)
    return [*cuts, len(ids)]


def _cut_words(counts: Int32, num_parts: int) -> Int64:
    """Return where parts of the words begin and end that occur about equally often."""
    totals = np.cumsum(counts, dtype=np.int64)
    wanted = totals[-1] * np.arange(1, num_parts) // num_parts
    return np.concatenate(([0], np.searchsorted(totals, wanted), [len(counts)])).astype(np.int64)


def _lay_out(room: Int32) -> Int32:
    """Return where the runs begin, pile by pile, of which `room` [K, V + 1] gives the lengths."""
    lengths = room.T.ravel()
    starts = np.cumsum(lengths, dtype=np.int32) - lengths
    return np.ascontiguousarray(starts.reshape(room.T.shape).T, np.int32)


def _last_in_suffix_order(levels: list[CountLevel], ids: Int32) -> list[int]:
    """Return per order below the highest the row of its last n-gram in suffix order.

    The n-grams are compared from their last word to their first; words are in the order in which
    they first occur, after `<unk>`, `<s>` and `</s>`. The last n-gram of an order extends that of
    the order below; once one begins with `<s>`, the higher orders have none.
    """
    ranks = np.full(len(levels[0]), -4)
    ranks[ids] = len(ids)
    np.minimum.at(ranks, ids, np.arange(len(ids)))
    ranks[[UNK_ID, -1, EOS_ID]] = [-3 if levels[0].counts[UNK_ID] else -4, -2, -1]
    result: list[int] = []
    for n in range(len(levels) - 1):
        rows = np.flatnonzero(levels[n].suffixes == result[-1]) if n else levels[0].words
        if not len(rows):
            break
        first_words = rows
        for level in levels[n:0:-1]:
            first_words = np.searchsorted(level.begins, first_words, side="right") - 1
        result.append(int(rows[ranks[first_words].argmax()]))
    return result
