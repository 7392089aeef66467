"""Parsed sentences as a person or a program likes to read them.

    tree    in the terminal: a tree beside the words, one word a line
    svg     a picture: arcs above the words
    html    one page with a picture of each sentence
    json    one object a line: the words with their columns

With a gold annotation beside the predicted one, words whose head or relation (subtypes apart) is
wrong are marked in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from seqtool.core.errors import DataError
from seqtool.treebank.conllu import Sentence
from seqtool.treebank.drawing.marked import MarkedSentence, mark
from seqtool.treebank.drawing.objects import json_lines
from seqtool.treebank.drawing.page import html_page
from seqtool.treebank.drawing.picture import svg_picture
from seqtool.treebank.drawing.terminal import coloured_trees, plain_trees

Format = Literal["tree", "svg", "html", "json"]

_WRITERS: dict[str, Callable[[Iterable[MarkedSentence]], Iterator[str]]] = {
    "tree": plain_trees,
    "svg": svg_picture,
    "html": html_page,
    "json": json_lines,
}
FORMATS = tuple(_WRITERS)


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
    writer = coloured_trees if colour and format == "tree" else _WRITERS[format]
    return writer(_marked(sentences, gold))


def _marked(
    sentences: Iterable[Sentence], gold: Iterable[Sentence] | None
) -> Iterator[MarkedSentence]:
    if gold is None:
        yield from map(mark, sentences)
        return
    remaining = iter(gold)
    sentence = None
    for sentence in sentences:
        yield mark(sentence, next(remaining, None), compared=True)
    extra = next(remaining, None)
    if extra is not None:
        raise DataError(
            "the gold sentence has no counterpart",
            hint="give the gold annotation of the same sentences",
            path=extra.path or None,
            line=extra.line,
        )
