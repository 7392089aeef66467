"""What makes the scores of a linear classifier log-probabilities: one factor for all of them.

A perceptron's weights tell which transition is best; how large they are means nothing, and grows
while it learns. A beam adds up log-probabilities, and so do probabilities of arcs. So the weights
are multiplied by the factor with which the gold transitions of the validation part are most likely
(temperature scaling: Guo et al. 2017). Which transition is the best one stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqtool.core.arrays import Bools, Floats, Ints
from seqtool.parsing.encoding.features import token_rows
from seqtool.parsing.encoding.sparse import score_rows
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.linear.transitions.classifier import LinearClassifier
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.transitions import NUM_ACTIONS, SYSTEMS, Configurations
from seqtool.treebank.projectivity import is_projective

MOST_SENTENCES = 500
LARGEST = 100.0  # of the factor, with scores of unit variance: where all gold ones are the best
HALVINGS = 40  # of the interval that the factor is in


@dataclass(frozen=True)
class Calibration:
    """The configurations on the static oracle's way through sentences, N of them.

    Attributes:
        rows: of their features, int32 [N, templates].
        legal: which transitions are legal, [N, T].
        gold: the static oracle's transition of each, int32 [N].
    """

    rows: Ints
    legal: Bools
    gold: Ints

    @classmethod
    def of(
        cls, config: ParserConfig, data: TrainingData, classifier: LinearClassifier
    ) -> Calibration:
        """Return those of the first sentences of the validation part whose trees can be built."""
        system, labels, arrays = config.model.system, data.labels, data.dev.arrays
        heads, label_ids = data.dev.token_arrays(data.dev.trees, labels)
        usable = [
            place
            for place, (gold_heads, _) in enumerate(data.dev.trees)
            if is_projective(gold_heads) or not SYSTEMS[system].projective
        ][:MOST_SENTENCES]
        lengths = arrays.lengths[usable]
        # token arrays of these sentences alone, with NONE's row first
        inside = np.append(0, token_rows(arrays.tokens[usable], lengths))
        tokens = (np.cumsum(lengths + 1) - lengths).astype(np.int32)
        token_types = arrays.types[inside]
        oracle = Oracle(system, labels, heads[inside], label_ids[inside], tokens, lengths)
        longest = int(lengths.max(initial=1))
        configurations = Configurations(system, labels, max(1, len(usable)), longest)
        which = np.arange(len(usable), dtype=np.int32)
        configurations.start(which, tokens, lengths)
        rows, masks, gold = [], [], []
        while len(which := configurations.unfinished(which)):
            rows.append(classifier.rows(configurations, which, token_types))
            masks.append(configurations.legal(which))
            gold.append(oracle.transitions(configurations, which))
            configurations.advance(which, gold[-1])
        bits = np.concatenate([np.zeros(0, np.uint8), *masks])[:, None] >> np.arange(NUM_ACTIONS)
        return cls(
            np.concatenate([np.zeros((0, classifier.num_templates), np.int32), *rows]),
            np.repeat(bits & 1, np.diff(labels.segments), axis=1).astype(np.bool_),
            np.concatenate([np.zeros(0, np.int32), *gold]),
        )

    def scale(self, weights: Floats) -> float:
        """Return the factor of weights; 1 where there is nothing to tell it by."""
        scores = np.empty(self.legal.shape, np.float32)
        score_rows(self.rows, weights, scores)
        spread = float(scores[self.legal].std()) if self.legal.any() else 0.0
        if not spread:
            return 1.0
        scores /= np.float32(spread)
        # the loss is convex in the factor: where its derivative is 0, it is the least
        low, high = 0.0, LARGEST
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self._slope(scores, middle) < 0:
                low = middle
            else:
                high = middle
        return high / spread

    def _slope(self, scores: Floats, factor: float) -> float:
        """Return the derivative of the mean of -log P(gold) by the factor of the scores."""
        scaled = np.where(self.legal, scores * np.float32(factor), -np.inf)
        chances = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        expected = (chances * scores).sum(axis=1)
        return float((expected - scores[np.arange(len(scores)), self.gold]).mean())
