"""The values of words that features are made of, as numbers; see `encoding.sparse`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.parsing.encoding.features import FIELDS, ROOT, ROOT_TYPE, SymbolTable, Types

# a word's attributes: groups of symbols of which every type has exactly one
ATTRIBUTES = {
    group: field
    for field, groups in FIELDS.items()
    for group, (_, _, most) in groups.items()
    if most == 1
}


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
