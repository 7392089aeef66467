"""One thread on which models work, so that a long text keeps no short one waiting.

Requests come with a slice of their text at a time. A call of a model costs much beside what a
sentence costs, so slices that wait for the same are done together, up to the size of a full one:

    request A   a1 a2 a3 a4
    request B   b1                done: a1, b1 c1, a2, c2, a3, ...
    request C   c1 c2
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import count, islice
from queue import PriorityQueue
from threading import Thread
from typing import Any, NamedTuple

Rank = tuple[int, int]


class _Task(NamedTuple):
    """A slice that waits; tasks are compared by `rank` and `number`, which is unique."""

    rank: Rank
    number: int
    call: Callable[[list[Any], Any], Iterable[Any]]
    option: Any
    items: list[Any]
    full: int
    future: Future[list[Any]]

    def size(self) -> int:
        return sum(map(len, self.items))


class Worker(Thread):
    """Does the slices that wait; those of the lowest rank come first."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._waiting: PriorityQueue[_Task] = PriorityQueue()
        self._numbers = count()
        self.start()

    async def do(
        self,
        rank: Rank,
        call: Callable[..., Iterable[Any]],
        option: Any,
        items: list[Any],
        full: int,
    ) -> list[Any]:
        """Return what `call(items, option)` gives, or raise what it raises.

        Args:
            rank: what the request has had already, and its size.
            call: gives a result for each item, whatever the others are.
            option: its second argument.
            items: of any lengths.
            full: the most length, in all, of what is done together.
        """
        future: Future[list[Any]] = Future()
        self._waiting.put(_Task(rank, next(self._numbers), call, option, items, full, future))
        return await asyncio.wrap_future(future)

    def run(self) -> None:
        """Work until the process ends."""
        while True:
            first = self._waiting.get()
            tasks, others, size = [first], list[_Task](), first.size()
            while size < first.full and not self._waiting.empty():  # nobody else takes from it
                task = self._waiting.get()
                is_alike = (task.call, task.option) == (first.call, first.option)
                if is_alike and size + task.size() <= first.full:
                    tasks.append(task)
                    size += task.size()
                else:
                    others.append(task)
            for task in others:
                self._waiting.put(task)
            _run([task for task in tasks if task.future.set_running_or_notify_cancel()])


def _run(tasks: Sequence[_Task]) -> None:
    """Do tasks together, or one by one if that fails, so that each fails by what it has itself."""
    try:
        items = [item for task in tasks for item in task.items]
        results = iter(list(tasks[0].call(items, tasks[0].option)) if tasks else [])
    except Exception as error:
        if len(tasks) == 1:
            tasks[0].future.set_exception(error)
            return
        for task in tasks:
            _run([task])
    else:
        for task in tasks:
            task.future.set_result(list(islice(results, len(task.items))))
