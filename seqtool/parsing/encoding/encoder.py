"""The contextual encoder for training: a bidirectional LSTM over the tokens of sentences.

Dimensions: T tokens of all sentences, B sentences, L tokens of the longest, D width of an input,
H units of a direction.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class BidirectionalLayer(nn.Module):
    """Two LSTMs, one of which reads backwards.

    They are apart because torch's bidirectional LSTM begins its backward reading at the padding
    unless sentences are packed, which takes four times as long on a CPU.

    Args:
        input_size: D.
        size: H.
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
        states_LBH, _ = self.forwards(inputs_LBD)
        turned_LBH, _ = self.backwards(_turned(inputs_LBD, reversal_LB))
        return torch.cat((states_LBH, _turned(turned_LBH, reversal_LB)), dim=2)


class ContextEncoder(nn.Module):
    """Layers of bidirectional LSTMs (Kiperwasser & Goldberg 2016).

    Args:
        input_size: D.
        size: H.
        num_layers: how many.
    """

    def __init__(self, input_size: int, size: int, num_layers: int) -> None:
        super().__init__()
        sizes = [input_size] + [2 * size] * (num_layers - 1)
        self.layers = nn.ModuleList(BidirectionalLayer(width, size) for width in sizes)

    def forward(
        self,
        inputs_TD: Tensor,
        lengths_B: Tensor,
        dropout: Callable[[Tensor], Tensor] = lambda states_LBD: states_LBD,
    ) -> Tensor:
        """Return the states of the last layer of all tokens, (T, 2H): see `first_and_last`."""
        _, last_LBD, inside_LB = self._run(inputs_TD, lengths_B, dropout)
        return _in_a_row(last_LBD, inside_LB)

    def first_and_last(
        self,
        inputs_TD: Tensor,
        lengths_B: Tensor,
        dropout: Callable[[Tensor], Tensor] = lambda states_LBD: states_LBD,
    ) -> tuple[Tensor, Tensor]:
        """Return the states of the first and of the last layer of all tokens, each (T, 2H).

        Args:
            inputs_TD: the tokens of the sentences, one after another.
            lengths_B: tokens of each.
            dropout: is applied to what the layers after the first one read.
        """
        first_LBD, last_LBD, inside_LB = self._run(inputs_TD, lengths_B, dropout)
        return _in_a_row(first_LBD, inside_LB), _in_a_row(last_LBD, inside_LB)

    def first(self, inputs_TD: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the states of the first layer alone, (T, 2H): see `first_and_last`."""
        values_LBD, inside_LB, reversal_LB = self._laid_out(inputs_TD, lengths_B)
        return _in_a_row(self.layers[0](values_LBD, reversal_LB), inside_LB)

    def _run(
        self, inputs_TD: Tensor, lengths_B: Tensor, dropout: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The first layer's states and the last one's, (L, B, 2H), and which are of tokens."""
        values_LBD, inside_LB, reversal_LB = self._laid_out(inputs_TD, lengths_B)
        first_LBD = values_LBD = self.layers[0](values_LBD, reversal_LB)
        for layer in self.layers[1:]:
            values_LBD = layer(dropout(values_LBD), reversal_LB)
        return first_LBD, values_LBD, inside_LB

    def _laid_out(self, inputs_TD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sentences side by side, (L, B, D), which of these are tokens, and the reversal."""
        device = inputs_TD.device
        longest = int(lengths_B.max())
        lengths_B = lengths_B.to(device)
        places_LB = torch.arange(longest, device=device)[:, None]
        inside_LB = places_LB < lengths_B
        reversal_LB = torch.where(inside_LB, lengths_B - 1 - places_LB, places_LB)
        begins_B = lengths_B.cumsum(0) - lengths_B
        values_LBD = inputs_TD[torch.where(inside_LB, begins_B + places_LB, 0)]
        return values_LBD, inside_LB, reversal_LB


def _in_a_row(values_LBD: Tensor, inside_LB: Tensor) -> Tensor:
    """The values of tokens, one sentence after another, (T, D)."""
    return values_LBD.transpose(0, 1)[inside_LB.t()]


def _turned(values_LBD: Tensor, reversal_LB: Tensor) -> Tensor:
    return values_LBD.gather(0, reversal_LB[:, :, None].expand_as(values_LBD))
