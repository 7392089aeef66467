r"""Whitespace in column MISC, so that words and spaces rebuild the text (UDPipe's convention).

    SpaceAfter=No        nothing follows
    (neither)            one space follows
    SpacesAfter=\n\n     this whitespace follows
    SpacesBefore=\s\s    this whitespace comes before the first word of a text
    SpacesInToken=a\nb   the token as it is written, where its whitespace is not single spaces

Space, tab, CR, LF, the bar and the backslash are written \s \t \r \n \p and two backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from seqtool.treebank.sentence import FORM, ID, MISC, Sentence

_ESCAPES = {" ": r"\s", "\t": r"\t", "\r": r"\r", "\n": r"\n", "|": r"\p", "\\": r"\\"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}
_TO_ESCAPE = re.compile(r"[ \t\r\n|\\]")
_ESCAPED = re.compile(r"\\[strnp\\]")

NO_SPACE = "SpaceAfter=No"


def escaped(text: str) -> str:
    """Return a text as column MISC can hold it."""
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)


def unescaped(text: str) -> str:
    """Return the text that `escaped` was given."""
    return _ESCAPED.sub(lambda match: _CHARACTERS[match[0]], text)


def misc_of(after: str, *, before: str = "", raw: str = "") -> str:
    """Return column MISC of a token.

    Args:
        after: the whitespace that follows.
        before: that before it, for the first token of a text.
        raw: the token as it is written, if that is not its form.
    """
    items = []
    if not after:
        items.append(NO_SPACE)
    elif after != " ":
        items.append(f"SpacesAfter={escaped(after)}")
    if before:
        items.append(f"SpacesBefore={escaped(before)}")
    if raw:
        items.append(f"SpacesInToken={escaped(raw)}")
    return "|".join(items) or "_"


def rebuild(sentences: Iterable[Sentence]) -> str:
    """Return the text that sentences were split from."""
    pieces: list[str] = []
    for sentence in sentences:
        lines = {place: line.split("\t") for place, line in sentence.extras if _is_range(line)}
        last = 0  # word of the running multiword token
        for place, row in enumerate(sentence.rows):
            if place in lines:
                row = lines[place]
                last = int(row[ID].partition("-")[2])
            elif place < last:
                continue
            misc = dict(item.partition("=")[::2] for item in row[MISC].split("|"))
            after = "" if misc.get("SpaceAfter") == "No" else " "
            if "SpacesAfter" in misc:
                after = unescaped(misc["SpacesAfter"])
            raw = unescaped(misc["SpacesInToken"]) if "SpacesInToken" in misc else row[FORM]
            pieces += [unescaped(misc.get("SpacesBefore", "")), raw, after]
    return "".join(pieces)


def _is_range(line: str) -> bool:
    return "-" in line.partition("\t")[0]
