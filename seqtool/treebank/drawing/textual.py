"""Trees in the terminal: drawn beside the words, one word a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from rich.style import Style

from seqtool.treebank.drawing.marked import (
    LEFT_TO_RIGHT,
    Group,
    MarkedSentence,
    has_leftward,
    isolated,
    width_of,
)

_FAINT = Style(dim=True)
_WORD = Style(bold=True)
_GOLD = Style(color="green")
_RELATION = {"": Style(), "wrong": Style(color="red"), "differs": Style(color="yellow")}


class _Column(NamedTuple):
    """A cell for each word, of a style each, or one for all."""

    cells: Sequence[str]
    styles: Sequence[Style]
    gap: str = "  "  # before it
    name: str = ""  # above it


def tree_lines(
    groups: Iterable[Group], *, beside: bool = False, colour: bool = False
) -> Iterator[str]:
    """Give each sentence as its text, a line for each word, and an empty line.

    Args:
        groups: the analyses of each sentence; where they have names, these stand above them.
        beside: they stand side by side behind the words; otherwise one over the other.
        colour: colour them.
    """
    for group in groups:
        first = group[0]
        name = first.name + (f" ({first.rank})" if first.rank else "")
        title = f"# {name.strip()}: " if name else "# "
        lines = [painted(title + isolated(first.text), _FAINT, colour)]
        digits = len(str(len(first)))
        words = [
            _Column([f"{word:>{digits}}" for word in range(1, len(first) + 1)], [_FAINT], ""),
            _Column([isolated(form) for form in first.forms], [_WORD], " "),
            _Column(first.tags, [_FAINT]),
        ]
        notes = _Column(notes_of(first), [_FAINT])
        if beside:
            analyses = [column for each in group for column in _analysis(each)]
            lines += _table([*words, *analyses, notes], colour)
        for each in () if beside else group:
            if each.source:
                lines.append(painted(f"## {each.source}", _FAINT, colour))
            tree, relations, marks = _analysis(each)
            tree, number = tree._replace(name="", gap=""), words[0]._replace(gap=" ")
            lines += _table([tree, number, *words[1:], relations, notes, marks], colour)
        start = LEFT_TO_RIGHT if any(map(has_leftward, (*first.forms, first.text))) else ""
        yield "".join(f"{start}{line}\n" for line in lines) + "\n"


def painted(text: str, style: Style, colour: bool) -> str:
    """Return a text with the codes of its colours, if there are to be any."""
    return style.render(text) if colour and text else text


def notes_of(sentence: MarkedSentence) -> list[str]:
    """Return the multiword tokens, each at its first word; "" of other words."""
    notes = {s.first: f"{s.first}-{s.last} {isolated(s.form)}" for s in sentence.surfaces}
    return [notes.get(word, "") for word in range(1, len(sentence) + 1)]


def mark_of(sentence: MarkedSentence, word: int) -> str:
    """Return what is wrong about a word, or that analyses differ in it; else ""."""
    gold = sentence.correction(word)
    if gold is None:
        return "≠" if sentence.kind(word) == "differs" else ""
    return f"✗ gold: {gold[1]} of {gold[0]}"


def _analysis(sentence: MarkedSentence) -> tuple[_Column, _Column, _Column]:
    """Return the lines of the tree, the relations, and what is wrong or differs."""
    words = range(1, len(sentence) + 1)
    return (
        _Column(branches(sentence.heads), [_FAINT], name=sentence.source),
        _Column(sentence.relations, [_RELATION[sentence.kind(word)] for word in words]),
        _Column([mark_of(sentence, word) for word in words], [_GOLD]),
    )


def _table(columns: Sequence[_Column], colour: bool) -> list[str]:
    """Return a line for each word, and one before them with the names of columns, if they have any.

    A column without a text takes no room. A name may be as wide as the columns behind it that have
    none.
    """
    columns = [column for column in columns if any(column.cells)]
    heading = ""
    rows = [""] * len(columns[0].cells)
    taken = 0
    for column in columns:
        if column.name:
            begin = max(taken + len(column.gap), width_of(heading) + 2 if heading else 0)
            # what stands to the left of a name makes room for it
            rows = [row + " " * (begin - taken - len(column.gap)) for row in rows]
            taken = begin - len(column.gap)
            heading += " " * (begin - width_of(heading)) + column.name
        width = max(map(width_of, column.cells))
        taken += len(column.gap) + width
        for i, (cell, style) in enumerate(zip(column.cells, cycle(column.styles), strict=False)):
            blank = " " * (width - width_of(cell))
            rows[i] += column.gap + painted(cell, style, colour) + blank
    return [
        *([painted(heading, _FAINT, colour)] if heading else []),
        *(row.rstrip() for row in rows),
    ]


def branches(heads: Sequence[int]) -> list[str]:
    """Return the lines of a tree by the head of each word: a text for each, all as wide."""
    first, last = _reaches(heads)
    columns = _node_columns(heads, first, last)
    width = 2 * max(columns) + 1
    grid = [[" "] * width for _ in heads]
    # what leads to the right first, so that what leads up and down passes over it
    for row, head in enumerate(heads):
        start = 2 * columns[head - 1] + 1 if head else 2 * columns[row]
        grid[row][start:] = ["─"] * (width - start)
    for column, low, high in zip(columns, first, last, strict=True):
        for row in range(low - 1, high):
            grid[row][2 * column] = "│"
    for row, head in enumerate(heads):
        if head:
            ends = {first[head - 1]: "┌", last[head - 1]: "└"}
            grid[row][2 * columns[head - 1]] = ends.get(row + 1, "├")
        grid[row][2 * columns[row]] = "●"
    return ["".join(row) for row in grid]


def _reaches(heads: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the first and the last of each word and those that depend on it."""
    first = list(range(1, len(heads) + 1))
    last = list(first)
    for word, head in enumerate(heads, start=1):
        if head:
            first[head - 1] = min(first[head - 1], word)
            last[head - 1] = max(last[head - 1], word)
    return first, last


def _node_columns(heads: Sequence[int], first: Sequence[int], last: Sequence[int]) -> list[int]:
    """Return the column of each word: right of its head's, and free over all its reach.

    In a projective tree that is the distance from the root.
    """
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, start=1):
        children[head].append(word)
    taken: list[list[tuple[int, int]]] = [[] for _ in heads]  # of each column, the reaches in it
    columns = [0] * len(heads)
    pending = [(word, 0) for word in children[0]]
    for word, least in pending:  # which grows: breadth first
        low, high = first[word - 1], last[word - 1]
        column = least
        while any(a <= high and low <= b for a, b in taken[column]):
            column += 1
        taken[column].append((low, high))
        columns[word - 1] = column
        pending.extend((child, column + 1) for child in children[word])
    return columns
