"""Telling words by their context alone: a loss beside the others, for training only.

The forward states of an encoder's first layer before a word, and the backward ones behind it, have
not seen it. To tell it from these is language modelling from both sides (context2vec: Melamud,
Goldberger & Dagan 2016), and teaches the encoder more of a small treebank than its labels do (Rei
2017, who tells the next and the previous word). What it learns so stays in the encoder; reading
takes no longer.

Dimensions: T tokens of all sentences, H units of a direction, K width of what words are told by, V
words that are told apart.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.arrays import Ints
from seqtool.parsing.encoding.features import SymbolTable

PREFIX = "cloze."  # of its weights in a network, which are no part of a model
NUM_WORDS = (
    3000  # V at most: the commonest ones in lower case, the first of which stands for all others
)
SIZE = 64  # K
NONE = -1  # word of a token that is none
_GROUP = "lower"


class Cloze(nn.Module):
    """Words by the states of an encoder's first layer on both sides of them.

    Args:
        size: H.
        num_words: V.
    """

    def __init__(self, size: int, num_words: int) -> None:
        super().__init__()
        self.before = nn.Linear(size, SIZE, bias=False)
        self.behind = nn.Linear(size, SIZE, bias=False)
        self.words = nn.Linear(SIZE, num_words)

    def forward(self, states_TH: Tensor, words_T: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean loss of words, in nats.

        Args:
            states_TH: of the first layer, both directions, [T, 2H], one sentence after another.
            words_T: the number of each token's word, or NONE.
            lengths_B: tokens of each sentence, none of which is empty.
        """
        ends_B = lengths_B.cumsum(0)
        forward_TH, backward_TH = states_TH.chunk(2, dim=1)
        before_TK = self.before(forward_TH).roll(1, 0)
        behind_TK = self.behind(backward_TH).roll(-1, 0)
        # nothing is beyond a sentence
        before_TK = before_TK.index_fill(0, ends_B - lengths_B, 0.0)
        behind_TK = behind_TK.index_fill(0, ends_B - 1, 0.0)
        is_word_T = words_T != NONE
        if not bool(is_word_T.any()):
            return states_TH.new_zeros(())
        context_NK = torch.tanh((before_TK + behind_TK)[is_word_T])
        loss: Tensor = functional.cross_entropy(self.words(context_NK).float(), words_T[is_word_T])
        return loss


def without_lm(inputs_TI: Tensor, num: int) -> Tensor:
    """Inputs whose columns from `num` on, a language model's states, are zeros.

    These have seen the words, so where an encoder reads them too, `Cloze` needs states without.
    """
    return functional.pad(inputs_TI[:, :num], (0, inputs_TI.shape[1] - num))


def num_words(numbers: Ints | None) -> int:
    """How many words are told apart, of what `word_numbers` gave; 0 for none."""
    return 0 if numbers is None else 1 + max(0, int(numbers.max(initial=0)))


def word_numbers(symbols: SymbolTable, rows: Ints) -> Ints | None:
    """Number words for `Cloze`, the commonest first; None for symbols without forms.

    Args:
        symbols: of lexical fields.
        rows: the symbols of words, [N, width].

    Returns:
        [N], below `NUM_WORDS`; 0 for unknown and rarer words, NONE for rows that are no word.
    """
    if _GROUP not in symbols.groups:
        return None
    first, last = symbols.range_of(_GROUP)
    is_word = (first <= rows) & (rows <= last)  # one of a row at most
    numbers: Ints = np.where(is_word, rows - first, 0).sum(1, dtype=np.int32)
    numbers[numbers >= NUM_WORDS] = 0
    numbers[~is_word.any(1)] = NONE
    return numbers
