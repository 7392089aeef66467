"""Word vectors from text, as word2vec, GloVe and fastText write them.

    dog 0.1 -0.2 ...        GloVe: a word and its numbers a line
    2000 100                word2vec, fastText: a first line with the number of words and the width
    dog 0.1 -0.2 ...

GloVe's words may hold spaces: the numbers are the last ones of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import read_blocks
from seqtool.parsing.encoding.features import SymbolTable

MAX_VECTORS = 100_000  # the files have the commonest words first
_SCALE = 0.1  # standard deviation of the numbers of an embedding when training begins
_SIZES = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")


@dataclass(frozen=True)
class WordVectors:
    """Words in the order of a file, and their vectors, [num_words, width]."""

    words: tuple[str, ...]
    rows: Floats

    def add_words(self, table: SymbolTable) -> SymbolTable:
        """Return the symbols with the words added to the forms."""
        forms = table.groups["form"]
        known = set(forms)
        added = tuple(word for word in self.words if word not in known)
        return SymbolTable(table.columns, {**table.groups, "form": forms + added})

    def initial(self, table: SymbolTable) -> tuple[list[int], Floats]:
        """Return the numbers of the words among the symbols, and their first vectors."""
        ids = table.ids_of("form")
        return [ids[word] for word in self.words], self.rows


def read_vectors(path: str | Path, fields: Sequence[str], width: int) -> WordVectors:
    """Read word vectors, the first `MAX_VECTORS` words of a file.

    Vectors of another width than `width` are turned so that their first `width` directions keep
    the most of their variance, or are filled up with zeros.

    Args:
        path: the file, plain or packed.
        fields: what is read of a word.
        width: of an embedding.

    Raises:
        DataError: a line that is not a word and numbers, as many as in the others.
        ConfigError: forms are not read.
    """
    if "form" not in fields:
        raise ConfigError("--embeddings are for forms", hint="add form to --fields")
    words: dict[str, Floats] = {}
    for word, row in _pairs(path):
        words.setdefault(word, row)
        if len(words) == MAX_VECTORS:
            break
    if not words:
        raise DataError("holds no word vectors", hint="give a file of word vectors", path=path)
    return WordVectors(tuple(words), _fitted(np.stack([*words.values()]), width))


def _pairs(path: str | Path) -> Iterator[tuple[str, Floats]]:
    width, others_have = 0, "the others"
    for number, line in enumerate(_lines(path), 1):
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and (sizes := _SIZES.fullmatch(line.encode())):
            width, others_have = int(sizes[2]), "and the first line says"
            continue
        if not line.strip():
            continue
        # a word with spaces: the numbers are as many as in the first line
        split = max(1, len(parts) - width) if width else 1
        word = " ".join(parts[:split])
        try:
            row = np.asarray(parts[split:], np.float32)
        except ValueError:
            _refuse(f"the vector of {word!r} holds something that is no number", path, number)
        if not len(row) or not np.isfinite(row).all() or (width and len(row) != width):
            others = f", {others_have} {width}" if width else ""
            _refuse(f"the vector of {word!r} has {len(row)} numbers{others}", path, number)
        width = len(row)
        yield word, row


def _refuse(message: str, path: str | Path, line: int) -> NoReturn:
    raise DataError(
        message,
        hint="give each word as many finite numbers, separated by spaces",
        path=path,
        line=line,
    )


def _lines(path: str | Path) -> Iterator[str]:
    for block in read_blocks([path]):
        yield from block.decode().removesuffix("\n").split("\n")


def _fitted(rows: Floats, width: int) -> Floats:
    """Return rows of the given width, their numbers of the size that embeddings begin with."""
    if rows.shape[1] > width:
        _, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows)
        # `eigh` gives the direction of the least variance first
        rows = (rows @ directions[:, ::-1][:, :width]).astype(np.float32)
    fitted = np.zeros((len(rows), width), np.float32)
    fitted[:, : rows.shape[1]] = rows
    size = float(fitted.std())
    return (fitted * (_SCALE / size if size > 0 else 1.0)).astype(np.float32)
