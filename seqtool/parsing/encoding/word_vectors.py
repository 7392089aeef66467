"""Word vectors as word2vec (text and binary), GloVe and fastText (text) write them.

    dog 0.1 -0.2 ...        GloVe: a word and its numbers a line
    2000 100                word2vec, fastText: a first line with the number of words and the width
    dog 0.1 -0.2 ...
    2000 100                word2vec's .bin: such a line too, then of each word its letters, a space
    dog <400 bytes>         and little-endian float32 numbers, perhaps a line end

GloVe's words may hold spaces: the numbers are the last ones of a line.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.core.errors import ConfigError, DataError, from_os_error
from seqtool.core.reading import read_blocks
from seqtool.parsing.encoding.features import SymbolTable

MAX_WORDS = 100_000  # the files have the commonest words first
_SCALE = 0.1  # standard deviation of the numbers of an embedding when training begins
_SIZES = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
_MAX_SIZES = 64  # bytes of the first line of a binary file
_MAX_WORD = 1 << 12  # bytes of a word in one
_FASTTEXT = (793_712_314).to_bytes(4, "little")  # how fastText's own models begin


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: the words, in the order of the file.
        rows: float32 [num_words, width].
    """

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
    """Read word vectors, the first `MAX_WORDS` words of a file.

    Vectors of another width than `width` are turned so that their first `width` directions keep
    the most of their variance, or are filled up with zeros.

    Args:
        path: the file; its name tells nothing, its first bytes do.
        fields: what is read of a word.
        width: of an embedding.

    Raises:
        DataError: a line that is not a word and numbers, as many as in the others; a binary file
            that is cut off, or of another program.
        ConfigError: forms are not read.
    """
    if "form" not in fields:
        raise ConfigError("--embeddings are for forms", hint="add form to --fields")
    words: dict[str, None] = {}
    rows: list[Floats] = []
    pairs = _binary_pairs(path) if _is_binary(path) else _text_pairs(path)
    for word, row in pairs:
        if word not in words:
            words[word] = None
            rows.append(row)
        if len(rows) == MAX_WORDS:
            break
    if not rows:
        raise DataError("holds no word vectors", hint="give a file of word vectors", path=path)
    return WordVectors(tuple(words), _fitted(np.stack(rows), width))


def _is_binary(path: str | Path) -> bool:
    """Return whether a file is word2vec's .bin: after the sizes and a word, numbers are no text.

    Raises:
        DataError: it is a model of fastText's own.
    """
    try:
        with _opened(path) as file:
            start = file.read(1 << 16)
    except (OSError, EOFError):  # of files that cannot be read, the reader of texts tells
        return False
    if start.startswith(_FASTTEXT):
        raise DataError(
            "is a model of fastText, not a file of vectors",
            hint="give the .vec file that fastText wrote beside it",
            path=path,
        )
    first, line_end, rest = start.partition(b"\n")
    if not line_end or _SIZES.fullmatch(first) is None:
        return False
    line = rest.partition(b"\n")[0]
    try:
        _numbers(line.decode().split(" ")[1:])
    except ValueError:
        return b"\0" in rest or not _is_utf8(rest)
    return False


def _is_utf8(start: bytes) -> bool:
    """Return whether the beginning of a file is text; a character may be cut off at its end."""
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return error.end >= len(start) and len(start) - error.start < 4
    return True


def _opened(path: str | Path) -> IO[bytes]:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if packed else open(path, "rb")  # type: ignore[return-value]


def _binary_pairs(path: str | Path) -> Iterator[tuple[str, Floats]]:
    try:
        with _opened(path) as file:
            sizes = _SIZES.fullmatch(file.readline(_MAX_SIZES))
            assert sizes is not None
            num_words, width = map(int, sizes.groups())
            if not width:
                raise DataError("its vectors have no numbers", hint="write it anew", path=path)
            for number in range(num_words):
                word = _binary_word(file)
                content = file.read(4 * width) if word is not None else b""
                if word is None or len(content) < 4 * width:
                    raise DataError(
                        f"ends with word {number:,} of {num_words:,}",
                        hint="copy the file again, or write it anew",
                        path=path,
                    )
                row = np.frombuffer(content, "<f4").astype(np.float32)
                if not np.isfinite(row).all():
                    raise DataError(
                        f"the vector of word {number + 1:,} holds something that is no number",
                        hint="copy the file again, or write it anew",
                        path=path,
                    )
                # cut in the middle of a character, some words of the published files are no UTF-8
                yield word.decode(errors="replace"), row
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError("a damaged .gz file", hint="copy it again", path=path) from error
    except OSError as error:
        raise from_os_error(error) from error


def _binary_word(file: IO[bytes]) -> bytes | None:
    """Return the letters up to a space, without a line end before; None at the end."""
    letters = bytearray()
    while len(letters) < _MAX_WORD:
        letter = file.read(1)
        if letter == b" ":
            return bytes(letters)
        if not letter:
            return None
        if letter != b"\n" or letters:
            letters += letter
    return None


def _text_pairs(path: str | Path) -> Iterator[tuple[str, Floats]]:
    width = 0
    for number, line in enumerate(_lines(path), 1):
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and _SIZES.fullmatch(line.encode()):
            continue
        if not line.strip():
            continue
        # a word with spaces: the numbers are as many as in the first line
        split = max(1, len(parts) - width) if width else 1
        word = " ".join(parts[:split])
        try:
            row = _numbers(parts[split:])
        except ValueError:
            _refuse(f"the vector of {word!r} holds something that is no number", path, number)
        if not len(row) or not np.isfinite(row).all() or (width and len(row) != width):
            others = f", the others {width}" if width else ""
            _refuse(f"the vector of {word!r} has {len(row)} numbers{others}", path, number)
        width = len(row)
        yield word, row


def _numbers(texts: Sequence[str]) -> Floats:
    return np.asarray(texts, np.float32)


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
        rows = (rows @ directions[:, ::-1][:, :width]).astype(np.float32)
    fitted = np.zeros((len(rows), width), np.float32)
    fitted[:, : rows.shape[1]] = rows
    size = float(fitted.std())
    return (fitted * (_SCALE / size if size > 0 else 1.0)).astype(np.float32)
