"""Features by number: values of words, and the hash by which they find their weights.

A feature is its template's number and some values; its hash is a place in an array of 2^bits
weights. Features that share a place share its weight (Weinberger et al. 2009): what is rare is
then learnt less well, and nothing has to be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Ints
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.features import FIELDS, ROOT, ROOT_TYPE, SymbolTable, Types

# a word's attributes: groups of symbols of which every type has exactly one
ATTRIBUTES = {
    group: field
    for field, groups in FIELDS.items()
    for group, (_, _, most) in groups.items()
    if most == 1
}

# an odd number, whose product takes the low bits of a value to all bits above (Knuth: 2^64 / the
# golden ratio), as Numba has it: a whole number with a sign
FACTOR = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
TOP = np.int64(36)  # bits from here on are the best mixed ones


@compiled(types.int64(types.int64, types.int64))
def mix(state, value):  # type: ignore[no-untyped-def]
    """Return the state of a hash after one more value; products wrap around."""
    state = (state ^ value) * FACTOR
    # the high bits are mixed best; they come down to where the next product spreads them
    return state ^ (state >> 32)


@compiled(types.int64(types.int64, types.int64))
def place_of(state, num_bits):  # type: ignore[no-untyped-def]
    """Return the place of a feature among 2^num_bits weights, of no more than 26 bits."""
    # 26 bits from bit 36 on stay below the sign, which the shift would repeat
    return (state * FACTOR) >> TOP & ((1 << num_bits) - 1)


class Values:
    """The attributes of all types met so far, as numbers.

    Args:
        attributes: names in `ATTRIBUTES`, whose fields the types are read by.

    Attributes:
        table: int32 [num_types, num_attributes]; 0 where no word is, else the number of a symbol.
    """

    def __init__(self, attributes: Sequence[str]) -> None:
        self.attributes = tuple(attributes)
        self._room: Ints = np.zeros((0, len(self.attributes)), np.int32)
        self.num_types = 0

    @property
    def table(self) -> Ints:
        """See above."""
        return self._room[: self.num_types]

    def extend(self, types_met: Types) -> None:
        """Add the types that were met since the last time."""
        begin, end = self.num_types, len(types_met)
        if end > len(self._room):
            grown = np.zeros((end + end // 4, len(self.attributes)), np.int32)
            grown[:begin] = self.table
            self._room = grown
        if end > begin:
            rows = self._room[begin:end]
            tables = (types_met.lexical, types_met.tags)
            for symbols, table in zip(types_met.arrays(begin), tables, strict=True):
                for place, name in enumerate(self.attributes):
                    if name in table.groups:
                        rows[:, place] = _symbols_of(symbols, table, name)
            if begin <= ROOT_TYPE < end:
                rows[ROOT_TYPE - begin] = ROOT
        self.num_types = end

    def clear(self) -> None:
        """Forget all types; the memory is kept for others."""
        self.num_types = 0


def _symbols_of(rows: Ints, table: SymbolTable, group: str) -> Ints:
    """Return of each type, a row of symbols, the one of a group; 0 of those that have none."""
    first, last = table.range_of(group)
    inside = (rows >= first) & (rows <= last)
    found: Ints = np.where(inside, rows, 0).max(axis=1)
    return found
