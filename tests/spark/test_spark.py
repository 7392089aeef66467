from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seqtool as package
from seqtool.core.errors import DataError
from seqtool.spark.files import LINES, PARAGRAPHS, Parts
from seqtool.spark.session import WorkerError, user_error
from seqtool.text.prepared import PrepareConfig

# why a test of a fault may be left out
ALLOWED = ("asks Linux for the parent of a process",)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["on_spark", "cluster_on_spark"])
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


def test_an_empty_line_that_ends_a_text_of_a_table_is_kept(tmp_path: Path) -> None:
    """As of one process, of which the text "a\\n\\n" is two lines wherever it stands."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = ["a b\n\n", "c", "\n", "a\n\n"]

    def joined(values: list[str], separator: str) -> bytes:
        places = {"file": ["file:/texts"] * len(values), "block": [0] * len(values)}
        # Spark has taken the last line end of each text
        values = [value.removesuffix("\n") for value in values]
        batch = arrow.record_batch({**places, "value": [value.encode() for value in values]})
        parts = Parts(separator.encode(), {"/texts": 0}, {})
        return b"".join(part.text for part in parts([batch]))

    parquet.write_table(arrow.table({"text": texts}), tmp_path / "texts.parquet")
    config = PrepareConfig(unit="char", split=(100.0,))
    package.prepare(tmp_path / "texts.parquet", tmp_path / "table", config)
    assert joined(texts, LINES) == b"a b\n\nc\n\na\n\n"
    (tmp_path / "texts.txt").write_bytes(joined(texts, LINES))
    package.prepare(tmp_path / "texts.txt", tmp_path / "text", config)
    ids = [(tmp_path / name / "train.bin").read_bytes() for name in ("table", "text")]
    assert ids[0] == ids[1]
    # of records between empty lines, the end of the last one is that of the file
    assert joined(["a\n", "b\n\n"], PARAGRAPHS) == b"a\n\nb\n"
