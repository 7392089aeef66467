"""Plug points: a name and the object it stands for, imported on first use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar, cast

from seqtool.core.errors import ConfigError

T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return a hint: the nearest known names; `otherwise`, or all names, when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"choose one of: {', '.join(names)}"


class Registry(Generic[T]):
    """A table from names to `"module:object"` references, each imported on first use.

    Args:
        noun: what the names stand for, as an error shall call it ("cell").
        table: name -> "module:object".
    """

    def __init__(self, noun: str, table: Mapping[str, str]) -> None:
        self.noun = noun
        self._table = dict(table)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __getitem__(self, name: str) -> T:
        """Return the object called `name`.

        Raises:
            ConfigError: no such name; the hint lists near ones.
        """
        if name not in self._table:
            raise ConfigError(f"no {self.noun} is called {name!r}", hint=did_you_mean(name, self))
        module, _, attribute = self._table[name].partition(":")
        return cast(T, getattr(import_module(module), attribute))
