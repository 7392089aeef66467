"""Processes of this machine that work for this one: started, given work, heard, ended.

    Worker    one of them, and the pipe to it
    Pool      several that all do the same work, on one thing after another, in order

A process is a copy of this one (`forks`), which shares all that is loaded, or is started anew. It
hears of no signal: the one that started it ends it, and where that one is gone, its pipe says so.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

from seqtool.core import signals
from seqtool.core.errors import ProcessError

Given = TypeVar("Given")
Made = TypeVar("Made")
# gives the function that does the work; called in each process once
Make = Callable[[], Callable[[Given], Made]]

AHEAD = 2  # things that a process has at a time, so that it need not wait for the next one
WINDOW = 4  # things for each process that are read, and not yet given back in their order


def can_fork() -> bool:
    """Whether a process can be a copy of this one: on Linux, with no thread that a copy lacks."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


def share_of_cores(num: int) -> int:
    """Return the threads that each of some processes has, so that none waits for another's core."""
    has_affinity = hasattr(os, "sched_getaffinity")  # the cores that this process may use
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, cores // num)


class Lost(Exception):
    """A process is gone; the text says how it ended."""


class Worker:
    """A process, as the one that started it sees it.

    Args:
        target: what it does: called there with its end of the pipe and the arguments, which are
            pickled unless the process is a copy.
        arguments: see there.
        forks: make a copy of this process, which must have no thread of its own but this one.
        others: processes that were started before, whose pipes a copy is not to hold open.
    """

    def __init__(
        self,
        target: Callable[..., None],
        *arguments: Any,
        forks: bool = False,
        others: Sequence[Worker] = (),
    ) -> None:
        context: Any = get_context("fork" if forks else "spawn")
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        held = [self.connection, *(other.connection for other in others)] if forks else []
        self.process = context.Process(
            target=_run,
            args=(target, theirs, held, arguments),
            daemon=True,  # ended with this one, however it ends
        )
        # Ctrl-C reaches all, but the parent decides
        with _without_main(), theirs, signals.kept_from_children(), warnings.catch_warnings():
            # later Pythons warn of threads; those of BLAS end before the copy is made
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()

    def send(self, message: object) -> None:
        """Send a message; that the process is gone is found out by `receive`."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Any:
        """Take a message.

        Raises:
            Lost: the process is gone.
        """
        try:
            return self.connection.recv()
        except (EOFError, OSError) as error:
            self.process.join(10)
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise Lost(how) from error

    def end(self) -> None:
        """End it at once; what it was doing is lost."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


@contextmanager
def _without_main() -> Iterator[None]:
    """Let a new process not run the program that this one runs, as it would to know its classes."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run(
    target: Callable[..., None],
    connection: Connection,
    held: Sequence[Connection],
    arguments: Sequence[Any],
) -> None:
    """Let a process do its work."""
    for other in held:  # while a copy holds them, the end of a pipe tells nobody anything
        other.close()
    for number in signals.NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    target(connection, *arguments)


def listen(connection: Connection, take: Callable[[Any], None], over: Callable[[], None]) -> None:
    """Take messages in a thread, so that who sends them need not wait, until the pipe ends.

    Args:
        connection: of this process.
        take: called with each message.
        over: called at the end.
    """

    def run() -> None:
        try:
            while True:
                take(connection.recv())
        except (EOFError, OSError):
            over()

    threading.Thread(target=run, daemon=True).start()


@dataclass(eq=False)
class _Busy(Generic[Given]):
    """A process of a pool, and what it has: the number and the thing, the oldest first."""

    worker: Worker
    orders: deque[tuple[int, Given]] = field(default_factory=deque)


class Pool(Generic[Given, Made]):
    """Processes that do the same work; a context manager that ends them.

    Args:
        make: gives the function that does the work, which may raise what it likes. Pickled unless
            the processes are copies.
        num: how many there are.
        forks: see `Worker`.
    """

    def __init__(self, make: Make[Given, Made], num: int, *, forks: bool) -> None:
        self._members: list[_Busy[Given]] = []
        self._make, self._num, self._forks = make, num, forks

    def __enter__(self) -> Self:
        try:
            for _ in range(self._num):
                others = [member.worker for member in self._members]
                worker = Worker(_work, self._make, forks=self._forks, others=others)
                self._members.append(_Busy(worker))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with signals.unbroken():  # none is left
            while self._members:
                self._members.pop().worker.end()

    def map(self, givens: Iterable[Given], name: Callable[[Given], str]) -> Iterator[Made]:
        """Give what the work makes of each thing, in their order.

        Few things are held at a time, however many there are.

        Args:
            givens: read in this process, a few ahead. What reading them raises is raised once all
                that was read before is given.
            name: what is done with a thing, as "parsed a.conllu from line 1 on".

        Raises:
            ProcessError: a process was lost.
            Exception: of the first thing for which the work raised one.
        """
        source = iter(givens)
        made: dict[int, Made | Exception] = {}
        num_read = num_given = 0
        is_over = False
        while True:
            while not is_over and num_read - num_given < WINDOW * self._num:
                member = min(self._members, key=lambda busy: len(busy.orders))
                if len(member.orders) >= AHEAD:
                    break
                try:
                    given = next(source)
                except StopIteration:
                    is_over = True
                    break
                except Exception as error:  # those before it come first
                    made[num_read], is_over = error, True
                else:
                    member.orders.append((num_read, given))
                    member.worker.send(given)
                num_read += 1
            if num_given in made:
                result = made.pop(num_given)
                if isinstance(result, Exception):
                    raise result
                num_given += 1
                yield result
            elif num_given == num_read:
                return
            else:
                self._hear(made, name)

    def _hear(self, made: dict[int, Made | Exception], name: Callable[[Given], str]) -> None:
        """Wait for processes, and take what they made."""
        busy = {member.worker.connection: member for member in self._members if member.orders}
        for connection in wait(list(busy)):
            member = busy[connection]  # type: ignore[index]
            number, given = member.orders.popleft()
            try:
                made[number] = member.worker.receive()
            except Lost as error:
                lost = ProcessError(
                    f"the process that {name(given)} {error}",
                    hint="memory may have run out: run it again with fewer --jobs",
                )
                made[number] = lost
                for later, _ in member.orders:
                    made[later] = lost
                member.orders.clear()


def _work(connection: Connection, make: Make[Given, Made]) -> None:
    """Do the work until the parent is gone."""
    orders: SimpleQueue[tuple[Given] | None] = SimpleQueue()
    listen(connection, lambda given: orders.put((given,)), lambda: orders.put(None))
    work: Callable[[Given], Made] | None = None
    while (order := orders.get()) is not None:
        made: Any
        try:
            if work is None:
                work = make()
            made = work(*order)
        except Exception as error:  # whatever it is, the parent raises it
            error.add_note(f"in a process of its own: {traceback.format_exc()}")
            made = error
        with suppress(OSError):  # the listener finds out as well
            connection.send(made)
