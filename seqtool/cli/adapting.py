"""Models that learn from the text they are measured on: the options, and what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import note

if TYPE_CHECKING:
    from seqtool.language_model import LanguageModel
    from seqtool.mixture.config import FreeConfig
    from seqtool.neural_lm.dynamic_tuning import DynamicTuning
    from seqtool.perplexity import Adaptation

CacheOption = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Mix in a cache: the words that the text itself used last, those in a like state of "
        "the network above all. It adapts to the text that is measured.",
    ),
]
CacheWindowOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Tokens that the cache remembers.")
]
CacheThetaOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="X", help="How much more a word counts whose state is alike."),
]
CacheDecayOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="X", help="A word fades by exp(-X) with each token after it."),
]
CacheLambdaOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="X", help="The share of the cache in the mixture."),
]
DynamicOption = Annotated[
    bool,
    typer.Option(
        "--dynamic",
        help="Dynamic evaluation: a neural model goes on learning from the text that is measured, "
        "each piece after it was scored. The model on disk stays as it is.",
    ),
]
DynamicStatsOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The training text, from which the size of gradients is taken; "
        "the corpus of the training run if not given.",
    ),
]
DynamicStatsTokensOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many of its first tokens are read.")
]
DynamicRateOption = Annotated[
    float | None, typer.Option(metavar="X", help="Learning rate of dynamic evaluation.")
]
DynamicDecayOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="X", help="How fast the weights go back to the trained ones."),
]
DynamicSegmentOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Tokens between two steps of learning.")
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
    from seqtool.errors import ConfigError
    from seqtool.mixture.config import FreeConfig

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


def make_dynamic(
    models: Sequence[LanguageModel],
    paths: Sequence[Path],
    adapting: Adapting,
    *,
    tune: str | None,
    field: str | None,
) -> tuple[list[LanguageModel], list[DynamicTuning]]:
    """Return the models with every neural one learning, and how its settings were chosen.

    Raises:
        ConfigError: none is neural, or a mixture hides one.
        DataError: a text that cannot be used.
        ModelError: the training text of a model is not known or not there.
    """
    if adapting.dynamic is None:
        return list(models), []
    from seqtool.errors import ConfigError
    from seqtool.mixture.model import MixedModel

    for model, path in zip(models, paths, strict=True):
        if isinstance(model, MixedModel):
            raise ConfigError(
                f"{path} is a mixture, whose parts --dynamic leaves as they are",
                hint="name its parts, each with -m",
            )
    if not any(model.kind == "neural-lm" for model in models):
        raise ConfigError(
            "--dynamic is for neural models, and there is none", hint="drop it, or add one with -m"
        )
    adapted, tunings = [], []
    for model, path in zip(models, paths, strict=True):
        if model.kind != "neural-lm":
            adapted.append(model)
            continue
        learning, tuning = _learning(model, path, adapting, tune=tune, field=field)
        adapted.append(learning)
        tunings += [] if tuning is None else [tuning]
    return adapted, tunings


def _learning(
    model: Any, path: Path, adapting: Adapting, *, tune: str | None, field: str | None
) -> tuple[LanguageModel, DynamicTuning | None]:
    from seqtool.neural_lm import dynamic, dynamic_tuning
    from seqtool.progress import progress_bar

    given = adapting.dynamic or {}
    config = dynamic.DynamicConfig(**given)
    text = adapting.statistics or _training_corpus(path)
    with progress_bar("gradients of the training text") as on_progress:
        statistics = dynamic.gradient_statistics(
            model, text, config, field=field, on_progress=on_progress
        )
    learning = dynamic.DynamicLanguageModel(model, statistics, config, name=str(path))
    if tune is None:
        return learning, None
    names = [name for name in ("rate", "decay") if name not in given]
    tuning = dynamic_tuning.tune_dynamic(
        learning,
        tune,
        names=names,
        field=field,
        on_trial=lambda tried, perplexity: note(
            f"dynamic: rate {tried.rate:g}, decay {tried.decay:g}: perplexity {perplexity:,.2f}"
        ),
    )
    return tuning.model, tuning


def _training_corpus(path: Path) -> Path:
    """Return the prepared corpus that a model was trained on.

    Raises:
        ModelError: the run does not say, or the corpus is no longer there.
    """
    from seqtool.errors import ModelError
    from seqtool.neural_lm.train import RunRecord

    hint = "name the training text with --dynamic-stats"
    try:
        corpus = path / RunRecord.read(path).corpus
    except ModelError as error:
        raise ModelError(
            "the run's record, which names the training text, is not there or damaged",
            hint=hint,
            path=path,
        ) from error
    if not (corpus / "corpus.json").is_file():
        raise ModelError(
            f"the corpus that it was trained on is no longer there: {corpus}", hint=hint, path=path
        )
    return corpus


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
