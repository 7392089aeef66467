"""How the settings of a segmenter, tagger, parser or pipeline are put together.

Settings come from a preset, or from the run that is resumed; then from a YAML file, from options of
the command and from `--set`. What comes later wins.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from seqtool.core.config import (
    Config,
    apply_overrides,
    from_dict,
    lay_over,
    load_yaml,
    set_value,
    to_dict,
)
from seqtool.core.errors import ConfigError, did_you_mean

C = TypeVar("C", bound=Config)


def _itself(name: str) -> Sequence[str]:
    return (name,)


def _none(values: Mapping[str, Any]) -> None:
    return None


def refuse_lm(names: Iterable[str], *, hint: str = "leave it out, or add --lm") -> None:
    """Refuse settings of how a language model is read, for a training without one.

    Args:
        names: of settings that somebody typed, dotted.
        hint: what to do.

    Raises:
        ConfigError: there is one.
    """
    for name in names:
        *_, last = name.split(".")
        if last in ("lm_size", "dropout_lm"):
            raise ConfigError(f"{last} is set, but no language model is given", hint=hint)


@dataclass(frozen=True)
class Presets(Generic[C]):
    """The settings of one kind of model by name.

    Attributes:
        kind: of the model.
        config: the class of its settings.
        table: name -> section -> setting -> value; what is left out is as `config` has it.
        default: the name that is taken where none is given.
        targets: the dotted settings that an option's setting stands for; itself, but in a pipeline.
        implied: the name that options, as dotted settings with values, stand for where none is
            given; None for the default.
        choosers: those options.
    """

    kind: str
    config: type[C]
    table: Mapping[str, Mapping[str, Any]]
    default: str
    targets: Callable[[str], Iterable[str]] = _itself
    implied: Callable[[Mapping[str, Any]], str | None] = _none
    choosers: Sequence[str] = ()

    def settings(self, name: str | None = None) -> dict[str, Any]:
        """Return a copy of the settings of a preset, as `seqtool.core.config.from_dict` takes them.

        Raises:
            ConfigError: there is none of that name; the hint lists near ones.
        """
        name = name or self.default
        if name not in self.table:
            raise ConfigError(f"no preset is called {name!r}", hint=did_you_mean(name, self.table))
        return copy.deepcopy(dict(self.table[name]))

    def configuration(self) -> C:
        """Return the settings of the default preset, checked."""
        return from_dict(self.config, self.settings())

    def chosen(self, given: C | str | Mapping[str, Any] | None) -> C | None:
        """Return the settings that a caller gives: all, a preset's name, or some, by section.

        What is not among these is as in the default preset. None stays None.

        Raises:
            ConfigError: an unknown preset or setting, or an impossible value.
        """
        if given is None or isinstance(given, self.config):
            return given
        if isinstance(given, str):
            return from_dict(self.config, self.settings(given))
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"the settings are {given!r:.60}",
                hint=f"give a {self.config.__name__}, the name of a preset, or a dictionary",
            )
        parts = {key: value for key, value in given.items() if isinstance(value, Mapping)}
        settings = self.settings(
            self.implied({f"{part}.{k}": v for part in parts for k, v in parts[part].items()})
        )
        lay_over(self.config, settings, given)
        return from_dict(self.config, settings)

    def resolve(
        self,
        name: str | None,
        file: Path | None,
        values: Mapping[str, Any],
        overrides: Iterable[str],
        *,
        run: Path | None = None,
    ) -> C:
        """Combine a preset, a YAML file, options of the command and overrides, which win.

        Without a preset's name, the settings of the `run` that is resumed are the base, or else the
        default preset. Options are dotted settings with values, overrides are texts, `name=value`.

        Raises:
            ConfigError: an unknown preset or setting, or an impossible value.
        """
        settings = self.settings(name or self.implied(values))
        if run is not None and name is None:
            from seqtool.training.run import read_settings

            settings = to_dict(read_settings(run, self.config, self.kind))
        if file is not None:
            if not file.exists() and len(self.table) > 1:
                names = ", ".join(self.table)
                hint = f"check --config, or name a preset with --preset: {names}"
                raise ConfigError("no such configuration file", hint=hint, path=file)
            lay_over(self.config, settings, load_yaml(file))
            from_dict(self.config, settings)  # an error in the file is told before the options'
        given: dict[str, Any] = {}
        for option, value in values.items():
            for target in self.targets(option):
                set_value(self.config, given, target, value)
        apply_overrides(self.config, given, overrides)
        lay_over(self.config, settings, given)
        try:
            return from_dict(self.config, settings)
        except ConfigError:
            if name is not None:
                self._refuse_contradiction(name, values)
            raise

    def _refuse_contradiction(self, name: str, values: Mapping[str, Any]) -> None:
        """Refuse a preset, by name, that cannot be with options that stand for another one.

        Raises:
            ConfigError: they contradict each other.
        """
        settings = self.settings(name)
        chosen = {option: values[option] for option in self.choosers if option in values}
        for option, value in chosen.items():
            for target in self.targets(option):
                set_value(self.config, settings, target, value)
        try:
            from_dict(self.config, settings)
        except ConfigError as error:
            options = " ".join(
                f"--{key.rpartition('.')[2]} {value}" for key, value in chosen.items()
            )
            raise ConfigError(
                f"the preset {name} is of other parsers than {options}",
                hint="leave out one of the two: each has all settings that it needs",
            ) from error
