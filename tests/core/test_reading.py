from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from seqtool.core.errors import DataError
from seqtool.core.reading import MAX_LINE, LineBlocks, limit_lines, read_blocks, total_size

TEXT = "The cat sat .\n\nDas Mädchen 웃었다 😀\n".encode()


def read(path: Path | str, **options: object) -> bytes:
    return b"".join(read_blocks([path], **options))  # type: ignore[arg-type]


def pack_zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "a.txt": lambda data: data,
    "a.txt.gz": gzip.compress,
    "a.txt.zst": pack_zst,
    "a.txt.bz2": bz2.compress,
    "a.txt.xz": lzma.compress,
    "named-otherwise": gzip.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_files(tmp_path: Path, name: str) -> None:
    path, pack = tmp_path / name, PACKED[name]
    path.write_bytes(pack(TEXT))
    for block_size in (1, 5, 1 << 20):
        assert read(path, block_size=block_size) == TEXT
    if name != "a.txt":
        path.write_bytes(pack(b"one\n") + pack(b"") + pack(b"two\n"))
        assert read(path) == b"one\ntwo\n"
        for cut in (15, -9, -1):
            path.write_bytes(pack(bytes(range(33, 120)) * 50)[:cut])
            with pytest.raises(DataError, match="damaged"):
                read(path)
        path.write_bytes(pack(bytes(256 << 20)))
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match="a line of more than 64 MB"):
                read(path)
            assert tracemalloc.get_traced_memory()[1] < 256 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a", b"a\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"a\rb\n", b"a\rb\n"),
        (b"\xef\xbb\xbfa\n", b"a\n"),
        (b"a\n\xef\xbb\xbfb\n", b"a\n\xef\xbb\xbfb\n"),
        (b"\n\n", b"\n\n"),
        (b"nul\0\x0b\x0c\xc2\xa0\n", b"nul\0\x0b\x0c\xc2\xa0\n"),
    ],
)
def test_lines_end_with_lf(tmp_path: Path, raw: bytes, expected: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(raw)
    for block_size in (1, 2, 3, 100):
        assert read(path, block_size=block_size) == expected


@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"))),
    block_size=st.integers(1, 40),
)
@example(lines=["", ""], block_size=1)
def test_blocks_are_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], block_size: int
) -> None:
    text = "".join(f"{line}\n" for line in ["x", *lines]).encode()
    path = tmp_path_factory.mktemp("text") / "a"
    path.write_bytes(text)
    blocks = list(read_blocks([path], block_size=block_size))
    assert b"".join(blocks) == text
    assert all(block.endswith(b"\n") for block in blocks)
    # no more than one read beyond the block size or the longest line; the first read has at least
    # the ten bytes that tell whether a file is packed
    longest = max(map(len, text.split(b"\n"))) + 1
    assert max(map(len, blocks)) <= max(longest, block_size) + block_size + 9


def test_lowercase_is_of_whole_lines(tmp_path: Path) -> None:
    # the lower case of a capital sigma depends on its place in the word
    path = tmp_path / "a"
    path.write_text("ΟΔΟΣ\nİ\n", encoding="utf-8")
    assert read(path, lowercase=True, block_size=2).decode() == "οδος\ni̇\n"


