"""The network of the graph-based parser for training: scores of heads and labels.

Dimensions: B sentences, L tokens of the longest, T tokens of all sentences (ROOT is one), N arcs, E
units of a direction of the encoder, A units by which heads are scored, R units by which labels are
scored, K labels, C classes of distances.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.parsing.encoding.encoder import Dropout, Linear, as_it_is, padded_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.graph.meanfield import pair_borders, refined_scores
from seqtool.parsing.parser.graph.scores import (
    NUM_DISTANCES,
    SLOPE,
    distance_classes,
    unit_borders,
)
from seqtool.parsing.parser.network import ReadingNetwork


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
