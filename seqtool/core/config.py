"""Strict configurations: dataclass <-> dictionary <-> YAML, with overrides.

A configuration is a frozen dataclass whose fields are made by `setting`. Building one checks every
type and bound; an unknown key or an impossible value is a `ConfigError` that names the field as the
user typed it. Plug points (cells, smoothings, tokenizers) are registries: names and what they stand
for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from seqtool.core import terminal
from seqtool.core.errors import ConfigError, did_you_mean

C = TypeVar("C")
T = TypeVar("T")

WIDEST, DEEPEST = 1_000_000, 1000  # units of a layer; layers and others that are built one by one
LARGEST = 2**53  # whole numbers up to it are exact in floating point
MAX_BYTES = 1 << 20  # of a YAML file
MAX_DIGITS = 100  # of a number, and characters of a value in a message


def setting(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    when: str | Mapping[str, str] = "",
) -> Any:
    """Declare a configuration field with its default, bounds, and help: one line for people.

    A dataclass type as the default stands for its own defaults. The value must be larger than
    `above` and smaller than `below`. A whole number is at most `LARGEST` where no maximum is given.

    `when` says where the setting counts: `cell is rhn/gru`, `cell is not rnn`, `layers > 1`,
    `time_limit is set` (neither None nor zero nor empty) or `--lm is given`, joined by `and`, then
    by `or`. A name is of the same section, or dotted from a section around it. The condition of a
    section holds for all in it; a mapping has one for each of its settings.
    """
    bounds = {"minimum": minimum, "maximum": maximum, "above": above, "below": below}
    metadata = {"help": help, "when": when, **bounds}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


_known_hints: dict[type[Any], dict[str, Any]] = {}


def _hints(kind: type[Any]) -> dict[str, Any]:
    """Return the types of a configuration's fields, which Python reads from texts each time."""
    if kind not in _known_hints:
        _known_hints[kind] = get_type_hints(kind)
    return _known_hints[kind]


class Config:
    """Base of all configurations: checks types and bounds when built.

    Attributes:
        replaced: dotted settings, whose place others take: of these, what a preset has is left out
            once the former are given. See `lay_over`.
    """

    replaced: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.__repr__ = Config.__repr__  # type: ignore[method-assign]  # not that of a dataclass

    def __repr__(self) -> str:
        """Return the settings that are not the defaults."""
        given, defaults = vars(self), vars(type(self)())
        values = (f"{name}={given[name]!r}" for name in given if given[name] != defaults[name])
        return f"{type(self).__name__}({', '.join(values)})"

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = _coerce(getattr(self, field.name), hints[field.name], field.name)
            _check_bounds(value, field.name, field.metadata)
            object.__setattr__(self, field.name, value)
        self.check()

    def check(self) -> None:
        """Refuse combinations of fields that make no sense; overridden where there are any."""


def _check_bounds(value: Any, name: str, bounds: Mapping[str, Any]) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}", hint=f"give {name} a finite number")
    tests = (
        ("minimum", operator.ge, "at least"),
        ("maximum", operator.le, "at most"),
        ("above", operator.gt, "more than"),
        ("below", operator.lt, "less than"),
    )
    for key, holds, words in tests:
        bound = bounds.get(key)
        if key == "maximum" and bound is None and isinstance(value, int):
            bound = LARGEST
        if bound is not None and not holds(value, bound):
            what = f"{name} is {_shown(value)}, but must be {words} {bound:g}"
            raise ConfigError(what, hint=f"change {name}")


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_type_name(part) for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        return f"a list of {_type_name(get_args(kind)[0])}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "a section of settings")


def _coerce(value: Any, kind: Any, name: str) -> Any:
    """Return `value` as `kind`, accepting only what cannot be a mistake (an int for a float)."""
    origin, parts = get_origin(kind), get_args(kind)
    hint = f"change {name}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        for part in (part for part in parts if part is not type(None)):
            with contextlib.suppress(ConfigError):
                return _coerce(value, part, name)
    elif origin is Literal:
        if value in parts and not isinstance(value, bool):
            return value
        hint = did_you_mean(str(value), map(str, parts))
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_coerce(item, parts[0], name) for item in value)
    elif dataclasses.is_dataclass(kind):
        if isinstance(value, kind):  # type: ignore[arg-type]
            return value
        if isinstance(value, Mapping):
            return from_dict(kind, value, prefix=f"{name}.")  # type: ignore[arg-type]
    elif kind is float:
        # YAML 1.1 reads 1e-3 as a text
        with contextlib.suppress(ValueError, OverflowError):
            if is_number or isinstance(value, str):
                return float(value)
    # True is an int to Python, but not to a user
    elif isinstance(value, kind) and (kind is not int or is_number):
        return value
    raise ConfigError(f"{name} is {_shown(value)}, but must be {_type_name(kind)}", hint=hint)


