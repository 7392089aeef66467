"""Raw text in files to sentences of CoNLL-U: by a model, by rules, or as it is laid out already.

Whitespace stands in column MISC, as `seqtool.treebank.misc` tells.
"""

from __future__ import annotations

import re
from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

from seqtool.core.arrays import CodePoints
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.reading import (
    STDIN,
    BlockReader,
    find_files,
    longest_line,
    unpacked_name,
    whole_text,
)
from seqtool.parsing.segmenter.characters import (
    Stretch,
    Unit,
    UnitReader,
    line_too_long,
    to_text,
)
from seqtool.parsing.segmenter.data import TokenWords
from seqtool.parsing.segmenter.rules import Spans, split_at_spaces, split_by_rules
from seqtool.treebank.layouts import LAYOUTS, newdoc, read_layout
from seqtool.treebank.layouts import Layout as WordLayout
from seqtool.treebank.misc import misc_of
from seqtool.treebank.sentence import NUM_COLUMNS, Sentence

BATCH = 1 << 16  # characters that are segmented together
# how far from the end of a stretch that is not whole a sentence is surely whole
SURE = 1024

_EMPTY = ["_"] * (NUM_COLUMNS - 3)  # between FORM and MISC

# gives the spans of stretches, each by itself
Split = Callable[[Sequence[CodePoints]], Sequence[Spans]]


@dataclass(slots=True)
class _Draft:
    """A sentence of which only the whitespace after it may be missing."""

    comments: list[str]
    text: str
    begins: list[int]
    ends: list[int]
    words: dict[int, TokenWords]
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
    goes_on: bool = False,
    batch: int = BATCH,
) -> Iterator[Sentence]:
    """Segment one document, whose text comes in pieces, in bounded memory.

    The comments are newdoc with its id, newpar, sent_id and text; columns but ID, FORM and MISC are
    `_`.

    Args:
        pieces: of the text, of any size.
        split: finds tokens and sentences.
        unit: paragraphs, or lines, each of which is a sentence; they are split apart from all else.
        document: its id, if it has one.
        first_number: sent_id of the first sentence.
        goes_on: the text is a later part of the document, as `read_parts` cuts it.
        batch: characters that are split together, about.
    """
    begins_paragraph = not goes_on or unit == "paragraph"
    reader = UnitReader(map(whole_text, pieces), unit, begins_paragraph=begins_paragraph)
    number = first_number
    last: _Draft | None = None  # the sentence before: what follows it is not known
    stretches: list[Stretch] | None = None
    while stretches is None or stretches:
        stretches = reader.take_several(batch)
        found = split([stretch.codes for stretch in stretches])
        for stretch, spans in zip(stretches, found, strict=True):
            drafts, used = _drafts(stretch, spans)
            before = stretch.before
            for draft, after in drafts:
                if last is None:
                    draft.comments[:0] = [] if goes_on else newdoc(document)
                    draft.before = before
                else:
                    yield last.sentence(number, before)
                    number += 1
                last, before = draft, after
            if not stretch.is_whole:
                reader.take_back(stretch.codes[used:])
    if last is not None:
        yield last.sentence(number, reader.spaces)


def _drafts(stretch: Stretch, spans: Spans) -> tuple[list[tuple[_Draft, str]], int]:
    """Return sentences, each with what follows it inside the stretch, and the place after them."""
    text = to_text(stretch.codes)
    bounds = [0, *spans.sentence_ends]
    if not stretch.is_whole:
        sure = [end for end in bounds[1:] if spans.ends[end - 1] <= len(text) - SURE]
        bounds = [0, *sure]
    drafts = []
    for first, end in pairwise(bounds):
        words = {}
        if spans.words:
            known = (place for place in range(first, end) if place in spans.words)
            words = {place - first: spans.words[place] for place in known}
        comments = ["# newpar"] if not first and stretch.begins_paragraph else []
        after = text[spans.ends[end - 1] : spans.begins[end]] if end < len(spans.ends) else ""
        drafts.append(
            (_Draft(comments, text, spans.begins[first:end], spans.ends[first:end], words), after)
        )
    return drafts, spans.ends[bounds[-1] - 1]


BLOCK_SIZE = 1 << 18  # bytes


