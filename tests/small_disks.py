"""A disk that is really full: a small one in memory, where this user may mount any."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(path: Path, num_bytes: int) -> Iterator[Path]:
    """Mount a disk of this many bytes at a new folder.

    Raises:
        PermissionError: only root may, or not even root.
    """
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = mounted.stderr.strip() if mounted.returncode else ""
    except FileNotFoundError:
        reason = "there is no mount"
    if reason:
        path.rmdir()
        raise PermissionError(f"no disk can be mounted here: {reason}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()
