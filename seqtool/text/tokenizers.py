"""Tokenizers: text to ids and back, for words, characters and bytes; subwords are in `subwords`.

A line of text is one sentence. Words are what tab, LF, CR and space separate, nothing else: a
no-break space belongs to its word. Characters, bytes and subwords are lossless.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from seqtool.core.arrays import Bools, Ids, Longs
from seqtool.core.config import Registry
from seqtool.core.errors import DataError, ModelError
from seqtool.core.one_line import OneLine
from seqtool.core.reading import Blocks
from seqtool.core.vocabulary import (
    BLANKS,
    BOS,
    EOS,
    EOS_ID,
    NUM_SPECIALS,
    UNK,
    UNK_ID,
    SpecialTokens,
    Vocabulary,
    special_word,
)

if TYPE_CHECKING:
    from seqtool.text.words import WordTable

VOCABULARY_FILE = "vocabulary.json"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # an unknown character, or bytes that are not UTF-8
NUM_CODE_POINTS = 0x110000

_WORD = re.compile(rf"[^{BLANKS}]+")


class Tokenizer(OneLine, ABC):
    """Text to ids and back."""

    shown = ("unit", "lowercase", "vocabulary")

    unit: str  # word, char, byte, bpe or unigram
    lowercase: bool  # whether text is lower-cased before it is encoded
    vocabulary: Vocabulary  # the symbols that the ids stand for
    reverse: bool = False  # whether lines are read from their ends to their beginnings

    def encode(self, line: str) -> Ids:
        """Return the ids of one line, without `</s>`.

        Raises:
            DataError: it holds half a surrogate pair, or a special token that is refused.
        """
        return self.encode_block(f"{self._case(line)}\n".encode())[:-1]

    @abstractmethod
    def encode_block(self, block: bytes) -> Ids:
        """Return the ids of whole lines of UTF-8, `EOS_ID` after each line."""

    def encode_blocks(self, blocks: Blocks) -> Iterator[tuple[Ids, bytes]]:
        """Yield the ids of blocks, and these; an error names the file and the line."""
        for block in blocks:
            with blocks.place.locating():
                ids = self.encode_block(block)
            yield ids, block

    @abstractmethod
    def tokens(self, line: str) -> list[str]:
        """Return the tokens of a line as written, one for each id of `encode`."""

    def as_read(self, block: bytes) -> bytes:
        """Return whole lines of UTF-8 as they are cut: in lower case, where the tokenizer is."""
        return block.decode().lower().encode() if self.lowercase else block

    @cached_property
    def opens_word(self) -> Bools:
        """Which symbols may follow a word, [V]: `</s>`, and what begins with a blank.

        The unknown symbol is none of them, whatever it stands for.
        """
        decoder = self.decoder()
        firsts = [text[:1] for text in decoder.texts]
        for token, value in decoder.byte_values.items():
            firsts[token] = chr(value)
        firsts[EOS_ID] = "\n"
        return np.array([first != "" and first in BLANKS for first in firsts])

    @cached_property
    def symbol_sizes(self) -> Longs:
        """How many bytes of `as_read` each symbol stands for, [V], 1 for a line's end.

        That of the unknown symbol has no meaning: see `unknown_sizes`. Blanks between words belong
        to no word. All other units leave no byte out.
        """
        decoder = self.decoder()
        sizes = np.array([len(text.encode()) for text in decoder.texts], np.int64)
        sizes[[EOS_ID, *decoder.byte_values]] = 1
        return sizes

    def unknown_sizes(self, block: bytes, ids: Ids) -> Longs:
        """Return how many bytes of `as_read` each unknown token stands for, in order.

        Args:
            block: whole lines.
            ids: what `encode_block` gives for them, [N].
        """
        tokens = self.unknown_tokens(block, ids)
        return np.array([len(self._plain(token).encode()) for _, token in tokens], np.int64)

    def unknown_tokens(self, block: bytes, ids: Ids) -> Iterator[tuple[int, str]]:
        """Yield the places of unknown tokens, in order, and the tokens as they are written.

        Args:
            block: whole lines; only they tell what these stand for.
            ids: what `encode_block` gives for them, [N].
        """
        unknown = np.flatnonzero(ids == UNK_ID)
        if not len(unknown):
            return
        ends = np.flatnonzero(ids == EOS_ID)
        lines, numbers = block.split(b"\n"), np.searchsorted(ends, unknown)
        places = zip(numbers.tolist(), unknown.tolist(), strict=True)
        for number, of_line in groupby(places, key=itemgetter(0)):
            begin = int(ends[number - 1]) + 1 if number else 0
            tokens = self.tokens(lines[number].decode())
            yield from ((place, tokens[place - begin]) for _, place in of_line)

    def _plain(self, token: str) -> str:
        """Return one of `tokens` without signs of the tokenizer's own."""
        return token

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; `</s>` becomes a line end, `<s>` nothing."""
        decoder = self.decoder()
        return "".join([*(decoder.push(int(token)) for token in ids), decoder.flush()])

    @abstractmethod
    def decoder(self) -> StreamDecoder:
        """Return a decoder that takes one id at a time."""

    @classmethod
    @abstractmethod
    def load(cls, directory: Path, description: Mapping[str, Any]) -> Self:
        """Read what `save` wrote; `description` is what `describe` returned."""

    @abstractmethod
    def save(self, directory: str | Path) -> list[str]:
        """Write the tokenizer's files and return their names."""

    def describe(self) -> dict[str, Any]:
        """Return what `load_tokenizer` needs to know beside the files."""
        reverse = {"reverse": True} if self.reverse else {}
        return {"unit": self.unit, "lowercase": self.lowercase, **reverse}

    def _case(self, text: str) -> str:
        """Return a text in the tokenizer's case.

        Raises:
            DataError: it holds half a surrogate pair.
        """
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                what = "half a surrogate pair, which is no character"
                raise DataError(what, hint="write the character whole") from error
        return text.lower() if self.lowercase else text