def read_documents(
    inputs: Sequence[str | Path], *, block_size: int = BLOCK_SIZE
) -> Iterator[tuple[str, Iterator[str]]]:
    """Give each file's name, and its text in pieces, which must be read before the next file.

    Only a byte order mark at its beginning is left out. Packed files are unpacked.

    Args:
        inputs: files, directories (read recursively, sorted) and `-` for stdin.
        block_size: bytes of a piece, about.

    Raises:
        DataError: no such file, an empty one, invalid UTF-8 or a NUL (with the byte offset), a
            damaged packed file, a treebank or JSON Lines; all but the first while the text is read.
    """
    for name in find_files(inputs):
        if unpacked_name(name).endswith((".jsonl", ".ndjson")):
            raise DataError(
                "holds JSON Lines, not plain text",
                hint="write each text to a file of its own",
                path=name,
            )
        reader = _VerbatimReader([name], block_size=block_size)
        yield ("" if name == STDIN else name), (block.decode() for block in reader)


class _VerbatimReader(BlockReader):
    """Gives blocks of whole characters, not of whole lines."""

    def _whole_lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        rest = b""
        for chunk in chunks:
            block = rest + chunk
            # a last character whose end is missing waits for it
            _, cut = utf_8_decode(block, "replace")
            rest = block[cut:]
            if cut:
                yield block[:cut]
        if rest:
            yield rest

    def _lines_of(self, file: IO[bytes]) -> Iterator[bytes]:
        self._first_line, self._source_lines = 1, None
        offset = 0
        for block in self._whole_lines(self._unpack(self._chunks(file))):
            self._check_utf8(block, self._first_line, offset)
            if (place := block.find(b"\0")) >= 0:
                raise DataError(
                    f"a NUL at byte {offset + place}, so this is no text",
                    hint="name a text file; convert it if it is UTF-16: iconv -f UTF-16 -t UTF-8",
                    path=self._path,
                    line=self._first_line + block.count(b"\n", 0, place),
                )
            # the first block alone can begin with a byte order mark
            text = block if offset else block.removeprefix("\ufeff".encode())
            if text:
                yield text
            offset += len(block)
            self._first_line += text.count(b"\n")


def read_text(source: str | Path, split: Split, *, number: int = 1) -> Iterator[Sentence]:
    """Segment a text, or the file or directory of a `pathlib.Path`; sentences from a number on.

    Raises:
        DataError: when iterated: a file that is empty, no text or cannot be read; half a character.
    """
    if isinstance(source, Path):
        documents = read_documents([source])
    else:
        documents = iter([("", iter([source]))])
    for name, pieces in documents:
        for sentence in assemble(pieces, split, document=name or None, first_number=number):
            number += 1
            yield sentence


GivenUnits = Literal["nothing", "sentences", "words", "horizontal", "vertical"]


def segment_files(
    inputs: Sequence[str | Path], segmenter: Any, *, given: GivenUnits = "nothing"
) -> Iterator[Sentence]:
    """Segment files, each a document with its name as id, in bounded memory.

    Args:
        inputs: files of plain text (packed too), directories and `-` for stdin.
        segmenter: a model; None for rules.
        given: "sentences" takes a line for a sentence, "words" also what stands between spaces for
            a word; no multiword token is split then. Others are those of `treebank.layouts`.

    Raises:
        DataError: when iterated: a file that is empty, no text or cannot be read.
    """
    parts = ((name, pieces, True) for name, pieces in read_documents(inputs))
    return segment_parts(parts, segmenter, given=given)


def segment_parts(
    parts: Iterable[tuple[str, Iterable[str], bool]],
    segmenter: Any,
    *,
    given: GivenUnits = "nothing",
) -> Iterator[Sentence]:
    """Segment parts of documents, whose sentences are numbered from 1 on.

    Args:
        parts: the name of the document, the text in pieces, and whether it is the beginning.
        segmenter: as of `segment_files`.
        given: as well.
    """
    split: Split = split_at_spaces
    if given != "words":
        by = split_by_rules if segmenter is None else segmenter.split
        split = partial(by, whole=given == "sentences")
    number = 1
    for name, pieces, begins in parts:
        about: Any = {"document": name or None, "first_number": number, "goes_on": not begins}
        if given in LAYOUTS:
            sentences = read_layout(_lines(pieces), LAYOUTS[given], **about)
        else:
            unit: Unit = "paragraph" if given == "nothing" else "line"
            sentences = assemble(pieces, split, unit=unit, **about)
        for sentence in sentences:
            number += 1
            yield sentence


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Give the lines of a text without their ends."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        if len(rest) > longest_line():
            raise line_too_long()
        yield from lines
    if rest:
        yield rest


