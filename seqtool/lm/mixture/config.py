"""How models adapt to the text that is measured, by a cache above all: given, or to be tuned."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqtool.core.config import Config, setting
from seqtool.core.errors import ConfigError

STRONGEST = 1e6  # theta and decay: scores stay within the range of single precision
WEIGHT = 0.15  # of a cache in a mixture, where none is given or tuned
GRID: Mapping[str, tuple[float, ...]] = {
    "window": (100, 500, 2000),
    "theta": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5),
    "decay": (0.0, 0.001, 0.002, 0.004, 0.008, 0.016),
}


@dataclass(frozen=True)
class CacheConfig(Config):
    """What a cache remembers, and how it weighs it."""

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


@dataclass(frozen=True)
class FreeConfig:
    """Settings of a cache that are given, or None where they are to be tuned.

    Attributes:
        window, theta, decay: see `CacheConfig`.
    """

    window: int | None = None
    theta: float | None = None
    decay: float | None = None

    def chosen(self) -> CacheConfig:
        """Return the settings with the defaults where none is given."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return CacheConfig(**given)

    def candidates(self, *, has_states: bool) -> list[CacheConfig]:
        """Return what is to be tried: the given values, and those of the grid for the others."""
        grid = dict(GRID) if has_states else {**GRID, "theta": (0.0,)}
        values = [grid[name] if value is None else (value,) for name, value in vars(self).items()]
        return [CacheConfig(*settings) for settings in itertools.product(*values)]


@dataclass(frozen=True)
class AdaptationConfig(Config):
    """How models learn from the text that they are measured on; what is None may be tuned."""

    cache: bool = setting(
        False,
        "mix in a cache: the words that the text itself used last, those in a like state of the "
        "network above all",
    )
    cache_window: int | None = setting(
        None, "tokens that it remembers; 2,000 if neither given nor tuned", minimum=1
    )
    cache_theta: float | None = setting(
        None,
        "how strongly the cache prefers words after a similar state (theta of Grave et al. 2017); "
        "0.4 if neither given nor tuned",
        minimum=0,
    )
    cache_decay: float | None = setting(
        None,
        "a word fades by exp(-X) with each token after it; 0.004 if neither given nor tuned",
        minimum=0,
    )
    cache_lambda: float | None = setting(
        None, "its share in the mixture; 0.15 if neither given nor tuned", minimum=0, maximum=1
    )
    dynamic: bool = setting(
        False,
        "let a neural model go on learning from the text, each piece after it was scored. The "
        "model on disk stays as it is",
    )
    dynamic_rate: float | None = setting(
        None, "learning rate; 0.0001 if neither given nor tuned", above=0
    )
    dynamic_decay: float | None = setting(
        None,
        "how fast the weights go back to the trained ones; 0.008 if neither given nor tuned",
        minimum=0,
    )
    dynamic_segment: int | None = setting(
        None, "tokens between two steps of learning; 20 if not given", minimum=1
    )
    dynamic_stats: str | None = setting(
        None,
        "the training text, from which the size of gradients is taken; the corpus of the training "
        "run if not given",
    )
    dynamic_stats_tokens: int | None = setting(
        None, "how many of its first tokens are read; 200,000 if not given", minimum=1
    )

    def check(self) -> None:
        """Refuse settings of a cache, or of dynamic evaluation, without it."""
        for name, value in vars(self).items():
            switch, _, rest = name.partition("_")
            if rest and value is not None and not getattr(self, switch):
                what = f"--{name.replace('_', '-')} is for --{switch}"
                raise ConfigError(what, hint=f"add --{switch}, or drop it")

    @property
    def cache_settings(self) -> FreeConfig | None:
        """Return the settings of the cache; None for no cache."""
        given = FreeConfig(self.cache_window, self.cache_theta, self.cache_decay)
        return given if self.cache else None

    @property
    def dynamic_settings(self) -> dict[str, Any]:
        """Return those of `DynamicConfig` that are given."""
        settings = {
            "rate": self.dynamic_rate,
            "decay": self.dynamic_decay,
            "segment": self.dynamic_segment,
            "statistics_tokens": self.dynamic_stats_tokens,
        }
        return {name: value for name, value in settings.items() if value is not None}
