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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from seqtool.core.errors import DataError
from seqtool.core.reading import STDIN, find_files, longest_line, read_blocks
from seqtool.treebank.sentence import FORM, NUM_COLUMNS, Sentence

Layout = Literal["horizontal", "vertical"]
LAYOUTS: Mapping[str, Layout] = {name: name for name in get_args(Layout)}

_BETWEEN = re.compile(r"[ \t]+")
_BLANK = re.compile(r"\s")
_REST = ("_",) * (NUM_COLUMNS - 2)


class _Words(NamedTuple):
    """The words of a sentence, and whether it begins a paragraph."""

    forms: list[str]
    is_first: bool


def read_layout(
    lines: Iterable[str], layout: Layout, *, document: str | None = None, first_number: int = 1
) -> Iterator[Sentence]:
    """Give the sentences of a document; only their FORM is there.

    Comments are newdoc with its id, newpar, sent_id, from `first_number` on, and text.

    Args:
        lines: without their ends.
        layout: see the top of this module.
        document: its id, if it has one.
        first_number: sent_id of the first sentence.

    Raises:
        DataError: when iterated: a vertical sentence that would fill the memory.
    """
    newdoc = "# newdoc" if document is None else f"# newdoc id = {document}"
    found = _horizontal(lines) if layout == "horizontal" else _vertical(lines)
    for number, (forms, is_first) in enumerate(found, start=first_number):
        comments = [newdoc] if number == first_number else []
        comments += ["# newpar"] if is_first else []
        comments += [f"# sent_id = {number}", f"# text = {' '.join(forms)}"]
        rows = [[str(place), form, *_REST] for place, form in enumerate(forms, start=1)]
        yield Sentence(comments, rows, [])


def read_layout_files(inputs: Sequence[str | Path], layout: Layout) -> Iterator[Sentence]:
    """Give the sentences of files, each a document with its name as id, in bounded memory.

    Args:
        inputs: text (.gz and .zst too), directories and `-` for stdin.
        layout: see the top of this module.

    Raises:
        DataError: when iterated: a file that is empty, no text or cannot be read.
    """
    number = 1
    for name in find_files(inputs):
        document = None if name == STDIN else name
        for sentence in read_layout(_lines(name), layout, document=document, first_number=number):
            number += 1
            yield sentence


def horizontal(sentence: Sentence) -> str:
    """Return the line of a sentence, with its end."""
    # a blank inside a word would make two of it
    return " ".join(_BLANK.sub("\u00a0", form) for form in sentence.column(FORM)) + "\n"


def vertical(sentence: Sentence) -> str:
    """Return the lines of a sentence, and the empty one behind it."""
    return "".join(f"{form}\n" for form in sentence.column(FORM)) + "\n"


def _lines(name: str) -> Iterator[str]:
    for block in read_blocks([name]):
        yield from block.decode().removesuffix("\n").split("\n")


def _form(text: str) -> str:
    """Return a word as column FORM can hold it: single spaces, and none around it."""
    return " ".join(text.split())


def _horizontal(lines: Iterable[str]) -> Iterator[_Words]:
    is_first = True
    for line in lines:
        forms = [form for text in _BETWEEN.split(line) if (form := _form(text))]
        if forms:
            yield _Words(forms, is_first)
        is_first = not forms


def _vertical(lines: Iterable[str]) -> Iterator[_Words]:
    forms: list[str] = []
    num_empty, num_characters = 2, 0  # the first sentence begins a paragraph
    for line in lines:
        if form := _form(line.partition("\t")[0]):
            forms.append(form)
            num_characters += len(form)
            if num_characters > longest_line():
                raise DataError(
                    f"no empty line in {num_characters:,} characters of words",
                    hint="end each sentence with an empty line, or raise --max-line MB",
                )
        elif forms:
            yield _Words(forms, num_empty > 1)
            forms, num_empty, num_characters = [], 1, 0
        else:
            num_empty += 1
    if forms:
        yield _Words(forms, num_empty > 1)
