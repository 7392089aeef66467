"""Probabilities of arcs in column MISC: `Score=0.987`, that the word's head is right."""

from __future__ import annotations

import re

SCORE = "Score"
_ITEM = re.compile(rf"(?:^|\|){SCORE}=(0(?:\.[0-9]+)?|1(?:\.0+)?)(?:\||$)")


def score_in(misc: str) -> float | None:
    """Return the probability that a column holds; None if it holds none."""
    found = _ITEM.search(misc) if SCORE in misc else None
    return None if found is None else float(found[1])


def with_score(misc: str, probability: float) -> str:
    """Return a column with a probability, beside what else it holds."""
    kept = [item for item in misc.split("|") if item.partition("=")[0] not in (SCORE, "_")]
    return "|".join([*kept, f"{SCORE}={probability:.3f}"])
