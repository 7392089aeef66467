"""Tokenizers learnt from a text in one pass: symbols counted, or subwords from a sample.

The vocabulary is known only at the end of the text. Until then words and characters are numbered
as they come; at the end each number gets its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from seqtool.core.arrays import Ids, Longs
from seqtool.core.errors import DataError
from seqtool.core.reading import BLOCK_SIZE, read_blocks
from seqtool.core.runtime import check_memory
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
    rank_symbols,
    refuse_special_words,
)
from seqtool.text.tokenizers import (
    NUM_CODE_POINTS,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    code_points,
)

_KALDI = re.compile("<eps>|#[0-9]+")  # what its tables have beside words


class _Settings(Protocol):
    """What decides a vocabulary of words or characters, as `PrepareConfig` has it."""

    @property
    def vocab(self) -> str | None: ...
    @property
    def vocab_size(self) -> int | None: ...
    @property
    def min_count(self) -> int: ...
    @property
    def lowercase(self) -> bool: ...


class Learner(Protocol):
    """What reads the training text once, and gives its tokenizer."""

    def read(self, block: bytes) -> bytes | memoryview:
        """Take in whole lines, and return what to keep of them until the end."""

    def finish(self) -> tuple[Tokenizer, Ids | None]:
        """Return the tokenizer, and the id of each number that was kept as an int32.

        None where the text itself was kept.
        """


class _Symbols:
    """What words and characters share."""

    def __init__(self, config: _Settings, unit: Literal["word", "char"]) -> None:
        self._config = config
        self._closed = None  # before the text, as an error in the list is to come at once
        if config.vocab is not None:
            self._closed = read_word_list(config.vocab, unit, lowercase=config.lowercase)

    def _vocabulary(
        self,
        name: Callable[[int], str],
        numbers: Longs,
        counts: Longs,
        *,
        unknown: int,
        num_sentences: int,
        size: int,
    ) -> tuple[Vocabulary, Ids]:
        """Return the vocabulary, and the id of each number.

        Args:
            name: gives the symbol of a number.
            numbers: of the symbols of the text, by first occurrence, [N].
            counts: how often each occurs, [N].
            unknown: how often `<unk>` itself occurs.
            num_sentences: lines of the text.
            size: how many numbers there are.
        """
        ids = np.full(size, UNK_ID, np.int32)
        if self._closed is not None:
            symbols = self._closed.symbols
            ids[numbers] = self._closed.encode(map(name, numbers.tolist()))
        else:
            most, least = self._config.vocab_size, self._config.min_count
            kept = numbers[rank_symbols(counts, max_size=most, min_count=least)]
            symbols = [UNK, EOS, *map(name, kept.tolist())]
            ids[kept] = np.arange(NUM_SPECIALS, len(symbols))
        totals = np.bincount(ids[numbers], counts, len(symbols)).astype(np.int64)
        totals[UNK_ID] += unknown
        totals[EOS_ID] = num_sentences
        return Vocabulary(symbols, totals.tolist()), ids


class WordCounter(_Symbols):
    """Words, counted and numbered in one pass over the bytes.

    Args:
        config: decides the vocabulary.
        special_tokens: what a literal `<s>` or `</s>` becomes, as of `WordTokenizer`.
        unk: what a literal `<unk>` becomes: the unknown word, an error, or nothing.
        memory: what they may take, in bytes, when `read`; what the machine has when None.

    Attributes:
        table: of the words, with their counts.
        num_tokens: that were read, `</s>` among them.
        num_sentences: lines that were read.
        num_bytes: that were read, before lower-casing.
    """

    def __init__(
        self,
        config: _Settings,
        special_tokens: SpecialTokens,
        unk: SpecialTokens = "unknown",
        memory: int | None = None,
    ) -> None:
        from seqtool.text.words import WordTable

        super().__init__(config, "word")
        self._special_tokens: SpecialTokens = special_tokens
        self._unk, self._memory = unk, memory
        self.table = WordTable(special_tokens=special_tokens)
        self.num_tokens = self.num_sentences = self.num_bytes = 0
        self._nbytes = self.table.nbytes

    def add(self, block: bytes) -> Ids:
        """Return the numbers of the words of whole lines.

        Raises:
            DataError: a special token that is refused, with its line in the block.
        """
        self.num_bytes += len(block)
        self.num_sentences += block.count(b"\n")
        if self._config.lowercase:
            block = block.decode().lower().encode()
        ids = self.table.add(block)
        if self._unk != "unknown" and self.table.counts[UNK_ID]:
            if self._unk == "refuse":
                refuse_special_words(block, UNK)
            ids = ids[ids != UNK_ID]
            self.table.counts[UNK_ID] = 0
        self.num_tokens += len(ids)
        return ids

    def read(self, block: bytes) -> memoryview:
        """Take in whole lines, and return their numbers; see `Learner`."""
        if self.table.nbytes > self._nbytes:  # it has grown, and may do so again
            self._nbytes = self.table.nbytes
            what = f"{len(self.table):,} different words"
            check_memory(self._nbytes, what, "free some memory", self._memory)
        return self.add(block).data

    def finish(self) -> tuple[WordTokenizer, Ids]:
        """Return the tokenizer, and the id of each number."""
        table = self.table
        first = table.bos_id + 1
        vocabulary, ids = self._vocabulary(
            table.word,
            np.arange(first, len(table)),
            table.counts[first:],
            unknown=int(table.counts[UNK_ID]),
            num_sentences=self.num_sentences,
            size=len(table),
        )
        ids[EOS_ID] = EOS_ID
        lowercase, special = self._config.lowercase, self._special_tokens
        return WordTokenizer(vocabulary, lowercase=lowercase, special_tokens=special), ids


class CharCounter(_Symbols):
    """Characters, counted; their numbers are their code points."""

    def __init__(self, config: _Settings) -> None:
        super().__init__(config, "char")
        self._counts = np.zeros(NUM_CODE_POINTS, np.int64)
        self._order = [np.zeros(0, np.int64)]  # code points in order of first occurrence

    def read(self, block: bytes) -> memoryview:
        """Take in whole lines, and return their code points."""
        text = block.decode().lower() if self._config.lowercase else block.decode()
        points = code_points(text).astype(np.int32)
        for start in range(0, len(points), BLOCK_SIZE):  # bounds the copies for a very long line
            part = points[start : start + BLOCK_SIZE]
            values, first = np.unique(part[self._counts[part] == 0], return_index=True)
            self._order.append(values[np.argsort(first)])
            counts = np.bincount(part)
            self._counts[: len(counts)] += counts
        return points.data

    def finish(self) -> tuple[Tokenizer, Ids]:
        """Return the tokenizer, and the id of each code point."""
        points = np.concatenate(self._order)
        points = points[points != ord("\n")]
        vocabulary, ids = self._vocabulary(
            chr,
            points,
            self._counts[points],
            unknown=0,
            num_sentences=int(self._counts[ord("\n")]),
            size=NUM_CODE_POINTS,
        )
        ids[ord("\n")] = EOS_ID
        return CharTokenizer(vocabulary, lowercase=self._config.lowercase), ids


class ByteCounter:
    """Bytes, whose vocabulary is known before: only the counts are learnt."""

    def __init__(self, *, lowercase: bool) -> None:
        vocabulary = Vocabulary(ByteTokenizer.symbols())
        self._tokenizer = ByteTokenizer(vocabulary, lowercase=lowercase)
        self._counts = np.zeros(len(vocabulary), np.int64)

    def read(self, block: bytes) -> bytes:
        """Count whole lines, which are kept as they are."""
        ids = self._tokenizer.encode_block(block)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        return block

    def finish(self) -> tuple[Tokenizer, None]:
        """Return the tokenizer; no numbers were kept."""
        self._tokenizer.vocabulary.counts = self._counts.tolist()
        return self._tokenizer, None


class SubwordLearner:
    """SentencePiece, trained on a sample of the lines.

    Args:
        num_lines: of the sample.
        rng: that draws it.
        options: of `subwords.train_subwords`.
    """

    def __init__(self, num_lines: int, rng: np.random.Generator, **options: Any) -> None:
        from seqtool.text.subwords import LineSample

        self.sample, self._options = LineSample(num_lines, rng), options

    def read(self, block: bytes) -> bytes:
        """Draw from whole lines, which are kept as they are."""
        text = block.decode()
        self.sample.add(text.lower() if self._options["lowercase"] else text)
        return block

    def finish(self) -> tuple[Tokenizer, None]:
        """Return the tokenizer; no numbers were kept."""
        from seqtool.text.subwords import train_subwords

        return train_subwords(self.sample.lines, **self._options), None


def read_word_list(path: str | Path, unit: str, *, lowercase: bool = False) -> Vocabulary:
    """Read a vocabulary, one word (or character) a line; empty lines are passed over.

    Kaldi's tables begin with a word, too: `words.txt` has its number after it, as the first line
    shows; `lexicon.txt`, known by its name, a pronunciation, in a line for each. Their `<eps>` and
    `#0` are no words.

    Raises:
        DataError: a line holds several, or the file cannot be read.
    """
    symbols: dict[str, None] = {}
    is_table: bool | None = None
    reader = read_blocks(path)
    for block in reader:
        for number, line in enumerate(block.decode().split("\n")[:-1], start=1):
            symbol = line if unit == "char" else line.strip(BLANKS)
            symbol = symbol.lower() if lowercase else symbol
            is_one = len(symbol) < 2
            if unit != "char" and symbol:
                word, *others = re.split(f"[{BLANKS}]+", symbol)
                if is_table is None:
                    is_numbered = len(others) == 1 and others[0].isdecimal()
                    is_named = Path(path).name.startswith("lexicon")
                    is_table = is_numbered or (is_named and bool(others))
                if is_one := is_table == bool(others):
                    symbol = "" if is_table and _KALDI.fullmatch(word) else word
            if not is_one:
                what = f"{symbol!r} is not one {'character' if unit == 'char' else 'word'}"
                if is_table:
                    what = f"{symbol!r} has nothing after it, as the words before it have"
                error = DataError(what, hint="list one symbol a line, or a word first in all lines")
                raise reader.place.located(error, number)
            if symbol not in ("", UNK, EOS, BOS):
                symbols[symbol] = None
    return Vocabulary([UNK, EOS, *symbols])
