"""N-gram models as language models, and their directories, whole and damaged."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm.ngram.random_tables import build, random_rows, some_table
from safetensors.numpy import load_file, save_file
from toy_models import generate_samples

from seqtool.core import checkpoint, storage
from seqtool.core.checkpoint import HEADER, WEIGHTS
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID, Vocabulary
from seqtool.lm.array_file import map_arrays
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.ngram.model import NgramModel, save_model
from seqtool.lm.ngram.table import BackoffTable
from seqtool.text.tokenizers import WordTokenizer

Arrays = dict[str, npt.NDArray[Any]]


def tokenizer(size: int) -> WordTokenizer:
    return WordTokenizer(Vocabulary(["<unk>", "</s>", "a", "b", "c", "d", "e"][:size]))


def some_model() -> NgramModel:
    return NgramModel(some_table(), tokenizer(4))


def scores(model: NgramModel, ids: list[int]) -> list[float]:
    (result,) = model.score_ids([np.array(ids, np.int32)])
    return [float(value) for value in result.log_probs]


def assert_same(table: BackoffTable, expected: BackoffTable) -> None:
    assert table.arrays().keys() == expected.arrays().keys()
    for name, array in expected.arrays().items():
        assert table.arrays()[name].dtype == array.dtype
        assert table.arrays()[name].tolist() == array.tolist()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    statistics = [{"order": 1, "counted": 5}]
    path = tmp_path / "m"
    save_model(path, some_model(), config={"order": 3}, statistics=statistics, command="x")
    return path


@pytest.fixture
def unsealed(tmp_path: Path) -> Path:
    """A model made by hand: no sum is recorded, so that only what it says can be judged."""
    save_model(tmp_path / "m", some_model(), config={})
    content = json.loads((tmp_path / "m" / HEADER).read_text())
    del content[storage.SEAL]
    content["files"] = {}
    (tmp_path / "m" / HEADER).write_text(json.dumps(content))
    return tmp_path / "m"


@given(st.data())
def test_next_log_probs_are_the_scores_of_all_next_words(data: st.DataObject) -> None:
    size, order = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 4))
    model = NgramModel(build(data.draw(random_rows(size, order)), size, order), tokenizer(size))
    word = st.integers(0, size - 1)
    texts_H = data.draw(st.lists(st.lists(word, min_size=4, max_size=4), min_size=1, max_size=3))
    state = model.start(len(texts_H))
    for i in range(5):
        expected = [[scores(model, [*text[:i], w])[-1] for w in range(size)] for text in texts_H]
        assert model.next_log_probs(state).tolist() == expected
        if i < 4:
            before = state.copy()
            after = model.advance(state, np.array([text[i] for text in texts_H], np.int32))
            assert (state == before).all()
            state = after


def test_select_repeats_and_reorders() -> None:
    model = some_model()
    state = model.advance(model.start(3), np.array([2, 3, EOS_ID], np.int32))
    log_probs = model.next_log_probs(state)
    chosen = state[np.array([2, 0, 0])]
    assert model.next_log_probs(chosen).tolist() == log_probs[[2, 0, 0]].tolist()


def test_the_beginning_of_a_sentence_as_a_continuation_is_never_predicted() -> None:
    """Some tools write bigrams such as `</s> <s>`."""
    rows = {(word,): (-1.0, 0.0) for word in range(4)} | {(2, 3): (-0.5, 0.0)}
    model = NgramModel(build(rows, 3, 2), tokenizer(3))
    state = model.advance(model.start(1), np.array([2], np.int32))
    assert model.next_log_probs(state).tolist() == [[-1.0, -1.0, -1.0]]


def test_blocks_do_not_know_of_one_another() -> None:
    model = some_model()
    blocks = [np.array(ids, np.int32) for ids in ([2, 3, 2, 1], [2, 1, 1], [3, 1])]
    whole = scores(model, np.concatenate(blocks).tolist())
    parts = [value for result in model.score_ids(blocks) for value in result.log_probs.tolist()]
    assert parts == whole


def test_samples_have_the_probability_that_the_model_gives_them() -> None:
    model = some_model()
    for sample in generate_samples(model, "a", num=20, seed=1, generate_unk=True):
        ids = [2, *(model.tokenizer.vocabulary.symbols.index(token) for token in sample.tokens)]
        expected = math.fsum(scores(model, ids)[1:]) / math.log(10)
        assert sample.log10_probability == pytest.approx(expected, rel=1e-12)


def test_a_saved_model_comes_back(saved: Path) -> None:
    model = checkpoint.load(saved)
    assert isinstance(model, NgramModel)
    assert_same(model.table, some_table())
    assert model.order == 3
    assert model.tokenizer.vocabulary.symbols == ["<unk>", "</s>", "a", "b"]
    header = checkpoint.read_header(saved)
    assert (header.kind, header.config, header.command) == ("ngram", {"order": 3}, "x")
    assert header.statistics == {"orders": [{"order": 1, "counted": 5}]}
    # 5 + 2 + 2 log-probabilities and 5 + 2 backoffs
    assert header.num_parameters == 16
    card = (saved / "README.md").read_text()
    assert "# 3-gram language model" in card
    assert "| 3 | 2 |" in card


def test_the_weights_are_a_file_that_safetensors_reads(saved: Path, tmp_path: Path) -> None:
    arrays = some_table().arrays()
    read = load_file(saved / WEIGHTS)
    assert {name: array.tolist() for name, array in read.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    save_file(arrays, tmp_path / "theirs")
    assert_same(BackoffTable.from_arrays(map_arrays(tmp_path / "theirs"), 4), some_table())


@pytest.mark.parametrize("name", [WEIGHTS, HEADER, "vocabulary.json"])
def test_a_file_cut_off_or_missing_is_found(saved: Path, name: str) -> None:
    path = saved / name
    whole = path.read_bytes()
    for size in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError) as caught:
            checkpoint.load(saved)
        assert caught.value.hint
    path.unlink()
    with pytest.raises(ModelError):
        checkpoint.load(saved)


def test_any_bit_flipped_without_a_sum_is_an_error_or_harmless(unsealed: Path) -> None:
    """Compiled code reads nothing outside of its arrays, whatever the file says."""
    path = unsealed / WEIGHTS
    whole = path.read_bytes()
    refused = 0
    for position in range(0, 8 * len(whole), 5):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        try:
            model = checkpoint.load(unsealed)
        except ModelError:
            refused += 1
            continue
        (result,) = model.score_ids([np.array([2, 3, 2, 1, 0, 3, 3, 2, 3, 1], np.int32)])
        assert set(result.columns["order"].tolist()) <= {1, 2, 3}
        state = model.advance(model.start(1), np.array([2], np.int32))
        assert model.next_log_probs(state).shape == (1, 4)
    assert refused > 100


def lengthen(arrays: Arrays, name: str, value: int) -> None:
    arrays[name] = np.append(arrays[name], np.int32(value))


def replace(arrays: Arrays, name: str, place: int, value: int) -> None:
    arrays[name] = arrays[name].copy()
    arrays[name][place] = value


DAMAGES: dict[str, Callable[[Arrays], object]] = {
    "a word after the vocabulary": lambda arrays: replace(arrays, "2.words", 0, 5),
    "a word below zero": lambda arrays: replace(arrays, "3.words", 1, -1),
    "rows that go down": lambda arrays: replace(arrays, "2.begins", 1, 1),
    "rows that go far": lambda arrays: replace(arrays, "2.begins", 2, 1 << 30),
    "an end too far": lambda arrays: replace(arrays, "3.begins", -1, 3),
    "one begin more": lambda arrays: lengthen(arrays, "2.begins", 2),
    "no words": lambda arrays: arrays.pop("3.words"),
    "no probabilities": lambda arrays: arrays.pop("2.log_probs"),
    "nothing": lambda arrays: arrays.clear(),
    "something else": lambda arrays: arrays.update(more=np.zeros(3, np.float32)),
    "another type": lambda arrays: arrays.update({"2.words": np.array([3, 2], np.float32)}),
    "a matrix": lambda arrays: arrays.update({"2.words": np.array([[3, 2]], np.int32)}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_table_that_does_not_fit_is_refused(
    unsealed: Path, damage: Callable[[Arrays], object]
) -> None:
    arrays = {name: array.copy() for name, array in some_table().arrays().items()}
    damage(arrays)
    save_file(arrays, unsealed / WEIGHTS)
    with pytest.raises(ModelError) as caught:
        checkpoint.load(unsealed)
    assert caught.value.hint
    assert str(unsealed) in str(caught.value.path)


@pytest.mark.parametrize("symbols", [["<unk>", "</s>", "a"], ["<unk>", "</s>", "a", "b", "c"]])
def test_a_vocabulary_of_another_size_is_refused(unsealed: Path, symbols: list[str]) -> None:
    Vocabulary(symbols).save(unsealed / "vocabulary.json")
    with pytest.raises(ModelError, match="the table is for 4"):
        checkpoint.load(unsealed)


def test_an_arpa_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "m.arpa"
    path.write_text(
        "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\t-0.5\n-0.5\t</s>\n"
        "-0.25\ta\n\n\\2-grams:\n-0.125\t<s> a\n\n\\end\\\n"
    )
    (tmp_path / "text.txt").write_text("a\nb\n")
    result = evaluate_lm(checkpoint.load(path), tmp_path / "text.txt")
    # <s> a, </s>; then <unk> and </s>, the first after the backoff of <s>
    assert result.log10_probability == pytest.approx(-0.125 - 0.5 - 1 - 0.5 - 0.5, rel=1e-6)
    assert (result.oov, result.tokens) == (1, 4)
    packed = shutil.copy(path, tmp_path / "text without a suffix")
    assert isinstance(checkpoint.load(packed), NgramModel)
