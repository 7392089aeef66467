"""Prepared corpora: text as ids in memory-mapped files, with its tokenizer.

corpus.json        format version, unit, counts per split, where the text came from
vocabulary.json    or tokenizer.model
train.bin          little-endian ids, 16 bits each, or 32 where the vocabulary needs it:
valid.bin ...      every line is its tokens and `</s>`, a blank line is just `</s>`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core.errors import DataError, ModelError, OutputError, from_os_error
from seqtool.core.reading import Progress
from seqtool.core.storage import atomic_directory, present, read_object
from seqtool.core.vocabulary import Vocabulary
from seqtool.text.preparation import FORMAT_VERSION, INFO_FILE, Preparation, PrepareConfig
from seqtool.text.splits import plan_splits
from seqtool.text.tokenizers import Tokenizer, load_tokenizer

__all__ = ["PrepareConfig", "PreparedCorpus", "open_corpus", "prepare"]


@dataclass(frozen=True)
class PreparedCorpus:
    """A text as ids on disk, which are mapped into memory when they are read.

    Attributes:
        path: its directory.
        tokenizer: turned the text into ids.
        info: the content of `corpus.json`.
    """

    path: Path
    tokenizer: Tokenizer
    info: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> PreparedCorpus:
        """Open a prepared corpus.

        Raises:
            DataError: the directory is no prepared corpus, or is damaged.
            ModelError: its format is newer than this seqtool reads, or its tokenizer is damaged.
        """
        path = Path(path)
        info = _read_info(present(path))
        tokenizer = load_tokenizer(present(path), info)
        if len(tokenizer.vocabulary) != info["vocabulary_size"]:
            raise DataError(
                f"its vocabulary has {len(tokenizer.vocabulary)} symbols, but "
                f"{INFO_FILE} says {info['vocabulary_size']}",
                hint="prepare the text again",
                path=path,
            )
        return cls(path, tokenizer, info)

    @property
    def vocabulary(self) -> Vocabulary:
        """The symbols that the ids stand for."""
        return self.tokenizer.vocabulary

    def splits(self) -> list[str]:
        """Return the names of the splits that are there."""
        return list(self.info["splits"])

    def ids(self, split: str) -> np.memmap[Any, np.dtype[Any]]:
        """Return the ids of a split, shape (tokens,), unsigned, read-only, mapped into memory.

        Raises:
            DataError: there is no such split; the hint says how to get one.
        """
        if split not in self.info["splits"]:
            there = ", ".join(self.splits())
            advice = {
                "valid": "prepare the text again with --valid FILE, or with --split 90,5,5",
                "test": "prepare the text again with --test FILE, or with --split 90,5,5",
            }
            raise DataError(
                f"the corpus has no {split} split, only {there}",
                hint=advice.get(split, f"choose one of: {there}"),
                path=self.path,
            )
        dtype = np.dtype(self.info["dtype"]).newbyteorder("<")
        return np.memmap(present(self.path) / f"{split}.bin", dtype, mode="r")


def _read_info(path: Path) -> dict[str, Any]:
    """Return the content of `corpus.json`, and check that every file has the size that it says.

    Raises:
        DataError: there is no corpus, or a file is missing or of another size.
        ModelError: its format is newer than this seqtool reads.
    """
    if not path.is_dir():
        what = "is a file, not a prepared corpus" if path.exists() else "no such prepared corpus"
        raise DataError(what, hint=f"make one: seqtool prepare TEXT -o {path}", path=path)
    info_path = path / INFO_FILE
    damaged = DataError("is damaged", hint="prepare the text again", path=info_path)
    try:
        info = read_object(info_path)
    except FileNotFoundError as error:
        raise DataError(
            f"is no prepared corpus: it has no {INFO_FILE}",
            hint="make one: seqtool prepare TEXT -o DIR",
            path=path,
        ) from error
    except ValueError as error:
        raise damaged from error
    version = info.get("format_version")
    if not isinstance(version, int):
        raise damaged
    if version > FORMAT_VERSION:
        raise ModelError(
            f"corpus format {version} is newer than this seqtool reads ({FORMAT_VERSION})",
            hint="upgrade seqtool, or prepare the text again",
            path=path,
        )
    try:
        width = {"uint16": 2, "uint32": 4}[info["dtype"]]
        sizes = {f"{name}.bin": width * part["tokens"] for name, part in info["splits"].items()}
        info["vocabulary_size"] + 0
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged from error
    for name, size in sizes.items():
        file = path / name
        actual = file.stat().st_size if file.is_file() else None
        if actual != size:
            state = "is missing" if actual is None else f"has {actual} bytes instead of {size}"
            raise DataError(state, hint="prepare the text again", path=file)
    return info


def prepare(
    inputs: Sequence[str | Path],
    output: str | Path,
    config: PrepareConfig | None = None,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
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
        config: unit, vocabulary, splits.
        valid: the validation text.
        test: the test text.
        force: replace a prepared corpus that is there; never another directory.
        on_progress: called with (bytes read, their total or None).

    Raises:
        ConfigError: settings that contradict one another or the text.
        DataError: text that is not there, damaged, not UTF-8, or a treebank.
        OutputError: the output exists, or cannot be written.
    """
    config = config or PrepareConfig()
    output = Path(output)
    _check_output(output, force)
    plan = plan_splits(inputs, valid=valid, test=test, shares=config.split)
    try:
        with atomic_directory(output) as directory:
            Preparation(directory, config, plan, on_progress).run()
    except OSError as error:  # a full disk: a write names no file
        raise from_os_error(
            OSError(error.errno, error.strerror, error.filename or str(output))
        ) from error
    return PreparedCorpus.open(output)


def open_corpus(
    corpus: str | Path,
    *,
    workspace: str | Path,
    config: PrepareConfig | None = None,
    on_progress: Progress | None = None,
) -> PreparedCorpus:
    """Open a prepared corpus, or prepare raw text.

    Args:
        corpus: a prepared corpus; or a text file, a directory of text, or `-`.
        workspace: the directory for the prepared corpus of raw text; one that is there is replaced.
        config: how to prepare raw text.
        on_progress: as for `prepare`.
    """
    if (present(Path(corpus)) / INFO_FILE).is_file():
        return PreparedCorpus.open(corpus)
    return prepare([corpus], workspace, config, force=True, on_progress=on_progress)


def _check_output(output: Path, force: bool) -> None:
    """Refuse to replace what is no prepared corpus, a link, and without `force` anything.

    Raises:
        OutputError: it is there and stays.
    """
    held, is_link = present(output), output.is_symlink()
    is_empty = held.is_dir() and not any(held.iterdir())
    if not is_link and (is_empty or not held.exists()):
        return
    if is_link or not (held / INFO_FILE).is_file():
        raise OutputError(
            "exists and is no prepared corpus, so it is not replaced",
            hint="choose another directory with -o, or remove it yourself",
            path=output,
        )
    if not force:
        raise OutputError(
            "exists already",
            hint="choose another directory with -o, or replace it with --force",
            path=output,
        )
