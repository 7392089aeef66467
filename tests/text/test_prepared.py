from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtool.core import reading
from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS_ID, Vocabulary
from seqtool.text.prepared import PrepareConfig, prepare

LINES = [f"the cat number {i} sees a dog {i % 7} times , 고양이 {i % 3}" for i in range(400)]
PROSE = "".join(f"{line}\n" for line in LINES)


def make(tmp_path: Path, content: str | bytes, output: str = "out", **settings: Any) -> Any:
    path = tmp_path / "made.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    config = PrepareConfig(**{"split": (100.0,), **settings})
    return prepare([path], tmp_path / output, config, force=True)


def test_words_by_hand(tmp_path: Path) -> None:
    corpus = make(tmp_path, "b a\tb\n\n a  c a \r\n<unk> b\N{NO-BREAK SPACE}b\x0c", min_count=2)
    # b 2, a 3, c 1, <unk> 1, "b b\x0c" 1; those met once are unknown; a comes first
    assert corpus.vocabulary.symbols == ["<unk>", "</s>", "a", "b"]
    assert corpus.vocabulary.counts == [3, 4, 3, 2]
    assert corpus.ids("train").tolist() == [3, 2, 3, 1, 1, 2, 0, 2, 1, 0, 0, 1]
    # the CR before LF is not counted, the missing last LF is
    assert corpus.info["splits"] == {
        "train": {"tokens": 12, "sentences": 4, "bytes": 6 + 1 + 9 + 12, "unknown": 3}
    }
    assert corpus.splits() == ["train"]
    assert corpus.info["format_version"] == 1
    assert corpus.info["unit"] == "word"
    assert (tmp_path / "out" / "train.bin").read_bytes()[:4] == b"\x03\x00\x02\x00"


def test_large_vocabularies_take_32_bits(tmp_path: Path) -> None:
    for num_words, dtype in ((65_534, np.uint16), (65_535, np.uint32)):
        corpus = make(tmp_path, " ".join(f"w{i}" for i in range(num_words)))
        ids = corpus.ids("train")
        assert isinstance(ids, np.memmap)
        assert ids.dtype == dtype
        assert ids.tolist() == [*range(2, num_words + 2), EOS_ID]
        with pytest.raises(ValueError, match="read-only"):
            ids[0] = 1


words_of_text = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "é", "<unk>", "\0", "x" * 20])), min_size=1
).filter(any)


@settings(max_examples=50)
@given(lines=words_of_text, max_size=st.none() | st.integers(3, 9), min_count=st.integers(1, 3))
def test_words_equal_from_counts(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[list[str]],
    max_size: int | None,
    min_count: int,
) -> None:
    content = "".join(" ".join(line) + "\n" for line in lines)
    options = {"vocab_size": max_size, "min_count": min_count}
    corpus = make(tmp_path_factory.mktemp("words"), content, **options)
    expected = Vocabulary.from_counts(
        Counter(word for line in lines for word in line),
        max_size=max_size,
        min_count=min_count,
        num_sentences=len(lines),
    )
    assert corpus.vocabulary == expected
    assert corpus.vocabulary.counts == expected.counts
    ids = [token for line in lines for token in [*expected.encode(line).tolist(), EOS_ID]]
    assert corpus.ids("train").tolist() == ids


SETTINGS: list[dict[str, Any]] = [
    {"unit": "word", "vocab_size": 20, "skip_empty_lines": True},
    {"unit": "word", "lowercase": True},
    {"unit": "char", "min_count": 5},
    {"unit": "byte"},
    {"unit": "bpe", "vocab_size": 60, "sample_lines": 30},
    {"unit": "unigram", "sample_lines": 50},
]


@pytest.mark.parametrize("options", SETTINGS)
def test_tiny_blocks_give_the_same_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(PROSE.replace("5 times", "5\n  \n\nTimes"), encoding="utf-8")
    config = PrepareConfig(seed=3, **options)
    whole = prepare([path], tmp_path / "whole", config)
    original = reading.BlockReader.__init__

    def tiny(self: reading.BlockReader, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **{**options, "block_size": 64})

    monkeypatch.setattr(reading.BlockReader, "__init__", tiny)
    pieces = prepare([path], tmp_path / "pieces", config)
    assert pieces.info == whole.info
    assert pieces.vocabulary == whole.vocabulary
    assert pieces.vocabulary.counts == whole.vocabulary.counts
    assert whole.splits() == ["train", "valid", "test"]
    for split in whole.splits():
        assert pieces.ids(split).tolist() == whole.ids(split).tolist()


WORDS = "the quick brown fox jumps over the lazy dogs"


@pytest.mark.parametrize("unit", ["char", "byte", "bpe"])
@pytest.mark.parametrize(
    "line",
    [f"{WORDS}\r\r", f"\ufeff{WORDS}", "1\tDogs\tdog\tNOUN\t_\t_\t0\troot\t_\t_"],
    ids=["two carriage returns", "byte order mark", "line of a treebank"],
)
def test_no_split_is_read_otherwise_than_the_others(tmp_path: Path, unit: str, line: str) -> None:
    """What is kept until subwords are learnt, or for another split, is not normalised again."""
    path = tmp_path / "text.jsonl"
    path.write_text(60 * (json.dumps({"text": line}) + "\n"))
    more = {"vocab_size": 288, "byte_fallback": True} if unit == "bpe" else {}
    corpus = prepare(path, tmp_path / "out", PrepareConfig(unit=unit, split=(50, 50), **more))
    texts = [corpus.tokenizer.decode(corpus.ids(split).tolist()) for split in corpus.splits()]
    assert "".join(texts) == f"{line}\n" * 60


@pytest.mark.parametrize("unit", ["word", "char", "byte"])
def test_a_vocabulary_has_the_counts_of_the_text(tmp_path: Path, unit: str) -> None:
    (tmp_path / "list").write_text("b\nx\n\nb\n")
    closed = {} if unit == "byte" else {"vocab": str(tmp_path / "list")}
    corpus = make(tmp_path, "B a\n\nbb b\n", unit=unit, lowercase=True, **closed)
    ids = corpus.ids("train").tolist()
    assert corpus.vocabulary.counts == [ids.count(i) for i in range(len(corpus.vocabulary))]
    expected = "b <unk>\n\n<unk> b\n" if unit == "word" else "b��\n\nbb�b\n"
    text = "b a\n\nbb b\n" if unit == "byte" else expected
    assert corpus.tokenizer.decode(ids) == text
    assert closed == {} or corpus.vocabulary.symbols == ["<unk>", "</s>", "b", "x"]


def test_words_beyond_the_memory_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"w{number}\n" for number in range(300_000)))
    with pytest.raises(DataError, match=r"different words need about .* of memory"):
        prepare(text, tmp_path / "corpus", memory=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
