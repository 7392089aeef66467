"""Reading text and prepared corpora for counting."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtool.core.errors import ConfigError, DataError
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import Reading, read_ids
from seqtool.text.prepared import PrepareConfig, prepare

# b 3 times, c twice, a and d once: b is 2, c is 3, a is 4 and d is 5, </s> is 1
TEXT = "a b c\n\nb d\nc b\n"
IDS = [4, 2, 3, 1, 1, 2, 5, 1, 3, 2, 1]
SPECIAL = "a <unk> b\n<s> a </s> c\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def read(path: Path, field: str | None = None, **settings: Any) -> Reading:
    return read_ids([path], NgramConfig(order=2, **settings), field=field)


def words(reading: Reading) -> str:
    """The text of a reading, line by line."""
    return reading.tokenizer.decode(reading.ids)


def test_words_are_numbered_by_frequency(text: Path) -> None:
    reading = read(text)
    assert reading.ids.tolist() == IDS
    assert reading.ids.dtype == np.int32
    assert reading.tokenizer.vocabulary.symbols == ["<unk>", "</s>", "b", "c", "a", "d"]
    assert reading.tokenizer.vocabulary.counts == [0, 4, 3, 2, 1, 1]
    assert reading.tokenizer.encode_block(TEXT.encode()).tolist() == IDS
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert read(text, min_count=2).description == {
        "splits": {"train": {"tokens": 11, "sentences": 4, "bytes": 15, "unknown": 2}},
        "sources": [{"path": str(text), "split": "train", "sha256": digest}],
    }


def test_several_files_of_any_kind(tmp_path: Path) -> None:
    paths = [tmp_path / "one.txt.gz", tmp_path / "two.jsonl"]
    paths[0].write_bytes(gzip.compress(b"a b"))
    paths[1].write_text('{"text": "b c", "body": "x"}\n{"text": "b", "body": "y"}\n')
    progress: list[tuple[int, int | None]] = []
    config = NgramConfig(order=2)
    reading = read_ids(paths, config, on_progress=lambda *state: progress.append(state))
    assert words(reading) == "a b\nb c\nb\n"
    size = sum(path.stat().st_size for path in paths)
    assert progress[-1] == (size, size)
    assert words(read(paths[1], field="body")) == "x\ny\n"


@pytest.mark.parametrize(
    ("text", "settings", "expected", "counts"),
    [
        (TEXT, {"min_count": 2}, "<unk> b c\n\nb <unk>\nc b\n", [2, 4, 3, 2]),
        (TEXT, {"vocab_size": 4}, "<unk> b c\n\nb <unk>\nc b\n", [2, 4, 3, 2]),
        ("A a\nÄ ä\n", {"lowercase": True}, "a a\nä ä\n", [0, 2, 2, 2]),
        # a, c and c are unknown; x is not there
        (TEXT, {"vocab": "d\nx\nb\n"}, "<unk> b <unk>\n\nb d\n<unk> b\n", [3, 4, 1, 0, 3]),
        ("a <unk> b\n", {"special_tokens": "auto"}, "a <unk> b\n", [1, 1, 1, 1]),
        (
            SPECIAL,
            {"special_tokens": "unknown"},
            "a <unk> b\n<unk> a <unk> c\n",
            [3, 2, 2, 1, 1],
        ),
        (SPECIAL, {"special_tokens": "skip"}, "a b\na c\n", [0, 2, 2, 1, 1]),
        ("a <unk>b\n", {"special_tokens": "refuse"}, "a <unk>b\n", [0, 1, 1, 1]),  # another word
        # of a closed vocabulary, words outside of it are not skipped
        ("a <unk> b\n", {"special_tokens": "skip", "vocab": "a\n"}, "a <unk>\n", [1, 1, 1]),
    ],
)
def test_how_words_are_read(
    tmp_path: Path, text: str, settings: dict[str, Any], expected: str, counts: list[int]
) -> None:
    (tmp_path / "text").write_text(text, encoding="utf-8")
    if "vocab" in settings:
        (tmp_path / "words").write_text(settings["vocab"])
        settings = {**settings, "vocab": str(tmp_path / "words")}
    reading = read(tmp_path / "text", **settings)
    assert words(reading) == expected
    assert reading.tokenizer.vocabulary.counts == counts
    assert reading.num_unknown == counts[0]
    assert reading.tokenizer.lowercase == settings.get("lowercase", False)
    assert reading.description["splits"]["train"]["tokens"] == len(reading.ids)


@pytest.mark.parametrize(
    ("content", "policy", "message", "line"),
    [
        ("a\nb\n\nc <s>\n", "auto", "special symbol <s> as a word", 4),
        ("a\nb\n\nc </s>\n", "auto", "special symbol </s> as a word", 4),
        ("a\nb\n\nc <unk>\n", "refuse", "special symbol <unk> as a word", 4),
        ("", "auto", "empty", None),
        ("\n \n", "auto", "only empty lines", None),
    ],
)
def test_texts_that_are_refused(
    tmp_path: Path, content: str, policy: str, message: str, line: int | None
) -> None:
    path = tmp_path / "text"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read(path, special_tokens=policy)
    assert (caught.value.path, caught.value.line) == (str(path), line)


@pytest.mark.parametrize("unit", ["word", "char", "byte"])
def test_a_prepared_corpus(text: Path, tmp_path: Path, unit: str) -> None:
    corpus = prepare([text], tmp_path / "corpus", PrepareConfig(unit=unit), valid=text)
    reading = read(tmp_path / "corpus")
    assert reading.ids.tolist() == corpus.ids("train").tolist()
    assert reading.tokenizer.unit == unit
    assert words(reading) == TEXT
    assert reading.description["splits"].keys() == {"train", "valid"}
    with pytest.raises(ConfigError, match="no fields"):
        read(tmp_path / "corpus", field="text")


@pytest.mark.parametrize(
    "settings",
    [{"lowercase": True}, {"vocab_size": 9}, {"vocab": "words"}, {"special_tokens": "skip"}],
)
def test_a_prepared_corpus_is_as_it_is(
    text: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    prepare([text], tmp_path / "corpus", PrepareConfig(min_count=2), valid=text)
    assert read(tmp_path / "corpus", min_count=2).num_unknown == 2
    with pytest.raises(ConfigError, match="but the corpus was prepared with") as caught:
        read(tmp_path / "corpus", **settings)
    assert next(iter(settings)) in caught.value.message


def test_the_memory_that_the_user_gives(text: Path) -> None:
    assert len(read_ids([text], NgramConfig(order=2), memory=2**50).ids) == len(IDS)
    with pytest.raises(DataError, match=r"but 0\.0 MB are available") as caught:
        read_ids([text], NgramConfig(order=2), memory=1000)
    assert "--memory" in caught.value.hint
