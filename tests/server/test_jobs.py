"""Rounds: what is done together, whose turn it is, and what fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from seqtool.parsing.segmenter.rules import split_by_rules
from seqtool.server.jobs import Job, Limits, Rounds
from seqtool.server.refusal import Refusal
from seqtool.server.served import ServedModel
from seqtool.treebank.layouts import read_layout
from seqtool.treebank.sentence import FORM, Sentence


class Recorded:
    """A parser that notes what it was asked to do, and fails at a word."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def parse_stream(self, sentences: Sequence[Sentence]) -> Iterator[Sentence]:
        self.calls.append([sentence.column(FORM)[0] for sentence in sentences])
        if any("bad" in sentence.column(FORM) for sentence in sentences):
            raise ZeroDivisionError("bad")
        return iter(sentences)


def answers(*texts: str, limits: Limits | None = None) -> tuple[Recorded, list[Any], list[str]]:
    """Do several texts, a sentence a line; what was asked, the answers, and the order of them."""
    model, order = Recorded(), list[str]()
    served = ServedModel("model", model, ("parser",))
    limits = limits or Limits()

    async def one(rounds: Rounds, text: str) -> list[str]:
        kept: list[str] = []
        source = read_layout(text.split("\n"), "horizontal")
        job = Job(
            served,
            frozenset(("parser",)),
            source,
            lambda sentence: kept.append(sentence.text),
            limits,
        )
        await rounds.submit(job)
        order.append(text.split()[0])
        return kept

    async def run() -> list[Any]:
        rounds = Rounds(limits)
        return await asyncio.gather(*(one(rounds, text) for text in texts), return_exceptions=True)

    return model, asyncio.run(run()), order


def test_what_waits_is_done_together() -> None:
    model, found, _ = answers("a x\nb", "c", "d")
    assert model.calls == [["a", "b", "c", "d"]]
    assert found == [["a x", "b"], ["c"], ["d"]]


def test_a_long_text_keeps_no_short_one_waiting() -> None:
    model, found, order = answers("long " * 9 + "\n" + "long x\n" * 5000, "short")
    assert order == ["short", "long"]
    assert model.calls[0][-1] == "short"
    assert len(found[0]) == 5001


def test_a_request_that_comes_between_rounds_is_in_the_next() -> None:
    """It takes some turns of the event loop to be accepted, read and looked at."""
    model = Recorded()
    served = ServedModel("model", model, ("parser",))

    async def one(rounds: Rounds, text: str) -> int:
        source = read_layout(text.split("\n"), "horizontal")
        job = Job(served, frozenset(("parser",)), source, lambda _: None, Limits())
        await rounds.submit(job)
        return len(model.calls)

    async def run() -> int:
        rounds = Rounds(Limits(num_sentences=10**6))
        long = asyncio.create_task(one(rounds, "long x\n" * 50_000))
        while not model.calls:
            await asyncio.sleep(0)
        for _ in range(6):
            await asyncio.sleep(0)
        num_calls = await one(rounds, "short")
        long.cancel()
        return num_calls

    assert asyncio.run(run()) == 2


def test_long_paragraphs_keep_no_short_text_waiting() -> None:
    """A round splits one long paragraph, and each of the long texts has its turn."""
    split: list[str] = []

    class Split(Recorded):
        def split(self, stretches: Sequence[Any], whole: bool) -> list[Any]:
            split.append("".join(chr(stretch[0]) for stretch in stretches))
            return split_by_rules(stretches, whole=whole)

    served = ServedModel("model", Split(), ("tokenizer", "parser"))

    async def run() -> None:
        rounds = Rounds(Limits())
        texts = [f"{letter} is. " * 4000 for letter in "abcdef"] + ["short"]
        jobs = [
            Job(served, frozenset(("tokenizer",)), text, lambda _: None, Limits()) for text in texts
        ]
        await asyncio.wait([rounds.submit(job) for job in jobs])

    asyncio.run(run())
    assert "s" in split[0]
    assert {*"".join(split)} == {*"abcdefs"}


def test_what_fails_fails_alone() -> None:
    model, found, _ = answers("a", "b bad", "c")
    assert (found[0], found[2]) == (["a"], ["c"])
    assert isinstance(found[1], ZeroDivisionError)
    assert model.calls == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_a_text_that_takes_too_long_is_given_up() -> None:
    _, found, _ = answers("a", limits=Limits(seconds=-1))
    (refusal,) = found
    assert isinstance(refusal, Refusal)
    assert refusal.status == 413


@pytest.mark.parametrize("num", [1, 2])
def test_a_client_that_is_gone_is_forgotten(num: int) -> None:
    model = Recorded()
    served = ServedModel("model", model, ("parser",))

    async def run() -> None:
        rounds = Rounds(Limits())
        jobs = [
            Job(
                served,
                frozenset(("parser",)),
                read_layout(["a"], "horizontal"),
                lambda _: None,
                Limits(),
            )
            for number in range(num)
        ]
        waiting = [rounds.submit(job) for job in jobs]
        waiting[0].cancel()
        await asyncio.wait(waiting)

    asyncio.run(run())
    assert sum(map(len, model.calls)) == num - 1
