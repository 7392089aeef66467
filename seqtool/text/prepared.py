"""Prepared corpora: text as ids in memory-mapped files, with its tokenizer.

corpus.json        format version, unit, counts per split, where the text came from
vocabulary.json    or tokenizer.model
train.bin          little-endian ids, 16 bits each, or 32 where the vocabulary needs it:
valid.bin ...      every line is its tokens and `</s>`, a blank line is just `</s>`

Splits are given (files of their own, or a directory with train.*, valid.* and test.* files), or
each line is drawn for one of them at random. Each text is read once. The vocabulary is known only
at the end of the training text, so that text waits on disk in a compact form (the spool) until it
can be written as ids: words and characters as the numbers that they got as they came, for subwords
the text itself. Lines that are drawn for other splits wait likewise.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from seqtool.core import runtime
from seqtool.core.arrays import Ids
from seqtool.core.config import Config, from_dict, refuse_unread, setting, to_dict
from seqtool.core.errors import ConfigError, DataError, ModelError, OutputError, from_os_error
from seqtool.core.one_line import OneLine
from seqtool.core.reading import (
    BLOCK_SIZE,
    CORPUS,
    Progress,
    find_files,
    is_corpus,
    is_treebank,
    read_blocks,
    total_size,
    without_treebanks,
)
from seqtool.core.storage import atomic_directory, present, read_object, write_json
from seqtool.core.version import __version__
from seqtool.core.vocabulary import (
    EOS_ID,
    NUM_SPECIALS,
    UNK_ID,
    Vocabulary,
    refuse_special_words,
)
from seqtool.text.learning import (
    ByteCounter,
    CharCounter,
    Learner,
    SubwordLearner,
    WordCounter,
)
from seqtool.text.tokenizers import Tokenizer, load_tokenizer, turned

FORMAT_VERSION = 1
INFO_FILE = CORPUS
SPLITS = ("train", "valid", "test")
DEFAULT_SHARES = (90.0, 5.0, 5.0)
SHARES_HINT = "give percentages of train, valid and test, as in --split 90,5,5"
AGAIN = "prepare the text again"
_SPLIT_OF = {name: name for name in SPLITS}  # a part of a file's name -> the split it tells
_SPLIT_OF |= {"training": "train", "validation": "valid", "dev": "valid"}
_DROPPED = -1
_PIECE = 1 << 16  # ids that are looked at together


@dataclass(frozen=True)
class PrepareConfig(Config):
    """How text becomes a prepared corpus."""

    unit: Literal["word", "char", "byte", "bpe", "unigram"] = setting("word", "what a token is")
    vocab_size: int | None = setting(
        None,
        "size of the vocabulary, with <unk> and </s>; all if not given, of bpe and unigram 8000",
        minimum=NUM_SPECIALS + 1,
        when="unit is word/char/bpe/unigram and vocab is None",
    )
    min_count: int = setting(
        1,
        "words or characters rarer than this become <unk>",
        minimum=1,
        when="unit is word/char and vocab is None",
    )
    vocab: str | None = setting(
        None, "file with the vocabulary, one word or character a line", when="unit is word/char"
    )
    lowercase: bool = setting(False, "lower-case the text")
    reverse: bool = setting(
        False, "turn the words or characters of each line around", when="unit is word/char"
    )
    field: str | None = setting(
        None, "field that holds the text of JSON Lines", when="column is None"
    )
    column: Literal["form", "word", "lemma", "upos", "xpos"] | None = setting(
        None,
        "column of CoNLL-U that is the text: form are the tokens as they are written, word those "
        "of the tree",
    )
    split: tuple[float, ...] | None = setting(
        None, "percentages of train, valid and test to draw by line when no split is given"
    )
    seed: int = setting(0, "seed of the draws", minimum=0)
    skip_empty_lines: bool = setting(False, "leave out lines of nothing but blanks")
    special_tokens: Literal["refuse", "unknown", "skip"] = setting(
        "refuse", "what a literal <s> or </s> among words becomes", when="unit is word"
    )
    character_coverage: float = setting(
        1.0,
        "share of characters that bpe and unigram must cover",
        minimum=0.98,  # SentencePiece takes no less
        maximum=1.0,
        when="unit is bpe/unigram",
    )
    byte_fallback: bool = setting(
        False,
        "let bpe and unigram spell characters that are not covered by their bytes",
        when="unit is bpe/unigram",
    )
    sample_lines: int = setting(
        200_000, "lines that bpe and unigram are learnt from, drawn from the text", minimum=1
    )

    def check(self) -> None:
        """Refuse shares that are none, and settings that count nowhere beside the others."""
        if self.split is not None:
            object.__setattr__(self, "split", check_shares(self.split))
        for name in vars(self):
            refuse_unread([(self, name)])


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
    other_splits = {name: [str(path)] for name, path in parts.items() if path is not None}
    if shares is not None:
        if other_splits:
            what = f"--split would make splits, but --{next(iter(other_splits))} gives one"
            raise ConfigError(what, hint="leave one of the two out")
        return SplitPlan({"train": find(inputs)}, shares)
    named = _named_splits(inputs, treebanks)
    files = (
        {**named, **other_splits}
        if named
        else {"train": [str(item) for item in inputs], **other_splits}
    )
    files = {split: find(files[split]) for split in SPLITS if split in files}
    return SplitPlan(files, DEFAULT_SHARES if len(files) == 1 else None)


def _named_splits(inputs: Sequence[str | Path], treebanks: bool) -> dict[str, list[str]]:
    """Return the splits that the file names of a single directory name, if there are several.

    Treebanks beside texts are left alone, and texts beside treebanks.
    """
    if len(inputs) != 1 or not (folder := present(Path(inputs[0]))).is_dir():
        return {}
    splits: dict[str, list[str]] = {}
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        # wiki.train.tokens, train.txt.gz, en_ewt-ud-train.conllu
        parts = re.split("[.-]" if treebanks else "[.]", path.name.lower())
        names = {_SPLIT_OF[part] for part in parts if part in _SPLIT_OF}
        if parts[0] and is_treebank(path) == treebanks and len(names) == 1:
            splits.setdefault(names.pop(), []).append(str(path))
    if "train" not in splits or len(splits) == 1:
        return {}
    if not treebanks:
        without_treebanks(folder, [*map(str, files)])  # says which are left out
    return splits


@dataclass(frozen=True)
class PreparedCorpus(OneLine):
    """A text as ids on disk, which are mapped into memory when they are read."""

    shown = ("path", "tokenizer.unit", "vocabulary", "num_tokens")

    path: Path  # its directory
    tokenizer: Tokenizer  # that turned the text into ids
    info: dict[str, Any]  # the content of `corpus.json`
    _sound: set[str] = field(default_factory=set)  # splits whose ids were looked through

    @classmethod
    def open(cls, path: str | Path) -> PreparedCorpus:
        """Open a prepared corpus; a DataError or ModelError tells what is no such, or damaged."""
        path = Path(path)
        info = _read_info(present(path))
        tokenizer = load_tokenizer(present(path), info)
        if (size := len(tokenizer.vocabulary)) != info["vocabulary_size"]:
            what = f"its vocabulary has {size} symbols, but {INFO_FILE} says"
            raise DataError(f"{what} {info['vocabulary_size']}", hint=AGAIN, path=path)
        return cls(path, tokenizer, info)

    @property
    def vocabulary(self) -> Vocabulary:
        """The symbols that the ids stand for."""
        return self.tokenizer.vocabulary

    @property
    def num_tokens(self) -> dict[str, int]:
        """Tokens of each split, `</s>` included."""
        return {name: split["tokens"] for name, split in self.info["splits"].items()}

    def splits(self) -> list[str]:
        """Return the names of the splits that are there."""
        return list(self.info["splits"])

    def ids(self, split: str) -> npt.NDArray[np.unsignedinteger]:
        """Return the ids of a split, shape (tokens,), unsigned, read-only, mapped into memory.

        All of them are looked through the first time, as fast as memory is read.

        Raises:
            DataError: there is no such split, or its ids are not what `corpus.json` says.
        """
        if split not in self.info["splits"]:
            what = f"the corpus has no {split} split, only {', '.join(self.splits())}"
            hint = "choose one of these, or prepare the text again with --split 90,5,5"
            raise DataError(what, hint=hint, path=self.path)
        path = present(self.path) / f"{split}.bin"
        ids = np.memmap(path, np.dtype(self.info["dtype"]).newbyteorder("<"), mode="r")
        if split not in self._sound:
            largest = num_ends = 0
            for start in range(0, len(ids), _PIECE):
                piece = ids[start : start + _PIECE]  # stays in the cache for the second look
                largest = max(largest, int(piece.max()))
                num_ends += int(np.count_nonzero(piece == EOS_ID))
            num_sentences = self.info["splits"][split]["sentences"]
            if largest >= len(self.vocabulary) or num_ends != num_sentences or ids[-1] != EOS_ID:
                what = f"is damaged: id {largest:,} of {len(self.vocabulary):,}, {num_ends:,} ends"
                raise DataError(what, hint=AGAIN, path=path)
            self._sound.add(split)
        return ids


def _read_info(path: Path) -> dict[str, Any]:
    """Return the content of `corpus.json`, and check that every file has the size that it says."""
    info_path = path / INFO_FILE
    if not info_path.is_file():
        hint = f"make one: seqtool prepare TEXT -o {shlex.quote(str(path))}"
        raise DataError("no prepared corpus is there", hint=hint, path=path)
    damaged = DataError("is damaged", hint=AGAIN, path=info_path)
    try:
        info = read_object(info_path)
        if (version := info["format_version"]) != FORMAT_VERSION:
            what = f"made by another version of seqtool (format {str(version)[:9]})"
            raise ModelError(what, hint=AGAIN, path=path)
        if not _is_sound(info):
            raise damaged
    except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
        raise damaged from error
    for name, counts in info["splits"].items():
        file, size = path / f"{name}.bin", counts["tokens"] * np.dtype(info["dtype"]).itemsize
        actual = file.stat().st_size if file.is_file() else 0
        if actual != size:
            what = f"has {actual} bytes instead of {size}"
            raise DataError(what, hint=AGAIN, path=file)
    return info


def _is_sound(info: dict[str, Any]) -> bool:
    """Whether it is what `prepare` wrote; an error of wrong types or names is raised as well."""
    is_right = info["dtype"] in ("uint16", "uint32") and type(info["vocabulary_size"]) is int
    for name, counts in info["splits"].items():
        numbers = [counts[field.name] for field in fields(SplitCounts)]
        is_right &= name in SPLITS and {*map(type, numbers)} == {int} and min(numbers) >= 0
        is_right &= 0 < counts["sentences"] <= counts["tokens"] >= counts["unknown"]
    if info.get("shares") is not None:
        check_shares(info["shares"])
    sources = info.get("sources", [])
    is_right &= all({"path", "split"} <= source.keys() for source in sources)
    texts = [text for source in sources for text in source.values()]
    return is_right and isinstance(info.get("config", {}), dict) and {*map(type, texts)} <= {str}


@runtime.writes_to("output")
def prepare(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    config: PrepareConfig | Mapping[str, Any] | None = None,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    memory: int | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> PreparedCorpus:
    """Turn text into a prepared corpus.

    The vocabulary is that of the training split. Memory does not grow with the text, only with the
    number of distinct words. The directory is there whole or not at all.

    Args:
        inputs: files, directories and `-`; a directory with train.*, valid.* or dev.*, and test.*
            files gives the splits. Otherwise, and with no `valid` or `test`, they are drawn.
        output: the directory to make.
        config: unit, vocabulary, splits; or some of these as a dictionary.
        valid: the validation text.
        test: the test text.
        memory: how many bytes the process may take, in all, for words that are counted; what the
            machine has when None.
        force: replace a prepared corpus that is there; never another directory.
        on_progress: called with (bytes read, their total or None).

    Raises:
        ConfigError: settings that contradict one another or the text.
        DataError: text that is not there, damaged, not UTF-8, or a treebank; words that need more
            memory than there is.
        OutputError: the output exists, or cannot be written.
    """
    config = from_dict(PrepareConfig, config) if isinstance(config, Mapping) else config
    config = config or PrepareConfig()
    inputs = [inputs] if isinstance(inputs, str | Path) else inputs
    output = Path(output)
    check_output(output, force)
    treebanks = config.column is not None
    plan = plan_splits(inputs, valid=valid, test=test, shares=config.split, treebanks=treebanks)
    try:
        with atomic_directory(output) as directory:
            _Preparation(directory, config, plan, on_progress, memory).run()
    except OSError as error:  # a write to a full disk names no file
        named = OSError(error.errno, error.strerror, error.filename or str(output))
        raise from_os_error(named) from error
    return PreparedCorpus.open(output)


def open_corpus(
    corpus: str | Path,
    *,
    workspace: str | Path,
    config: PrepareConfig | None = None,
    on_progress: Progress | None = None,
) -> PreparedCorpus:
    """Open a prepared corpus, or prepare a text file, a directory of text, or `-`.

    Raw text is prepared in the directory `workspace`; a corpus that is there is replaced.
    """
    if is_corpus(corpus):
        return PreparedCorpus.open(corpus)
    return prepare([corpus], workspace, config, force=True, on_progress=on_progress)


def check_preparation(
    corpus: PreparedCorpus, config: Any, names: Iterable[str], typed: Collection[str] = ()
) -> None:
    """Refuse settings of raw text that a prepared corpus does not have.

    Args:
        corpus: what is read.
        config: settings; those that are the defaults are not asked for.
        names: of the settings that a corpus has.
        typed: names of settings that are asked for in any case, as they were typed.

    Raises:
        ConfigError: there is one.
    """
    prepared, defaults = corpus.info.get("config", {}), type(config)()
    for name in names:
        value, default = getattr(config, name), getattr(defaults, name)
        has = prepared.get(name, default)
        if value != has and (name in typed or value != default):
            raise ConfigError(
                f"{name} is {value}, but the corpus was prepared with {has}",
                hint=f"set {name} to {has}, or prepare the text again",
                path=corpus.path,
            )


def check_output(output: Path, force: bool) -> None:
    """Refuse to replace what is no prepared corpus, a link, and without `force` anything."""
    held, is_link = present(output), output.is_symlink()
    is_empty = held.is_dir() and not any(held.iterdir())
    if not is_link and (is_empty or not held.exists()):
        return
    if is_link or not (held / INFO_FILE).is_file():
        what = "exists and is no prepared corpus, so it is not replaced"
        hint = "choose another directory with -o, or remove it yourself"
        raise OutputError(what, hint=hint, path=output)
    if not force:
        hint = "choose another directory with -o, or replace it with --force"
        raise OutputError("exists already", hint=hint, path=output)


@dataclass
class SplitCounts:
    """Counts of one split."""

    tokens: int = 0  # ids, one `</s>` per sentence included
    sentences: int = 0  # lines
    bytes: int = 0  # of the text, line ends included, before lower-casing
    unknown: int = 0  # tokens that are `<unk>`


@dataclass(eq=False)
class _Preparation:
    """Reads the text of all splits and fills the directory of a prepared corpus."""

    directory: Path  # empty
    config: PrepareConfig
    plan: SplitPlan
    on_progress: Progress | None  # called with (bytes read, their total or None)
    memory: int | None  # bytes for words that are counted

    def __post_init__(self) -> None:
        self.counts: dict[str, SplitCounts] = {}
        # independent, so that the sample for subwords does not change the splits
        seeds = np.random.SeedSequence(self.config.seed).spawn(2)
        self._split_rng, self._sample_rng = map(np.random.default_rng, seeds)
        self._sources: list[dict[str, Any]] = []
        self._bytes_read = 0
        treebanks = self.config.column is not None
        sizes = [total_size(files, treebanks=treebanks) for files in self.plan.files.values()]
        self._total = None if None in sizes else sum(filter(None, sizes))

    def run(self) -> None:
        """Write all files."""
        learner = self._learner()
        tokenizer = self._write_train(learner)
        for split in SPLITS[1:]:
            self._write_split(split, tokenizer)
        tokenizer.save(self.directory)
        learnt_from = None
        if isinstance(learner, SubwordLearner):
            learnt_from = {"lines": len(learner.sample.lines), "of": learner.sample.num_seen}
        info = {
            "format_version": FORMAT_VERSION,
            "seqtool_version": __version__,
            **tokenizer.describe(),
            "vocabulary_size": len(tokenizer.vocabulary),
            "dtype": _id_type(tokenizer).name,
            "splits": {name: asdict(self.counts[name]) for name in SPLITS if name in self.counts},
            "shares": self.plan.shares,
            "learnt_from": learnt_from,
            "sources": self._sources,
            "config": to_dict(self.config),
        }
        write_json(self.directory / INFO_FILE, info)

    def _learner(self) -> Learner:
        config = self.config
        if config.unit == "word":
            return WordCounter(config, config.special_tokens, memory=self.memory)
        if config.unit == "char":
            return CharCounter(config)
        if config.unit == "byte":
            return ByteCounter(lowercase=config.lowercase)
        names = ("unit", "vocab_size", "lowercase", "character_coverage", "byte_fallback")
        options = {name: getattr(config, name) for name in names}
        return SubwordLearner(config.sample_lines, self._sample_rng, **options)

    def _write_train(self, learner: Learner) -> Tokenizer:
        """Learn the tokenizer, and write the training ids; keep what is drawn for other splits."""
        with self._spool("train").open("wb") as spool:
            for split, block in self._read("train"):
                if split == "train":
                    read = learner.read(block)
                    if self.config.reverse:
                        numbers = np.frombuffer(read, np.int32)
                        end = EOS_ID if self.config.unit == "word" else ord("\n")
                        read = numbers[turned(numbers == end)].data
                    spool.write(read)
                else:
                    with self._spool(split).open("ab") as kept:
                        kept.write(block)
        first = self.plan.files["train"][0]
        if "train" not in self.counts:
            hint = "give more text, or use all of it for training: seqtool prepare --split 100"
            raise DataError("no line is left for training", hint=hint, path=first)
        tokenizer, final_ids = learner.finish()
        tokenizer.reverse = self.config.reverse
        self._write_spooled("train", tokenizer, final_ids)
        counts = self.counts["train"]
        if counts.tokens == counts.sentences:  # nothing but ends of sentences
            what = "the text has only empty lines"
            raise DataError(what, hint="give a text with words", path=first)
        return tokenizer

    def _write_split(self, split: str, tokenizer: Tokenizer) -> None:
        """Write the ids of another split, of lines that were drawn for it or of its own files."""
        if self._spool(split).exists():
            self._write_spooled(split, tokenizer)
        elif split in self.plan.files:
            blocks = (tokenizer.encode_block(block) for _, block in self._read(split))
            self._write(split, blocks, tokenizer)
            if not self.counts[split].tokens:
                hint = "give another file, or leave --skip-empty-lines out"
                what = f"the {split} text has only empty lines"
                raise DataError(what, hint=hint, path=self.plan.files[split][0])

    def _spool(self, split: str) -> Path:
        return self.directory / f".{split}"

    def _write_spooled(
        self, split: str, tokenizer: Tokenizer, final_ids: Ids | None = None
    ) -> None:
        """Write the ids of what waits on disk: text, or numbers that have these ids."""
        path = self._spool(split)
        with path.open("rb") as file:
            blocks: Iterator[Ids]
            if final_ids is None:  # as it is, of whole lines: it was read before
                texts = iter(lambda: b"".join(file.readlines(BLOCK_SIZE)), b"")
                blocks = map(tokenizer.encode_block, texts)
            else:
                pieces = iter(partial(file.read, BLOCK_SIZE), b"")
                blocks = (final_ids[np.frombuffer(piece, np.int32)] for piece in pieces)
            self._write(split, blocks, tokenizer)
        path.unlink()

    def _write(self, split: str, blocks: Iterable[Ids], tokenizer: Tokenizer) -> None:
        """Write the file of a split, and count its ids."""
        dtype = _id_type(tokenizer).newbyteorder("<")
        counts = self.counts.setdefault(split, SplitCounts())
        with (self.directory / f"{split}.bin").open("wb") as file:
            for ids in blocks:
                file.write(ids.astype(dtype).data)  # `.data`: without a copy as bytes
                counts.tokens += len(ids)
                counts.sentences += int(np.count_nonzero(ids == EOS_ID))
                counts.unknown += int(np.count_nonzero(ids == UNK_ID))

    def _read(self, source: str) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of a source block by block, and of each block split by split."""
        digests: dict[str, str] = {}
        start = self._bytes_read

        def on_progress(done: int, total: int | None) -> None:
            self._bytes_read = start + done
            if self.on_progress is not None:
                self.on_progress(self._bytes_read, self._total)

        reader = read_blocks(
            self.plan.files[source],
            field=self.config.field,
            column=self.config.column,
            on_progress=on_progress,
            digests=digests,
        )
        refuses = self.config.unit == "word" and self.config.special_tokens == "refuse"
        for block in reader:
            if refuses:  # now, while the lines of the file are known
                with reader.place.locating():
                    refuse_special_words(block.lower() if self.config.lowercase else block)
            for split, lines in self._drawn(source, block):
                self.counts.setdefault(split, SplitCounts()).bytes += len(lines)
                yield split, lines
        self._sources += [
            {"path": path, "split": source, "sha256": digest} for path, digest in digests.items()
        ]

    def _drawn(self, source: str, block: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of a block split by split, without those that are to be skipped.

        The draw of a line depends on the seed and on its number only, not on how large blocks are.
        """
        shares = self.plan.shares if source == "train" else None
        if shares is None and not self.config.skip_empty_lines:
            yield source, block
            return
        lines = block.split(b"\n")[:-1]
        choice = np.full(len(lines), SPLITS.index(source))
        if shares is not None:
            # the last bound is left out: rounding may leave it a little below 1
            bounds = (np.cumsum(shares) / np.sum(shares))[:-1]
            choice = np.searchsorted(bounds, self._split_rng.random(len(lines)), side="right")
        if self.config.skip_empty_lines:
            choice[[not line.strip(b" \t\r") for line in lines]] = _DROPPED
        for number, split in enumerate(SPLITS):
            if kept := [*compress(lines, (choice == number).tolist())]:
                yield split, b"\n".join([*kept, b""])


def _id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Return the smallest type that holds every id of a vocabulary."""
    return np.dtype(np.uint16 if len(tokenizer.vocabulary) <= 1 << 16 else np.uint32)
