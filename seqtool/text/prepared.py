"""Prepared corpora: text as ids in memory-mapped files, with its tokenizer.

corpus.json        format version, unit, counts per split, where the text came from
vocabulary.json    or tokenizer.model
train.bin          little-endian ids, 16 bits each, or 32 where the vocabulary needs it:
valid.bin ...      every line is its tokens and `</s>`, a blank line is just `</s>`
train.0.bin ...    in place of train.bin: shards of it, see `shards`

Each text is read once. The vocabulary is known only at the end of the training text, so that text
waits on disk in a compact form (the spool) until it can be written as ids; so do lines that are
drawn for other splits. Memory holds a block of lines and the counts of the symbols.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from seqtool.core import runtime
from seqtool.core.arrays import Ids
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError, DataError, ModelError, OutputError, from_os_error
from seqtool.core.one_line import OneLine
from seqtool.core.reading import CORPUS, Progress, is_corpus, read_blocks, total_size
from seqtool.core.storage import (
    atomic_directory,
    present,
    read_object,
    write_json,
)
from seqtool.core.version import __version__
from seqtool.core.vocabulary import EOS_ID, UNK_ID, Vocabulary, refuse_special_words
from seqtool.text.preparation import (
    SPLITS,
    PrepareConfig,
    SplitPlan,
    TokenizerTrainer,
    check_shares,
    draw_splits,
    plan_splits,
    random_generators,
    spooled_lines,
    trainer_for,
)
from seqtool.text.shards import IdFile, IdReader, check_number, cut, look_through, shard_path
from seqtool.text.tokenizers import Tokenizer, load_tokenizer

__all__ = ["PrepareConfig", "PreparedCorpus", "open_corpus", "prepare"]

FORMAT_VERSION = 1
INFO_FILE = CORPUS


@dataclass(frozen=True)
class PreparedCorpus(OneLine):
    """A text as ids on disk, which are mapped into memory when they are read."""

    shown = ("path", "tokenizer.unit", "vocabulary", "num_tokens")

    path: Path  # its directory
    tokenizer: Tokenizer  # that turned the text into ids
    info: dict[str, Any]  # the content of `corpus.json`
    _sound: set[IdFile] = field(default_factory=set)  # files whose ids were looked through

    @classmethod
    def open(cls, path: str | Path) -> PreparedCorpus:
        """Open a prepared corpus; a DataError or ModelError tells what is no such, or damaged."""
        path = Path(path)
        info = _read_info(present(path))
        tokenizer = load_tokenizer(present(path), info)
        if (size := len(tokenizer.vocabulary)) != info["vocabulary_size"]:
            what = f"its vocabulary has {size} symbols, but {INFO_FILE} says"
            hint = "prepare the text again"
            raise DataError(f"{what} {info['vocabulary_size']}", hint=hint, path=path)
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

        All of them are looked through the first time, as fast as memory is read. Those of shards
        are read into memory.

        Raises:
            DataError: there is no such split, or its ids are not what `corpus.json` says.
        """
        self._check_split(split)
        files, dtype = self._files(split)
        if len(files) > 1:
            return self.reader(split)[:]
        if files[0] not in self._sound:
            look_through(files[0], dtype, len(self.vocabulary), files[0].tokens)
            self._sound.add(files[0])
        return np.memmap(files[0].path, dtype, mode="r")

    def _check_split(self, split: str) -> None:
        if split not in self.info["splits"]:
            there = ", ".join(self.splits())
            hint = f"choose one of: {there}"
            if split in ("valid", "test"):
                hint = f"prepare the text again with --{split} FILE, or with --split 90,5,5"
            what = f"the corpus has no {split} split, only {there}"
            raise DataError(what, hint=hint, path=self.path)

    def _files(self, split: str) -> tuple[list[IdFile], np.dtype[Any]]:
        """Return where the ids of a split are, and their type."""
        folder, counts = present(self.path), self.info["splits"][split]
        files = [
            IdFile(shard_path(folder, split, number), **shard)
            for number, shard in enumerate(counts.get("shards", ()))
        ]
        whole = IdFile(folder / f"{split}.bin", 0, counts["tokens"], counts["sentences"])
        return files or [whole], np.dtype(self.info["dtype"]).newbyteorder("<")

    def reader(self, split: str) -> IdReader:
        """Return what reads the same ids piece by piece, as a long run does."""
        self._check_split(split)
        return IdReader(*self._files(split), len(self.vocabulary), self._sound)


