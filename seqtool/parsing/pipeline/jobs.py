"""Jobs that do not depend on one another, one after another or in several processes: `run_jobs`.

Small networks gain next to nothing from a second thread, so several of them are trained at once.
A process is started anew ("spawn"), loads torch once (some seconds), and does one job after
another. It talks to the one that started it, the parent, through a pipe of its own:

    parent -> process   Job, or None: stop what runs, with its state saved, and end
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
from typing import Any

from seqtool.errors import Interrupted, TrainingError
from seqtool.interruption import Interruption
from seqtool.progress import Event

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


def run_jobs(
    jobs: Sequence[Job],
    *,
    num_processes: int,
    threads: int | None,
    on_begin: Callable[[str], None],
    on_event: Callable[[Event, str], None],
    should_stop: Callable[[int], bool],
) -> dict[str, Any]:
    """Do jobs in their order, as many at once as there are processes; return what they returned.

    What a job returns does not depend on the number of processes.

    Args:
        jobs: the longest first, so that no process waits long for another one at the end.
        num_processes: 1 does them in this process.
        threads: of each job.
        on_begin: called with the name of a job that begins.
        on_event: called with every event of a job, and its name.
        should_stop: asked with the step number before each step of a job; of several processes,
            five times a second with the step of the newest event. True stops all of them.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state of all jobs is saved.
        TrainingError: a process died.
        SeqtoolError: what a job raised; the state of the others is saved.
    """
    if num_processes == 1:
        results = {}
        for job in jobs:
            on_begin(job.name)
            results[job.name] = job.function(
                **job.arguments,
                threads=threads,
                on_event=lambda event, name=job.name: on_event(event, name),
                should_stop=should_stop,
            )
        return results
    team = _Team(jobs, threads, on_begin, on_event, should_stop)
    try:
        return team.run(min(num_processes, len(jobs)))
    finally:
        for worker in team.workers:
            worker.end()


class _Team:
    """The processes of one call of `run_jobs`, with its arguments."""

    def __init__(
        self,
        jobs: Sequence[Job],
        threads: int | None,
        on_begin: Callable[[str], None],
        on_event: Callable[[Event, str], None],
        should_stop: Callable[[int], bool],
    ) -> None:
        self.waiting, self.threads = deque(jobs), threads
        self.on_begin, self.on_event, self.should_stop = on_begin, on_event, should_stop
        self.workers: list[_Worker] = []
        self.results: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.step = 0

    def run(self, num_processes: int) -> dict[str, Any]:
        """Start the processes and go on until no job runs any more."""
        interruption = Interruption()
        with interruption.listening():
            self.workers.extend(_Worker(self.threads) for _ in range(num_processes))
            while True:
                if not self.failure and (interruption.requested or self.should_stop(self.step)):
                    self.stop(Interrupted("the run was interrupted; the state is saved"))
                for worker in self.workers:
                    if worker.job is None and self.waiting:
                        self.on_begin(self.waiting[0].name)
                        worker.begin(self.waiting.popleft())
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
            self.stop(content)

    def stop(self, failure: Exception) -> None:
        """Begin no further job, and let those that run save their state and stop.

        Args:
            failure: why; an error is told rather than the interruption of others.
        """
        if self.failure is None or type(self.failure) is Interrupted:
            self.failure = failure
        self.waiting.clear()
        for worker in self.workers:
            worker.send(None)


class _Worker:
    """A process that does jobs, as its parent sees it."""

    def __init__(self, threads: int | None) -> None:
        context = get_context("spawn")
        self.job: Job | None = None
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, threads))
        with _without_main(), theirs:
            self.process.start()

    def begin(self, job: Job) -> None:
        """Give it a job."""
        self.job = job
        self.send(job)

    def send(self, message: Job | None) -> None:
        """Send a message; one that is gone is found out by `receive`."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> tuple[str, Any]:
        """Take a message, which may be that the process is gone."""
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            assert self.job is not None
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


def _work(connection: Connection, threads: int | None) -> None:
    """Do jobs until the parent says that there are no more, or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches all, but the parent decides
        signal.signal(number, signal.SIG_IGN)
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    stopped = threading.Event()

    def listen() -> None:
        try:
            while (job := connection.recv()) is not None:
                jobs.put(job)
        except (EOFError, OSError):
            pass
        finally:
            stopped.set()
            jobs.put(None)

    def send(kind: str, content: Any) -> None:
        with suppress(OSError):  # `listen` finds out as well
            connection.send((kind, content))

    threading.Thread(target=listen, daemon=True).start()
    while (job := jobs.get()) is not None:
        try:
            result = job.function(
                **job.arguments,
                threads=threads,
                on_event=partial(send, EVENT),
                should_stop=lambda step: stopped.is_set(),
            )
        except KeyboardInterrupt:  # the second Ctrl-C
            return
        except Exception as error:
            error.add_note(f"{job.name}, in a process of its own: {traceback.format_exc()}")
            send(ERROR, error)
        else:
            send(RESULT, result)
