"""Printed words: what a reader sees between blanks, and the parts of it that a model reads.

    text     It ran (fast), ok.
    parts    It ran ( fast ) , ok .      as the text of the model was split
    words    It ran   fast     ok        punctuation apart; or with its word: (fast), and ok.

All else between two blanks is one word: ice-cream, me@x.org, 1/5/2020, a.txt, #tag, :-).
Shapes: N parts, W words, U units: the words and the ends of lines.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.reading import LineBlocks
from seqtool.lm.alignment import Pieces, find_units
from seqtool.lm.words import ScoredWords
from seqtool.text.tokenizers import word_spans

Span = tuple[int, int]  # the first character, and the one after the last
Split = Callable[[str], list[Span]]  # a line to its parts

_SMILEY = re.compile(r"[:;=][-o^'\u2019]?[()\[\]{}|/\\DPpOoSs3*]+(?!\w)")
_OF_WORDS = frozenset("#%&*@/\\-_")  # punctuation to Unicode


@dataclass(frozen=True)
class PrintedText:
    """A line: where its words are [W], which parts they have [N], and which parts are apart [N].

    Attributes:
        text: the line.
        words: without the punctuation that is apart.
        parts: what a model reads.
        word_of: the number from 0 of the word of each part.
        is_apart: whether a part is punctuation apart from its word.
    """

    text: str
    words: list[Span]
    parts: list[Span]
    word_of: list[int]
    is_apart: list[bool]

    @property
    def as_read(self) -> str:
        """The parts with blanks between them; the text where they are its words."""
        parts = " ".join(self.text[begin:end] for begin, end in self.parts)
        return self.text if self.parts is self.words else parts


def printed_text(text: str, split: Split | None = None, *, apart: bool = False) -> PrintedText:
    """Return the words of a text; without `split`, each is one part.

    >>> printed_text("(ok).", lambda _: [(0, 1), (1, 3), (3, 4), (4, 5)], apart=True).words
    [(1, 3)]
    """
    text = re.sub(r"\s" if split else r"[\r\n]", " ", text)
    words = word_spans(text)
    parts = split(text) if split else words
    begins = [begin for begin, _ in words]
    word_of = [bisect_right(begins, begin) - 1 for begin, _ in parts]
    is_apart = [False] * len(parts)
    for number, group in groupby(range(len(parts)) if apart else (), word_of.__getitem__):
        own, smiley = [*group], _SMILEY.match(text, *words[number])
        kept = smiley.end() if smiley else 0
        mark = [parts[i][0] >= kept and _is_mark(text[slice(*parts[i])]) for i in own]
        if not all(mark):  # else the word is nothing but punctuation
            first, last = own[mark.index(False)], own[-1 - mark[::-1].index(False)]
            words[number] = parts[first][0], parts[last][1]
            for i in own:
                is_apart[i] = not first <= i <= last
    return PrintedText(text, words, parts, word_of, is_apart)


def _is_mark(part: str) -> bool:
    return all(unicodedata.category(c)[0] == "P" and c not in _OF_WORDS for c in part)


def add_parts(scored: ScoredWords, texts: Sequence[PrintedText]) -> tuple[ScoredWords, Doubles]:
    """Return printed words, whose parts were scored, and the bits of the punctuation apart, [U].

    A word has the sum of its parts; its entropy and order are those of its first part.
    """
    line_ends = not scored.units.is_word.all()
    block = b"".join(LineBlocks(each.text for each in texts))
    units = find_units(block, line_ends=line_ends)
    unit_N, apart_N, spans_U = list[int](), list[bool](), list[Span]()
    for each in texts:
        ends = [(len(each.text), len(each.text))] * line_ends
        unit_N += [
            len(spans_U) + number for number in (*each.word_of, *[len(each.words)] * line_ends)
        ]
        apart_N += [*each.is_apart, *[False] * line_ends]
        spans_U += each.words + ends
    starts, stops = np.array(spans_U, np.int64).reshape(-1, 2).T
    byte_of = np.flatnonzero((np.frombuffer(block, np.uint8) & 0xC0) != 0x80)  # of a character
    origins = np.searchsorted(byte_of, units.begins) - units.starts
    begins, ends_U = byte_of[origins + starts], byte_of[origins + stops]
    units = units._replace(begins=begins, ends=ends_U, starts=starts, stops=stops)
    apart, unit = np.array(apart_N, np.bool_), np.array(unit_N, np.int64)

    def total(values: Bools | Doubles | Longs, kept: Bools) -> Doubles:
        return np.bincount(unit[kept], values[kept], len(spans_U)).astype(np.float64)

    bits, oov, nums = scored.pieces
    pieces = Pieces(
        total(bits, ~apart), total(oov, ~apart) > 0, total(nums, ~apart).astype(np.int64)
    )
    first = np.flatnonzero(~apart)[np.searchsorted(unit[~apart], np.arange(len(spans_U)))]
    entropies = None if scored.entropies is None else scored.entropies[first]
    orders = None if scored.orders is None else scored.orders[first]
    return ScoredWords(block, units, pieces, entropies, orders), total(bits, apart)
