"""The installed fonts that matplotlib knows, and which of them have the letters of a text."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_remarks() -> Iterator[None]:
    """Keep off stderr what nobody can act on.

    That a font has no bold letters, and that tables of it which no PDF needs are left out.
    """
    logs = [logging.getLogger(name) for name in ("fontTools.subset", "matplotlib.font_manager")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


class Fonts:
    """Which installed fonts have the letters of a text.

    Attributes:
        missing: the letters asked for that no font has.
    """

    def __init__(self) -> None:
        from matplotlib.font_manager import fontManager

        self.missing: set[str] = set()
        self._known: dict[str, str | None] = {}
        self._charmaps: dict[str, frozenset[int]] = {}
        # the one that comes with matplotlib first, so that English looks alike everywhere
        files = {entry.name: entry.fname for entry in reversed(fontManager.ttflist)}
        # TeX's fonts have letters at places of their own, the last resort boxes for all of them
        named = [name for name in files if not name.startswith(("cm", "Last Resort"))]
        names = sorted(named, key=lambda name: (name != "DejaVu Sans", "Sans" not in name, name))
        self._files = [(name, files[name]) for name in names]

    def families(self, text: str) -> list[str]:
        """Return the fonts that a text needs, the standard one first."""
        found = [self._family(letter) for letter in text if not letter.isspace()]
        return list(dict.fromkeys(["DejaVu Sans", *(name for name in found if name)]))

    def _family(self, letter: str) -> str | None:
        if letter not in self._known:
            self._known[letter] = next(
                (name for name, path in self._files if ord(letter) in self._charmap(path)), None
            )
            if self._known[letter] is None:
                self.missing.add(letter)
        return self._known[letter]

    def _charmap(self, path: str) -> frozenset[int]:
        from matplotlib.font_manager import get_font

        if path not in self._charmaps:
            self._charmaps[path] = frozenset(get_font(path).get_charmap())
        return self._charmaps[path]
