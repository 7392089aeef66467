"""How models and results print themselves: in one line, or as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar

_LONGEST = 60  # characters of a value
_MOST = 4  # entries of a dictionary
_ROWS = 40  # of a table


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
        values = (f"{name}={text}" for name, text in self._shown_texts())
        return f"{type(self).__name__}({', '.join(values)})"

    def _shown_texts(self) -> Iterator[tuple[str, str]]:
        return (each for name in self.shown for each in _values(name, attrgetter(name)(self)))

    def _html_rows(self) -> Iterable[Mapping[str, Any]]:
        """Return the rows of `html_table`."""
        return [dict(self._shown_texts())]

    def _repr_html_(self) -> str:
        return html_table(self._html_rows())


def html_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the first rows as a table of HTML; the keys of the first one name the columns."""
    source = iter(rows)
    first = list(islice(source, _ROWS))
    lines = [[f"<th>{escape(name)}</th>" for name in row] for row in first[:1]]
    for row in first:
        texts = ("" if value is None else _text(value) for value in row.values())
        lines.append([f"<td>{escape(text)}</td>" for text in texts])
    num_more = sum(1 for _ in source)
    table = "".join(f"<tr>{''.join(line)}</tr>\n" for line in lines)
    more = f"<p>{num_more:,} more</p>\n" if num_more else ""
    return f"<table>\n{table}</table>\n{more}"


def _values(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key in [*value][:_MOST]:
            yield from _values(key, value[key])
    elif value not in (None, ""):
        yield name, _text(value)


def _text(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
