"""Tables of texts: what is read of each kind of file, and what is refused, in two lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqtool.classification.config import DataConfig
from seqtool.classification.data import read_texts
from seqtool.core.errors import DataError

COLUMNS = DataConfig()


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'id,text,label\n1,"a, ""b""\nc",x\n2,d,y\n'),
        ("a.tsv", 'label\ttext\nx\t"a, ""b""\nc"\ny\td\n'),
        ("a.jsonl", '{"text": "a, \\"b\\"\\nc", "label": "x"}\n\n{"label": "y", "text": "d"}\n'),
    ],
)
def test_every_kind_of_table_is_read(name: str, content: str, tmp_path: Path) -> None:
    found = read_texts(written(tmp_path, name, content), COLUMNS, labelled=True)
    assert (found.texts, found.labels) == (['a, "b"\nc', "d"], ["x", "y"])
    packed = written(tmp_path, f"{name}.gz", gzip.compress(content.encode()))
    assert read_texts(packed, COLUMNS).texts == found.texts


def test_labels_are_read_where_they_are(tmp_path: Path) -> None:
    plain = written(tmp_path, "a.csv", "text,topic\na,x\n")
    assert read_texts(plain, COLUMNS).labels is None
    named = DataConfig(text_column="topic", label_column="text")
    found = read_texts(plain, named)
    assert (found.texts, found.labels) == (["x"], ["a"])
    lines = '{"text": "a", "label": 3}\n{"text": "b", "label": true}'
    assert read_texts(written(tmp_path, "a.jsonl", lines), COLUMNS).labels == ["3", "true"]


def test_lines_are_texts(tmp_path: Path) -> None:
    found = read_texts(written(tmp_path, "a.txt", "a b\n\nc, d"), COLUMNS)
    assert (found.texts, found.labels, found.names) == (["a b", "", "c, d"], None, ["text"])
    table = written(tmp_path, "b.txt", "text,label\na,x\n")
    assert read_texts(table, COLUMNS, is_table=True).labels == ["x"]


BAD: list[tuple[str, str | bytes, int | None, str]] = [
    ("a.csv", "text,label\n", None, "no rows"),
    ("a.csv", "txt,label\na,x\n", 1, "no column 'text'"),
    ("a.csv", 'text,label\na,x\n"b" c,y\n', 3, "no table"),
    ("a.csv", "text,label\na,x\nb\n", 3, "1 cells"),
    ("a.csv", "text,label\na,x\nb,\n", 3, "label is empty"),
    ("a.csv", 'text,label\na,"x\ny"\n', 2, "cannot be printed"),
    ("a.csv", "text,label\na,x\nb\0c,y\n", 3, "NUL"),
    ("a.csv", b"text,label\na,x\n\xff,y\n", 3, "UTF-8"),
    ("a.txt", "a\n", None, "no table"),
    ("a.jsonl", '{"text": "a", "label": "x"}\n\n{"text": "b"}\n', 3, "label is neither"),
    ("a.jsonl", '{"text": "a", "label": "x"}\n{"label": "b"}\n', 2, "text is missing"),
    ("a.jsonl", "[1]\n", 1, "object"),
    ("a.jsonl", '{"text": "\\ud800", "label": "x"}\n', 1, "surrogate"),
]


@pytest.mark.parametrize(("name", "content", "line", "message"), BAD)
def test_bad_files_are_refused(
    name: str, content: str | bytes, line: int | None, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(DataError) as caught:
        read_texts(path, COLUMNS, labelled=True)
    assert message in caught.value.message
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert caught.value.hint
