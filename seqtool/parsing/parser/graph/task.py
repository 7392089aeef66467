"""Choosing heads and labels: the network for training, and the task of the training loop.

Dimensions: B sentences, L tokens of the longest, D words of the longest, H = 1 + D heads (0 is
ROOT), S arcs of all sentences, one after another, T tokens of all sentences (ROOT is one), N arcs,
E units of a direction of the encoder, A units by which heads are scored, R units by which labels
are scored, K labels, C classes of distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.core.arrays import Ints, Longs
from seqtool.core.errors import DataError
from seqtool.parsing.data import batches_of_like_lengths
from seqtool.parsing.encoding.encoder import (
    NONE,
    Dropout,
    Linear,
    as_it_is,
    padded_rows,
    tag_loss,
)
from seqtool.parsing.encoding.features import token_rows
from seqtool.parsing.parser.config import LONGEST_LEARNT, SMALLEST_BATCH, ModelConfig, ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.scores import (
    NUM_DISTANCES,
    SLOPE,
    distance_classes,
    pair_borders,
    refined_scores,
    unit_borders,
)
from seqtool.parsing.parser.network import ReadingNetwork
from seqtool.parsing.parser.task import TreeTask

LEAST_SHARE = 1e-6  # of every arc among what teachers tell, so that there is a tree in any case


class GraphNetwork(ReadingNetwork):
    """Deep biaffine attention over the states of an encoder (Dozat & Manning 2017).

    Four layers turn a token's state into what it is as a dependent and as a head, for heads and for
    labels. Of dependent d and head h,

        score of the arc       (W d + b) . h                    their equation 7: h W d + h b
        score of its label k   (W_k d + b_k) . h + v_k . d + c_k                  their equation 3

    With distances, of a head that is so far away and to one side, class c of `distance_classes`,
    P_c d + q_c + R_c h is added to the score of the arc.

    The names of its weights, beside those of `ReadingNetwork`, are those of the model's file:

        units.weight, units.bias           [2A + 2R, 2E], [2A + 2R]   d and h, twice
        arcs.weight, arcs.bias             [A, A], [A]                W and b
        relations.weight, relations.bias   [K * R, R], [K * R]        W_k and b_k
        labels.weight, labels.bias         [K, R], [K]                v_k and c_k
        distances.weight, distances.bias   [C, A], [C]                P and q, with distances
        head_distances.weight              [C, A]                     R, with distances

    Args:
        config: sizes.
        num_lexical, num_tags: symbols of types.
        num_labels: K.
        num_characters: see `ReadingNetwork`.
        num_gold_tags: combinations of gold tags that `gold_tags` tells, whose weights are no part
            of the model; 0: none.
        num_words: that `cloze` tells, whose weights are no part of it either; 0: none.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_lexical: int,
        num_tags: int,
        num_labels: int,
        *,
        num_characters: int = 0,
        num_gold_tags: int = 0,
        num_words: int = 0,
    ) -> None:
        super().__init__(config, num_lexical, num_tags, num_characters)
        self._add_join()
        self._add_encoder()
        self._borders = unit_borders(config)
        self.units = Linear(2 * config.encoder_size, 2 * config.arc_size + 2 * config.relation_size)
        self.arcs = Linear(config.arc_size, config.arc_size)
        self.relations = Linear(config.relation_size, num_labels * config.relation_size)
        self.labels = Linear(config.relation_size, num_labels)
        zeros = [self.arcs, self.relations, self.labels]
        if config.distances:
            self.distances = Linear(config.arc_size, NUM_DISTANCES)
            self.head_distances = Linear(config.arc_size, NUM_DISTANCES, bias=False)
            zeros += [self.distances, self.head_distances]
        if config.second_order != "none":
            self.pairs = Linear(2 * config.encoder_size, sum(pair_borders(config)))
            nn.init.zeros_(self.pairs.bias)
            # pairs, too, begin with the same score
            nn.init.zeros_(self.pairs.weight[: pair_borders(config)[0]].detach())
        self._add_cloze(num_words)
        if num_gold_tags:
            self.gold_tags = Linear(2 * config.encoder_size, num_gold_tags)
        self._draw_embeddings()
        for weight in torch.tensor_split(self.units.weight.detach(), self._borders):
            nn.init.orthogonal_(weight)
        # all arcs and labels begin with the same score
        for layer in zeros:
            nn.init.zeros_(layer.weight)
        for layer in (self.units, *zeros):
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, states_TE: Tensor, drop: Dropout = as_it_is) -> tuple[Tensor, ...]:
        """Return tokens as dependents and heads, by states [T, 2E]: [T, A] twice, [T, R] twice.

        `drop` is applied to all of them together, [T, 2A + 2R].
        """
        units_TU = functional.leaky_relu(self.units(states_TE), SLOPE)
        return tuple(torch.tensor_split(drop(units_TU), self._borders, dim=1))

    def pair_units(self, states_TE: Tensor, drop: Dropout = as_it_is) -> Tensor | None:
        """Return what the scores of pairs of arcs are made of, [T, P]; None of first order.

        Args:
            states_TE: of tokens.
            drop: is applied to those that stand once in a product; see `meanfield`.
        """
        if self.config.second_order == "none":
            return None
        once, others = self.pairs(states_TE).split(pair_borders(self.config), 1)
        return torch.cat((drop(once), others), 1)

    def arc_scores(
        self,
        dependents_TA: Tensor,
        heads_TA: Tensor,
        lengths_B: Tensor,
        pairs_TP: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of arcs, [B, L, L]: row of the dependent, column of the head.

        No token is its own head, nor is padding a head: these are -inf. The rows of padding mean
        nothing. What comes second tells which token each row is, [B, L].

        Args:
            dependents_TA: tokens as dependents, one sentence after another.
            heads_TA: the same tokens as heads.
            lengths_B: tokens of each.
            pairs_TP: of the same tokens, what `pair_units` returns; None of first order.
        """
        tokens_BL, inside_BL = padded_rows(lengths_B)
        dependents_BLA, heads_BLA = (
            functional.embedding(tokens_BL, units).float()
            for units in (self.arcs(dependents_TA), heads_TA)
        )
        # in bfloat16 a score of 20 would be rounded to an eighth
        with torch.autocast(tokens_BL.device.type, enabled=False):
            scores_BLL = dependents_BLA @ heads_BLA.transpose(1, 2)
        if self.config.distances:
            longest = tokens_BL.shape[1]
            classes_LL = torch.from_numpy(distance_classes(longest)).long().to(tokens_BL.device)
            classes_BLL = classes_LL.expand(len(tokens_BL), longest, longest)
            by_word_BLC, by_head_BLC = (
                functional.embedding(tokens_BL, layer(units)).float()
                for layer, units in (
                    (self.distances, dependents_TA),
                    (self.head_distances, heads_TA),
                )
            )
            scores_BLL = scores_BLL + by_word_BLC.gather(2, classes_BLL)
            by_head_BLL = by_head_BLC.gather(2, classes_BLL.transpose(1, 2))
            scores_BLL = scores_BLL + by_head_BLL.transpose(1, 2)
        is_self_LL = torch.eye(tokens_BL.shape[1], dtype=torch.bool, device=tokens_BL.device)
        scores_BLL = scores_BLL.masked_fill(~inside_BL[:, None] | is_self_LL, -torch.inf)
        if pairs_TP is not None:
            with torch.autocast(tokens_BL.device.type, enabled=False):
                scores_BLL = self._refined(scores_BLL, tokens_BL, inside_BL, pairs_TP)
        return scores_BLL, tokens_BL

    def _refined(
        self, scores_BLL: Tensor, tokens_BL: Tensor, inside_BL: Tensor, pairs_TP: Tensor
    ) -> Tensor:
        """Return the scores of arcs after mean-field inference; ROOT, token 0, has no head."""
        is_word_BN = inside_BL[:, 1:, None].float()
        words_BNL = refined_scores(
            scores_BLL[:, 1:],
            functional.embedding(tokens_BL, pairs_TP).float(),
            self.config,
            lambda scores_BNL: scores_BNL.softmax(2) * is_word_BN,
        )
        return torch.cat((scores_BLL[:, :1], words_BNL), 1)

    def label_scores(self, dependents_NR: Tensor, heads_NR: Tensor) -> Tensor:
        """Return the scores of the labels of arcs, [N, K]."""
        through_NKR = self.relations(dependents_NR).unflatten(1, (-1, heads_NR.shape[1]))
        products_NK = (through_NKR @ heads_NR[:, :, None]).squeeze(2)
        scores_NK: Tensor = (products_NK + self.labels(dependents_NR)).float()
        return scores_NK


class GraphTask(TreeTask):
    """The heads and labels of all words of a sentence, for `seqtool.training.loop.train`.

    Heads are learnt one by one, as a choice among the tokens of the sentence (`local`), or all
    together: the probability of a tree among the projective ones (`crf`) or among all trees with
    one arc from ROOT (`matrix-tree`). Labels are learnt of the gold arcs.
    """

    items = "words"
    module: GraphNetwork

    def __init__(self, config: ParserConfig, data: TrainingData, **options: str) -> None:
        super().__init__(config, data, **options)
        lengths = self._arrays.lengths
        self._usable = np.flatnonzero(lengths <= LONGEST_LEARNT)
        if not len(self._usable):
            raise DataError(
                f"every sentence has more than {LONGEST_LEARNT} words, and none so long is learnt",
                hint="split them into sentences, or use --decoder transition",
            )
        num_arcs = len(data.labels.arcs)
        is_root = np.arange(len(data.labels)) >= num_arcs
        self._is_root_label = torch.from_numpy(is_root).to(self._device)
        learning = config.learning
        self._smoothing = learning.label_smoothing if learning.loss == "local" else 0.0
        self._batches: list[Longs] = []

    def _network(self, num_words: int) -> GraphNetwork:
        types = self._data.types
        return GraphNetwork(
            self.config.model,
            types.lexical.num_symbols,
            types.tags.num_symbols,
            len(self._data.labels),
            num_characters=types.num_characters,
            num_gold_tags=self._data.num_gold_tags,
            num_words=num_words,
        )

    def start_epoch(self, epoch: int) -> int:
        """Draw batches of sentences of like lengths; return their number."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        order = generator.permutation(self._data.of_epoch(epoch, self._usable))
        lengths, learning = self._arrays.lengths, self.config.learning
        fewer = max(SMALLEST_BATCH, int(lengths[order].sum()) // learning.min_steps)
        size = min(learning.batch_words, fewer)
        self._batches = batches_of_like_lengths(order, lengths, size, generator)
        return len(self._batches)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`, in nats per word: of heads and labels, added."""
        self._average.update()
        self._begin_step(index)
        sentences = self._batches[index]
        lengths = self._arrays.lengths[sentences]
        inside_T = token_rows(self._arrays.tokens[sentences], lengths)
        types_T = self._arrays.types[inside_T]
        vectors_UD, places_T = self._type_vectors(types_T)
        first_TE, states_TE = self._read(vectors_UD, places_T, sentences, lengths + 1)
        num_words = int(lengths.sum())
        lengths_B, heads_T, labels_T = self._on_device(
            lengths + 1, self._data.heads[inside_T], self._data.label_ids[inside_T]
        )
        sentences_T = torch.arange(len(lengths_B), device=lengths_B.device)
        sentences_T = sentences_T.repeat_interleave(lengths_B)

        # the same for all tokens of a sentence, so that a unit is there on both sides or on neither
        def drop(units_TU: Tensor) -> Tensor:
            return units_TU * self._kept_by_sentence(units_TU, sentences_T)

        dependents_TA, heads_TA, dependents_TR, heads_TR = self.module(states_TE, drop)
        scores_BLL, tokens_BL = self.module.arc_scores(
            dependents_TA, heads_TA, lengths_B, self.module.pair_units(states_TE, drop)
        )
        taught_BLL = self._taught_heads(inside_T, scores_BLL.shape, lengths)
        loss = self._head_loss(scores_BLL, tokens_BL, lengths_B, heads_T, taught_BLL) / num_words
        loss = loss + self._label_loss(
            dependents_TR, heads_TR, lengths_B, heads_T, labels_T, sentences_T
        )
        if self._words is not None:
            loss = loss + self._cloze_loss(first_TE, types_T, lengths + 1)
        if self._data.gold_tags is not None:
            (tags_T,) = self._on_device(self._data.gold_tags[inside_T])
            weight = self.config.learning.head_weight
            loss = loss + weight * tag_loss(self.module.gold_tags, states_TE, tags_T)
        return loss, num_words

    def _kept_by_sentence(self, values_TU: Tensor, sentences_T: Tensor) -> Tensor | float:
        """Return what dropout multiplies the units of tokens by."""
        if not self.config.learning.dropout_arcs:
            return 1.0
        num = int(sentences_T[-1]) + 1
        kept = self._kept(values_TU[:num], self.config.learning.dropout_arcs)
        assert isinstance(kept, Tensor)
        return kept[sentences_T]

    def _taught_heads(self, inside_T: Longs, shape: torch.Size, lengths_B: Ints) -> Tensor | None:
        """Return how probable teachers take heads to be, [B, L, L]; None without teachers."""
        shares_of_heads = self._data.head_shares
        if shares_of_heads is None:
            return None
        num, longest, _ = shape
        which, heads, shares = shares_of_heads.of(inside_T)
        begins_B = np.cumsum(lengths_B + 1) - (lengths_B + 1)
        sentences_T = np.repeat(np.arange(num), lengths_B + 1)
        rows_T = sentences_T * longest + np.arange(len(inside_T)) - begins_B[sentences_T]
        table = np.zeros((num * longest, longest), np.float32)
        table[rows_T[which], heads] = shares
        return torch.from_numpy(table).view(shape).to(self._device)

    def _head_loss(
        self,
        scores_BLL: Tensor,
        tokens_BL: Tensor,
        lengths_B: Tensor,
        heads_T: Tensor,
        taught_BLL: Tensor | None,
    ) -> Tensor:
        """Return the loss of heads, in nats, summed over words."""
        # ROOT stands first in every sentence, so token 0 has no head, and neither has padding
        heads_BL = heads_T[tokens_BL]
        loss = self.config.learning.loss
        weight = self.config.learning.teacher_weight if taught_BLL is not None else 0.0
        if loss == "local":
            scores_RL, heads_R = scores_BLL.flatten(0, 1), heads_BL.flatten()
            of_gold_R = functional.cross_entropy(
                scores_RL, heads_R, ignore_index=NONE, reduction="none"
            )
            of_gold_R = smoothed(of_gold_R, scores_RL, self._smoothing) * (heads_R != NONE)
            if taught_BLL is None:
                return of_gold_R.sum()
            # what has no share may have a score of minus infinity
            logs_RL = scores_RL.log_softmax(1)
            taught_RL = taught_BLL.flatten(0, 1)
            of_taught_R = -(taught_RL * logs_RL.masked_fill(taught_RL == 0, 0.0)).sum(1)
            # of a word of which nothing is told, all is gold
            return ((1.0 - weight * taught_RL.sum(1)) * of_gold_R + weight * of_taught_R).sum()
        loss_B = tree_loss(
            scores_BLL[:, 1:],
            lengths_B - 1,
            heads_BL[:, 1:],
            loss == "crf",
            taught_BDH=None if taught_BLL is None else taught_BLL[:, 1:],
            weight=weight,
        )
        return loss_B.sum()

    def _label_loss(
        self,
        dependents_TR: Tensor,
        heads_TR: Tensor,
        lengths_B: Tensor,
        heads_T: Tensor,
        labels_T: Tensor,
        sentences_T: Tensor,
    ) -> Tensor:
        """Return the loss of the labels of the gold arcs, in nats per word."""
        words_N = (heads_T != NONE).nonzero().flatten()
        begins_B = lengths_B.cumsum(0) - lengths_B
        heads_N = heads_T[words_N]
        scores_NK = self.module.label_scores(
            functional.embedding(words_N, dependents_TR),
            functional.embedding(begins_B[sentences_T[words_N]] + heads_N, heads_TR),
        )
        # arcs from ROOT have labels of their own, as in `decoder`
        is_barred_NK = (heads_N == 0)[:, None] != self._is_root_label
        scores_NK = scores_NK.masked_fill(is_barred_NK, -torch.inf)
        loss_N = functional.cross_entropy(scores_NK, labels_T[words_N], reduction="none")
        return smoothed(loss_N, scores_NK, self._smoothing).mean()


def smoothed(loss_N: Tensor, scores_NK: Tensor, share: float) -> Tensor:
    """Return losses of choices with label smoothing (Szegedy et al. 2016, section 7), [N].

    Args:
        loss_N: the negative log-likelihood of what is right, in nats.
        scores_NK: of all that may be chosen; minus infinity for what may not.
        share: of what is learnt, that which all choices have alike.
    """
    if not share:
        return loss_N
    is_choice_NK = scores_NK > -torch.inf
    sums_N = scores_NK.masked_fill(~is_choice_NK, 0.0).sum(1)
    of_all_N = scores_NK.logsumexp(1) - sums_N / is_choice_NK.sum(1)
    smoothed_N: Tensor = (1.0 - share) * loss_N + share * of_all_N
    return smoothed_N


class _TreeLoss(torch.autograd.Function):
    """The log-partition function less the score of what is wanted, in float64 inside."""

    @staticmethod
    def forward(
        ctx: Any, scores_S: Tensor, wanted_S: Tensor, lengths_B: Tensor, projective: bool
    ) -> Tensor:
        scores = scores_S.detach().double().cpu()
        wanted_S, lengths = wanted_S.double().cpu(), lengths_B.int().cpu()
        arcs_B = lengths.long() * (lengths.long() + 1)
        log_partitions, probabilities = marginals(scores.numpy(), lengths.numpy(), projective)
        # what is not wanted may have a score of minus infinity
        reached_S = wanted_S * scores.masked_fill(wanted_S == 0, 0.0)
        reached_B = torch.segment_reduce(reached_S, "sum", lengths=arcs_B)
        # the probability of an arc, less 1 if it is gold
        slopes_S = torch.from_numpy(probabilities) - wanted_S
        ctx.save_for_backward(slopes_S.to(scores_S), arcs_B.to(scores_S.device))
        return (torch.from_numpy(log_partitions) - reached_B).to(scores_S)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope_B: Tensor) -> tuple[Tensor | None, ...]:
        slopes_S, arcs_B = ctx.saved_tensors
        return slopes_S * slope_B.repeat_interleave(arcs_B), None, None, None


def tree_loss(
    scores_BDH: Tensor,
    lengths_B: Tensor,
    heads_BD: Tensor,
    projective: bool,
    taught_BDH: Tensor | None = None,
    weight: float = 0.0,
) -> Tensor:
    """Return the negative log-likelihood of the gold tree of each sentence, in nats, [B].

    With what teachers tell, the log-likelihood of a tree that is drawn as they tell has this weight
    in its expectation, and that of the gold tree has the rest: see `shares_of_trees`.

    The gradient is that of `partition.marginals`: the probability of each arc, less 1 if it is gold
    (Koo et al. 2007; Zhang, Li & Zhang 2020 for projective trees). It cannot be differentiated
    again.

    Args:
        scores_BDH: of arcs. Those of a word with itself, and of padding, are not read.
        lengths_B: words of each sentence.
        heads_BD: gold trees with one arc from ROOT, in padding anything; projective ones, if
            `projective` is given, else the likelihood of what is no such tree has no meaning.
        projective: among projective trees, or among all with one arc from ROOT.
        taught_BDH: how probable teachers take arcs to be, if there are such.
        weight: of these.
    """
    heads_H = torch.arange(scores_BDH.shape[2], device=scores_BDH.device)
    is_word_BD = heads_H[:-1] < lengths_B[:, None]
    inside_BDH = is_word_BD[:, :, None] & (heads_H <= lengths_B[:, None])[:, None]
    gold_BDH = (heads_BD[:, :, None] == heads_H).double()
    wanted_S = gold_BDH[inside_BDH]
    if taught_BDH is not None:
        # of a word of which nothing is told, all is gold; of half precision, sums may be above 1
        untold_BD1 = (1.0 - taught_BDH.double().sum(2, keepdim=True)).clamp(min=0.0)
        drawn_BDH = taught_BDH + untold_BD1 * gold_BDH
        shares_S = shares_of_trees(drawn_BDH[inside_BDH], lengths_B, projective)
        wanted_S = (1.0 - weight) * wanted_S + weight * shares_S
    loss_B: Tensor = _TreeLoss.apply(  # type: ignore[no-untyped-call]
        scores_BDH[inside_BDH], wanted_S, lengths_B, projective
    )
    return loss_B


def shares_of_trees(heads_S: Tensor, lengths_B: Tensor, projective: bool) -> Tensor:
    """Return how probable each arc is in a tree whose heads are drawn one by one, [S].

    Only those draws count that are trees. What teachers tell of single words may fit no trees: two
    words may be likely heads of each other. Learnt as it is, it would leave the loss without a
    bound, and scores would grow without end.

    Args:
        heads_S: the probability of each head of each word, flat as of `partition.marginals`.
        lengths_B: words of each sentence.
        projective: of projective trees, or of all with one arc from ROOT.
    """
    scores_S = (heads_S.double() + LEAST_SHARE).log()
    _, shares_S = marginals(scores_S.cpu().numpy(), lengths_B.int().cpu().numpy(), projective)
    return torch.from_numpy(shares_S).to(heads_S.device)
