from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seqtool.spark import ngrams

# why a test of a fault may be left out
ALLOWED = ("no disk can be mounted here", "asks Linux for the parent of a process")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["on_spark", "corpora_on_spark", "cluster_on_spark"])
def test_on_a_real_spark(name: str) -> None:
    """In a process of its own: Spark leaves threads and connections behind as long as it lives."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seqtool[scale]'")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        pytest.skip("Java is not installed, which Spark needs")
    tests = Path(__file__).with_name(f"{name}.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", str(tests)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all(any(reason in line for reason in ALLOWED) for line in skipped), done.stdout


def test_texts_that_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "_SHORT_BYTES", 10)
    small, other = tmp_path / "small.txt", tmp_path / "other.txt"
    small.write_text("a b c\n")
    other.write_text("d\n\n\n")
    assert ngrams.is_short([str(small)])
    assert ngrams.is_short([str(tmp_path)])
    other.write_text("d e\n\n")
    assert not ngrams.is_short([str(small), str(other)])
    for name in ("small.gz", "small.txt.ZST", "small.parquet"):
        small = small.rename(tmp_path / name)
        assert not ngrams.is_short([str(small)])
    for name in (f"{tmp_path}/*.txt", "hdfs://host/small.txt", "-"):
        assert not ngrams.is_short([name])
