"""Linear parsers as tasks of the training loop, with updates of their own.

How large the weights of a perceptron or of MIRA are says nothing of how probable a transition or a
tree is. A beam and probabilities of arcs go by log-probabilities, so all weights are multiplied by
one factor, with which the gold transitions or trees of the validation part are most likely
(temperature scaling: Guo et al. 2017). Which one is the best stays the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqtool.core.arrays import Bools, Bytes, Floats, Ints, Longs
from seqtool.parsing.encoding.features import token_rows
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import GoldTrees, TrainingData
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.task import LONGEST_EXPLORED
from seqtool.parsing.parser.transition.transitions import (
    NUM_ACTIONS,
    SYSTEMS,
    Configurations,
    num_choices,
)
from seqtool.parsing.sparse import arcs, transitions
from seqtool.parsing.sparse.arc_decoder import LinearGraphDecoder
from seqtool.parsing.sparse.engine import Averaged, score_rows
from seqtool.parsing.sparse.mira import learn_heads, learn_labels
from seqtool.parsing.sparse.perceptron import learn
from seqtool.parsing.sparse.transitions import LinearDecoder
from seqtool.parsing.train import TreebankTask
from seqtool.treebank.projectivity import is_projective

LARGEST = 100.0  # factor of scores of unit variance: with it, all that is gold is the best


def likeliest_factor(slope: Callable[[float], float], halvings: int) -> float:
    """Return the factor of scores of unit variance at which a convex loss is the least.

    Args:
        slope: of the loss, at a factor from 0 to `LARGEST`.
        halvings: of this interval.
    """
    low, high = 0.0, LARGEST
    for _ in range(halvings):
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return high


class LinearTask(TreebankTask[ParserConfig, TrainingData]):
    """A linear model for `seqtool.training.loop.train`, an `OnlineTask`.

    Args:
        config: all settings.
        data: what is learnt from.
        name: of the array of weights in the model.
        size: of it.
        device, command: see `TreebankTask`; it works on the CPU, whatever the device.

    Attributes:
        weights: those that are learnt, in the memory of the module, by which they are saved.
    """

    score = "dev_las"
    _usable: Longs  # sentences that are learnt

    def __init__(
        self, config: ParserConfig, data: TrainingData, name: str, size: int, **options: str
    ) -> None:
        super().__init__(config, data, **options)
        self._name, self.module = name, nn.Module()
        # a parameter is counted as a trained number; without a gradient, no optimiser moves it
        values = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.module.register_parameter(name, values)
        self.module.register_buffer(f"{name}_noted", torch.zeros(size, dtype=torch.float64))
        self.module.register_buffer(f"{name}_num", torch.zeros(1, dtype=torch.int64))
        self.weights = Averaged(*(tensor.numpy() for tensor in self.module.state_dict().values()))
        self._batches: list[Longs] = []

    @abstractmethod
    def _divided(self, order: Longs) -> list[Longs]:
        """Return sentences in an order as batches."""

    @abstractmethod
    def _pass(self, sentences: Longs, rate: float | None) -> tuple[float, int]:
        """Go through a batch, and learn each item at a rate, unless it is None.

        Returns their mean loss and their number. What chance decides comes from `self._random`.
        """

    @abstractmethod
    def factor(self, weights: Floats) -> float:
        """Return what makes scores by weights log-probabilities; 1 where nothing tells it."""

    def start_epoch(self, epoch: int) -> int:
        """Draw an order of the sentences, in batches; return how many batches."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        order = generator.permutation(self._data.of_epoch(epoch, self._usable))
        self._batches = self._divided(order)
        return len(self._batches)

    def learn(self, index: int, rate: float | None) -> tuple[Tensor, int]:
        """Learn batch `index`, unless the rate is None; return its mean loss and number of items.

        The loss of each item is taken before it is learnt.
        """
        self._begin_step(index)
        loss, num_items = self._pass(self._batches[index], rate)
        return torch.tensor(loss), num_items

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the same without learning."""
        return self.learn(index, None)

    def averages(self) -> dict[str, Floats]:
        """Return the averaged weights, of which scores are log-probabilities.

        They are rounded to half precision, in which the model's file has them: what is measured is
        what is read again.
        """
        weights = self.weights.average()
        scaled = weights * np.float32(self.factor(weights))
        return {self._name: scaled.astype(np.float16).astype(np.float32)}

    @property
    def about(self) -> Mapping[str, Any]:
        """That of the data."""
        return self._data.about

    def model(self) -> Parser:
        """Return the parser of the averaged weights."""
        return Parser(self.config, self._data.types, self._data.labels, self.averages())

    def validate(self) -> dict[str, float]:
        """Return UAS and LAS of the validation part; see `GoldTrees.scores`."""
        dev = self._data.dev
        return dev.scores(self.model().trees(dev.arrays))


class LinearTransitionTask(LinearTask):
    """The choice of transitions by sparse features.

    The sentences of a batch are parsed side by side, and each configuration that leaves a choice is
    learnt when it is met. With a dynamic oracle, what is learnt is that all transitions that cost
    nothing are right; the one that is taken is the classifier's own, or, not exploring, the one of
    these that it likes best (Goldberg & Nivre 2012). With a static one, its transition is both.
    """

    items = "configurations"
    MOST_CALIBRATED = 500  # sentences

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        size = transitions.num_weights(config.model, data.labels)
        super().__init__(config, data, transitions.WEIGHTS, size, **options)
        counts = torch.zeros(size, dtype=torch.uint8)
        self.module.register_buffer("counts", counts)
        self._counts = counts.numpy()
        # of which only the features are asked for
        weights = {transitions.WEIGHTS: self.weights.values}
        self._decoder = LinearDecoder(config.model, data.labels, weights)
        self._decoder.prepare(data.types)
        arrays, system = data.train.arrays, config.model.system
        self._num_choices = num_choices(arrays.lengths, data.labels)
        self._usable = np.flatnonzero(self._num_choices)
        trees = data.heads, data.label_ids, arrays.tokens, arrays.lengths
        self._oracle = Oracle(system, data.labels, *trees)
        self._calibration = self._gold_configurations(data.dev)

    def _gold_configurations(self, dev: GoldTrees) -> tuple[Ints, Bools, Ints] | None:
        """Return the configurations on the static oracle's way through the validation part.

        Of the first sentences whose trees can be built: the rows of features, int32 [N, templates],
        which transitions are legal, [N, T], and which one is gold, int32 [N]. None without any.
        """
        system, labels, arrays = self.config.model.system, self._data.labels, dev.arrays
        usable = [
            place
            for place, (gold_heads, _) in enumerate(dev.trees)
            if is_projective(gold_heads) or not SYSTEMS[system].projective
        ][: self.MOST_CALIBRATED]
        lengths = arrays.lengths[usable]
        # token arrays of these sentences alone, with NONE's row first
        inside = np.append(0, token_rows(arrays.tokens[usable], lengths))
        tokens = (np.cumsum(lengths + 1) - lengths).astype(np.int32)
        heads, label_ids = (array[inside] for array in dev.token_arrays(dev.trees, labels))
        oracle = Oracle(system, labels, heads, label_ids, tokens, lengths)
        rows, masks, gold = [], [], []
        walk = self._walk(tokens, lengths, arrays.types[inside])
        for configurations, which, legal, found in walk:
            rows.append(found)
            masks.append(legal)
            gold.append(oracle.transitions(configurations, which))
            configurations.advance(which, gold[-1])
        if not rows:
            return None
        bits = np.concatenate(masks)[:, None] >> np.arange(NUM_ACTIONS) & 1
        is_legal = np.repeat(bits, np.diff(labels.segments), axis=1).astype(np.bool_)
        return np.concatenate(rows), is_legal, np.concatenate(gold)

    def _walk(
        self, tokens: Ints, lengths: Ints, token_types: Ints
    ) -> Iterator[tuple[Configurations, Ints, Bytes, Ints]]:
        """Give configurations of sentences, until they are finished; the caller advances them.

        Each time: all of them, which ones leave a choice, their legal actions and their features.
        """
        which = np.arange(len(lengths), dtype=np.int32)
        sizes = max(1, len(lengths)), int(lengths.max(initial=1))
        configurations = Configurations(self.config.model.system, self._data.labels, *sizes)
        configurations.start(which, tokens, lengths)
        while len(which := configurations.unfinished(which)):
            rows = self._decoder.rows(configurations, which, token_types)
            yield configurations, which, configurations.legal(which), rows

    def factor(self, weights: Floats) -> float:
        """Return the factor with which gold transitions are most likely; see `LinearTask`."""
        if self._calibration is None:
            return 1.0
        rows, legal, gold = self._calibration
        scores = np.empty(legal.shape, np.float32)
        score_rows(rows, weights, scores)
        spread = float(scores[legal].std())
        if not spread:
            return 1.0
        scores /= np.float32(spread)

        def slope(factor: float) -> float:
            """Return the derivative of the mean of -log P(gold)."""
            scaled = np.where(legal, scores * np.float32(factor), -np.inf)
            chances = np.exp(scaled - scaled.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            expected = (chances * scores).sum(axis=1)
            return float((expected - scores[np.arange(len(scores)), gold]).mean())

        return likeliest_factor(slope, 40) / spread

    def _divided(self, order: Longs) -> list[Longs]:
        choices = np.cumsum(self._num_choices[order])
        cuts = np.flatnonzero(np.diff(choices // self.config.learning.batch_size)) + 1
        return np.split(order, cuts)

    def _pass(self, sentences: Longs, rate: float | None) -> tuple[float, int]:
        is_static = self.config.learning.oracle == "static" or not self._oracle.system.dynamic
        # the tables of a dynamic oracle grow with the square of a sentence
        followed = is_static | (self._data.train.arrays.lengths[sentences] > LONGEST_EXPLORED)
        loss, num_items = 0.0, 0
        for part, explores in ((sentences[followed], False), (sentences[~followed], True)):
            if len(part):
                more, num = self._parse(part, learns=rate is not None, explores=explores)
                loss, num_items = loss + more, num_items + num
        # a batch without any choice has no loss
        return loss / max(1, num_items), max(1, num_items)

    def _parse(self, sentences: Longs, *, learns: bool, explores: bool) -> tuple[float, int]:
        """Parse sentences, and learn if asked to; return the loss and of how many."""
        learning, arrays = self.config.learning, self._data.train.arrays
        exploration = learning.exploration if self._epoch >= learning.explore_after else 0.0
        tokens, lengths = arrays.tokens[sentences], arrays.lengths[sentences]
        loss, num_items = 0.0, 0
        for configurations, which, legal, rows in self._walk(tokens, lengths, arrays.types):
            # of each action the transition that costs nothing, or -1
            free = np.full((len(which), NUM_ACTIONS), -1, np.int32)
            if explores:
                costs = self._oracle.costs(configurations, which, legal)
                free[costs == 0] = self._oracle.targets(configurations, which)[costs == 0]
            else:
                # the column does not matter to what is learnt
                free[:, 0] = self._oracle.transitions(configurations, which)
            more, num, own, best = learn(
                *(rows, legal, free, self._data.labels.segments, learns, self.weights),
                *(self._counts, learning.feature_count, self._epoch == 0),
            )
            loss, num_items = loss + more, num_items + num
            # no gold label at all on what is free: only its own choice is left
            follows = best < 0
            if explores:
                follows |= self._random.random(len(which)) < exploration
            configurations.advance(which, np.where(follows, own, best))
        return loss, num_items

    def measured(self) -> Mapping[str, float]:
        """Return the share of features in the time of parsing the validation part, in percent."""
        decoder = self.model().decoder
        assert isinstance(decoder, LinearDecoder)
        return {"feature_share": decoder.feature_share(self._data.types, self._data.dev.arrays)}


class MiraTask(LinearTask):
    """Trees by linear scores of arcs, one sentence after another; the learning rate is C of `mira`.

    The loss is what the gold trees lack to win by the number of wrong heads, per word.
    """

    items = "words"
    STEP_SENTENCES = 32  # learnt one by one; a step of the training loop is so many
    MOST_CALIBRATED = 300  # sentences
    LONGEST_CALIBRATED = 60  # words: marginals are cubic

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        ((name, (size,)),) = arcs.weight_shapes(config.model, data.labels).items()
        super().__init__(config, data, name, size, **options)
        self._decoder = self._decoder_of(self.weights.values)
        self._changes = np.zeros(size, np.float32)
        self._usable = np.arange(len(data.train.arrays.lengths))
        dev = data.dev.arrays
        short = np.flatnonzero(dev.lengths <= self.LONGEST_CALIBRATED)[: self.MOST_CALIBRATED]
        self._calibration = dev.part(short)
        # the places of the gold arcs among the scores of all
        lengths = dev.lengths[short]
        widths = np.repeat(1 + lengths.astype(np.int64), lengths)
        gold = [head for place in short.tolist() for head in data.dev.trees[place][0]]
        self._gold_arcs = np.cumsum(widths) - widths + np.asarray(gold, np.int64)

    def _decoder_of(self, weights: Floats) -> LinearGraphDecoder:
        """Return a decoder of these weights that knows all types."""
        decoder = LinearGraphDecoder(self.config.model, self._data.labels, {arcs.WEIGHTS: weights})
        decoder.prepare(self._data.types)
        return decoder

    def factor(self, weights: Floats) -> float:
        """Return the factor with which gold trees are most likely; see `LinearTask`.

        Scores of trees are those in a conditional random field over the trees that are searched.
        """
        decoder, lengths = self._decoder_of(weights), self._calibration.lengths
        scores = decoder.arc_scores(self._calibration)
        spread = float(scores.std()) if scores.size else 0.0
        if not spread:
            return 1.0
        values = scores.astype(np.float64) / spread
        of_gold = values[self._gold_arcs].sum()

        def slope(factor: float) -> float:
            _, chances = marginals(values * factor, lengths, decoder.is_projective)
            return float(chances @ values - of_gold)

        return likeliest_factor(slope, 15) / spread

    def _divided(self, order: Longs) -> list[Longs]:
        return np.split(order, np.arange(self.STEP_SENTENCES, len(order), self.STEP_SENTENCES))

    def _pass(self, sentences: Longs, rate: float | None) -> tuple[float, int]:
        num_words = int(self._data.train.arrays.lengths[sentences].sum())
        return sum(self._learn(i, rate or 0.0) for i in sentences.tolist()) / num_words, num_words

    def _learn(self, sentence: int, longest: float) -> float:
        """Learn a sentence, with a longest step, 0 for none; return what its gold tree lacked."""
        data, one = self._data, self._data.train.arrays.part(np.asarray([sentence]))
        root, num_words = int(one.tokens[0]), int(one.lengths[0])
        inside = slice(root + 1, root + 1 + num_words)
        heads, label_ids = data.heads[inside], data.label_ids[inside]
        # a point for each wrong arc: the best tree is one that is wrong and yet scores well
        points = np.ones((num_words, 1 + num_words), np.float32)
        points[np.arange(num_words), heads] = 0.0
        scores = self._decoder.arc_scores(one) + points.reshape(-1)
        best = self._decoder.best_trees(scores, one.lengths)
        read = self._decoder.features, one.types[root : root + 1 + num_words]
        step = longest, self.weights, self._changes
        missing: float = learn_heads(*read, heads, best, *step)
        learn_labels(*read, heads, label_ids, len(data.labels.arcs), len(data.labels), *step)
        if longest:
            self.weights.num[0] += 1
        return missing
