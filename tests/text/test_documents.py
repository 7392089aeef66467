"""Raw text comes as the file has it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import DataError
from seqtool.parsing.segmenter.documents import read_documents


def read(*paths: Path, block_size: int = 3) -> list[tuple[str, str]]:
    return [
        (name, "".join(pieces)) for name, pieces in read_documents(paths, block_size=block_size)
    ]


@given(st.text(st.characters(exclude_characters="\0"), min_size=1), st.integers(1, 9))
def test_a_text_is_unchanged(
    tmp_path_factory: pytest.TempPathFactory, text: str, block_size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "text.txt"
    path.write_bytes(text.encode())
    without_mark = text.removeprefix("\ufeff")
    if without_mark:
        assert read(path, block_size=block_size) == [(str(path), without_mark)]


def test_documents_are_apart_and_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\n\r\ntwo")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("dr\u00e9i\n".encode()))
    expected = [
        (str(tmp_path / "a.txt"), "one\r\n\r\ntwo"),
        (str(tmp_path / "b.txt.gz"), "dr\u00e9i\n"),
    ]
    assert read(tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", b"", "the file is empty"),
        ("t.txt", b"\xef\xbb\xbf", "the file is empty"),
        ("t.txt", b"abc\nd\0e", ":2: a NUL at byte 5, so this is no text"),
        ("t.txt", b"abc\n\xe9d", ":2: not UTF-8 at byte 4"),
        ("t.txt", b"ab\xc3", ":1: not UTF-8 at byte 2"),
        ("t.jsonl", b"{}", "holds JSON Lines"),
        ("t.conllu", b"1", "is a treebank, not text"),
    ],
)
def test_what_is_no_text_is_refused(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as refused:
        read(tmp_path / name)
    assert message in str(refused.value)
    assert refused.value.hint
