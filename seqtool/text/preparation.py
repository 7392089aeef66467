"""Preparation: from text to the files of a prepared corpus.

Each text is read once. The vocabulary is known only at the end of the training text, so that text
waits on disk in a compact form (the spool) until it can be written as ids; so do lines that are
drawn for other splits. Memory holds a block of lines and the counts of the symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from seqtool.core.arrays import Ids
from seqtool.core.config import Config, setting, to_dict
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import Progress, read_blocks, total_size
from seqtool.core.storage import write_json
from seqtool.core.version import __version__
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, NUM_SPECIALS, UNK, UNK_ID, Vocabulary
from seqtool.text.splits import SPLITS, SplitPlan, check_shares, draw_splits
from seqtool.text.tokenizer_training import (
    CharLearner,
    ClosedLearner,
    Learner,
    SubwordLearner,
    WordLearner,
)
from seqtool.text.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    refuse_special_words,
)

FORMAT_VERSION = 1
INFO_FILE = "corpus.json"
_MAX_16_BIT = 1 << 16
_BLANKS = " \t\r"


@dataclass(frozen=True)
class PrepareConfig(Config):
    """How text becomes a prepared corpus."""

    unit: Literal["word", "char", "byte", "bpe", "unigram"] = setting("word", "What a token is.")
    vocab_size: int | None = setting(
        None, "Size of the vocabulary, with <unk> and </s>; all symbols if not given."
    )
    min_count: int = setting(1, "Words or characters rarer than this become <unk>.")
    vocab: str | None = setting(None, "File with the vocabulary, one word or character a line.")
    lowercase: bool = setting(False, "Lower-case the text.")
    field: str | None = setting(None, "Field that holds the text of JSON Lines.")
    split: tuple[float, ...] | None = setting(
        None, "Percentages of train, valid and test to draw by line when no split is given."
    )
    seed: int = setting(0, "Seed of the draws.")
    skip_empty_lines: bool = setting(False, "Leave out lines of nothing but blanks.")
    special_tokens: Literal["refuse", "unknown", "skip"] = setting(
        "refuse", "What a literal <s> or </s> among words becomes."
    )
    character_coverage: float = setting(1.0, "Share of characters that bpe and unigram must cover.")
    byte_fallback: bool = setting(
        False, "Let bpe and unigram spell characters that are not covered by their bytes."
    )
    sample_lines: int = setting(
        200_000, "Lines that bpe and unigram are learnt from, drawn from the text."
    )

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        for name, value, least in (
            ("vocab-size", self.vocab_size, NUM_SPECIALS + 1),
            ("min-count", self.min_count, 1),
            ("sample-lines", self.sample_lines, 1),
            ("seed", self.seed, 0),
            ("character-coverage", self.character_coverage, 0.9),
        ):
            if value is not None and value < least:
                raise ConfigError(
                    f"{name} is {value}, but must be at least {least}", hint=f"change --{name}"
                )
        if self.character_coverage > 1:
            raise ConfigError(
                f"character-coverage is {self.character_coverage}, but must be at most 1",
                hint="change --character-coverage",
            )
        if self.split is not None:
            object.__setattr__(self, "split", check_shares(self.split))
        is_subword = self.unit in ("bpe", "unigram")
        for name, is_set, allowed in (
            ("vocab-size", self.vocab_size is not None, self.unit != "byte"),
            ("min-count", self.min_count > 1, self.unit in ("word", "char")),
            ("vocab", self.vocab is not None, self.unit in ("word", "char")),
            ("byte-fallback", self.byte_fallback, is_subword),
            ("character-coverage", self.character_coverage < 1, is_subword),
        ):
            if is_set and not allowed:
                raise ConfigError(
                    f"{name} means nothing for the unit {self.unit}", hint=f"leave --{name} out"
                )
        if self.vocab is not None and (self.vocab_size is not None or self.min_count > 1):
            raise ConfigError(
                "vocab gives all words, so vocab-size and min-count have nothing to choose",
                hint="leave --vocab-size and --min-count out",
            )


@dataclass
class SplitCounts:
    """Counts of one split.

    Attributes:
        tokens: ids, one `</s>` per sentence included.
        sentences: lines.
        bytes: bytes of the text, line ends included, before lower-casing.
        unknown: tokens that are `<unk>`.
    """

    tokens: int = 0
    sentences: int = 0
    bytes: int = 0
    unknown: int = 0


class Preparation:
    """Reads the text of all splits and fills the directory of a prepared corpus.

    Args:
        directory: an empty directory.
        config: the settings.
        plan: the files of each split, or the shares that are drawn.
        on_progress: called with (bytes read, their total or None).
    """

    def __init__(
        self,
        directory: Path,
        config: PrepareConfig,
        plan: SplitPlan,
        on_progress: Progress | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.plan = plan
        self.counts: dict[str, SplitCounts] = {}
        self._on_progress = on_progress
        # independent streams, so that the sample for subwords does not change the splits
        self._split_rng, self._sample_rng = (
            np.random.default_rng(seed) for seed in np.random.SeedSequence(config.seed).spawn(2)
        )
        self._sources: list[dict[str, Any]] = []
        self._learnt_from: dict[str, int] | None = None
        self._bytes_read = 0
        sizes = [total_size(files) for files in plan.files.values()]
        self._total = None if None in sizes else sum(size for size in sizes if size is not None)

    def run(self) -> None:
        """Write all files.

        Raises:
            ConfigError: a vocabulary that the text does not support.
            DataError: text that cannot be used.
            OSError: the disk is full, or another error of writing.
        """
        spool = self.directory / ".spool"
        with closing(learner_of(self.config, spool, self._sample_rng)) as learner:
            self._read_train(learner)
            if "train" not in self.counts:
                raise DataError(
                    "no line is left for training",
                    hint="give more text, or use it all for training with --split 100",
                    path=self.plan.files["train"][0],
                )
            tokenizer, blocks = learner.finish()
            self._learnt_from = learner.learnt_from
            with self._writer("train", tokenizer) as writer:
                for ids in blocks:
                    writer.write(ids)
        spool.unlink()
        for split in SPLITS[1:]:
            self._write_split(split, tokenizer)
        tokenizer.save(self.directory)
        write_json(self.directory / INFO_FILE, self._info(tokenizer))

    def _read_train(self, learner: Learner) -> None:
        """Read the training files: learn from their lines, keep those of other splits for later."""
        check = self.config.unit == "word" and self.config.special_tokens == "refuse"
        with ExitStack() as stack:
            spools: dict[str, IO[bytes]] = {}

            def handle(split: str, block: bytes) -> None:
                if split == "train":
                    learner.add(block)
                    return
                if check:  # now, while the line of the source is known
                    refuse_special_words(block.lower() if self.config.lowercase else block)
                if split not in spools:
                    spools[split] = stack.enter_context(self._spool(split).open("wb"))
                spools[split].write(block)

            self._read("train", handle)

    def _write_split(self, split: str, tokenizer: Tokenizer) -> None:
        """Write the ids of another split, of lines that were drawn for it or of its own files."""
        spool = self._spool(split)
        if not spool.exists() and split not in self.plan.files:
            return
        with self._writer(split, tokenizer) as writer:
            if spool.exists():
                for block in read_blocks(spool):
                    writer.write(tokenizer.encode_block(block))
                spool.unlink()
            else:
                self._read(split, lambda _, block: writer.write(tokenizer.encode_block(block)))
        if split not in self.counts or not self.counts[split].tokens:
            raise DataError(
                f"the {split} text has only empty lines",
                hint="give another file, or leave --skip-empty-lines out",
                path=self.plan.files[split][0],
            )

    def _spool(self, split: str) -> Path:
        return self.directory / f".{split}"

    def _writer(self, split: str, tokenizer: Tokenizer) -> IdWriter:
        counts = self.counts.setdefault(split, SplitCounts())
        path = self.directory / f"{split}.bin"
        return IdWriter(path, id_type(tokenizer.vocabulary), counts)

    def _read(self, source: str, handle: Callable[[str, bytes], None]) -> None:
        """Read the files of a source; give `handle` each block of lines with its split."""
        digests: dict[str, str] = {}
        start = self._bytes_read

        def on_progress(done: int, total: int | None) -> None:
            self._bytes_read = start + done
            if self._on_progress is not None:
                self._on_progress(self._bytes_read, self._total)

        reader = read_blocks(
            self.plan.files[source],
            field=self.config.field,
            on_progress=on_progress,
            digests=digests,
        )
        pieces = draw_splits(
            reader,
            shares=self.plan.shares if source == "train" else None,
            rng=self._split_rng,
            split=source,
            skip_empty_lines=self.config.skip_empty_lines,
        )
        for piece in pieces:
            self.counts.setdefault(piece.split, SplitCounts()).bytes += len(piece.block)
            try:
                handle(piece.split, piece.block)
            except DataError as error:
                if error.path is not None or error.line is None:
                    raise
                raise reader.located(error, piece.source_line(error.line)) from error
        self._sources += [
            {"path": path, "split": source, "sha256": digest} for path, digest in digests.items()
        ]

    def _info(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the content of `corpus.json`."""
        return {
            "format_version": FORMAT_VERSION,
            "seqtool_version": __version__,
            **tokenizer.describe(),
            "vocabulary_size": len(tokenizer.vocabulary),
            "dtype": id_type(tokenizer.vocabulary).name,
            "splits": {
                split: asdict(self.counts[split]) for split in SPLITS if split in self.counts
            },
            "shares": self.plan.shares,
            "learnt_from": self._learnt_from,
            "sources": self._sources,
            "config": to_dict(self.config),
        }


