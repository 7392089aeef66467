"""The choice of heads by an encoder's states alone: a second loss, for training only.

A transition tells a parser's encoder little, and of few words; this tells it the head and the label
of every word at once. A tagger's encoder learns so how words go together. What they learn stays in
the encoders, and parsing and tagging take no longer.

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
NONE = -1  # head and label of a token that has none


class HeadChoice(nn.Module):
    """Heads by the products of states (Zhang, Cheng & Lapata 2017), labels by the word's own.

    Args:
        state_size: E.
        num_labels: labels of arcs.
        add_root: the states are of words alone, and ROOT gets one that is learnt.
    """

    def __init__(self, state_size: int, num_labels: int, *, add_root: bool = False) -> None:
        super().__init__()
        self.root = nn.Parameter(torch.zeros(state_size)) if add_root else None
        self.dependents = nn.Linear(state_size, SIZE)
        self.heads = nn.Linear(state_size, SIZE)
        self.labels = nn.Linear(state_size, num_labels)

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
        self, states_TE: Tensor, lengths_B: Tensor, heads_T: Tensor, labels_T: Tensor
    ) -> Tensor:
        """Return the mean loss of heads and that of labels, added, in nats per word.

        Args:
            states_TE: of tokens, one sentence after another; of words alone with `add_root`.
            lengths_B: of how many of them each sentence has.
            heads_T: the place of each word's head in its sentence, ROOT's being 0; NONE for ROOT
                itself, and where there is no tree.
            labels_T: the label of each; NONE in the same places.
        """
        kept_B = lengths_B <= LONGEST
        kept_T = kept_B.repeat_interleave(lengths_B)
        states_TE, heads_T, labels_T = states_TE[kept_T], heads_T[kept_T], labels_T[kept_T]
        lengths_B = lengths_B[kept_B]
        if not bool((heads_T != NONE).any()):
            return states_TE.new_zeros(())
        if self.root is not None:
            words_T = torch.arange(1, 1 + len(heads_T), device=heads_T.device)
            states_TE = functional.embedding(
                _behind_roots(words_T, lengths_B, 0),
                torch.cat((self.root[None].to(states_TE), states_TE)),
            )
            heads_T, labels_T = (_behind_roots(ids, lengths_B, NONE) for ids in (heads_T, labels_T))
            lengths_B = lengths_B + 1
        scores_BLL, tokens_BL = self.scores(states_TE, lengths_B)
        # ROOT stands first in every sentence, so token 0 has no head, and neither has padding
        of_heads = functional.cross_entropy(
            scores_BLL.flatten(0, 1), heads_T[tokens_BL].flatten(), ignore_index=NONE
        )
        of_labels = functional.cross_entropy(
            self.labels(states_TE).float(), labels_T, ignore_index=NONE
        )
        return of_heads + of_labels


def _behind_roots(values_T: Tensor, lengths_B: Tensor, of_root: int) -> Tensor:
    """Values of words with one for ROOT before each sentence's."""
    is_word = torch.ones(len(values_T) + len(lengths_B), dtype=torch.bool, device=values_T.device)
    is_word[(lengths_B + 1).cumsum(0) - (lengths_B + 1)] = False
    values = torch.full(is_word.shape, of_root, dtype=values_T.dtype, device=values_T.device)
    values[is_word] = values_T
    return values
