r"""Sentences as words alone: a sentence a line, or a word a line, as UDPipe names these layouts.

    horizontal   The dog sleeps .         vertical   The
                 It dreams .                         dog
                                                     sleeps
                                                     .

                                                     It

Horizontal: spaces between words, a no-break space for a blank inside one; an empty line begins a
paragraph. Vertical: an empty line between sentences, two before a paragraph; what follows a tab is
not read. Words have nothing but their form, and one space between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal, get_args

from seqtool.core.errors import DataError
from seqtool.core.reading import longest_line
from seqtool.treebank.sentence import FORM, NUM_COLUMNS, Sentence

Layout = Literal["horizontal", "vertical"]
LAYOUTS: Mapping[str, Layout] = {name: name for name in get_args(Layout)}

_BETWEEN = re.compile(r"[ \t]+")
_BLANK = re.compile(r"\s")
_REST = ("_",) * (NUM_COLUMNS - 2)
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")


def begins_text(comment: str) -> bool:
    """Return whether a comment says that a paragraph or a document begins."""
    return comment.removeprefix("#").split(maxsplit=1)[:1] in (["newpar"], ["newdoc"])


def newdoc(document: str | None) -> list[str]:
    """Return the comment that begins a document, of this id if it has one."""
    return ["# newdoc" if document is None else f"# newdoc id = {document_id(document)}"]


def document_id(name: str) -> str:
    """Return the name of a file as the id of a document, which a comment can hold.

    Bytes that are not UTF-8, and line ends, are escaped as in Python.
    """
    name = name.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), name)


def read_layout(
    lines: Iterable[str],
    layout: Layout,
    *,
    document: str | None = None,
    first_number: int = 1,
    goes_on: bool = False,
) -> Iterator[Sentence]:
    """Give the sentences of a document; only their FORM is there.

    Comments are newdoc with its id, newpar, sent_id, from `first_number` on, and text.

    Args:
        lines: without their ends.
        layout: see the top of this module.
        document: its id, if it has one.
        first_number: sent_id of the first sentence.
        goes_on: the lines are a later part of the document, in the midst of a paragraph.

    Raises:
        DataError: when iterated: a vertical sentence that would fill the memory.
    """
    comments = [] if goes_on else newdoc(document)
    sentences = (_horizontal if layout == "horizontal" else _vertical)(lines, not goes_on)
    for number, (forms, is_first) in enumerate(sentences, start=first_number):
        comments += ["# newpar"] if is_first else []
        comments += [f"# sent_id = {number}", f"# text = {' '.join(forms)}"]
        rows = [[str(place), form, *_REST] for place, form in enumerate(forms, start=1)]
        yield Sentence(comments, rows, [])
        comments = []


def horizontal(sentence: Sentence) -> str:
    """Return the line of a sentence, with its end."""
    # a blank inside a word would make two of it
    return " ".join(_BLANK.sub("\u00a0", form) for form in sentence.column(FORM)) + "\n"


def vertical(sentence: Sentence) -> str:
    """Return the lines of a sentence, and the empty one behind it."""
    return "".join(f"{form}\n" for form in sentence.column(FORM)) + "\n"


def _horizontal(lines: Iterable[str], is_first: bool) -> Iterator[tuple[list[str], bool]]:
    """Give the words of each sentence, and whether it begins a paragraph."""
    for line in lines:
        # a word has single spaces, and none around it
        forms = [" ".join(form) for text in _BETWEEN.split(line) if (form := text.split())]
        if forms:
            yield forms, is_first
        is_first = not forms


def _vertical(lines: Iterable[str], is_first: bool) -> Iterator[tuple[list[str], bool]]:
    forms: list[str] = []
    num_empty, num_characters = 2 if is_first else 1, 0
    for line in chain(lines, [""]):
        if form := " ".join(line.partition("\t")[0].split()):
            forms.append(form)
            num_characters += len(form)
            if num_characters > longest_line():
                raise DataError(
                    f"no empty line in {num_characters:,} characters of words",
                    hint="end each sentence with an empty line, or raise --max-line MB",
                )
        elif forms:
            yield forms, num_empty > 1
            forms, num_empty, num_characters = [], 1, 0
        else:
            num_empty += 1
