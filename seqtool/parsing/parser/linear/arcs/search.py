"""The search for the best trees by linear scores, of first or second order: `Search`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import TokenArrays
from seqtool.parsing.parser.graph.eisner import projective_trees
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.siblings import sibling_trees
from seqtool.parsing.parser.graph.spanning import spanning_trees
from seqtool.parsing.parser.linear.arcs.climbing import (
    LEAST_GAIN,
    is_projective,
    take_best,
    write_gains,
)
from seqtool.parsing.parser.linear.arcs.features import outer_children
from seqtool.parsing.parser.linear.arcs.scorer import ArcScorer

# words; the sibling scores of a sentence so long take 64 MB. Of longer ones, arcs alone are scored
LONGEST_SECOND = 250
ROOTS = 3  # other roots that are tried, of those that look best
MORE = 4  # times as many trees are looked at as are wanted, where their order is not exact


class Found(NamedTuple):
    """The best tree of a sentence of n words, and what others are worth.

    Attributes:
        heads: int32 [n]; 0 is ROOT.
        scores: float32 [n (1 + n)]: of arcs, by which trees can be compared. Of second order it is
            what each arc brings in place of the one that is there, see `climbing.write_gains`:
            right for trees that differ in one head, about right for others.
    """

    heads: Ints
    scores: Floats


class Search:
    """The search by the average scores of one or several members.

    Args:
        members: what knows the places of the weights of each member, and these.
        order: 1 or 2; see `ModelConfig`.
        is_projective: projective trees are searched, or all.
    """

    def __init__(
        self, members: Sequence[tuple[ArcScorer, Floats]], order: int, *, is_projective: bool
    ) -> None:
        self._members, self._order, self._is_projective = members, order, is_projective
        self._find_first = projective_trees if is_projective else spanning_trees

    def is_second(self, num_words: int) -> bool:
        """Return whether a sentence of so many words has scores of second order."""
        return self._order == 2 and num_words <= LONGEST_SECOND

    def arc_scores(self, part: TokenArrays) -> Floats:
        """Return the average scores of all arcs of some sentences, flat; see `graph.spanning`."""
        lengths = part.lengths.astype(np.int64)
        scores = np.zeros((lengths * (lengths + 1)).sum(), np.float32)
        for scorer, weights in self._members:
            scorer.add_arc_scores(weights, part, scores)
        scores /= len(self._members)
        return scores

    def trees(self, part: TokenArrays) -> Ints:
        """Return the heads of all words of the best trees of some sentences."""
        if self._order == 1:
            return self._find_first(self.arc_scores(part), part.lengths)
        found = [one.heads for one in self._each(part)]
        return np.concatenate([np.zeros(0, np.int32), *found])

    def comparable(self, part: TokenArrays) -> Floats:
        """Return scores of all arcs of some sentences by which trees are compared; see `Found`."""
        if self._order == 1:
            return self.arc_scores(part)
        found = [one.scores for one in self._each(part)]
        return np.concatenate([np.zeros(0, np.float32), *found])

    def _each(self, part: TokenArrays) -> Iterator[Found]:
        """Give what is found for each sentence."""
        for place in range(len(part.lengths)):
            one = part.part(np.asarray([place]))
            yield self.find(one, self.arc_scores(one))

    def find(self, one: TokenArrays, scores: Floats) -> Found:
        """Return the best tree of one sentence by the scores of its arcs, and by all others.

        Of second order, it is the best projective tree by arcs and siblings, from which changes of
        single heads go on to better ones by all scores: see `climbing`.
        """
        if not self.is_second(int(one.lengths[0])):
            return Found(self._find_first(scores, one.lengths), scores)
        siblings = self._sibling_scores(one)
        heads = sibling_trees(scores, siblings, one.lengths)
        gains = np.empty_like(scores)
        while True:
            write_gains(heads, scores, siblings, *self._grand_scores(one, heads), gains)
            if take_best(heads, gains, self._is_projective):
                continue
            other = self._other_root(one, scores, siblings, Found(heads, gains))
            if other is None:
                return Found(heads, gains)
            heads = other

    def _other_root(
        self, one: TokenArrays, scores: Floats, siblings: Floats, found: Found
    ) -> Ints | None:
        """Return a better tree in which another word is the root, above that of a tree, if any.

        Words are tried whose two changes are gains, if each were made alone.
        """
        root = int(np.argmin(found.heads))
        gains = found.scores.reshape(len(found.heads), -1)
        alone = gains[:, 0] + gains[root, 1:]
        alone[root] = -np.inf
        best, score = None, None
        for word in np.argsort(-alone)[:ROOTS].tolist():
            if alone[word] <= LEAST_GAIN:
                break
            heads = found.heads.copy()
            heads[word], heads[root] = 0, word + 1
            if self._is_projective and not is_projective(heads):
                continue
            if score is None:
                score = self._score(one, scores, siblings, found.heads) + LEAST_GAIN
            if (other := self._score(one, scores, siblings, heads)) > score:
                best, score = heads, other
        return best

    def ranked(self, one: TokenArrays, num: int) -> tuple[Found, list[tuple[Ints, float]]]:
        """Return the best tree of one sentence, and the `num` best ones with scores.

        The scores are sums of those of `Found.scores`. Of second order the trees are the best ones
        that are near what was found, and their scores are exact, less that of it. One that differs
        in several heads at once can be better; where one tree is asked for, it is what was found.
        """
        arcs = self.arc_scores(one)
        found, num_words = self.find(one, arcs), int(one.lengths[0])
        is_second = self.is_second(num_words)
        table = found.scores.reshape(num_words, -1)
        if is_second and num == 1:
            return found, [(found.heads, 0.0)]
        trees = ranked_trees(table, num * MORE if is_second else num, self._is_projective)
        if not is_second:
            return found, trees
        siblings = self._sibling_scores(one)
        best = self._score(one, arcs, siblings, found.heads)
        others = [
            (heads, self._score(one, arcs, siblings, heads) - best)
            for heads, _ in trees
            if not np.array_equal(heads, found.heads)
        ]
        ranked = sorted([(found.heads, 0.0), *others], key=lambda tree: -tree[1])
        return found, ranked[:num]

    def _sibling_scores(self, one: TokenArrays) -> Floats:
        """Return the average scores of all siblings of one sentence; see `graph.siblings`."""
        num_words = int(one.lengths[0])
        siblings = np.zeros(num_words * (num_words + 1) ** 2, np.float32)
        for scorer, weights in self._members:
            scorer.add_sibling_scores(weights, one, siblings)
        siblings /= len(self._members)
        return siblings

    def _grand_scores(self, one: TokenArrays, heads: Ints) -> tuple[Floats, Floats]:
        """Return the average scores of the grandparents around a tree; see `score_grands`."""
        num_words = int(one.lengths[0])
        above = np.zeros(num_words * (num_words + 1), np.float32)
        below = np.zeros_like(above)
        for scorer, weights in self._members:
            scorer.add_grand_scores(weights, one, heads, above, below)
        above /= len(self._members)
        below /= len(self._members)
        return above, below

    def _score(self, one: TokenArrays, arcs: Floats, siblings: Floats, heads: Ints) -> float:
        """Return the score of a tree of one sentence, of second order."""
        num_words = len(heads)
        around = np.empty((3, num_words + 1), np.int32)
        outer_children(heads, num_words, around)
        places = np.arange(num_words) * (num_words + 1) + heads
        of_siblings = siblings[places * (num_words + 1) + np.maximum(around[2, 1:], 0)]
        above, _ = self._grand_scores(one, heads)
        return float((arcs[places] + above[places] + of_siblings).sum(dtype=np.float64))
