from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from process_groups import together
from torch import nn

from seqtool.core import runtime
from seqtool.core.errors import ConfigError, DataError, SeqtoolError, TrainingError
from seqtool.training.hardware import Group, joined


@given(num=st.integers(0, 50), size=st.integers(1, 6))
def test_shares_are_all_there_is(num: int, size: int) -> None:
    shares = [Group(rank, size).share(num) for rank in range(size)]
    assert [item for share in shares for item in share] == list(range(num))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_what_processes_tell_each_other(tmp_path: Path) -> None:
    def action(rank: int) -> list[object]:
        with joined("cpu") as group:
            assert (group.rank, group.size, group.is_first) == (rank, 3, rank == 0)
            return [
                *(group.any(rank == 1), group.any(False)),
                group.totals([0.1 * rank, 1]),
                group.gathered("abc"[rank]),
                group.from_first(["first"] if rank == 0 else None),
            ]

    results = together(tmp_path, action, num=3)
    assert results[0] == str([True, False, [0.1 + 0.2, 3.0], ["a", "b", "c"], ["first"]])
    assert results == [results[0]] * 3


def test_an_error_of_one_is_raised_in_all_and_told_once(tmp_path: Path) -> None:
    def action(rank: int) -> tuple[str, str, bool]:
        try:
            with joined("cpu") as group:
                with group.agreed():
                    pass
                with group.agreed():
                    if rank == 1:
                        raise DataError("broken", hint="mend it", path="a.txt", line=rank)
        except SeqtoolError as error:
            return str(error), error.hint, runtime.reports_errors()
        raise AssertionError("nothing was raised")

    told = [f"('a.txt:1: broken', 'mend it', {speaks})" for speaks in (True, False)]
    assert together(tmp_path, action) == told


def test_a_process_that_is_lost(tmp_path: Path) -> None:
    def action(rank: int) -> str:
        group = None
        try:
            with joined("cpu") as group:
                if rank == 1:
                    return "left"
                while True:
                    group.any(False)
        except TrainingError as error:
            assert runtime.reports_errors()
            return error.message

    assert together(tmp_path, action) == ["another process of the run was lost", "left"]


def test_a_bug_stays_a_bug(tmp_path: Path) -> None:
    def action(rank: int) -> str:
        try:
            with joined("cpu") as group:
                group.any(False)  # they have met
                raise RuntimeError("shapes do not fit")
        except RuntimeError as error:
            return str(error)

    assert together(tmp_path, action) == ["shapes do not fit"] * 2


def test_what_several_processes_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2" if name == "WORLD_SIZE" else "0")
    with pytest.raises(ConfigError, match="cannot share mps"), joined("mps"):
        pass
    with pytest.raises(ConfigError, match="sparse-adam"):
        Group(0, 2).parallel(nn.Embedding(3, 2, sparse=True), lambda index: (torch.zeros(()), 1))
    with pytest.raises(ConfigError, match="batch_size is 7, which 2 processes cannot share"):
        Group(0, 2).even_share(7, "batch_size")
