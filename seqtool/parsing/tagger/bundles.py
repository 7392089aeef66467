"""Bundles: the combinations of UPOS, XPOS and FEATS that were met in training.

A word gets one of them as a whole, so that its three tags agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numba import types

from seqtool.core.arrays import Ints
from seqtool.core.compiled import compiled
from seqtool.treebank.sentence import FEATS, UPOS, XPOS

COLUMNS = (UPOS, XPOS, FEATS)

Bundle = tuple[str, str, str]


_ints = types.int32[::1]
_table = types.int32[:, ::1]


@compiled(types.void(types.float32[:, ::1], _table, _ints, _table, _ints))
def best_bundles(scores, bundles, starts, kept, best):  # type: ignore[no-untyped-def]
    """Choose the bundle of the highest score for each word; the first one of equals.

    Args:
        scores: [T, sum of the columns' values], of one column after another.
        bundles: [B, columns], the value of each column.
        starts: [columns], where the scores of each column begin.
        kept: [T, columns], the value that is there, -1 where there is none.
        best: [T], is written. As few kept values as can be differ from those of the bundle.
    """
    num_columns = bundles.shape[1]
    for token in range(scores.shape[0]):
        highest = np.float32(-np.inf)
        fewest = num_columns + 1
        for bundle in range(bundles.shape[0]):
            score, differing = np.float32(0.0), 0
            for column in range(num_columns):
                value = bundles[bundle, column]
                score += scores[token, starts[column] + value]
                wanted = kept[token, column]
                if wanted >= 0 and wanted != value:
                    differing += 1
            # tags that are there come first: no score outweighs one more that differs
            if differing < fewest or (differing == fewest and score > highest):
                highest, fewest = score, differing
                best[token] = bundle


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
        """Return the bundles that occur, the most frequent first."""
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
    """Return the number of the value that each column of a word has already, [T, 3]; -1: none.

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
