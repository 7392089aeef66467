from __future__ import annotations

import sys

import pytest

from seqtool.core import runtime
from seqtool.core.errors import ConfigError
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
    assert runtime.speaks()
    runtime.refuse_several("parse")
    # a variable of some other program
    monkeypatch.setenv("RANK", "7")
    assert runtime.place() == Place()


def test_the_place_that_torchrun_gives(launched: pytest.MonkeyPatch) -> None:
    assert runtime.place() == Place(rank=3, size=4, local_rank=1, local_size=2)
    assert runtime.program() == "torchrun --nnodes 2 --nproc-per-node 2 -m seqtool"
    assert not runtime.speaks()
    with pytest.raises(ConfigError, match="parse runs in one process, but torchrun started 4"):
        runtime.refuse_several("parse")
    launched.delenv("LOCAL_RANK")
    launched.delenv("LOCAL_WORLD_SIZE")
    assert runtime.place() == Place(rank=3, size=4, local_rank=3, local_size=4)
    assert runtime.program() == "torchrun --nproc-per-node 4 -m seqtool"


@pytest.mark.parametrize(
    ("name", "value"),
    [("RANK", "4"), ("RANK", "-1"), ("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "5"), ("RANK", "x")],
)
def test_a_place_that_cannot_be(launched: pytest.MonkeyPatch, name: str, value: str) -> None:
    launched.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        runtime.place()
    assert caught.value.hint.startswith("start it with torchrun")


def test_only_the_first_process_prints(
    launched: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in ("3", "0"):
        launched.setenv("RANK", rank)
        launched.setenv("LOCAL_RANK", "0")
        with runtime.quiet_unless_first():
            print("out", rank)
            print("err", rank, file=sys.stderr)
    assert capsys.readouterr() == ("out 0\n", "err 0\n")
