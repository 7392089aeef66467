"""Configurations of transition systems in flat arrays, the numbering of transitions, and labels.

A batch of sentences lies in flat token arrays (forms, tags, gold heads, ...), whose row 0 is NONE.
A sentence of n words has its ROOT at row t = TOKENS and word i at row t + i; the next one begins
at t + n + 1. Inside a configuration, words are numbered within their sentence: 0 ROOT, 1..n.

    configs  int32 [num_configs, 6]     one configuration per row; a lane, a hypothesis
      BASE        its first row in `nodes`; it owns BASE .. BASE + n
      TOKENS      the row of its sentence's ROOT in the token arrays
      LENGTH      n
      STACK_SIZE  elements on the stack; the bottom one is ROOT
      FRONT       the position of the buffer's first word; LENGTH + 1 when it is empty
      UNATTACHED  words without a head; 0: the configuration is final

    nodes    int32 [num_rows, 10]       row BASE + i belongs to word i, but for the last two columns
      HEAD        -1: none yet
      LABEL       -1: none yet; else a label's id (see Labels)
      LEFT1, LEFT2, RIGHT1, RIGHT2
                  leftmost, second leftmost, rightmost, second rightmost child; 0: none
      NUM_LEFT, NUM_RIGHT
                  how many children on either side
      STACK       row BASE + p: the word at position p of the stack, 0 the bottom
      BUFFER      row BASE + p: the word at position p of the buffer, FRONT <= p <= LENGTH

      s0 = nodes[BASE + STACK_SIZE - 1, STACK]     b0 = nodes[BASE + FRONT, BUFFER]

A transition's number, with A labels of arcs between words and R labels of arcs from ROOT:

    0               SHIFT
    1               REDUCE (arc-eager), SWAP (swap); never legal elsewhere
    2 + l           LEFT-ARC with label l < A
    2 + A + l       RIGHT-ARC with label l < A, from a word
    2 + 2A + r      the arc from ROOT, with label A + r, r < R

These five segments are the actions. Legality is a matter of the action alone: bit a of a mask.

    arc-standard  SHIFT; LEFT s1 <- s0, pops s1; RIGHT s1 -> s0, pops s0       Nivre 2004
    swap          the same; SWAP puts s1 back as b0                            Nivre 2009
    arc-hybrid    SHIFT; LEFT s0 <- b0, pops s0; RIGHT s1 -> s0, pops s0       Kuhlmann et al. 2011
    arc-eager     SHIFT; LEFT s0 <- b0, pops s0; RIGHT s0 -> b0, pushes b0;    Nivre 2003
                  REDUCE pops s0, which has a head

Every sequence of legal transitions ends in a tree with exactly one arc from ROOT. In the first
three, that arc is legal only as the last one. In arc-eager it is legal whenever nothing but ROOT is
on the stack; its dependent is never reduced, so that it comes once; and the last word is not
shifted, and takes a head only when every word on the stack has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Ints

BASE, TOKENS, LENGTH, STACK_SIZE, FRONT, UNATTACHED = range(6)
NUM_CONFIG_COLUMNS = 6

HEAD, LABEL, LEFT1, LEFT2, RIGHT1, RIGHT2, NUM_LEFT, NUM_RIGHT, STACK, BUFFER = range(10)
NUM_NODE_COLUMNS = 10

SHIFT, REDUCE, LEFT, RIGHT, ROOT = range(5)
SWAP = REDUCE  # no system has both
NUM_ACTIONS = 5

ARC_STANDARD, ARC_EAGER, ARC_HYBRID, SWAPPING = range(4)


class System(NamedTuple):
    """What can be said of a transition system without running it."""

    number: int  # as compiled code knows it
    projective: bool  # builds projective trees only
    dynamic: bool  # has a dynamic oracle


SYSTEMS = {
    "arc-standard": System(ARC_STANDARD, projective=True, dynamic=True),
    "arc-eager": System(ARC_EAGER, projective=True, dynamic=True),
    "arc-hybrid": System(ARC_HYBRID, projective=True, dynamic=True),
    "swap": System(SWAPPING, projective=False, dynamic=False),
}


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
