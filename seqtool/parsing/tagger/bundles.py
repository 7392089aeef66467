"""Bundles: the combinations of UPOS, XPOS and FEATS that were met in training.

A word gets one of them as a whole, so that its three tags agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.treebank.sentence import FEATS, UPOS, XPOS

COLUMNS = (UPOS, XPOS, FEATS)

Bundle = tuple[str, str, str]


class Bundles:
    """The bundles, and the values of each column.

    Args:
        names: in the order of their numbers.
    """

    def __init__(self, names: Sequence[Bundle]) -> None:
        self.names = tuple(names)
        # of each column, value -> number, in the order in which bundles first have them
        self.values: tuple[dict[str, int], ...] = tuple({} for _ in COLUMNS)
        for bundle in self.names:
            for numbers, value in zip(self.values, bundle, strict=True):
                numbers.setdefault(value, len(numbers))
        self.ids = {bundle: number for number, bundle in enumerate(self.names)}

    @classmethod
    def build(cls, counts: Mapping[Bundle, int]) -> Self:
        """Those that occur, of which the numbers are given, the commonest first."""
        return cls(sorted(counts, key=lambda bundle: (-counts[bundle], bundle)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def table(self) -> Ints:
        """The value of each column in each bundle, [B, 3]."""
        rows = [
            [numbers[value] for numbers, value in zip(self.values, bundle, strict=True)]
            for bundle in self.names
        ]
        return np.asarray(rows, np.int32).reshape(-1, len(COLUMNS))

    @cached_property
    def starts(self) -> Ints:
        """Where the values of each column begin among those of all, [3]."""
        sizes = [len(numbers) for numbers in self.values]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int32)

    @property
    def num_values(self) -> int:
        """Values of all columns together."""
        return sum(len(numbers) for numbers in self.values)

    @classmethod
    def of(cls, table: Sequence[Sequence[Any]]) -> Self:
        """Return the bundles of a vocabulary's table.

        Raises:
            ValueError: it is not that.
        """
        names = [(str(upos), str(xpos), str(feats)) for upos, xpos, feats in table]
        if not names or len(set(names)) < len(names):
            raise ValueError("bundles are missing, or met twice")
        return cls(names)


def values_there(rows: Sequence[Sequence[str]], values: Sequence[Mapping[str, int]]) -> Ints:
    """The number of the value of each column that a sentence has already, [T, 3]; -1 for none.

    A word has no UPOS if that is `_`. In XPOS and FEATS `_` is a value too: these are missing where
    no word of the sentence has any.
    """
    there = np.full((len(rows), len(COLUMNS)), -1, np.int32)
    for place, (column, numbers) in enumerate(zip(COLUMNS, values, strict=True)):
        found = [row[column] for row in rows]
        if found.count("_") == len(found):
            continue
        there[:, place] = [numbers.get(value, -1) for value in found]
        if column == UPOS:
            there[[value == "_" for value in found], place] = -1
    return there
