"""Sentences as one HTML page that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from seqtool.core.errors import counted
from seqtool.treebank.drawing.marked import MarkedSentence
from seqtool.treebank.drawing.picture import STYLE, draw, opening_tag

_PAGE_STYLE = """
body { font-family: sans-serif; margin: 2em; color: #1a1a1a; background: #fff }
section { margin-bottom: 2em; border-top: 1px solid #ddd }
h2 { font-size: 0.9em; font-weight: normal; color: #666 }
.picture { overflow-x: auto }
.errors { color: #c62828 }
""".strip()


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
