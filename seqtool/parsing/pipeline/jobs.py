"""Jobs that do not depend on one another, one after another or in several processes: `Team`.

Small networks gain next to nothing from a second thread, so several of them are trained at once.
A process is started anew ("spawn"), loads torch once (some seconds), and does one job after
another. It talks to the one that started it, the parent, through a pipe of its own:

    parent -> process   (Job, its threads), or None: save the state of what runs, and end
    process -> parent   (EVENT, Event), (RESULT, what the job returned), (ERROR, exception)

The end of the pipe tells each side that the other is gone: without its parent, a process saves and
ends; without the process, the parent stops the others in the same way and raises an error.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Self

from seqtool.core import signals
from seqtool.core.errors import Interrupted, TrainingError
from seqtool.core.progress import Event
from seqtool.core.signals import Interruption

POLL_SECONDS = 0.2  # how often it is asked whether to stop
EVENT, RESULT, ERROR = "event", "result", "error"


@dataclass(frozen=True)
class Job:
    """A call that trains something.

    Attributes:
        name: what people call it.
        function: of a module; it is also given `threads`, `on_event` and `should_stop`, and raises
            `Interrupted` with its state saved once `should_stop` or a signal says so.
        arguments: of the function, by name.
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]


class Team:
    """Does jobs, in this process or in several; a context manager that ends these.

    Args:
        on_begin: called with the name of a job that begins.
        on_event: called with every event of a job, and its name.
        should_stop: asked with the step number before each step of a job; of several processes,
            five times a second with the step of the newest event. True stops all of them.
    """

    def __init__(
        self,
        on_begin: Callable[[str], None],
        on_event: Callable[[Event, str], None],
        should_stop: Callable[[int], bool],
    ) -> None:
        self.on_begin, self.on_event, self.should_stop = on_begin, on_event, should_stop
        self.workers: list[_Worker] = []
        self.waiting: deque[Job] = deque()
        self.results: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.step = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.keep(0)

    def keep(self, num: int) -> None:
        """End all processes but so many, with what they do."""
        while len(self.workers) > num:
            self.workers.pop().end()

    def run(
        self, jobs: Sequence[Job], *, num_processes: int = 1, threads: int | None = None
    ) -> dict[str, Any]:
        """Do jobs in their order, as many at once as there are processes; return their results.

        These do not depend on the number of processes.

        Args:
            jobs: the longest first, so that no process waits long for another one at the end.
            num_processes: 1 does them in this process.
            threads: of each job.

        Raises:
            Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state of all jobs is saved.
            TrainingError: a process died.
            SeqtoolError: what a job raised; the state of the others is saved.
        """
        num_processes = min(num_processes, len(jobs))
        if num_processes > 1:
            return self.run_side_by_side(jobs, num_processes, threads)
        results = {}
        for job in jobs:
            self.on_begin(job.name)
            results[job.name] = job.function(
                **job.arguments,
                threads=threads,
                on_event=lambda event, name=job.name: self.on_event(event, name),
                should_stop=self.should_stop,
            )
        return results

    def run_side_by_side(
        self, jobs: Sequence[Job], num_processes: int, threads: int | None
    ) -> dict[str, Any]:
        """Go on until no job runs any more."""
        self.waiting, self.results = deque(jobs), {}
        self.keep(num_processes)
        interruption = Interruption()
        with interruption.listening():
            while len(self.workers) < num_processes:
                self.workers.append(_Worker())
            while True:
                if not self.failure and (interruption.requested or self.should_stop(self.step)):
                    self.stop(_interrupted())
                for worker in self.workers:
                    if worker.job is None and self.waiting:
                        self.on_begin(self.waiting[0].name)
                        worker.begin(self.waiting.popleft(), threads)
                busy = {worker.connection: worker for worker in self.workers if worker.job}
                if not busy:
                    break
                for connection in wait(list(busy), POLL_SECONDS):
                    self.hear(busy[connection])  # type: ignore[index]
        if self.failure:
            raise self.failure
        return self.results

    def hear(self, worker: _Worker) -> None:
        """Take a message of a process that has a job."""
        assert worker.job is not None
        name = worker.job.name
        kind, content = worker.receive()
        if kind == EVENT:
            self.step = content.step
            self.on_event(content, name)
            return
        worker.job = None
        if kind == RESULT:
            self.results[name] = content
        else:
            self.stop(_interrupted() if isinstance(content, Interrupted) else content)

    def stop(self, failure: Exception) -> None:
        """Begin no further job, and let those that run save their state and stop.

        Args:
            failure: why; an error is told rather than the interruption of others.
        """
        if self.failure is None or isinstance(self.failure, Interrupted):
            self.failure = failure
        self.waiting.clear()
        for worker in self.workers:
            worker.send(None)


class _Worker:
    """A process that does jobs, as its parent sees it."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.job: Job | None = None
        self.connection, theirs = context.Pipe()
        # ended with this one, however it ends
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        # Ctrl-C reaches all, but the parent decides
        with _without_main(), theirs, signals.kept_from_children():
            self.process.start()

    def begin(self, job: Job, threads: int | None) -> None:
        """Give it a job."""
        self.job = job
        self.send((job, threads))

    def send(self, message: object) -> None:
        """Send a message; `receive` finds out that the process is gone."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> tuple[str, Any]:
        """Take a message, which may be that the process is gone."""
        assert self.job is not None
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(10)
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return ERROR, TrainingError(
                f"the process that trained {self.job.name} {how}",
                hint="memory may have run out: continue with --resume and fewer --threads, "
                "which train fewer at once",
            )
        return message

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


def _interrupted() -> Interrupted:
    what = "the run was interrupted; the state is saved"
    return Interrupted(what, hint="continue with --resume")


def _work(connection: Connection) -> None:
    """Do jobs until the parent says that there are no more, or is gone."""
    orders: SimpleQueue[tuple[Job, int | None] | None] = SimpleQueue()
    stopped = threading.Event()

    def take(order: tuple[Job, int | None] | None) -> None:
        if order is None:
            stopped.set()
        orders.put(order)

    def listen() -> None:
        """Take orders while a job runs, until the pipe ends."""
        with suppress(EOFError, OSError):
            while True:
                take(connection.recv())
        take(None)

    def send(kind: str, content: Any) -> None:
        with suppress(OSError):  # the listener finds out as well
            connection.send((kind, content))

    for number in signals.NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=listen, daemon=True).start()
    while (order := orders.get()) is not None:
        job, threads = order
        try:
            result = job.function(
                **job.arguments,
                threads=threads,
                on_event=partial(send, EVENT),
                should_stop=lambda step: stopped.is_set(),
            )
        except KeyboardInterrupt:  # the second Ctrl-C
            return
        except Exception as error:  # whatever it is, the parent raises it
            error.add_note(f"{job.name}, in a process of its own: {traceback.format_exc()}")
            send(ERROR, error)
        else:
            send(RESULT, result)
