"""Recipes: settings by name, and how they combine with what the user typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from seqtool.core.config import apply_overrides, from_dict, load_yaml, set_value, to_dict
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.lm.neural.config import NeuralLMConfig

# settings that one cell alone reads
ONE_CELL_SETTINGS = {
    "model.depth": "rhn",
    "model.carry": "rhn",
    "model.activation": "rnn",
    "model.window": "window",
    "model.forget_bias": "lstm",
    "model.projection_size": "lstm",
}


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes."""
    folder = resources.files("seqtool") / "recipes"
    return sorted(
        item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe by name, or of a YAML file by path.

    Raises:
        ConfigError: there is none of that name; the hint lists near ones.
    """
    if name in recipe_names():
        with resources.as_file(resources.files("seqtool") / "recipes" / f"{name}.yaml") as path:
            return load_yaml(path)
    if Path(name).suffix in (".yaml", ".yml") or Path(name).exists():
        return load_yaml(name)
    raise ConfigError(f"no recipe is called {name!r}", hint=did_you_mean(name, recipe_names()))


def resolve(
    recipe: str | None,
    values: Mapping[str, Any],
    overrides: Iterable[str],
    *,
    run: Path | None = None,
) -> NeuralLMConfig:
    """Combine a recipe (or the settings of a run that is resumed), options and overrides.

    Args:
        recipe: a recipe's name or a YAML file; None for the defaults.
        values: dotted setting -> value, from the options of the command.
        overrides: `name=value` texts, which win.
        run: the directory of the run to continue, whose settings are the base.

    Raises:
        ConfigError: an unknown recipe or setting, or an impossible value.
    """
    base: dict[str, Any] = {}
    if run is not None:
        from seqtool.lm.neural.train import RunRecord

        base = to_dict(RunRecord.read(run).config)
    if recipe is not None:
        base = load_recipe(recipe)
    given = [set_value(NeuralLMConfig, base, name, value) for name, value in values.items()]
    given += apply_overrides(NeuralLMConfig, base, overrides)
    try:
        config = from_dict(NeuralLMConfig, base)
        _check_given(config, given)
        return config
    except ConfigError:
        if recipe is not None:
            _check_recipe(recipe)
        raise


def _check_given(config: NeuralLMConfig, given: Iterable[str]) -> None:
    """Refuse a setting that the user typed and the model would never read."""
    for name in given:
        cell = ONE_CELL_SETTINGS.get(name, config.model.cell)
        if cell != config.model.cell:
            raise ConfigError(
                f"{name} is a setting of {cell}, but the cell is {config.model.cell}",
                hint=f"leave it out, or choose --cell {cell}",
            )


def _check_recipe(name: str) -> None:
    """Raise the recipe's own mistake, if it is one, with its path."""
    try:
        from_dict(NeuralLMConfig, load_recipe(name))
    except ConfigError as error:
        raise ConfigError(error.message, hint=error.hint, path=name) from error
