"""Trees in the terminal: drawn beside the words, one word a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

_PLAIN = Style()
_FAINT = Style(dim=True)
_WORD = Style(bold=True)
_GOLD = Style(color="green")
_RELATION = {"": _PLAIN, "wrong": Style(color="red"), "differs": Style(color="yellow")}


class _Column(NamedTuple):
    """A cell for each word; `styles` of one alone is that of all."""

    cells: Sequence[str]
    styles: Sequence[Style]
    gap: str = "  "  # before it
    to_right: bool = False
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
        lines = [_painted(title + isolated(first.text), _FAINT, colour)]
        words, notes = _word_columns(first), _notes(first)
        if beside:
            analyses = [column for each in group for column in _analysis(each)]
            lines += _table([*words, *analyses, notes], colour)
        for each in () if beside else group:
            if each.source:
                lines.append(_painted(f"## {each.source}", _FAINT, colour))
            tree, relations, marks = _analysis(each)
            columns = [tree._replace(name="", gap=""), *words, relations, notes, marks]
            columns[1] = columns[1]._replace(gap=" ")
            lines += _table(columns, colour)
        start = LEFT_TO_RIGHT if any(map(has_leftward, (*first.forms, first.text))) else ""
        yield "".join(f"{start}{line}\n" for line in lines) + "\n"


def _painted(text: str, style: Style, colour: bool) -> str:
    return style.render(text) if colour and text else text


def _word_columns(sentence: MarkedSentence) -> list[_Column]:
    """Return the number, form and tag of each word."""
    numbers = [str(word) for word in range(1, len(sentence) + 1)]
    return [
        _Column(numbers, [_FAINT], "", to_right=True),
        _Column([isolated(form) for form in sentence.forms], [_WORD], " "),
        _Column(sentence.tags, [_FAINT]),
    ]


def _notes(sentence: MarkedSentence) -> _Column:
    """Return the multiword tokens, each at its first word."""
    notes = {s.first: f"{s.first}-{s.last} {isolated(s.form)}" for s in sentence.surfaces}
    return _Column([notes.get(word, "") for word in range(1, len(sentence) + 1)], [_FAINT])


def _analysis(sentence: MarkedSentence) -> tuple[_Column, _Column, _Column]:
    """Return the lines of the tree, the relations, and what is wrong or differs."""
    words = range(1, len(sentence) + 1)
    kinds = [sentence.kind(word) for word in words]
    marks = []
    for word, kind in zip(words, kinds, strict=True):
        gold = sentence.correction(word)
        differs = "≠" if kind == "differs" else ""
        marks.append(differs if gold is None else f"✗ gold: {gold[1]} of {gold[0]}")
    return (
        _Column(_lines(sentence.heads), [_FAINT], name=sentence.source),
        _Column(sentence.relations, [_RELATION[kind] for kind in kinds]),
        _Column(marks, [_GOLD]),
    )


def _table(columns: Sequence[_Column], colour: bool) -> list[str]:
    """Return a line for each word, and one before them with the names of columns, if they have any.

    A column without a text takes no room. A name may be as wide as the columns behind it that have
    none.
    """
    columns = [column for column in columns if any(column.cells)]
    widths = [max(map(width_of, column.cells)) for column in columns]
    for place, column in enumerate(columns):
        end = place + 1
        while end < len(columns) and not columns[end].name:
            end += 1
        room = sum(widths[place:end]) + sum(len(each.gap) for each in columns[place + 1 : end])
        widths[end - 1] += max(0, width_of(column.name) - room)
    rows = [""] * len(columns[0].cells)
    heading = ""
    taken = 0
    for column, width in zip(columns, widths, strict=True):
        if column.name:
            heading += " " * (taken + len(column.gap) - width_of(heading)) + column.name
        taken += len(column.gap) + width
        styles = list(column.styles)
        if len(styles) == 1:
            styles *= len(rows)
        for i, (cell, style) in enumerate(zip(column.cells, styles, strict=True)):
            blank = " " * (width - width_of(cell))
            shown = _painted(cell, style, colour)
            rows[i] += column.gap + (blank + shown if column.to_right else shown + blank)
    return [
        *([_painted(heading, _FAINT, colour)] if heading else []),
        *(row.rstrip() for row in rows),
    ]


def _lines(heads: list[int]) -> list[str]:
    """Return the lines of the tree, all as wide."""
    columns = _node_columns(heads)
    width = 2 * max(columns) + 1
    grid = [[" "] * width for _ in heads]
    first, last = _reaches(heads)
    # what leads to the right first, so that what leads up and down passes over it
    for word, head in enumerate(heads, start=1):
        start = 2 * columns[head - 1] + 1 if head else 2 * columns[word - 1]
        grid[word - 1][start:] = ["─"] * (width - start)
    for word in range(1, len(heads) + 1):
        column = 2 * columns[word - 1]
        for row in range(first[word - 1], last[word - 1] + 1):
            grid[row - 1][column] = "│"
    for word, head in enumerate(heads, start=1):
        if head:
            column = 2 * columns[head - 1]
            corner = "├"
            if word == first[head - 1]:
                corner = "┌"
            elif word == last[head - 1]:
                corner = "└"
            grid[word - 1][column] = corner
        grid[word - 1][2 * columns[word - 1]] = "●"
    return ["".join(row) for row in grid]


def _reaches(heads: list[int]) -> tuple[list[int], list[int]]:
    """Return the first and the last of each word and those that depend on it."""
    first = list(range(1, len(heads) + 1))
    last = list(first)
    for word, head in enumerate(heads, start=1):
        if head:
            first[head - 1] = min(first[head - 1], word)
            last[head - 1] = max(last[head - 1], word)
    return first, last


def _node_columns(heads: list[int]) -> list[int]:
    """Return the column of each word: right of its head's, and free over all its reach.

    In a projective tree that is the distance from the root.
    """
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, start=1):
        children[head].append(word)
    first, last = _reaches(heads)
    taken: list[list[tuple[int, int]]] = []  # of each column, the reaches in it
    columns = [0] * len(heads)
    pending = [(word, 0) for word in children[0]]
    while pending:
        deeper: list[tuple[int, int]] = []
        for word, column in pending:
            low, high = first[word - 1], last[word - 1]
            while column < len(taken) and any(a <= high and low <= b for a, b in taken[column]):
                column += 1
            taken.extend([] for _ in range(len(taken), column + 1))
            taken[column].append((low, high))
            columns[word - 1] = column
            deeper.extend((child, column + 1) for child in children[word])
        pending = deeper
    return columns
