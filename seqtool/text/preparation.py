"""Preparation: how text becomes tokens of which split; the settings, the splits, the tokenizer.

Splits are given (files of their own, or a directory with train.*, valid.* and test.* files), or
each line is drawn for one of them at random. A tokenizer is trained in one pass over the training
text, which gives the text's ids too: words and characters are numbered as they come and written
down so, and once they are counted, the numbers are exchanged for the final ids. Subwords are learnt
from a sample, and the text, kept unpacked, is encoded after that.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from seqtool.core.arrays import Ids, Longs
from seqtool.core.config import Config, setting
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import (
    BLOCK_SIZE,
    find_files,
    is_treebank,
    read_blocks,
    without_treebanks,
)
from seqtool.core.runtime import check_memory
from seqtool.core.storage import present
from seqtool.core.vocabulary import (
    BOS,
    EOS,
    EOS_ID,
    NUM_SPECIALS,
    UNK,
    UNK_ID,
    Vocabulary,
    rank_symbols,
)
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

SPLITS = ("train", "valid", "test")
DEFAULT_SHARES = (90.0, 5.0, 5.0)
SHARES_HINT = "give percentages of train, valid and test, as in --split 90,5,5"
_SPLIT_OF = {name: name for name in SPLITS}  # a part of a file's name -> the split it tells
_SPLIT_OF |= {"training": "train", "validation": "valid", "dev": "valid"}
_DROPPED = -1
_BLANKS = " \t\r"


@dataclass(frozen=True)
class PrepareConfig(Config):
    """How text becomes a prepared corpus."""

    unit: Literal["word", "char", "byte", "bpe", "unigram"] = setting("word", "what a token is")
    vocab_size: int | None = setting(
        None,
        "size of the vocabulary, with <unk> and </s>; all if not given, of bpe and unigram 8000",
    )
    min_count: int = setting(1, "words or characters rarer than this become <unk>")
    vocab: str | None = setting(None, "file with the vocabulary, one word or character a line")
    lowercase: bool = setting(False, "lower-case the text")
    field: str | None = setting(None, "field that holds the text of JSON Lines")
    column: Literal["form", "lemma", "upos", "xpos"] | None = setting(
        None, "column of CoNLL-U that is the text: of form the tokens as they are written"
    )
    split: tuple[float, ...] | None = setting(
        None, "percentages of train, valid and test to draw by line when no split is given"
    )
    seed: int = setting(0, "seed of the draws")
    skip_empty_lines: bool = setting(False, "leave out lines of nothing but blanks")
    special_tokens: Literal["refuse", "unknown", "skip"] = setting(
        "refuse", "what a literal <s> or </s> among words becomes"
    )
    character_coverage: float = setting(1.0, "share of characters that bpe and unigram must cover")
    byte_fallback: bool = setting(
        False, "let bpe and unigram spell characters that are not covered by their bytes"
    )
    sample_lines: int = setting(
        200_000, "lines that bpe and unigram are learnt from, drawn from the text"
    )

    @property
    def counts_words(self) -> bool:
        """Whether the vocabulary is of words that are counted."""
        return self.unit == "word" and self.vocab is None

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        for name, value, least in (
            ("vocab-size", self.vocab_size, NUM_SPECIALS + 1),
            ("min-count", self.min_count, 1),
            ("sample-lines", self.sample_lines, 1),
            ("seed", self.seed, 0),
            ("character-coverage", self.character_coverage, 0.98),  # SentencePiece takes no less
        ):
            if value is not None and value < least:
                what = f"{name} is {value}, but must be at least {least}"
                raise ConfigError(what, hint=f"change --{name}")
        if self.character_coverage > 1:
            what = f"character-coverage is {self.character_coverage}, but must be at most 1"
            raise ConfigError(what, hint="change --character-coverage")
        if self.split is not None:
            object.__setattr__(self, "split", check_shares(self.split))
        is_subword = self.unit in ("bpe", "unigram")
        for name, is_set, allowed in (
            ("vocab-size", self.vocab_size is not None, self.unit != "byte"),
            ("min-count", self.min_count > 1, self.unit in ("word", "char")),
            ("vocab", self.vocab is not None, self.unit in ("word", "char")),
            ("special-tokens", self.special_tokens != "refuse", self.unit == "word"),
            ("byte-fallback", self.byte_fallback, is_subword),
            ("character-coverage", self.character_coverage < 1, is_subword),
        ):
            if is_set and not allowed:
                what = f"{name} means nothing for the unit {self.unit}"
                raise ConfigError(what, hint=f"leave --{name} out")
        if self.column is not None and self.field is not None:
            what = "column is for CoNLL-U, and field for JSON Lines"
            raise ConfigError(what, hint="leave one of --column and --field out")
        if self.vocab is not None and (self.vocab_size is not None or self.min_count > 1):
            what = "vocab gives all words, so vocab-size and min-count have nothing to choose"
            raise ConfigError(what, hint="leave --vocab-size and --min-count out")


@dataclass(frozen=True)
class SplitPlan:
    """The files of each split, or the shares by which lines are drawn."""

    files: dict[str, list[str]]  # split -> its files; only "train" when all are drawn from it
    shares: tuple[float, ...] | None  # percentages of the splits to draw, None when they are given


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the percentages in a text such as 90,5,5; a ConfigError if they are no numbers."""
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        what = f"split is {text!r}, which is no list of numbers"
        raise ConfigError(what, hint=SHARES_HINT) from error


