"""Training tokenizers: one pass over the training text gives a tokenizer and the text's ids.

Words and characters are numbered as they come and written down so; once their counts are known, the
numbers are exchanged for the final ids, and the text need not be read again. Subwords are learnt
from a sample, and the text, kept unpacked, is encoded after that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Ids
from seqtool.core.reading import BLOCK_SIZE, read_blocks
from seqtool.core.vocabulary import EOS, EOS_ID, NUM_SPECIALS, UNK, UNK_ID, Vocabulary, rank_symbols
from seqtool.text.special_words import SpecialTokens
from seqtool.text.tokenizers import (
    NUM_CODE_POINTS,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    code_points,
)

if TYPE_CHECKING:
    from seqtool.text.words import WordTable


class TokenizerTrainer(ABC):
    """The first pass over the training text.

    Args:
        spool: a temporary file for what the second pass needs; the caller removes it.
    """

    learnt_from: dict[str, int] | None = None
    """How many lines were sampled ("lines"), and from how many ("of"), where it was a sample."""

    def __init__(self, spool: Path) -> None:
        self._spool_path = spool
        self._spool: IO[bytes] = spool.open("wb")
        self._num_sentences = 0

    def add(self, block: bytes) -> None:
        """Read whole lines of training text."""
        self._num_sentences += block.count(b"\n")
        self._spool.write(self._read(block))

    def finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        """Return the tokenizer, and the ids of the training text in blocks."""
        self.close()
        return self._finish()

    def close(self) -> None:
        """Close the temporary file."""
        self._spool.close()

    @abstractmethod
    def _read(self, block: bytes) -> bytes | memoryview:
        """Take in a block and return what to write down of it."""

    @abstractmethod
    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]: ...

    def _spooled_ids(self) -> Iterator[Ids]:
        with self._spool_path.open("rb") as file:
            while data := file.read(BLOCK_SIZE):
                yield np.frombuffer(data, np.int32)


class WordTrainer(TokenizerTrainer):
    """Words, counted and numbered in one pass over the bytes."""

    def __init__(
        self,
        spool: Path,
        *,
        max_size: int | None,
        min_count: int,
        lowercase: bool,
        special_tokens: SpecialTokens,
    ) -> None:
        from seqtool.text.words import WordTable

        rank_symbols(np.zeros(0, np.int64), max_size=max_size)  # refuse a bad size before the work
        super().__init__(spool)
        self._max_size, self._min_count = max_size, min_count
        self._lowercase, self._special_tokens = lowercase, special_tokens
        self._table = WordTable(special_tokens=special_tokens)

    def _read(self, block: bytes) -> memoryview:
        if self._lowercase:
            block = block.decode().lower().encode()
        return self._table.add(block).data

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        vocabulary, final_ids = number_words(
            self._table, self._num_sentences, max_size=self._max_size, min_count=self._min_count
        )
        tokenizer = WordTokenizer(
            vocabulary, lowercase=self._lowercase, special_tokens=self._special_tokens
        )
        return tokenizer, (final_ids[ids] for ids in self._spooled_ids())


def number_words(
    table: WordTable, num_sentences: int, *, max_size: int | None, min_count: int
) -> tuple[Vocabulary, Ids]:
    """Return the vocabulary of what a table has read, and the final id of each of its words.

    Args:
        table: what was read; it held no word before.
        num_sentences: the count of `</s>`.
        max_size: as for `rank_symbols`.
        min_count: as for `rank_symbols`.
    """
    first = table.bos_id + 1
    counts = table.counts
    word_counts = counts[first:]
    kept = rank_symbols(word_counts, max_size=max_size, min_count=min_count)
    unknown = int(counts[UNK_ID] + word_counts.sum() - word_counts[kept].sum())
    words = [table.word(first + i) for i in kept.tolist()]
    final_ids = np.full(len(table), UNK_ID, np.int32)
    final_ids[EOS_ID] = EOS_ID
    final_ids[first + kept] = np.arange(NUM_SPECIALS, NUM_SPECIALS + len(kept))
    return _vocabulary(words, word_counts[kept], unknown, num_sentences), final_ids


class CharTrainer(TokenizerTrainer):
    """Characters: their code points are their first numbers."""

    def __init__(
        self, spool: Path, *, max_size: int | None, min_count: int, lowercase: bool
    ) -> None:
        rank_symbols(np.zeros(0, np.int64), max_size=max_size)
        super().__init__(spool)
        self._max_size, self._min_count, self._lowercase = max_size, min_count, lowercase
        self._counts = np.zeros(NUM_CODE_POINTS, np.int64)
        self._order = [np.zeros(0, np.int64)]  # code points in order of first occurrence

    def _read(self, block: bytes) -> memoryview:
        text = block.decode()
        points = code_points(text.lower() if self._lowercase else text).astype(np.int32)
        for start in range(0, len(points), BLOCK_SIZE):  # bounds the copies for a very long line
            part = points[start : start + BLOCK_SIZE]
            values, first = np.unique(part[self._counts[part] == 0], return_index=True)
            self._order.append(values[np.argsort(first)])
            counts = np.bincount(part)
            self._counts[: len(counts)] += counts
        return points.data

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        points = np.concatenate(self._order)
        points = points[points != ord("\n")]
        counts = self._counts[points]
        kept = rank_symbols(counts, max_size=self._max_size, min_count=self._min_count)
        unknown = int(counts.sum() - counts[kept].sum())
        symbols = [chr(point) for point in points[kept].tolist()]
        vocabulary = _vocabulary(symbols, counts[kept], unknown, self._num_sentences)
        final_ids = np.full(NUM_CODE_POINTS, UNK_ID, np.int32)
        final_ids[points[kept]] = np.arange(NUM_SPECIALS, NUM_SPECIALS + len(kept))
        final_ids[ord("\n")] = EOS_ID
        tokenizer = CharTokenizer(vocabulary, lowercase=self._lowercase)
        return tokenizer, (final_ids[ids] for ids in self._spooled_ids())


class ClosedVocabularyTrainer(TokenizerTrainer):
    """A vocabulary that is known before: only counts are learnt."""

    def __init__(self, spool: Path, tokenizer: WordTokenizer | CharTokenizer | ByteTokenizer):
        super().__init__(spool)
        self._tokenizer = tokenizer
        self._counts = np.zeros(len(tokenizer.vocabulary), np.int64)

    def _read(self, block: bytes) -> memoryview:
        ids = self._tokenizer.encode_block(block)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        return ids.data

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        self._tokenizer.vocabulary.counts = self._counts.tolist()
        return self._tokenizer, self._spooled_ids()


class SubwordTrainer(TokenizerTrainer):
    """SentencePiece, trained on a sample of the lines."""

    def __init__(
        self,
        spool: Path,
        *,
        unit: Literal["bpe", "unigram"],
        vocab_size: int | None,
        lowercase: bool,
        character_coverage: float,
        byte_fallback: bool,
        sample_lines: int,
        rng: np.random.Generator,
    ) -> None:
        from seqtool.text.subwords import LineSample

        super().__init__(spool)
        self._unit, self._vocab_size, self._lowercase = unit, vocab_size, lowercase
        self._character_coverage, self._byte_fallback = character_coverage, byte_fallback
        self.sample = LineSample(sample_lines, rng)

    def _read(self, block: bytes) -> bytes:
        text = block.decode()
        self.sample.add(text.lower() if self._lowercase else text)
        return block

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        from seqtool.text.subwords import train_subwords

        self.learnt_from = {"lines": len(self.sample.lines), "of": self.sample.num_seen}
        tokenizer = train_subwords(
            self.sample.lines,
            unit=self._unit,
            vocab_size=self._vocab_size,
            lowercase=self._lowercase,
            character_coverage=self._character_coverage,
            byte_fallback=self._byte_fallback,
        )
        blocks = read_blocks(self._spool_path)
        return cast(Tokenizer, tokenizer), map(tokenizer.encode_block, blocks)


def _vocabulary(
    symbols: list[str], counts: npt.NDArray[np.int64], unknown: int, num_sentences: int
) -> Vocabulary:
    return Vocabulary([UNK, EOS, *symbols], [unknown, num_sentences, *counts.tolist()])
