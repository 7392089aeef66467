"""What makes the scores of arcs logarithms of probabilities: one factor for all weights.

MIRA learns which tree is the best one by a margin; how large the margin is in nats it does not say.
So the weights are multiplied by the factor with which the gold trees of the validation part are
most likely, as the scores of trees in a conditional random field over the trees that are searched
(temperature scaling: Guo et al. 2017). Which tree is the best one stays the same. With scores of
second order, the scores of trees are those around the best one; see `search.Found`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.parsing.parser.data import GoldTrees
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.linear.arcs.scorer import ArcScorer
from seqtool.parsing.parser.linear.arcs.search import Search

MOST_SENTENCES = 300
LONGEST = 60  # words: marginals are cubic
LARGEST = 100.0  # of the factor, with scores of unit variance: where all gold trees are the best
HALVINGS = 15  # of the interval that the factor is in


class Calibration:
    """The first sentences of a validation part, by which weights are scaled.

    Args:
        scorer: scores their arcs; it knows their types.
        dev: the validation part.
        order: of the scores, 1 or 2.
        is_projective: projective trees are searched, or all.
    """

    def __init__(
        self, scorer: ArcScorer, dev: GoldTrees, order: int, *, is_projective: bool
    ) -> None:
        usable = np.flatnonzero(dev.arrays.lengths <= LONGEST)[:MOST_SENTENCES]
        self._scorer, self._order, self._is_projective = scorer, order, is_projective
        self._arrays = dataclasses.replace(
            dev.arrays,
            tokens=dev.arrays.tokens[usable],
            lengths=dev.arrays.lengths[usable],
            lm_states=None,
        )
        # the places of the gold arcs among the scores of all
        widths = np.repeat(1 + self._arrays.lengths.astype(np.int64), self._arrays.lengths)
        gold = [head for place in usable.tolist() for head in dev.trees[place][0]]
        self._gold = np.cumsum(widths) - widths + np.asarray(gold, np.int64)

    def scale(self, weights: Floats) -> float:
        """Return the factor of weights; 1 where there is nothing to tell it by."""
        members = [(self._scorer, weights)]
        search = Search(members, self._order, is_projective=self._is_projective)
        scores = search.comparable(self._arrays)
        spread = float(scores.std()) if scores.size else 0.0
        if not spread:
            return 1.0
        values = scores.astype(np.float64) / spread
        # minus the log-likelihood is convex in the factor: where its slope is 0, it is the least
        low, high = 0.0, LARGEST
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            _, chances = marginals(values * middle, self._arrays.lengths, self._is_projective)
            if chances @ values < values[self._gold].sum():
                low = middle
            else:
                high = middle
        return high / spread
