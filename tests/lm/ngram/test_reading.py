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


def test_what_a_model_records_of_its_text(text: Path) -> None:
    reading = read(text, min_count=2)
    assert reading.num_unknown == 2
    assert reading.description == {
        "splits": {"train": {"tokens": 11, "sentences": 4, "bytes": 15, "unknown": 2}},
        "sources": [
            {
                "path": str(text),
                "split": "train",
                "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
            }
        ],
    }


def test_several_files_of_any_kind(tmp_path: Path) -> None:
    (tmp_path / "one.txt.gz").write_bytes(gzip.compress(b"a b"))
    (tmp_path / "two.jsonl").write_text('{"text": "b c"}\n{"text": "b"}\n')
    told: list[tuple[int, int | None]] = []
    reading = read_ids(
        [tmp_path / "one.txt.gz", tmp_path / "two.jsonl"],
        NgramConfig(order=2),
        on_progress=lambda *state: told.append(state),
    )
    assert words(reading) == "a b\nb c\nb\n"
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert told[-1] == (size, size)


def test_a_field_of_json_lines(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a", "body": "b"}\n')
    assert words(read(tmp_path / "x.jsonl", field="body")) == "b\n"


def test_rare_words_are_unknown(text: Path) -> None:
    expected = "<unk> b c\n\nb <unk>\nc b\n"
    assert words(read(text, min_count=2)) == expected
    assert words(read(text, vocab_size=4)) == expected
    assert read(text, vocab_size=4).tokenizer.vocabulary.counts == [2, 4, 3, 2]


def test_lower_case(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("A a\nÄ ä\n")
    reading = read(path, lowercase=True)
    assert words(reading) == "a a\nä ä\n"
    assert reading.tokenizer.lowercase


def test_a_closed_vocabulary(text: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("d\nx\nb\n")
    reading = read(text, vocab=str(tmp_path / "words"))
    assert reading.tokenizer.vocabulary.symbols == ["<unk>", "</s>", "d", "x", "b"]
    # a, c and c are unknown; four lines; x is not there
    assert reading.tokenizer.vocabulary.counts == [3, 4, 1, 0, 3]
    assert words(reading) == "<unk> b <unk>\n\nb d\n<unk> b\n"
    assert reading.num_unknown == 3


SPECIAL = "a <unk> b\n<s> a </s> c\n"


@pytest.mark.parametrize(
    ("text", "policy", "expected", "num_unknown"),
    [
        ("a <unk> b\n", "auto", "a <unk> b\n", 1),
        (SPECIAL, "unknown", "a <unk> b\n<unk> a <unk> c\n", 3),
        (SPECIAL, "skip", "a b\na c\n", 0),
        ("a <unk>b\n", "refuse", "a <unk>b\n", 0),  # another word
    ],
)
def test_special_tokens(
    tmp_path: Path, text: str, policy: str, expected: str, num_unknown: int
) -> None:
    path = tmp_path / "text"
    path.write_text(text)
    reading = read(path, special_tokens=policy)
    assert words(reading) == expected
    assert reading.num_unknown == reading.tokenizer.vocabulary.counts[0] == num_unknown
    assert reading.description["splits"]["train"]["tokens"] == len(reading.ids)


def test_words_outside_a_closed_vocabulary_are_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a <unk> b\n")
    (tmp_path / "words").write_text("a\n")
    reading = read(tmp_path / "text", special_tokens="skip", vocab=str(tmp_path / "words"))
    assert words(reading) == "a <unk>\n"


@pytest.mark.parametrize(
    ("policy", "word", "line"), [("auto", "<s>", 4), ("auto", "</s>", 4), ("refuse", "<unk>", 4)]
)
def test_refused_special_tokens_are_found(
    tmp_path: Path, policy: str, word: str, line: int
) -> None:
    path = tmp_path / "text"
    path.write_text(f"a\nb\n\nc {word}\n")
    with pytest.raises(DataError, match=f"special symbol {word} as a word") as caught:
        read(path, special_tokens=policy)
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert "--special-tokens" in caught.value.hint


@pytest.mark.parametrize(("content", "message"), [("", "empty"), ("\n \n", "only empty lines")])
def test_an_empty_text_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "text"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("unit", ["word", "char", "byte"])
def test_a_prepared_corpus(text: Path, tmp_path: Path, unit: str) -> None:
    corpus = prepare([text], tmp_path / "corpus", PrepareConfig(unit=unit), valid=text)
    reading = read(tmp_path / "corpus")
    assert reading.ids.tolist() == corpus.ids("train").tolist()
    assert reading.tokenizer.unit == unit
    assert words(reading) == TEXT
    assert reading.description["splits"].keys() == {"train", "valid"}
    if unit == "word":
        assert reading.ids.tolist() == IDS


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


def test_a_prepared_corpus_has_no_fields(text: Path, tmp_path: Path) -> None:
    prepare([text], tmp_path / "corpus", valid=text)
    with pytest.raises(ConfigError, match="no fields"):
        read(tmp_path / "corpus", field="text")


def test_the_memory_that_the_user_tells(text: Path) -> None:
    assert len(read_ids([text], NgramConfig(order=2), memory=2**50).ids) == len(IDS)
    with pytest.raises(DataError, match=r"but 0\.0 MB are available") as caught:
        read_ids([text], NgramConfig(order=2), memory=1000)
    assert caught.value.hint.endswith("raise --memory")
