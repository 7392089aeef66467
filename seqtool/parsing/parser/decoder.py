"""The decoder of a parser: it finds trees. Each family of parsers has one.

A `parser.Parser` knows files, columns, words and labels; its decoder knows weights, and gives heads
and label ids of sentences in token arrays (see `encoding.features`). No decoder needs torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.core.errors import ConfigError, ModelError
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.treebank.derivation import Derivation


class RankedTree(NamedTuple):
    """One of the best trees of a sentence of n words.

    Attributes:
        heads: int32 [n]; 0 is ROOT.
        label_ids: int32 [n].
        score: what the trees of a sentence are ranked by: a natural log-probability where the
            decoder has probabilities, else its own score.
    """

    heads: Ints
    label_ids: Ints
    score: float


class ArcTable(NamedTuple):
    """The marginals of the arcs of a sentence of n words.

    Attributes:
        probabilities: float32 [n, 1 + n]: that head h (0 is ROOT) is the head of word d + 1; a row
            sums to 1 at most.
        label_ids: int32 [n, 1 + n]: the label that the arc would have; -1 where none is known.
        heads: int32 [n], those of the decoder's own tree, whose labels are among `label_ids`.
    """

    probabilities: Floats
    label_ids: Ints
    heads: Ints

    def of_tree(self, heads: Ints) -> Floats:
        """Return the marginals of the arcs of a tree, [n]."""
        chosen: Floats = self.probabilities[np.arange(len(heads)), heads]
        return chosen


MOST_HYPOTHESES = 1 << 20


def check_search(beam: int, num: int = 1) -> None:
    """Refuse a beam, or a number of trees, that is no whole number from 1 to `MOST_HYPOTHESES`.

    Raises:
        ConfigError: one is not.
    """
    for name, value in (("beam", beam), ("the number of trees", num)):
        is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_number or not 1 <= value <= MOST_HYPOTHESES:
            raise ConfigError(
                f"{name} is {value!r}, but must be a whole number from 1 on, and no more than "
                f"{MOST_HYPOTHESES}",
                hint="a beam of 1 is greedy, and beams of more than 8 hardly find better trees",
            )


class Decoder(ABC):
    """Trees by the weights of one parser, or of several whose scores are averaged."""

    @abstractmethod
    def joined(self, others: Sequence[Self]) -> Self:
        """Return a decoder that goes by the average of the scores of this one and others.

        Args:
            others: of the same family; what they read and what they build is alike.
        """

    @abstractmethod
    def prepare(self, types: Types) -> None:
        """Make ready for the types that were met since the last time."""

    @property
    def num_bytes(self) -> int:
        """Memory of what was made ready for types, of each member; 0 where nothing is kept."""
        return 0

    @abstractmethod
    def clear(self) -> None:
        """Forget what was made ready, and keep the memory; types are numbered anew."""

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has; 0 without one."""
        return 0

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference; not where the best tree is found without one."""
        return True

    @property
    def longest(self) -> int | None:
        """Words of the longest sentence that gets its best tree; None if there is no such limit.

        What is longer gets a tree that is found by less exact means.
        """
        return None

    def states(self, arrays: TokenArrays, layer: int | None = None) -> Floats:
        """Return the encoder's states of all tokens, [T, 2H]; the rows of no sentence are zeros.

        There is an encoder, and `prepare` was called. Of several members, they are the first one's.

        Args:
            arrays: sentences.
            layer: of the encoder, from 1; the last one when not given.
        """
        raise NotImplementedError("there is no encoder")

    @abstractmethod
    def decode(self, arrays: TokenArrays, *, beam: int = 1) -> tuple[Ints, Ints]:
        """Parse sentences; `prepare` was called.

        Args:
            arrays: sentences.
            beam: hypotheses per sentence; 1 where the decoder needs none to find the best tree.

        Returns:
            Token arrays of heads and label ids; -1 in the rows of NONE and ROOT. Each sentence has
            a tree with exactly one arc from ROOT.
        """

    @abstractmethod
    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[RankedTree]]:
        """Give the `num` best trees of each sentence that differ, the best first; `prepare`d.

        There may be fewer. The first one is that of `decode`, if it is the only one or the search
        is exact; a beam that looks further for others may find a better one. They are found by
        `transition.search` or `graph.ranking`.
        """

    @abstractmethod
    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give the marginals of the arcs of each sentence; `prepare` was called."""

    def derivations(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Derivation]:
        """Give how the tree of each sentence is built, step by step; `prepare` was called.

        The trees are those of `decode`.

        Raises:
            ModelError: they are not built step by step.
        """
        raise ModelError(
            "this parser takes the best tree by the scores of its arcs; no transitions build it",
            hint="--scores tells the probability of each arc, and --nbest 5 the next best trees",
        )
