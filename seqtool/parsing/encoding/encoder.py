"""The contextual encoder for training: a bidirectional LSTM over the tokens of sentences.

Beside it stands what a tagger and a parser need to teach it: two side losses (`Cloze` and
`HeadChoice`), whose weights are no part of a model, dropout, and the average of the weights.
Random numbers of dropout are NumPy's: a generator for each step, so that a resumed run draws the
same ones.

Dimensions: T tokens of all sentences (ROOT is one), B sentences, L tokens of the longest, D width
of an input, H units of a direction, E width of a state, K width of what a side loss compares, V
words that `Cloze` tells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.arrays import Ints
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.training.hardware import run_recurrent

Dropout = Callable[[Tensor], Tensor]


def as_it_is(values: Tensor) -> Tensor:
    """Return values without dropout."""
    return values


# rows of products in bfloat16 on a CPU are filled up to a multiple of this, see `linear`
ROW_MULTIPLE = 64


def linear(inputs_ND: Tensor, weight_KD: Tensor, bias_K: Tensor | None = None) -> Tensor:
    """Return `torch.nn.functional.linear` of inputs whose number changes from batch to batch.

    In bfloat16, oneDNN compiles a product for each shape that it meets, and keeps the last 1,024:
    with batches of words, a third of the time of a training went there. So rows of zeros fill the
    inputs up to a multiple, for few shapes.

    Args:
        inputs_ND: [N, D]; others are not filled up.
        weight_KD: [K, D].
        bias_K: [K], if there is one.
    """
    is_half = inputs_ND.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    if not is_half or inputs_ND.dim() != 2:
        return functional.linear(inputs_ND, weight_KD, bias_K)
    num = len(inputs_ND)
    filled_MD = functional.pad(inputs_ND, (0, 0, 0, -num % ROW_MULTIPLE))
    return functional.linear(filled_MD, weight_KD, bias_K)[:num]


class Linear(nn.Linear):
    """A linear layer of inputs whose number changes from batch to batch, [N, D]: see `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return its outputs, [N, K]."""
        return linear(input, self.weight, self.bias)


class BidirectionalLayer(nn.Module):
    """Two LSTMs, one of which reads backwards.

    They are apart because torch's bidirectional LSTM begins its backward reading at the padding
    unless sentences are packed, which takes four times as long on a CPU. They have H units each.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(input_size, size)
        self.backwards = nn.LSTM(input_size, size)
        for lstm in (self.forwards, self.backwards):
            for name, parameter in lstm.named_parameters():
                if name == "weight_ih_l0":
                    nn.init.xavier_uniform_(parameter)
                elif name == "weight_hh_l0":
                    for gate in parameter.detach().chunk(4):
                        nn.init.orthogonal_(gate)
                else:
                    nn.init.zeros_(parameter)
            nn.init.ones_(lstm.get_parameter("bias_ih_l0").detach().chunk(4)[1])  # to forget little

    def forward(self, inputs_LBD: Tensor, reversal_LB: Tensor) -> Tensor:
        """Return the states, (L, B, 2H); those of padding mean nothing.

        Args:
            inputs_LBD: sentences, padded at their ends.
            reversal_LB: the place in its sentence from which each token comes when it is read
                backwards.
        """

        def run(inputs_LBD: Tensor) -> Tensor:
            states_LBH, _ = self.forwards(inputs_LBD)
            turned_LBH, _ = self.backwards(_turned(inputs_LBD, reversal_LB))
            return torch.cat((states_LBH, _turned(turned_LBH, reversal_LB)), dim=2)

        return run_recurrent(run, inputs_LBD)


class ContextEncoder(nn.Module):
    """Layers of bidirectional LSTMs of H units (Kiperwasser & Goldberg 2016)."""

    def __init__(self, input_size: int, size: int, num_layers: int) -> None:
        super().__init__()
        sizes = [input_size] + [2 * size] * (num_layers - 1)
        self.layers = nn.ModuleList(BidirectionalLayer(width, size) for width in sizes)

    def forward(self, inputs_TD: Tensor, lengths_B: Tensor, dropout: Dropout = as_it_is) -> Tensor:
        """Return the states of the last layer of all tokens, (T, 2H): see `first_and_last`."""
        _, last_LBD, inside_LB = self._run(inputs_TD, lengths_B, dropout)
        return _in_a_row(last_LBD, inside_LB)

    def first_and_last(
        self, inputs_TD: Tensor, lengths_B: Tensor, dropout: Dropout = as_it_is
    ) -> tuple[Tensor, Tensor]:
        """Return the states of the first and of the last layer of all tokens, each (T, 2H).

        Args:
            inputs_TD: the tokens of the sentences, one after another.
            lengths_B: tokens of each.
            dropout: is applied to what the layers after the first one read.
        """
        first_LBD, last_LBD, inside_LB = self._run(inputs_TD, lengths_B, dropout)
        return _in_a_row(first_LBD, inside_LB), _in_a_row(last_LBD, inside_LB)

    def _run(
        self, inputs_TD: Tensor, lengths_B: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states of the first and last layer, (L, B, 2H), and which are tokens'."""
        values_LBD, inside_LB, reversal_LB = self._laid_out(inputs_TD, lengths_B)
        first_LBD = values_LBD = self.layers[0](values_LBD, reversal_LB)
        for layer in self.layers[1:]:
            values_LBD = layer(dropout(values_LBD), reversal_LB)
        return first_LBD, values_LBD, inside_LB

    def _laid_out(self, inputs_TD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return sentences side by side, (L, B, D), which of these are tokens, and the reversal."""
        device = inputs_TD.device
        longest = int(lengths_B.max())
        lengths_B = lengths_B.to(device)
        places_LB = torch.arange(longest, device=device)[:, None]
        inside_LB = places_LB < lengths_B
        # padding keeps its place behind the words, so that either direction meets it last
        reversal_LB = torch.where(inside_LB, lengths_B - 1 - places_LB, places_LB)
        begins_B = lengths_B.cumsum(0) - lengths_B
        values_LBD = inputs_TD[torch.where(inside_LB, begins_B + places_LB, 0)]
        return values_LBD, inside_LB, reversal_LB


def _in_a_row(values_LBD: Tensor, inside_LB: Tensor) -> Tensor:
    """Return the values of tokens, one sentence after another, (T, D)."""
    return values_LBD.transpose(0, 1)[inside_LB.t()]


def padded_rows(lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return which token stands in each place of sentences, (B, L), and which places have one.

    Tokens are numbered one sentence after another; number 0 stands where there is none.

    Args:
        lengths_B: tokens of each sentence.
    """
    places_L = torch.arange(int(lengths_B.max()), device=lengths_B.device)
    inside_BL = places_L < lengths_B[:, None]
    begins_B = lengths_B.cumsum(0) - lengths_B
    return torch.where(inside_BL, begins_B[:, None] + places_L, 0), inside_BL


def _turned(values_LBD: Tensor, reversal_LB: Tensor) -> Tensor:
    return values_LBD.gather(0, reversal_LB[:, :, None].expand_as(values_LBD))


NONE = -1  # the word, head, label or tags of a token that has none
CLOZE_WORDS = 3000  # V at most: the commonest in lower case; number 0 stands for all others
CLOZE_SIZE = 64  # K
CLOZE_GROUP = "lower"  # the group of symbols that words are numbered by


class Cloze(nn.Module):
    """Predict words by their context alone: a side loss, for training only.

    The forward states of the first layer before a word, and the backward ones behind it, have not
    seen it. To predict it from these is language modelling from both sides (context2vec: Melamud,
    Goldberger & Dagan 2016). It teaches the encoder more of a small treebank than its labels do
    (Rei 2017 predicts the next and the previous word).

    """

    def __init__(self, size: int, num_words: int) -> None:
        super().__init__()
        self.before = Linear(size, CLOZE_SIZE, bias=False)
        self.behind = Linear(size, CLOZE_SIZE, bias=False)
        self.words = Linear(CLOZE_SIZE, num_words)

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


def num_words(numbers: Ints | None) -> int:
    """Return how many words `word_numbers` tells apart; 0 for none."""
    return 0 if numbers is None else 1 + max(0, int(numbers.max(initial=0)))


def word_numbers(symbols: SymbolTable, rows: Ints) -> Ints | None:
    """Number words for `Cloze`, the commonest first; None for symbols without forms.

    Args:
        symbols: of lexical fields.
        rows: the symbols of words, [N, width].

    Returns:
        [N], below `CLOZE_WORDS`; 0 for unknown and rarer words, NONE for rows that are no word.
    """
    if CLOZE_GROUP not in symbols.groups:
        return None
    first, last = symbols.range_of(CLOZE_GROUP)
    is_word = (first <= rows) & (rows <= last)  # one of a row at most
    # the first symbol of a group is its unknown one, which so gets number 0
    numbers: Ints = np.where(is_word, rows - first, 0).sum(1, dtype=np.int32)
    numbers[numbers >= CLOZE_WORDS] = 0
    numbers[~is_word.any(1)] = NONE
    return numbers


HEAD_CHOICE_SIZE = 96  # K
HEAD_CHOICE_LONGEST = 400  # tokens of a sentence learnt from: the scores grow with the square
TAG_SHARE = 0.5  # weight of the tags' loss beside that of heads and that of labels


class HeadChoice(nn.Module):
    """Choose heads by the encoder's states alone: a side loss, for training only.

    A transition teaches the encoder little, and of few words. This teaches it the head and the
    label of every word at once, and the gold tags where the parser reads predicted ones. Heads are
    scored by products of states (Zhang, Cheng & Lapata 2017), labels by the state of the word.
    `num_tags` are combinations of gold tags, 0 where none are given.
    """

    def __init__(self, state_size: int, num_labels: int, num_tags: int = 0) -> None:
        super().__init__()
        self.dependents = Linear(state_size, HEAD_CHOICE_SIZE)
        self.heads = Linear(state_size, HEAD_CHOICE_SIZE)
        self.labels = Linear(state_size, num_labels)
        if num_tags:
            self.tags = Linear(state_size, num_tags)

    def scores(self, states_TE: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of heads, [B, L, L], and which token each row is, [B, L].

        Those of padding are -inf; the row of padding is that of token 0, and means nothing.

        Args:
            states_TE: of tokens, one sentence after another.
            lengths_B: tokens of each sentence.
        """
        tokens_BL, inside_BL = padded_rows(lengths_B)
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
            tags_T: the gold tags of each token; NONE for ROOT. Their loss has weight `TAG_SHARE`.
        """
        kept_B = lengths_B <= HEAD_CHOICE_LONGEST
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
        if tags_T is not None:
            loss = loss + tag_loss(self.tags, states_TE, tags_T[kept_T])
        return loss


def tag_loss(layer: Linear, states_TE: Tensor, tags_T: Tensor) -> Tensor:
    """Return the mean loss of gold tags, in nats per word that has some, times `TAG_SHARE`.

    Args:
        layer: scores combinations of gold tags by states.
        states_TE: of tokens.
        tags_T: the gold tags of each token; NONE where there are none.
    """
    if not bool((tags_T != NONE).any()):
        return states_TE.new_zeros(())
    scores_TG = layer(states_TE).float()
    return TAG_SHARE * functional.cross_entropy(scores_TG, tags_T, ignore_index=NONE)


# how the names of weights begin that are no part of a model: attributes of the networks
TRAINING_ONLY = ("cloze.", "head_choice.", "gold_tags.")
AVERAGE_EVERY = 4  # steps between updates of the average
FIRST_STEPS = 16  # after each of which they are


def dropout_mask(values: Tensor, dropout: float, generator: np.random.Generator) -> Tensor | float:
    """Return what dropout multiplies values by."""
    # drawn as bytes: torch's own draws are slow on a CPU
    if not dropout:
        return 1.0
    share = min(255, round(256 * dropout))  # something is kept
    drawn = generator.integers(0, 256, values.shape, np.uint8)
    kept = torch.from_numpy(drawn >= share).to(values.device)
    # by the share that is really dropped, in 256ths, so that the mean stays
    return kept.to(values.dtype).mul_(256 / (256 - share))


def adversary(loss: Tensor, inputs_TD: Tensor, share: float) -> Tensor:
    """Return what moves inputs to where a loss rises the most, [T, D]; it learns nothing itself.

    Miyato et al. (2017), equation 3, but that each token is moved by a share of its own length.

    Args:
        loss: of the inputs; what it was computed by stays.
        inputs_TD: whose gradient is wanted.
        share: of an input's length.
    """
    (slopes_TD,) = torch.autograd.grad(loss, inputs_TD, retain_graph=True)
    lengths_T1: Tensor = inputs_TD.detach().norm(dim=1, keepdim=True)
    return share * lengths_T1 * functional.normalize(slopes_TD, dim=1)


def unknown_chances(counts: npt.NDArray[np.integer[Any]], weight: float) -> Tensor:
    """Return how often symbols are to be taken for unknown: weight / (weight + count).

    Args:
        counts: of symbols in the treebank; those that do not occur there are never dropped.
        weight: a symbol of this count is dropped half of the time; 0 is off.
    """
    chances = np.where(counts > 0, weight / np.maximum(weight + counts, 1e-9), 0.0)
    return torch.from_numpy(chances.astype(np.float32))


class AveragedWeights:
    """An exponential moving average of the parameters of a network.

    Args:
        module: the network; it begins with its weights as they are.
        decay: per step; 0 for none, then the last weights stand for the average.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module, self._decay = module, decay
        self._averages = [parameter.detach().clone() for parameter in module.parameters()]
        self._steps = 0

    def update(self) -> None:
        """Count a step that is about to be made; every so often, take in the weights before it."""
        # of a short training, too, the average is to be of weights that have learnt
        if self._decay and (self._steps < FIRST_STEPS or self._steps % AVERAGE_EVERY == 0):
            # the first weights are soon forgotten
            decay = min(self._decay**AVERAGE_EVERY, (1 + self._steps) / (10 + self._steps))
            with torch.no_grad():
                for average, weights in zip(self._averages, self._module.parameters(), strict=True):
                    average.lerp_(weights, 1.0 - decay)
        self._steps += 1

    def arrays(self, *, averaged: bool = True) -> dict[str, np.ndarray]:
        """Return the weights by their names, as NumPy has them, but those for training only.

        On a CPU they change with the average, or as the network does if not `averaged`.
        """
        tensors = dict(self._module.state_dict())
        if self._decay and averaged:
            names = [name for name, _ in self._module.named_parameters()]
            tensors |= zip(names, self._averages, strict=True)
        return {
            name: tensor.detach().cpu().numpy()
            for name, tensor in tensors.items()
            if not name.startswith(TRAINING_ONLY)
        }

    def take(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Let the network, and the average, begin with such weights; others stay as they are."""
        with torch.no_grad():
            for (name, weight), average in zip(
                self._module.named_parameters(), self._averages, strict=True
            ):
                if name in arrays:
                    weight.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))
                    average.copy_(weight)
        self.restart()

    def restart(self) -> None:
        """Let the weights so far be soon forgotten, as the first ones are."""
        self._steps = 0

    def carried(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        carried = {f"average.{i}": tensor.clone() for i, tensor in enumerate(self._averages)}
        return {**carried, "steps": torch.tensor(self._steps)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned; other tensors are passed over."""
        for i, average in enumerate(self._averages):
            average.copy_(tensors[f"average.{i}"])
        self._steps = int(tensors["steps"])
