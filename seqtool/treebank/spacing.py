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

NO_SPACE = "SpaceAfter=No"

_ESCAPES = {" ": r"\s", "\t": r"\t", "\r": r"\r", "\n": r"\n", "|": r"\p", "\\": r"\\"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}
_TO_ESCAPE = re.compile(r"[ \t\r\n|\\]")
_ESCAPED = re.compile(r"\\[strnp\\]")


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


def written(form: str, misc: str) -> tuple[str, str, str]:
    """Return what is before a token, the token as it is written, and what follows it.

    The token is given by columns FORM and MISC.
    """
    if misc == "_":
        return "", form, " "
    if misc == NO_SPACE:
        return "", form, ""
    items = dict(item.partition("=")[::2] for item in misc.split("|"))
    after = "" if items.get("SpaceAfter") == "No" else " "
    if "SpacesAfter" in items:
        after = unescaped(items["SpacesAfter"])
    raw = unescaped(items["SpacesInToken"]) if "SpacesInToken" in items else form
    return unescaped(items.get("SpacesBefore", "")), raw, after
