"""Jobs that do not depend on one another, one after another or in several processes: `run_jobs`.

Small networks gain next to nothing from a second thread, so several of them are trained at once.
The events of all processes come through one pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

from seqtool.core.errors import Interrupted, TrainingError
from seqtool.core.processes import Pool
from seqtool.core.progress import Event
from seqtool.core.signals import Interruption

POLL_SECONDS = 0.2  # how often it is asked whether to stop


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
    threads: int,
    on_begin: Callable[[str], None],
    on_event: Callable[[Event, str], None],
    should_stop: Callable[[int], bool],
) -> dict[str, Any]:
    """Do jobs in their order, and return their results by name.

    These do not depend on the number of processes.

    Args:
        jobs: the longest first, so that no process waits long for another one at the end.
        num_processes: how many are done at once; 1 does them in this process.
        threads: of each job.
        on_begin: called with the name of a job that begins.
        on_event: called with every event of a job, and its name.
        should_stop: asked with the step number before each step of a job; of several processes,
            five times a second with the step of the newest event. True stops all of them.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state of all jobs is saved.
        TrainingError: a process died; the others go on from what they saved last.
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
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    lock, stop = context.Lock(), context.Event()
    make = partial(_job_runner, sender, lock, stop, threads)
    interruption, step = Interruption(), 0
    try:
        with receiver, sender, interruption.listening(), Pool(make, num_processes) as pool:
            futures = {job.name: pool.submit(job) for job in jobs}
            # a job's events are in the pipe before it is done
            while not all(future.done() for future in futures.values()) or receiver.poll():
                if receiver.poll(POLL_SECONDS):
                    name, event = receiver.recv()
                    if event is None:
                        on_begin(name)
                    else:
                        step = event.step
                        on_event(event, name)
                if interruption.requested or should_stop(step):
                    stop.set()
            for future in futures.values():
                error = future.exception()
                if error is not None and not isinstance(error, Interrupted):
                    raise error
            if stop.is_set():
                what = "the run was interrupted; the state is saved"
                raise Interrupted(what, hint="continue with --resume")
            return {name: future.result() for name, future in futures.items()}
    except BrokenProcessPool as error:
        raise TrainingError(
            "a process that trained a part was killed",
            hint="memory may have run out: continue with --resume and fewer --threads, "
            "which train fewer at once",
        ) from error


def _job_runner(sender: Any, lock: Any, stop: Any, threads: int) -> Callable[[Job], Any]:
    """Return what does a job in a process; it sends (name, None) first, then (name, event)."""

    def send(name: str, event: Event | None) -> None:
        with lock:
            sender.send((name, event))

    def run(job: Job) -> Any:
        try:
            if stop.is_set():
                raise Interrupted("the run was interrupted", hint="continue with --resume")
            send(job.name, None)
            return job.function(
                **job.arguments,
                threads=threads,
                on_event=partial(send, job.name),
                should_stop=lambda step: stop.is_set(),
            )
        except BaseException:
            stop.set()  # the others save their state and stop
            raise

    return run
