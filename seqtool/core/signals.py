"""Ctrl-C, SIGTERM and SIGHUP: what stops a command, and how it comes to stop.

    ended_by_signals    a command: a signal raises an exception, so that all it has begun is undone
    Interruption        training: the first one is noted, and the state saved; the second raises
    deferred            a short part, such as two renames, that a signal does not break
    ignored             the end of a command, while it says what has ended it

What is ignored when a command starts (`nohup`, a shell's `&`) stays ignored.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


def name_of(number: int) -> str:
    """Return what people call a signal."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class Stopped(KeyboardInterrupt):
    """A signal has come."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {name_of(number)}")


_raised: list[int] | None = None  # signals that raised, in the command that runs
_depth = 0  # of blocks that are not to be broken
_waiting: int | None = None  # a signal that came in one


@contextmanager
def ended_by_signals() -> Iterator[list[int]]:
    """Let a signal raise `Stopped` within the block; gives those that did: others may catch it."""
    global _raised
    _raised = []
    hook = sys.unraisablehook

    def pass_over(raised: sys.UnraisableHookArgs) -> None:
        """Say nothing of a signal that came where Python lets nothing raise, as in `__del__`."""
        if not isinstance(raised.exc_value, Stopped):
            hook(raised)

    sys.unraisablehook = pass_over
    try:
        with _handled_by(_stop):
            yield _raised
    finally:
        _raised, sys.unraisablehook = None, hook


@contextmanager
def deferred() -> Iterator[None]:
    """Let a signal that comes within the block wait for its end."""
    global _depth, _waiting
    if not _is_main_thread():
        yield
        return
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth and _waiting is not None:
            number, _waiting = _waiting, None
            _stop(number)


@contextmanager
def ignored() -> Iterator[None]:
    """Let signals that come within the block change nothing."""
    with _handled_by(lambda number, frame: None):
        yield


class Interruption:
    """Set by a first signal; the loop then saves and stops. A second one stops at once."""

    def __init__(self) -> None:
        self.requested = bool(_raised)  # a library may have caught an earlier one

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            _stop(number)
        self.requested = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to signals while the block runs; outside the main thread nothing is heard."""
        with _handled_by(self._handle):
            yield


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Let processes that are started within the block never hear of signals, and this one later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(number: int, frame: FrameType | None = None) -> None:
    global _waiting
    if _depth:
        _waiting = number
        return
    if _raised is not None:
        _raised.append(number)
    raise Stopped(number)


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle the signals that are not ignored while the block runs."""
    if not _is_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in NUMBERS}
    heard = [number for number in NUMBERS if before[number] != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number] or signal.SIG_DFL)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
