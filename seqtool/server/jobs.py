"""Texts on their way through models: those of several requests together, in rounds.

A call of a model costs much beside what a sentence costs, so what waits is done together. A round
takes some sentences of each request, so that a long text keeps no short one waiting:

    request A   s1 s2 s3 s4 s5 s6 s7 s8       first round    A: s1 s2 s3   B: t1   C: u1 u2
    request B   t1                            then           A: s4 s5 s6 s7 s8
    request C   u1 u2

Rounds run on the thread of the event loop, between its reading and writing: on one core a thread
of their own would only wait for Python's lock, and the requests that came meanwhile are the next
round.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from seqtool.core.arrays import CodePoints
from seqtool.core.errors import SeqtoolError, counted
from seqtool.parsing.segmenter.characters import MAX_WORD, Unit
from seqtool.parsing.segmenter.documents import Assembly
from seqtool.parsing.segmenter.rules import Spans
from seqtool.server.refusal import Refusal, refusal_of
from seqtool.server.served import ServedModel, Step
from seqtool.treebank.sentence import FORM, Sentence

BATCH = 1 << 12  # characters of a request that are split in a round, about
PIECE = 1 << 14  # characters of a text that are looked at together
ROUND_CHARACTERS = 1 << 14  # of all requests
# a round is to take about so long, of which the first of a model has so many words
ROUND_SECONDS, FIRST_WORDS = 0.05, 512
MIN_WORDS, MAX_WORDS = 64, 1 << 13
# of the event loop between two rounds: in fewer, a request that has come is not accepted, read and
# looked at, and an answer not written
TURNS = 10

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Attributes:
        num_bytes: of its body.
        num_sentences: in its text.
        num_words: of a sentence.
        seconds: from its last byte to the answer.
        body_seconds: from its first byte to its last.
        num_jobs: requests that wait, of all clients.
    """

    num_bytes: int = 4 << 20
    num_sentences: int = 10_000
    num_words: int = 1000
    seconds: float = 60.0
    body_seconds: float = 30.0
    num_jobs: int = 64


class Job:
    """A text, and what became of it so far.

    Args:
        model: that works on it.
        steps: what is to be done; "tokenizer" for a text.
        source: the text that is to be split, or sentences.
        keep: is given each sentence once it is done, in order.
        limits: see `Limits`.
        presegmented: each line of the text is a sentence.
    """

    def __init__(
        self,
        model: ServedModel,
        steps: frozenset[Step],
        source: str | Iterable[Sentence],
        keep: Callable[[Sentence], object],
        limits: Limits,
        *,
        presegmented: bool = False,
    ) -> None:
        self.model, self.steps, self.keep = model, steps, keep
        self.presegmented, self._limits = presegmented, limits
        self._assembly: Assembly | None = None
        self._ready: deque[Sentence] = deque()
        self._source: Iterator[Sentence] = iter(())
        self.size = len(source) if isinstance(source, str) else 0  # characters to be split
        if isinstance(source, str):
            unit: Unit = "line" if presegmented else "paragraph"
            # not all at once, as looking for paragraphs in all of it would take its time
            pieces = (source[i : i + PIECE] for i in range(0, len(source), PIECE))
            self._assembly = Assembly(pieces, unit=unit, batch=BATCH)
        else:
            self._source = iter(source)
        self._is_read = False
        self.num_sentences = self.num_words = 0
        self.deadline = time.monotonic() + limits.seconds
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def waits_for_split(self) -> bool:
        """Whether more of its text must be split before there is another sentence."""
        return self._assembly is not None and not self._assembly.is_done and not self._ready

    def stretches(self) -> list[CodePoints]:
        """Return what of its text is to be split next."""
        assert self._assembly is not None
        return self._assembly.take()

    def add(self, spans: Sequence[Spans]) -> None:
        """Take what was found in these stretches."""
        assert self._assembly is not None
        self._ready.extend(self._assembly.give(spans))

    def take(self, num_words: int) -> list[Sentence]:
        """Return the next sentences, of about so many words.

        Raises:
            Refusal: one is too long, or there are too many.
            DataError: the text holds no sentence.
        """
        taken: list[Sentence] = []
        while num_words > 0:
            sentence = self._ready.popleft() if self._ready else next(self._source, None)
            if sentence is None:
                self._is_read = self._assembly is None or self._assembly.is_done
                break
            self._check(sentence)
            self.num_words += len(sentence)
            num_words -= len(sentence)
            taken.append(sentence)
        return taken

    def _check(self, sentence: Sentence) -> None:
        self.num_sentences += 1
        if self.num_sentences > self._limits.num_sentences:
            most = counted(self._limits.num_sentences, "sentence")
            raise Refusal(413, f"the text has more than {most}; send it in parts")
        if len(sentence) > self._limits.num_words:
            most = f"more than {counted(self._limits.num_words, 'word')}"
            raise Refusal(413, f"sentence {self.num_sentences} has {most}; split it")
        if max(map(len, sentence.column(FORM))) > MAX_WORD:
            most = f"a word of more than {counted(MAX_WORD, 'character')}"
            raise Refusal(413, f"sentence {self.num_sentences} has {most}; leave it out")

    def end_round(self) -> None:
        """Give the answer, if all is done."""
        if self._is_read and not self._ready and not self.answer.done():
            self.answer.set_result(None)

    def fail(self, error: Exception) -> None:
        """Give an error for an answer."""
        if not self.answer.done():
            self.answer.set_exception(
                refusal_of(error) if isinstance(error, SeqtoolError) else error
            )


