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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from seqtool.core import runtime
from seqtool.core.arrays import Ids, Longs
from seqtool.core.config import Config, from_dict, setting, to_dict
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
from seqtool.core.runtime import check_memory
from seqtool.core.storage import atomic_directory, present, read_object, write_json
from seqtool.core.version import __version__
from seqtool.core.vocabulary import (
    BOS,
    EOS,
    EOS_ID,
    NUM_SPECIALS,
    UNK,
    UNK_ID,
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
    load_tokenizer,
)

if TYPE_CHECKING:
    from seqtool.text.words import WordTable

FORMAT_VERSION = 1
INFO_FILE = CORPUS
SPLITS = ("train", "valid", "test")
DEFAULT_SHARES = (90.0, 5.0, 5.0)
SHARES_HINT = "give percentages of train, valid and test, as in --split 90,5,5"
AGAIN = "prepare the text again"
_SPLIT_OF = {name: name for name in SPLITS}  # a part of a file's name -> the split it tells
_SPLIT_OF |= {"training": "train", "validation": "valid", "dev": "valid"}
_DROPPED = -1
_BLANKS = " \t\r"
_PIECE = 1 << 16  # ids that are looked at together


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

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        for name, value, least in (
            ("vocab-size", self.vocab_size, NUM_SPECIALS + 1),
            ("min-count", self.min_count, 1),
            ("sample-lines", self.sample_lines, 1),
            ("seed", self.seed, 0),
            ("character-coverage", self.character_coverage, 0.98),  # SentencePiece takes no less
            ("character-coverage", 1 - self.character_coverage, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(
                    f"{name} is {value}, which is out of range", hint=f"change --{name}"
                )
        if self.split is not None:
            object.__setattr__(self, "split", check_shares(self.split))
        is_subword, is_closed = self.unit in ("bpe", "unigram"), self.vocab is not None
        for name, is_set, is_read in (
            ("vocab-size", self.vocab_size is not None, self.unit != "byte" and not is_closed),
            ("min-count", self.min_count > 1, self.unit in ("word", "char") and not is_closed),
            ("vocab", is_closed, self.unit in ("word", "char")),
            ("special-tokens", self.special_tokens != "refuse", self.unit == "word"),
            ("byte-fallback", self.byte_fallback, is_subword),
            ("character-coverage", self.character_coverage < 1, is_subword),
            ("field", self.field is not None, self.column is None),
        ):
            if is_set and not is_read:
                beside = f"the unit {self.unit}" + " and --vocab" * is_closed
                beside = "--column" if name == "field" else beside
                raise ConfigError(f"{name} means nothing beside {beside}", hint=f"drop --{name}")


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
            there = ", ".join(self.splits())
            hint = f"choose one of: {there}"
            if split in ("valid", "test"):
                hint = f"prepare the text again with --{split} FILE, or with --split 90,5,5"
            what = f"the corpus has no {split} split, only {there}"
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
        version = info["format_version"]
        if type(version) is int and version > FORMAT_VERSION:
            what = f"corpus format {version} is newer than this seqtool reads ({FORMAT_VERSION})"
            raise ModelError(what, hint=f"upgrade seqtool, or {AGAIN}", path=path)
        if type(version) is not int or version < 1 or not _is_sound(info):
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
    corpus: PreparedCorpus, config: Any, names: Iterable[str], given: Collection[str] = ()
) -> None:
    """Refuse settings of raw text that a prepared corpus does not have.

    Args:
        corpus: what is read.
        config: settings; those that are the defaults are not asked for.
        names: of the settings that a corpus has.
        given: names of settings that are asked for in any case, as they were typed.

    Raises:
        ConfigError: there is one.
    """
    prepared, defaults = corpus.info.get("config", {}), type(config)()
    for name in names:
        value, default = getattr(config, name), getattr(defaults, name)
        has = prepared.get(name, default)
        if value != has and (name in given or value != default):
            raise ConfigError(
                f"{name} is {value}, but the corpus was prepared with {has}",
                hint=f"leave {name} out, or prepare the text again",
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
        learner = _learner(self.config, self._sample_rng, self.memory)
        tokenizer = self._write_train(learner)
        for split in SPLITS[1:]:
            self._write_split(split, tokenizer)
        tokenizer.save(self.directory)
        learnt_from = None
        if isinstance(learner, _Subwords):
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

    def _write_train(self, learner: _Learner) -> Tokenizer:
        """Learn the tokenizer, and write the training ids."""
        path, num_sentences = self._spool("train"), 0
        with path.open("wb") as spool:

            def take(split: str, block: bytes) -> None:
                nonlocal num_sentences
                if split == "train":
                    num_sentences += block.count(b"\n")
                    spool.write(learner.read(block))
                else:
                    self._keep(split, block)

            self._read("train", take)
        first = self.plan.files["train"][0]
        if "train" not in self.counts:
            hint = "give more text, or use all of it for training: seqtool prepare --split 100"
            raise DataError("no line is left for training", hint=hint, path=first)
        tokenizer, final_ids = learner.finish(num_sentences)
        with path.open("rb") as spooled, self._ids_file("train").open("wb") as file:
            if isinstance(learner, _Subwords):
                for block in _lines_of(spooled):
                    self._write("train", file, tokenizer.encode_block(block), tokenizer)
            else:
                while data := spooled.read(BLOCK_SIZE):
                    ids = np.frombuffer(data, np.int32)
                    ids = ids if final_ids is None else final_ids[ids]
                    self._write("train", file, ids, tokenizer)
        path.unlink()
        if self.counts["train"].tokens == num_sentences:  # nothing but ends of sentences
            what = "the text has only empty lines"
            raise DataError(what, hint="give a text with words", path=first)
        return tokenizer

    def _keep(self, split: str, block: bytes) -> None:
        """Keep lines that were drawn for another split."""
        if self.config.unit == "word" and self.config.special_tokens == "refuse":
            # now, while the line of the source is known
            refuse_special_words(block.lower() if self.config.lowercase else block)
        with self._spool(split).open("ab") as spool:
            spool.write(block)

    def _write_split(self, split: str, tokenizer: Tokenizer) -> None:
        """Write the ids of another split, of lines that were drawn for it or of its own files."""
        spool = self._spool(split)
        if not spool.exists() and split not in self.plan.files:
            return
        with self._ids_file(split).open("wb") as file:

            def write(_: str, block: bytes) -> None:
                self._write(split, file, tokenizer.encode_block(block), tokenizer)

            if spool.exists():
                with spool.open("rb") as kept:
                    for block in _lines_of(kept):
                        write(split, block)
                spool.unlink()
            else:
                self._read(split, write)
        if split not in self.counts or not self.counts[split].tokens:
            hint = "give another file, or leave --skip-empty-lines out"
            what = f"the {split} text has only empty lines"
            raise DataError(what, hint=hint, path=self.plan.files[split][0])

    def _spool(self, split: str) -> Path:
        return self.directory / f".{split}"

    def _ids_file(self, split: str) -> Path:
        return self.directory / f"{split}.bin"

    def _write(self, split: str, file: IO[bytes], ids: Ids, tokenizer: Tokenizer) -> None:
        """Append ids, shape (tokens,), to the file of a split, and count them."""
        dtype = _id_type(tokenizer).newbyteorder("<")
        file.write(ids.astype(dtype).data)  # `.data`: without a copy as bytes
        counts = self.counts.setdefault(split, SplitCounts())
        counts.tokens += len(ids)
        counts.sentences += int(np.count_nonzero(ids == EOS_ID))
        counts.unknown += int(np.count_nonzero(ids == UNK_ID))

    def _read(self, source: str, handle: Callable[[str, bytes], None]) -> None:
        """Read the files of a source; give `handle` each block of lines with its split."""
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


def _id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Return the smallest type that holds every id of a vocabulary."""
    return np.dtype(np.uint16 if len(tokenizer.vocabulary) <= 1 << 16 else np.uint32)


def _lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Give an open file of whole lines in blocks of these, as it is: it was read before."""
    rest = b""
    while chunk := file.read(BLOCK_SIZE):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield rest + chunk[:cut]
        rest = chunk[cut:] if cut else rest + chunk
    if rest:
        yield rest


class _Learner(Protocol):
    """What the first pass over the training text learns a tokenizer with."""

    def read(self, block: bytes) -> bytes | memoryview:
        """Take in whole lines, and return what to spool of them."""

    def finish(self, num_sentences: int) -> tuple[Tokenizer, Ids | None]:
        """Return the tokenizer, and the id of each number that was spooled.

        None where those are the ids already, or where text was spooled (unit bpe and unigram).
        """


class _Words:
    """Words, counted and numbered in one pass over the bytes; `memory` is what they may take."""

    def __init__(self, config: PrepareConfig, memory: int | None = None) -> None:
        from seqtool.text.words import WordTable

        self._config, self._memory = config, memory
        self._table = WordTable(special_tokens=config.special_tokens)
        self._size = self._table.nbytes

    def read(self, block: bytes) -> memoryview:
        if self._table.nbytes > self._size:  # it has grown, and may do so again
            self._size = self._table.nbytes
            what = f"{len(self._table):,} different words"
            check_memory(self._size, what, "free some memory", self._memory)
        block = block.decode().lower().encode() if self._config.lowercase else block
        return self._table.add(block).data

    def finish(self, num_sentences: int) -> tuple[Tokenizer, Ids]:
        config = self._config
        vocabulary, final_ids = number_words(
            self._table, num_sentences, max_size=config.vocab_size, min_count=config.min_count
        )
        policy = config.special_tokens
        words = WordTokenizer(vocabulary, lowercase=config.lowercase, special_tokens=policy)
        return words, final_ids


class _Chars:
    """Characters, counted; their code points are their first numbers."""

    def __init__(self, config: PrepareConfig) -> None:
        self._config = config
        self._counts = np.zeros(NUM_CODE_POINTS, np.int64)
        self._order = [np.zeros(0, np.int64)]  # code points in order of first occurrence

    def read(self, block: bytes) -> memoryview:
        text = block.decode().lower() if self._config.lowercase else block.decode()
        points = code_points(text).astype(np.int32)
        for start in range(0, len(points), BLOCK_SIZE):  # bounds the copies for a very long line
            part = points[start : start + BLOCK_SIZE]
            values, first = np.unique(part[self._counts[part] == 0], return_index=True)
            self._order.append(values[np.argsort(first)])
            counts = np.bincount(part)
            self._counts[: len(counts)] += counts
        return points.data

    def finish(self, num_sentences: int) -> tuple[Tokenizer, Ids]:
        config, points = self._config, np.concatenate(self._order)
        points = points[points != ord("\n")]
        counts = self._counts[points]
        kept = rank_symbols(counts, max_size=config.vocab_size, min_count=config.min_count)
        vocabulary, final_ids = _renumbered(
            points, counts, kept, chr, [0, num_sentences], NUM_CODE_POINTS
        )
        final_ids[ord("\n")] = EOS_ID
        return CharTokenizer(vocabulary, lowercase=config.lowercase), final_ids


class _Known:
    """A vocabulary that is known before: only counts are learnt."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts = np.zeros(len(tokenizer.vocabulary), np.int64)

    def read(self, block: bytes) -> memoryview:
        ids = self._tokenizer.encode_block(block)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        return ids.data

    def finish(self, num_sentences: int) -> tuple[Tokenizer, None]:
        self._tokenizer.vocabulary.counts = self._counts.tolist()
        return self._tokenizer, None


class _Subwords:
    """SentencePiece, trained on a sample of the lines."""

    def __init__(self, config: PrepareConfig, rng: np.random.Generator) -> None:
        from seqtool.text.subwords import LineSample

        self._config, self.sample = config, LineSample(config.sample_lines, rng)

    def read(self, block: bytes) -> bytes:
        self.sample.add(block.decode().lower() if self._config.lowercase else block.decode())
        return block

    def finish(self, num_sentences: int) -> tuple[Tokenizer, None]:
        from seqtool.text.subwords import train_subwords

        names = ("unit", "vocab_size", "lowercase", "character_coverage", "byte_fallback")
        options: dict[str, Any] = {name: getattr(self._config, name) for name in names}
        return train_subwords(self.sample.lines, **options), None


def _learner(config: PrepareConfig, rng: np.random.Generator, memory: int | None) -> _Learner:
    """Return what learns the tokenizer that a configuration asks for.

    Raises:
        DataError: the word list cannot be used.
    """
    if (known := known_tokenizer(config)) is not None:
        return _Known(known)
    if config.unit == "word":
        return _Words(config, memory)
    return _Chars(config) if config.unit == "char" else _Subwords(config, rng)


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
    """Read a vocabulary, one word (or character) a line; empty lines are passed over.

    Raises:
        DataError: a line holds several, or the file cannot be read.
    """
    symbols: dict[str, None] = {}
    reader = read_blocks(path)
    for block in reader:
        for number, line in enumerate(block.decode().split("\n")[:-1], start=1):
            symbol = line if unit == "char" else line.strip(_BLANKS)
            symbol = symbol.lower() if lowercase else symbol
            is_one = len(symbol) < 2 if unit == "char" else not set(symbol) & set(_BLANKS)
            if not is_one:
                what = f"{symbol!r} is not one {'character' if unit == 'char' else 'word'}"
                raise reader.located(DataError(what, hint="list one symbol a line"), number)
            if symbol not in ("", UNK, EOS, BOS):
                symbols[symbol] = None
    return Vocabulary([UNK, EOS, *symbols])
