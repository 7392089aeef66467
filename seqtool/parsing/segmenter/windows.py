"""Long sequences read in windows, so that the states of a place do not depend on what is far away.

    sequence   a b c d e f g h i j
    windows    a b c d e +             `+` is read for the context of what comes before it,
                   + + f g h i j       or after, and its states are not used

A sequence of up to `size` + 2 * `context` places is one window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqtool.parsing.segmenter.characters import Ints64


@dataclass(frozen=True)
class Windows:
    """The windows of sequences that stand one after another, W of them, in order.

    Attributes:
        begins, ends: the places of what is used of each; together, these are all places.
        read_begins, read_ends: the places of what is read, [W].
    """

    begins: Ints64
    ends: Ints64
    read_begins: Ints64
    read_ends: Ints64

    @classmethod
    def over(cls, lengths: Ints64, size: int, context: int) -> Windows:
        """Lay windows over sequences.

        Args:
            lengths: of the sequences, 1 or more.
            size: places of a window that are used.
            context: places read before and after them.
        """
        counts = np.where(lengths <= size + 2 * context, 1, -(-lengths // size))
        firsts = np.repeat(np.cumsum(lengths) - lengths, counts)
        lasts = np.repeat(np.cumsum(lengths), counts)
        number = np.arange(len(firsts)) - np.repeat(np.cumsum(counts) - counts, counts)
        single = np.repeat(counts == 1, counts)
        begins = firsts + number * size
        ends = np.where(single, lasts, np.minimum(begins + size, lasts))
        return cls(
            begins, ends, np.maximum(begins - context, firsts), np.minimum(ends + context, lasts)
        )

    def groups(self, limit: int) -> Iterator[Windows]:
        """Give windows in groups that read about so many places together, in order."""
        read = np.cumsum(self.read_ends - self.read_begins) // limit
        cuts = np.flatnonzero(np.diff(read)) + 1
        for begin, end in zip([0, *cuts], [*cuts, len(self.begins)], strict=True):
            part = slice(begin, end)
            yield Windows(
                self.begins[part], self.ends[part], self.read_begins[part], self.read_ends[part]
            )

    def places(self) -> Ints64:
        """The places that are read, one window after another."""
        return ranges(self.read_begins, self.read_ends)

    def used(self) -> Ints64:
        """Which of `places` are used, ascending; each place of the sequences is once."""
        lengths = self.read_ends - self.read_begins
        origin = np.cumsum(lengths) - lengths - self.read_begins
        return ranges(self.begins + origin, self.ends + origin)


def ranges(begins: Ints64, ends: Ints64) -> Ints64:
    """The numbers from each begin to its end, one range after another."""
    sizes = ends - begins
    shifts: Ints64 = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    return shifts + np.arange(len(shifts))
