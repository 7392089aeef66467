"""Models that learn from the text they are measured on: how they are made, and what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli.options import note

if TYPE_CHECKING:
    from seqtool.cli.adapting_options import Adapting
    from seqtool.lm.neural.dynamic import DynamicTuning
    from seqtool.lm.perplexity import Adaptation
    from seqtool.lm.protocol import LanguageModel


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
    from seqtool.core.errors import ConfigError
    from seqtool.lm.mixture.model import MixedModel

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
    from seqtool.core.progress import progress_bar
    from seqtool.lm.neural import dynamic

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
    tuning = dynamic.tune_dynamic(
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
    from seqtool.core.errors import ModelError
    from seqtool.lm.neural.train import RunRecord

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
