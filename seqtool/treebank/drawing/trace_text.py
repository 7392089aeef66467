"""The derivation of a tree in the terminal, and as JSON.

A step is a line with its number, transition and probability, and under it what it was chosen from:

    7  LEFT-ARC det                                                      98.1%
       stack    ROOT saw a dog
       buffer   .
       arc      dog → a: det
       instead  SHIFT 1.2%, LEFT-ARC amod 0.3%
       sees     s0 dog/NOUN, s1 a/DET, s1-s0 1
       empty    s3 b1
       beam     -0.04  LEFT-ARC det  … saw dog | .  *
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.style import Style

from seqtool.core.errors import counted
from seqtool.core.terminal import json_text
from seqtool.treebank.derivation import Arc, Feature, Hypothesis, Step, Trace
from seqtool.treebank.drawing.marked import (
    LEFT_TO_RIGHT,
    MarkedSentence,
    has_leftward,
    isolated,
    mark,
    printable,
    width_of,
)
from seqtool.treebank.drawing.rendering import to_object

WIDTH = 80  # of lines, where no terminal has another
_NAMES_WIDTH = 9  # of the names of lines
_FAINT, _STRONG = Style(dim=True), Style(bold=True)

Paint = Callable[[str, Style], str]


class Words:
    """The words of a sentence as they are shown: by number, 0 is ROOT."""

    def __init__(self, marked: MarkedSentence) -> None:
        self.forms = ["ROOT", *marked.forms]
        self._tags = ["", *("" if tag == "_" else tag for tag in marked.tags)]

    def tagged(self, word: int) -> str:
        """Return a word with its tag, if it has one."""
        tag = self._tags[word]
        return isolated(self.forms[word]) + (f"/{tag}" if tag else "")

    def value(self, feature: Feature) -> str:
        """Return what stands in a place; "" where nothing does."""
        return printable(feature.value) if feature.word is None else self.tagged(feature.word)

    def top(self, hypothesis: Hypothesis) -> str:
        """Return the top of the stack and the front of the buffer of a hypothesis."""
        words = " ".join(isolated(self.forms[word]) for word in hypothesis.top)
        more = "" if hypothesis.top[0] == 0 else "… "
        front = "" if hypothesis.front is None else isolated(self.forms[hypothesis.front])
        return f"{more}{words} | {front}".rstrip()

    def arc(self, arc: Arc) -> str:
        """Return an arc, from head to word."""
        head, word = isolated(self.forms[arc.head]), isolated(self.forms[arc.word])
        return f"{head} → {word}: {printable(arc.label)}"


def percent(probability: float) -> str:
    """Return a probability as it is shown; what is not quite all or nothing never looks so."""
    if 0.9995 <= probability < 1:
        return ">99.9%"
    return "<0.1%" if 0 < probability < 0.0005 else f"{100 * probability:.1f}%"


def about(trace: Trace) -> str:
    """Return a line about a derivation: system, beam, score."""
    found = trace.derivation
    how = f"beam of {found.beam}" if found.beam > 1 else "greedy"
    steps = counted(len(found.steps), "transition")
    return f"{found.system}, {how}: {steps}, score {found.score:.4f}"


def marked_of(trace: Trace) -> MarkedSentence:
    """Return the sentence of a trace, safe to show, with the tree as it was built."""
    arcs = trace.derivation.arcs
    return dataclasses.replace(
        mark(trace.sentence),
        heads=[arc.head for arc in arcs],
        relations=[printable(arc.label) for arc in arcs],
    )


def trace_json(traces: Iterable[Trace]) -> Iterator[str]:
    """Give a line for each sentence: its object (`rendering.to_object`), with `derivation`.

    `put_back` has the lifted arcs: as they were built, and as they are in the tree.
    """
    for trace in traces:
        put_back = [
            {"built": built._asdict(), "put": put._asdict()} for built, put in trace.put_back
        ]
        derivation = {**trace.derivation.to_json(), "put_back": put_back}
        yield json_text({**to_object(mark(trace.sentence)), "derivation": derivation}) + "\n"


def trace_text(
    traces: Iterable[Trace], *, width: int = WIDTH, colour: bool = False
) -> Iterator[str]:
    """Give the steps of each sentence as lines, and an empty line.

    Args:
        traces: taken one after another.
        width: cells of a line; only a single word may be longer.
        colour: for a terminal.
    """

    def paint(text: str, style: Style) -> str:
        return style.render(text) if colour and text else text

    for trace in traces:
        marked = marked_of(trace)
        any_leftward = any(map(has_leftward, (*marked.forms, marked.text)))
        start = LEFT_TO_RIGHT if any_leftward else ""
        lines = _lines(trace, Words(marked), marked, width, paint)
        yield "".join(f"{start}{line}".rstrip() + "\n" for line in lines) + "\n"


def _lines(
    trace: Trace, words: Words, marked: MarkedSentence, width: int, paint: Paint
) -> Iterator[str]:
    found = trace.derivation
    title = f"# {marked.name}: " if marked.name else "# "
    yield from (
        paint(line, _FAINT) for line in _wrapped(marked.text.split(" "), title, width, "# ")
    )
    yield paint(f"# {about(trace)}", _FAINT)
    digits = len(str(len(found.steps)))
    for number, step in enumerate(found.steps, start=1):
        note = "no other" if step.round is None else percent(step.probability)
        name = f"{number:>{digits}}  {printable(step.transition)}"
        gap = " " * max(2, width - width_of(name) - len(note))
        yield paint(name, _STRONG) + gap + paint(note, _FAINT if step.round is None else _STRONG)
        for name, parts in _parts(step, words):
            yield from _named(name, parts, width, digits + 2, paint)
        if step.round is not None:
            yield from _beam(trace, step.round, words, width, digits + 2, paint)
    if found.beam > 1 and found.rounds:
        yield paint(" " * digits + "  the end", _STRONG)
        yield from _beam(trace, len(found.rounds) - 1, words, width, digits + 2, paint)
    for built, put in trace.put_back:
        line = f"put back: {words.arc(built)}, now {words.arc(put)}"
        yield from _wrapped(line.split(" "), "", width, "  ")


def _parts(step: Step, words: Words) -> Iterator[tuple[str, list[str]]]:
    """Give the lines of a step: (name, the texts that are not to be broken)."""
    yield "stack", [isolated(words.forms[word]) for word in step.stack]
    yield "buffer", [isolated(words.forms[word]) for word in step.buffer] or ["-"]
    if step.arc is not None:
        yield "arc", [words.arc(step.arc)]
    if step.others:
        yield (
            "instead",
            _with_commas(f"{printable(name)} {percent(share)}" for name, share in step.others),
        )
    values = [(feature.place, words.value(feature)) for feature in step.features]
    if values:
        yield "sees", _with_commas(f"{place} {value}" for place, value in values if value)
        if empty := list(dict.fromkeys(place for place, value in values if not value)):
            yield "empty", empty


def _with_commas(texts: Iterable[str]) -> list[str]:
    listed = list(texts)
    return [f"{text}," for text in listed[:-1]] + listed[-1:]


def _named(name: str, parts: Sequence[str], width: int, indent: int, paint: Paint) -> Iterator[str]:
    """Give the lines of parts behind their name."""
    room = " " * (indent + _NAMES_WIDTH)
    lines = _wrapped(parts, " " * indent + f"{name:<{_NAMES_WIDTH}}", width, room)
    for line in lines:
        begin = indent + _NAMES_WIDTH
        yield paint(line[:begin], _FAINT) + line[begin:]


def _beam(
    trace: Trace, number: int, words: Words, width: int, indent: int, paint: Paint
) -> Iterator[str]:
    """Give a line for each hypothesis of a round; nothing where only one is ever followed."""
    found = trace.derivation
    if found.beam == 1:
        return
    hypotheses, is_end = found.rounds[number], number == len(found.rounds) - 1
    names = [printable(each.transition) or "-" for each in hypotheses]
    longest = max(map(width_of, names))
    for place, (each, name) in enumerate(zip(hypotheses, names, strict=True)):
        fate = "" if each.survives or is_end else "dropped"
        if each.is_on_path:
            fate = "tree" if is_end else "*"
        text = f"{each.score:9.4f}  {name}{' ' * (longest - width_of(name))}  {words.top(each)}"
        line = " " * indent + f"{'' if place else 'beam':<{_NAMES_WIDTH}}{text}"
        gap = " " * max(2, width - width_of(line) - len(fate)) if fate else ""
        style = _STRONG if each.is_on_path else Style() if each.survives else _FAINT
        begin = indent + _NAMES_WIDTH
        yield paint(line[:begin], _FAINT) + paint(f"{line[begin:]}{gap}{fate}", style)


def _wrapped(parts: Sequence[str], begin: str, width: int, indent: str) -> Iterator[str]:
    """Give lines of parts with spaces between; the first one has a beginning of its own."""
    line, is_empty = begin, True
    for part in parts:
        if not is_empty and width_of(line) + 1 + width_of(part) > width:
            yield line
            line, is_empty = indent, True
        line += part if is_empty else f" {part}"
        is_empty = False
    yield line
