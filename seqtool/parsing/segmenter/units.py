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

from seqtool.core.arrays import CodePoints
from seqtool.parsing.segmenter.characters import code_points, to_text, whitespace_runs

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
