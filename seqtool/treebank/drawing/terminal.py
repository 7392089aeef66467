"""Trees for the terminal: each word in a line of its own, its tree to the left.

      ┌─● 1 The    DET   det
    ┌─●── 2 dog    NOUN  nsubj
    ●──── 3 barks  VERB  root
    └─●── 4 .      PUNCT punct

A word's ● stands right of that of its head; the line from the ● down and up leads to the words that
depend on it. Where lines of arcs that cross meet, the one that leads down passes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.style import Style

from seqtool.treebank.drawing.marked import MarkedSentence, has_leftward

_FAINT = Style(dim=True)
_WORD = Style(bold=True)
_WRONG = Style(color="red")
_GOLD = Style(color="green")

# keep a terminal from turning a line round that has words written from right to left
_LEFT_TO_GOLD = "\N{LEFT-TO-RIGHT MARK}"
_ISOLATE, _END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"


def plain_trees(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give each sentence as lines of plain text, followed by an empty line."""
    for sentence in sentences:
        yield draw(sentence)


def coloured_trees(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give each sentence as lines with colours for a terminal, followed by an empty line."""
    for sentence in sentences:
        yield draw(sentence, colour=True)


def draw(sentence: MarkedSentence, *, colour: bool = False) -> str:
    """Return a sentence as lines of text: its text, then its words, then an empty line."""

    def paint(text: str, style: Style) -> str:
        return style.render(text) if colour and text else text

    numbers = [str(word) for word in range(1, len(sentence) + 1)]
    surfaces = {surface.first: surface for surface in sentence.surfaces}
    any_leftward = any(map(has_leftward, (*sentence.forms, sentence.text)))
    marks = []
    for word in range(1, len(sentence) + 1):
        correction = sentence.correction(word)
        gold = "" if correction is None else f"✗ gold: {correction[1]} of {correction[0]}"
        marks.append(gold)
    notes = [
        f"{surfaces[word].first}-{surfaces[word].last} {_isolated(surfaces[word].form)}"
        if word in surfaces
        else ""
        for word in range(1, len(sentence) + 1)
    ]
    # (cells, style, aligned to the right)
    columns = [
        (numbers, [_FAINT] * len(numbers), True),
        ([_isolated(form) for form in sentence.forms], [_WORD] * len(numbers), False),
        (sentence.tags, [_FAINT] * len(numbers), False),
        (sentence.relations, [_WRONG if gold else Style() for gold in marks], False),
        (notes, [_FAINT] * len(numbers), False),
        (marks, [_GOLD] * len(numbers), False),
    ]
    rows = [paint(line, _FAINT) for line in _lines(sentence.heads)]
    for number, (cells, styles, to_right) in enumerate(columns):
        width = max(map(width_of, cells))
        if not width:
            continue
        gap = " " if number < 2 else "  "
        for i, (cell, style) in enumerate(zip(cells, styles, strict=True)):
            blank = " " * (width - width_of(cell))
            shown = paint(cell, style)
            rows[i] += gap + (blank + shown if to_right else shown + blank)
    start = _LEFT_TO_GOLD if any_leftward else ""
    title = f"# {sentence.name}: " if sentence.name else "# "
    lines = [paint(title + _isolated(sentence.text), _FAINT), *(row.rstrip() for row in rows), ""]
    return "".join(f"{start if line else ''}{line}\n" for line in lines)


def width_of(text: str) -> int:
    """Return the cells that a text takes in a terminal; marks of direction take none."""
    for mark in (_LEFT_TO_GOLD, _ISOLATE, _END):
        text = text.replace(mark, "")
    return cell_len(text)


def _isolated(text: str) -> str:
    """Return a text that keeps its own direction and does not turn what stands beside it."""
    return f"{_ISOLATE}{text}{_END}" if has_leftward(text) else text


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
