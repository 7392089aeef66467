"""How models and results print themselves: in one line, with the figures that count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar

_LONGEST = 60  # characters of a value
_MOST = 4  # entries of a dictionary


class OneLine:
    """Base of what has many fields and shows a few of them.

    Attributes:
        shown: their names, dotted where they are of a part; of a dictionary, its entries are shown.
    """

    shown: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.__repr__ = OneLine.__repr__  # type: ignore[method-assign]  # not that of a dataclass

    def __repr__(self) -> str:
        values = (shown for name in self.shown for shown in _values(name, attrgetter(name)(self)))
        return f"{type(self).__name__}({', '.join(values)})"


def _values(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key in [*value][:_MOST]:
            yield from _values(key, value[key])
    elif value is not None:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
        yield f"{name}={text}"
