"""Too little memory, and temporary files of n-grams on a disk that is full."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults.jobs import lay_out
from faults.runs import ROOT, Commands, leftovers


@pytest.mark.parametrize(
    "words",
    [
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=hidden_size=20000"),
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=embedding_size=1000000"),
        ("train-tagger", "t.conllu", "--set=model.encoder_size=20000"),
    ],
    ids=lambda words: words[-1],
)
def test_a_model_that_is_too_large_is_told(
    words: tuple[str, ...], commands: Commands, tmp_path: Path
) -> None:
    lay_out(tmp_path / "work")
    stopped = commands(*words, "-o", "out", cwd=tmp_path / "work", memory=3 << 29)
    assert stopped.code == 1, stopped
    assert "error: out of memory\n" in stopped.stderr, stopped
    assert stopped.is_clean, stopped
    assert not leftovers(tmp_path / "work"), stopped


COUNTING = ("ngram", "counts", "-", "--order", "40", "--memory", "200M", "-o", "out/counts.tsv")


def counting(folder: Path, *more: str, file_size: int | None = None) -> subprocess.Popen[bytes]:
    """Start to count n-grams that are too many for the memory; the text is still to be given."""
    limits = (resource.RLIMIT_FSIZE, (file_size or 0, file_size or 0))
    (folder / "out").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "seqtool", *COUNTING, *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=None if file_size is None else lambda: resource.setrlimit(*limits),
    )


def many_n_grams() -> bytes:
    """A sentence whose n-grams of order 40, of 168 bytes each, are all different."""
    words = random.Random(0).choices([b"w%d" % i for i in range(90)], k=600_000)
    return b" ".join(words) + b"\n"


def open_files(process: int) -> str:
    """Return the names of the files that a process has open; nothing if one is being closed."""
    try:
        return " ".join(os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir())
    except FileNotFoundError:
        return ""


def test_n_grams_that_go_to_a_disk_that_is_full(tmp_path: Path) -> None:
    process = counting(tmp_path, file_size=30 << 20)
    told = process.communicate(many_n_grams(), timeout=100)[1].decode()
    assert process.returncode == 1, told
    assert told.splitlines()[0] == "error: out: a temporary file cannot be written: file too large"
    assert told.splitlines()[1].startswith("hint: ")
    assert len(told.splitlines()) == 2
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the files of a process")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_n_grams_on_disk_end_with_the_process(number: str, tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    process = counting(tmp_path, "--temp", "temp")
    assert process.stdin is not None
    process.stdin.write(many_n_grams() * 2)  # a block is read when it is full
    process.stdin.flush()
    until = time.monotonic() + 200
    while str(tmp_path / "temp") not in open_files(process.pid):
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(getattr(signal, number))
    process.communicate(timeout=100)
    assert process.returncode in (143, -signal.SIGKILL)
    assert [*(tmp_path / "temp").iterdir()] == [*(tmp_path / "out").iterdir()] == []
