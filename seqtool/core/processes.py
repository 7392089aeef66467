"""Processes of this machine that do the same work on one thing after another: `Pool`.

A process is a copy of this one (`forks`), which shares all that is loaded, or is started anew. It
hears of no signal: it ends with the one that started it, however that ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from multiprocessing import active_children, get_context, parent_process
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

from seqtool.core import signals
from seqtool.core.errors import ProcessError
from seqtool.core.runtime import available_threads

Given = TypeVar("Given")
Made = TypeVar("Made")
# gives the function that does the work; called in each process once
Make = Callable[[], Callable[[Given], Made]]

WINDOW = 4  # things for each process that are read, and not yet given back in their order


def can_fork() -> bool:
    """Whether a process can be a copy of this one: on Linux, with no thread that a copy lacks."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


def share_of_cores(num: int) -> int:
    """Return the threads that each of some processes has, so that none waits for another's core."""
    return max(1, available_threads() // num)


class Pool(Generic[Given, Made]):
    """Processes that do the same work; a context manager that ends them.

    Args:
        make: gives the function that does the work, which may raise what it likes. Pickled unless
            the processes are copies.
        num: how many there are.
        forks: they are copies of this process, which must have no other thread.
    """

    def __init__(self, make: Make[Given, Made], num: int, *, forks: bool = False) -> None:
        context = get_context("fork" if forks else "spawn")
        self._num, self._forks = num, forks
        self._executor = ProcessPoolExecutor(num, context, initializer=_begin, initargs=(make,))

    def __enter__(self) -> Self:
        self._others = set(active_children())
        try:
            for _ in range(self._num):  # copies are made now, while there is no other thread
                self._submit(os.getpid)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with signals.deferred():
            for process in set(active_children()) - self._others:
                process.kill()  # what it still does is lost
            self._executor.shutdown(cancel_futures=True)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with signals.kept_from_children(), nullcontext() if self._forks else _without_main():
            return self._executor.submit(function, *arguments)

    def submit(self, given: Given) -> Future[Made]:
        """Let a process do the work on a thing, in the order in which things are given."""
        return self._submit(_do, given)

    def map(self, givens: Iterable[Given]) -> Iterator[Made]:
        """Give what the work makes of each thing, in their order.

        Few things are held at a time, however many there are.

        Args:
            givens: read in this process, a few ahead. What reading them raises is raised once all
                that was read before is given.

        Raises:
            ProcessError: a process was lost.
            Exception: of the first thing for which the work raised one.
        """
        waiting: deque[Future[Made]] = deque()
        failure: Exception | None = None
        source: Iterator[Given] | None = iter(givens)
        try:
            while source is not None or waiting:
                while source is not None and len(waiting) < WINDOW * self._num:
                    try:
                        waiting.append(self.submit(next(source)))
                    except StopIteration:
                        source = None
                    except Exception as error:  # those before it come first
                        failure, source = error, None
                if waiting:
                    yield waiting.popleft().result()
        except BrokenProcessPool as error:
            what = "a process that works for this command was killed"
            hint = "memory may have run out: run it again with fewer --jobs"
            raise ProcessError(what, hint=hint) from error
        if failure is not None:
            raise failure


@contextmanager
def _without_main() -> Iterator[None]:
    """Let a new process not run the program that this one runs, as it would to know its classes."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


_make: Make[Any, Any] | None = None
_work: Callable[[Any], Any] | None = None


def _begin(make: Make[Any, Any]) -> None:
    """Let a process wait for work, and end with the one that started it."""
    global _make
    _make = make
    for number in signals.NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)


def _do(given: Any) -> Any:
    """Do the work on a thing."""
    global _work
    if _work is None:
        assert _make is not None
        _work = _make()
    return _work(given)
