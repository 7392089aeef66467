"""The plan on DuckDB, against what is estimated in memory: the same table, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.array_file import map_arrays
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.engine import contexts, duckdb, estimation, output
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.table import BackoffTable

SIZE = 30  # words, some of which the text does not have


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contexts, rows and sentences go on from piece to piece."""
    for module, name, num in (
        (contexts, "GIVEN", 50),
        (duckdb, "_BATCH", 30),
        (estimation, "_PIECE", 37),
        (output, "_PIECE", 7),
    ):
        monkeypatch.setattr(module, name, num)


def random_text(num_sentences: int = 300, seed: int = 0) -> np.ndarray:
    """Sentences of no word to seven; `<unk>` is among the words."""
    rng = np.random.default_rng(seed)
    ids: list[int] = []
    for _ in range(num_sentences):
        words = np.minimum(rng.zipf(1.5, rng.integers(0, 8)), SIZE - 4) + 1
        ids += [*np.where(words == 4, 0, np.maximum(words, 2)).tolist(), EOS_ID]
    return np.array(ids, np.int32)


def assert_same(
    folder: Path,
    config: NgramConfig,
    *,
    ids: np.ndarray | None = None,
    size: int = SIZE,
    allowed: np.ndarray | None = None,
    threads: int = 1,
) -> BackoffTable:
    """Estimate in memory and by the plan; compare all that is told, and return the table."""
    ids = random_text() if ids is None else ids
    counts = count_ngrams(ids, config.order, size)
    wanted = estimate(counts, config, allowed=allowed)
    file = folder / "weights"
    with estimation.estimated_on_disk(
        ids, size, config, folder, threads=threads, allowed=allowed
    ) as (engine, found):
        output.write_table(file, engine, found)
    assert found.statistics == wanted.statistics
    assert found.warnings == wanted.warnings
    arrays = map_arrays(file)
    assert list(arrays) == list(wanted.table.arrays())
    for name, array in wanted.table.arrays().items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    return BackoffTable.from_arrays(arrays, wanted.table.vocabulary_size)


@pytest.mark.parametrize("smoothing", sorted(SMOOTHINGS))
@pytest.mark.parametrize("prune", [(), (0, 1, 2)])
def test_every_smoothing(smoothing: str, prune: tuple[int, ...], tmp_path: Path) -> None:
    table = assert_same(tmp_path, NgramConfig(order=4, smoothing=smoothing, prune=prune))
    assert all(len(level) for level in table.levels)


@pytest.mark.parametrize("order", [1, 2, 7])
def test_orders(order: int, tmp_path: Path) -> None:
    assert_same(tmp_path, NgramConfig(order=order, fallback=(0.4, 0.9, 1.3)))


def test_pruned_to_nothing(tmp_path: Path) -> None:
    table = assert_same(tmp_path, NgramConfig(order=3, prune=(0, 0, 10_000)))
    assert [len(level) > 0 for level in table.levels] == [True, True, False]


def test_only_some_words(tmp_path: Path) -> None:
    allowed = np.ones(SIZE + 1, np.bool_)
    allowed[[3, 5, 6, 20]] = False
    assert_same(tmp_path, NgramConfig(order=3, prune=(0, 0, 1)), allowed=allowed)


def test_words_of_many_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 22 bits a word, 2 words a column; most words are not in the text
    monkeypatch.setattr(output, "_PIECE", 1 << 20)
    size = 2_200_000
    ids = np.where(random_text(60) > 5, random_text(60) + size - 40, random_text(60))
    assert_same(tmp_path, NgramConfig(order=5), ids=ids.astype(np.int32), size=size)


def test_an_order_that_no_sentence_has_room_for(tmp_path: Path) -> None:
    ids = np.array([2, 3, EOS_ID, 2, EOS_ID], np.int32)
    assert_same(tmp_path, NgramConfig(order=4), ids=ids)
    with pytest.raises(DataError) as in_memory:
        count_ngrams(ids, 5, SIZE)
    folder = tmp_path / "other"
    folder.mkdir()
    with (
        pytest.raises(DataError, match="order 5 is more than the longest sentence") as on_disk,
        estimation.estimated_on_disk(ids, SIZE, NgramConfig(order=5), folder),
    ):
        raise AssertionError("it was estimated")
    assert str(on_disk.value) == str(in_memory.value)
    assert on_disk.value.hint == in_memory.value.hint


def test_too_little_memory_is_told(tmp_path: Path) -> None:
    config = NgramConfig(order=2)
    with (
        pytest.raises(DataError, match="the tables of DuckDB need about"),
        estimation.estimated_on_disk(random_text(), SIZE, config, tmp_path, memory=10**6),
    ):
        raise AssertionError("it was estimated")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("enough_for", ["the sort", "the sort with one thread", "nothing"])
def test_a_join_and_a_sort_that_are_too_much_at_once(
    enough_for: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorts: list[tuple[str, int]] = []

    class Short(duckdb.DuckDB):
        """Has given some rows when it finds the memory too small."""

        def read(self, sql: str) -> Iterator[pa.RecordBatch]:
            threads = self.fetch("SELECT current_setting('threads')")[0][0]
            rows = super().read(sql)
            if ("ORDER BY" in sql and ".p" in sql) or "joined_" in sql:
                sorts.append((sql, threads))
                enough = "joined_" in sql and enough_for != "nothing"
                if not enough or (threads > 1 and enough_for != "the sort"):
                    yield next(rows)
                    with self.naming():
                        # so does pyarrow tell it
                        raise OSError("Out of Memory Error: failed to pin block of size 256.0 KiB")
            yield from rows

    monkeypatch.setattr(estimation, "DuckDB", Short)
    config = NgramConfig(order=4)
    if enough_for == "nothing":
        with pytest.raises(DataError, match="DuckDB has too little memory: Out of") as error:
            assert_same(tmp_path, config, threads=2)
        assert error.value.hint == "raise --memory, or lower --threads"
        return
    assert_same(tmp_path, config, threads=2)
    told = [("joined_" in sql, threads) for sql, threads in sorts]
    if enough_for == "the sort":  # order 3 at once; then it and order 4 apart
        assert told == [(False, 2), (True, 2), (True, 2)]
    else:
        assert told == [(False, 2), (True, 2), (True, 1), (True, 1)]
