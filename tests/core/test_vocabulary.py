from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID, Vocabulary


def test_ids_follow_counts_and_ties_their_first_occurrence() -> None:
    vocabulary = Vocabulary.from_counts({"b": 2, "a": 2, "c": 5, "d": 1}, num_sentences=4)
    assert vocabulary.symbols == [UNK, EOS, "c", "b", "a", "d"]
    assert vocabulary.counts == [0, 4, 5, 2, 2, 1]
    assert len(vocabulary) == vocabulary.bos_id == 6
    assert vocabulary.id("c") == 2
    assert vocabulary.id("nowhere") == UNK_ID
    assert vocabulary.id(BOS) == UNK_ID
    assert "c" in vocabulary
    assert BOS not in vocabulary


def test_special_symbols_among_the_counts() -> None:
    # a literal <unk> adds to the unknown mass, </s> to the sentences, <s> to nothing
    counts = {"a": 3, UNK: 7, BOS: 5, EOS: 2, "b": 1}
    vocabulary = Vocabulary.from_counts(counts, min_count=2, num_sentences=10)
    assert vocabulary.symbols == [UNK, EOS, "a"]
    assert vocabulary.counts == [8, 12, 3]


@given(st.lists(st.sampled_from("abcdefgh")), st.integers(3, 12), st.integers(1, 4))
def test_from_counts_equals_sorting(words: list[str], max_size: int, min_count: int) -> None:
    counts = Counter(words)
    first = {word: i for i, word in reversed(list(enumerate(words)))}
    kept = sorted(
        (word for word in counts if counts[word] >= min_count),
        key=lambda word: (-counts[word], first[word]),
    )[: max_size - 2]
    vocabulary = Vocabulary.from_counts(counts, max_size=max_size, min_count=min_count)
    assert vocabulary.symbols == [UNK, EOS, *kept]
    assert sum(vocabulary.counts) == len(words)


@given(st.lists(st.text(st.characters(codec="utf-8")), unique=True))
def test_encode_decode_and_files(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    words = [word for word in words if word not in (UNK, EOS, BOS)]
    vocabulary = Vocabulary([UNK, EOS, *words], range(len(words) + 2))
    ids = vocabulary.encode([*words, EOS])
    assert ids.dtype == np.int32
    assert ids.tolist() == [*range(2, len(words) + 2), EOS_ID]
    assert vocabulary.decode(ids) == [*words, EOS]
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.json"
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    assert loaded == vocabulary
    assert hash(loaded) == hash(vocabulary)
    assert loaded.counts == vocabulary.counts


def test_nearest() -> None:
    vocabulary = Vocabulary([UNK, EOS, "house", "mouse", "tree"])
    assert vocabulary.nearest("houes")[0] == "house"
    assert vocabulary.nearest("xyz") == []
    cased = Vocabulary([UNK, EOS, "he", "then", "the"])
    assert cased.nearest("The")[0] == "the"
    assert cased.nearest("The", 1) == ["the"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a vocabulary"),
        ("[]", "not a vocabulary"),
        ('{"format_version": 1, "symbols": ["<unk>", "</s>"]}', "not a vocabulary"),
        ('{"format_version": 1, "symbols": "abc", "counts": []}', "not a vocabulary"),
        ('{"format_version": 1, "symbols": ["<unk>", 1], "counts": [0, 0]}', "not a vocabulary"),
        ('{"format_version": 1, "symbols": ["a"], "counts": [0]}', "not a vocabulary"),
        ('{"format_version": 1, "symbols": ["<unk>", "</s>"], "counts": 3}', "not a vocabulary"),
        *(
            (f'{{"format_version": 1, "tables": {{"t": {table}}}, "extra": {{}}}}', "not a voc")
            for table in ('"abc"', "[3]", '[["a", null]]', '[{"a": 1}]', '{"a": "b"}')
        ),
        ('{"format_version": 99, "symbols": [], "counts": []}', "another version"),
    ],
)
def test_damaged_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=message) as error:
        Vocabulary.load(path)
    assert error.value.path == str(path)


def test_tables_with_names(tmp_path: Path) -> None:
    tables = {"labels": ["nsubj", "obj"], "bundles": [("DET", "DT", "_"), ("N", "_", "A=b")]}
    vocabulary = Vocabulary(tables=tables, extra={"columns": [1, 3]})
    vocabulary.save(tmp_path / "v.json")
    assert json.loads((tmp_path / "v.json").read_text()) == {
        "format_version": 1,
        "tables": {"labels": ["nsubj", "obj"], "bundles": [["DET", "DT", "_"], ["N", "_", "A=b"]]},
        "extra": {"columns": [1, 3]},
    }
    again = Vocabulary.load(tmp_path / "v.json")
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert again.tables["bundles"][1] == ("N", "_", "A=b")
    assert again.symbols == []
    assert repr(again) == "Vocabulary(4 entries in 2 tables)"
    assert again != Vocabulary(tables=tables)
