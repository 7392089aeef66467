"""The table of all figures: what is measured, kept, and left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def bench(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("bench.py")
    words = [sys.executable, str(script), "--data", str(folder), "--out", str(folder / "out")]
    return subprocess.run([*words, *options], capture_output=True, encoding="utf-8", check=False)


def test_a_row_is_measured_once(letters: Path, tmp_path: Path) -> None:
    pytest.importorskip("kenlm", reason="kenlm is not installed: make judges")
    (tmp_path / "ptb").symlink_to(letters)
    first, again = (bench(tmp_path, "--rows", "ngram,crf") for _ in range(2))
    assert first.returncode == 0, first.stderr
    _, ours, theirs, *_ = first.stdout.splitlines()[-1].split(" | ")[1:]
    assert theirs == f"KenLM reads our ARPA file: {ours}"
    assert "crf: left out: " in first.stderr
    assert "== seqtool ngram train" in first.stderr
    assert "== seqtool" not in again.stderr
    assert again.stdout == first.stdout


def test_without_data_there_is_no_table(tmp_path: Path) -> None:
    empty = bench(tmp_path, "--rows", "crf,rhn")
    assert (empty.returncode, empty.stdout) == (1, "")
    assert "error: " in empty.stderr
    assert bench(tmp_path, "--rows", "nothing").returncode == 2
