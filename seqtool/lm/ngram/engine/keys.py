"""n-grams as whole numbers that an engine sorts, groups and joins by.

The words of an n-gram stand in columns of 63 bits, as many in one as fit, aligned at the end:

    order 5, 3 words a column      k2 = | w1 w2 |      k1 = | w3 w4 w5 |

So `ORDER BY k2, k1` is trie order, and the n-gram without its first word is in the same columns,
the highest bits of the top one cleared; that is all that the SQL of the plan has to do with words.

Every token ends one n-gram of each order. Where its sentence has not enough words before it, the
n-gram is filled up with `<s>`: `<s> <s> a b` is the longest n-gram that ends at this b. What begins
with two `<s>` is none of the model, but its end is. `<s>` has the highest id, V.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Ids, Ints, Longs
from seqtool.core.jit import compiled
from seqtool.core.vocabulary import EOS_ID

_BITS = 63  # of a column: numbers have a sign

_columns = types.int64[:, ::1]


@compiled(
    types.void(
        types.int32[::1],
        *[types.int64] * 4,
        types.int64[::1],
        _columns,
    )
)
def _pack(ids, bos, bits, per_column, top, state, columns):  # type: ignore[no-untyped-def]
    """Write the n-gram that ends at each of T tokens.

    Args:
        ids: of the tokens, [T].
        bos: the id of `<s>`.
        bits: of a word.
        per_column: words of a column.
        top: words of the top column.
        state: [K], the columns of the last n-gram, `<s>` in all places at the beginning of a
            sentence; updated.
        columns: [K, T], the top one first; written.
    """
    num_columns = columns.shape[0]
    mask, top_mask = (1 << (bits * per_column)) - 1, (1 << (bits * top)) - 1
    high = bits * (per_column - 1)
    for token in range(ids.shape[0]):
        word = np.int64(ids[token])
        # from the top: the column below is read before its first word leaves it
        for k in range(num_columns):
            kept = (mask if k else top_mask) >> bits  # all but the first word of the column
            below = state[k + 1] >> high if k + 1 < num_columns else word
            state[k] = ((state[k] & kept) << bits) | below
            columns[k, token] = state[k]
        # nothing of a sentence reaches into the next one
        if word == EOS_ID:
            fill = np.int64(0)
            for _ in range(per_column):
                fill = (fill << bits) | bos
            for k in range(num_columns):
                state[k] = fill & (mask if k else top_mask)


@dataclass(frozen=True)
class Keys:
    """How the n-grams of a vocabulary stand in columns.

    Attributes:
        vocabulary_size: V, the id of `<s>`.
    """

    vocabulary_size: int

    @cached_property
    def bits(self) -> int:
        """The bits of a word."""
        return self.vocabulary_size.bit_length()  # V is an id too

    @property
    def _per_column(self) -> int:
        return _BITS // self.bits

    def columns(self, order: int) -> list[str]:
        """Return the names of the columns of an order, the top one first."""
        return [f"k{k}" for k in range(-(-order // self._per_column), 0, -1)]

    def _top(self, order: int) -> int:
        """Return how many words the top column has."""
        return (order - 1) % self._per_column + 1

    def suffix(self, order: int) -> list[str]:
        """Return as SQL the columns of an n-gram without its first word; of order 2 and more."""
        top, *others = self.columns(order)
        words = self._top(order) - 1
        return [f"({top} & {(1 << self.bits * words) - 1})", *others] if words else others

    def word(self, order: int, place: int) -> str:
        """Return as SQL one word of an n-gram; places count from 0."""
        column, behind = divmod(order - 1 - place, self._per_column)
        return f"(k{column + 1} >> {self.bits * behind}) & {(1 << self.bits) - 1}"

    def from_start(self, order: int) -> str:
        """Return as SQL whether an n-gram begins with `<s>`."""
        shift = self.bits * (self._top(order) - 1)
        # no other first word makes so large a number: V is the highest id
        return f"{self.columns(order)[0]} >= {self.vocabulary_size << shift}"

    def is_filled_up(self, order: int) -> str:
        """Return as SQL whether an n-gram begins with `<s>` twice, so that it is none."""
        if order == 1:
            return "1 = 0"
        top, words = self.columns(order)[0], self._top(order)
        if words > 1:
            both = (self.vocabulary_size << self.bits) | self.vocabulary_size
            return f"{top} >= {both << self.bits * (words - 2)}"
        second = self.vocabulary_size << self.bits * (self._per_column - 1)
        return f"({self.from_start(order)} AND {self.columns(order)[1]} >= {second})"

    def values(self, words: Ids) -> list[int]:
        """Return the columns of one n-gram."""
        result: list[int] = []
        for n, word in enumerate(words.tolist()):
            if n == 0 or (len(words) - n) % self._per_column == 0:
                result.append(0)
            result[-1] = (result[-1] << self.bits) | word
        return result

    def new_context(self, columns: list[Longs]) -> Bools:
        """Return of n-grams in trie order, [R] a column, whether each has another context, [R-1].

        The first of them has no n-gram before it, and is left out.
        """
        *others, last = columns
        contexts = last >> self.bits
        result: Bools = contexts[1:] != contexts[:-1]
        for column in others:
            result |= column[1:] != column[:-1]
        return result

    def words(self, columns: list[Longs], order: int) -> Ints:
        """Return the words of n-grams, int32 [order, R]."""
        result = np.empty((order, len(columns[0])), np.int32)
        mask = (1 << self.bits) - 1
        for n in range(order):
            column, place = divmod(order - 1 - n, self._per_column)
            result[n] = (columns[len(columns) - 1 - column] >> (self.bits * place)) & mask
        return result

    def contexts(self, columns: list[Longs], order: int) -> list[Longs]:
        """Return the columns of n-grams without their last words."""
        result = []
        high = self.bits * (self._per_column - 1)
        for k, column in enumerate(columns):
            shorter = column >> self.bits
            if k:
                shorter |= (columns[k - 1] & ((1 << self.bits) - 1)) << high
            result.append(shorter)
        return result if self._top(order) > 1 else result[1:]


class Packer:
    """Makes n-grams of a text that comes in pieces.

    Args:
        keys: how they stand in columns.
        order: their length.
    """

    def __init__(self, keys: Keys, order: int) -> None:
        self._keys, self._top = keys, keys._top(order)
        fill = np.full(order, keys.vocabulary_size, np.int32)
        self._state = np.array(keys.values(fill), np.int64)

    def pack(self, ids: Ids) -> Longs:
        """Return the n-gram that ends at each token, [K, T], the top column first."""
        columns = np.empty((len(self._state), len(ids)), np.int64)
        keys = self._keys
        layout = keys.vocabulary_size, keys.bits, keys._per_column, self._top
        _pack(ids, *layout, self._state, columns)
        return columns
