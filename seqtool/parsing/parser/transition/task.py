"""Choosing transitions as a task of the training loop.

The sentences of an epoch are parsed in blocks by the classifier that is being trained: a roll-out,
in lockstep, as in `search`. The configurations that it comes through are shuffled, and divided
among the steps of the block. With a static oracle, its transition is what is to be learnt, and what
is taken. With a dynamic one, all transitions that cost nothing are to be learnt; the one that is
taken is the classifier's own, or, not exploring, the one of these that the classifier likes best
(Goldberg & Nivre 2012).

Dimensions: N configurations, U types in a batch, D width of a vector, J units that join fields, S,
C, M slots for words, labels and measures, H hidden units, F sums of the first layer (H, or 2H with
gates), A transitions, T tokens, E units of a direction of the encoder, K units that its states pass
through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.arrays import Bytes, Floats, Ints, Longs
from seqtool.parsing.encoding.encoder import Dropout, HeadChoice, Linear, as_it_is
from seqtool.parsing.encoding.features import NONE_TYPE, TokenArrays, token_rows
from seqtool.parsing.parser.config import SMALLEST_BATCH, ModelConfig, ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.network import ReadingNetwork, gated
from seqtool.parsing.parser.task import TreeTask, present_types
from seqtool.parsing.parser.transition.classifier import Classifier
from seqtool.parsing.parser.transition.hidden_layer import (
    NUM_BUCKETS,
    Seen,
    compile_slots,
    extract,
)
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.search import NODE_ROWS, Scorer
from seqtool.parsing.parser.transition.transitions import (
    NUM_ACTIONS,
    TOKENS,
    UNATTACHED,
    Configurations,
    num_choices,
)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "cube": lambda sums: sums**3,
    "glu": gated,
}


class ParserNetwork(ReadingNetwork):
    """Chen & Manning's (2014) classifier, over types (see `features`).

    The names of its weights, beside those of `ReadingNetwork`, are those of the model's file:

        labels.weight                                [labels, D]
        first.weight, first.bias                     [F, S * D + C * D], [F]
        measures.weight                              [M * NUM_BUCKETS, F], added to the first layer
        output.weight, output.bias                   [A, H], [A]

    With an encoder of E units a direction, and X slots that look at its states:

        bottleneck.weight, bottleneck.bias           [2K, 2E], [2K]
        contexts.weight                              [F, X * K]

    Args:
        config: sizes and slots.
        num_lexical, num_tags: symbols of types.
        num_labels: labels of arcs; number 0 means none.
        num_transitions: what is scored.
        num_characters: see `ReadingNetwork`.
        choose_heads: with `head_choice`, whose weights are no part of the model.
        num_gold_tags: combinations of gold tags that `head_choice` predicts too.
        num_words: that `cloze` predicts, whose weights are no part of the model either; 0: none.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_lexical: int,
        num_tags: int,
        num_labels: int,
        num_transitions: int,
        *,
        num_characters: int = 0,
        choose_heads: bool = False,
        num_gold_tags: int = 0,
        num_words: int = 0,
    ) -> None:
        super().__init__(config, num_lexical, num_tags, num_characters)
        self.labels = nn.Embedding(1 + num_labels, config.label_size)
        self._add_join()
        num_inputs = (
            len(config.slots) * config.token_size + len(config.label_slots) * config.label_size
        )
        self.first = Linear(num_inputs, config.num_sums)
        self.measures = nn.EmbeddingBag(
            max(1, len(config.measures) * NUM_BUCKETS), config.num_sums, mode="sum"
        )
        if config.encoder == "bilstm":
            self._add_encoder()
            self.bottleneck = Linear(2 * config.encoder_size, 2 * config.context_units)
            width = len(config.contexts) * config.context_units
            self.contexts = Linear(width, config.num_sums, bias=False)
            if choose_heads:
                self.head_choice = HeadChoice(2 * config.encoder_size, num_labels, num_gold_tags)
            self._add_cloze(num_words)
        self.output = Linear(config.hidden_size, num_transitions)
        self._draw_embeddings()
        nn.init.normal_(self.labels.weight, std=0.2)
        nn.init.zeros_(self.measures.weight)
        if config.activation != "cube":
            nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
            nn.init.zeros_(self.first.bias)

    def in_context(self, states_TE: Tensor, drop: Dropout = as_it_is) -> Tensor:
        """Return what the classifier sees of tokens, by the encoder's states, [T, 2E]: [T, K]."""
        return drop(gated(self.bottleneck(states_TE)))

    def forward(
        self,
        vectors_UD: Tensor,
        types_NS: Tensor,
        labels_NC: Tensor,
        measures_NM: Tensor,
        contexts_NX: Tensor | None = None,
        drop_inputs: Dropout = as_it_is,
        drop_hidden: Dropout = as_it_is,
    ) -> Tensor:
        """Return the scores of all transitions, [N, A].

        Args:
            vectors_UD: of types, see `type_vectors`.
            types_NS: which of them stands in each slot.
            labels_NC: 1 + label, or 0.
            measures_NM: the class of each measure.
            contexts_NX: what `in_context` returned, in the context slots, side by side.
            drop_inputs: is applied to the vectors in the slots.
            drop_hidden: is applied to the hidden layer.
        """
        num = len(labels_NC)
        inputs_ND = torch.cat(
            (
                functional.embedding(types_NS, vectors_UD).reshape(num, -1),
                self.labels(labels_NC).reshape(num, -1),
            ),
            dim=1,
        )
        sums_NF = self.first(drop_inputs(inputs_ND))
        if self.config.measures:
            rows = measures_NM + NUM_BUCKETS * torch.arange(
                measures_NM.shape[1], device=measures_NM.device
            )
            sums_NF = sums_NF + self.measures(rows)
        if contexts_NX is not None:
            sums_NF = sums_NF + self.contexts(contexts_NX)
        scores_NA: Tensor = self.output(drop_hidden(ACTIVATIONS[self.config.activation](sums_NF)))
        return scores_NA