def check_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Return the shares of all splits, those left out as 0; a ConfigError if they are wrong."""
    text = ",".join(f"{share:g}" for share in shares)
    if not 1 <= len(shares) <= len(SPLITS) or min(shares) < 0 or shares[0] <= 0:
        raise ConfigError(f"split is {text}", hint=SHARES_HINT)
    if not abs(sum(shares) - 100) < 1e-6:
        what = f"split is {text}, which sums to {sum(shares):g}, not 100"
        raise ConfigError(what, hint=SHARES_HINT)
    return (*shares, *[0.0] * (len(SPLITS) - len(shares)))


def plan_splits(
    inputs: Sequence[str | Path],
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    shares: tuple[float, ...] | None = None,
    treebanks: bool = False,
) -> SplitPlan:
    """Return the files of each split, or the shares to draw.

    The inputs are files, directories and `-`, of text or of treebanks. Shares are percentages of
    train, valid and test; when None, and no split is given, `DEFAULT_SHARES`. With a split that is
    given they are refused.
    """
    find = partial(find_files, treebanks=treebanks)
    parts = {"valid": valid, "test": test}
    given = {name: [str(path)] for name, path in parts.items() if path is not None}
    if shares is not None:
        if given:
            what = f"--split would make splits, but --{next(iter(given))} gives one"
            raise ConfigError(what, hint="leave one of the two out")
        return SplitPlan({"train": find(inputs)}, shares)
    named = _named_splits(inputs, treebanks)
    files = {**named, **given} if named else {"train": [str(item) for item in inputs], **given}
    files = {split: find(files[split]) for split in SPLITS if split in files}
    return SplitPlan(files, DEFAULT_SHARES if len(files) == 1 else None)


def _named_splits(inputs: Sequence[str | Path], treebanks: bool) -> dict[str, list[str]]:
    """Return the splits that the file names of a single directory tell, if there are several.

    Treebanks beside texts are left alone, and texts beside treebanks.
    """
    if len(inputs) != 1 or not (folder := present(Path(inputs[0]))).is_dir():
        return {}
    found: dict[str, list[str]] = {}
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        # wiki.train.tokens, train.txt.gz, en_ewt-ud-train.conllu
        parts = re.split("[.-]" if treebanks else "[.]", path.name.lower())
        names = {_SPLIT_OF[part] for part in parts if part in _SPLIT_OF}
        if parts[0] and is_treebank(path) == treebanks and len(names) == 1:
            found.setdefault(names.pop(), []).append(str(path))
    if "train" not in found or len(found) == 1:
        return {}
    if not treebanks:
        without_treebanks(folder, [*map(str, files)])  # says which are left out
    return found


class Piece(NamedTuple):
    """Whole lines of one split."""

    split: str
    block: bytes  # the lines, each ended by LF
    lines: Longs | None  # which lines of the source block they were, 1-based; None for all of them

    def source_line(self, line: int) -> int:
        """Return the 1-based line of the source block of a 1-based line of this piece."""
        return line if self.lines is None else int(self.lines[line - 1])


def draw_splits(
    blocks: Iterable[bytes],
    *,
    shares: Sequence[float] | None,
    rng: np.random.Generator,
    split: str = "train",
    skip_empty_lines: bool = False,
) -> Iterator[Piece]:
    """Yield the lines of each block split by split.

    The draw of a line depends on the seed and on its number only, not on how large blocks are.
    The shares are percentages of train, valid and test; None sends all lines to `split`. Lines
    of nothing but blanks are dropped where they are to be skipped.
    """
    bounds = None if shares is None else np.cumsum(shares) / np.sum(shares)
    names = (split,) if bounds is None else SPLITS
    for block in blocks:
        if bounds is None and not skip_empty_lines:
            yield Piece(split, block, None)
            continue
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        choice = np.zeros(len(ends), np.int64)
        if bounds is not None:
            # the last bound is left out: rounding may leave it a little below 1
            choice = np.searchsorted(bounds[:-1], rng.random(len(ends)), side="right")
        if skip_empty_lines:
            empty = [not line.strip(b" \t\r") for line in block.split(b"\n")[:-1]]
            choice[empty] = _DROPPED
        for number, lines_block in _lines_by_choice(block, ends, choice):
            lines = np.flatnonzero(choice == number) + 1
            yield Piece(names[number], lines_block, lines)


def _lines_by_choice(block: bytes, ends: Longs, choice: Longs) -> Iterator[tuple[int, bytes]]:
    """Yield (choice, the lines with that choice joined); `ends` are the bytes after line ends."""
    # neighbours with one choice are copied together: nine lines of ten are for training
    changes = np.flatnonzero(np.diff(choice)) + 1
    first_lines = np.concatenate(([0], changes))
    starts = np.concatenate(([0], ends[changes - 1]))
    stops = np.append(starts[1:], len(block))
    view = memoryview(block)
    parts: dict[int, list[memoryview]] = {}
    runs = zip(choice[first_lines].tolist(), starts.tolist(), stops.tolist(), strict=True)
    for number, start, stop in runs:
        parts.setdefault(number, []).append(view[start:stop])
    parts.pop(_DROPPED, None)
    for number in sorted(parts):
        yield number, b"".join(parts[number])


def random_generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return what draws the splits, a number a line, and what draws the sample for subwords.

    They are independent, so that the sample does not change the splits.
    """
    splits, sample = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    return splits, sample


