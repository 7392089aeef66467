"""Which of several language models learn from the text that they are measured on, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.progress import progress_bar
from seqtool.lm.neural.config import DynamicConfig
from seqtool.lm.neural.dynamic import (
    DynamicLanguageModel,
    DynamicTuning,
    gradient_statistics,
    tune_dynamic,
)
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.train import RunRecord
from seqtool.lm.protocol import LanguageModel


def make_dynamic(
    models: Sequence[LanguageModel],
    paths: Sequence[Path],
    settings: Mapping[str, Any],
    *,
    training_text: str | None = None,
    tune: str | None = None,
    field: str | None = None,
    on_trial: Callable[[DynamicConfig, float], None] = lambda config, perplexity: None,
) -> tuple[list[LanguageModel], list[DynamicTuning]]:
    """Return the models with every neural one learning, and how its settings were chosen.

    Args:
        models: of any kind, one of them neural.
        paths: where they are.
        settings: those of `DynamicConfig` that are given.
        training_text: what the size of gradients is taken from; when not given, the corpus that a
            model was trained on.
        tune: a held-out text, on which the other settings are chosen.
        field: which field of .jsonl files holds the text.
        on_trial: called with each setting that is tried, and its perplexity.

    Raises:
        ConfigError: none is neural, or a mixture hides one.
        DataError: a text that cannot be used.
        ModelError: the training text of a model is not known or not there.
    """
    for model, path in zip(models, paths, strict=True):
        if model.kind == "mixture":
            raise ConfigError(
                f"{path} is a mixture, whose parts --dynamic leaves as they are",
                hint="name its parts, each with -m",
            )
    if not any(model.kind == "neural-lm" for model in models):
        raise ConfigError(
            "--dynamic is for neural models, and there is none", hint="drop it, or add one with -m"
        )
    config = DynamicConfig(**settings)
    free = [name for name in ("rate", "decay") if name not in settings]
    adapted: list[LanguageModel] = []
    tunings = []
    for model, path in zip(models, paths, strict=True):
        if not isinstance(model, NeuralLanguageModel):
            adapted.append(model)
            continue
        text = training_text or training_corpus(path)
        with progress_bar("gradients of the training text") as on_progress:
            statistics = gradient_statistics(
                model, text, config, field=field, on_progress=on_progress
            )
        learning = DynamicLanguageModel(model, statistics, config, name=str(path))
        if tune is not None:
            tuning = tune_dynamic(learning, tune, names=free, field=field, on_trial=on_trial)
            tunings.append(tuning)
            learning = tuning.model
        adapted.append(learning)
    return adapted, tunings


def training_corpus(path: Path) -> Path:
    """Return the prepared corpus that a model was trained on.

    Raises:
        ModelError: the run does not say, or the corpus is no longer there.
    """
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
