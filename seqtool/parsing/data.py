"""The parts of a treebank on their way to training, and batches of their sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from seqtool.core.arrays import Ints, Longs
from seqtool.treebank.conllu import held_out

Item = TypeVar("Item")

POOL_BATCHES = 32  # batches whose sentences are sorted by length together, for little padding


def in_parts(train: Iterable[Item], dev: Iterable[Item] | None) -> Iterator[tuple[Item, bool]]:
    """Give each sentence and whether it is of the validation part, in the order of reading.

    Without `dev`, every tenth sentence of `train` is held out; of fewer than ten none is, so that
    who reads them takes the whole for both parts.
    """
    for sentence, is_dev in held_out(train):
        yield sentence, is_dev and dev is None
    for sentence in dev or ():
        yield sentence, True


def batches_of_like_lengths(
    order: Longs, lengths: Ints, num_words: int, generator: np.random.Generator
) -> list[Longs]:
    """Return sentences in batches of about so many words, those of like lengths together.

    Args:
        order: places of sentences, in a random order.
        lengths: of all sentences, in words.
        num_words: of a batch.
        generator: draws the order of the batches.
    """
    batches: list[Longs] = []
    for pool in _cut(order, lengths, POOL_BATCHES * num_words):
        by_length = pool[np.argsort(lengths[pool], kind="stable")]
        batches += _cut(by_length, lengths, num_words)
    return [batches[i] for i in generator.permutation(len(batches))]


def _cut(sentences: Longs, lengths: Ints, num_words: int) -> list[Longs]:
    """Return sentences in runs of about so many words, the last one shorter."""
    ends = np.cumsum(lengths[sentences])
    return np.split(sentences, np.flatnonzero(np.diff((ends - 1) // num_words)) + 1)
