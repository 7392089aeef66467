r"""Sentences of CoNLL-U from the places in a text where tokens and sentences end.

Whitespace stands in column MISC, so that words and spaces rebuild the text (UDPipe's convention):

    SpaceAfter=No        nothing follows
    (neither)            one space follows
    SpacesAfter=\n\n     this whitespace follows
    SpacesBefore=\s\s    this whitespace comes before the first word of a text
    SpacesInToken=a\nb   the token as it is written, where its whitespace is not single spaces

Space, tab, CR, LF, the bar and the backslash are written \s \t \r \n \p and two backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from seqtool.core.arrays import CodePoints
from seqtool.parsing.segmenter.characters import to_text
from seqtool.parsing.segmenter.multiword import Words
from seqtool.parsing.segmenter.units import Stretch, Unit, UnitReader
from seqtool.treebank.sentence import FORM, ID, MISC, NUM_COLUMNS, Sentence

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


BATCH = 1 << 16  # characters that are segmented together
# how far from the end of a stretch that is not whole a sentence is surely whole
SURE = 1024

_EMPTY = ["_"] * (NUM_COLUMNS - 3)  # between FORM and MISC


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
    words: dict[int, Words] = field(default_factory=dict)


# gives the spans of stretches, each by itself
Split = Callable[[Sequence[CodePoints]], Sequence[Spans]]


@dataclass(slots=True)
class _Draft:
    """A sentence of which only the whitespace after it may be missing."""

    comments: list[str]
    text: str
    begins: list[int]
    ends: list[int]
    words: dict[int, Words]
    before: str = ""

    def sentence(self, number: int, after: str) -> Sentence:
        """Return the sentence with its number and the whitespace that follows it."""
        rows: list[list[str]] = []
        extras: list[tuple[int, str]] = []
        shown: list[str] = []
        before, text = self.before, self.text
        last = len(self.ends) - 1
        for place, (begin, end) in enumerate(zip(self.begins, self.ends, strict=True)):
            raw = text[begin:end]
            form = raw if raw.isalnum() else " ".join(raw.split())
            spaces = after if place == last else text[end : self.begins[place + 1]]
            if spaces == " " and form == raw and not before:
                misc = "_"
            else:
                misc = misc_of(spaces, before=before, raw="" if form == raw else raw)
                before = ""
            shown.append(form + " " if spaces else form)
            if place in self.words:
                words = self.words[place]
                first = len(rows) + 1
                identity = f"{first}-{len(rows) + len(words)}"
                extras.append((len(rows), "\t".join((identity, form, *_EMPTY, misc))))
                rows += [
                    [str(first + offset), word, *_EMPTY, "_"] for offset, word in enumerate(words)
                ]
            else:
                rows.append([str(len(rows) + 1), form, *_EMPTY, misc])
        comments = [
            *self.comments,
            f"# sent_id = {number}",
            f"# text = {''.join(shown).removesuffix(' ')}",
        ]
        return Sentence(comments, rows, extras)


def assemble(
    pieces: Iterable[str],
    split: Split,
    *,
    unit: Unit = "paragraph",
    document: str | None = None,
    first_number: int = 1,
) -> Iterator[Sentence]:
    """Segment one document, in bounded memory.

    The comments are newdoc, newpar, sent_id and text; columns but ID, FORM and MISC are `_`.

    Args:
        pieces: of its text, in order.
        split: finds tokens and sentences.
        unit: what is split apart from all else.
        document: its id.
        first_number: the `sent_id` of its first sentence.
    """
    reader = UnitReader(pieces, unit)
    newdoc = "# newdoc" if document is None else f"# newdoc id = {document}"
    held: _Draft | None = None
    number = first_number
    batch: list[Stretch] = []
    size = 0
    while True:
        stretch = reader.take()
        if stretch is not None:
            batch.append(stretch)
            size += len(stretch.codes)
        if stretch is None or size >= BATCH or not stretch.is_whole:
            spans = split([member.codes for member in batch])
            for member, found in zip(batch, spans, strict=True):
                drafts, used = _drafts(member, found)
                before = member.before
                for draft, after in drafts:
                    if held is None:
                        draft.comments.insert(0, newdoc)
                        draft.before = before
                    else:
                        yield held.sentence(number, before)
                        number += 1
                    held, before = draft, after
                if not member.is_whole:
                    reader.take_back(member.codes[used:])
            batch, size = [], 0
        if stretch is None:
            break
    if held is not None:
        yield held.sentence(number, reader.spaces)


def _drafts(stretch: Stretch, spans: Spans) -> tuple[list[tuple[_Draft, str]], int]:
    """Return the sentences of a stretch, and the place after the last one of them.

    Returns:
        Each with the whitespace that follows it inside the stretch; the place.
    """
    text = to_text(stretch.codes)
    bounds = [0, *spans.sentence_ends]
    if not stretch.is_whole:
        sure = [end for end in bounds[1:] if spans.ends[end - 1] <= len(text) - SURE]
        bounds = [0, *sure]
    drafts = []
    for first, end in pairwise(bounds):
        words = {}
        if spans.words:
            words = {
                place - first: spans.words[place]
                for place in range(first, end)
                if place in spans.words
            }
        comments = ["# newpar"] if not first and stretch.begins_paragraph else []
        after = text[spans.ends[end - 1] : spans.begins[end]] if end < len(spans.ends) else ""
        drafts.append(
            (_Draft(comments, text, spans.begins[first:end], spans.ends[first:end], words), after)
        )
    return drafts, spans.ends[bounds[-1] - 1]
