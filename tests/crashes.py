"""A process that dies in the middle of its work on files."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable

OPERATIONS = frozenset(
    {"open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}
)
_DIED = 77


def dies_at(number: int, action: Callable[[], object]) -> bool:
    """Run `action` in a forked process that dies just before its file operation `number`.

    Nothing that is still in a buffer is written and no clean-up is run, as with `kill -9`. Returns
    whether it came that far; False means that the action was completed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are not needed here
        child = os.fork()
    if child == 0:
        _run_until(number, action)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, _DIED), f"the action failed by itself: {code}"
    return code == _DIED


def _run_until(number: int, action: Callable[[], object]) -> None:
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in OPERATIONS:
            if seen == number:
                os._exit(_DIED)
            seen += 1

    os.fsync = lambda handle: None  # a process that dies does not take the disk with it
    try:
        sys.addaudithook(hook)
        action()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
