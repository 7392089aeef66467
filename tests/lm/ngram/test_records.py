"""Sorting records in memory and on disk, against Python's own sort."""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import OutputError
from seqtool.lm.ngram import records as module
from seqtool.lm.ngram.records import Packing, Records, Runs, Sorter, Workspace, sort_records

# numbers that differ in high bits, in low ones, or in many
numbers = st.one_of(
    st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(0, 1).map(lambda bit: bit << 63)
)
rows_of_three = st.lists(st.tuples(numbers, numbers, numbers), max_size=40)


def workspace(least: int, room: int = 0) -> Workspace:
    return Workspace(Path(module.tempfile.gettempdir()), lambda: room, least)


def array(rows: list[tuple[int, ...]], width: int = 3) -> Records:
    return np.array(rows, np.uint64).reshape(len(rows), width)


def tuples(pieces: list[Records]) -> list[tuple[int, ...]]:
    return [tuple(row) for piece in pieces for row in piece.tolist()]


@given(rows_of_three, st.integers(1, 3))
def test_sorted_in_memory(rows: list[tuple[int, ...]], num_keys: int) -> None:
    given_records = array(rows)
    found = sort_records(given_records, np.empty_like(given_records), num_keys)
    assert tuples([found]) == sorted(rows, key=lambda row: row[:num_keys])  # stable, as Python's


@given(rows_of_three, st.integers(1, 400), st.none() | st.integers(1, 50), st.integers(1, 7))
def test_sorted_with_little_memory(
    rows: list[tuple[int, ...]], least: int, limit: int | None, size: int
) -> None:
    with closing(Sorter(3, 3, workspace(least), limit)) as sorter:
        for begin in range(0, len(rows), size):
            sorter.add(array(rows[begin : begin + size]))
        for _ in range(2):  # as often as it is asked for
            assert tuples([*sorter.sorted()]) == sorted(rows)[:limit]


@given(
    st.lists(st.dictionaries(numbers, st.integers(1, 9), min_size=1), min_size=1, max_size=9),
    st.integers(1, 400),
    st.sampled_from([16, 64, 1 << 16]),
)
def test_runs_are_merged_and_added_up(runs: list[dict[int, int]], least: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch, closing(Runs(2, 1, workspace(least))) as merged:
        patch.setattr(module, "_PIECE", piece)  # so that more runs than can be read at once occur
        total: Counter[int] = Counter()
        for run in runs:
            merged.add([array(sorted(run.items()), 2)])
            total.update(run)
        for _ in range(2):
            assert tuples([*merged.merged()]) == sorted(total.items())


def test_many_records_by_the_thousand() -> None:
    rng = np.random.default_rng(0)
    given_records = rng.integers(0, 50, (5_000, 3)).astype(np.uint64)
    with closing(Sorter(3, 3, workspace(1 << 14))) as sorter:
        sorter.add(given_records)
        found = np.concatenate([*sorter.sorted()])
    assert np.array_equal(found, given_records[np.lexsort(given_records.T[::-1])])


@given(st.data(), st.integers(1, 9), st.integers(1, 32))
def test_keys_sort_as_n_grams_do(data: st.DataObject, order: int, bits: int) -> None:
    ids = st.integers(0, min(2**bits, 2**31) - 1)
    ngrams = data.draw(st.lists(st.tuples(*[ids] * order), min_size=1, max_size=9))
    packing = Packing(order, bits)
    keys = packing.pack(np.array(ngrams, np.int32).reshape(-1, order))
    assert keys.shape == (len(ngrams), packing.num_words)
    assert packing.num_words * (64 // bits) >= order > (packing.num_words - 1) * (64 // bits)
    assert [tuple(ngram) for ngram in packing.unpack(keys).tolist()] == ngrams
    by_key = sorted(range(len(ngrams)), key=lambda i: keys[i].tolist())
    assert [ngrams[i] for i in by_key] == sorted(ngrams)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def seek(self, place: int) -> None: ...

        def write(self, data: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:  # what is held back cannot be written either
            raise OSError(errno.ENOSPC, "No space left on device")

    def make(dir: Path) -> Full:
        return Full()

    monkeypatch.setattr(module.tempfile, "TemporaryFile", make)
    with (
        pytest.raises(OutputError, match="cannot be written: no space left on device") as caught,
        closing(Runs(1, 1, Workspace(tmp_path, lambda: 0))) as runs,
    ):
        runs.add([np.zeros((1, 1), np.uint64)])
    assert caught.value.path == str(tmp_path)
    assert "--temp" in caught.value.hint


def test_a_file_that_was_cut_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[IO[bytes]] = []
    make = module.tempfile.TemporaryFile

    def noting(dir: Path) -> IO[bytes]:
        made.append(make(dir=dir))
        return made[0]

    monkeypatch.setattr(module.tempfile, "TemporaryFile", noting)
    with closing(Runs(1, 1, Workspace(tmp_path, lambda: 0))) as runs:
        runs.add([np.zeros((5, 1), np.uint64)])
        made[0].truncate(8)
        with pytest.raises(OutputError, match="has been cut"):
            [*runs.merged()]