class TokenizerTrainer(ABC):
    """The first pass over the training text.

    What the second needs is in the temporary file `spool`, which the caller removes.
    """

    learnt_from: dict[str, int] | None = None
    """How many lines were sampled ("lines"), and from how many ("of"), where it was a sample."""

    def __init__(self, spool: Path, config: PrepareConfig) -> None:
        self._spool_path, self._config = spool, config
        self._spool: IO[bytes] = spool.open("wb")
        self._num_sentences = 0

    def add(self, block: bytes) -> None:
        """Read whole lines of training text."""
        self._num_sentences += block.count(b"\n")
        self._spool.write(self._read(block))

    def finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        """Return the tokenizer, and the ids of the training text in blocks."""
        self._spool.flush()
        return self._finish()

    def close(self) -> None:
        """Close the temporary file."""
        self._spool.close()

    @abstractmethod
    def _read(self, block: bytes) -> bytes | memoryview:
        """Take in a block and return what to write down of it."""

    @abstractmethod
    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]: ...

    def _text(self, block: bytes) -> str:
        return block.decode().lower() if self._config.lowercase else block.decode()

    def _spooled_ids(self) -> Iterator[Ids]:
        """Give what was written down in the temporary file."""
        with self._spool_path.open("rb") as file:
            while data := file.read(BLOCK_SIZE):
                yield np.frombuffer(data, np.int32)


class WordTrainer(TokenizerTrainer):
    """Words, counted and numbered in one pass over the bytes; `memory` is what they may take."""

    def __init__(self, spool: Path, config: PrepareConfig, memory: int | None = None) -> None:
        from seqtool.text.words import WordTable

        super().__init__(spool, config)
        self._memory = memory
        self._table = WordTable(special_tokens=config.special_tokens)
        self._size = self._table.nbytes

    def _read(self, block: bytes) -> memoryview:
        if self._table.nbytes > self._size:  # it has grown, and may do so again
            self._size = self._table.nbytes
            what = f"{len(self._table):,} different words"
            check_memory(self._size, what, "free some memory", self._memory)
        return self._table.add(self._text(block).encode() if self._config.lowercase else block).data

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        config = self._config
        vocabulary, final_ids = number_words(
            self._table,
            self._num_sentences,
            max_size=config.vocab_size,
            min_count=config.min_count,
        )
        tokenizer = WordTokenizer(
            vocabulary, lowercase=config.lowercase, special_tokens=config.special_tokens
        )
        return tokenizer, (final_ids[ids] for ids in self._spooled_ids())


