"""What is printed: safe on a terminal, whole elsewhere, and an error where it cannot be written.

Texts come from data, and data may hold what a terminal obeys: a title, a cleared screen, keys that
are typed. On a terminal every such character is shown as a picture of itself. What goes to a file
or a pipe stays as it is. All of the package prints through `echo`, `stream` or `Console`.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from seqtool.core.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

# C0 but for tab and line feed, DEL, and C1, which a terminal in its 8-bit mode obeys as well
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CRLF = re.compile("\r+\n")


def safe(text: str) -> str:
    """Return a text in which no character moves a terminal: ESC becomes ␛, C1 becomes �."""
    return _CONTROLS.sub(_picture, _CRLF.sub("\n", text))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


class _Terminal(io.TextIOBase):
    """A text stream to a terminal that passes on what is safe."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._target.encoding

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._target.fileno()

    def write(self, text: str) -> int:
        self._target.write(safe(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._target.flush()


def stream(*, err: bool = False) -> TextIO:
    """Return stdout or stderr, which makes safe what is written if it is a terminal.

    Raises:
        OutputError: it was closed before the program was started.
    """
    target = sys.stderr if err else sys.stdout
    if target is None:
        raise OutputError(
            f"{'stderr' if err else 'stdout'} is closed", hint="write to a file with >"
        )
    return _Terminal(target) if target.isatty() else target  # type: ignore[return-value]


def echo(text: object = "", *, err: bool = False, end: str = "\n") -> None:
    """Print a text to stdout or stderr at once."""
    target = stream(err=err)
    target.write(f"{text}{end}")
    target.flush()


def console(*, err: bool = False, **settings: Any) -> Console:
    """Return a console of Rich that draws in colours, but obeys nothing in the texts it draws."""
    from rich.console import Console, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=safe(segment.text))

    stream(err=err)  # refuses a closed one
    return SafeConsole(stderr=err, **settings)
