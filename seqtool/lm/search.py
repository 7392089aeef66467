"""Beam search: probable continuations under any language model, without chance.

Shapes: N live hypotheses and V symbols. Log-probabilities are nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Doubles
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.protocol import LanguageModel, State


class Hypothesis(NamedTuple):
    """A continuation: its tokens, the log-probability of each, and their sum."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float

    def rank(self, length_penalty: float) -> float:
        """Return what hypotheses are ranked by: total / length ** length_penalty."""
        return self.total / math.pow(len(self.tokens), length_penalty)


def largest(values_V: Doubles, num: int) -> npt.NDArray[np.intp]:
    """Return the indices of the `num` largest values, falling; ties by the lower index."""
    if num < len(values_V):
        threshold = np.partition(values_V, len(values_V) - num)[len(values_V) - num]
        candidates = np.flatnonzero(values_V >= threshold)
    else:
        candidates = np.arange(len(values_V))
    order = np.argsort(-values_V[candidates], kind="stable")
    return candidates[order][:num]


def only_unk() -> ModelError:
    """Return the error of a model that leaves nothing to generate."""
    return ModelError(
        "the model offers nothing but <unk> as the next token", hint="allow it with --generate-unk"
    )


def beam_search(
    model: LanguageModel,
    state: State,
    *,
    beam: int,
    num: int = 1,
    max_tokens: int = 100,
    length_penalty: float = 0.0,
    stop_at_sentence_end: bool = True,
    generate_unk: bool = False,
) -> list[Hypothesis]:
    """Return the `num` best continuations that the search finds, the best first.

    Each step keeps the `beam` best one-token extensions of all live hypotheses; those that end
    their sentence leave the beam. The search is over when no live hypothesis can overtake the `num`
    best finished ones, or at `max_tokens`, where unfinished ones count too. A beam of one is the
    greedy choice, one of V ** max_tokens is exhaustive.

    Args:
        model: any language model.
        state: one hypothesis of the model, which has read the prompt.
        beam: how many extensions are kept.
        num: how many continuations are wanted.
        max_tokens: the longest continuation, `</s>` counted.
        length_penalty: hypotheses are ranked by log-probability / length ** length_penalty.
        stop_at_sentence_end: `</s>` ends a hypothesis; otherwise it is a token like others.
        generate_unk: let `<unk>` be generated.

    Raises:
        ModelError: there is no continuation but `<unk>`.
    """
    live = [Hypothesis((), (), 0.0)]
    finished: list[Hypothesis] = []
    for step in range(max_tokens):
        log_probs_NV = np.array(model.next_log_probs(state), dtype=np.float64)
        if not generate_unk:
            log_probs_NV[:, UNK_ID] = -np.inf
        totals = (np.array([h.total for h in live])[:, None] + log_probs_NV).ravel()
        best = largest(totals, beam)
        best = best[totals[best] > -np.inf]
        grown, rows = [], []
        for row, token in zip(*divmod(best, log_probs_NV.shape[1]), strict=True):
            log_prob = float(log_probs_NV[row, token])
            tokens, log_probs, total = live[row]
            hypothesis = Hypothesis((*tokens, int(token)), (*log_probs, log_prob), total + log_prob)
            if token == EOS_ID and stop_at_sentence_end:
                finished.append(hypothesis)
            else:
                grown.append(hypothesis)
                rows.append(row)
        live = grown
        if not live or step + 1 == max_tokens:
            break
        # a total only falls, and is divided by at most max_tokens ** length_penalty
        bound = max(h.total for h in live) / math.pow(max_tokens, length_penalty)
        if sum(h.rank(length_penalty) >= bound for h in finished) >= num:
            live = []
            break
        state = model.select(state, np.array(rows, dtype=np.intp))
        state = model.advance(state, np.array([h.tokens[-1] for h in live], dtype=np.int32))
    if not finished and not live:
        raise only_unk()
    return _best(finished + live, num, length_penalty)


def _best(hypotheses: Sequence[Hypothesis], num: int, length_penalty: float) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda h: -h.rank(length_penalty))[:num]
