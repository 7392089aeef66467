"""The unknown words of a split of a prepared corpus, as they are written.

    valid.words    UTF-8, each word followed by LF, in the order of the text; test.words likewise

All such words have one id, but a language model may read them by their characters. There is a file
where the unit is the word, for each split but that of training, if it has such words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from seqtool.core.arrays import Ids
from seqtool.core.errors import DataError
from seqtool.core.vocabulary import UNK_ID
from seqtool.text.tokenizers import Tokenizer


def words_path(directory: Path, split: str) -> Path:
    """Return where the unknown words of a split are."""
    return directory / f"{split}.words"


def spelt_out(tokenizer: Tokenizer, block: bytes, ids: Ids) -> bytes:
    """Return the unknown words of whole lines, whose ids are given; none of other units."""
    if tokenizer.unit != "word":
        return b""
    return "".join(f"{word}\n" for _, word in tokenizer.unknown_tokens(block, ids)).encode()


class SpellingWriter:
    """Writes the unknown words of a split; those of other units than words are left out."""

    def __init__(self, directory: Path, split: str, tokenizer: Tokenizer) -> None:
        self._path, self._tokenizer = words_path(directory, split), tokenizer
        self._file: IO[bytes] | None = None  # until there is a word
        self._stack = ExitStack()

    def __enter__(self) -> SpellingWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def write(self, block: bytes, ids: Ids) -> None:
        """Append the unknown words of whole lines, whose ids are given."""
        words = spelt_out(self._tokenizer, block, ids)
        if words and self._file is None:
            self._file = self._stack.enter_context(self._path.open("wb"))
        if self._file is not None:
            self._file.write(words)


class Spellings:
    """Gives the unknown words of a split, block by block of its ids.

    Args:
        words: all of them, in order.
    """

    def __init__(self, words: list[str]) -> None:
        self._words = iter(words)

    @classmethod
    def open(cls, directory: Path, split: str, num: int) -> Spellings | None:
        """Open those of a split with so many unknown words; None where they were not kept.

        Raises:
            DataError: they are others than those of the split.
        """
        path = words_path(directory, split)
        if not path.is_file():
            return None
        try:
            # after the last LF there is nothing, unless the file is cut off
            *words, last = path.read_bytes().decode().split("\n")
        except UnicodeDecodeError as error:
            raise DataError("is no UTF-8", hint="prepare the text again", path=path) from error
        if last or len(words) != num:
            what = "is cut off" if last else f"has {len(words):,} words instead of {num:,}"
            raise DataError(what, hint="prepare the text again", path=path)
        return cls(words)

    def of(self, ids: Ids) -> Iterator[tuple[int, str]]:
        """Return the places of unknown words among the next ids of the split, and the words."""
        places = np.flatnonzero(ids == UNK_ID).tolist()
        return zip(places, list(islice(self._words, len(places))), strict=True)