def _shown(value: Any, write: Callable[[Any], str] = repr) -> str:
    """Return a value for a message, of a long one its beginning."""
    text = write(value)
    return text if len(text) <= MAX_DIGITS else f"{text[:MAX_DIGITS]}..."


def from_dict(kind: type[C], values: Mapping[str, Any], *, prefix: str = "") -> C:
    """Build the configuration `kind` from a dictionary; a ConfigError names a wrong key."""
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{prefix.rstrip('.') or 'the configuration'} must be a section of settings, "
            f"not {_shown(values)}",
            hint="write it as `name: value` lines",
        )
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            what = f"unknown setting {prefix}{_shown(key, str)}"
            raise ConfigError(what, hint=did_you_mean(_shown(key, str), known))
    try:
        return kind(**values)
    except ConfigError as error:
        if prefix and error.path is None and not error.message.startswith(prefix):
            raise ConfigError(f"{prefix}{error.message}", hint=error.hint) from error
        raise


def to_dict(config: Any) -> dict[str, Any]:
    """Return the configuration as plain dictionaries, lists and scalars."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    return {key: plain(value) for key, value in dataclasses.asdict(config).items()}


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file of settings; a ConfigError tells what is wrong with it, and where."""
    path = Path(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        text = content.decode()
    except FileNotFoundError as error:
        raise ConfigError("no such configuration file", hint="check --config", path=path) from error
    except IsADirectoryError as error:
        raise ConfigError("is a directory", hint="name a YAML file", path=path) from error
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {error.start}"
        raise ConfigError(what, hint="save the file as UTF-8", path=path) from error
    if len(content) > MAX_BYTES:
        what = f"longer than {MAX_BYTES:,} bytes"
        raise ConfigError(what, hint="name a YAML file of settings", path=path)
    from seqtool.core.strict_yaml import read_yaml  # on use: PyYAML takes long to import

    values = read_yaml(text, path)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError("holds no settings", hint="write `name: value` lines", path=path)
    return values


def leaves(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield (dotted name, field) of every setting of a configuration, sections opened."""
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from leaves(hints[field.name], f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field


def set_value(kind: type[Any], values: dict[str, Any], name: str, value: Any) -> str:
    """Set a setting, by its dotted name or an unambiguous last part; return the dotted name."""
    names = [dotted for dotted, _ in leaves(kind)]
    matches = [dotted for dotted in names if dotted == name or dotted.endswith(f".{name}")]
    if name in matches:
        matches = [name]
    if not matches:
        short = {dotted.rpartition(".")[2] for dotted in names}
        hint = did_you_mean(name, {*names, *short}, otherwise="see --list-settings")
        raise ConfigError(f"unknown setting {name}", hint=hint)
    if len(matches) > 1:
        raise ConfigError(f"{name} could mean several settings", hint=f"use {' or '.join(matches)}")
    *sections, last = matches[0].split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{section} must be a section of settings", hint=f"change {section}")
        values = inner
    values[last] = value
    return matches[0]


def lay_over(kind: type[Any], settings: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Lay what is given, by section, over settings of a kind, in place.

    What it replaces is taken out, see `Config.replaced`.
    """
    for name, other in kind.replaced.items():
        *sections, last = name.split(".")
        if last in _section(given, sections):
            *sections, last = other.split(".")
            _section(settings, sections).pop(last, None)
    _merge(settings, given)


def _section(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a section of settings; an empty one where there is none."""
    for name in names:
        settings = settings.get(name, {}) if isinstance(settings, Mapping) else {}
    return settings if isinstance(settings, dict) else {}


def _merge(settings: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Lay settings over others, section by section, in place."""
    for name, value in others.items():
        if isinstance(value, dict) and isinstance(settings.setdefault(name, {}), dict):
            _merge(settings[name], value)
        else:
            settings[name] = value


def apply_overrides(kind: type[Any], values: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Apply `name=value` overrides, the value read as YAML, in place; return the dotted names."""
    from seqtool.core.strict_yaml import read_yaml

    names = []
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override} has no value", hint="write --set name=value")
        try:
            value = read_yaml(text)
        except ConfigError as error:
            what = f"--set {_shown(override, str)} is not a value"
            raise ConfigError(what, hint=error.hint) from error
        names.append(set_value(kind, values, name.strip(), value))
    return names


def named_settings(kind: type[Any], values: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of the settings in a dictionary; none of one that has them all.

    A file of all settings, as --list-settings and `tune` write it, is no wish for each.
    """
    known = [name.split(".") for name, _ in leaves(kind)]
    named = [names for names in known if names[-1] in _section(values, names[:-1])]
    return [".".join(names) for names in named] if len(named) < len(known) else []


def unmet_condition(config: Any, name: str, facts: Collection[str] | None = None) -> str | None:
    """Return the condition under which a setting would count, or None if it counts.

    Args:
        config: all settings.
        name: dotted.
        facts: the options beside the settings that are given, such as `--lm`; None if that is not
            known, so that no setting is without effect for the lack of one.
    """
    around = [config]
    first, *others = name.split(".")
    for part, inner in itertools.zip_longest([first, *others], others):
        when = type(around[0]).__dataclass_fields__[part].metadata["when"]
        when = when if isinstance(when, str) else when.get(inner, "")
        ways = [way.split(" and ") for way in when.split(" or ") if way]
        if ways and not any(all(_holds(atom, around, facts) for atom in way) for way in ways):
            return str(when)
        around.insert(0, getattr(around[0], part))
    return None


def _holds(condition: str, around: Iterable[Any], facts: Collection[str] | None) -> bool:
    """Whether a condition without `and` or `or` holds inside some sections, the innermost first."""
    name, relation, *choices = condition.replace("is not", "isn't").split(" ")
    if name.startswith("--"):
        return facts is None or (name in facts) == (relation == "is")
    for section in around:
        value = section
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is not None:
            break
    if choices == ["set"]:
        return bool(value)
    if relation == ">":
        return (value or 0) > float(choices[0])
    return (str(value) in choices[0].split("/")) == (relation == "is")


def refuse_unread(
    places: Iterable[tuple[Any, str]],
    facts: Collection[str] | None = None,
    *,
    path: str | Path | None = None,
) -> None:
    """Refuse a setting that somebody named, that differs from its default and counts nowhere.

    Args:
        places: configurations, each with the dotted name that the setting has in it: those of
            several trials, or the settings that one option stands for.
        facts: as for `unmet_condition`.
        path: the file that names the setting. It may serve several networks, so a note on stderr
            says what would be an error where it is typed.

    Raises:
        ConfigError: it counts in none of these.
    """
    problem = None
    for config, name in places:
        *sections, last = name.split(".")
        section = functools.reduce(getattr, sections, config)
        if getattr(section, last) == type(section).__dataclass_fields__[last].default:
            continue
        condition = unmet_condition(config, name, facts)
        if condition is None:
            return
        problem = problem or (name, condition)
    if problem is not None:
        name, condition = problem
        others = dict.fromkeys(re.findall(r"(\S+) (is not given|is|>)", condition))
        changes = (
            f"train with{'' if how == 'is' else 'out'} {other}"
            if other[0] == "-"
            else f"change {other}"
            for other, how in others
        )
        last = name.rpartition(".")[2]
        what = f"{name} counts only where {condition}"
        if path is not None:
            return terminal.echo(f"note: {path}: {what}", err=True)
        raise ConfigError(what, hint=f"leave {last} out, or {' or '.join(changes)}")


class Registry(Generic[T]):
    """A table of what a `noun` can be: names and `"module:object"`, imported on first use."""

    def __init__(self, noun: str, table: Mapping[str, str]) -> None:
        self.noun = noun
        self._table = dict(table)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __getitem__(self, name: str) -> T:
        """Return the object called `name`; a ConfigError gives near names."""
        if name not in self._table:
            raise ConfigError(f"no {self.noun} is called {name!r}", hint=did_you_mean(name, self))
        module, _, attribute = self._table[name].partition(":")
        return cast(T, operator.attrgetter(attribute)(import_module(module)))
