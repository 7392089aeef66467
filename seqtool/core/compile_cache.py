"""Where compiled code is kept between processes: a private directory of the user.

    ~/.cache/seqtool/compiled-VERSION-PROCESSOR/    mode 0700; XDG_CACHE_HOME or NUMBA_CACHE_DIR
        MODULE.FUNCTION-KEY                         moves it; a sum, then machine code

Who can write there runs code, so a directory that belongs to another user, or that others can write
to, is refused. A changed bit can end the process in the middle of a loop, so each file has a sum:
one that does not fit it is made again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqtool.core import terminal
from seqtool.core.storage import atomic_file
from seqtool.core.version import __version__

_NUM_LOCKS = 16  # so many functions may be compiled at once, unless two have the same lock
_SUM_SIZE = 8

_seconds_compiling = 0.0  # of this process


@contextmanager
def compiling() -> Iterator[None]:
    """Let `working_time` stand still; it is not entered twice at once."""
    global _seconds_compiling
    began = time.perf_counter()
    try:
        yield
    finally:
        _seconds_compiling += time.perf_counter() - began


def working_time() -> float:
    """Return seconds as `time.perf_counter` does, without those that compiling has taken.

    That is done once for a machine: a run with a limit of time has the same steps before and after.
    """
    return time.perf_counter() - _seconds_compiling


class Refused(OSError):
    """The directory is not the user's alone."""


class CompileCache:
    """The directory, checked when it is opened.

    Args:
        path: the directory; made if it is not there.

    Raises:
        Refused: it belongs to another, or others can write to it.
        OSError: it cannot be made or read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in (path.parent, path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(folder)
        self._has_told = False

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep other processes from compiling what gets this name meanwhile."""
        try:
            import fcntl
        except ImportError:  # Windows; two processes may then compile the same twice
            yield
            return
        lock = f"lock-{zlib.crc32(name.encode()) % _NUM_LOCKS}"
        handle = os.open(self.path / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def read(self, name: str) -> bytes | None:
        """Return what was written under a name; None where it is not there, or is damaged."""
        try:
            content = (self.path / name).read_bytes()
        except OSError:
            return None
        if content[:_SUM_SIZE] == _sum(content[_SUM_SIZE:]):
            return content[_SUM_SIZE:]
        if not self._has_told:
            self._has_told = True
            terminal.echo(f"note: damaged compiled code in {self.path}: compiling again", err=True)
        return None

    def write(self, name: str, code: bytes) -> None:
        """Keep machine code, whole or not at all."""
        with atomic_file(self.path / name) as stream:
            stream.write(_sum(code) + code)


def _sum(code: bytes) -> bytes:
    """Return a sum of code: it finds damage, not forgery, which the owner could do anyway."""
    return b"%08x" % zlib.crc32(code)


def _check_owner(folder: Path) -> None:
    status = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    if os.name != "nt" and (
        not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & others
    ):
        raise Refused(f"{folder} is not a directory that you alone can write to")


def default_path(processor: str) -> Path:
    """Return where compiled code of this version for a processor goes.

    Args:
        processor: what tells it from others: its name and features, and the compiler's version.
    """
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    key = hashlib.sha256(processor.encode()).hexdigest()[:12]
    return Path(home).expanduser().absolute() / "seqtool" / f"compiled-{__version__}-{key}"
