"""Reading: text or a prepared corpus to one stream of ids and its vocabulary.

The ids are in memory, or in a file where they and what is made of them would not fit.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint, storage
from seqtool.core.arrays import Bools, Ids
from seqtool.core.errors import ConfigError, DataError, OutputError, from_os_error
from seqtool.core.reading import STDIN, Progress, is_corpus, read_blocks, refuse_field
from seqtool.core.runtime import check_memory, memory_available
from seqtool.core.vocabulary import EOS_ID, UNK, UNK_ID, Vocabulary
from seqtool.lm.ngram.config import LESS_MEMORY, NgramConfig, WordsConfig
from seqtool.text.learning import WordCounter, read_word_list
from seqtool.text.prepared import PreparedCorpus, SplitCounts, check_preparation, plan_splits
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

# Peak memory of training per token, beyond what the imports take, measured on a text of 24 million
# tokens of whose 5-grams 69% are different: 17 bytes at order 1, 25 at 2 and 3, 42 at 5, 89 at 7,
# 136 at 9. Up to order 4 the positions of the n-grams are most of it, then the n-grams themselves.
_BYTES_PER_TOKEN = 25
_BYTES_PER_TOKEN_AND_ORDER = 24
_ORDERS_OF_FEW = 4

# settings that decide what the vocabulary of a prepared corpus is
PREPARATION = ("vocab", "vocab_size", "min_count", "special_tokens", "lowercase")
_IDS = "ids"  # the file of a text on disk
_READ = 1 << 22  # bytes of it that are renumbered at once


@dataclass(frozen=True)
class Reading:
    """A text as ids.

    Attributes:
        ids: the words, `EOS_ID` after each sentence, shape (tokens,).
        tokenizer: what text must be read with to get such ids; holds the vocabulary.
        num_unknown: how many of the tokens are the unknown word.
        description: what a model records of its data: sizes, and the sources with their sums.
        folder: of temporary files, where the memory is too small for training; the ids are a
            mapped file then. None where all is in memory.
    """

    ids: npt.NDArray[Any]
    tokenizer: Tokenizer
    num_unknown: int
    description: dict[str, Any]
    folder: Path | None = None


@dataclass(frozen=True)
class Disk:
    """Where a text goes for which the memory is too small.

    Attributes:
        always: take the disk for every text.
        make: makes the folder that is taken; gives None where there is nothing to take it.
    """

    always: bool
    make: Callable[[], Path | None]

    def folder(self, num_tokens: int, config: WordsConfig, memory: int | None) -> Path | None:
        """Return a folder if a text of so many tokens is to go to disk."""
        available = memory_available(memory)
        is_small = available is not None and available < memory_needed(num_tokens, _order(config))
        return self.make() if self.always or is_small else None


def given_splits(paths: Sequence[str | Path]) -> tuple[list[str | Path], list[str | Path]]:
    """Return what to train on, and what to measure the model on, if there is such a thing."""
    for path in paths:
        if (storage.present(Path(path)) / checkpoint.HEADER).is_file():
            raise DataError("is a model, not a text", hint="name what it was made from", path=path)
    if any(is_corpus(path) for path in paths):
        has_valid = len(paths) == 1 and "valid" in PreparedCorpus.open(paths[0]).splits()
        return list(paths), list(paths) if has_valid else []
    files = plan_splits(paths).files
    return list(files["train"]), list(files.get("valid", ()))


def read_ids(
    inputs: Sequence[str | Path],
    config: WordsConfig,
    *,
    field: str | None = None,
    memory: int | None = None,
    disk: Disk | None = None,
    on_progress: Progress | None = None,
) -> Reading:
    """Read text, or the train split of a prepared corpus.

    Args:
        inputs: files, directories and `-`, as for `read_blocks`; or one prepared corpus.
        config: the vocabulary, the case, and what is made of special tokens.
        field: the field that holds the text of JSON Lines.
        memory: how many bytes the process may take; what the machine has when None. Those that an
            n-gram model takes are counted in; of others, those of the reading alone.
        disk: where a text goes that needs more; it is refused when None.
        on_progress: called with (bytes read, their total or None).

    Raises:
        ConfigError: settings that a prepared corpus does not have.
        DataError: text that cannot be used, has no words, or needs more memory than there is.
    """
    if len(inputs) == 1 and is_corpus(inputs[0]):
        return _open(Path(inputs[0]), config, field, memory, disk)
    digests: dict[str, str] = {}
    words, store = word_counter(config), _Store(config, memory, disk)
    blocks = read_blocks(inputs, field=field, on_progress=on_progress, digests=digests)
    for block in blocks:
        with blocks.place.locating():
            ids = words.add(block)
        store.keep(ids, words.num_tokens)
    source = inputs[0] if len(inputs) == 1 else None
    source = "<stdin>" if str(source) == STDIN else source
    _refuse_no_words(words.num_tokens, words.num_sentences, source)
    if store.folder is None:
        _check(words.num_tokens, config, memory)
    tokenizer, final_ids = words.finish()
    counts = SplitCounts(
        tokens=words.num_tokens,
        sentences=words.num_sentences,
        bytes=words.num_bytes,
        unknown=tokenizer.vocabulary.counts[UNK_ID],
    )
    del words  # the table is let go before the ids are moved
    sources = [
        {"path": path, "split": "train", "sha256": digest} for path, digest in digests.items()
    ]
    description = {"splits": {"train": asdict(counts)}, "sources": sources}
    ids = store.renumbered(final_ids)
    return Reading(ids, tokenizer, counts.unknown, description, store.folder)


def sound_files(
    paths: Sequence[str | Path], *, field: str | None = None
) -> tuple[list[str | Path], list[DataError]]:
    """Return the files that can be read to their end, and what is wrong with each other one.

    All of them are read for that, but for `-`, which is taken as it is.

    Raises:
        DataError: none of them can be read.
    """
    sound: list[str | Path] = []
    errors: list[DataError] = []
    for path in paths:
        try:
            if str(path) != STDIN:
                deque(read_blocks(path, field=field), maxlen=0)
            sound.append(path)
        except DataError as error:
            errors.append(error)
    if not sound:
        raise errors[0]
    return sound, errors


def limited(tokenizer: Tokenizer, path: str) -> tuple[WordTokenizer, Bools]:
    """Return a tokenizer that knows the words of a file only, and which of the old words these are.

    Args:
        tokenizer: of V words.
        path: of the file, one word a line.

    Returns:
        The tokenizer, whose words are in the old order, and bool [V + 1], `<s>` the last.

    Raises:
        ConfigError: the units are no words, or none of the words is there.
        DataError: a file that cannot be used.
    """
    if not isinstance(tokenizer, WordTokenizer):
        raise ConfigError(
            f"limit_vocab lists words, but the corpus is of {tokenizer.unit} units",
            hint="leave --limit-vocab out",
        )
    old = tokenizer.vocabulary
    listed = read_word_list(path, "word", lowercase=tokenizer.lowercase)
    allowed = listed.encode([*old.symbols, UNK]) != UNK_ID
    allowed[[UNK_ID, EOS_ID, -1]] = True
    if np.count_nonzero(allowed) == 3:
        raise ConfigError(
            f"no word of the text is among those of {path}",
            hint="list the words as the text has them, one a line",
        )
    places = np.flatnonzero(allowed[:-1])
    counts = [old.counts[place] for place in places.tolist()]
    counts[UNK_ID] += sum(old.counts) - sum(counts)
    vocabulary = Vocabulary([old.symbols[place] for place in places.tolist()], counts)
    policy = tokenizer.special_tokens
    words = WordTokenizer(vocabulary, lowercase=tokenizer.lowercase, special_tokens=policy)
    words.reverse = tokenizer.reverse
    return words, allowed


def _open(
    path: Path, config: WordsConfig, field: str | None, memory: int | None, disk: Disk | None
) -> Reading:
    corpus = PreparedCorpus.open(path)
    check_preparation(corpus, config, PREPARATION)
    refuse_field(field, [path])
    split = corpus.info["splits"]["train"]
    _refuse_no_words(split["tokens"], split["sentences"], path)
    ids = corpus.ids("train")
    folder = None if disk is None else disk.folder(len(ids), config, memory)
    if folder is None:
        _check(len(ids), config, memory)
    description = {key: value for key, value in corpus.info.items() if key != "format_version"}
    return Reading(ids, corpus.tokenizer, split["unknown"], description, folder)


def word_counter(config: WordsConfig) -> WordCounter:
    """Return what numbers and counts the words of a text."""
    policy = config.special_tokens
    if policy == "auto":
        return WordCounter(config, "refuse")
    return WordCounter(config, policy, unk=policy)


def counted_tokenizer(
    counts: Mapping[str, int], num_sentences: int, config: WordsConfig
) -> WordTokenizer:
    """Return what `read_ids` makes of a text whose words were counted elsewhere.

    Args:
        counts: of words, in order of first occurrence; of `<unk>` where it stands in the text.
        num_sentences: lines of the text.
        config: as of `read_ids`.
    """
    words = word_counter(config)
    ids = words.table.add(f"{' '.join(counts)}\n".encode())[:-1]
    words.table.counts[:] = 0
    words.table.counts[ids] = list(counts.values())
    words.num_sentences = num_sentences
    return words.finish()[0]


def _refuse_no_words(num_tokens: int, num_sentences: int, path: str | Path | None) -> None:
    if num_tokens == num_sentences:
        raise DataError("the text has only empty lines", hint="give a text with words", path=path)


def _check(num_tokens: int, config: WordsConfig, memory: int | None) -> None:
    order = _order(config)
    purpose = f"{num_tokens:,} tokens at order {order}"
    hint = LESS_MEMORY if isinstance(config, NgramConfig) else "give less text"
    check_memory(memory_needed(num_tokens, order), purpose, hint, memory)


def _order(config: WordsConfig) -> int:
    return config.order if isinstance(config, NgramConfig) else 1


def memory_needed(num_tokens: int, order: int) -> int:
    """Return about how many bytes it takes to train on a text."""
    many = max(0, order - _ORDERS_OF_FEW)
    return num_tokens * (_BYTES_PER_TOKEN + _BYTES_PER_TOKEN_AND_ORDER * many)


@contextmanager
def _naming_folder(folder: Path) -> Iterator[None]:
    """Let an error of the disk name the folder of a temporary file.

    Raises:
        OutputError: it cannot be written or read.
    """
    try:
        yield
    except OSError as error:
        user_error = from_os_error(error)
        hint = "free some space, name another folder with --temp, or give more --memory"
        what = f"a temporary file cannot be written: {user_error.message}"
        raise OutputError(what, hint=hint, path=folder) from error


class _Store:
    """Keeps the numbers of words, in memory or on disk, until all have been counted.

    Attributes:
        folder: of the file that they are in, None if they are in memory.
    """

    def __init__(self, config: WordsConfig, memory: int | None, disk: Disk | None) -> None:
        self.folder: Path | None = None
        self._config, self._memory, self._disk = config, memory, disk
        self._ids = np.empty(0, np.int32)  # in memory, then room for more
        self._num = 0

    def keep(self, ids: Ids, num_tokens: int) -> None:
        """Keep the numbers of some lines; so many have been read then."""
        if self._disk is not None and self.folder is None:
            self.folder = self._disk.folder(num_tokens, self._config, self._memory)
            if self.folder is not None:
                self._write(self.folder, self._ids[: self._num])
                self._ids = np.empty(0, np.int32)
        if self.folder is not None:
            self._write(self.folder, ids)
            return
        end = self._num + len(ids)
        if end > len(self._ids):
            self._ids.resize(end + end // 4, refcheck=False)  # moves pages, and copies none
        self._ids[self._num : end] = ids
        self._num = end

    @staticmethod
    def _write(folder: Path, ids: Ids) -> None:
        with _naming_folder(folder), (folder / _IDS).open("ab") as file:
            file.write(ids.data)

    def renumbered(self, final_ids: Ids) -> Ids:
        """Return the text, of which each number has got its id."""
        from seqtool.lm.ngram.counts import renumber

        if self.folder is not None:
            path = self.folder / _IDS
            with _naming_folder(self.folder), path.open("r+b") as file:
                while piece := file.read(_READ):
                    chunk = np.frombuffer(piece, np.int32).copy()
                    renumber(chunk, final_ids, chunk)
                    file.seek(-len(piece), os.SEEK_CUR)
                    file.write(chunk.data)
                    file.flush()
            return np.memmap(path, np.int32, "r")
        self._ids.resize(self._num, refcheck=False)
        renumber(self._ids, final_ids, self._ids)
        return self._ids
