"""A process that dies in the middle of its work on files."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

OPERATIONS = frozenset(
    {"open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}
)
_DIED = 77


def dies_at(number: int, action: Callable[[], object]) -> bool:
    """Run `action` in a forked process that dies just before its file operation `number`.

    Nothing that is still in a buffer is written and no clean-up is run, as with `kill -9`. Returns
    whether it came that far; False means that the action was completed.
    """
    return _in_child(lambda: _run(action, lambda seen: seen == number and os._exit(_DIED)))


def _in_child(run: Callable[[], object]) -> bool:
    """Call a function in a forked process, which it ends; return whether that has died."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are not needed here
        child = os.fork()
    if child == 0:
        run()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, _DIED), f"the action failed by itself: {code}"
    return code == _DIED


def deaths(folder: Path, action: Callable[[], object], step: int = 1) -> Iterator[Path]:
    """Give all that a process leaves of a folder which dies just before a file operation of it.

    `action` runs once, in a forked process that copies the folder before each operation: what is on
    disk at that moment is what `kill -9` leaves. The copies are given when it has ended, as nothing
    is locked by the dead; last comes the folder itself, in which the action was completed.

    Args:
        folder: where all files of the action are.
        action: what is done.
        step: copy before every so many operations only.
    """
    copies: list[Path] = []

    def copy(number: int) -> None:
        if number % step == 0:
            _copy(folder, folder.with_name(f"{folder.name}-{number}"))

    assert not _in_child(lambda: _run(action, copy))
    while (path := folder.with_name(f"{folder.name}-{step * len(copies)}")).exists():
        copies.append(path)
    yield from copies
    yield folder


_link = os.link  # a test may put another one there


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with all links in it."""
    first: dict[tuple[int, int], str] = {}

    def copy(path: str, to: str) -> None:
        status = os.lstat(path)
        found = first.setdefault((status.st_dev, status.st_ino), to)
        if found == to:
            shutil.copy2(path, to, follow_symlinks=False)
        else:
            _link(found, to, follow_symlinks=False)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)


def _run(action: Callable[[], object], before: Callable[[int], object]) -> None:
    """Run an action; `before` is called before each of its file operations."""
    seen, busy = 0, False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen, busy
        if event in OPERATIONS and not busy:
            busy = True  # it works on files, too
            before(seen)
            busy = False
            seen += 1

    os.fsync = lambda handle: None  # a process that dies does not take the disk with it
    try:
        sys.addaudithook(hook)
        action()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
