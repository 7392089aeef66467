"""Characters that never begin a word: combining marks, joiners, modifiers of emoji."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np

from seqtool.core.arrays import Bools

NUM_CODES = 0x110000
ZERO_WIDTH_JOINER = 0x200D
_ZERO_WIDTH_NON_JOINER = 0x200C
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)


@cache
def continuing_table() -> Bools:
    """Return which code points never begin a word, [NUM_CODES]."""
    table = np.zeros(NUM_CODES, np.bool_)
    # above these, Unicode has no marks but the variation selectors below
    codes = [code for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M"]
    table[[*codes, ZERO_WIDTH_JOINER, _ZERO_WIDTH_NON_JOINER, *_SKIN_TONES, *_TAGS]] = True
    table[0xE0100:0xE01F0] = True  # variation selectors
    return table


@cache
def continuing_class() -> str:
    """Return the same characters as ranges, for between the brackets of a regular expression."""
    changes = np.flatnonzero(np.diff(continuing_table(), prepend=False, append=False)).tolist()
    pairs = zip(changes[::2], changes[1::2], strict=True)
    return "".join(f"{chr(begin)}-{chr(end - 1)}" for begin, end in pairs)