class IdWriter:
    """Writes ids to a file, little-endian, and counts them.

    Args:
        path: the file to make.
        dtype: the unsigned type on disk.
        counts: brought up to date.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], counts: SplitCounts) -> None:
        self._file = path.open("wb")
        self._dtype = dtype.newbyteorder("<")
        self._counts = counts

    def __enter__(self) -> IdWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def write(self, ids: Ids) -> None:
        """Append ids, shape (tokens,)."""
        self._file.write(ids.astype(self._dtype).data)  # `.data`: without a copy as bytes
        self._counts.tokens += len(ids)
        self._counts.sentences += int(np.count_nonzero(ids == EOS_ID))
        self._counts.unknown += int(np.count_nonzero(ids == UNK_ID))


def id_type(vocabulary: Vocabulary) -> np.dtype[Any]:
    """Return the smallest type that holds every id of a vocabulary."""
    return np.dtype(np.uint16 if len(vocabulary) <= _MAX_16_BIT else np.uint32)


def learner_of(config: PrepareConfig, spool: Path, rng: np.random.Generator) -> Learner:
    """Return the learner that a configuration asks for.

    Raises:
        ConfigError: no room in the vocabulary.
        DataError: the word list cannot be used.
    """
    lowercase = config.lowercase
    if config.unit == "byte":
        tokenizer = ByteTokenizer(Vocabulary(ByteTokenizer.symbols()), lowercase=lowercase)
        return ClosedLearner(spool, tokenizer)
    if config.unit in ("bpe", "unigram"):
        return SubwordLearner(
            spool,
            unit=config.unit,
            vocab_size=config.vocab_size,
            lowercase=lowercase,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            sample_lines=config.sample_lines,
            rng=rng,
        )
    if config.vocab is not None:
        vocabulary = read_word_list(config.vocab, config.unit, lowercase=lowercase)
        if config.unit == "char":
            return ClosedLearner(spool, CharTokenizer(vocabulary, lowercase=lowercase))
        return ClosedLearner(
            spool,
            WordTokenizer(vocabulary, lowercase=lowercase, special_tokens=config.special_tokens),
        )
    if config.unit == "char":
        return CharLearner(
            spool, max_size=config.vocab_size, min_count=config.min_count, lowercase=lowercase
        )
    return WordLearner(
        spool,
        max_size=config.vocab_size,
        min_count=config.min_count,
        lowercase=lowercase,
        special_tokens=config.special_tokens,
    )


def read_word_list(path: str | Path, unit: str, *, lowercase: bool = False) -> Vocabulary:
    """Read a vocabulary, one word (or character) a line; `<unk>`, `</s>` and `<s>` may be there.

    Raises:
        DataError: an empty line, a word listed twice, or one that no text can hold, with its line.
    """
    symbols: dict[str, None] = {}
    reader = read_blocks(path)
    for block in reader:
        for number, line in enumerate(block.decode().split("\n")[:-1], start=1):
            symbol = line if unit == "char" else line.strip(_BLANKS)
            if lowercase:
                symbol = symbol.lower()
            problem = None
            if symbol in (UNK, EOS, BOS):
                continue
            if not symbol:
                problem = "an empty line in a vocabulary"
            elif unit == "char" and len(symbol) > 1:
                problem = f"{symbol!r} is not one character"
            elif unit == "word" and any(blank in symbol for blank in _BLANKS):
                problem = f"{symbol!r} holds a blank, so no text has it as a word"
            elif symbol in symbols and not lowercase:
                problem = f"{symbol!r} is listed twice"
            if problem is not None:
                error = DataError(problem, hint="list each symbol once, one a line")
                raise reader.located(error, number)
            symbols[symbol] = None
    return Vocabulary([UNK, EOS, *symbols])
