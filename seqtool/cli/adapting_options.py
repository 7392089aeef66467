"""The options of models that learn from the text they are measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seqtool.lm.mixture.config import FreeConfig

CACHE_PANEL = "Cache: adapts to the text that is measured"
DYNAMIC_PANEL = "Dynamic evaluation: adapts to the text that is measured"

CacheOption = Annotated[
    bool,
    typer.Option(
        "--cache",
        rich_help_panel=CACHE_PANEL,
        help="Mix in a cache: the words that the text itself used last, those in a like state of "
        "the network above all.",
    ),
]
CacheWindowOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=CACHE_PANEL,
        help="Tokens that it remembers; 2,000 if neither given nor tuned.",
    ),
]
CacheThetaOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="X",
        rich_help_panel=CACHE_PANEL,
        help="How much more a word counts whose state is alike; 0.4 if neither given nor tuned.",
    ),
]
CacheDecayOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="X",
        rich_help_panel=CACHE_PANEL,
        help="A word fades by exp(-X) with each token after it; 0.004 if neither given nor tuned.",
    ),
]
CacheLambdaOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="X",
        rich_help_panel=CACHE_PANEL,
        help="Its share in the mixture; 0.15 if neither given nor tuned.",
    ),
]
DynamicOption = Annotated[
    bool,
    typer.Option(
        "--dynamic",
        rich_help_panel=DYNAMIC_PANEL,
        help="Let a neural model go on learning from the text, each piece after it was scored. The "
        "model on disk stays as it is.",
    ),
]
DynamicRateOption = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        rich_help_panel=DYNAMIC_PANEL,
        help="Learning rate; 0.0001 if neither given nor tuned.",
    ),
]
DynamicDecayOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="X",
        rich_help_panel=DYNAMIC_PANEL,
        help="How fast the weights go back to the trained ones; 0.008 if neither given nor tuned.",
    ),
]
DynamicSegmentOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=DYNAMIC_PANEL,
        help="Tokens between two steps of learning; 20 if not given.",
    ),
]
DynamicStatsOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=DYNAMIC_PANEL,
        help="The training text, from which the size of gradients is taken; the corpus of the "
        "training run if not given.",
    ),
]
DynamicStatsTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=DYNAMIC_PANEL,
        help="How many of its first tokens are read; 200,000 if not given.",
    ),
]


@dataclass(frozen=True)
class Adapting:
    """What the options say.

    Attributes:
        cache: settings of a cache, free where not given; None for no cache.
        weight: of the cache in the mixture, if it is given.
        dynamic: settings of dynamic evaluation that are given; None to leave it.
        statistics: the text that the size of gradients is taken from, if it is given.
    """

    cache: FreeConfig | None = None
    weight: float | None = None
    dynamic: dict[str, Any] | None = None
    statistics: str | None = None

    @property
    def dynamic_is_free(self) -> bool:
        """Whether there is something to tune of dynamic evaluation."""
        return self.dynamic is not None and not {"rate", "decay"} <= set(self.dynamic)


def parse_adapting(
    *,
    cache: bool,
    window: int | None,
    theta: float | None,
    decay: float | None,
    weight: float | None,
    dynamic: bool,
    statistics: str | None,
    statistics_tokens: int | None,
    rate: float | None,
    dynamic_decay: float | None,
    segment: int | None,
    reset_state: bool,
) -> Adapting:
    """Return what the options say, checked before a model is opened.

    Raises:
        ConfigError: an option of something that was not asked for, or an impossible value.
    """
    from seqtool.core.errors import ConfigError
    from seqtool.lm.mixture.config import FreeConfig

    of_cache = {"window": window, "theta": theta, "decay": decay, "lambda": weight}
    of_dynamic = {
        "stats": statistics,
        "stats-tokens": statistics_tokens,
        "rate": rate,
        "decay": dynamic_decay,
        "segment": segment,
    }
    for switch, is_on, options in (("cache", cache, of_cache), ("dynamic", dynamic, of_dynamic)):
        for name, value in options.items():
            if value is not None and not is_on:
                raise ConfigError(
                    f"--{switch}-{name} is for --{switch}", hint=f"add --{switch}, or drop it"
                )
    for switch, is_on in (("cache", cache), ("dynamic", dynamic)):
        if is_on and reset_state:
            raise ConfigError(
                f"--{switch} learns from the text, but --reset-state forgets it with each sentence",
                hint="drop one of the two",
            )
    if rate is not None and not rate > 0:
        raise ConfigError(f"--dynamic-rate is {rate:g}", hint="give a learning rate above 0")
    settings = {
        "statistics_tokens": statistics_tokens,
        "rate": rate,
        "decay": dynamic_decay,
        "segment": segment,
    }
    return Adapting(
        FreeConfig(window, theta, decay) if cache else None,
        weight,
        {name: value for name, value in settings.items() if value is not None} if dynamic else None,
        statistics,
    )
