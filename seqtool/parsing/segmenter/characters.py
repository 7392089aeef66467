r"""Characters as the segmenter's network sees them.

A text is an array of code points. A run of whitespace is one space to the network, or one newline
if it holds a line end, so that how a text is laid out matters little:

    text          T h e _ _ e n d \r\n O . K .
    seen          T h e _   e n d \n   O . K .
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, CodePoints, Ints
from seqtool.parsing.encoding.features import CATEGORIES

Ints64 = npt.NDArray[np.int64]

NUM_CODES = 0x110000
SPACE, NEWLINE = ord(" "), ord("\n")
ZERO_WIDTH_JOINER = 0x200D
_RETURN = ord("\r")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_ZERO_WIDTH_NON_JOINER = 0x200C
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)

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


@cache
def continuing_table() -> Bools:
    """Return which code points never begin a word: combining marks, joiners, modifiers of emoji."""
    table = np.zeros(NUM_CODES, np.bool_)
    marks = [code for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M"]
    table[[*marks, ZERO_WIDTH_JOINER, _ZERO_WIDTH_NON_JOINER, *_SKIN_TONES, *_TAGS]] = True
    table[0xE0100:0xE01F0] = True  # variation selectors
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

    Args:
        scripts: those learnt.
        characters: those learnt.
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
        rows = []
        for code in codes:
            character = chr(code)
            rows.append(
                (
                    self._characters.get(character, 0),
                    self._categories[unicodedata.category(character)],
                    self._scripts.get(script_of(character), 0),
                )
            )
        return np.array(rows, np.int32).reshape(-1, 3)


@cache
def script_of(character: str) -> str:
    """Return the script of a letter or mark, the first word of its Unicode name; "" for others."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    return unicodedata.name(character, "").partition(" ")[0].partition("-")[0]
