"""Tokens and sentences without a model: by rules that serve any language, or by spaces and lines.

Word breaks are near UAX #29. Tokens: whitespace parts them. A run of letters, marks and digits is
one, with apostrophes inside it and points, commas and colons between its digits. Han, Hiragana,
Thai, Lao, Khmer, Burmese and Tibetan, which are written without spaces, are a token for each
character with its marks; a run of Katakana is one. An address (www., http://, name@host), a series
of letters with points (U.S.), a single letter or a title with its point (J., Dr.) is one. Any other
character is a token, an emoji with all that belongs to it, and a run of the same one (..., --).
Sentences end after a run of . ! ? and their like in other scripts, and the quotation marks and
brackets that close right after it, if whitespace and then no small letter follows; after marks as
wide as a Chinese character, at once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from seqtool.core.arrays import CodePoints
from seqtool.parsing.segmenter.characters import MAX_WORD, sentence_ends, to_text
from seqtool.parsing.segmenter.config import SENTENCE_WORDS
from seqtool.parsing.segmenter.data import TokenWords
from seqtool.text.marks import continuing_class

# letters each of which is a token
_SINGLE = (
    "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
)
_KATAKANA = "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_TITLES = "Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Mme|Sra|Hr|Fr|No|vs"
_WIDE_ENDS = frozenset("\u3002\uff01\uff1f\uff61\uff0e")
_ENDS = _WIDE_ENDS | frozenset(
    ".!?\u2026\u0589\u061f\u06d4\u0964\u0965\u1362\u1367\u166e\u1803\u1809\u203c\u203d\u2047\u2048\u2049"
)
_FOLLOWING = re.compile(r"(\s*)(\S?)")
_CLOSING = frozenset("\"'")  # beside those of Unicode's categories for closing


@dataclass(slots=True)
class Spans:
    """Where the tokens and sentences of a stretch are.

    Attributes:
        begins, ends: the first character of each token, and the one after its last.
        sentence_ends: the number of the token after the last one of each sentence, ascending.
        words: those of multiword tokens, by the number of the token.
    """

    begins: list[int]
    ends: list[int]
    sentence_ends: list[int]
    words: dict[int, TokenWords] = field(default_factory=dict)


@cache
def _token_pattern() -> re.Pattern[str]:
    marks = continuing_class()
    letter = rf"(?:[^\W{_SINGLE}{_KATAKANA}]|[{marks}])"
    any_letter = r"[^\W\d_]"
    return re.compile(
        rf"""
        (?:https?://|www\.)\S{{1,999}}(?<![.,;:!?)\]}}'"\u00bb\u201d\u2019])
        | [\w.+-]{{1,64}}@\w[\w-]{{0,62}}(?:\.\w[\w-]{{0,62}})+
        | (?:{any_letter}\.){{2,}}
        | (?<!\w)(?:{_TITLES}|{any_letter})\.(?!\.)(?=\s*\w)
        | [{_SINGLE}][{marks}]*
        | [{_KATAKANA}][{_KATAKANA}{marks}]*
        | {letter}+(?:(?:(?<=\d)[.,:](?=\d)|['\u2019](?=\w)){letter}+)*
        | [\U0001f1e6-\U0001f1ff]{{2}}
        | ([^\w\s])(?:\1+|(?:[{marks}]|(?<=\u200d)[^\w\s])*)
        """,
        re.VERBOSE,
    )


def split_by_rules(stretches: Sequence[CodePoints], *, whole: bool = False) -> list[Spans]:
    """Find tokens and sentences by rules; see `model.Segmenter.split`."""
    return [_split(codes, whole) for codes in stretches]


def split_at_spaces(stretches: Sequence[CodePoints]) -> list[Spans]:
    """Take what stands between whitespace for tokens, and each stretch for one sentence."""
    found = [list(re.finditer(r"\S+", to_text(codes))) for codes in stretches]
    return [
        Spans([match.start() for match in tokens], [match.end() for match in tokens], [len(tokens)])
        for tokens in found
    ]


def _split(codes: CodePoints, whole: bool) -> Spans:
    text = to_text(codes)
    begins: list[int] = []
    ends: list[int] = []
    for match in _token_pattern().finditer(text):
        begin, end = match.span()
        pieces = range(begin, end, MAX_WORD)
        begins += pieces
        ends += [*pieces[1:], end]
    if whole:
        return Spans(begins, ends, [len(begins)])
    scores = np.full(len(begins), -1.0, np.float32)
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if text[begin] in _ENDS and _ENDS.issuperset(text[begin:end]):
            place = _closed(text, begins, ends, place)
            if _ends_sentence(text, ends[place], is_wide=text[end - 1] in _WIDE_ENDS):
                scores[place] = 1.0
    after = np.append(begins[1:], len(text))
    positions = np.array(ends)
    cuts = sentence_ends(scores, after > positions, positions, SENTENCE_WORDS)
    return Spans(begins, ends, cuts)


def _closed(text: str, begins: list[int], ends: list[int], place: int) -> int:
    """Return the last token of the ends of sentences, quotation marks and brackets from one on."""
    while place + 1 < len(begins) and begins[place + 1] == ends[place]:
        form = text[begins[place + 1] : ends[place + 1]]
        is_closing = form in _CLOSING or unicodedata.category(form[0]) in ("Pe", "Pf")
        if not is_closing and not _ENDS.issuperset(form):
            break
        place += 1
    return place


def _ends_sentence(text: str, end: int, *, is_wide: bool) -> bool:
    follows = _FOLLOWING.match(text, end)
    assert follows is not None  # it matches nothing too
    spaces, character = follows.groups()
    return is_wide or not character or (bool(spaces) and not character.islower())