def _read_info(path: Path) -> dict[str, Any]:
    """Return the content of `corpus.json`, and check that every file has the size that it says."""
    if not path.is_dir():
        what = "is a file, not a prepared corpus" if path.exists() else "no such prepared corpus"
        raise DataError(
            what, hint=f"make one: seqtool prepare TEXT -o {shlex.quote(str(path))}", path=path
        )
    info_path = path / INFO_FILE
    damaged = DataError("is damaged", hint="prepare the text again", path=info_path)
    try:
        info = read_object(info_path)
    except FileNotFoundError as error:
        what, hint = f"is no prepared corpus: it has no {INFO_FILE}", "seqtool prepare TEXT -o DIR"
        raise DataError(what, hint=f"make one: {hint}", path=path) from error
    except ValueError as error:
        raise damaged from error
    version = info.get("format_version")
    if type(version) is not int or version < 1:
        raise damaged
    if version > FORMAT_VERSION:
        what = f"corpus format {version} is newer than this seqtool reads ({FORMAT_VERSION})"
        hint = "upgrade seqtool, or prepare the text again"
        raise ModelError(what, hint=hint, path=path)
    try:
        _check_info(info)
    except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
        raise damaged from error
    item_bytes = np.dtype(info["dtype"]).itemsize
    for name, counts in info["splits"].items():
        shards = counts.get("shards", ())
        files = {
            shard_path(path, name, number): shard["tokens"] for number, shard in enumerate(shards)
        }
        # a shard that is not there is another machine's
        files = (
            {file: num for file, num in files.items() if file.is_file()}
            if shards
            else {path / f"{name}.bin": counts["tokens"]}
        )
        for file, num in files.items():
            size = num * item_bytes
            actual = file.stat().st_size if file.is_file() else None
            if actual == size:
                continue
            state = "is missing" if actual is None else f"has {actual} bytes instead of {size}"
            raise DataError(state, hint="prepare the text again", path=file)
    return info


def _check_info(info: dict[str, Any]) -> None:
    """Raise an error of wrong types and values where it is not what `prepare` wrote."""
    is_right = info["dtype"] in ("uint16", "uint32") and type(info["vocabulary_size"]) is int
    for name, counts in info["splits"].items():
        numbers = [counts[field.name] for field in fields(SplitCounts)]
        is_right &= name in SPLITS and {*map(type, numbers)} == {int} and min(numbers) >= 0
        is_right &= 0 < counts["sentences"] <= counts["tokens"] >= counts["unknown"]
        is_right &= _are_shards(counts.get("shards"), counts["tokens"])
    shares, config = info.get("shares"), info.get("config", {})
    is_right &= isinstance(config, dict) and (shares is None or bool(check_shares(shares)))
    sources = info.get("sources", [])
    is_right &= all({"path", "split"} <= source.keys() for source in sources)
    texts = [text for source in sources for text in source.values()]
    if not is_right or not {*map(type, texts)} <= {str}:
        raise ValueError("no corpus")


def _are_shards(shards: Any, num_tokens: int) -> bool:
    """Whether they are shards of so many ids, in order and without a gap."""
    if shards is None:
        return True
    ends = [0]
    for shard in shards:
        numbers = [shard[name] for name in ("begin", "tokens", "sentences")]
        if {*map(type, numbers)} != {int} or len(shard) != 3 or min(numbers) < 0:
            return False
        if not shard["begin"] <= ends[-1] < shard["begin"] + shard["tokens"]:
            return False
        ends.append(shard["begin"] + shard["tokens"])
    return len(ends) > 2 and ends[-1] == num_tokens