NUM_LANES = 512


@dataclass(frozen=True)
class Examples:
    """Configurations, and what is to be done in them; N rows each.

    Attributes:
        tokens, labels, measures: what stands in the slots, see `hidden_layer.Seen`.
        legal: the legal actions, as bits.
        free: int32 [N, NUM_ACTIONS], of each action the transition that costs nothing, or -1.
        sentences: the row of ROOT in the sentence.
        shares: float32 [N, A], the teachers' probabilities of transitions, see `teachers`; [N, 0]
            without teachers that have any.
    """

    tokens: Ints
    labels: Ints
    measures: Ints
    legal: Bytes
    free: Ints
    sentences: Ints
    shares: Floats

    def __len__(self) -> int:
        return len(self.legal)

    def batches_of_sentences(self, num_batches: int, generator: np.random.Generator) -> list[Longs]:
        """Return the rows of each of several batches, each of a few sentences of like lengths.

        The longer a sentence, the more examples it has, which stand for its length here; a little
        chance makes the batches others in each epoch.
        """
        _, sentences, sizes = np.unique(self.sentences, return_inverse=True, return_counts=True)
        disturbed = sizes * generator.uniform(0.9, 1.1, len(sizes))
        parts = np.array_split(np.argsort(disturbed[sentences], kind="stable"), num_batches)
        return [parts[place] for place in generator.permutation(num_batches)]


LONGEST_EXPLORED = 400  # words; longer sentences follow the static oracle
BLOCK_STEPS = 60  # steps whose configurations are made, and shuffled, together


class WordsRead(NamedTuple):
    """What a step reads of words.

    Dimensions: U types that occur, D width of a vector, T tokens, K units of a token in context.

    Attributes:
        vectors_UD: of types; NONE comes first.
        places: int64, of each type that occurs, its place among the U.
        units_TK: of tokens, with NONE's, zeros, before them; None without an encoder.
        rows: int64, of each row of the token arrays, its place among these; none without it.
        loss: of what the encoder learns beside.
    """

    vectors_UD: Tensor
    places: Longs
    units_TK: Tensor | None
    rows: Longs
    loss: Tensor