def number_words(
    table: WordTable, num_sentences: int, *, max_size: int | None, min_count: int
) -> tuple[Vocabulary, Ids]:
    """Return the vocabulary of what a table, empty before, has read, and its words' final ids."""
    first, special_counts = table.bos_id + 1, [int(table.counts[UNK_ID]), num_sentences]
    numbers, counts = np.arange(first, len(table)), table.counts[first:]
    kept = rank_symbols(counts, max_size=max_size, min_count=min_count)
    vocabulary, final_ids = _renumbered(
        numbers, counts, kept, table.word, special_counts, len(table)
    )
    final_ids[EOS_ID] = EOS_ID
    return vocabulary, final_ids


def _renumbered(
    numbers: Longs,
    counts: Longs,
    kept: Longs,
    name: Callable[[int], str],
    special_counts: list[int],
    size: int,
) -> tuple[Vocabulary, Ids]:
    """Return the vocabulary of the symbols that are kept, and the final id of each first number.

    `numbers` and `counts` are the first number of each symbol and how often it occurred, `name`
    gives the symbol of a number, `size` is how many numbers there are. `special_counts` are
    those of `<unk>`, but for the symbols that are not kept, and of `</s>`.
    """
    special_counts[UNK_ID] += int(counts.sum() - counts[kept].sum())
    symbols = [UNK, EOS, *map(name, numbers[kept].tolist())]
    final_ids = np.full(size, UNK_ID, np.int32)
    final_ids[numbers[kept]] = np.arange(NUM_SPECIALS, len(symbols))
    return Vocabulary(symbols, [*special_counts, *counts[kept].tolist()]), final_ids


class CharCounts:
    """How often each character occurs; their code points are their first numbers."""

    def __init__(self) -> None:
        self._counts = np.zeros(NUM_CODE_POINTS, np.int64)
        self._order = [np.zeros(0, np.int64)]  # code points in order of first occurrence

    def add(self, points: Ids) -> None:
        """Count code points."""
        for start in range(0, len(points), BLOCK_SIZE):  # bounds the copies for a very long line
            part = points[start : start + BLOCK_SIZE]
            values, first = np.unique(part[self._counts[part] == 0], return_index=True)
            self._order.append(values[np.argsort(first)])
            counts = np.bincount(part)
            self._counts[: len(counts)] += counts

    def found(self) -> tuple[Longs, Longs]:
        """Return the code points but LF, in order of first occurrence, and their counts."""
        points = np.concatenate(self._order)
        points = points[points != ord("\n")]
        return points, self._counts[points]


class CharTrainer(TokenizerTrainer):
    """Characters, counted."""

    def __init__(self, spool: Path, config: PrepareConfig) -> None:
        super().__init__(spool, config)
        self._counts = CharCounts()

    def _read(self, block: bytes) -> memoryview:
        points = code_points(self._text(block)).astype(np.int32)
        self._counts.add(points)
        return points.data

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        config = self._config
        points, counts = self._counts.found()
        kept = rank_symbols(counts, max_size=config.vocab_size, min_count=config.min_count)
        vocabulary, final_ids = _renumbered(
            points, counts, kept, chr, [0, self._num_sentences], NUM_CODE_POINTS
        )
        final_ids[ord("\n")] = EOS_ID
        tokenizer = CharTokenizer(vocabulary, lowercase=config.lowercase)
        return tokenizer, (final_ids[ids] for ids in self._spooled_ids())


