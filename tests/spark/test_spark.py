from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seqtool as package
from seqtool.core.errors import DataError
from seqtool.spark import ngrams
from seqtool.spark.blocks import BLOCK, FILE, LINES, PARAGRAPHS, VALUE, parts_of
from seqtool.spark.session import raise_user_error
from seqtool.text.prepared import PrepareConfig

# why a test of a fault may be left out
ALLOWED = ("no disk can be mounted here", "asks Linux for the parent of a process")


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


def test_an_empty_line_that_ends_a_text_of_a_table_is_kept(tmp_path: Path) -> None:
    """As of one process, of which the text "a\\n\\n" is two lines wherever it stands."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = ["a b\n\n", "c", "\n", "a\n\n"]

    def joined(values: list[str], separator: str) -> bytes:
        places = {FILE: ["file:/texts"] * len(values), BLOCK: [0] * len(values)}
        # Spark has taken the last line end of each text
        values = [value.removesuffix("\n") for value in values]
        batch = arrow.record_batch({**places, VALUE: [value.encode() for value in values]})
        return b"".join(part.text for part in parts_of([batch], separator, None))

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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a.GZ", "fetch or pack it again, or leave such files out with --skip-invalid"),
        ("a.parquet", "fetch or write it again"),
    ],
)
def test_a_hint_names_an_option_where_it_helps(name: str, hint: str) -> None:
    text = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/{name}. x"
    with pytest.raises(DataError) as caught:
        raise_user_error(RuntimeError(text))
    assert (caught.value.path, caught.value.hint) == (f"/data/{name}", hint)
