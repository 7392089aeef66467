"""n-grams as Parquet: written from a table, and read into the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seqtool
from seqtool import NgramConfig, train_ngram
from seqtool.core.errors import ModelError, OutputError
from seqtool.lm.ngram import parquet
from seqtool.lm.ngram.train import import_ngrams

TEXT = "b a c\na b\nc a b a\n" * 5


@pytest.fixture
def ngrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of several files an order."""
    monkeypatch.setattr(parquet, "_ROWS", 3)
    monkeypatch.setattr(parquet, "_ROWS_PER_FILE", 8)
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    config = NgramConfig(order=3, smoothing="maximum-likelihood")  # which has zeros
    trained = train_ngram(text, tmp_path / "model", config, parquet=tmp_path / "ngrams")
    assert trained.parquet == tmp_path / "ngrams"
    return tmp_path / "ngrams"


def test_there_and_back(ngrams: Path, tmp_path: Path) -> None:
    assert len(list(ngrams.glob("order=3/*.parquet"))) > 1
    import_ngrams(ngrams, tmp_path / "again")
    files = [tmp_path / name / "weights.safetensors" for name in ("model", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    opened = [seqtool.load(tmp_path / name) for name in ("model", "again")]
    assert opened[0].tokenizer.vocabulary.symbols == opened[1].tokenizer.vocabulary.symbols


def test_other_programs_read_it(ngrams: Path, tmp_path: Path) -> None:
    table = pq.read_table(ngrams).to_pydict()
    numbers = zip(table["log_prob"], table["backoff"], strict=True)
    rows = dict(zip(table["ngram"], numbers, strict=True))
    # b follows a 10 times of 20, and begins 5 of the 15 sentences
    assert rows["a b"][0] == pytest.approx(np.log(10 / 20))
    assert rows["<s> b"][0] == pytest.approx(np.log(5 / 15))
    assert rows["a b </s>"][1] is None
    assert set(table["order"]) == {1, 2, 3}


@pytest.mark.parametrize("with_database", [True, False])
def test_rows_in_any_order(
    ngrams: Path, tmp_path: Path, with_database: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if with_database:
        pytest.importorskip("duckdb", reason="duckdb is not installed")
    else:
        monkeypatch.setitem(sys.modules, "duckdb", None)
    for folder in ngrams.iterdir():
        table = pa.concat_tables(pq.read_table(file) for file in folder.glob("*.parquet"))
        if folder.name != "order=1":
            table = table.take(np.random.default_rng(1).permutation(len(table)))
            for file in folder.glob("*.parquet"):
                file.unlink()
            pq.write_table(table, folder / "x.parquet")
    import_ngrams(ngrams, tmp_path / "again")
    files = [tmp_path / name / "weights.safetensors" for name in ("model", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    left = {path.name for path in (tmp_path / "again").iterdir()}
    assert left == {"weights.safetensors", "vocabulary.json", "model.json", "README.md"}


def rewrite(folder: Path, ngrams: list[str], columns: tuple[str, ...] = parquet._COLUMNS) -> None:
    """Replace the n-grams of an order."""
    for file in folder.glob("*.parquet"):
        file.unlink()
    values = [ngrams, *[[0.0] * len(ngrams)] * 2]
    table = pa.table(dict(zip(columns, values, strict=True)))
    pq.write_table(table, folder / "part-00000.parquet")


@pytest.mark.parametrize(
    ("order", "changed", "message"),
    [
        (1, ["<unk>", "</s>", "a"], "it lacks <s>"),
        (1, ["<unk>", "</s>", "a", "a", "<s>"], "a word is there a second time"),
        (2, ["a b", "a b c"], "an n-gram has not 2 words"),
        (2, ["a b", "a  b"], "an n-gram has not 2 words"),
        (2, ["a b", "a x"], "the word 'x' is none of order 1"),
        (2, ["a b", "a b"], "an n-gram is there a second time"),
        (2, ["b a", "a c", "b a"], "an n-gram is there a second time"),
        (2, ["a b", "</s> b"], "an n-gram is of no sentence"),
        (3, ["b b b"], "no n-gram of order 2 begins as 'b b b' does"),
    ],
)
def test_what_is_no_model(
    ngrams: Path, tmp_path: Path, order: int, changed: list[str], message: str
) -> None:
    rewrite(ngrams / f"order={order}", changed)
    with pytest.raises(ModelError, match=message) as error:
        import_ngrams(ngrams, tmp_path / "again")
    assert f"order={order}" in str(error.value)
    assert error.value.hint
    assert not (tmp_path / "again").exists()


def test_damaged_files(ngrams: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="has no files order=1"):
        import_ngrams(tmp_path / "empty", tmp_path / "again")
    rewrite(ngrams / "order=2", ["a b"], ("ngram", "log_prob", "weight"))
    with pytest.raises(ModelError, match="it has no column 'backoff'"):
        import_ngrams(ngrams, tmp_path / "again")
    (ngrams / "order=2" / "part-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(ModelError, match=r"part-00000\.parquet: damaged: "):
        import_ngrams(ngrams, tmp_path / "again")


def test_a_directory_of_others_is_not_replaced(ngrams: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="exists already"):
        train_ngram(tmp_path / "text.txt", tmp_path / "other", parquet=ngrams)
    with pytest.raises(OutputError, match="holds no n-grams"):
        train_ngram(tmp_path / "text.txt", tmp_path / "other", parquet=tmp_path, force=True)
    config = NgramConfig(order=2)
    train_ngram(tmp_path / "text.txt", tmp_path / "other", config, parquet=ngrams, force=True)
    assert {folder.name for folder in ngrams.iterdir()} == {"order=1", "order=2"}