class ClosedVocabularyTrainer(TokenizerTrainer):
    """A vocabulary that is known before: only counts are learnt."""

    def __init__(self, spool: Path, config: PrepareConfig, tokenizer: Tokenizer) -> None:
        super().__init__(spool, config)
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

    def __init__(self, spool: Path, config: PrepareConfig, rng: np.random.Generator) -> None:
        from seqtool.text.subwords import LineSample

        super().__init__(spool, config)
        self._sample = LineSample(config.sample_lines, rng)

    def _read(self, block: bytes) -> bytes:
        self._sample.add(self._text(block))
        return block

    def _finish(self) -> tuple[Tokenizer, Iterator[Ids]]:
        self.learnt_from = {"lines": len(self._sample.lines), "of": self._sample.num_seen}
        tokenizer = learn_subwords(self._sample.lines, self._config)
        return tokenizer, map(tokenizer.encode_block, spooled_lines(self._spool_path))


def spooled_lines(path: Path) -> Iterator[bytes]:
    """Give a temporary file of whole lines in blocks of these, as it is: it was read before."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(BLOCK_SIZE):
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield rest + chunk[:cut]
            rest = chunk[cut:] if cut else rest + chunk
    if rest:
        yield rest


def learn_subwords(lines: Sequence[str], config: PrepareConfig) -> Tokenizer:
    """Return a tokenizer of subwords that are learnt from lines; see `subwords.train_subwords`."""
    from seqtool.text.subwords import train_subwords

    names = ("unit", "vocab_size", "lowercase", "character_coverage", "byte_fallback")
    options: dict[str, Any] = {name: getattr(config, name) for name in names}
    return train_subwords(lines, **options)


def trainer_for(
    config: PrepareConfig, spool: Path, rng: np.random.Generator, memory: int | None = None
) -> TokenizerTrainer:
    """Return the trainer that a configuration asks for; a DataError if its word list is bad.

    Args:
        config: unit, vocabulary.
        spool: a temporary file, which the caller removes.
        rng: draws the lines that subwords are learnt from.
        memory: bytes that the process may take, in all; what it has when None.
    """
    if config.counts_words:
        return WordTrainer(spool, config, memory)
    known = known_tokenizer(config)
    if known is not None:
        return ClosedVocabularyTrainer(spool, config, known)
    return (
        CharTrainer(spool, config) if config.unit == "char" else SubwordTrainer(spool, config, rng)
    )


def known_tokenizer(config: PrepareConfig) -> Tokenizer | None:
    """Return a tokenizer whose vocabulary is known before the text is read; None of others.

    Raises:
        DataError: the word list cannot be used.
    """
    lowercase = config.lowercase
    if config.unit == "byte":
        return ByteTokenizer(Vocabulary(ByteTokenizer.symbols()), lowercase=lowercase)
    if config.vocab is None:
        return None
    vocabulary = read_word_list(config.vocab, config.unit, lowercase=lowercase)
    if config.unit == "word":
        return WordTokenizer(vocabulary, lowercase=lowercase, special_tokens=config.special_tokens)
    return CharTokenizer(vocabulary, lowercase=lowercase)


def read_word_list(path: str | Path, unit: str, *, lowercase: bool = False) -> Vocabulary:
    """Read a vocabulary, one word (or character) a line; a DataError tells a bad one's line.

    Empty lines at the end are passed over, as editors leave them; others are refused, as they may
    be of words that were lost.
    """
    hint = "list each symbol once, one a line"
    empty: DataError | None = None  # the first line of those that end the file, as far as is known
    symbols: dict[str, None] = {}
    reader = read_blocks(path)
    for block in reader:
        for number, line in enumerate(block.decode().split("\n")[:-1], start=1):
            symbol = line if unit == "char" else line.strip(_BLANKS)
            if lowercase:
                symbol = symbol.lower()
            problem = None
            if not symbol:
                error = DataError("an empty line in a vocabulary", hint=hint)
                empty = empty or reader.located(error, number)
                continue
            if empty is not None:
                raise empty
            if symbol in (UNK, EOS, BOS):
                continue
            if unit == "char" and len(symbol) > 1:
                problem = f"{symbol!r} is not one character"
            elif unit == "word" and any(blank in symbol for blank in _BLANKS):
                problem = f"{symbol!r} holds a blank, so no text has it as a word"
            elif symbol in symbols and not lowercase:
                problem = f"{symbol!r} is listed twice"
            if problem is not None:
                error = DataError(problem, hint=hint)
                raise reader.located(error, number)
            symbols[symbol] = None
    return Vocabulary([UNK, EOS, *symbols])
