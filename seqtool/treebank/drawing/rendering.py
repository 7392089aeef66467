"""Parsed sentences as a person or a program likes to read them.

    tree    in the terminal: a tree beside the words, one word a line
    svg     a picture: arcs above the words
    html    one page with a picture of each sentence; it needs no script, font or other file
    json    one object a line: the words with their columns

With a gold annotation beside the predicted one, words whose head or relation (subtypes apart) is
wrong are marked in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import repeat
from typing import Any, Literal

from rich.style import Style

from seqtool.core.errors import DataError, counted
from seqtool.core.terminal import json_text
from seqtool.treebank.drawing.marked import (
    LEFT_TO_RIGHT,
    MarkedSentence,
    fault_of,
    has_leftward,
    isolated,
    mark,
    printable,
    width_of,
)
from seqtool.treebank.drawing.picture import (
    STYLE,
    draw,
    opening_tag,
    style_inside,
    svg_picture,
)
from seqtool.treebank.scores import RANK, SCORE
from seqtool.treebank.sentence import COLUMNS, DEPREL, Sentence

Format = Literal["tree", "svg", "html", "json"]

_NAMES = tuple(name.lower() for name in COLUMNS)
_PAGE_STYLE = """
body { font-family: sans-serif; margin: 2em; color: #1a1a1a; background: #fff }
section { margin-bottom: 2em; border-top: 1px solid #ddd }
h2 { font-size: 0.9em; font-weight: normal; color: #666 }
.picture { overflow-x: auto }
.errors { color: #c62828 }
""".strip()

# of what a notebook shows
INLINE = "seqtool-tree"  # class of the pictures
MAX_DRAWN = 8  # sentences
MAX_ROWS = 40  # words of a sentence without a tree

_FAINT = Style(dim=True)
_WORD = Style(bold=True)
_WRONG = Style(color="red")
_GOLD = Style(color="green")


def render(
    sentences: Iterable[Sentence],
    format: Format,
    *,
    gold: Iterable[Sentence] | None = None,
    colour: bool = False,
) -> Iterator[str]:
    """Give the text of parsed sentences in pieces, to be written one after another.

    Memory does not grow with the sentences but for `svg`, whose first line needs its height.

    Args:
        sentences: with trees; taken one after another.
        format: one of `FORMATS`.
        gold: the same sentences with the trees to compare with.
        colour: colour trees for a terminal.

    Raises:
        DataError: when iterated: the gold sentences have other words, or heads are no tree.
    """
    marked = _marked(sentences, gold)
    return _trees(marked, colour=colour) if format == "tree" else _WRITERS[format](marked)


def _marked(
    sentences: Iterable[Sentence], gold: Iterable[Sentence] | None
) -> Iterator[MarkedSentence]:
    if gold is None:
        yield from map(mark, sentences)
        return
    remaining = iter(gold)
    for sentence in sentences:
        counterpart = next(remaining, None)
        if counterpart is None:
            raise fault_of(sentence, "there is no gold sentence for this one")
        yield mark(sentence, counterpart)
    for extra in remaining:
        raise fault_of(extra, "the gold sentence has no counterpart")


def inline_html(sentences: Sequence[Sentence]) -> str:
    """Return the first sentences as a piece of HTML, for a notebook: its styles stay inside.

    A sentence that has no tree is shown as a table of its columns.
    """
    drawn = [_inline(sentence) for sentence in sentences[:MAX_DRAWN]]
    if len(sentences) > MAX_DRAWN:
        drawn.append(f"<p>{counted(len(sentences) - MAX_DRAWN, 'more sentence')}</p>\n")
    style = f"<style>\n{style_inside(INLINE)}\n.{INLINE} {{ background: #fff }}\n</style>\n"
    return f'<div class="{INLINE}-page">\n{style}{"".join(drawn)}</div>\n'


def _inline(sentence: Sentence) -> str:
    direction = '<p dir="auto">{}</p>\n'
    try:
        marked = mark(sentence)
    except DataError:  # no tree, or none yet
        rows = [sentence.rows[i] for i in range(min(len(sentence), MAX_ROWS))]
        used = [
            index
            for index, name in enumerate(COLUMNS)
            if name in ("ID", "FORM") or any(row[index] != "_" for row in rows)
        ]
        cells = [[printable(row[index]) for index in used] for row in rows]
        if len(sentence) > len(rows):
            cells.append(["..."] * len(used))
        lines = _table_row("th", [COLUMNS[index] for index in used])
        lines += "".join(_table_row("td", row) for row in cells)
        return direction.format(escape(printable(sentence.text))) + f"<table>\n{lines}</table>\n"
    picture = draw(marked)
    return (
        f'{direction.format(escape(marked.text))}<div style="overflow-x: auto">\n'
        f"{opening_tag(picture.width, picture.height, INLINE)}\n{picture.elements}</svg>\n"
        "</div>\n"
    )


def _table_row(tag: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>\n"


def _html_page(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give the page in pieces, a sentence each."""
    yield (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Dependency trees</title>\n<style>\n{_PAGE_STYLE}\n{STYLE}\n</style>\n"
        "</head>\n<body>\n"
    )
    for number, sentence in enumerate(sentences, start=1):
        picture = draw(sentence)
        rank = f" · {escape(sentence.rank)}" if sentence.rank else ""
        errors = ""
        if sentence.gold is not None:
            num = sentence.num_wrong()
            kind = ' class="errors"' if num else ""
            errors = f" · <span{kind}>{counted(num, 'wrong arc')}</span>"
        yield (
            f"<section>\n<h2>{escape(sentence.name or str(number))}{rank}{errors}</h2>\n"
            f'<p dir="auto">{escape(sentence.text)}</p>\n<div class="picture">\n'
            f"{opening_tag(picture.width, picture.height)}\n{picture.elements}</svg>\n"
            "</div>\n</section>\n"
        )
    yield "</body>\n</html>\n"


def _json_lines(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give a line for each sentence: see `to_object`."""
    for sentence in sentences:
        yield json_text(to_object(sentence)) + "\n"


def ranked_json(groups: Iterable[Sequence[Sentence]]) -> Iterator[str]:
    """Give a line for each sentence of which there are several trees, the best one first.

    `words` have the best tree (`to_object`), and `trees` all of them: `rank`, `score`, and `heads`
    and `deprels` of the words.

    Args:
        groups: of each sentence copies with its trees, and comments with rank and score.

    Raises:
        DataError: when iterated: heads are no tree.
    """
    for trees in groups:
        ranked = [
            {
                "rank": int(tree.metadata[RANK] or 0),
                "score": float(tree.metadata[SCORE] or 0),
                "heads": tree.heads(),
                "deprels": tree.column(DEPREL),
            }
            for tree in trees
        ]
        yield json_text({**to_object(mark(trees[0])), "trees": ranked}) + "\n"


def to_object(marked: MarkedSentence) -> dict[str, Any]:
    """Return a sentence as an object.

    `id` (null without one) and `text`; `words` with their ten columns under lower-case names, `id`
    and `head` as numbers, the others as they were read, `_` where there is nothing;
    `multiword_tokens` and `empty_nodes` where there are any. Compared with a gold annotation, a
    word has `gold` (head and deprel) and `wrong`.
    """
    sentence = marked.sentence
    words = []
    for word, row in enumerate(sentence.rows, start=1):
        columns: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
        columns["id"], columns["head"] = word, marked.heads[word - 1]
        if marked.gold is not None:
            columns["gold"] = dict(zip(("head", "deprel"), marked.gold[word - 1], strict=True))
            columns["wrong"] = marked.correction(word) is not None
        words.append(columns)
    result: dict[str, Any] = {"id": marked.name or None, "text": marked.text, "words": words}
    for position, line in sentence.extras:
        columns = dict(zip(_NAMES, line.split("\t"), strict=True))
        first, dash, last = columns["id"].partition("-")
        if dash:
            token = {**columns, "first": int(first), "last": int(last)}
            result.setdefault("multiword_tokens", []).append(token)
        else:
            result.setdefault("empty_nodes", []).append({**columns, "after": position})
    return result


def _trees(sentences: Iterable[MarkedSentence], *, colour: bool = False) -> Iterator[str]:
    """Give each sentence as its text, a line for each word, and an empty line."""

    def paint(text: str, style: Style) -> str:
        return style.render(text) if colour and text else text

    for sentence in sentences:
        words = range(1, len(sentence) + 1)
        notes = {s.first: f"{s.first}-{s.last} {isolated(s.form)}" for s in sentence.surfaces}
        marks = [
            "" if gold is None else f"✗ gold: {gold[1]} of {gold[0]}"
            for gold in map(sentence.correction, words)
        ]
        relation_styles = [_WRONG if gold else Style() for gold in marks]
        # (cells, styles, aligned to the right)
        columns = [
            (list(map(str, words)), repeat(_FAINT), True),
            (list(map(isolated, sentence.forms)), repeat(_WORD), False),
            (sentence.tags, repeat(_FAINT), False),
            (sentence.relations, relation_styles, False),
            ([notes.get(word, "") for word in words], repeat(_FAINT), False),
            (marks, repeat(_GOLD), False),
        ]
        rows = [paint(line, _FAINT) for line in _lines(sentence.heads)]
        for number, (cells, styles, to_right) in enumerate(columns):
            width = max(map(width_of, cells))
            if not width:
                continue
            gap = " " if number < 2 else "  "
            for i, (cell, style) in enumerate(zip(cells, styles, strict=False)):
                blank = " " * (width - width_of(cell))
                shown = paint(cell, style)
                rows[i] += gap + (blank + shown if to_right else shown + blank)
        any_leftward = any(map(has_leftward, (*sentence.forms, sentence.text)))
        start = LEFT_TO_RIGHT if any_leftward else ""
        name = sentence.name + (f" ({sentence.rank})" if sentence.rank else "")
        title = f"# {name.strip()}: " if name else "# "
        lines = [paint(title + isolated(sentence.text), _FAINT), *(row.rstrip() for row in rows)]
        yield "".join(f"{start}{line}\n" for line in lines) + "\n"


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


_WRITERS: dict[str, Callable[[Iterable[MarkedSentence]], Iterator[str]]] = {
    "tree": _trees,
    "svg": svg_picture,
    "html": _html_page,
    "json": _json_lines,
}
FORMATS = tuple(_WRITERS)
