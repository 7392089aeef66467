"""How sure a parser is, in CoNLL-U.

# parse_rank = 2            which of the best trees of the sentence it is, from 1 on
# parse_score = -1.2345     what these are ranked by
MISC  Score=0.987           how probable it is that the word's head is right
"""

from __future__ import annotations

import re

PREFIX = "parse_"  # of comments
RANK, SCORE = f"{PREFIX}rank", f"{PREFIX}score"
_NAME = "Score"  # in MISC
ITEM_BEGIN = f"{_NAME}="
_ITEM = re.compile(rf"(?:^|\|){_NAME}=(0(?:\.[0-9]+)?|1(?:\.0+)?)(?:\||$)")


def score_in(misc: str) -> float | None:
    """Return the probability that a column holds; None if it holds none."""
    found = _ITEM.search(misc) if _NAME in misc else None
    return None if found is None else float(found[1])


def with_score(misc: str, probability: float) -> str:
    """Return a column with a probability, beside what else it holds."""
    return "|".join([*_others(misc), f"{_NAME}={probability:.3f}"])


def without_score(misc: str) -> str:
    """Return a column without its probability, which is that of another tree."""
    return ("|".join(_others(misc)) or "_") if score_in(misc) is not None else misc


def is_of_tree(comment: str) -> bool:
    """Whether a comment tells the rank or the score of a tree."""
    # the first test is for speed: few comments pass it
    return PREFIX in comment and comment[1:].partition("=")[0].strip() in (RANK, SCORE)


def _others(misc: str) -> list[str]:
    return [item for item in misc.split("|") if item.partition("=")[0] not in (_NAME, "_")]
