r"""Characters as the segmenter's network sees them, and a raw text in stretches of them.

A text is an array of code points. A run of whitespace is one space to the network, or one newline
if it holds a line end, so that how a text is laid out matters little:

    text          T h e _ _ e n d \r\n O . K .
    seen          T h e _   e n d \n   O . K .

Stretches, paragraphs or lines, are segmented apart. A text comes in pieces of any size. Of a
paragraph of more than MAX_STRETCH characters the beginning is given, and what follows the last
sentence that is surely whole in it is taken back.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, CodePoints, Ints
from seqtool.core.errors import DataError
from seqtool.core.reading import longest_line
from seqtool.text.characters import CATEGORIES
from seqtool.text.marks import NUM_CODES, ZERO_WIDTH_JOINER, continuing_table

Ints64 = npt.NDArray[np.int64]

SPACE, NEWLINE = ord(" "), ord("\n")
_RETURN = ord("\r")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

_FIRST_SCRIPT = 1 + len(CATEGORIES)


def code_points(text: str) -> CodePoints:
    """Return a text as an array."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def to_text(codes: CodePoints) -> str:
    """Return an array of code points as a text."""
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


@cache
def space_table() -> Bools:
    """Return which code points are whitespace, as `str.isspace` has it."""
    table = np.zeros(NUM_CODES, np.bool_)
    # there are none above the first plane
    table[[code for code in range(0x10000) if chr(code).isspace()]] = True
    return table


@cache
def _line_end_table() -> Bools:
    table = np.zeros(NUM_CODES, np.bool_)
    table[list(map(ord, _LINE_ENDS))] = True
    return table


@dataclass(frozen=True)
class Runs:
    """The runs of whitespace of a text.

    Attributes:
        begins, ends: the first place of each run, and the place after its last one.
        num_lines: how many line ends each holds; CR LF is one.
    """

    begins: Ints64
    ends: Ints64
    num_lines: Ints64


def whitespace_runs(codes: CodePoints) -> Runs:
    """Find the runs of whitespace."""
    is_space = space_table()[codes]
    changes = np.flatnonzero(np.diff(is_space, prepend=False, append=False))
    ends_line = _line_end_table()[codes]
    # of CR LF, only the LF ends the line
    ends_line[:-1] &= (codes[:-1] != _RETURN) | (codes[1:] != NEWLINE)
    before = np.concatenate(([0], np.cumsum(ends_line)))
    begins, ends = changes[::2], changes[1::2]
    return Runs(begins, ends, before[ends] - before[begins])


def seen(codes: CodePoints) -> tuple[CodePoints, Ints64]:
    """Return what the network sees of a text, and the place in the text of each character seen.

    A run of whitespace is at its first place.
    """
    runs = whitespace_runs(codes)
    kept = np.ones(len(codes), np.bool_)
    kept[space_table()[codes]] = False
    kept[runs.begins] = True
    normal = codes.copy()
    normal[runs.begins] = np.where(runs.num_lines > 0, NEWLINE, SPACE)
    return normal[kept], np.flatnonzero(kept)


class Alphabet:
    """The symbols that characters are made of: [itself, its category, its script].

    Row 0 of the embeddings is nothing; categories come next, then scripts, then characters. A
    character that was not learnt still has its category and script.
    """

    def __init__(self, scripts: Iterable[str], characters: Iterable[str]) -> None:
        self.scripts, self.characters = tuple(scripts), tuple(characters)
        self._categories = {name: 1 + row for row, name in enumerate(CATEGORIES)}
        self._scripts = {name: _FIRST_SCRIPT + row for row, name in enumerate(self.scripts)}
        first = _FIRST_SCRIPT + len(self.scripts)
        self._characters = {name: first + row for row, name in enumerate(self.characters)}

    @classmethod
    def learn(cls, codes: CodePoints, *, min_count: int) -> Alphabet:
        """Make the alphabet of a text; space and newline are always in it."""
        counts = Counter(dict(zip(*np.unique(codes, return_counts=True), strict=True)))
        characters = {chr(code) for code, count in counts.items() if count >= min_count}
        scripts = {script_of(chr(code)) for code in counts} - {""}
        return cls(sorted(scripts), sorted(characters | {" ", "\n"}))

    def __len__(self) -> int:
        """Return how many rows the embeddings have."""
        return _FIRST_SCRIPT + len(self.scripts) + len(self.characters)

    def symbols(self, codes: Iterable[int]) -> Ints:
        """Return the symbols of code points, [N, 3]."""
        rows = [
            (
                self._characters.get(character, 0),
                self._categories[unicodedata.category(character)],
                self._scripts.get(script_of(character), 0),
            )
            for character in map(chr, codes)
        ]
        return np.array(rows, np.int32).reshape(-1, 3)


@cache
def script_of(character: str) -> str:
    """Return the script of a letter or mark, the first word of its Unicode name; "" for others."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    return unicodedata.name(character, "").partition(" ")[0].partition("-")[0]


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


def line_too_long() -> DataError:
    """Return the error of a line that is longer than lines may be."""
    return DataError(
        f"a line has more than {longest_line():,} characters",
        hint="check that this is a text of lines, or raise --max-line MB",
    )


class UnitReader:
    """Cuts a text, in pieces, into stretches: paragraphs, which empty lines end, or lines.

    Args:
        pieces: of the text.
        unit: what a stretch is.
        begins_paragraph: whether a paragraph begins with the text, as with a whole one.
    """

    def __init__(
        self, pieces: Iterable[str], unit: Unit = "paragraph", *, begins_paragraph: bool = True
    ) -> None:
        self._pieces: Iterator[str] | None = iter(pieces)
        self._unit = unit
        self._rest = code_points("")
        self._found: deque[Stretch] = deque()
        self._is_first = begins_paragraph
        self.spaces = ""  # whitespace at the end of the text, once all is read

    def take(self) -> Stretch | None:
        """Return the next stretch; None at the end of the text.

        Raises:
            DataError: a line, where these are the unit, is too long.
        """
        while not self._found and self._pieces is not None:
            self._read()
        return self._found.popleft() if self._found else None

    def take_several(self, size: int) -> list[Stretch]:
        """Return the next stretches, of so many characters, or to one that is not whole."""
        taken: list[Stretch] = []
        while size > 0 and (stretch := self.take()) is not None:
            taken.append(stretch)
            size = size - len(stretch.codes) if stretch.is_whole else 0
        return taken

    def take_back(self, codes: CodePoints) -> None:
        """Put back the end of the stretch taken last, which was not whole."""
        self._rest = np.concatenate((codes, self._rest))
        self._cut()

    def _read(self) -> None:
        pieces: list[str] = []
        size = 0
        # a line is looked at once its end is there: again and again, a long one would take too long
        is_open = self._unit == "line"
        while self._pieces is not None and (size < READ or is_open):
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
                break
            pieces.append(piece)
            size += len(piece)
            is_open = is_open and "\n" not in piece
            if is_open and size > longest_line():
                raise line_too_long()
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
            # a run at the end of what was read may go on in the next piece, and is left for that
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
            # no stretch ends with whitespace: what the cut falls into stays in the rest
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
    # the last token ends a sentence, whatever its score
    for end in [*(np.flatnonzero(scores[:-1] > 0) + 1).tolist(), num]:
        while True:
            origin = token_ends[begin - 1] if begin else 0
            longest = int(np.searchsorted(token_ends, origin + MAX_SENTENCE, side="right"))
            # one token at least, so that each cut makes a sentence
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
