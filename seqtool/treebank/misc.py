r"""Column MISC: the whitespace around a token, and how probable its arc is.

    SpaceAfter=No        nothing follows
    (neither)            one space follows
    SpacesAfter=\n\n     this whitespace follows
    SpacesBefore=\s\s    this whitespace comes before the first word of a text
    SpacesInToken=a\nb   the token as it is written, where its whitespace is not single spaces
    Score=0.987          the probability that the word's head is right

Words and spaces rebuild the text (UDPipe's convention). Space, tab, CR, LF, the bar and the
backslash are written \s \t \r \n \p and two backslashes. Two comments belong to a tree, too:

    # parse_rank = 2            its rank among the k best trees of the sentence, from 1 on
    # parse_score = -1.2345     the score that ranks them
"""

from __future__ import annotations

import re

NO_SPACE = "SpaceAfter=No"
PREFIX = "parse_"  # of comments
RANK, SCORE = f"{PREFIX}rank", f"{PREFIX}score"
ITEM_BEGIN = "Score="

_ESCAPES = {" ": r"\s", "\t": r"\t", "\r": r"\r", "\n": r"\n", "|": r"\p", "\\": r"\\"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}
_TO_ESCAPE = re.compile(r"[ \t\r\n|\\]")
_ESCAPED = re.compile(r"\\[strnp\\]")
_SCORE_ITEM = re.compile(r"(?:^|\|)Score=(0(?:\.[0-9]+)?|1(?:\.0+)?)(?:\||$)")


def escaped(text: str) -> str:
    """Return a text as column MISC can hold it."""
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)


def unescaped(text: str) -> str:
    """Undo `escaped`."""
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
    """Return the whitespace before a token, the token as it is written, and what follows it."""
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


def score_in(misc: str) -> float | None:
    """Return the probability of the arc; None if the column holds none."""
    match = _SCORE_ITEM.search(misc) if ITEM_BEGIN in misc else None
    return None if match is None else float(match[1])


def with_score(misc: str, probability: float) -> str:
    """Return a column with the probability of the arc, in place of an older one."""
    return "|".join([*_other_items(misc), f"{ITEM_BEGIN}{probability:.3f}"])


def without_score(misc: str) -> str:
    """Return a column without its probability, which belongs to another tree."""
    return ("|".join(_other_items(misc)) or "_") if score_in(misc) is not None else misc


def is_of_tree(comment: str) -> bool:
    """Whether a comment is the rank or the score of a tree."""
    # the first test is for speed: few comments pass it
    return PREFIX in comment and comment[1:].partition("=")[0].strip() in (RANK, SCORE)


def _other_items(misc: str) -> list[str]:
    return [item for item in misc.split("|") if item.partition("=")[0] not in ("Score", "_")]
