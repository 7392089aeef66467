"""What a treebank teaches a segmenter: its tokens, and the raw text that they came from.

    form    spaced  multiword  ends  breaks
    I       yes     no         no    no
    can't   no      yes        no    no      ca + n't
    .       yes     no         yes   yes     the sentence ends, and the paragraph

A paragraph that begins inside a sentence (NewPar=Yes in MISC) is taken for a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqtool.core.arrays import Bools, CodePoints, Ints
from seqtool.parsing.segmenter.characters import code_points
from seqtool.treebank.sentence import DEPREL, FORM, ID, MISC, UPOS, Sentence

LINE_WIDTH = 80  # of the raw texts that Universal Dependencies publishes
_DIGITS = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Token:
    """A surface token: what stands in the text as one piece.

    Attributes:
        form: as it is written, or with single spaces where it has whitespace.
        words: those that it is split into; () for itself.
        spaced: whether whitespace follows.
        tags: part of speech and relation, without its subtype, of each of its words.
    """

    form: str
    words: tuple[str, ...]
    spaced: bool
    tags: tuple[tuple[str, str], ...]

    @property
    def tag(self) -> str:
        """Those as one text: ADP/case+DET/det."""
        return "+".join(map("/".join, self.tags))


def surface_tokens(sentence: Sentence) -> Iterator[Token]:
    """Give the tokens of a sentence, a multiword token in place of its words."""
    ranges = {}
    for position, line in sentence.extras:
        columns = line.split("\t")
        first, dash, last = columns[ID].partition("-")
        if dash:
            ranges[position] = (columns, int(last) - int(first) + 1)
    word = 0
    while word < len(sentence.rows):
        row = sentence.rows[word]
        if word in ranges:
            row, count = ranges[word]
            inner = sentence.rows[word : word + count]
            words = tuple(columns[FORM] for columns in inner)
        else:
            count, inner, words = 1, [row], ()
        word += count
        spaced = "SpaceAfter=No" not in row[MISC].split("|")
        yield Token(row[FORM], words, spaced, tuple(map(_tags, inner)))


def _tags(row: Sequence[str]) -> tuple[str, str]:
    return row[UPOS], row[DEPREL].partition(":")[0]


def begins_paragraph(sentence: Sentence) -> bool:
    """Whether a paragraph or a document begins with the sentence."""
    return any(
        comment.removeprefix("#").split(maxsplit=1)[:1] in (["newpar"], ["newdoc"])
        for comment in sentence.comments
    )


@dataclass(frozen=True)
class GoldText:
    """The tokens of a treebank, N of them, of C characters in all.

    Attributes:
        codes: their characters, one after another, [C].
        lengths: characters of each, [N].
        forms: each one's number in the lexicon, 0 for none, [N].
        tags: the number of each one's tag, [N].
        spaced, multiword, ends, breaks: see above, [N].
    """

    codes: CodePoints
    lengths: Ints
    forms: Ints
    tags: Ints
    spaced: Bools
    multiword: Bools
    ends: Bools
    breaks: Bools

    @property
    def num_tags(self) -> int:
        """How many tags there are."""
        return int(self.tags.max()) + 1

    @property
    def num_sentences(self) -> int:
        """How many sentences there are."""
        return int(self.ends.sum())


def gold_text(sentences: Sequence[Sentence], lexicon: dict[str, int]) -> GoldText:
    """Gather the tokens of sentences.

    Args:
        sentences: in the order of the text.
        lexicon: folded form -> number from 1 on.
    """
    tokens: list[Token] = []
    ends: list[int] = []
    breaks: list[int] = []
    for number, sentence in enumerate(sentences):
        if number and begins_paragraph(sentence):
            breaks.append(len(tokens) - 1)
        tokens.extend(surface_tokens(sentence))
        ends.append(len(tokens) - 1)
    breaks.append(len(tokens) - 1)
    is_end, is_break = np.zeros((2, len(tokens)), np.bool_)
    is_end[ends] = True
    is_break[breaks] = True
    forms = [token.form for token in tokens]
    _, tags = np.unique([token.tag for token in tokens], return_inverse=True)
    return GoldText(
        codes=code_points("".join(forms)),
        lengths=np.array([len(form) for form in forms], np.int32),
        forms=np.array([lexicon.get(fold(form), 0) for form in forms], np.int32),
        tags=tags.astype(np.int32),
        spaced=np.array([token.spaced for token in tokens], np.bool_),
        multiword=np.array([bool(token.words) for token in tokens], np.bool_),
        ends=is_end,
        breaks=is_break,
    )


def fold(form: str) -> str:
    """Return a form as the lexicon has it: in lower case, digits as 0."""
    return form if form.isalpha() and form.islower() else _DIGITS.sub("0", form.lower())


def raw_text(sentences: Iterable[Sentence], *, width: int | None = LINE_WIDTH) -> str:
    """Return the text of a treebank, as Universal Dependencies publishes it.

    Paragraphs and documents are apart by a blank line; inside, lines are broken at spaces.

    Args:
        sentences: in the order of the text.
        width: characters of a line; None leaves each paragraph on one.
    """
    paragraphs: list[list[str]] = []
    for sentence in sentences:
        if not paragraphs or begins_paragraph(sentence):
            paragraphs.append([])
        pieces = paragraphs[-1]
        pieces.extend(token.form + " " * token.spaced for token in surface_tokens(sentence))
    texts = ["".join(pieces).rstrip() for pieces in paragraphs]
    if width is not None:
        texts = [_wrapped(text, width) for text in texts]
    return "\n\n".join(texts) + "\n"


def _wrapped(text: str, width: int) -> str:
    lines: list[str] = []
    begin, space = 0, -1
    for place, character in enumerate(text):
        if place - begin > width and space > begin:
            lines.append(text[begin:space])
            begin = space + 1
        if character == " ":
            space = place
    return "\n".join((*lines, text[begin:]))
