"""The network of a syntactic language model: a recurrent one, read at two places at once.

`h_j` is the state after word j, `h_0` that at the beginning, and `h_{n+1}` that after `</s>`, END.
A configuration with top i and front j gives the next word by `h_i` and `h_j`, through the output
layer of the language model, and the next step in the same way: a shift, or an arc to the left or to
the right with its label (Buys & Blunsom 2018, section 4).

Dimensions in names: T places, B sentences, N configurations, H units of a state, S steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqtool.core.arrays import Longs
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork

IMPOSSIBLE = -1e9  # nats of a step that cannot be; of -inf, gradients would be no numbers


class Pair(nn.Module):
    """Joins the states of a top and a front: h_j + tanh(A h_i + B h_j + c)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.top = nn.Linear(size, size, bias=False)
        self.front = nn.Linear(size, size)

    def forward(self, states_XH: Tensor, places_2N: Tensor) -> Tensor:
        """Return what both say together, (N, H)."""
        tops_N, fronts_N = places_2N
        tops_NH = nn.functional.embedding(tops_N, self.top(states_XH))
        fronts_NH = nn.functional.embedding(fronts_N, self.front(states_XH))
        last_NH = nn.functional.embedding(fronts_N, states_XH)
        pairs_NH: Tensor = last_NH + torch.tanh(tops_NH + fronts_NH)
        return pairs_NH


class SyntacticNetwork(nn.Module):
    """The network; see the head of this file.

    Args:
        config: settings of the language model.
        vocabulary_size: V.
        num_labels: of arcs.
        counts, sparse_embedding: as of `NeuralNetwork`.
    """

    def __init__(
        self, config: ModelConfig, vocabulary_size: int, num_labels: int, **more: Any
    ) -> None:
        super().__init__()
        self.lm = NeuralNetwork(config, vocabulary_size, **more)
        self.words, self.steps = Pair(config.output_size), Pair(config.output_size)
        # a shift, then arcs to the left by their labels, then arcs to the right
        self.widths = [1, num_labels, num_labels]
        self.scores = nn.Linear(config.output_size, sum(self.widths))

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """Return numbers as a tensor where the network is."""
        return torch.from_numpy(values).to(self.scores.weight.device)

    def states(self, ids_TB: Longs) -> Tensor:
        """Return h_0 to h_{n + 1} of sentences, ((T + 1) B, H): a row of each in turn.

        Args:
            ids_TB: words, with `EOS_ID` after each sentence.
        """
        ids_TB = np.concatenate([np.full_like(ids_TB[:1], EOS_ID), ids_TB])
        # what reads pairs of them has dropout of its own
        states_TBH, _ = self.lm.run_layers(
            self.tensor(ids_TB), self.lm.initial_state(ids_TB.shape[1])
        )
        return states_TBH.flatten(0, 1)

    def word_vectors(self, states_XH: Tensor, places_2N: Tensor) -> Tensor:
        """Return what the output layer reads in configurations, (N, H)."""
        return self._drop(self.words(states_XH, places_2N))

    def _drop(self, pairs_NH: Tensor) -> Tensor:
        """Drop units of each configuration anew, in training."""
        return self.lm.drop_output(pairs_NH[None])[0]

    def word_log_probs(self, states_XH: Tensor, places_2N: Tensor, words_N: Tensor) -> Tensor:
        """Return nats of the words that are read in configurations, (N,)."""
        vectors_NH = self.word_vectors(states_XH, places_2N)
        return self.lm.softmax.target_log_probs(vectors_NH, words_N)

    def step_log_probs(self, states_XH: Tensor, places_2N: Tensor, possible_N3: Tensor) -> Tensor:
        """Return nats of the steps of configurations, (N, S).

        Args:
            states_XH: see `states`.
            places_2N: rows of the states of tops and fronts.
            possible_N3: whether a shift may be, and an arc to the left and to the right.
        """
        scores_NS = self.scores(self._drop(self.steps(states_XH, places_2N)))
        scores_NS = scores_NS.to(torch.promote_types(scores_NS.dtype, torch.float32))
        widths = torch.tensor(self.widths, device=scores_NS.device)
        possible_NS = possible_N3.repeat_interleave(widths, 1)
        return nn.functional.log_softmax(scores_NS.masked_fill(~possible_NS, IMPOSSIBLE), 1)

    def sides(self, steps_NS: Tensor) -> tuple[Tensor, ...]:
        """Return steps apart: a shift, (N, 1), arcs to the left and to the right, (N, L)."""
        sides: tuple[Tensor, ...] = torch.split(steps_NS, self.widths, 1)
        return sides

    def sums(self, steps_NS: Tensor) -> Tensor:
        """Return nats of a shift, and of arcs to the left and to the right of any label, (N, 3)."""
        return torch.stack([torch.logsumexp(side, 1) for side in self.sides(steps_NS)], 1)
