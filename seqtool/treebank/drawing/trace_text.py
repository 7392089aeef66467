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
from collections.abc import Iterable, Iterator, Sequence

from rich.style import Style

from seqtool.core.errors import counted
from seqtool.core.terminal import json_text
from seqtool.treebank.derivation import Arc, Hypothesis, Step, Trace
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
from seqtool.treebank.drawing.textual import painted

WIDTH = 80  # of lines, where no terminal has another
_NAMES_WIDTH = 9  # of the names of lines
_FAINT, _STRONG = Style(dim=True), Style(bold=True)


class ShownTrace:
    """The parts of a derivation as texts that are safe to show; words by number, 0 is ROOT."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.found = trace, trace.derivation
        arcs = self.found.arcs
        self.marked: MarkedSentence = dataclasses.replace(  # the tree as it was built
            mark(trace.sentence),
            heads=[arc.head for arc in arcs],
            relations=[printable(arc.label) for arc in arcs],
        )
        self.forms = list(map(isolated, ("ROOT", *self.marked.forms)))
        tags = ("" if tag == "_" else f"/{tag}" for tag in ("_", *self.marked.tags))
        self._tagged = [form + tag for form, tag in zip(self.forms, tags, strict=True)]

    def about(self) -> str:
        """Return a line about it: system, beam, score."""
        how = f"beam of {self.found.beam}" if self.found.beam > 1 else "greedy"
        steps = counted(len(self.found.steps), "transition")
        return f"{self.found.system}, {how}: {steps}, score {self.found.score:.4f}"

    def parts(self, step: Step) -> Iterator[tuple[str, list[str]]]:
        """Give the lines of a step: (name, the texts that are not to be broken)."""
        yield "stack", [self.forms[word] for word in step.stack]
        yield "buffer", [self.forms[word] for word in step.buffer] or ["-"]
        if step.arc is not None:
            yield "arc", [self._arc(step.arc)]
        if step.others:
            shares = [f"{printable(name)} {percent(share)}" for name, share in step.others]
            yield "instead", _with_commas(shares)
        values = [
            (each.place, printable(each.value) if each.word is None else self._tagged[each.word])
            for each in step.features
        ]
        if values:
            yield "sees", _with_commas([f"{place} {value}" for place, value in values if value])
        if empty := list(dict.fromkeys(place for place, value in values if not value)):
            yield "empty", empty

    def beam(self, number: int) -> Iterator[tuple[Hypothesis, list[str]]]:
        """Give the hypotheses of a round: score, last transition, stack and buffer, what becomes.

        There are none where only one is ever followed.
        """
        is_end = number == len(self.found.rounds) - 1
        for each in self.found.rounds[number] if self.found.beam > 1 else ():
            fate = "" if each.survives or is_end else "dropped"
            if each.is_on_path:
                fate = "tree" if is_end else "*"
            more = "" if each.top[0] == 0 else "… "
            front = "" if each.front is None else self.forms[each.front]
            top = f"{more}{' '.join(self.forms[word] for word in each.top)} | {front}".rstrip()
            yield each, [f"{each.score:.4f}", printable(each.transition) or "-", top, fate]

    def put_back(self) -> Iterator[str]:
        """Give a line for each arc that was lifted."""
        for built, put in self.trace.put_back:
            yield f"put back: {self._arc(built)}, now {self._arc(put)}"

    def _arc(self, arc: Arc) -> str:
        return f"{self.forms[arc.head]} → {self.forms[arc.word]}: {printable(arc.label)}"


def percent(probability: float) -> str:
    """Return a probability as it is shown; what is not quite all or nothing never looks so."""
    if 0.9995 <= probability < 1:
        return ">99.9%"
    return "<0.1%" if 0 < probability < 0.0005 else f"{100 * probability:.1f}%"


def note_of(step: Step) -> str:
    """Return how probable a step was, if there was another."""
    return "no other" if step.round is None else percent(step.probability)


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
    for trace in traces:
        shown = ShownTrace(trace)
        any_leftward = any(map(has_leftward, (*shown.marked.forms, shown.marked.text)))
        start = LEFT_TO_RIGHT if any_leftward else ""
        lines = _lines(shown, width, colour)
        yield "".join(f"{start}{line}".rstrip() + "\n" for line in lines) + "\n"


def _lines(shown: ShownTrace, width: int, colour: bool) -> Iterator[str]:
    found, marked = shown.found, shown.marked
    title = f"# {marked.name}: " if marked.name else "# "
    for line in _wrapped(marked.text.split(" "), title, width, "# "):
        yield painted(line, _FAINT, colour)
    yield painted(f"# {shown.about()}", _FAINT, colour)
    digits = len(str(len(found.steps)))
    indent = " " * (digits + 2)
    begin = len(indent) + _NAMES_WIDTH
    for number, step in enumerate(found.steps, start=1):
        name = f"{number:>{digits}}  {printable(step.transition)}"
        note = note_of(step)
        style = _FAINT if step.round is None else _STRONG
        gap = " " * max(2, width - width_of(name) - len(note))
        yield painted(name, _STRONG, colour) + gap + painted(note, style, colour)
        for name, parts in shown.parts(step):
            for line in _wrapped(parts, f"{indent}{name:<{_NAMES_WIDTH}}", width, " " * begin):
                yield painted(line[:begin], _FAINT, colour) + line[begin:]
        if step.round is not None:
            yield from _beam(shown, step.round, width, indent, colour)
    if found.beam > 1 and found.rounds:
        yield painted(f"{indent}the end", _STRONG, colour)
        yield from _beam(shown, len(found.rounds) - 1, width, indent, colour)
    for line in shown.put_back():
        yield from _wrapped(line.split(" "), "", width, "  ")


def _beam(shown: ShownTrace, number: int, width: int, indent: str, colour: bool) -> Iterator[str]:
    """Give a line for each hypothesis of a round."""
    rows = list(shown.beam(number))
    longest = max((width_of(name) for _, (_, name, *_) in rows), default=0)
    for place, (each, (score, name, top, fate)) in enumerate(rows):
        begin = f"{indent}{'' if place else 'beam':<{_NAMES_WIDTH}}"
        text = f"{score:>9}  {name}{' ' * (longest - width_of(name))}  {top}"
        if fate:
            text += " " * max(2, width - width_of(begin + text) - len(fate)) + fate
        style = _STRONG if each.is_on_path else Style() if each.survives else _FAINT
        yield painted(begin, _FAINT, colour) + painted(text, style, colour)


def _with_commas(texts: Sequence[str]) -> list[str]:
    return [f"{text}," for text in texts[:-1]] + list(texts[-1:])


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
