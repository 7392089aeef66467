"""The labels of a parser's arcs, by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seqtool.core.arrays import Ints


def is_root_label(label: str) -> bool:
    """Return whether Universal Dependencies keep a label for the arc from ROOT."""
    return label == "root" or label.startswith("root:")


@dataclass(frozen=True)
class Labels:
    """The labels of a parser: of arcs between words, then of arcs from ROOT.

    A label's id is its place in `arcs + roots`. In a treebank whose arcs from ROOT bear `root`, no
    other arc bears it, whatever single lines of the treebank say.
    """

    arcs: tuple[str, ...]
    roots: tuple[str, ...]

    @classmethod
    def of(cls, trees: Iterable[tuple[Sequence[int], Sequence[str]]]) -> Labels:
        """Return the labels of trees, the most frequent first.

        Args:
            trees: of each sentence, the heads (0 for ROOT) and labels of its words.
        """
        arcs: Counter[str] = Counter()
        roots: Counter[str] = Counter()
        for heads, labels in trees:
            for head, label in zip(heads, labels, strict=True):
                (arcs if head else roots)[label] += 1
        if any(map(is_root_label, roots)):
            arcs = Counter({label: n for label, n in arcs.items() if not is_root_label(label)})
            roots = Counter({label: n for label, n in roots.items() if is_root_label(label)})
        return cls(
            arcs=tuple(label for label, _ in arcs.most_common()) or ("dep",),
            roots=tuple(label for label, _ in roots.most_common()) or ("root",),
        )

    def __len__(self) -> int:
        return len(self.arcs) + len(self.roots)

    @property
    def names(self) -> tuple[str, ...]:
        """Label ids to labels."""
        return self.arcs + self.roots

    @property
    def num_transitions(self) -> int:
        """How many transitions there are, in any system."""
        return 2 + 2 * len(self.arcs) + len(self.roots)

    @property
    def segments(self) -> Ints:
        """Action a has the transitions from `segments[a]` to below `segments[a + 1]`; int32 [6]."""
        arcs, roots = len(self.arcs), len(self.roots)
        return np.cumsum([0, 1, 1, arcs, arcs, roots], dtype=np.int32)

    def action_of(self, transition: int) -> tuple[int, int]:
        """Return the action of a transition, and the id of the label of its arc; -1 without one."""
        if transition < 2:
            return transition, -1
        action = int(np.searchsorted(self.segments, transition, side="right")) - 1
        # labels of arcs from ROOT are numbered on from the others, as these transitions are
        is_left = transition < 2 + len(self.arcs)
        return action, transition - 2 if is_left else transition - 2 - len(self.arcs)

    def ids(self, heads: Sequence[int], labels: Sequence[str]) -> list[int]:
        """Return the ids of a tree's labels; one not known here counts as the most frequent one."""
        first = len(self.arcs)
        arc_ids, root_ids = self._ids
        return [
            arc_ids.get(label, 0) if head else root_ids.get(label, first)
            for head, label in zip(heads, labels, strict=True)
        ]

    @cached_property
    def _ids(self) -> tuple[dict[str, int], dict[str, int]]:
        return (
            {label: index for index, label in enumerate(self.arcs)},
            {label: index for index, label in enumerate(self.roots, len(self.arcs))},
        )
