"""The sentences of a treebank that are kept for validation where no treebank is given for that.

Every tenth sentence is, for segmenter, tagger and parser alike, so that all parts of a pipeline are
judged by sentences that none of them was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

EVERY = 10


def held_out(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    """Yield each item, and whether it is held out: items 10, 20 and so on are."""
    for number, item in enumerate(items, start=1):
        yield item, number % EVERY == 0


def describe(num_train: int, num_dev: int) -> str:
    """Return one line that says what is held out.

    Args:
        num_train: sentences that are trained on.
        num_dev: those held out; `num_train` where there are too few, so that dev is train.
    """
    if num_dev == num_train:
        return (
            f"the treebank has fewer than {EVERY} sentences, so none is held out: dev is train, "
            "and dev scores say nothing of other text; give --dev"
        )
    num = num_train + num_dev
    if num_dev == 1:
        return f"1 sentence of {num} is held out as dev: its scores mean little; give --dev"
    return (
        f"every tenth sentence is held out as dev: {num_dev:,} of {num:,}; give --dev for another"
    )
