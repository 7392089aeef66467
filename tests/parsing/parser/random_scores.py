"""Scores of transitions that need no classifier, and what follows from them, in plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from parsing.parser.tiny import LABELS

from seqtool.core.arrays import Ints
from seqtool.parsing.parser.transition.search import Beams
from seqtool.parsing.parser.transition.transitions import (
    BASE,
    FRONT,
    HEAD,
    LABEL,
    NUM_ACTIONS,
    STACK_SIZE,
    TOKENS,
    UNATTACHED,
    Configurations,
)

Key = tuple[int, ...]  # a configuration
SEGMENTS = LABELS.segments.tolist()


def position(batch: Configurations, row: int) -> Key:
    """A configuration as a key: its sentence, stack, buffer and arcs so far."""
    config = batch.configs[row]
    length = batch.configs[row, 2]
    nodes = batch.nodes[config[BASE] : config[BASE] + length + 1]
    stack = nodes[: config[STACK_SIZE], 8]
    buffer = nodes[config[FRONT] :, 9]
    arcs = nodes[:, [HEAD, LABEL]]
    end = np.asarray([-1], np.int32)
    parts = np.concatenate([config[[TOKENS]], stack, end, buffer, end, arcs.ravel()])
    return tuple(parts.tolist())


def random_scores(batch: Configurations, which: Ints, scores: Any) -> None:
    """Scores that depend on the whole configuration, as a classifier's might."""
    for place, row in enumerate(which):
        seed = abs(hash(position(batch, row))) % 2**32
        scores[place] = np.random.default_rng(seed).normal(0.0, 2.0, scores.shape[1])


def legal_transitions(batch: Configurations, row: int) -> list[int]:
    mask = int(batch.legal(np.asarray([row], np.int32))[0])
    return [
        t for a in range(NUM_ACTIONS) if mask >> a & 1 for t in range(SEGMENTS[a], SEGMENTS[a + 1])
    ]


def legal_scores(batch: Configurations, row: int) -> dict[int, float]:
    scores = np.empty((1, LABELS.num_transitions), np.float32)
    random_scores(batch, np.asarray([row], np.int32), scores)
    return {t: float(scores[0, t]) for t in legal_transitions(batch, row)}


def legal_log_probs(batch: Configurations, row: int, temperature: float = 1.0) -> dict[int, float]:
    scores = legal_scores(batch, row)
    total = math.log(sum(math.exp(score / temperature) for score in scores.values()))
    return {t: score / temperature - total for t, score in scores.items()}


Tree = tuple[tuple[int, ...], tuple[int, ...]]  # heads and labels
Steps = list[tuple[Key, int]]  # configurations, and the transitions that are taken


def derivations(
    system: str, length: int, temperature: float = 1.0, *, token: int = 1, normalised: bool = True
) -> list[tuple[Tree, float, Steps]]:
    """The tree, score and steps of every derivation, each followed in a batch of its own.

    Scores are sums of log-probabilities over the legal transitions if `normalised`.
    """
    batch = Configurations(system, LABELS, 64, length)
    found: list[tuple[Tree, float, Steps]] = []

    def explore(depth: int, score: float, steps: Steps) -> None:
        if batch.configs[depth, UNATTACHED] == 0:
            begin = batch.configs[depth, BASE]
            words = batch.nodes[begin + 1 : begin + 1 + length]
            tree = tuple(words[:, HEAD].tolist()), tuple(words[:, LABEL].tolist())
            found.append((tree, score, steps))
            return
        key = position(batch, depth)
        if normalised:
            scores = legal_log_probs(batch, depth, temperature)
        else:
            scores = legal_scores(batch, depth)
        for transition, value in scores.items():
            here, below = np.asarray([depth], np.int32), np.asarray([depth + 1], np.int32)
            batch.copy(here, below)
            batch.advance(below, np.asarray([transition], np.int32))
            explore(depth + 1, score + value, [*steps, (key, transition)])

    batch.start(*(np.asarray([number], np.int32) for number in (0, token, length)))
    explore(0, 0.0, [])
    return found


def best_tree(system: str, length: int, temperature: float = 1.0) -> Tree:
    """That of the best derivation, by trying them all."""
    return max(derivations(system, length, temperature), key=lambda found: found[1])[0]


def beams_of(system: str, lengths: Any, beam: int, **options: Any) -> Beams:
    """The lanes of a search in which nothing falls behind."""
    settings = {"margin": math.inf, "temperature": 1.0, "normalised": True, **options}
    return Beams(system, LABELS, len(lengths), max(lengths), beam=beam, **settings)
