from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(900)
def test_on_a_real_spark() -> None:
    """In a process of its own: Spark leaves threads and connections behind as long as it lives."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seqtool[scale]'")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        pytest.skip("Java is not installed, which Spark needs")
    tests = Path(__file__).with_name("on_spark.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tests)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
