"""Options that come from the fields of a configuration, and options that several commands share.

A command is a plain function. Where it has a parameter `settings`, the command line has an option
for each setting of a table, and the function gets those that are given by their dotted names. Where
a parameter is a dataclass of options, the command line has its fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer

SETTINGS = "settings"  # the parameter that gets them
METAVARS = {int: "N", float: "X", str: "NAME"}


class Offer(NamedTuple):
    """What an option of a command sets.

    Attributes:
        names: dotted settings, all of which get the value.
        help: in place of the help text of the field, where that says too much or too little.
        metavar: in place of the one that goes with the field's type.
    """

    names: tuple[str, ...]
    help: str = ""
    metavar: str = ""


def offer(*names: str, help: str = "", metavar: str = "") -> Offer:
    """Return an entry of a table of options whose texts are not those of the field alone."""
    return Offer(names, help, metavar)


Table = Mapping[str, str | Offer]  # "--hidden", "--tied/--untied" or "-n,--num" -> what it sets


def takes_options(
    config: str = "",
    table: Table | None = None,
    *,
    panel: str | None = "Settings",
    shows_defaults: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command options for settings, and those of dataclasses.

    Bounds are not told to Typer: the configuration itself refuses what is out of bounds.

    Args:
        config: the configuration, as "module:class"; imported when the options are asked for.
        table: which of its settings have options, and what these are called.
        panel: where the options stand in --help; None for those of the command itself.
        shows_defaults: the defaults of the fields are those of the command; otherwise a setting
            that is not given stays as a preset, a recipe or a run has it.
    """
    return lambda function: _Command(function, config, table or {}, panel, shows_defaults)


class _Command:
    """A command with the options of `takes_options`; what Typer sees is its `__signature__`."""

    def __init__(
        self,
        function: Callable[..., None],
        config: str,
        table: Table,
        panel: str | None,
        shows_defaults: bool,
    ) -> None:
        update_wrapper(self, function)
        self._function, self._config, self._table = function, config, table
        self._panel, self._shows_defaults = panel, shows_defaults

    @cached_property
    def _own(self) -> inspect.Signature:
        return inspect.signature(self._function, eval_str=True)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        """Return the dataclasses of options among the parameters, by the parameter's name."""
        parameters = self._own.parameters.values()
        return {
            item.name: item.annotation
            for item in parameters
            if dataclasses.is_dataclass(item.annotation)
        }

    @cached_property
    def _settings(self) -> dict[str, _Setting]:
        """Return the options of the table, by the names that their parameters have."""
        if not self._table:
            return {}
        module, _, name = self._config.partition(":")
        config = getattr(import_module(module), name)
        settings = [
            _Setting(declared, entry if isinstance(entry, Offer) else Offer((entry,)), config)
            for declared, entry in self._table.items()
        ]
        return {setting.parameter_name: setting for setting in settings}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        parameters: list[inspect.Parameter] = []
        for own in self._own.parameters.values():
            if own.name == SETTINGS:
                parameters += [
                    setting.parameter(self._panel, self._shows_defaults)
                    for setting in self._settings.values()
                ]
            elif own.name in self._groups:
                hints = get_type_hints(own.annotation, include_extras=True)
                parameters += [
                    _keyword(field.name, hints[field.name], field.default)
                    for field in dataclasses.fields(own.annotation)
                ]
            else:
                parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        return inspect.Signature(parameters)

    def __call__(self, *args: Any, **given: Any) -> None:
        """Call the function with the settings and the dataclasses that stand for the options."""
        for name, group in self._groups.items():
            names = {field.name for field in dataclasses.fields(group)} & given.keys()
            given[name] = group(**{name: given.pop(name) for name in names})
        if SETTINGS in self._own.parameters:
            given[SETTINGS] = {
                dotted: setting.read(value)
                for name, setting in self._settings.items()
                if (value := given.pop(name, None)) is not None
                for dotted in setting.names
            }
        self._function(*args, **given)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


class _Setting:
    """An option for a setting.

    Args:
        declared: how it is written: "--hidden", "--tied/--untied", "-n,--num".
        entry: what it sets.
        config: the configuration.
    """

    def __init__(self, declared: str, entry: Offer, config: type[Any]) -> None:
        self.names = entry.names
        self._declared = declared.split(",")
        *sections, last = entry.names[0].split(".")
        for section in sections:
            config = get_type_hints(config)[section]
        self._field = config.__dataclass_fields__[last]
        self._kind = _without_none(get_type_hints(config)[last])
        self._help = entry.help or _sentence(self._field.metadata["help"])
        self._metavar = entry.metavar or self._default_metavar()

    @property
    def parameter_name(self) -> str:
        """Return the name of the parameter, after the longest way to write the option."""
        longest = max((part.partition("/")[0] for part in self._declared), key=len)
        return longest.lstrip("-").replace("-", "_")

    def _default_metavar(self) -> str | None:
        kind = self._kind
        if get_origin(kind) is Literal:
            return "|".join(map(str, get_args(kind)))
        if get_origin(kind) is tuple:
            letter = METAVARS[get_args(kind)[0]]
            return f"{letter} {letter} ..."
        return METAVARS.get(kind)

    def parameter(self, panel: str | None, shows_default: bool) -> inspect.Parameter:
        """Return the parameter that Typer makes the option of."""
        kind = self._kind if self._kind in (int, float, bool) else str
        default = self._field.default if shows_default else None
        option = typer.Option(
            *self._declared,
            help=self._help,
            metavar=self._metavar,
            rich_help_panel=panel,
            show_default=shows_default and default not in (None, ()),
        )
        if get_origin(self._kind) is tuple:
            default, option.show_default = None, False
        return _keyword(self.parameter_name, Annotated[kind | None, option], default)

    def read(self, value: Any) -> Any:
        """Return a value as the configuration takes it: a list of numbers is typed as one text."""
        if get_origin(self._kind) is not tuple:
            return value
        kind = get_args(self._kind)[0]
        try:
            return tuple(kind(part) for part in re.split(r"[,\s]+", value.strip(", ")))
        except ValueError as error:
            wanted = "whole numbers, as in 0 0 1" if kind is int else "numbers, as in 0.5 1 1.5"
            raise typer.BadParameter(
                f"{value!r} is no list of {wanted}", param_hint=self._declared[0]
            ) from error


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    return annotation


def _sentence(text: str) -> str:
    """Return a help text of a field as the command line writes it; names stay in lower case."""
    first = text.partition(" ")[0]
    begin = text if first[-1:] in ":," else text[:1].upper() + text[1:]
    return begin if begin.endswith(".") else f"{begin}."
