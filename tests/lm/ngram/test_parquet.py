"""n-grams as Parquet, written from a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from seqtool import NgramConfig, train_ngram
from seqtool.core.errors import OutputError
from seqtool.lm.ngram import parquet

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


def test_other_programs_read_it(ngrams: Path, tmp_path: Path) -> None:
    assert len(list(ngrams.glob("order=3/*.parquet"))) > 1
    table = pq.read_table(ngrams).to_pydict()
    numbers = zip(table["log_prob"], table["backoff"], strict=True)
    rows = dict(zip(table["ngram"], numbers, strict=True))
    # b follows a 10 times of 20, and begins 5 of the 15 sentences
    assert rows["a b"][0] == pytest.approx(np.log(10 / 20))
    assert rows["<s> b"][0] == pytest.approx(np.log(5 / 15))
    assert rows["a b </s>"][1] is None
    assert set(table["order"]) == {1, 2, 3}


def test_a_directory_of_others_is_not_replaced(ngrams: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="exists already"):
        train_ngram(tmp_path / "text.txt", tmp_path / "other", parquet=ngrams)
    with pytest.raises(OutputError, match="holds no n-grams"):
        train_ngram(tmp_path / "text.txt", tmp_path / "other", parquet=tmp_path, force=True)
    config = NgramConfig(order=2)
    train_ngram(tmp_path / "text.txt", tmp_path / "other", config, parquet=ngrams, force=True)
    assert {folder.name for folder in ngrams.iterdir()} == {"order=1", "order=2"}