@runtime.writes_to("output")
def prepare(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    config: PrepareConfig | Mapping[str, Any] | None = None,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    shards: int = 1,
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
        shards: files that the training ids are cut into, for as many machines that train on them;
            a machine needs only its own.
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
    if shards < 1:
        raise ConfigError(f"shards is {shards}", hint="give 1 or more")
    check_output(output, force)
    if memory is not None and not config.counts_words:
        what = "a vocabulary that is given" if config.vocab else f"the unit {config.unit}"
        raise ConfigError(
            f"--memory is for words, and {what} leaves none to be counted",
            hint="leave --memory out",
        )
    treebanks = config.column is not None
    plan = plan_splits(inputs, valid=valid, test=test, shares=config.split, treebanks=treebanks)
    with naming_output(output), atomic_directory(output) as directory:
        Preparation(directory, config, plan, on_progress, shards, memory).run()
    return PreparedCorpus.open(output)


@contextmanager
def naming_output(output: Path) -> Iterator[None]:
    """Let an error of the disk name the output: a write to a full one names no file.

    Raises:
        SeqtoolError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise from_os_error(
            OSError(error.errno, error.strerror, error.filename or str(output))
        ) from error


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
class Preparation:
    """Reads the text of all splits and fills the directory of a prepared corpus."""

    directory: Path  # empty
    config: PrepareConfig
    plan: SplitPlan
    on_progress: Progress | None  # called with (bytes read, their total or None)
    num_shards: int = 1  # of the training ids
    memory: int | None = None  # bytes for words that are counted

    def __post_init__(self) -> None:
        self._shards: list[dict[str, int]] = []
        self.counts: dict[str, SplitCounts] = {}
        self._split_rng, self._sample_rng = random_generators(self.config.seed)
        self._sources: list[dict[str, Any]] = []
        self._learnt_from: dict[str, int] | None = None
        self._bytes_read = 0
        treebanks = self.config.column is not None
        sizes = [total_size(files, treebanks=treebanks) for files in self.plan.files.values()]
        self._total = None if None in sizes else sum(filter(None, sizes))

    def run(self) -> None:
        """Write all files."""
        spool = self.directory / ".spool"
        trainer = trainer_for(self.config, spool, self._sample_rng, self.memory)
        with closing(trainer):
            self._read("train", partial(self._take, trainer))
            if "train" not in self.counts:
                refuse_no_training(self.plan.files["train"][0])
            tokenizer, blocks = trainer.finish()
            self._learnt_from = trainer.learnt_from
            with self._writer("train", tokenizer) as writer:
                for ids in blocks:
                    writer.write(ids)
        spool.unlink()
        if self.num_shards > 1:
            check_number(self.counts["train"].tokens, self.num_shards)
            dtype = id_type(tokenizer.vocabulary).newbyteorder("<")
            self._shards = cut(self.directory / "train.bin", dtype, self.num_shards)
        for split in SPLITS[1:]:
            self._write_split(split, tokenizer)
        tokenizer.save(self.directory)
        info = describe_corpus(
            self.config,
            self.plan,
            tokenizer,
            self.counts,
            sources=self._sources,
            shards=self._shards,
            learnt_from=self._learnt_from,
        )
        write_json(self.directory / INFO_FILE, info)

    def _take(self, trainer: TokenizerTrainer, split: str, block: bytes) -> None:
        """Learn from lines of the training files, or keep them for another split."""
        if split == "train":
            trainer.add(block)
            return
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
        with self._writer(split, tokenizer) as writer:

            def write(_: str, block: bytes) -> None:
                writer.write(tokenizer.encode_block(block))

            if spool.exists():
                for block in spooled_lines(spool):
                    write(split, block)
                spool.unlink()
            else:
                self._read(split, write)
        if split not in self.counts or not self.counts[split].tokens:
            refuse_empty_split(split, self.plan.files[split][0])

    def _spool(self, split: str) -> Path:
        return self.directory / f".{split}"

    def _writer(self, split: str, tokenizer: Tokenizer) -> IdWriter:
        counts = self.counts.setdefault(split, SplitCounts())
        return IdWriter(self.directory / f"{split}.bin", id_type(tokenizer.vocabulary), counts)

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


def refuse_no_training(path: str) -> NoReturn:
    """Raise the error of a text, of this file first, of which no line is for training."""
    hint = "give more text, or use all of it for training: seqtool prepare --split 100"
    raise DataError("no line is left for training", hint=hint, path=path)


def refuse_empty_split(split: str, path: str) -> NoReturn:
    """Raise the error of a split, of this file first, without a line."""
    hint = "give another file, or leave --skip-empty-lines out"
    raise DataError(f"the {split} text has only empty lines", hint=hint, path=path)


def describe_corpus(
    config: PrepareConfig,
    plan: SplitPlan,
    tokenizer: Tokenizer,
    counts: Mapping[str, SplitCounts],
    *,
    sources: Sequence[Mapping[str, str]],
    shards: Sequence[Mapping[str, int]] = (),
    learnt_from: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the content of `corpus.json`.

    Args:
        config: how the text became tokens.
        plan: of which split they are.
        tokenizer: that they were made by.
        counts: of each split.
        sources: path, split, and SHA-256 if known, of each file.
        shards: of the training ids, if there are any.
        learnt_from: as of `TokenizerTrainer`.

    Raises:
        DataError: the training text has no token.
    """
    if counts["train"].tokens == counts["train"].sentences:  # nothing but ends of sentences
        what, hint = "the text has only empty lines", "give a text with words"
        raise DataError(what, hint=hint, path=plan.files["train"][0])
    splits: dict[str, dict[str, Any]] = {
        name: asdict(counts[name]) for name in SPLITS if name in counts
    }
    if shards:
        splits["train"]["shards"] = shards
    return {
        "format_version": FORMAT_VERSION,
        "seqtool_version": __version__,
        **tokenizer.describe(),
        "vocabulary_size": len(tokenizer.vocabulary),
        "dtype": id_type(tokenizer.vocabulary).name,
        "splits": splits,
        "shares": plan.shares,
        "learnt_from": learnt_from,
        "sources": sources,
        "config": to_dict(config),
    }


class IdWriter:
    """Writes ids to a file, little-endian, of this unsigned type, and counts them."""

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
    return np.dtype(np.uint16 if len(vocabulary) <= 1 << 16 else np.uint32)