# where a text can be cut so that its parts are segmented as the whole is: before a word that begins
# a paragraph; of lines, and of words that are, before one that does not. A part does not begin with
# a byte order mark, which would be left out there, or with what a line of words may be beside these
_PARAGRAPHS = re.compile(r"\n\r?\n(?=[^\s\ufeff])")
_LINES = re.compile(r"(?<=[^\s])\r?\n(?=[^\s\ufeff#])")
_CUTS: Mapping[GivenUnits, re.Pattern[str]] = {
    "nothing": _PARAGRAPHS,
    "sentences": _LINES,
    "words": _LINES,
    "horizontal": _LINES,
    "vertical": re.compile(r"(?<=[^\s])\r?\n\r?\n(?=[^\s\ufeff#])"),
}


def read_parts(
    inputs: Sequence[str | Path], *, given: GivenUnits = "nothing", size: int = BLOCK_SIZE
) -> Iterator[tuple[str, str, bool]]:
    """Give documents in parts that can be segmented apart: name, text, whether it is the beginning.

    Args:
        inputs: as of `segment_files`.
        given: as well.
        size: characters of a part, about.

    Raises:
        DataError: as of `read_documents`; or there is no place to cut in what one line may have.
    """
    cuts = _CUTS[given]
    for name, pieces in read_documents(inputs, block_size=size):
        begins, held, searched = True, "", 0
        for piece in pieces:
            held += piece
            if len(held) < size:
                continue
            places = [found.end() for found in cuts.finditer(held, searched)]
            if places:
                yield name, held[: places[-1]], begins
                begins, held, searched = False, held[places[-1] :], 0
            elif len(held) > longest_line():
                raise DataError(
                    f"no place to cut the text in {longest_line():,} characters",
                    hint="part paragraphs by empty lines, or leave --jobs out",
                    path=name or None,
                )
            else:
                searched = max(0, len(held) - 4)  # line ends that a word may follow
        if held:
            yield name, held, begins


@dataclass(frozen=True)
class TextLayout:
    """How plain text is split.

    Attributes:
        rules: by rules, not by a model.
        presegmented: lines are sentences.
        pretokenized: lines are sentences, and words are between spaces.
        words: the text is nothing but words, in this layout.
    """

    rules: bool = False
    presegmented: bool = False
    pretokenized: bool = False
    words: WordLayout | None = None

    @property
    def given(self) -> GivenUnits:
        """What the text tells."""
        if self.words is not None:
            return self.words
        return "words" if self.pretokenized else "sentences" if self.presegmented else "nothing"

    def splitter(self, model: Any, path: Path | None) -> Any:
        """Return the model, if text is split by one.

        Args:
            model: opened.
            path: of the model.

        Raises:
            ConfigError: options that do not go together.
            ModelError: the model cannot segment.
        """
        if self.presegmented and self.pretokenized:
            what = "--pretokenized includes --presegmented"
            raise ConfigError(what, hint="give only one of the two")
        if self.rules and self.pretokenized:
            what = "--pretokenized leaves nothing to --rules"
            raise ConfigError(what, hint="give only one of both")
        if self.rules or self.pretokenized or self.words is not None:
            return None
        if not hasattr(model, "split"):
            raise ModelError(
                "has no segmenter, so it cannot read plain text",
                hint="train one with `seqtool train-parser --raw`, or split the text by rules: "
                "`seqtool segment --rules`, and tag it where a parser reads tags: `seqtool tag`",
                path=path,
            )
        return model

    def read(self, files: Sequence[str], model: Any, path: Path | None) -> Iterator[Sentence]:
        """Return the sentences of files, as `segment_files` gives them; arguments as above.

        Raises:
            ConfigError, ModelError: as of `splitter`.
        """
        return segment_files(files, self.splitter(model, path), given=self.given)
