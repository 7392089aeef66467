"""The settings of a cache."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqtool.core.config import Config, setting

STRONGEST = 1e6  # theta and decay: scores stay within the range of single precision
WEIGHT = 0.15  # of a cache in a mixture, unless it is set or tuned
GRID: Mapping[str, tuple[float, ...]] = {
    "window": (100, 500, 2000),
    "theta": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5),
    "decay": (0.0, 0.001, 0.002, 0.004, 0.008, 0.016),
}


@dataclass(frozen=True)
class CacheConfig(Config):
    """What a cache remembers, and how much each word counts."""

    window: int = setting(2000, "tokens remembered", minimum=1, maximum=2**31 - 1)
    theta: float = setting(
        0.4,
        "how much more a word counts whose state is like the present one",
        minimum=0,
        maximum=STRONGEST,
    )
    decay: float = setting(
        0.004,
        "how fast a word fades: by exp(-decay) with each token",
        minimum=0,
        maximum=STRONGEST,
    )


def candidates(settings: Mapping[str, Any], *, has_states: bool) -> list[CacheConfig]:
    """Return the settings to try: the fixed ones, and the grid for the others."""
    grid: dict[str, Sequence[Any]] = {**GRID} if has_states else {**GRID, "theta": (0.0,)}
    grid |= {name: (value,) for name, value in settings.items()}
    return [CacheConfig(*values) for values in itertools.product(*grid.values())]
