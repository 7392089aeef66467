"""Columns FEATS and MISC as mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping


class Features(MutableMapping[str, str]):
    """The items of a column, such as `Case=Nom|Number=Sing`, as a mapping; changes are written.

    An item without `=` has the value "". Of several items of one name, which MISC may have, the
    last one counts, and a change leaves only that one. All others stay as they are written.

    >>> column = "Case=Nom|Number=Sing"
    >>> feats = Features(lambda: column, lambda text: None)
    >>> feats["Case"], feats.get("Tense"), dict(feats)
    ('Nom', None, {'Case': 'Nom', 'Number': 'Sing'})

    Args:
        read: returns the column.
        write: takes the changed one.
        is_sorted: put new items in their alphabetical place, as FEATS has them; else at the end.
    """

    __slots__ = ("_is_sorted", "_read", "_write")

    def __init__(
        self, read: Callable[[], str], write: Callable[[str], None], *, is_sorted: bool = False
    ) -> None:
        self._read, self._write, self._is_sorted = read, write, is_sorted

    def _items(self) -> list[str]:
        column = self._read()
        return [] if column == "_" else column.split("|")

    def __getitem__(self, name: str) -> str:
        for item in reversed(self._items()):
            key, _, value = item.partition("=")
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(item.partition("=")[0] for item in self._items()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, value: str) -> None:
        if not name or any(character in name for character in "=|\t\n\r") or set(value) & set("|"):
            raise ValueError(f"{name}={value} cannot stand in a column of features")
        items = [item for item in self._items() if item.partition("=")[0] != name]
        items.append(f"{name}={value}" if value else name)
        if self._is_sorted:
            items.sort(key=str.lower)
        self._write("|".join(items))

    def __delitem__(self, name: str) -> None:
        items = self._items()
        kept = [item for item in items if item.partition("=")[0] != name]
        if len(kept) == len(items):
            raise KeyError(name)
        self._write("|".join(kept) or "_")

    def __repr__(self) -> str:
        return repr(dict(self))
