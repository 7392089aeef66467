"""Word vectors: the same ones in every format, and files that cannot be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from seqtool.core.errors import ConfigError, DataError
from seqtool.parsing.encoding.vectors import WordVectors, read_vectors

WORDS = ("dog", "Łódź", "the", "\u3000x")
ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
SIZES = b"4 3\n"
TEXT = "".join(
    f"{word} {' '.join(map(repr, row.tolist()))}\n" for word, row in zip(WORDS, ROWS, strict=True)
).encode()


FILES = {
    "glove.txt": TEXT,
    "fasttext.vec": SIZES + TEXT,
    "trailing.vec": SIZES + TEXT.replace(b"\n", b" \n"),
    "packed.txt.gz": gzip.compress(TEXT),
}


def read(path: Path, content: bytes, width: int = 3) -> WordVectors:
    path.write_bytes(content)
    return read_vectors(path, ["form"], width)


@pytest.mark.parametrize("name", FILES)
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    found = read(tmp_path / name, FILES[name])
    assert found.words == WORDS
    # as many numbers as asked for: one scale for all, to the size that embeddings begin with
    np.testing.assert_allclose(found.rows, ROWS * (0.1 / ROWS.std()), rtol=1e-5)


def test_words_with_spaces_and_words_twice(tmp_path: Path) -> None:
    """As in glove.840B: `. . .` is a word."""
    found = read(tmp_path / "v", b"a 1 0\n. . . 0 2\na 5 5\nname @ domain 1 1\n", 2)
    assert found.words == ("a", ". . .", "name @ domain")
    np.testing.assert_allclose(found.rows / found.rows[0, 0], [[1, 0], [0, 2], [1, 1]], atol=1e-6)


def test_a_smaller_width_keeps_the_most_of_the_variance(tmp_path: Path) -> None:
    """Rows along (3, 4) and a little across it: one direction is enough."""
    rows = [[3, 4.001], [-6, -8], [9, 12], [-12, -15.999]]
    text = "".join(f"w{i} {a} {b}\n" for i, (a, b) in enumerate(rows)).encode()
    found = read(tmp_path / "v", text, 1).rows[:, 0]
    np.testing.assert_allclose(np.abs(found / found[0]), [1, 2, 3, 4], rtol=1e-3)
    assert len(set(np.sign(found[[0, 2]]))) == len(set(np.sign(found[[1, 3]]))) == 1


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"a 1 2\nb 1\n", "1 numbers, the others 2", 2),
        (b"2 3\na 1 2\nb 1 2\n", "2 numbers, and the first line says 3", 2),
        (b"a 1 x\n", "no number", 1),
        (b"a 1 nan\n", "2 numbers", 1),
        (b"2 2\na 1 2\nb 1 y\n", "no number", 3),
        (b"1 2\n", "no word vectors", None),
        (gzip.compress(TEXT, mtime=0)[:-30], "damaged", None),
        (SIZES + b"dog " + ROWS[0].tobytes(), "UTF-8", 2),
    ],
)
def test_files_that_cannot_be_read(
    content: bytes, message: str, line: int | None, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "v", content)
    assert caught.value.line == line
    with pytest.raises(ConfigError, match="for forms"):
        read_vectors(tmp_path / "v", ["upos"], 3)