def test_directories_are_read_sorted_and_recursively(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name, text in (("c.txt", "3"), ("a.txt", "1"), ("b/x.txt", "2"), (".hidden/y", "no")):
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").touch()
    assert read(tmp_path) == b"1\n2\n3\n"
    assert total_size([tmp_path]) == 3


def test_stdin_progress_and_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = tmp_path / "a.gz", gzip.compress(TEXT)
    path.write_bytes(data)
    seen: list[tuple[int, int | None]] = []
    digests: dict[str, str] = {}
    list(read_blocks(path, on_progress=lambda *at: seen.append(at), digests=digests, block_size=9))
    assert seen[-1] == (len(data), len(data))
    assert seen == sorted(seen)
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert b"".join(read_blocks("-", digests=digests)) == TEXT
    assert digests == dict.fromkeys((str(path), "<stdin>"), hashlib.sha256(data).hexdigest())
    assert total_size(["-"]) is None


def test_json_lines(tmp_path: Path) -> None:
    records = [{"text": "a\r\nb", "body": "x"}, {"text": "", "body": "é\n"}]
    content = "\n\n".join(json.dumps(record) for record in records)
    path, packed, other = (tmp_path / name for name in ("a.jsonl", "a.jsonl.gz", "a.txt"))
    path.write_text(content)
    packed.write_bytes(gzip.compress(content.encode()))
    other.write_text(content)
    for block_size in (1, 1000):
        assert read(path, block_size=block_size) == b"a\nb\n\n"
        assert read(packed, block_size=block_size) == b"a\nb\n\n"
        assert read(other, field="body", block_size=block_size) == "x\né\n".encode()


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("{nope", "not JSON", "one JSON object"),
        ("[1]", "not JSON: it is no object", "one JSON object"),
        ('{"body": "x"}', "no field 'text'", "one of: body"),
        ('{"text": 3}', "the field 'text' is not a text", "--field"),
        ('{"text": "\\ud800"}', "half a surrogate pair", "whole"),
        ("[" * 100_000, "not JSON", "one JSON object"),
    ],
)
def test_bad_json_lines_are_located(tmp_path: Path, line: str, message: str, hint: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine\\nand two", "other": "\\ud800"}\n\n' + line + "\n")
    with pytest.raises(DataError, match=message) as error:
        read(path)
    assert (error.value.path, error.value.line) == (str(path), 3)
    assert hint in error.value.hint


def test_lines_are_located(tmp_path: Path) -> None:
    text, records = tmp_path / "a.txt", tmp_path / "b.jsonl"
    text.write_text("".join(f"{i}\n" for i in range(1, 30)))
    records.write_text('{"text": "x"}\n\n{"text": "1\\n2"}\n{"text": "3"}\n')
    reader = read_blocks([text, records], block_size=8)
    places = [
        reader.locate(number) for block in reader for number in range(1, block.count(b"\n") + 1)
    ]
    expected = [(str(text), line) for line in range(1, 30)]
    assert places == [*expected, *((str(records), line) for line in (1, 3, 3, 4))]


def test_lines_in_memory() -> None:
    assert list(LineBlocks([])) == []
    lines = [f"é {number}" for number in range(2500)]
    blocks = LineBlocks(lines)
    found, first = [], 1
    for block in blocks:
        assert blocks.locate(2) == ("<text>", first + 1)
        found += block.decode().split("\n")[:-1]
        first = len(found) + 1
    assert found == lines
    assert list(LineBlocks(["a\r\nb", ""], join=True)) == [b"a  b\n\n"]
    for bad, error, word in (
        ("a\nb", DataError, "x:7: a sentence with a line end inside"),
        ("\ud800", DataError, "x:7: half a surrogate pair"),
        (3, TypeError, "not a string"),
    ):
        with pytest.raises(error, match=word):
            list(LineBlocks(["a", bad], "x", numbers=[5, 7]))  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_invalid_utf8_is_located(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACKED[name]("ä\n\nok".encode() + b"\xe4\n"))
    for block_size in (1, 4, 1000):
        with pytest.raises(DataError, match="not UTF-8 at byte 6") as error:
            read(path, block_size=block_size)
        assert (error.value.path, error.value.line) == (str(path), 3)
    assert "iconv" in error.value.hint


@pytest.mark.parametrize("pack", [bytes, gzip.compress, pack_zst], ids=["plain", "gzip", "zstd"])
def test_a_line_beyond_the_limit_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "x"
    limit_lines(10)
    try:
        for end, block_size in product(("", "\n", "\nmore\n"), (4, 7, 10, 1 << 20)):
            text = f"one\n\n0123456789\n0123456789{end}"
            path.write_bytes(pack(text.encode()))
            assert read(path, block_size=block_size).decode().strip() == text.strip()
            path.write_bytes(pack(f"one\n\n0123456789\n0123456789a{end}".encode()))
            with pytest.raises(DataError, match="a line of more than") as caught:
                read(path, block_size=block_size)
            assert caught.value.line == 4
    finally:
        limit_lines(MAX_LINE)
    assert "--max-line" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("missing", None, "no such file"),
        ("folder/.hidden", b"x", "holds no files"),
        ("empty.txt", b"", "the file is empty"),
        ("bom.txt", b"\xef\xbb\xbf", "the file is empty"),
        ("packed.gz", gzip.compress(b"", mtime=0), "the file is empty"),
        ("x.conllu.gz", b"", "is a treebank"),
        ("folder/corpus.json", b"{}", "is a prepared corpus"),
        ("folder/model.json", b"{}", "is a model"),
    ],
)
def test_what_is_no_text(tmp_path: Path, name: str, content: bytes | None, word: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    named = tmp_path / name.split("/")[0]
    with pytest.raises(DataError, match=word) as caught:
        read(named)
    assert caught.value.path == str(named)


def test_columns_are_those_of_another_reader(tmp_path: Path) -> None:
    import conllu

    folder = Path(__file__).parents[1] / "treebank" / "golden"
    for path in sorted(folder.glob("*.conllu")):
        sentences = conllu.parse(path.read_text(encoding="utf-8"))
        for column, name in (
            ("form", "form"),
            ("word", "form"),
            ("upos", "upos"),
            ("xpos", "xpos"),
        ):
            expected = []
            for sentence in sentences:
                words = [token for token in sentence if isinstance(token["id"], int)]
                tokens = [token for token in sentence if isinstance(token["id"], tuple)]
                ranges = {token["id"][0]: token for token in tokens if token["id"][1] == "-"}
                ranges = ranges if column == "form" else {}
                texts, last = [], 0
                for word in words:
                    if token := ranges.get(word["id"]):
                        texts.append(token["form"])
                        last = token["id"][2]
                    elif word["id"] > last:
                        texts.append(word[name] or "_")
                expected.append(" ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in texts))
            if any(set(line.split(" ")) == {"_"} for line in expected if name != "form"):
                with pytest.raises(DataError, match=f"has {column.upper()}"):
                    list(read_blocks(path, column=column))
                continue
            for block_size in (1, 7, 1 << 20):
                blocks = list(read_blocks(path, column=column, block_size=block_size))
                assert b"".join(blocks).decode().splitlines() == expected, path


def test_lines_of_a_column_are_located(tmp_path: Path) -> None:
    word = "1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n"
    path = tmp_path / "x.conllu"
    path.write_text(f"# one\n{word}\n\n# two\n# comments\n{word}")  # sentences of lines 2, 7
    for block_size in (1, 30, 1000):
        reader = read_blocks(path, column="form", block_size=block_size)
        lines = []
        for block in reader:
            lines += [reader.locate(n + 1)[1] for n in range(block.count(b"\n"))]
        assert lines == [2, 7]
    for broken, message in (
        ("1\ta\n", "2 columns, where CoNLL-U has 10"),
        (word.replace("1", " 1"), "ID"),
        (word.replace("1\ta", "1\t"), "FORM"),
    ):
        path.write_text(word + broken)
        with pytest.raises(DataError, match=message) as caught:
            list(read_blocks(path, column="form"))
        assert caught.value.line == 2


def test_a_column_of_conllu_plus_is_found_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.conllup"
    lines = "1\tdog\tDogs\tNOUN\n2-3\t_\tdunno\t_\n2\tdo\tdu\tAUX\n3\tnot\tnno\tPART\n\n"
    path.write_text(f"# global.columns = ID LEMMA FORM UPOS\n# text = x\n{lines}{lines}")
    for column, expected in (
        ("form", "Dogs dunno\n"),
        ("lemma", "dog do not\n"),
        ("upos", "NOUN AUX PART\n"),
    ):
        assert b"".join(read_blocks(path, column=column)).decode() == 2 * expected
    with pytest.raises(DataError, match="there is no column XPOS") as caught:
        list(read_blocks(path, column="xpos"))
    assert caught.value.line == 1
    path.write_text(f"# global.columns = ID LEMMA FORM UPOS FEATS\n{lines}")
    with pytest.raises(DataError, match="4 columns, where the first line has 5"):
        list(read_blocks(path, column="form"))


def test_a_column_of_parquet_is_a_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["a b", "", "é\r\nc", "d\n"]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts, "other": ["x"] * 4, "number": [1] * 4}), path)
    digests: dict[str, str] = {}
    assert b"".join(read_blocks(path, digests=digests)) == "a b\n\né\nc\nd\n".encode()
    assert digests == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    assert b"".join(read_blocks(path, field="other")) == b"x\n" * 4
    blocks = read_blocks(path)
    next(blocks)
    assert [blocks.locate(line) for line in (3, 4, 5)] == [(str(path), row) for row in (3, 3, 4)]
    for field, message in (
        ("missing", "no column 'missing'"),
        ("number", "row 1 of the column 'number' is not text"),
    ):
        with pytest.raises(DataError, match=message) as error:
            list(read_blocks(path, field=field))
        assert "--field" in error.value.hint
    pq.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(DataError, match="row 2 of the column 'text' is not text"):
        list(read_blocks(path))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="the Parquet file is damaged"):
        list(read_blocks(path))
