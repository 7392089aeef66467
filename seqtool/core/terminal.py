"""What is printed: safe on a terminal, whole elsewhere, and an error where it cannot be written.

Texts come from data, and data may hold what a terminal obeys: a title, a cleared screen, keys that
are typed. On a terminal every such character is shown as a picture of itself. What goes to a file
or a pipe stays as it is. All that the package prints goes through `echo`, `stream` and
`core.progress.open_console`.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

READER_GONE = 141  # the exit code of a program that SIGPIPE ends, as a shell gives it

# C0 but for tab and line feed, DEL, and C1, which a terminal in its 8-bit mode obeys as well
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_PICTURES |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}
_CRLF = re.compile("\r+\n")
_NOT_ESCAPED = re.compile("[\x7f-\x9f]")  # by JSON, where C0 is


def safe(text: str) -> str:
    """Return a text in which no character moves a terminal: ESC becomes ␛, C1 becomes �."""
    return _CRLF.sub("\n", text).translate(_PICTURES)


def json_text(value: Any) -> str:
    """Return a value as JSON of one line, which moves no terminal wherever it is shown later.

    Raises:
        ValueError: a number that JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _NOT_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Output(io.RawIOBase):
    """The bytes that the package writes to stdout or stderr, on their way there."""

    def __init__(self, shown: TextIO, *, is_error: bool, filters: bool) -> None:
        self._shown, self._is_error, self._filters = shown, is_error, filters
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._failed = False

    def isatty(self) -> bool:
        return self._shown.isatty()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._shown.fileno()

    def write(self, data: Any) -> int:
        if self._filters:
            self._pass(self._shown.write, safe(self._decoder.decode(bytes(data))))
        else:
            self._pass(self._shown.buffer.write, data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._pass(self._shown.flush)

    def _pass(self, write: Any, *data: Any) -> None:
        """Write; no work ends because nobody hears of it on stderr."""
        try:
            if not self._failed:
                write(*data)
        except OSError as error:
            self._failed = True  # what was to be written is not tried again
            if isinstance(error, BrokenPipeError) and not self._is_error:
                # Typer would end with 1 where there is a number
                raise BrokenPipeError("nobody reads stdout") from error
            if not self._is_error:
                error.filename = "stdout"
                raise


def stream(*, err: bool = False, draws: bool = False) -> TextIO:
    """Return stdout or stderr for texts of data, to be kept and flushed by who writes there.

    Writing to a stdout that is full or closed raises an OSError; to a stderr, nothing. With `draws`
    it is for what moves a terminal on purpose, and holds no text of data.
    """
    shown = sys.stderr if err else sys.stdout
    if not hasattr(shown, "buffer"):  # of a notebook
        return shown
    with suppress(OSError):
        shown.flush()
    output = _Output(shown, is_error=err, filters=not draws and shown.isatty())
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=err or shown.isatty(),
    )


def short_path(path: Path) -> Path:
    """Return a path as a user in this directory types it, if that is shorter."""
    relative = os.path.relpath(path)
    return Path(relative) if len(relative) < len(str(path)) else path


def echo(text: object = "", *, err: bool = False, end: str = "\n", bold: bool = False) -> None:
    """Print a text to stdout or stderr at once; on a terminal it may be in bold type."""
    shown, line = stream(err=err), f"{text}{end}"
    if bold and shown.isatty():
        shown, line = stream(err=err, draws=True), f"\x1b[1m{safe(str(text))}\x1b[0m{end}"
    shown.write(line)
    shown.flush()


def open_outputs() -> None:
    """Let a command have a stdin, stdout and stderr that can be used, whatever it was given."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would get all that is printed
            os.open(os.devnull, os.O_RDWR if name == "stderr" else os.O_RDONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    for shown in (sys.stdout, sys.stderr):
        if hasattr(shown, "reconfigure"):  # a platform's default may be unable to print Korean
            shown.reconfigure(encoding="utf-8", errors="backslashreplace")
            with suppress(OSError, ValueError):
                os.set_blocking(shown.fileno(), True)  # another program may have said otherwise


def close_outputs() -> None:
    """Write what is held back; an OSError where not all of it arrives on stdout."""
    failure: OSError | None = None
    for shown in (sys.stderr, sys.stdout):
        try:
            shown.flush()
        except OSError as error:
            failure = error if shown is sys.stdout else None
            # nothing says it again when the interpreter ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), shown.fileno())
    if failure is not None:
        failure.filename = "stdout"
        raise failure
