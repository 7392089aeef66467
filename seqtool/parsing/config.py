"""How the settings of a segmenter, tagger, parser or pipeline are put together.

Settings come from a preset, or from the run that is resumed; then from a YAML file, from options of
the command and from `--set`. What comes later wins.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from seqtool.core.config import (
    DEEPEST,
    WIDEST,
    Config,
    Registry,
    apply_overrides,
    from_dict,
    lay_over,
    load_yaml,
    named_settings,
    refuse_unread,
    set_value,
    setting,
    to_dict,
)
from seqtool.core.errors import ConfigError, did_you_mean

C = TypeVar("C", bound=Config)


def width(default: int, help: str, *, when: str = "") -> Any:
    """Declare a setting that is a number of units, or the width of a vector."""
    return setting(default, help, minimum=1, maximum=WIDEST, when=when)


def depth(default: int, help: str, *, when: str = "") -> Any:
    """Declare a setting that is a number of layers, or of what is computed one after another."""
    return setting(default, help, minimum=1, maximum=DEEPEST, when=when)


def share(default: float, help: str, *, when: str = "") -> Any:
    """Declare a setting that is a share of less than 1, such as of dropout."""
    return setting(default, help, minimum=0, below=1, when=when)


def count(default: int | None, help: str, *, when: str = "") -> Any:
    """Declare a setting that is a number of 1 or more."""
    return setting(default, help, minimum=1, when=when)


def _itself(name: str) -> Sequence[str]:
    return (name,)


def _none(values: Mapping[str, Any]) -> None:
    return None


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
    """

    kind: str
    config: type[C]
    table: Mapping[str, Mapping[str, Any]]
    default: str
    targets: Callable[[str], Iterable[str]] = _itself
    implied: Callable[[Mapping[str, Any]], str | None] = _none

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
            ConfigError: an unknown preset or setting, an impossible value, or one that does not
                count.
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
        config = from_dict(self.config, settings)
        for name in named_settings(self.config, given):
            refuse_unread([(config, name)])
        return config

    def resolve(
        self,
        name: str | None,
        file: Path | None,
        values: Mapping[str, Any],
        overrides: Iterable[str],
        *,
        run: Path | None = None,
        facts: Collection[str] | None = None,
    ) -> C:
        """Combine a preset, a YAML file, options of the command and overrides, which win.

        Without a preset's name, the settings of the `run` that is resumed are the base, or else the
        default preset. Options are dotted settings with values, overrides are texts, `name=value`.
        Unless `facts` is None, a setting of the file, an option or an override that does not count
        is refused, see `seqtool.core.config.unmet_condition`.

        Raises:
            ConfigError: an unknown preset or setting, or an impossible value.
        """
        settings = self.settings(name or self.implied(values))
        if run is not None and name is None:
            from seqtool.training.run import read_settings

            settings = to_dict(read_settings(run, self.config, self.kind))
        named: dict[tuple[str, ...], Path | None] = {}  # what one option stands for -> file
        if file is not None:
            if not file.exists() and len(self.table) > 1:
                presets = ", ".join(self.table)
                hint = f"check --config, or name a preset with --preset: {presets}"
                raise ConfigError("no such configuration file", hint=hint, path=file)
            content = load_yaml(file)
            lay_over(self.config, settings, content)
            from_dict(self.config, settings)  # an error in the file is told before the options'
            named = {(each,): file for each in named_settings(self.config, content)}
        given: dict[str, Any] = {}
        for option, value in values.items():
            targets = self.targets(option)
            named[tuple(set_value(self.config, given, each, value) for each in targets)] = None
        named |= {(each,): None for each in apply_overrides(self.config, given, overrides)}
        lay_over(self.config, settings, given)
        config = from_dict(self.config, settings)
        if facts is not None:
            for names, path in named.items():
                refuse_unread([(config, each) for each in names], facts, path=path)
        return config


# kind of model -> its presets
PRESETS_OF: Registry[Presets[Any]] = Registry(
    "kind of model",
    {
        "segmenter": "seqtool.parsing.segmenter.config:SEGMENTERS",
        "tagger": "seqtool.parsing.tagger.config:TAGGERS",
        "labeller": "seqtool.parsing.tagger.config:LABELLERS",
        "parser": "seqtool.parsing.parser.config:PRESETS",
        "pipeline": "seqtool.parsing.pipeline.config:PRESETS",
    },
)
