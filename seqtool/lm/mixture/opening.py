"""Language models from where they are: one as it is, several as their mixture, with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, ModelError
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.config import WEIGHT, FreeConfig
from seqtool.lm.mixture.model import MixedModel, source_of
from seqtool.lm.protocol import LanguageModel


def open_language_model(
    path: Path, *, device: str = "cpu", threads: int | None = None
) -> LanguageModel:
    """Open the model at `path`, without torch where it needs none.

    Args:
        path: a model directory, or an ARPA file.
        device: of a network; "auto" chooses one.
        threads: of a network; all cores when not given.

    Raises:
        ModelError: there is no model, it is damaged, or it is no language model.
        ConfigError: there is no such device, or an impossible number of threads.
    """
    # a model made with torch is neural, or a mixture with a neural part
    if not path.is_file() and "torch" in checkpoint.read_header(path).versions:
        from seqtool.training import hardware

        device = hardware.choose_device(device)
        hardware.set_threads(threads)
        hardware.prepare_device(device)
    model = checkpoint.load(path, device=device)
    if not hasattr(model, "next_log_probs"):
        raise ModelError(
            "is no language model", hint="choose one that train-lm made, with -m", path=path
        )
    return cast("LanguageModel", model)


def open_mixture(
    paths: Sequence[Path],
    weights: Sequence[float] | None = None,
    *,
    device: str = "cpu",
    threads: int | None = None,
) -> LanguageModel:
    """Open a model as it is, or several as their mixture.

    Args:
        paths: one or more models.
        weights: of each; equal ones when not given.
        device: of networks; "auto" chooses one.
        threads: of networks; all cores when not given.

    Raises:
        ModelError: a model that cannot be opened, or models that do not fit together.
        ConfigError: no such device, or weights that are no distribution.
    """
    return mix(open_parts(paths, device=device, threads=threads), paths, weights)


def open_parts(paths: Sequence[Path], *, device: str, threads: int | None) -> list[LanguageModel]:
    """Open models that are to be mixed; see `open_mixture`."""
    return [open_language_model(path, device=device, threads=threads) for path in paths]


def mix(
    models: Sequence[LanguageModel],
    paths: Sequence[Path],
    weights: Sequence[float] | None = None,
    *,
    cache: FreeConfig | None = None,
    cache_weight: float | None = None,
) -> LanguageModel:
    """Return one model as it is, several as their mixture, and either with a cache if it is wanted.

    Args:
        models: one or more.
        paths: where they are.
        weights: of the models, among themselves; equal ones when not given.
        cache: settings of a cache; None for no cache.
        cache_weight: of the cache in the mixture.

    Raises:
        ConfigError: theta is given for models without states, or there is a cache already.
        ModelError: the models do not fit together.
    """
    names = [str(path) for path in paths]
    if cache is None:
        return models[0] if len(models) == 1 else MixedModel(models, weights, names=names)
    source, name = source_of(models, names)
    with_cache = CacheModel(source, cache.chosen(), name=name)
    if cache.theta and not with_cache.has_states:
        raise ConfigError(
            "--cache-theta compares the states of a network, but there is none",
            hint="drop it: the cache then counts words",
        )
    share = WEIGHT if cache_weight is None else cache_weight
    rest = weights or [1 / len(models)] * len(models)
    return MixedModel(
        [*models, with_cache],
        [*((1 - share) * weight for weight in rest), share],
        names=[*names, f"cache of {name}"],
    )
