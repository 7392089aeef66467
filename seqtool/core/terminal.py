"""What is printed: safe on a terminal, whole elsewhere, and an error where it cannot be written.

Texts come from data, and data may hold what a terminal obeys: a title, a cleared screen, keys that
are typed. On a terminal every such character is shown as a picture of itself. What goes to a file
or a pipe stays as it is.

A command runs within `guarded`, where all that is written to stdout and stderr passes a guard. The
library prints by `echo` and `stream`, which set one up if there is none, and draws by
`core.progress.open_console`.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

READER_GONE = 141  # the exit code of a program that SIGPIPE ends, as a shell gives it

# C0 but for tab and line feed, DEL, and C1, which a terminal in its 8-bit mode obeys as well
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CRLF = re.compile("\r+\n")
_NOT_ESCAPED = re.compile("[\x7f-\x9f]")  # by JSON, where C0 is


def safe(text: str) -> str:
    """Return a text in which no character moves a terminal: ESC becomes ␛, C1 becomes �."""
    return _CONTROLS.sub(_picture, _CRLF.sub("\n", text))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def json_text(value: Any) -> str:
    """Return a value as JSON of one line, which moves no terminal wherever it is shown later.

    Raises:
        ValueError: a number that JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _NOT_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Guard(io.RawIOBase):
    """The bytes of stdout or stderr on their way out.

    After an error it takes everything and writes nothing, so that no later flush, as that of the
    interpreter when it ends, says it again.
    """

    def __init__(self, shown: TextIO | None, name: str, *, ends: bool) -> None:
        self.shown, self.name, self.ends = shown, name, ends
        # past the buffer of Python's own stream, which would keep what could not be written
        self._target: Any = shown and getattr(shown.buffer, "raw", shown.buffer)
        self.filters = False  # True: only safe text goes out
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.failure: OSError | None = None
        self.ended = False

    def text(self, *, filters: bool) -> TextIO:
        """Return the text stream whose bytes pass here."""
        self.filters = filters
        return io.TextIOWrapper(
            io.BufferedWriter(self),
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=self.isatty() or self.name == "stderr",
        )

    def isatty(self) -> bool:
        return self.shown is not None and not self.ended and self.shown.isatty()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self.shown is None:
            raise io.UnsupportedOperation("fileno")
        return self.shown.fileno()

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.failure is not None or self.ended:
            return size
        try:
            if self._target is None:
                raise OSError(errno.EBADF, "is closed", self.name)
            if not self.filters:
                return self._pass(data)
            left = memoryview(safe(self._decoder.decode(bytes(data))).encode())
            while left:
                left = left[self._pass(left) :]
        except OSError as error:
            self.failure = error
            error.filename = self.name
            self._tell(error)
        return size

    def _pass(self, data: Any) -> int:
        """Write at least a part, as soon as there is room; return how many bytes."""
        while (num := self._target.write(data)) is None:  # another program made it non-blocking
            select.select([], [self._target], [])
        return int(num)

    def _tell(self, error: OSError) -> None:
        if self.name == "stderr":  # no work ends because nobody hears of it
            return
        if self.ends and isinstance(error, BrokenPipeError):
            # as the shell says it of other programs; Typer and Rich would make 1 of the error
            raise SystemExit(READER_GONE)
        raise error


def _guard_of(shown: Any) -> _Guard | None:
    guard = getattr(getattr(shown, "buffer", None), "raw", None)
    return guard if isinstance(guard, _Guard) else None


def stream(*, err: bool = False, ends: bool = False) -> TextIO:
    """Return stdout or stderr behind a guard, to be flushed by who writes there.

    Writing to a stdout that is full or closed raises an OSError; to a stderr, nothing.

    Args:
        err: stderr.
        ends: the program ends, with exit code 141, when nobody reads what it writes any more.
    """
    shown = sys.stderr if err else sys.stdout
    if shown is not None:
        if _guard_of(shown) is not None or not hasattr(shown, "buffer"):
            return shown
        with suppress(OSError):
            shown.flush()
    guard = _Guard(shown, "stderr" if err else "stdout", ends=ends)
    return guard.text(filters=guard.isatty())


def short_path(path: Path) -> Path:
    """Return a path as a user in this directory types it, if that is shorter."""
    relative = os.path.relpath(path)
    return Path(relative) if len(relative) < len(str(path)) else path


def drawn(*, err: bool = False) -> TextIO:
    """Return stdout or stderr for what moves a terminal on purpose, and holds no text of data."""
    shown = stream(err=err)
    guard = _guard_of(shown)
    if guard is None or not guard.filters:
        return shown
    shown.flush()
    return _Guard(guard.shown, guard.name, ends=guard.ends).text(filters=False)


def echo(text: object = "", *, err: bool = False, end: str = "\n", bold: bool = False) -> None:
    """Print a text to stdout or stderr at once; on a terminal it may be in bold type."""
    shown, line = stream(err=err), str(text)
    if shown.isatty():
        line = safe(line)  # here too, as a bar that is shown meanwhile takes the guard's place
        if bold:
            shown, line = drawn(err=err), f"\x1b[1m{line}\x1b[0m"
    shown.write(line + end)
    shown.flush()


@contextmanager
def guarded() -> Iterator[Callable[[], None]]:
    """Let all that is written to stdout and stderr pass a guard.

    Gives a function that writes what is still held back, and raises the OSError of what did not
    arrive on stdout, even where a command went on.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would get all that is printed
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = before[0] or io.TextIOWrapper(io.BytesIO())
    sys.stdout, sys.stderr = outputs = stream(ends=True), stream(err=True)

    def finish() -> None:
        for output in outputs:
            output.flush()
        guard = _guard_of(outputs[0])
        if guard is not None and guard.failure is not None:
            raise guard.failure

    try:
        yield finish
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for output, old in zip(outputs, before[1:], strict=True):
            if (guard := _guard_of(output)) is not None and output is not old:
                guard.ended = True  # libraries that still hold it, as colorama does, say nothing
