"""A raw text in stretches that are segmented apart: paragraphs, or lines.

A text comes in pieces of any size. Of a paragraph of more than MAX_STRETCH characters the beginning
is given, and what follows the last sentence that is surely whole in it is taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, CodePoints
from seqtool.parsing.segmenter.characters import (
    ZERO_WIDTH_JOINER,
    code_points,
    continuing_table,
    space_table,
    to_text,
    whitespace_runs,
)

Unit = Literal["paragraph", "line"]

MAX_STRETCH = 1 << 16  # characters of a paragraph that are given together
READ = 1 << 16  # characters that are read at a time, at least
PARAGRAPH_LINES = 2  # line ends in a run of whitespace that parts paragraphs


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of text that no sentence goes beyond.

    Attributes:
        codes: its characters, one or more, without whitespace at its ends.
        before: the whitespace before it.
        begins_paragraph: whether a paragraph begins with it.
        is_whole: whether it ends where a unit does; if not, its last sentence may go on.
    """

    codes: CodePoints
    before: str
    begins_paragraph: bool
    is_whole: bool = True


class UnitReader:
    """Cuts a text into stretches.

    Args:
        pieces: of the text, in order.
        unit: a paragraph ends with an empty line, a line with its line end.
    """

    def __init__(self, pieces: Iterable[str], unit: Unit = "paragraph") -> None:
        self._pieces: Iterator[str] | None = iter(pieces)
        self._unit = unit
        self._rest = code_points("")
        self._found: deque[Stretch] = deque()
        self._is_first = True
        self.spaces = ""  # whitespace at the end of the text, once all is read

    def take(self) -> Stretch | None:
        """Return the next stretch; None at the end of the text."""
        while not self._found and self._pieces is not None:
            self._read()
        return self._found.popleft() if self._found else None

    def take_back(self, codes: CodePoints) -> None:
        """Put back the end of the stretch taken last, which was not whole."""
        self._rest = np.concatenate((codes, self._rest))
        self._cut()

    def _read(self) -> None:
        pieces: list[str] = []
        size = 0
        while self._pieces is not None and size < READ:
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
            else:
                pieces.append(piece)
                size += len(piece)
        self._rest = np.concatenate((self._rest, code_points("".join(pieces))))
        self._cut()

    def _cut(self) -> None:
        """Give what is there of the stretches; a paragraph that is too long is the last of them."""
        codes, is_end = self._rest, self._pieces is None
        runs = whitespace_runs(codes)
        # lines between the text and what comes before it, and where it begins
        lines, begin, used = 0, 0, 0
        least = PARAGRAPH_LINES if self._unit == "paragraph" else 1
        for run_begin, run_end, num_lines in zip(
            runs.begins.tolist(), runs.ends.tolist(), runs.num_lines.tolist(), strict=True
        ):
            if run_begin == 0:
                lines, begin = num_lines, run_end
            elif num_lines >= least and (run_end < len(codes) or is_end):
                if not self._give(used, begin, run_begin, lines):
                    return
                lines, begin, used = num_lines, run_end, run_begin
        # the text after the last run that ends a unit, without whitespace at its end
        end = len(codes)
        if len(runs.ends) and runs.ends[-1] == end:
            end = max(begin, int(runs.begins[-1]))
        if begin < end and (is_end or self._is_too_long(end - begin)):
            if not self._give(used, begin, end, lines):
                return
            used = end
        self._rest = codes[used:]
        if is_end:
            self.spaces = to_text(self._rest)

    def _is_too_long(self, size: int) -> bool:
        return self._unit == "paragraph" and size > MAX_STRETCH

    def _give(self, used: int, begin: int, end: int, lines: int) -> bool:
        """Give a unit, after the whitespace before it; return False if only its beginning."""
        codes = self._rest
        is_whole = not self._is_too_long(end - begin)
        if not is_whole:
            end = begin + MAX_STRETCH
            runs = whitespace_runs(codes[begin:end])
            if len(runs.ends) and runs.ends[-1] == MAX_STRETCH:
                end = begin + int(runs.begins[-1])
            self._rest = codes[end:]
        self._found.append(
            Stretch(
                codes[begin:end],
                to_text(codes[used:begin]),
                self._is_first or lines >= PARAGRAPH_LINES,
                is_whole,
            )
        )
        self._is_first = False
        return is_whole


MAX_WORD = 1000  # characters
MAX_SENTENCE = 1 << 15  # characters


def may_end(codes: CodePoints) -> Bools:
    """After which characters a token may end: not before a combining mark, nor in an emoji."""
    following = np.append(codes[1:], np.uint32(ord(" ")))
    joined = (codes == ZERO_WIDTH_JOINER) & ~space_table()[following]
    barred: Bools = continuing_table()[following] | joined | space_table()[codes]
    return ~barred


def sentence_ends(
    scores: npt.NDArray[np.float32],
    spaced: Bools,
    token_ends: npt.NDArray[np.int64],
    max_words: int,
) -> list[int]:
    """Return the number of the token after each sentence, ascending; the last is that of tokens.

    A sentence of more than `max_words` tokens, or MAX_SENTENCE characters, ends in its later half
    where its end is likeliest, at whitespace if there is any.

    Args:
        scores: of tokens: above 0 where a sentence ends.
        spaced: whether whitespace follows each.
        token_ends: the place in the text after each.
        max_words: see above.
    """
    num = len(scores)
    ends: list[int] = []
    begin = 0
    for end in [*(np.flatnonzero(scores[:-1] > 0) + 1).tolist(), num]:
        while True:
            origin = token_ends[begin - 1] if begin else 0
            longest = int(np.searchsorted(token_ends, origin + MAX_SENTENCE, side="right"))
            limit = min(begin + max_words, max(begin + 1, longest))
            if end <= limit:
                break
            later = np.arange(begin + (limit - begin) // 2, limit)
            at_spaces = later[spaced[later]]
            later = at_spaces if len(at_spaces) else later
            begin = int(later[np.argmax(scores[later])]) + 1
            ends.append(begin)
        ends.append(end)
        begin = end
    return ends