class ParserTask(TreeTask):
    """The choice of transitions, for `seqtool.training.loop.train`."""

    items = "configurations"
    module: ParserNetwork

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        # an encoder's slots are looked at last
        self._contexts = config.model.contexts
        super().__init__(config, data, **options)
        labels, arrays = data.labels, self._arrays
        self._own_symbols = data.types.arrays()
        self._slots = compile_slots(
            (*config.model.slots, *self._contexts),
            config.model.label_slots,
            config.model.measures,
        )
        self._lengths = np.zeros(len(arrays.types), np.int32)  # of the sentence of each ROOT
        self._lengths[arrays.tokens] = arrays.lengths
        self._num_choices = num_choices(arrays.lengths, labels)
        self._usable = np.flatnonzero(self._num_choices)
        self._oracle = Oracle(
            config.model.system, labels, data.heads, data.label_ids, arrays.tokens, arrays.lengths
        )
        self._blocks: list[tuple[Ints, int]] = []
        self._examples: Examples | None = None
        self._batches: list[Longs] = []  # rows of the examples, by step of the running block
        # [32, A]: what is added to the scores of transitions under each mask of legal actions
        bits = np.arange(1 << NUM_ACTIONS)[:, None] >> np.arange(NUM_ACTIONS) & 1
        legal = np.repeat(bits, np.diff(labels.segments), axis=1)
        self._barred = torch.from_numpy(np.where(legal, 0.0, -np.inf).astype(np.float32)).to(
            self._device
        )

    def _network(self, num_words: int) -> ParserNetwork:
        types, labels = self._data.types, self._data.labels
        return ParserNetwork(
            self.config.model,
            types.lexical.num_symbols,
            types.tags.num_symbols,
            len(labels),
            labels.num_transitions,
            num_characters=types.num_characters,
            choose_heads=self.config.learning.head_weight > 0,
            num_gold_tags=self._data.num_gold_tags,
            num_words=num_words,
        )

    def start_epoch(self, epoch: int) -> int:
        """Draw an order of the sentences, in blocks; return the number of steps."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        order = generator.permutation(self._data.of_epoch(epoch, self._usable))
        choices = np.cumsum(self._num_choices[order])
        learning = self.config.learning
        fewer = max(SMALLEST_BATCH, int(choices[-1:].sum()) // learning.min_steps)
        batch_size = min(learning.batch_size, fewer)
        cuts = np.flatnonzero(np.diff(choices // (BLOCK_STEPS * batch_size))) + 1
        self._blocks, step = [], 0
        for sentences in np.split(order, cuts):
            step += max(1, round(int(self._num_choices[sentences].sum()) / batch_size))
            self._blocks.append((sentences, step))
        return step

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`, in nats per configuration."""
        self._average.update()
        self._begin_step(index)
        begin, end, sentences = self._block_of(index)
        if index == begin or self._examples is None:
            self._examples = self._roll_out(sentences)
            self._batches = []
        if not self._batches:
            shuffled = np.random.default_rng((self.config.training.seed, self._epoch, begin))
            # an encoder has to read the sentences of a batch, so it is better for them to be few
            self._batches = (
                self._examples.batches_of_sentences(end - begin, shuffled)
                if self._contexts
                else np.array_split(shuffled.permutation(len(self._examples)), end - begin)
            )
        batch = self._batches[index - begin]
        scores_NA, loss = self._scores(
            self._examples.tokens[batch],
            self._examples.labels[batch],
            self._examples.measures[batch],
            np.unique(self._examples.sentences[batch]),
        )
        legal = torch.from_numpy(self._examples.legal[batch]).long().to(self._device)
        scores_NA = scores_NA.float() + self._barred[legal]
        free = torch.from_numpy(self._examples.free[batch]).long().to(self._device)
        free_scores = scores_NA.gather(1, free.clamp_min(0)).masked_fill(free < 0, -torch.inf)
        log_sums_N = scores_NA.logsumexp(1)
        loss_N = log_sums_N - free_scores.logsumexp(1)
        if self._data.teachers:
            shares = torch.from_numpy(self._examples.shares[batch]).to(self._device)
            # a transition that is not legal has no share, and its score is minus infinity
            taught_N = (shares * scores_NA.masked_fill(shares == 0, 0.0)).sum(1)
            weight = self.config.learning.teacher_weight
            loss_N = (1 - weight) * loss_N + weight * (shares.sum(1) * log_sums_N - taught_N)
        return loss + loss_N.mean(), len(batch)

    def _block_of(self, index: int) -> tuple[int, int, Ints]:
        """Return the first step of the block of a step, the step after its last, its sentences."""
        begin = 0
        for sentences, end in self._blocks:
            if index < end:
                return begin, end, sentences
            begin = end
        raise IndexError(index)

    @property
    def _explores(self) -> bool:
        """Whether a dynamic oracle teaches."""
        return self.config.learning.oracle == "dynamic" and self._oracle.system.dynamic

    def _roll_out(self, sentences: Ints) -> Examples:
        """Return what the parser, as it is now, comes through in some sentences."""
        if not self._explores:
            return self._configurations(sentences)
        # the tables of a dynamic oracle grow with the square of a sentence
        is_long = self._arrays.lengths[sentences] > LONGEST_EXPLORED
        parts = []
        if is_long.any():
            parts.append(self._configurations(sentences[is_long]))
        if not is_long.all():
            rest = sentences[~is_long]
            classifier = Classifier(self.config.model, self._average.arrays(), reserved=0)
            scorer = self._scorer_of(classifier, self._own_symbols, rest)
            parts.append(self._configurations(rest, scorer))
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Examples(*map(np.concatenate, columns))

    def _scorer_of(
        self, classifier: Classifier, symbols: tuple[Ints, ...], sentences: Ints | Longs
    ) -> Scorer:
        """Return what scores the configurations of some sentences by a classifier.

        Args:
            classifier: one that knows no types.
            symbols: of all types, those of the classifier.
            sentences: places in the treebank.
        """
        tokens, lengths = self._arrays.tokens[sentences], self._arrays.lengths[sentences]
        # only the types of these sentences, numbered anew
        inside = token_rows(tokens, lengths)
        present, places = present_types(self._arrays.types[inside], len(symbols[0]))
        classifier.products.extend(*(table[present] for table in symbols))
        local = np.zeros(len(self._arrays.types), np.int32)
        local[inside] = places
        rows = np.zeros(len(self._arrays.types), np.int32)
        rows[inside] = np.arange(1, 1 + len(inside))
        types = np.append(np.int32(NONE_TYPE), local[inside])
        read = TokenArrays(types, rows[tokens], lengths)
        return classifier.scorer(local, classifier.in_context(read), rows)

    def _configurations(self, sentences: Ints, scorer: Scorer | None = None) -> Examples:
        """Parse sentences, and note the configurations that leave a choice.

        The scorer is the classifier, whose own choice is followed now and then; without it, that of
        the static oracle is.
        """
        learning, labels = self.config.learning, self._data.labels
        exploration = learning.exploration if self._epoch >= learning.explore_after else 0.0
        tokens, lengths = self._arrays.tokens[sentences], self._arrays.lengths[sentences]
        token_numbers = np.arange(len(self._arrays.types), dtype=np.int32)
        longest = int(lengths.max())
        num_lanes = max(1, min(NUM_LANES, len(lengths), NODE_ROWS // (longest + 1)))
        configurations = Configurations(self.config.model.system, labels, num_lanes, longest)
        lanes = np.arange(num_lanes, dtype=np.int32)
        scores = np.empty((num_lanes, labels.num_transitions), np.float32)
        teachers = [
            self._scorer_of(Classifier(config, weights, reserved=0), symbols, sentences)
            for config, weights, symbols in self._data.teachers
        ]
        found: list[tuple[npt.NDArray[np.generic], ...]] = []
        waiting = 0
        while True:
            while waiting < len(lengths):
                done = lanes[configurations.configs[lanes, UNATTACHED] == 0]
                done = done[: len(lengths) - waiting]
                if not len(done):
                    break
                begun = slice(waiting, waiting + len(done))
                configurations.start(done, tokens[begun], lengths[begun])
                waiting += len(done)
            # a sentence may be final when it begins, so that lanes can be done again at once
            which = configurations.unfinished(lanes)
            if not len(which):
                break
            legal = configurations.legal(which)
            if scorer is None:
                chosen = self._oracle.transitions(configurations, which)
                free = np.full((len(which), NUM_ACTIONS), -1, np.int32)
                free[:, 0] = chosen  # the column does not matter to what is learnt
            else:
                free = self._oracle.free(configurations, which, legal)
                scorer(configurations, which, scores[: len(which)])
                own = configurations.choose(legal, scores[: len(which)])
                best = _best_of(free, scores[: len(which)])
                # no gold label at all on what is free: only its own choice is left
                follows = (self._random.random(len(which)) < exploration) | (best < 0)
                chosen = np.where(follows, own, best).astype(np.int32)
            taught = np.zeros((len(which), labels.num_transitions if teachers else 0), np.float32)
            for teacher in teachers:
                teacher(configurations, which, scores[: len(which)])
                taught += probabilities_of(scores[: len(which)], legal, labels.segments) / len(
                    teachers
                )
            roots = configurations.configs[which, TOKENS]
            seen = extract(configurations, which, token_numbers, self._slots)
            found.append((*seen, legal, free, roots, taught))
            configurations.advance(which, chosen)
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        examples = Examples(*columns)
        # a word that has lost its head for good may leave no transition with its gold label
        known = (examples.free >= 0).any(axis=1)
        return Examples(*(column[known] for column in columns))

    def _scores(
        self, tokens_NS: Ints, labels_NC: Ints, measures_NM: Ints, sentences_B: Ints
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of transitions, [N, A], and the loss of what the encoder learns."""
        types_NS = self._arrays.types[tokens_NS[:, : len(self.config.model.slots)]]
        read = self._read_words(types_NS, sentences_B)
        learning = self.config.learning
        scores_NA = self._transitions(
            read,
            Seen(tokens_NS, labels_NC, measures_NM),
            lambda inputs: inputs * self._kept(inputs, learning.dropout_embeddings),
            lambda hidden: hidden * self._kept(hidden, learning.dropout_hidden),
        )
        return scores_NA, read.loss

    def _read_words(self, types: Ints | Longs, sentences_B: Ints) -> WordsRead:
        """Return the vectors of types and, with an encoder, what it makes of the sentences.

        Args:
            types: whose vectors are needed beside those that the encoder reads.
            sentences_B: the row of each sentence's ROOT, ascending.
        """
        learning = self.config.learning
        # what the encoder reads
        lengths_B = self._lengths[sentences_B] if self._contexts else sentences_B[:0]
        inside_T = token_rows(sentences_B[: len(lengths_B)], lengths_B)
        read: Longs = np.append(types, self._arrays.types[inside_T]).astype(np.int64)
        vectors_UD, places = self._type_vectors(read)
        place_of = np.zeros(len(self._symbols[0]), np.int64)
        place_of[read] = places
        units_TK, loss = None, torch.zeros((), device=self._device)
        rows = np.zeros(len(self._arrays.types) if self._contexts else 0, np.int64)
        if self._contexts:
            sentences = np.searchsorted(self._arrays.tokens, sentences_B)
            first_TE, states_TE = self._read(
                vectors_UD, places[types.size :], sentences, lengths_B + 1
            )
            if learning.head_weight:
                loss = learning.head_weight * self._head_loss(states_TE, inside_T, lengths_B)
            if self._words is not None:
                loss = loss + self._cloze_loss(first_TE, read[types.size :], lengths_B + 1)
            units_TK = self.module.in_context(
                states_TE, lambda units: units * self._kept(units, learning.dropout_contexts)
            )
            # NONE's row, of zeros, comes first
            units_TK = functional.pad(units_TK, (0, 0, 1, 0))
            rows[inside_T] = np.arange(1, 1 + len(inside_T))
        return WordsRead(vectors_UD, place_of, units_TK, rows, loss)

    def _transitions(
        self, read: WordsRead, seen: Seen, drop_inputs: Dropout, drop_hidden: Dropout
    ) -> Tensor:
        """Return the scores of all transitions, [N, A], where `seen` is seen, by tokens."""
        num_slots = len(self.config.model.slots)
        places_NS = read.places[self._arrays.types[seen.words[:, :num_slots]]]
        contexts_NX = None
        if read.units_TK is not None:
            rows_NX = torch.from_numpy(read.rows[seen.words[:, num_slots:]])
            contexts_NX = functional.embedding(rows_NX.to(self._device), read.units_TK).flatten(1)
        scores_NA: Tensor = self.module(
            read.vectors_UD,
            torch.from_numpy(places_NS).to(self._device),
            torch.from_numpy(seen.labels).long().to(self._device),
            torch.from_numpy(seen.measures).long().to(self._device),
            contexts_NX,
            drop_inputs,
            drop_hidden,
        )
        return scores_NA

    def _head_loss(self, states_TE: Tensor, inside_T: Longs, lengths_B: Ints) -> Tensor:
        """Return the loss of choosing heads by the encoder's states, see `head_choice`."""
        wanted = [lengths_B + 1, self._data.heads[inside_T], self._data.label_ids[inside_T]]
        if self._data.gold_tags is not None:
            wanted.append(self._data.gold_tags[inside_T])
        loss: Tensor = self.module.head_choice(states_TE, *self._on_device(*wanted))
        return loss

    def carried(self) -> dict[str, Tensor]:
        """Return the averages, and the examples of the running block."""
        carried = super().carried()
        if self._examples is not None:
            for name, array in vars(self._examples).items():
                if name != "shares" or self._data.teachers:
                    carried[f"examples.{name}"] = torch.from_numpy(array)
        return carried

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""
        super().restore_carried(tensors)
        parts = {
            name.removeprefix("examples."): tensor.numpy()
            for name, tensor in tensors.items()
            if name.startswith("examples.")
        }
        self._examples = None
        if parts:
            parts.setdefault("shares", np.zeros((len(parts["legal"]), 0), np.float32))
            self._check(parts)
            self._examples = Examples(**parts)
        self._batches = []  # of other examples

    def _check(self, parts: Mapping[str, npt.NDArray[Any]]) -> None:
        """Refuse what is no examples of this treebank, network and system: a ValueError."""
        labels, slots = self._data.labels, self._slots
        num, num_transitions = len(parts["legal"]), labels.num_transitions
        taught = num_transitions if self._data.teachers else 0
        # of each column, its type, its width, and what its numbers are below
        wanted: dict[str, tuple[type[np.generic], tuple[int, ...], float]] = {
            "tokens": (np.int32, (len(slots.words),), len(self._arrays.types)),
            "labels": (np.int32, (len(slots.labels),), 1 + len(labels)),
            "measures": (np.int32, (len(slots.measures),), NUM_BUCKETS),
            "legal": (np.uint8, (), 1 << NUM_ACTIONS),
            "free": (np.int32, (NUM_ACTIONS,), num_transitions),
            "sentences": (np.int32, (), len(self._arrays.types)),
            "shares": (np.float32, (taught,), np.inf),
        }
        for name, (dtype, width, end) in wanted.items():
            column, least = parts[name], -1 if name == "free" else 0
            if not num or column.dtype != dtype or column.shape != (num, *width):
                raise ValueError(f"{name} of other examples")
            if column.size and not least <= column.min() <= column.max() < end:
                raise ValueError(f"{name} outside of the treebank")
        is_of_roots = np.isin(parts["sentences"], self._arrays.tokens).all()
        if parts.keys() != wanted.keys() or not is_of_roots:
            raise ValueError("examples of another treebank")


def _best_of(free: Ints, scores: Floats) -> Ints:
    """Return the transition of the highest score in each row of `free`; -1 without any."""
    values = np.take_along_axis(scores, np.maximum(free, 0), axis=1)
    best = np.where(free >= 0, values, -np.inf).argmax(axis=1)
    chosen: Ints = free[np.arange(len(free)), best]
    chosen[(free < 0).all(axis=1)] = -1
    return chosen


def probabilities_of(scores: Floats, legal: Bytes, segments: Ints) -> Floats:
    """Return the probabilities of transitions, float32 [N, A]: softmax over the legal ones.

    Where none of these has a score, all are 0.

    Args:
        scores: [N, A].
        legal: the legal actions, as bits, [N].
        segments: of `Labels`.
    """
    is_legal = legal[:, None] >> np.arange(NUM_ACTIONS, dtype=np.uint8) & 1
    is_open = np.repeat(is_legal.astype(np.bool_), np.diff(segments), axis=1)
    values = np.where(is_open, scores, np.float32(-np.inf))
    highest = values.max(axis=1, keepdims=True)
    # where no legal one has a score, -inf less -inf would be a NaN
    found: Floats = np.exp(values - np.where(np.isfinite(highest), highest, np.float32(0.0)))
    total = found.sum(axis=1, keepdims=True)
    found /= np.where(total > 0, total, np.float32(1.0))
    return found
