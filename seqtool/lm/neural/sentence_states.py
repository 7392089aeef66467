"""The hidden states of a network that reads sentences, each from the beginning of a text.

Dimensions in names: T steps, B sentences, H units of the last layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from seqtool.core.arrays import Ids, Reals
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural.network import NeuralNetwork

WINDOW = 256  # steps at a time, so that one long sentence needs little memory on the way


@torch.inference_mode()
def sentence_states(network: NeuralNetwork, sentences: Sequence[Ids]) -> list[Reals]:
    """Return what the softmax reads before each token of sentences and after the last, [1 + N, H].

    Sentences are padded at their ends, and what is read later changes no state before it.

    Args:
        network: in evaluation mode.
        sentences: ids of each, without `</s>`; those of like lengths waste the least.
    """
    if not sentences:
        return []
    longest = max(map(len, sentences))
    ids_TB = np.full((1 + longest, len(sentences)), EOS_ID, np.int64)
    for column, ids in enumerate(sentences):
        ids_TB[1 : 1 + len(ids), column] = ids
    state = network.initial_state(len(sentences))
    device = network.embedding.weight.device
    parts = []
    for start in range(0, 1 + longest, WINDOW):
        window_TB = torch.from_numpy(ids_TB[start : start + WINDOW]).to(device)
        states_TBH, state = network(window_TB, state)
        parts.append(states_TBH.cpu().numpy())
    states_TBH = np.concatenate(parts)
    return [states_TBH[: 1 + len(ids), column] for column, ids in enumerate(sentences)]
