"""Parsed sentences as a person or a program likes to read them.

    tree    in the terminal: a tree beside the words, one word a line
    svg     a picture: arcs above the words
    html    one page with a picture of each sentence; it needs no script, font or other file
    json    one object a line: the words with their columns

With a gold annotation beside the predicted one, words whose head or relation (subtypes apart) is
wrong are marked in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, Literal

from seqtool.core.errors import DataError, counted
from seqtool.treebank.conllu import Sentence
from seqtool.treebank.drawing.marked import MarkedSentence, mark
from seqtool.treebank.drawing.picture import STYLE, draw, opening_tag, svg_picture
from seqtool.treebank.drawing.terminal import coloured_trees, plain_trees
from seqtool.treebank.sentence import COLUMNS, DEPREL, HEAD

Format = Literal["tree", "svg", "html", "json"]

_NAMES = tuple(name.lower() for name in COLUMNS)
_PAGE_STYLE = """
body { font-family: sans-serif; margin: 2em; color: #1a1a1a; background: #fff }
section { margin-bottom: 2em; border-top: 1px solid #ddd }
h2 { font-size: 0.9em; font-weight: normal; color: #666 }
.picture { overflow-x: auto }
.errors { color: #c62828 }
""".strip()


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


def html_page(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give the page in pieces, a sentence each."""
    yield (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Dependency trees</title>\n<style>\n{_PAGE_STYLE}\n{STYLE}\n</style>\n"
        "</head>\n<body>\n"
    )
    for number, sentence in enumerate(sentences, start=1):
        picture = draw(sentence)
        errors = ""
        if sentence.gold_heads is not None:
            num = sentence.num_wrong()
            kind = ' class="errors"' if num else ""
            errors = f" · <span{kind}>{counted(num, 'wrong arc')}</span>"
        yield (
            f"<section>\n<h2>{escape(sentence.name or str(number))}{errors}</h2>\n"
            f'<p dir="auto">{escape(sentence.text)}</p>\n<div class="picture">\n'
            f"{opening_tag(picture.width, picture.height)}\n{picture.elements}</svg>\n"
            "</div>\n</section>\n"
        )
    yield "</body>\n</html>\n"


def json_lines(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give a line for each sentence: see `to_object`."""
    for sentence in sentences:
        yield json.dumps(to_object(sentence), ensure_ascii=False) + "\n"


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
        if marked.gold_heads is not None and marked.gold_relations is not None:
            columns["gold"] = {
                _NAMES[HEAD]: marked.gold_heads[word - 1],
                _NAMES[DEPREL]: marked.gold_relations[word - 1],
            }
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


_WRITERS: dict[str, Callable[[Iterable[MarkedSentence]], Iterator[str]]] = {
    "tree": plain_trees,
    "svg": svg_picture,
    "html": html_page,
    "json": json_lines,
}
FORMATS = tuple(_WRITERS)
