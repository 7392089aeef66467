"""Vocabularies of texts that Spark reads, and subwords: those that one process learns.

Lines are drawn for splits by a random number each, in order. So a worker that knows how many lines
are before a block draws what one process draws; and the driver, which knows how many lines there
are, draws the numbers of those from which subwords are learnt, before it has one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from seqtool.core.arrays import Longs
from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS, UNK, Vocabulary, rank_symbols
from seqtool.spark.counting import counted
from seqtool.spark.texts import TextPart, Texts
from seqtool.text.preparation import (
    CharCounts,
    Piece,
    PrepareConfig,
    draw_splits,
    known_tokenizer,
    learn_subwords,
    random_generators,
)
from seqtool.text.prepared import refuse_no_training
from seqtool.text.tokenizers import CharTokenizer, Tokenizer, WordTokenizer, code_points

_AT_ONCE = 1 << 20  # lines of which some are drawn

Before = Mapping[tuple[int, int], int]  # by the rank of a file and its block: what is before it


@dataclass(frozen=True)
class Source:
    """The files of a split, or those from which all splits are drawn.

    Attributes:
        texts: that are read.
        split: of lines that are not drawn.
        config: unit, vocabulary.
        shares: percentages of the splits to draw; None where there is nothing to draw.
        before: the lines before each block, where lines are drawn.
    """

    texts: Texts
    split: str
    config: PrepareConfig
    shares: tuple[float, ...] | None = None
    before: Before = field(default_factory=dict)

    @property
    def pieces(self) -> Pieces:
        """What cuts a text, for workers: it has no frames of Spark."""
        return Pieces(self.split, self.config, self.shares, self.before)


@dataclass(frozen=True)
class Pieces:
    """Cuts the texts of a block into pieces of splits; see `Source`."""

    split: str
    config: PrepareConfig
    shares: tuple[float, ...] | None
    before: Before

    def of_block(self, rank: int, block: int) -> Callable[[TextPart], Iterator[Piece]]:
        """Return what cuts the texts of a block, which must come in order."""
        rng, _ = random_generators(self.config.seed)
        # a number was drawn for each line before
        rng.bit_generator.advance(self.before.get((rank, block), 0))  # type: ignore[attr-defined]

        def pieces(text: TextPart) -> Iterator[Piece]:
            return draw_splits(
                [text.content],
                shares=self.shares,
                rng=rng,
                split=self.split,
                skip_empty_lines=self.config.skip_empty_lines,
            )

        return pieces


class _Lines:
    """Counts the lines of a block."""

    def __init__(self, rank: int, block: int) -> None:
        self._num = 0

    def add(self, text: TextPart) -> None:
        self._num += text.content.count(b"\n")

    def symbols(self) -> Iterable[tuple[str, int]]:
        return ()

    def totals(self) -> dict[str, int]:
        return {"lines": self._num}


class _Training(ABC):
    """Reads the training text of a block."""

    def __init__(self, rank: int, block: int, pieces: Pieces) -> None:
        self._cut, self._config = pieces.of_block(rank, block), pieces.config
        self._num_sentences = self._num_tokens = 0

    def add(self, text: TextPart) -> None:
        for piece in self._cut(text):
            if piece.split == "train":
                self._num_sentences += piece.block.count(b"\n")
                with naming_line(piece):
                    self._num_tokens += self._read(piece.block)

    @abstractmethod
    def _read(self, block: bytes) -> int:
        """Read whole lines, and return the number of tokens."""

    def _text(self, block: bytes) -> str:
        return block.decode().lower() if self._config.lowercase else block.decode()

    def symbols(self) -> Iterable[tuple[str, int]]:
        return ()

    def totals(self) -> dict[str, int]:
        return {"sentences": self._num_sentences, "tokens": self._num_tokens}


class _Words(_Training):
    """Counts words."""

    def __init__(self, rank: int, block: int, pieces: Pieces) -> None:
        from seqtool.text.words import WordTable

        super().__init__(rank, block, pieces)
        self._table = WordTable(special_tokens=self._config.special_tokens)

    def _read(self, block: bytes) -> int:
        return len(self._table.add(self._text(block).encode()))

    def symbols(self) -> Iterable[tuple[str, int]]:
        counts = self._table.counts.tolist()
        numbers = range(self._table.bos_id + 1, len(self._table))
        return ((self._table.word(number), counts[number]) for number in numbers)


class _Characters(_Training):
    """Counts characters."""

    def __init__(self, rank: int, block: int, pieces: Pieces) -> None:
        super().__init__(rank, block, pieces)
        self._counts = CharCounts()

    def _read(self, block: bytes) -> int:
        points = code_points(self._text(block)).astype(np.int32)
        self._counts.add(points)
        return len(points)

    def symbols(self) -> Iterable[tuple[str, int]]:
        points, counts = self._counts.found()
        return zip(map(chr, points.tolist()), counts.tolist(), strict=True)


class _Known(_Training):
    """Counts the ids of a tokenizer; its symbols are these."""

    def __init__(self, rank: int, block: int, pieces: Pieces, tokenizer: Tokenizer) -> None:
        super().__init__(rank, block, pieces)
        self._tokenizer = tokenizer
        self._counts = np.zeros(len(tokenizer.vocabulary), np.int64)

    def _read(self, block: bytes) -> int:
        ids = self._tokenizer.encode_block(block)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        return len(ids)

    def symbols(self) -> Iterable[tuple[str, int]]:
        found = np.flatnonzero(self._counts)
        return ((str(id_), int(self._counts[id_])) for id_ in found)


class _Drawn(_Training):
    """Counts lines from which subwords can be learnt, and gives those that are drawn.

    The lines are its tokens, and the numbers of those that are drawn and the lines its symbols.
    """

    def __init__(
        self, rank: int, block: int, pieces: Pieces, before: Before, wanted: Longs
    ) -> None:
        super().__init__(rank, block, pieces)
        self._next, self._wanted = before.get((rank, block), 0), wanted
        self._found: list[tuple[str, int]] = []

    def _read(self, block: bytes) -> int:
        from seqtool.text.subwords import sample_lines

        lines = sample_lines(self._text(block))
        first, last = np.searchsorted(self._wanted, [self._next, self._next + len(lines)])
        for number in self._wanted[first:last].tolist():
            # a line may be there twice, and a symbol may not: its number makes it another
            self._found.append((f"{number} {lines[number - self._next]}", 1))
        self._next += len(lines)
        return len(lines)

    def symbols(self) -> Iterable[tuple[str, int]]:
        return self._found


@contextmanager
def naming_line(piece: Piece) -> Iterator[None]:
    """Let an error name the line of the text that a piece was cut from."""
    try:
        yield
    except DataError as error:
        line = piece.source_line(error.line or 1)
        raise DataError(error.message, hint=error.hint, line=line) from error


def sums_before(
    rows: Iterable[Mapping[str, Any]], name: str
) -> tuple[dict[tuple[int, int], int], int]:
    """Return the sum of a column of the blocks before each one, and that of all blocks."""
    before, total = {}, 0
    for row in sorted(rows, key=lambda row: (row["rank"], row["block"])):
        before[row["rank"], row["block"]] = total
        total += row[name] or 0
    return before, total


def lines_before_blocks(texts: Texts) -> Before:
    """Return how many lines of all files are before each block."""
    return sums_before(counted(texts, _Lines)[1], "lines")[0]


def learn(source: Source) -> tuple[Tokenizer, dict[str, int] | None]:
    """Return the tokenizer of a training text, and from how many lines it was learnt, if so."""
    config, texts, pieces = source.config, source.texts, source.pieces
    tokenizer = known_tokenizer(config)
    if tokenizer is not None:
        counts, blocks = counted(texts, partial(_Known, pieces=pieces, tokenizer=tokenizer))
        _check_training(blocks, source)
        of_ids = np.zeros(len(tokenizer.vocabulary), np.int64)
        of_ids[[*map(int, counts)]] = [*counts.values()]
        tokenizer.vocabulary.counts = of_ids.tolist()
        return tokenizer, None
    if config.unit in ("bpe", "unigram"):
        return _learn_subwords(source)
    counter = _Words if config.unit == "word" else _Characters
    counts, blocks = counted(texts, partial(counter, pieces=pieces), min_count=config.min_count)
    num_sentences = _check_training(blocks, source)
    numbers = np.fromiter(counts.values(), np.int64, len(counts))
    kept = rank_symbols(numbers, max_size=config.vocab_size, min_count=config.min_count)
    names = [*counts]
    num_known = int(numbers[kept].sum())
    num_unknown = sum(row["tokens"] for row in blocks) - num_sentences - num_known
    vocabulary = Vocabulary(
        [UNK, EOS, *(names[place] for place in kept.tolist())],
        [num_unknown, num_sentences, *numbers[kept].tolist()],
    )
    if config.unit == "char":
        return CharTokenizer(vocabulary, lowercase=config.lowercase), None
    policy = config.special_tokens
    return WordTokenizer(vocabulary, lowercase=config.lowercase, special_tokens=policy), None


def _check_training(blocks: Iterable[Mapping[str, Any]], source: Source) -> int:
    """Return the sentences of a training text; a DataError if there are none."""
    num = sum(int(row["sentences"]) for row in blocks)
    if not num:
        refuse_no_training(source.texts.files[0])
    return num


def _learn_subwords(source: Source) -> tuple[Tokenizer, dict[str, int]]:
    """Learn subwords here, from the lines that one process draws."""
    from seqtool.text.subwords import LineSample

    config, pieces = source.config, source.pieces
    nothing = np.empty(0, np.int64)
    drawn = partial(_Drawn, pieces=pieces, before={}, wanted=nothing)
    _, blocks = counted(source.texts, drawn)
    _check_training(blocks, source)
    before, num = sums_before(blocks, "tokens")
    _, rng = random_generators(config.seed)
    sample = LineSample(config.sample_lines, rng)
    for first in range(0, num, _AT_ONCE):
        sample.add_lines(range(first, min(first + _AT_ONCE, num)))
    wanted = np.sort(np.array(sample.lines, np.int64))
    drawn = partial(_Drawn, pieces=pieces, before=before, wanted=wanted)
    found = {}
    for symbol in counted(source.texts, drawn)[0]:
        number, _, line = symbol.partition(" ")
        found[int(number)] = line
    tokenizer = learn_subwords([found[number] for number in sample.lines], config)
    return tokenizer, {"lines": len(sample.lines), "of": num}
