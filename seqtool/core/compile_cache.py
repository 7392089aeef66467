"""Where compiled code is kept between processes: a private directory of the user.

    ~/.cache/seqtool/compiled-VERSION-PROCESSOR/    mode 0700; XDG_CACHE_HOME or NUMBA_CACHE_DIR
        sums.json                                   moves it; file -> sum of its bytes
        ...                                         what Numba writes: pickles and machine code

Who can write there runs code, so a directory that belongs to another user, or that others can write
to, is refused. A changed bit can end the process in the middle of a loop, so each file has a sum:
one that does not fit it, or has none, is removed, and made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqtool.core import terminal
from seqtool.core.storage import replace_text
from seqtool.core.version import __version__

SUMS = "sums.json"
_LOCK = "lock"


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
        with self.locked():
            sums = self._read_sums()
            found = self._files()
            damaged = {name for name, path in found.items() if _sum(path) != sums.get(name)}
            for name in damaged:
                found[name].unlink(missing_ok=True)
            if known := len(damaged & sums.keys()):
                terminal.echo(
                    f"note: {known} damaged file{'s' * (known > 1)} of compiled code in {path}: "
                    "compiling again",
                    err=True,
                )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from reading what is half written, and from compiling the same."""
        try:
            import fcntl
        except ImportError:  # Windows; two processes may then compile the same twice
            yield
            return
        handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def record(self) -> None:
        """Note the sums of what was just written; the lock is held."""
        sums = {name: _sum(path) for name, path in self._files().items()}
        replace_text(self.path / SUMS, json.dumps(sums, indent=0))

    def _files(self) -> dict[str, Path]:
        found = (path for path in self.path.rglob("*.nb?") if path.is_file())
        return {str(path.relative_to(self.path)): path for path in found}

    def _read_sums(self) -> dict[str, object]:
        try:
            sums = json.loads((self.path / SUMS).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return sums if isinstance(sums, dict) else {}


def _sum(path: Path) -> str | None:
    """Return a sum of a file: it finds damage, not forgery, which the owner could do anyway."""
    try:
        return f"{zlib.crc32(path.read_bytes()):08x}"
    except OSError:
        return None


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
