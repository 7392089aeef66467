from __future__ import annotations

import mmap
import platform
import subprocess
import sys

import pytest

from seqtool.core import runtime
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.runtime import Place


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As torchrun starts process 3 of 4, the second of the second machine."""
    values = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (values | {"MASTER_ADDR": "host", "MASTER_PORT": "29500"}).items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.place() == Place(0, 1, 0, 1)
    assert runtime.program() == "seqtool"
    assert runtime.reports_errors()
    runtime.refuse_several("parse")
    # a variable of some other program
    monkeypatch.setenv("RANK", "7")
    assert runtime.place() == Place()


def test_the_place_that_torchrun_gives(launched: pytest.MonkeyPatch) -> None:
    assert runtime.place() == Place(rank=3, size=4, local_rank=1, local_size=2)
    assert runtime.program() == "torchrun --nnodes 2 --nproc-per-node 2 -m seqtool"
    assert not runtime.reports_errors()
    with pytest.raises(ConfigError, match="parse runs in one process, but torchrun started 4"):
        runtime.refuse_several("parse")
    launched.setenv("RANK", "x")
    with pytest.raises(ConfigError, match="is no number"):
        runtime.place()
    launched.setenv("RANK", "3")
    launched.delenv("LOCAL_RANK")
    launched.delenv("LOCAL_WORLD_SIZE")
    assert runtime.place() == Place(rank=3, size=4, local_rank=3, local_size=4)
    assert runtime.program() == "torchrun --nproc-per-node 4 -m seqtool"


def test_too_little_memory_is_refused() -> None:
    runtime.check_memory(1, "some numbers", "give less")
    for num_bytes, limit, word in ((1 << 60, None, "say how much"), (2, 1, "raise")):
        with pytest.raises(DataError, match="some numbers need about") as caught:
            runtime.check_memory(num_bytes, "some numbers", "give less", limit=limit)
        assert caught.value.hint.startswith("give less; ")
        assert word in caught.value.hint


def test_sizes_of_memory() -> None:
    sizes = {"8G": 8 * 10**9, "500m": 5 * 10**8, "1.5 GB": 15 * 10**8, "64kb": 64_000, "7": 7}
    assert {text: runtime.parse_size(text) for text in sizes} == sizes
    for text in ("", "G", "0", "-1G", "8 apples", "8GiB"):
        with pytest.raises(ConfigError, match="no size of memory"):
            runtime.parse_size(text)


KEPT = """
import mmap, resource
from seqtool.core.runtime import give_back_memory, keeping_freed_memory

def faults(num):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(num):
        bytes(SIZE)
        bytearray(SIZE)[:: mmap.PAGESIZE] = bytes([1]) * (SIZE // mmap.PAGESIZE)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE

SIZE = 80 * 1024 * 1024
faults(2)
before = resident()
without = faults(5)
with keeping_freed_memory():
    faults(2)
    within = faults(5)
print(without, within, faults(5), resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc gives such memory back")
def test_memory_of_large_blocks_is_kept_within_the_block() -> None:
    code = [sys.executable, "-c", KEPT]
    given = subprocess.run(code, capture_output=True, text=True, check=True).stdout
    without, within, after, kept = map(int, given.split())
    pages = 5 * 80 * 1024 * 1024 // mmap.PAGESIZE
    assert min(without, after) > 0.5 * pages
    assert within < 0.01 * pages
    assert kept < 10_000_000
