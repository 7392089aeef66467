"""The choice of heads by an encoder's states alone: a second loss, for training only.

A transition tells the encoder little, and of few words; this tells it the head and the label of
every word at once, and its right tags where those that it reads are predicted ones. What it learns
so stays in the encoder, and parsing takes no longer.

Dimensions: T tokens of all sentences (ROOT is one), B sentences, L tokens of the longest, E width
of a state, K width of what heads are chosen by.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

PREFIX = "head_choice."  # of its weights in a network, which are no part of a model
SIZE = 96  # K
LONGEST = 400  # tokens of a sentence that is learnt from: the scores grow with the square
NONE = -1  # head, label and tags of a token that has none
TAG_SHARE = 0.5  # weight of the tags' loss beside that of heads and that of labels


class HeadChoice(nn.Module):
    """Heads by the products of states (Zhang, Cheng & Lapata 2017), labels by the word's own.

    Args:
        state_size: E.
        num_labels: labels of arcs.
        num_tags: the right tags that words may have; 0 where none are told.
    """

    def __init__(self, state_size: int, num_labels: int, num_tags: int = 0) -> None:
        super().__init__()
        self.dependents = nn.Linear(state_size, SIZE)
        self.heads = nn.Linear(state_size, SIZE)
        self.labels = nn.Linear(state_size, num_labels)
        if num_tags:
            self.tags = nn.Linear(state_size, num_tags)

    def scores(self, states_TE: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of heads, [B, L, L], and which token each row is, [B, L].

        Those of padding are -inf; the row of padding is that of token 0, and means nothing.

        Args:
            states_TE: of tokens, one sentence after another.
            lengths_B: tokens of each sentence.
        """
        places_L = torch.arange(int(lengths_B.max()), device=lengths_B.device)
        inside_BL = places_L < lengths_B[:, None]
        begins_B = lengths_B.cumsum(0) - lengths_B
        tokens_BL = torch.where(inside_BL, begins_B[:, None] + places_L, 0)
        dependents_BLK, heads_BLK = (
            functional.embedding(tokens_BL, layer(states_TE))
            for layer in (self.dependents, self.heads)
        )
        scores_BLL = (dependents_BLK @ heads_BLK.transpose(1, 2)).float()
        return scores_BLL.masked_fill(~inside_BL[:, None], -torch.inf), tokens_BL

    def forward(
        self,
        states_TE: Tensor,
        lengths_B: Tensor,
        heads_T: Tensor,
        labels_T: Tensor,
        tags_T: Tensor | None = None,
    ) -> Tensor:
        """Return the mean losses of heads, labels and tags, added, in nats per word.

        Args:
            states_TE: of tokens, one sentence after another.
            lengths_B: tokens of each sentence.
            heads_T: the place of each token's head in its sentence; NONE for ROOT.
            labels_T: the label of each token; NONE for ROOT.
            tags_T: the right tags of each token; NONE for ROOT. Their loss has weight `TAG_SHARE`.
        """
        kept_B = lengths_B <= LONGEST
        kept_T = kept_B.repeat_interleave(lengths_B)
        states_TE, heads_T, labels_T = states_TE[kept_T], heads_T[kept_T], labels_T[kept_T]
        lengths_B = lengths_B[kept_B]
        if not bool((heads_T != NONE).any()):
            return states_TE.new_zeros(())
        scores_BLL, tokens_BL = self.scores(states_TE, lengths_B)
        # ROOT stands first in every sentence, so token 0 has no head, and neither has padding
        of_heads = functional.cross_entropy(
            scores_BLL.flatten(0, 1), heads_T[tokens_BL].flatten(), ignore_index=NONE
        )
        of_labels = functional.cross_entropy(
            self.labels(states_TE).float(), labels_T, ignore_index=NONE
        )
        loss: Tensor = of_heads + of_labels
        if tags_T is not None and bool(((tags_T := tags_T[kept_T]) != NONE).any()):
            scores_TG = self.tags(states_TE).float()
            loss = loss + TAG_SHARE * functional.cross_entropy(scores_TG, tags_T, ignore_index=NONE)
        return loss
