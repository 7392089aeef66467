"""Global training as a task of the training loop, behind the local training of the same classifier.

The first stage of a run is that of `transition.task`; in the second one, each batch of sentences is
searched with the weights as they are, and the correct derivations are told from the hypotheses in
their place:

    loss = log sum over derivations of exp(score) - log sum over the correct ones of exp(score)

The score of a derivation is the sum of the log-probabilities of its transitions. (The sum of scores
that are not normalised, Andor et al. 2016, was behind it on English-EWT.)

A sentence is searched as it is parsed, by sums of scores. A derivation is correct while it leads to
the gold tree: several do, as most systems can build a tree in more than one order. Where no correct
one is left among the hypotheses, the search ends: an early update (Collins & Roark 2004). What is
learnt is then to tell the correct beginnings that have just been lost from the hypotheses in their
place; where some stay to the end, from the others at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqtool.core.arrays import Bools, Bytes, Floats, Ints, Longs
from seqtool.core.errors import ModelError
from seqtool.parsing.encoding.encoder import Dropout
from seqtool.parsing.encoding.features import token_rows
from seqtool.parsing.parser.calibration import temperature_of
from seqtool.parsing.parser.config import SMALLEST_BATCH, ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.parser import VALIDATED_BEAM, Parser
from seqtool.parsing.parser.reading import KnownTypes
from seqtool.parsing.parser.transition.classifier import Classifier
from seqtool.parsing.parser.transition.hidden_layer import Seen, extract
from seqtool.parsing.parser.transition.search import Beams, History, Scorer
from seqtool.parsing.parser.transition.task import LONGEST_EXPLORED, ParserTask, WordsRead
from seqtool.parsing.parser.transition.transitions import UNATTACHED, Configurations

# (configurations, which of them, their legal actions) -> int32 [N, K], the transitions of each that
# lead on to the gold tree; -1 for none
Choices = Callable[[Configurations, Ints, Bytes], Ints]


class Derivations(NamedTuple):
    """The derivations of sentences, as far as those of one sentence differ.

    Attributes:
        configurations: int32, the numbers of the N configurations on their ways, ascending.
        steps: [K], a step of each derivation, as a place among the N.
        transitions: [K], what is taken there.
        owners: [K], the derivation, of D.
        sentences: [D], the sentence of each derivation, as a place among those given; ascending,
            and each comes.
        is_gold: [D], whether it is a correct one; one of a sentence is, or more.
    """

    configurations: Ints
    steps: Longs
    transitions: Longs
    owners: Longs
    sentences: Longs
    is_gold: Bools


class _Correct:
    """Which hypotheses of a search of one sentence in each lane are correct so far.

    Attributes:
        rows: bool, of each row.
    """

    def __init__(self, beams: Beams, choices: Choices, num_transitions: int) -> None:
        self._beams, self._choices = beams, choices
        self._num_transitions = num_transitions
        self.rows = np.zeros(beams.num_lanes * beams.beam, np.bool_)
        # the ways on which correct derivations go on: lane, last configuration, transition there
        self._ways = np.zeros((3, 0), np.int64)

    def scored(self, history: History, which: Ints, masks: Bytes) -> None:
        """Note how correct derivations go on from the configurations that are being scored."""
        configurations = self._beams.configurations
        is_correct = self.rows[which]
        rows = which[is_correct]
        choices = self._choices(configurations, rows, masks[is_correct])
        places, columns = np.nonzero(choices >= 0)
        opened = rows[places]
        is_final = configurations.configs[:, UNATTACHED] == 0
        final = np.flatnonzero(self.rows & is_final)  # it stays as it is
        both = np.concatenate((opened, final))
        taken = np.concatenate((choices[places, columns], history.taken[final]))
        self._ways = np.stack((both // self._beams.beam, history.last[both], taken)).astype(
            np.int64
        )

    def moved(self, history: History) -> Longs:
        """Find the correct hypotheses after a step; return the lanes that have just lost theirs."""
        beams = self._beams
        used = np.flatnonzero(beams.hypotheses.used)
        _, last, taken = self._ways
        known = last * self._num_transitions + taken
        keys = history.last[used].astype(np.int64) * self._num_transitions + history.taken[used]
        self.rows[:] = False
        self.rows[used] = np.isin(keys, known)
        return np.setdiff1d(used // beams.beam, np.flatnonzero(self.rows) // beams.beam)

    def lost(self, lane: int) -> list[tuple[int, int]]:
        """Return the last step of each correct derivation that a lane has just lost."""
        lanes, last, taken = self._ways
        is_here = lanes == lane
        return list(zip(last[is_here].tolist(), taken[is_here].tolist(), strict=True))


def derive(
    beams: Beams,
    tokens: Ints,
    lengths: Ints,
    scorer: Scorer,
    choices: Choices,
    observe: Callable[[Configurations, Ints, Bytes, Floats], None],
) -> Derivations:
    """Search sentences, all at once, for what is to be learnt from them.

    Args:
        beams: has a lane for each.
        tokens: the row of each sentence's ROOT in the token arrays.
        lengths: words of each sentence.
        scorer: fills in the scores of transitions.
        choices: what is correct. There is such a transition in every configuration that correct
            ones lead to.
        observe: is told of every configuration that is scored; see `search.History`.
    """
    beam, num_transitions = beams.beam, beams.num_transitions
    correct = _Correct(beams, choices, num_transitions)

    def watch(configurations: Configurations, which: Ints, masks: Bytes, scores: Floats) -> None:
        correct.scored(history, which, masks)
        observe(configurations, which, masks, scores)

    beams.history = history = History(len(beams.configurations.configs), watch)
    begins = np.arange(beams.num_lanes, dtype=np.int32) * beam
    beams.begin(begins, tokens, lengths)
    correct.rows[begins] = True
    # of each derivation: sentence, last configuration, transition, whether it is correct
    found: list[tuple[int, int, int, bool]] = []
    while beams.hypotheses.used.any():
        lost = correct.moved(history) if beams.step(scorer) else begins[:0].astype(np.int64)
        done = beams.finished()
        for lane in lost.tolist():
            found += [(lane, *way, True) for way in correct.lost(lane)]
        # a lane may have lost its correct derivations and be done at once
        ended = np.union1d(lost * beam, done - done % beam).astype(np.int32)
        for begin in ended.tolist():
            for row in beams.ranked(begin).tolist():
                way = int(history.last[row]), int(history.taken[row])
                found.append((begin // beam, *way, bool(correct.rows[row])))
        beams.free(ended)
        correct.rows &= beams.hypotheses.used
    return _derivations(found, *history.tree())


def _derivations(
    found: list[tuple[int, int, int, bool]], parents: Ints, taken: Ints
) -> Derivations:
    """Return derivations by their last steps, without what all of a sentence have in common."""
    found.sort()
    columns = [np.asarray(column, np.int64) for column in zip(*found, strict=True)]
    sentences, last, transitions, gold = columns or [np.zeros(0, np.int64)] * 4
    is_gold: Bools = gold.astype(np.bool_)
    owners: Longs = np.arange(len(found))
    before, taken_there = parents.astype(np.int64), taken.astype(np.int64)
    parts = [(last[:0], transitions[:0], owners[:0])]
    while len(owners):
        goes_on = last >= 0  # not before the first choice
        last, transitions, owners = last[goes_on], transitions[goes_on], owners[goes_on]
        parts.append((last, transitions, owners))
        last, transitions = before[last], taken_there[last]
    steps, transitions, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
    # a step that all derivations of a sentence take has no part in telling them apart
    keys = steps * (1 + int(transitions.max(initial=0))) + transitions
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sizes = np.bincount(sentences)
    differs = counts[places] < sizes[sentences[owners]]
    numbers, steps = np.unique(steps[differs], return_inverse=True)
    return Derivations(
        numbers.astype(np.int32),
        steps.astype(np.int64),
        transitions[differs].astype(np.int64),
        owners[differs],
        sentences,
        is_gold,
    )


def losses(scores_NA: Tensor, derivations: Derivations) -> Tensor:
    """Return the loss of each sentence, in nats; see above.

    Args:
        scores_NA: of all transitions in the configurations of the derivations.
        derivations: of one sentence or more; each has a correct one.
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
    at = torch.from_numpy(sentences), torch.from_numpy(places)
    totals_BD = totals_D.new_full((len(sizes), int(sizes.max())), -torch.inf)
    totals_BD[at] = totals_D
    is_gold_BD = torch.zeros(totals_BD.shape, dtype=torch.bool)
    is_gold_BD[at] = torch.from_numpy(derivations.is_gold)
    gold_BD = totals_BD.masked_fill(~is_gold_BD, -torch.inf)
    loss_B: Tensor = totals_BD.logsumexp(1) - gold_BD.logsumexp(1)
    return loss_B


