"""Roll-outs: the configurations that a parser comes through, which its classifier learns from.

Sentences are parsed in lockstep, as in `search`. With a static oracle, its transition is what is
to be learnt, and what is taken. With a dynamic one, all transitions that cost nothing are to be
learnt; the one that is taken is the classifier's own, or, not exploring, the one of these that the
classifier likes best (Goldberg & Nivre 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bytes, Floats, Ints, Longs
from seqtool.parsing.parser.configurations import NUM_ACTIONS, TOKENS, UNATTACHED, Labels
from seqtool.parsing.parser.hidden_layer import extract
from seqtool.parsing.parser.oracles import Oracle
from seqtool.parsing.parser.search import NODE_ROWS, Scorer
from seqtool.parsing.parser.slots import Slots
from seqtool.parsing.parser.transitions import Configurations

NUM_LANES = 512


@dataclass(frozen=True)
class Examples:
    """Configurations, and what is to be done in them; N rows each.

    Attributes:
        tokens, labels, measures: what stands in the slots, see `hidden_layer.Seen`.
        legal: the legal actions, as bits.
        free: int32 [N, NUM_ACTIONS], of each action the transition that costs nothing, or -1.
        sentences: the row of ROOT in the sentence.
    """

    tokens: Ints
    labels: Ints
    measures: Ints
    legal: Bytes
    free: Ints
    sentences: Ints

    def __len__(self) -> int:
        return len(self.legal)

    @classmethod
    def of(cls, parts: Sequence[Self]) -> Self:
        """Return the examples of all parts, one part after another."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def batches(self, num_batches: int, generator: np.random.Generator) -> list[Longs]:
        """Return the rows of each of several random batches."""
        return np.array_split(generator.permutation(len(self)), num_batches)

    def batches_of_sentences(self, num_batches: int, generator: np.random.Generator) -> list[Longs]:
        """Return the rows of each of several batches, each of a few sentences of like lengths.

        The longer a sentence, the more examples it has, which stand for its length here; a little
        chance makes the batches others in each epoch.
        """
        _, sentences, sizes = np.unique(self.sentences, return_inverse=True, return_counts=True)
        disturbed = sizes * generator.uniform(0.9, 1.1, len(sizes))
        parts = np.array_split(np.argsort(disturbed[sentences], kind="stable"), num_batches)
        return [parts[place] for place in generator.permutation(num_batches)]


def roll_out(
    oracle: Oracle,
    system: str,
    labels: Labels,
    token_numbers: Ints,
    tokens: Ints,
    lengths: Ints,
    slots: Slots,
    *,
    scorer: Scorer | None = None,
    exploration: float = 0.0,
    generator: np.random.Generator,
) -> Examples:
    """Parse sentences, and note the configurations that leave a choice.

    Args:
        oracle: of the treebank that the sentences are of.
        system: a name in `configurations.SYSTEMS`.
        labels: of arcs.
        token_numbers: what is noted of a token that stands in a slot.
        tokens: the row of each sentence's ROOT.
        lengths: words of each sentence.
        slots: what the classifier looks at.
        scorer: the classifier; None for the static oracle.
        exploration: how often the classifier's own choice is followed.
        generator: draws when.
    """
    longest = int(lengths.max())
    num_lanes = max(1, min(NUM_LANES, len(lengths), NODE_ROWS // (longest + 1)))
    configurations = Configurations(system, labels, num_lanes, longest)
    lanes = np.arange(num_lanes, dtype=np.int32)
    scores = np.empty((num_lanes, labels.num_transitions), np.float32)
    found: list[tuple[npt.NDArray[np.generic], ...]] = []
    waiting = 0
    while True:
        while waiting < len(lengths):
            done = lanes[configurations.configs[lanes, UNATTACHED] == 0]
            done = done[: len(lengths) - waiting]
            if not len(done):
                break
            begun = slice(waiting, waiting + len(done))
            configurations.start(done, tokens[begun], lengths[begun])
            waiting += len(done)
        # a sentence may be final when it begins, so that lanes can be done again at once
        which = configurations.unfinished(lanes)
        if not len(which):
            break
        legal = configurations.legal(which)
        if scorer is None:
            chosen = oracle.transitions(configurations, which)
            free = np.full((len(which), NUM_ACTIONS), -1, np.int32)
            free[:, 0] = chosen  # the column does not matter to what is learnt
        else:
            targets = oracle.targets(configurations, which)
            free = np.where(oracle.costs(configurations, which, legal) == 0, targets, -1)
            scorer(configurations, which, scores[: len(which)])
            own = configurations.choose(legal, scores[: len(which)])
            best = _best_of(free, scores[: len(which)])
            # no gold label at all on what is free: only its own choice is left
            follows = (generator.random(len(which)) < exploration) | (best < 0)
            chosen = np.where(follows, own, best).astype(np.int32)
        sentences = configurations.configs[which, TOKENS]
        found.append(
            (*extract(configurations, which, token_numbers, slots), legal, free, sentences)
        )
        configurations.advance(which, chosen)
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    # a word that has lost its head for good may leave no transition with its gold label
    known = (columns[-2] >= 0).any(axis=1)
    return Examples(*(column[known] for column in columns))


def _best_of(free: Ints, scores: Floats) -> Ints:
    """Return the transition of the highest score in each row of `free`; -1 without any."""
    values = np.take_along_axis(scores, np.maximum(free, 0), axis=1)
    best = np.where(free >= 0, values, -np.inf).argmax(axis=1)
    chosen: Ints = free[np.arange(len(free)), best]
    chosen[(free < 0).all(axis=1)] = -1
    return chosen
