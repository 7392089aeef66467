from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seqtool.core.errors import DataError
from seqtool.spark.session import WorkerError, user_error

# why a test of a fault may be left out
ALLOWED = ("asks Linux for the parent of a process",)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["on_spark", "cluster_on_spark"])
def test_on_a_real_spark(name: str) -> None:
    """In a process of its own: Spark leaves threads and connections behind as long as it lives."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: make install-scale")
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (str(WorkerError(DataError("bad", hint="mend it", path="a.txt", line=3))), "a.txt:3: bad"),
        ("\nModuleNotFoundError: No module named 'seqtool'\n", "No module named 'seqtool'"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03;", "exist: file:/x"),
        ("x\nCaused by: java.io.IOException: No space left on device\n\tat x", "No space left"),
    ],
)
def test_errors_of_spark_keep_its_own_message(text: str, words: str) -> None:
    error = user_error(f"An error occurred while calling o1.save.\n{text}")
    assert words in str(error)
    assert error.hint
