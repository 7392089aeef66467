"""Models that learn from the text they are measured on: the options, and what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.core.errors import ConfigError

if TYPE_CHECKING:
    from seqtool.lm.mixture.config import FreeConfig
    from seqtool.lm.neural.dynamic import DynamicTuning
    from seqtool.lm.perplexity import Adaptation

CACHE_PANEL = "Cache: adapts to the text that is measured"
DYNAMIC_PANEL = "Dynamic evaluation: adapts to the text that is measured"


def _adapting(
    panel: str, help: str, *, metavar: str = "X", min: float | None = None, max: float | None = None
) -> Any:
    return typer.Option(help=help, metavar=metavar, min=min, max=max, rich_help_panel=panel)


@dataclass(frozen=True)
class AdaptingOptions:
    """Options of models that learn from the text they are measured on."""

    cache: Annotated[
        bool,
        typer.Option(
            "--cache",
            rich_help_panel=CACHE_PANEL,
            help="Mix in a cache: the words that the text itself used last, those in a like state "
            "of the network above all.",
        ),
    ] = False
    cache_window: Annotated[
        int | None,
        _adapting(
            CACHE_PANEL,
            "Tokens that it remembers; 2,000 if neither given nor tuned.",
            metavar="N",
            min=1,
        ),
    ] = None
    cache_theta: Annotated[
        float | None,
        _adapting(
            CACHE_PANEL,
            "How much more a word counts whose state is alike; 0.4 if neither given nor tuned.",
            min=0,
        ),
    ] = None
    cache_decay: Annotated[
        float | None,
        _adapting(
            CACHE_PANEL,
            "A word fades by exp(-X) with each token after it; 0.004 if neither given nor tuned.",
            min=0,
        ),
    ] = None
    cache_lambda: Annotated[
        float | None,
        _adapting(
            CACHE_PANEL,
            "Its share in the mixture; 0.15 if neither given nor tuned.",
            min=0,
            max=1,
        ),
    ] = None
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            rich_help_panel=DYNAMIC_PANEL,
            help="Let a neural model go on learning from the text, each piece after it was scored. "
            "The model on disk stays as it is.",
        ),
    ] = False
    dynamic_rate: Annotated[
        float | None,
        _adapting(DYNAMIC_PANEL, "Learning rate; 0.0001 if neither given nor tuned."),
    ] = None
    dynamic_decay: Annotated[
        float | None,
        _adapting(
            DYNAMIC_PANEL,
            "How fast the weights go back to the trained ones; 0.008 if neither given nor tuned.",
            min=0,
        ),
    ] = None
    dynamic_segment: Annotated[
        int | None,
        _adapting(
            DYNAMIC_PANEL,
            "Tokens between two steps of learning; 20 if not given.",
            metavar="N",
            min=1,
        ),
    ] = None
    dynamic_stats: Annotated[
        str | None,
        _adapting(
            DYNAMIC_PANEL,
            "The training text, from which the size of gradients is taken; the corpus of the "
            "training run if not given.",
            metavar="TEXT",
        ),
    ] = None
    dynamic_stats_tokens: Annotated[
        int | None,
        _adapting(
            DYNAMIC_PANEL,
            "How many of its first tokens are read; 200,000 if not given.",
            metavar="N",
            min=1,
        ),
    ] = None

    def check(self, *, reset_state: bool) -> None:
        """Refuse options of something that was not asked for, before a model is opened.

        Raises:
            ConfigError: there is such an option, or an impossible value.
        """
        for switch in ("cache", "dynamic"):
            is_on = getattr(self, switch)
            for name, value in vars(self).items():
                if name.startswith(f"{switch}_") and value is not None and not is_on:
                    raise ConfigError(
                        f"--{name.replace('_', '-')} is for --{switch}",
                        hint=f"add --{switch}, or drop it",
                    )
        for switch in ("cache", "dynamic"):
            if getattr(self, switch) and reset_state:
                raise ConfigError(
                    f"--{switch} learns from the text, but --reset-state forgets it with each "
                    "sentence",
                    hint="drop one of the two",
                )
        rate = self.dynamic_rate
        if rate is not None and not rate > 0:
            raise ConfigError(f"--dynamic-rate is {rate:g}", hint="give a learning rate above 0")

    @property
    def cache_settings(self) -> FreeConfig | None:
        """Return the settings of a cache, free where not given; None for no cache."""
        from seqtool.lm.mixture.config import FreeConfig

        if not self.cache:
            return None
        return FreeConfig(self.cache_window, self.cache_theta, self.cache_decay)

    @property
    def dynamic_settings(self) -> dict[str, Any]:
        """Return the settings of dynamic evaluation that are given."""
        settings = {
            "statistics_tokens": self.dynamic_stats_tokens,
            "rate": self.dynamic_rate,
            "decay": self.dynamic_decay,
            "segment": self.dynamic_segment,
        }
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def dynamic_is_free(self) -> bool:
        """Whether there is something to tune of dynamic evaluation."""
        return self.dynamic and None in (self.dynamic_rate, self.dynamic_decay)


def adaptation_rows(
    adaptations: Sequence[Adaptation], tunings: Sequence[DynamicTuning], num_caches_tried: int
) -> list[tuple[str, str]]:
    """Return a row that says that the models adapt, and one for each with its settings."""
    if not adaptations:
        return []
    chosen = {tuning.model.name: tuning for tuning in tunings}
    rows = [("adapting", "to this very text, as it is read; fixed models do not compare")]
    for found in adaptations:
        settings = ", ".join(
            f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value:g}"
            for name, value in found.settings.items()
        )
        how = ""
        if found.kind == "cache" and num_caches_tried:
            how = f"; the best of {num_caches_tried:,} settings"
        if found.kind == "dynamic" and found.model in chosen:
            tuning = chosen[found.model]
            how = (
                f"; the best of {len(tuning.tried)} settings on the first {tuning.tokens:,} "
                f"tokens of {tuning.text}, perplexity {tuning.perplexity:,.2f}"
            )
        rows.append((f"  {found.kind}", f"{found.model}: {settings}{how}"))
    return rows
