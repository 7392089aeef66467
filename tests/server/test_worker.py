"""The thread of a server: whose turn it is, what is done together, and what fails alone."""

from __future__ import annotations

import asyncio
import threading

from seqtool.server.worker import Worker


def test_turns_and_failures() -> None:
    calls: list[str] = []
    goes_on = threading.Event()

    def work(items: list[str], option: str) -> list[str]:
        calls.append(" ".join(items))
        goes_on.wait(10)
        if "bad" in items:
            raise ZeroDivisionError
        return [item + option for item in items]

    async def run() -> list[object]:
        worker = Worker()
        waiting = []
        for rank, option, items in (
            ((0, 0), "", ["first"]),
            ((5, 9), "", ["long"] * 9),
            ((0, 3), "", ["bad"]),
            ((0, 9), "", ["b", "c"]),
            ((1, 4), "!", ["other"]),
            ((9, 1), "", ["gone"]),
        ):
            waiting.append(asyncio.create_task(worker.do(rank, work, option, items, 5)))
            await asyncio.sleep(0.05)
        waiting.pop().cancel()
        await asyncio.sleep(0.05)
        goes_on.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    first, long, bad, short, other = asyncio.run(run())
    assert (first, long, short, other) == (["first"], ["long"] * 9, ["b", "c"], ["other!"])
    assert isinstance(bad, ZeroDivisionError)
    # what fails together is done again one by one; what has had most comes last
    assert calls == ["first", "bad b c", "bad", "b c", "other", "long " * 8 + "long"]
