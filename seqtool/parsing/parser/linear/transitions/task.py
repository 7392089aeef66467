"""Choosing transitions by sparse features, as a task of the training loop.

The sentences of a batch are parsed side by side, and each configuration that leaves a choice is
learnt when it is met. With a dynamic oracle, what is learnt is that all transitions that cost
nothing are right; the one that is taken is the classifier's own, or, not exploring, the one of
these that it likes best (Goldberg & Nivre 2012). With a static one, its transition is both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from seqtool.core.arrays import Bytes, Floats, Ints
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.linear.task import LinearTask
from seqtool.parsing.parser.linear.transitions.calibration import Calibration
from seqtool.parsing.parser.linear.transitions.classifier import (
    WEIGHTS,
    LinearClassifier,
    num_weights,
)
from seqtool.parsing.parser.linear.transitions.decoder import LinearDecoder
from seqtool.parsing.parser.linear.transitions.learner import learn
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.task import LONGEST_EXPLORED
from seqtool.parsing.parser.transition.transitions import (
    NUM_ACTIONS,
    Configurations,
    num_choices,
)


class LinearTransitionTask(LinearTask):
    """The choice of transitions by sparse features; see `LinearTask`."""

    items = "configurations"

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        size = num_weights(config.model, data.labels)
        super().__init__(config, data, {WEIGHTS: size}, **options)
        counts = torch.zeros(size, dtype=torch.uint8)
        self.module.register_buffer("counts", counts)
        self._counts = counts.numpy()
        learnt = self.weights[WEIGHTS]
        self._classifier = LinearClassifier(config.model, {WEIGHTS: learnt.values})
        self._classifier.prepare(data.types)
        arrays = data.train.arrays
        self._num_choices = num_choices(arrays.lengths, data.labels)
        self._usable = np.flatnonzero(self._num_choices)
        self._oracle = Oracle(
            config.model.system,
            data.labels,
            data.heads,
            data.label_ids,
            arrays.tokens,
            arrays.lengths,
        )
        self._batches: list[Ints] = []
        self._calibration = Calibration.of(config, data, self._classifier)

    def start_epoch(self, epoch: int) -> int:
        """Draw an order of the sentences, in batches; return how many batches."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        order = generator.permutation(self._data.of_epoch(epoch, self._usable))
        choices = np.cumsum(self._num_choices[order])
        cuts = np.flatnonzero(np.diff(choices // self.config.learning.batch_size)) + 1
        self._batches = np.split(order, cuts)
        return len(self._batches)

    def _pass(self, index: int, rate: float | None) -> tuple[float, int]:
        """Parse the sentences of a batch; see `LinearTask`."""
        sentences = self._batches[index]
        is_static = self.config.learning.oracle == "static" or not self._oracle.system.dynamic
        # the tables of a dynamic oracle grow with the square of a sentence
        is_long = self._data.train.arrays.lengths[sentences] > LONGEST_EXPLORED
        followed = is_long | is_static
        loss, num_items = 0.0, 0
        for part, explores in ((sentences[followed], False), (sentences[~followed], True)):
            if len(part):
                more, num = self._parse(part, learns=rate is not None, explores=explores)
                loss, num_items = loss + more, num_items + num
        # a batch without any choice has no loss
        return loss / max(1, num_items), max(1, num_items)

    def _parse(self, sentences: Ints, *, learns: bool, explores: bool) -> tuple[float, int]:
        """Parse sentences, and learn if asked to; return the loss and of how many."""
        learning, labels, arrays = self.config.learning, self._data.labels, self._data.train.arrays
        exploration = learning.exploration if self._epoch >= learning.explore_after else 0.0
        tokens, lengths = arrays.tokens[sentences], arrays.lengths[sentences]
        system = self.config.model.system
        configurations = Configurations(system, labels, len(sentences), int(lengths.max()))
        which = np.arange(len(sentences), dtype=np.int32)
        configurations.start(which, tokens, lengths)
        loss, num_items = 0.0, 0
        while len(which := configurations.unfinished(which)):
            legal = configurations.legal(which)
            free = self._free(configurations, which, legal, explores=explores)
            rows = self._classifier.rows(configurations, which, arrays.types)
            own, best = np.empty(len(which), np.int32), np.empty(len(which), np.int32)
            more, num = learn(
                rows,
                legal,
                free,
                labels.segments,
                learns,
                self.weights[WEIGHTS],
                self._counts,
                learning.feature_count,
                self._epoch == 0,
                own,
                best,
            )
            loss, num_items = loss + more, num_items + num
            # no gold label at all on what is free: only its own choice is left
            follows = best < 0
            if explores:
                follows |= self._random.random(len(which)) < exploration
            configurations.advance(which, np.where(follows, own, best))
        return loss, num_items

    def _free(
        self, configurations: Configurations, which: Ints, legal: Bytes, *, explores: bool
    ) -> Ints:
        """Return of each action the transition that costs nothing, or -1; int32 [N, actions]."""
        free = np.full((len(which), NUM_ACTIONS), -1, np.int32)
        if explores:
            costs = self._oracle.costs(configurations, which, legal)
            targets = self._oracle.targets(configurations, which)
            free[costs == 0] = targets[costs == 0]
        else:
            # the column does not matter to what is learnt
            free[:, 0] = self._oracle.transitions(configurations, which)
        return free

    def averages(self) -> dict[str, Floats]:
        """Return the averaged weights, of which scores are log-probabilities; see `Calibration`.

        They are rounded to half precision, in which the model's file has them: what is measured is
        what is read again.
        """
        (weights,) = super().averages().values()
        scaled = weights * np.float32(self._calibration.scale(weights))
        return {WEIGHTS: scaled.astype(np.float16).astype(np.float32)}

    def measured(self) -> Mapping[str, float]:
        """Return the share of features in the time of parsing the validation part, in percent."""
        decoder = self.model().decoder
        assert isinstance(decoder, LinearDecoder)
        timing = decoder.timed(self._data.types, self._data.dev.arrays)
        return {"feature_share": timing.share}
