"""Word vectors from a text file, as word2vec, GloVe and fastText write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqtool.corpora.text import read_blocks
from seqtool.errors import ConfigError, DataError
from seqtool.parsing.features import SymbolTable

MAX_WORDS = 100_000  # the files have the commonest words first
_SCALE = 0.1  # standard deviation of the numbers of an embedding when training begins


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: the words, in the order of the file.
        rows: float32 [num_words, width].
    """

    words: tuple[str, ...]
    rows: npt.NDArray[np.float32]

    def add_words(self, table: SymbolTable) -> SymbolTable:
        """The symbols with the words added to the forms."""
        forms = table.groups["form"]
        known = set(forms)
        added = tuple(word for word in self.words if word not in known)
        return SymbolTable(table.columns, {**table.groups, "form": forms + added})

    def initial(self, table: SymbolTable) -> tuple[list[int], npt.NDArray[np.float32]]:
        """The numbers of the words among the symbols, and the vectors that they begin with."""
        ids = table.ids_of("form")
        return [ids[word] for word in self.words], self.rows


def read_vectors(path: str | Path, fields: Sequence[str], width: int) -> WordVectors:
    """Read word vectors: a word and its numbers a line, perhaps after a line of the two sizes.

    Vectors of another width than `width` are turned so that their first `width` directions keep
    the most of their variance, or are filled up with zeros.

    Raises:
        DataError: a line that is not a word and numbers, as many as in the others.
        ConfigError: the parser does not look at forms.
    """
    if "form" not in fields:
        raise ConfigError("--embeddings are for forms", hint="add form to --fields")
    words: dict[str, None] = {}
    rows: list[npt.NDArray[np.float32]] = []
    line_number = 0
    for line in _lines(path):
        line_number += 1
        parts = line.rstrip().split(" ")
        if not line.strip() or (line_number == 1 and len(parts) == 2):
            continue
        word = parts[0]
        try:
            row = np.asarray(parts[1:], np.float32)
        except ValueError as error:
            raise DataError(
                f"the vector of {word!r} holds something that is no number",
                hint="give word vectors as text: a word and its numbers, separated by spaces",
                path=path,
                line=line_number,
            ) from error
        if not len(row) or not np.isfinite(row).all() or (rows and len(row) != len(rows[0])):
            raise DataError(
                f"the vector of {word!r} has {len(row)} numbers"
                + (f", the others {len(rows[0])}" if rows else ""),
                hint="give each word as many finite numbers",
                path=path,
                line=line_number,
            )
        if word not in words:
            words[word] = None
            rows.append(row)
        if len(rows) == MAX_WORDS:
            break
    if not rows:
        raise DataError("holds no word vectors", hint="give a text file of vectors", path=path)
    return WordVectors(tuple(words), _fitted(np.stack(rows), width))


def _lines(path: str | Path) -> list[str]:
    text = b"".join(read_blocks([path])).decode()
    return text.split("\n")


def _fitted(rows: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.float32]:
    """Rows of the given width, their numbers of the size that embeddings begin with."""
    if rows.shape[1] > width:
        _, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows)
        rows = (rows @ directions[:, ::-1][:, :width]).astype(np.float32)
    fitted = np.zeros((len(rows), width), np.float32)
    fitted[:, : rows.shape[1]] = rows
    size = float(fitted.std())
    return (fitted * (_SCALE / size if size > 0 else 1.0)).astype(np.float32)
