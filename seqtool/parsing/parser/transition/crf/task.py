"""Global training as a task of the training loop, behind the local training of the same classifier.

The first stage of a run is that of `transition.task`; in the second one, each batch of sentences is
searched with the weights as they are, and the score of each gold derivation is told from those of
the hypotheses in its place (`derivations`):

    loss = log sum over derivations of exp(score) - score of the gold one

which are sums of the scores of transitions, not normalised in single configurations, so that a
later transition can make good for an earlier one (Andor et al. 2016, eq. 3 and 6).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from seqtool.core.arrays import Bytes, Floats, Ints, Longs
from seqtool.parsing.parser.config import SMALLEST_BATCH, ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.model import Parser
from seqtool.parsing.parser.transition.crf.derivations import Derivations, derive
from seqtool.parsing.parser.transition.hidden_layer import Seen, extract
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.parser.transition.transitions import Configurations


def losses(scores_NA: Tensor, derivations: Derivations) -> Tensor:
    """Return the loss of each sentence, in nats; see above.

    Args:
        scores_NA: of all transitions in the configurations of the derivations.
        derivations: of one sentence or more; each has a gold one.
    """
    steps, transitions, owners = map(
        torch.from_numpy, (derivations.steps, derivations.transitions, derivations.owners)
    )
    # on the CPU: few numbers
    taken_K = scores_NA[steps.to(scores_NA.device), transitions.to(scores_NA.device)].cpu()
    sentences = derivations.sentences
    totals_D = taken_K.new_zeros(len(sentences)).index_add(0, owners, taken_K)
    # each sentence a row of its own
    sizes = np.bincount(sentences)
    places = np.arange(len(sentences)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    totals_BD = totals_D.new_full((len(sizes), int(sizes.max())), -torch.inf)
    totals_BD[torch.from_numpy(sentences), torch.from_numpy(places)] = totals_D
    is_gold = torch.from_numpy(derivations.is_gold)
    loss_B: Tensor = totals_BD.logsumexp(1) - totals_D[is_gold]
    return loss_B


class GlobalTask(ParserTask):
    """The choice of transitions, first one by one, then by whole beams."""

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        super().__init__(config, data, **options)
        self._sentences: list[Longs] = []  # of each step of the running epoch

    @property
    def _is_local(self) -> bool:
        return self._epoch < self.config.training.epochs

    def start_epoch(self, epoch: int) -> int:
        """Draw batches; return the number of steps."""
        self._epoch = epoch
        self.items = "configurations" if self._is_local else "sentences"
        if self._is_local:
            return super().start_epoch(epoch)
        self._examples = None  # of the stage before
        usable = self._data.of_epoch(epoch, self._usable)
        learning, lengths = self.config.learning, self._arrays.lengths[usable]
        generator = np.random.default_rng((self.config.training.seed, epoch))
        # of like lengths, as they are searched together; chance makes the batches others each time
        order = np.argsort(lengths * generator.uniform(0.9, 1.1, len(lengths)), kind="stable")
        fewer = max(SMALLEST_BATCH, int(lengths.sum()) // learning.min_steps)
        ends = np.cumsum(lengths[order]) // min(learning.global_words, fewer)
        batches = np.split(usable[order], np.flatnonzero(np.diff(ends)) + 1)
        self._sentences = [batches[place] for place in generator.permutation(len(batches))]
        return len(batches)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`, in nats per configuration or sentence."""
        if self._is_local:
            return super().loss(index)
        self._average.update()
        self._begin_step(index)
        sentences = self._sentences[index]
        derivations, seen = self._derive(sentences)
        scores_NA, loss = self._scores(*seen, np.sort(self._arrays.tokens[sentences]))
        return loss + losses(scores_NA.float(), derivations).mean(), len(sentences)

    def _derive(self, sentences: Longs) -> tuple[Derivations, Seen]:
        """Search some sentences; also return what stands in the slots of the configurations.

        There are some: two words or more leave a choice, and a beam of two has both ways.
        """
        token_numbers = np.arange(len(self._arrays.types), dtype=np.int32)
        found: list[Seen] = []

        def observe(
            configurations: Configurations, which: Ints, masks: Bytes, scores: Floats
        ) -> None:
            found.append(extract(configurations, which, token_numbers, self._slots))

        derivations = derive(
            *(self.config.model.system, self._data.labels),
            *(self._arrays.tokens[sentences], self._arrays.lengths[sentences]),
            self._scorer(sentences, self._average.arrays(averaged=False)),
            self._oracle,
            self.config.learning.global_beam,
            observe,
        )
        seen = (np.concatenate(column) for column in zip(*found, strict=True))
        return derivations, Seen(*(column[derivations.configurations] for column in seen))

    def _penalty(self, log_sums_N: Tensor) -> Tensor:
        """Return the penalty that makes scores log-probabilities, near enough to begin with.

        The global stage adds up scores as they are (self-normalisation: Devlin et al. 2014).
        """
        return self.config.learning.log_sum_weight * (log_sums_N**2).mean()

    def model(self) -> Parser:
        """Return the parser of the averaged weights; it is a local one before the second stage."""
        config, data = self.config, self._data
        if self._is_local:
            learning = dataclasses.replace(config.learning, loss="local")
            config = dataclasses.replace(config, learning=learning)
        return Parser(config, data.types, data.labels, self._average.arrays(), data.word_states)

    def validate(self) -> dict[str, float]:
        """Return UAS and LAS of the validation part with a beam as wide as that of training."""
        dev = self._data.dev
        return dev.scores(self.model().trees(dev.arrays, beam=self.config.learning.global_beam))