class GlobalTask(ParserTask):
    """The choice of transitions, first one by one, then by whole beams."""

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        super().__init__(config, data, **options)
        self._sentences: list[Longs] = []  # of each step of the running epoch
        self._local_epochs = config.training.epochs if data.initial is None else 0
        self._temperature = temperature_of(config)

    def begin_from(self, parser: Parser) -> None:
        """Take the weights of a parser, before the first step.

        Raises:
            ModelError: it was trained on another treebank, with other settings, or globally.
        """
        initial = f"training cannot begin from {self._data.initial}: it"
        if parser.config.learning.loss == "global":
            raise ModelError(
                f"{initial} was trained globally before",
                hint="give a locally trained parser, and more epochs by learning.global_epochs",
            )
        mine, its = (
            (known.config.model, known.labels, types.lexical, types.tags, types.known_characters)
            for known, types in ((self._data, self._data.types), (parser, parser.types))
        )
        if mine != its:
            raise ModelError(
                f"{initial} has other settings, or knows other words, tags or labels",
                hint="give the preset, the settings and the treebank that it was trained with",
            )
        self._average.take(parser.weights)

    @property
    def _is_local(self) -> bool:
        return self._epoch < self._local_epochs

    def start_epoch(self, epoch: int) -> int:
        """Draw batches; return the number of steps."""
        self._epoch = epoch
        self.items = "configurations" if self._is_local else "sentences"
        if self._is_local:
            return super().start_epoch(epoch)
        if epoch == self._local_epochs:
            # a stage is short, and would end with an average that is mostly of the one before
            self._average.restart()
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
        read, scorer, drop_inputs, drop_hidden = self._part(sentences)
        derivations, seen, masks = self._derive(sentences, scorer)
        scores_NA = self._transitions(read, seen, drop_inputs, drop_hidden)
        scores_NA = scores_NA.float() / self._temperature
        legal = torch.from_numpy(masks).long().to(self._device)
        scores_NA = (scores_NA + self._barred[legal]).log_softmax(1)
        return read.loss + losses(scores_NA, derivations).mean(), len(sentences)

    def _part(self, sentences: Longs) -> tuple[WordsRead, Scorer, Dropout, Dropout]:
        """Return a part of the network for some sentences, drawn by chance: what dropout leaves.

        In local training, each configuration has a part of its own. Here one part searches, and
        learns from what it found itself: the hypotheses that it preferred, not those that another
        part did. And as it searches worse than the whole network does, it has more to learn from.

        Returns:
            What it makes of words; the scorer of a search; the dropout of the classifier's inputs
            and of its hidden units, the same ones in every configuration.
        """
        learning = self.config.learning
        begins = self._arrays.tokens[sentences]
        inside = token_rows(begins, self._arrays.lengths[sentences])
        types = self._arrays.types[inside]
        read = self._read_words(types, np.sort(begins))
        weights = self._average.arrays(averaged=False)
        kept = [
            self._kept(torch.empty(size), dropout) * torch.ones(size)
            for size, dropout in (
                (weights["first.weight"].shape[1], learning.dropout_embeddings),
                (weights["output.weight"].shape[1], learning.dropout_hidden),
            )
        ]
        for name, mask in zip(("first.weight", "output.weight"), kept, strict=True):
            weights[name] = weights[name] * mask.numpy()
        vectors = read.vectors_UD.detach().float().cpu().numpy()
        reader = KnownTypes(vectors)
        classifier = Classifier(self.config.model, weights, reserved=0, reader=reader)
        numbers = np.arange(len(vectors), dtype=np.int32)[:, None]
        classifier.products.extend(numbers, numbers)
        local = np.zeros(len(self._arrays.types), np.int32)
        local[inside] = read.places[types]
        in_context = rows = None
        if read.units_TK is not None:
            assert classifier.tokens is not None
            in_context = classifier.tokens.of_units(read.units_TK.detach().float().cpu().numpy())
            rows = read.rows.astype(np.int32)

        def drop(mask: Tensor) -> Dropout:
            mask = mask.to(self._device)
            return lambda values: values * mask.to(values.dtype)

        drop_inputs, drop_hidden = map(drop, kept)
        return read, classifier.scorer(local, in_context, rows), drop_inputs, drop_hidden

    def _derive(self, sentences: Longs, scorer: Scorer) -> tuple[Derivations, Seen, Bytes]:
        """Search some sentences; also return what the configurations show, and what is legal there.

        There are some: two words or more leave a choice, and a beam of two has both ways.
        """
        token_numbers = np.arange(len(self._arrays.types), dtype=np.int32)
        found: list[Seen] = []
        legal: list[Bytes] = []

        def observe(
            configurations: Configurations, which: Ints, masks: Bytes, scores: Floats
        ) -> None:
            found.append(extract(configurations, which, token_numbers, self._slots))
            legal.append(masks)

        lengths = self._arrays.lengths[sentences]
        longest = int(lengths.max())
        beams = Beams(
            self.config.model.system,
            self._data.labels,
            len(sentences),
            longest,
            beam=self.config.learning.global_beam,
            margin=np.inf,
            temperature=self._temperature,
            normalised=True,
        )
        is_static = not self._explores or longest > LONGEST_EXPLORED
        derivations = derive(
            beams,
            self._arrays.tokens[sentences],
            lengths,
            scorer,
            # the one transition that the static oracle takes for correct
            (lambda found, which, legal: self._oracle.transitions(found, which)[:, None])
            if is_static
            else self._oracle.free,
            observe,
        )
        seen = (np.concatenate(column) for column in zip(*found, strict=True))
        numbers = derivations.configurations
        masks = np.concatenate(legal)[numbers]
        return derivations, Seen(*(column[numbers] for column in seen)), masks

    @property
    def about(self) -> dict[str, Any]:
        """That of the data, and the beam that validation has, while the parser is local, too."""
        return {**super().about, VALIDATED_BEAM: self.config.learning.global_beam}

    def model(self) -> Parser:
        """Return the parser of the averaged weights; it is a local one before the second stage."""
        config, data = self.config, self._data
        weights = self._average.arrays()
        # a local parser is searched with this temperature; after global training it is in the
        # weights
        learning = dataclasses.replace(config.learning, beam_temperature=self._temperature)
        if self._is_local:
            learning = dataclasses.replace(learning, loss="local")
        else:
            for name in ("output.weight", "output.bias"):
                weights[name] = weights[name] / np.float32(self._temperature)
        config = dataclasses.replace(config, learning=learning)
        return Parser(config, data.types, data.labels, weights)

    def validate(self) -> dict[str, float]:
        """Return UAS and LAS of the validation part with a beam as wide as that of training."""
        dev = self._data.dev
        return dev.scores(self.model().trees(dev.arrays, beam=self.config.learning.global_beam))