class Rounds:
    """The jobs that wait, and what is done of them next.

    Args:
        limits: see `Limits`.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._jobs: list[Job] = []
        self._rounds: asyncio.Task[None] | None = None
        self._budgets: defaultdict[ServedModel, int] = defaultdict(lambda: FIRST_WORDS)  # words

    def submit(self, job: Job) -> asyncio.Future[None]:
        """Return what a job ends with; it is given up when this is cancelled.

        It ends with a Refusal if it takes too long, or cannot be done.

        Raises:
            Refusal: too many wait.
        """
        if len(self._jobs) >= self._limits.num_jobs:
            raise Refusal(429, f"{counted(len(self._jobs), 'request')} wait; try again in a second")
        self._jobs.append(job)
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._run())
        return job.answer

    async def _run(self) -> None:
        """Do rounds while jobs wait; between two, the event loop reads and writes what has come."""
        while self._jobs:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._round()

    def _round(self) -> None:
        by_model: defaultdict[ServedModel, list[Job]] = defaultdict(list)
        now = time.monotonic()
        for job in self._jobs:
            if now > job.deadline:
                most = counted(round(self._limits.seconds), "second")
                job.fail(Refusal(413, f"not done within {most}; send less text at a time"))
            if not job.answer.done():
                by_model[job.model].append(job)
        for model, jobs in by_model.items():
            try:
                self._work(model, jobs)
            except Exception as error:  # a bug; nobody is to wait for ever
                for job in jobs:
                    job.fail(error)
        waiting = [job for job in self._jobs if not job.answer.done()]
        self._jobs = [*waiting[1:], *waiting[:1]]  # whose turn was first is last

    def _work(self, model: ServedModel, jobs: Sequence[Job]) -> None:
        """Do some of the jobs of a model."""
        _split(model, jobs)
        budget = self._budgets[model]
        share = max(1, budget // len(jobs))
        taken: defaultdict[frozenset[Step], list[tuple[Job, list[Sentence]]]] = defaultdict(list)
        num_words = 0
        for job in jobs:
            try:
                sentences = job.take(share)
            except (Refusal, SeqtoolError) as error:
                job.fail(error)
                continue
            num_words += sum(map(len, sentences))
            taken[job.steps].append((job, sentences))
        begin = time.perf_counter()
        for steps, parts in taken.items():
            for job, annotated in _together(parts, partial(model.annotate, steps=steps)):
                for sentence in annotated:
                    job.keep(sentence)
        seconds = time.perf_counter() - begin
        if seconds > ROUND_SECONDS:
            self._budgets[model] = max(MIN_WORDS, int(num_words * ROUND_SECONDS / seconds))
        elif num_words >= budget:
            self._budgets[model] = min(MAX_WORDS, 2 * budget)
        for job in jobs:
            job.end_round()


def _split(model: ServedModel, jobs: Sequence[Job]) -> None:
    """Split some more of the texts whose sentences are used up: of the first, and of short ones.

    A round takes one long paragraph, so each long text waits for its turn, and no short one does.
    """
    parts: dict[bool, list[tuple[Job, list[CodePoints]]]] = {False: [], True: []}
    size = 0
    waiting = [job for job in jobs if job.waits_for_split]
    for job in sorted(waiting, key=lambda job: job.size):
        if size < ROUND_CHARACTERS or job is waiting[0]:
            stretches = job.stretches()
            size += sum(map(len, stretches))
            parts[job.presegmented].append((job, stretches))
    for presegmented, found in parts.items():
        if found:  # else the model may be one that cannot split
            for job, spans in _together(found, partial(model.model.split, whole=presegmented)):
                job.add(spans)


def _together(
    parts: Sequence[tuple[Job, list[T]]], work: Callable[[list[T]], Iterable[U]]
) -> Iterator[tuple[Job, list[U]]]:
    """Do what several jobs have in one call, and give each what became of its own.

    If that fails, each is done by itself, so that a job fails by what it has itself.
    """
    try:
        found = list(work([item for _, items in parts for item in items]))
    except Exception as error:  # of any kind: the other jobs go on
        if len(parts) == 1:
            parts[0][0].fail(error)
            return
        for part in parts:
            yield from _together([part], work)
        return
    rest = iter(found)
    for job, items in parts:
        yield job, list(islice(rest, len(items)))
