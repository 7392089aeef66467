"""Every error that seqtool raises on purpose, and how it is shown.

    SeqtoolError
    |-- ConfigError        a configuration field or option with an impossible value
    |-- DataError          a text, corpus or treebank that cannot be used (path, line)
    |-- ModelError         a model directory or file that cannot be loaded
    |-- PromptError        a prompt that the model cannot read
    |-- TrainingError      training that cannot go on (NaN, exploding loss)
    |-- DownloadError      a file that could not be fetched or is not the expected one
    |-- OutputError        an output that cannot be written
    |-- ProcessError       a process that did a part of the work, and is gone
    `-- Interrupted        Ctrl-C or SIGTERM; the state was saved (exit code 130)

Errors of this tree are the user's to mend; anything else that escapes is a bug of seqtool.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from functools import partial
from pathlib import Path


class SeqtoolError(Exception):
    """A user's error, shown as two lines: what happened, and the next step.

    Args:
        message: what happened, without a final full stop.
        hint: the next step, as an imperative.
        path: the file that it happened in, if any.
        line: the 1-based line of that file, if known.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        path: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = None if path is None else str(path)
        self.line = line

    def __str__(self) -> str:
        if self.path is None:
            return self.message
        line = "" if self.line is None else f":{self.line}"
        return f"{self.path}{line}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        kind = partial(type(self), hint=self.hint, path=self.path, line=self.line)
        return (kind, (self.message,))


class ConfigError(SeqtoolError):
    """A configuration field or option with an impossible value."""


class DataError(SeqtoolError):
    """A text, corpus or treebank that cannot be used."""


class ModelError(SeqtoolError):
    """A model directory or file that cannot be loaded."""


class PromptError(SeqtoolError):
    """A prompt that the model cannot read."""


class TrainingError(SeqtoolError):
    """Training that cannot go on."""


class DownloadError(SeqtoolError):
    """A file that could not be fetched, or that is not the expected one."""


class OutputError(SeqtoolError):
    """An output that cannot be written."""


class ProcessError(SeqtoolError):
    """A process that did a part of the work, and is gone."""


class Interrupted(SeqtoolError):
    """The user stopped the run; what was reached is saved."""

    exit_code = 130


def counted(num: int | str, noun: str) -> str:
    """Return a number with its noun, as messages say it: 1 step, 2,000 steps, "?" threads."""
    amount = f"{num:,}" if isinstance(num, int) else num
    return f"{amount} {noun}" if amount == "1" else f"{amount} {noun}s"


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return a hint: the nearest known names; `otherwise`, or all names, when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    if near:
        # blanks at an end are not seen otherwise
        shown = [one if one == one.strip() else repr(one) for one in near]
        return f"did you mean {' or '.join(shown)}?"
    return otherwise or f"choose one of: {', '.join(names)}"


_NEXT_STEP = {
    errno.ENOSPC: "free some space or write to another disk with -o, then run the command again",
    errno.EDQUOT: "free some of your quota or write elsewhere with -o, then run the command again",
    errno.EBADF: "open it, for example with > FILE",
    errno.EFBIG: "raise the file size limit (ulimit -f) or write elsewhere with -o",
    errno.EACCES: "check the permissions of the path",
    errno.EPERM: "check the permissions of the path",
    errno.EROFS: "write elsewhere with -o",
    errno.ENOENT: "check the path",
    errno.EISDIR: "name a file, not a directory",
    errno.ENOTDIR: "check the path: a part of it is a file, not a directory",
}


def from_os_error(error: OSError) -> SeqtoolError:
    """Turn an operating-system error (a full disk, no permission) into a two-line user's error."""
    reason = error.strerror or str(error) or type(error).__name__
    hint = _NEXT_STEP.get(error.errno or 0, "check the path and the disk, then run it again")
    return OutputError(reason[:1].lower() + reason[1:], hint=hint, path=error.filename)
