"""Ids on disk: the file of a split, or its shards, read as one.

    train.bin                           all ids of the split
    train.0.bin  train.1.bin  ...       shards of equal size, for machines that each read their own

    ids       0 ............ 1000 ............ 2000 ............ 3000
    shard 0   [--------------)
    shard 1            [=====-----------------)
    shard 2                              [=====-----------------)

A shard begins with the last `OVERLAP` ids of the one before (=): the streams of a process begin not
quite where a shard does, and its first input is the id before its first target.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from seqtool.core.errors import ConfigError, DataError
from seqtool.core.vocabulary import EOS_ID

PIECE = 1 << 16  # ids that are looked at together
OVERLAP = 1 << 16  # as many streams as there may be in a batch, and more


@dataclass(frozen=True)
class IdFile:
    """A file of ids.

    Attributes:
        path: where it is, or would be.
        begin: the number of its first id in the split.
        tokens: how many ids it holds.
        sentences: how many of these are `</s>`.
    """

    path: Path
    begin: int
    tokens: int
    sentences: int

    @property
    def end(self) -> int:
        """The number of the id after its last one."""
        return self.begin + self.tokens


def shard_path(folder: Path, split: str, number: int) -> Path:
    """Return where a shard is."""
    return folder / f"{split}.{number}.bin"


def bounds(num: int, num_shards: int) -> list[tuple[int, int]]:
    """Return where the shards of so many ids begin and end: of equal size but for the overlap."""
    return [
        (
            max(0, num * number // num_shards - OVERLAP * (number > 0)),
            num * (number + 1) // num_shards,
        )
        for number in range(num_shards)
    ]


def check_number(num: int, num_shards: int) -> None:
    """Refuse more shards than there are ids.

    Raises:
        ConfigError: so it is.
    """
    if num < num_shards:
        what = f"{num:,} tokens are too few for {num_shards:,} shards"
        raise ConfigError(what, hint="lower --shards")


def cut(path: Path, dtype: np.dtype[Any], num_shards: int) -> list[dict[str, int]]:
    """Cut a file of ids into shards beside it, and remove it.

    Args:
        path: of the file.
        dtype: of the ids.
        num_shards: how many are made; see `bounds`.

    Returns:
        Of each, what `corpus.json` says: `begin`, `tokens` and `sentences`, as of an `IdFile`.
    """
    num = path.stat().st_size // dtype.itemsize
    found: list[dict[str, int]] = []
    with path.open("rb") as source:
        for number, (begin, end) in enumerate(bounds(num, num_shards)):
            sentences = 0
            source.seek(begin * dtype.itemsize)
            with shard_path(path.parent, path.stem, number).open("wb") as target:
                for first in range(begin, end, PIECE):
                    ids = np.fromfile(source, dtype, min(PIECE, end - first))
                    sentences += int(np.count_nonzero(ids == EOS_ID))
                    target.write(ids.data)
            found.append({"begin": begin, "tokens": end - begin, "sentences": sentences})
    path.unlink()
    return found


def look_through(file: IdFile, dtype: np.dtype[Any], vocabulary_size: int, num: int) -> None:
    """Check the ids of a file, as fast as memory is read; `num` are in the split.

    Raises:
        DataError: they are not what `corpus.json` says.
    """
    ids = np.memmap(file.path, dtype, mode="r")
    largest = num_ends = 0
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]  # stays in the cache for the second look
        largest = max(largest, int(piece.max()))
        num_ends += int(np.count_nonzero(piece == EOS_ID))
    what = ""
    if largest >= vocabulary_size:
        what = f"is damaged: id {largest:,}, but the vocabulary has {vocabulary_size:,}"
    elif num_ends != file.sentences or (file.end == num and ids[-1] != EOS_ID):
        what = f"is damaged: its sentences are {num_ends:,} instead of {file.sentences:,}"
    if what:
        raise DataError(what, hint="prepare the text again", path=file.path)


class IdReader:
    """The ids of a split, read by calls: to read a mapped file that has been cut ends the process.

    Its slices are arrays of unsigned ids. A shard is looked through when it is first read; one that
    is not there, as another machine's, is missed when its ids are asked for.

    Args:
        files: of the split, in order.
        dtype: of the ids.
        vocabulary_size: how many ids there can be.
        sound: files that were looked through; added to.

    Raises:
        DataError: now or by a slice: a file is not there, has been cut, or holds something else.
    """

    def __init__(
        self,
        files: Sequence[IdFile],
        dtype: np.dtype[Any],
        vocabulary_size: int,
        sound: set[IdFile],
    ) -> None:
        self._files, self._dtype, self._vocabulary_size = list(files), dtype, vocabulary_size
        self._sound, self._open = sound, dict[IdFile, IO[bytes]]()
        self.item_bytes = dtype.itemsize
        if len(files) == 1:
            self._opened(files[0])

    def __len__(self) -> int:
        return self._files[-1].end

    def __getitem__(self, part: slice) -> npt.NDArray[np.unsignedinteger]:
        start, stop, _ = part.indices(len(self))
        pieces: list[npt.NDArray[np.unsignedinteger]] = []
        while start < stop:
            file = self._file_of(start)
            end = min(stop, file.end)
            pieces.append(self._read(file, self._opened(file), start - file.begin, end - start))
            start = end
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([np.empty(0, self._dtype), *pieces])

    def _file_of(self, place: int) -> IdFile:
        """Return the file that has an id, and most of those after it; one that is there if any."""
        having = [file for file in self._files if file.begin <= place < file.end]
        there = [file for file in having if file in self._open or file.path.is_file()]
        return (there or having)[-1]

    def _opened(self, file: IdFile) -> IO[bytes]:
        if (found := self._open.get(file)) is not None:
            return found
        try:
            opened = file.path.open("rb", buffering=0)
        except FileNotFoundError as error:
            what = f"is not on this machine, but ids from {file.begin:,} on are to be read"
            hint = "copy it here, or train where all shards are"
            raise DataError(what, hint=hint, path=file.path) from error
        finalize(self, opened.close)
        if file not in self._sound:
            look_through(file, self._dtype, self._vocabulary_size, len(self))
            self._sound.add(file)
        self._open[file] = opened
        return opened

    def _read(
        self, file: IdFile, opened: IO[bytes], start: int, num: int
    ) -> npt.NDArray[np.unsignedinteger]:
        """Return some ids of an open file."""
        first, size = start * self.item_bytes, num * self.item_bytes
        content = _read_at(opened, first, size)
        while len(content) < size:  # one call gives 2 GB at most
            if not (more := _read_at(opened, first + len(content), size - len(content))):
                what, hint = "has been cut while it was read", "prepare the text again"
                raise DataError(what, hint=hint, path=file.path)
            content += more
        return np.frombuffer(content, self._dtype)


def _read_at(opened: IO[bytes], first: int, size: int) -> bytes:
    if sys.platform == "win32":
        opened.seek(first)
        return opened.read(size)
    return os.pread(opened.fileno(), size, first)