class StreamDecoder:
    """Ids to text, one at a time, holding back what is not yet a whole character.

    `byte_values` are the ids that stand for one byte of UTF-8. The separator is put between two
    tokens of a line. With `reverse`, tokens come from the end of a line, and its text at once.
    """

    def __init__(
        self,
        texts: Sequence[str],
        byte_values: Mapping[int, int] | None = None,
        separator: str = "",
        *,
        reverse: bool = False,
    ) -> None:
        self.texts, self.byte_values, self._separator = texts, byte_values or {}, separator
        self._reverse, self._held = reverse, list[str]()
        self._at_start = True
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Return the text that this id completes, perhaps none yet."""
        if self._reverse:
            if token == EOS_ID:
                return f"{self.flush()}\n"
            self._held += self.texts[token : token + 1]  # nothing of <s>
            return ""
        if (value := self.byte_values.get(token)) is not None:
            return self._utf8.decode(bytes((value,)))
        text = self._utf8.decode(b"", final=True)
        if token == len(self.texts):  # <s>
            return text
        if token == EOS_ID:
            self._at_start = True
            return f"{text}\n"
        if not self._at_start:
            text += self._separator
        self._at_start = False
        return text + self.texts[token]

    def flush(self) -> str:
        """Return what is still held back."""
        line, self._held = self._separator.join(reversed(self._held)), []
        return line + self._utf8.decode(b"", final=True)


class _VocabularyTokenizer(Tokenizer):
    """What words, characters and bytes share: their vocabulary is all there is to save."""

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool = False) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase

    @classmethod
    def load(cls, directory: Path, description: Mapping[str, Any]) -> Self:
        """Read what `save` wrote."""
        vocabulary = Vocabulary.load(directory / VOCABULARY_FILE)
        tokenizer = cls(vocabulary, lowercase=bool(description.get("lowercase", False)))
        tokenizer.reverse = bool(description.get("reverse", False))
        return tokenizer

    def _in_order(self, ids: Ids) -> Ids:
        """Return ids of whole lines in the order in which they are read."""
        return ids[turned(ids == EOS_ID)] if self.reverse else ids

    def save(self, directory: str | Path) -> list[str]:
        """Write `vocabulary.json`."""
        self.vocabulary.save(Path(directory) / VOCABULARY_FILE)
        return [VOCABULARY_FILE]


class WordTokenizer(_VocabularyTokenizer):
    """Words, as blanks separate them; a literal `<unk>` is the unknown word.

    A literal `<s>` or `</s>` becomes what `special_tokens` says: a DataError with its line, the
    unknown word, or nothing.
    """

    unit = "word"

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        lowercase: bool = False,
        special_tokens: SpecialTokens = "refuse",
    ) -> None:
        super().__init__(vocabulary, lowercase=lowercase)
        self.special_tokens: SpecialTokens = special_tokens

    @classmethod
    def load(cls, directory: Path, description: Mapping[str, Any]) -> Self:
        """Read what `save` wrote."""
        tokenizer = super().load(directory, description)
        policy = description.get("special_tokens", "refuse")
        if policy not in ("refuse", "unknown", "skip"):
            hint = "prepare or train it again"
            raise ModelError(f"special_tokens is {policy!r}", hint=hint, path=directory)
        tokenizer.special_tokens = policy
        return tokenizer

    def describe(self) -> dict[str, Any]:
        """Return the unit, the case, and what special tokens in a text become."""
        return {**super().describe(), "special_tokens": self.special_tokens}

    @cached_property
    def _table(self) -> WordTable:
        from seqtool.text.words import WordTable

        return WordTable(self.vocabulary.symbols, self.special_tokens)

    def tokens(self, line: str) -> list[str]:
        """Return the words of one line."""
        words = _WORD.findall(self._case(line))
        special = {BOS, EOS}.intersection(words)
        if special and self.special_tokens == "refuse":
            raise special_word(special.pop())
        if special and self.special_tokens == "skip":
            words = [word for word in words if word not in (BOS, EOS)]
        return words[::-1] if self.reverse else words

    def encode_block(self, block: bytes) -> Ids:
        """Return the ids of whole lines, `EOS_ID` after each."""
        return self._in_order(self._table.encode(self.as_read(block)))

    def decoder(self) -> StreamDecoder:
        """Return a decoder that puts a space between words."""
        symbols = self.vocabulary.symbols
        return StreamDecoder(symbols, separator=" ", reverse=self.reverse)


class CharTokenizer(_VocabularyTokenizer):
    """Unicode code points."""

    unit = "char"

    @cached_property
    def _id_of(self) -> Ids:
        """The id of each code point, shape (NUM_CODE_POINTS,)."""
        table = np.full(NUM_CODE_POINTS, UNK_ID, np.int32)
        characters = self.vocabulary.symbols[NUM_SPECIALS:]
        try:
            points = [ord(character) for character in characters]
        except TypeError as error:
            what = "the vocabulary holds symbols that are no single characters"
            raise ModelError(what, hint="prepare the text again") from error
        table[points] = np.arange(NUM_SPECIALS, NUM_SPECIALS + len(points), dtype=np.int32)
        return table

    def tokens(self, line: str) -> list[str]:
        """Return the characters of one line."""
        return list(self._case(line))[:: -1 if self.reverse else 1]

    def encode_block(self, block: bytes) -> Ids:
        """Return the ids of whole lines, `EOS_ID` after each."""
        points = code_points(self._case(block.decode()))
        ids = self._id_of[points]
        ids[points == ord("\n")] = EOS_ID
        return self._in_order(ids)

    def decoder(self) -> StreamDecoder:
        """Return a decoder; an unknown character is shown as U+FFFD."""
        symbols = [REPLACEMENT, *self.vocabulary.symbols[1:]]
        return StreamDecoder(symbols, reverse=self.reverse)


class ByteTokenizer(_VocabularyTokenizer):
    """Bytes of UTF-8: byte b has id b + 2, whatever the text."""

    unit = "byte"

    @staticmethod
    def symbols() -> list[str]:
        """Return the 258 symbols, bytes written `<0x41>`."""
        return [UNK, EOS, *(f"<0x{value:02X}>" for value in range(256))]

    def tokens(self, line: str) -> list[str]:
        """Return the bytes of one line, written `<0x41>`."""
        return [self.vocabulary.symbols[token] for token in self.encode(line)]

    def encode_block(self, block: bytes) -> Ids:
        """Return the ids of whole lines, `EOS_ID` after each."""
        values = np.frombuffer(self.as_read(block), np.uint8)
        ids = values.astype(np.int32) + NUM_SPECIALS
        ids[values == ord("\n")] = EOS_ID
        return ids

    def decoder(self) -> StreamDecoder:
        """Return a decoder; bytes that are not UTF-8 are shown as U+FFFD."""
        values = {value + NUM_SPECIALS: value for value in range(256)}
        return StreamDecoder([REPLACEMENT, *self.vocabulary.symbols[1:]], values)


TOKENIZERS: Registry[type[Tokenizer]] = Registry(
    "tokenizer",
    {
        "word": "seqtool.text.tokenizers:WordTokenizer",
        "char": "seqtool.text.tokenizers:CharTokenizer",
        "byte": "seqtool.text.tokenizers:ByteTokenizer",
        "bpe": "seqtool.text.subwords:SubwordTokenizer",
        "unigram": "seqtool.text.subwords:SubwordTokenizer",
    },
)


def load_tokenizer(directory: str | Path, description: Mapping[str, Any]) -> Tokenizer:
    """Read what `Tokenizer.save` wrote and `describe` described; a ModelError if damaged."""
    unit = description.get("unit")
    if not isinstance(unit, str) or unit not in TOKENIZERS:
        what = f"its unit is {unit!r}, which this seqtool does not know"
        raise ModelError(what, hint="upgrade seqtool, or make it again", path=directory)
    return TOKENIZERS[unit].load(Path(directory), description)


def turned(is_end: Bools) -> Longs:
    """Return where each token stands when the lines are turned around, their ends still last, [N].

    >>> turned(np.array([False, False, False, True, False, True])).tolist()
    [2, 1, 0, 3, 4, 5]
    """
    ends = np.flatnonzero(is_end)
    sizes = np.diff(ends, prepend=-1)
    places: Longs = np.repeat(2 * ends - sizes, sizes) - np.arange(len(is_end))
    places[ends] = ends
    return places


def word_spans(line: str) -> list[tuple[int, int]]:
    """Return where the words of a line begin and end; words are what blanks separate."""
    return [found.span() for found in _WORD.finditer(line)]


def code_points(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return the code points of a text, shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.dtype("<u4"))
