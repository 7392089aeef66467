"""Words of a text that look like a special symbol: a literal `<s>`, `</s>` or `<unk>`."""

from __future__ import annotations

import re
from typing import Literal

from seqtool.core.errors import DataError
from seqtool.core.vocabulary import BOS, EOS

SpecialTokens = Literal["refuse", "unknown", "skip"]  # what `<s>` and `</s>` as words become

BLANKS = " \t\r\n"  # what separates words; a no-break space, for example, belongs to its word


def refuse_special_words(block: bytes, *symbols: str) -> None:
    """Refuse a block that holds a special symbol as a word.

    Args:
        block: whole lines.
        symbols: which ones; `<s>` and `</s>` when not given.

    Raises:
        DataError: with the line in the block.
    """
    names = [symbol.encode() for symbol in symbols or (BOS, EOS)]
    if not any(name in block for name in names):  # far faster than the pattern
        return
    wanted, blanks = b"|".join(map(re.escape, names)), BLANKS.encode()
    found = re.search(rb"(?<![^%b])(?:%b)(?![^%b])" % (blanks, wanted, blanks), block)
    if found is not None:
        raise special_word(found[0].decode(), block.count(b"\n", 0, found.start()) + 1)


def special_word(symbol: str, line: int | None = None) -> DataError:
    """Return the error that refuses a special symbol as a word, in a line of a block."""
    return DataError(
        f"the text contains the special symbol {symbol} as a word",
        hint="remove it, or prepare or train with --special-tokens unknown or skip",
        line=line,
    )
