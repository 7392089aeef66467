"""Parsed sentences as a person or a program likes to read them.

    tree    in the terminal: a tree beside the words, one word a line
    svg     a picture: arcs above the words
    html    one page with a picture of each sentence; it needs no font or other file
    tikz    a LaTeX document for the package tikz-dependency
    json    one object a line: the words with their columns

With a gold annotation beside the predicted one, words whose head or relation (subtypes apart) is
wrong are marked in all of them. Of several analyses of the same sentences without a gold one, it is
the words in which they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import zip_longest
from typing import Any, Literal, get_args

from seqtool.core.errors import DataError, counted
from seqtool.core.terminal import json_text
from seqtool.treebank.drawing.marked import (
    Group,
    MarkedSentence,
    columns_of,
    fault_of,
    mark,
    mark_together,
    printable,
)
from seqtool.treebank.drawing.page import page
from seqtool.treebank.drawing.picture import draw, opening_tag, svg_document
from seqtool.treebank.drawing.style import CLASS, DARK, LIGHT, STYLE
from seqtool.treebank.drawing.textual import tree_lines
from seqtool.treebank.drawing.tikz import tikz_document
from seqtool.treebank.misc import RANK, SCORE
from seqtool.treebank.sentence import COLUMNS, DEPREL, Sentence

Format = Literal["tree", "svg", "html", "tikz", "json"]

_NAMES = tuple(name.lower() for name in COLUMNS)
# of what a notebook shows
MAX_DRAWN = 8  # sentences
MAX_ROWS = 40  # lines of a sentence without a tree


def render_groups(
    groups: Iterable[Group],
    format: Format,
    *,
    beside: bool = False,
    down: bool = False,
    colour: bool = False,
) -> Iterator[str]:
    """Give the text of sentences in pieces, to be written one after another.

    Memory does not grow with the sentences but for `svg`, whose first line needs its height.

    Args:
        groups: the analyses of each sentence, as `grouped` gives them.
        format: one of `FORMATS`.
        beside: analyses stand side by side; in JSON they always follow one another.
        down: in SVG and HTML, words stand below one another.
        colour: colour trees for a terminal.
    """
    match format:
        case "tree":
            return tree_lines(groups, beside=beside, colour=colour)
        case "svg":
            return svg_document(groups, beside=beside, down=down)
        case "html":
            return page(groups, beside=beside, down=down)
        case "tikz":
            return tikz_document(groups, beside=beside)
        case "json":
            return (json_text(to_object(each)) + "\n" for group in groups for each in group)


def grouped(
    analyses: Sequence[Iterable[Sentence]],
    names: Sequence[str],
    gold: Iterable[Sentence] | None = None,
) -> Iterator[Group]:
    """Give the analyses of each sentence, marked where they are wrong or differ.

    Args:
        analyses: sentences with trees, the same ones in each; taken one after another.
        names: of the analyses; a single one needs none.
        gold: the same sentences with the trees to compare with.

    Raises:
        DataError: when iterated: sentences are missing or have other words, or heads are no tree.
    """
    sides = [*analyses, *([] if gold is None else [gold])]
    shown = names if len(names) > 1 else [""]
    called = [*(name or "the analysis" for name in names), "the gold annotation"]
    for row in zip_longest(*sides):
        if None in row:
            given = "analyses" if gold is None else "the gold annotation"
            message = f"{called[row.index(None)]} has no such sentence"
            raise fault_of(next(each for each in row if each is not None), message, given)
        yield mark_together(row[: len(names)], shown, None if gold is None else row[-1])


def inline_html(sentences: Sequence[Sentence]) -> str:
    """Return the first sentences as a piece of HTML, for a notebook: its styles stay inside.

    A sentence that has no tree is shown as its columns.
    """
    drawn = [_inline(sentence) for sentence in sentences[:MAX_DRAWN]]
    if len(sentences) > MAX_DRAWN:
        drawn.append(f"<p>{counted(len(sentences) - MAX_DRAWN, 'more sentence')}</p>\n")
    # a notebook may be light while the screen is dark: the pictures bring their ground with them
    light, dark = (f".{CLASS} {{ background: {look['paper']} }}" for look in (LIGHT, DARK))
    darkened = f"@media (prefers-color-scheme: dark) {{ {dark} }}"
    style = f"<style>\n{STYLE}\n{light}\n{darkened}\n</style>\n"
    return f'<div class="{CLASS}-page">\n{style}{"".join(drawn)}</div>\n'


def _inline(sentence: Sentence) -> str:
    text = f'<p dir="auto">{escape(printable(sentence.text))}</p>\n'
    try:
        picture = draw(mark(sentence))
    except DataError:  # no tree, or none yet
        lines = columns_of(sentence).split("\n")
        more = ["..."] if len(lines) > MAX_ROWS else []
        return f"{text}<pre>{escape(chr(10).join(lines[:MAX_ROWS] + more))}</pre>\n"
    side = "rtl" if picture.leftward else "ltr"
    return (
        f'{text}<div dir="{side}" style="overflow-x: auto">\n'
        f"{opening_tag(picture.width, picture.height)}\n{picture.elements}</svg>\n</div>\n"
    )


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
    word has `gold` (head and deprel) and `wrong`; of several analyses, `differs`, and the sentence
    has the name of its own as `source`.
    """
    sentence = marked.sentence
    words = []
    for word, row in enumerate(sentence.rows, start=1):
        columns: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
        columns["id"], columns["head"] = word, marked.heads[word - 1]
        if marked.gold is not None:
            columns["gold"] = dict(zip(("head", "deprel"), marked.gold[word - 1], strict=True))
            columns["wrong"] = marked.correction(word) is not None
        if marked.source:
            columns["differs"] = word in marked.differing
        words.append(columns)
    result: dict[str, Any] = {"id": marked.name or None, "text": marked.text, "words": words}
    if marked.source:
        result["source"] = marked.source
    for position, line in sentence.extras:
        columns = dict(zip(_NAMES, line.split("\t"), strict=True))
        first, dash, last = columns["id"].partition("-")
        if dash:
            token = {**columns, "first": int(first), "last": int(last)}
            result.setdefault("multiword_tokens", []).append(token)
        else:
            result.setdefault("empty_nodes", []).append({**columns, "after": position})
    return result


FORMATS: tuple[Format, ...] = get_args(Format)
