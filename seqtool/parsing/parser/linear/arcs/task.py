"""Learning to score arcs, as a task of the training loop: MIRA, one sentence after another.

MIRA learns which tree is the best one by a margin; how large the margin is in nats it does not say.
So all weights are multiplied by one factor, with which scores are logarithms of probabilities; see
`Calibration`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import GoldTrees, TrainingData
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.trees import projective_trees, spanning_trees
from seqtool.parsing.parser.linear.arcs.features import score_arcs
from seqtool.parsing.parser.linear.arcs.mira import learn_heads, learn_labels
from seqtool.parsing.parser.linear.arcs.scorer import WEIGHTS, ArcScorer, weight_shapes
from seqtool.parsing.parser.linear.task import LinearTask

# of the calibration
MOST_SENTENCES = 300
LONGEST = 60  # words: marginals are cubic
LARGEST = 100.0  # of the factor, with scores of unit variance: where all gold trees are the best
HALVINGS = 15  # of the interval that the factor is in

STEP_SENTENCES = 32  # learnt one by one; a step of the training loop is so many


class MiraTask(LinearTask):
    """Trees for `seqtool.training.loop.train`; the learning rate is C, see `mira`.

    The loss is what the gold trees lack to win by the number of wrong heads, per word.
    """

    items = "words"

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        shapes = weight_shapes(config.model, data.labels)
        super().__init__(config, data, {name: size for name, (size,) in shapes.items()}, **options)
        self._scorer = ArcScorer(config.model, data.labels)
        self._scorer.extend(data.types)
        self._changes = np.zeros(shapes[WEIGHTS], np.float32)
        is_projective = config.model.trees == "projective"
        self._best_trees = projective_trees if is_projective else spanning_trees
        self._calibration = Calibration(self._scorer, data.dev, is_projective=is_projective)
        self._order = np.empty(0, np.int64)

    def start_epoch(self, epoch: int) -> int:
        """Draw an order of the sentences; return the number of steps."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        usable = np.arange(len(self._data.train.arrays.lengths))
        self._order = generator.permutation(self._data.of_epoch(epoch, usable))
        return -(-len(self._order) // STEP_SENTENCES)

    def averages(self) -> dict[str, Floats]:
        """Return the averaged weights, of which scores are logarithms of probabilities.

        They are rounded to half precision, in which the model's file has them: what is measured is
        what is read again.
        """
        (weights,) = super().averages().values()
        scaled = weights * np.float32(self._calibration.scale(weights))
        return {WEIGHTS: scaled.astype(np.float16).astype(np.float32)}

    def _pass(self, index: int, rate: float | None) -> tuple[float, int]:
        """Go through some sentences, one by one; see `LinearTask`. Nothing is left to chance."""
        begin = index * STEP_SENTENCES
        sentences = self._order[begin : begin + STEP_SENTENCES]
        num_words = int(self._data.train.arrays.lengths[sentences].sum())
        return sum(self._learn(i, rate or 0.0) for i in sentences.tolist()) / num_words, num_words

    def _learn(self, sentence: int, longest: float) -> float:
        """Learn a sentence, with a longest step, 0 for none; return what its gold tree lacked."""
        arrays, scorer, labels = self._data.train.arrays, self._scorer, self._data.labels
        root, num_words = int(arrays.tokens[sentence]), int(arrays.lengths[sentence])
        words = slice(root + 1, root + 1 + num_words)
        heads, label_ids = self._data.heads[words], self._data.label_ids[words]
        weights, read = self.weights[WEIGHTS], (scorer.features, arrays.types, root, num_words)
        # a point for each wrong arc: the best tree is one that is wrong and yet scores well
        points = np.ones((num_words, 1 + num_words), np.float32)
        points[np.arange(num_words), heads] = 0.0
        scores = points.reshape(-1)
        score_arcs(*read, weights.values, scores)
        best = self._best_trees(scores, arrays.lengths[sentence : sentence + 1])
        step = longest, weights, self._changes
        missing: float = learn_heads(*read, heads, best, *step)
        learn_labels(*read, heads, label_ids, len(labels.arcs), len(labels), *step)
        if longest:
            weights.num[0] += 1
        return missing


class Calibration:
    """The first sentences of a validation part, by which weights are scaled.

    The factor is the one with which their gold trees are most likely, as the scores of trees in a
    conditional random field over the trees that are searched (temperature scaling: Guo et al.
    2017). Which tree is the best one stays the same.

    Args:
        scorer: scores their arcs; it knows their types.
        dev: the validation part.
        is_projective: projective trees are searched, or all.
    """

    def __init__(self, scorer: ArcScorer, dev: GoldTrees, *, is_projective: bool) -> None:
        usable = np.flatnonzero(dev.arrays.lengths <= LONGEST)[:MOST_SENTENCES]
        self._scorer, self._is_projective = scorer, is_projective
        self._arrays = dataclasses.replace(
            dev.arrays,
            tokens=dev.arrays.tokens[usable],
            lengths=dev.arrays.lengths[usable],
        )
        # the places of the gold arcs among the scores of all
        widths = np.repeat(1 + self._arrays.lengths.astype(np.int64), self._arrays.lengths)
        gold = [head for place in usable.tolist() for head in dev.trees[place][0]]
        self._gold = np.cumsum(widths) - widths + np.asarray(gold, np.int64)

    def scale(self, weights: Floats) -> float:
        """Return the factor of weights; 1 where there is nothing to tell it by."""
        lengths = self._arrays.lengths.astype(np.int64)
        scores = np.zeros((lengths * (lengths + 1)).sum(), np.float32)
        self._scorer.add_arc_scores(weights, self._arrays, scores)
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
