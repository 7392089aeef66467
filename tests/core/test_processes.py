"""Processes that work for this one: order, what is held, errors, and that none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import toy_work
from process_groups import is_running

from seqtool.core.errors import DataError, ProcessError
from seqtool.core.processes import WINDOW, Pool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="copies of processes")


@pytest.mark.parametrize("forks", [True, False], ids=["copies", "new"])
def test_things_come_in_their_order(forks: bool) -> None:
    make = partial(toy_work.make, 0.02)
    with Pool(make, 2, forks=forks) as pool:
        made = list(pool.map(range(12)))
    assert [square for square, _ in made] == [number * number for number in range(12)]
    pids = {pid for _, pid in made}
    assert len(pids) <= 2  # one may have done all before the other is there
    assert not any(is_running(pid) for pid in pids)


def test_few_things_are_held() -> None:
    num_read = 0

    def numbers() -> Iterator[int]:
        nonlocal num_read
        for number in range(100, 160):
            num_read += 1
            yield number

    with Pool(partial(toy_work.make, 0.01), 3, forks=True) as pool:
        for num_given, _ in enumerate(pool.map(numbers())):
            assert num_read - num_given <= 3 * WINDOW
    assert num_read == 60


def test_an_error_comes_after_all_before_it() -> None:
    found: list[int] = []
    with Pool(toy_work.make, 2, forks=True) as pool, pytest.raises(DataError) as caught:
        found.extend(square for square, _ in pool.map([1, 2, 13, 3]))
    assert found == [1, 4]
    assert str(caught.value) == "a:3: unlucky"
    assert caught.value.hint == "take another"


def test_what_cannot_be_read_is_told_last() -> None:
    def read() -> Iterator[int]:
        yield from (1, 2, 3)
        raise DataError("cannot be read")

    found: list[int] = []
    with Pool(toy_work.make, 2, forks=True) as pool, pytest.raises(DataError, match="cannot be"):
        found.extend(square for square, _ in pool.map(read()))
    assert found == [1, 4, 9]


def test_a_process_that_dies_ends_all() -> None:
    with Pool(toy_work.make, 2, forks=True) as pool, pytest.raises(ProcessError) as caught:
        list(pool.map([5, 66, 7, 8]))
    assert "fewer --jobs" in caught.value.hint


PROGRAM = """
import sys, time
import toy_work
from seqtool.core.processes import Pool

with Pool(toy_work.make, 2, forks=True) as pool:
    numbers = iter([1, 2])
    print(*(pid for _, pid in pool.map(numbers)), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_without_their_parent_none_is_left(number: int, root: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert pids
    assert all(is_running(pid) for pid in pids)
    parent.send_signal(number)
    parent.communicate()
    end = time.monotonic() + 30
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.01)
