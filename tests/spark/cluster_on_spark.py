"""On a real Spark of two executors, which are processes of their own: one that is killed.

`test_spark` runs this file.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import seqtool as package
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.spark.ngrams import SparkEngine

COMPILE_ONCE = "-XX:TieredStopAtLevel=1"  # JVMs that live for seconds begin sooner so


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import pyspark

    from seqtool.spark.session import spark_session

    # executors of such a cluster write into the folder of Spark: so it is one of links
    home = tmp_path_factory.mktemp("home")
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    conf = {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
        "spark.driver.extraJavaOptions": COMPILE_ONCE,
        "spark.executor.extraJavaOptions": COMPILE_ONCE,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        with spark_session("local-cluster[2,1,1024]", conf) as session:
            yield session


def killing(marker: Path, chosen: Callable[[], int]) -> type[SparkEngine]:
    """Return an engine whose first worker that has smoothed something kills a process.

    Args:
        marker: a file, made just before.
        chosen: gives the process id, in the worker.
    """
    kill, number = os.kill, signal.SIGKILL  # workers do not find this module

    class Killing(ContextSmoother):
        def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
            for batch in super().__call__(batches):
                if not marker.exists():
                    marker.touch()
                    kill(chosen(), number)
                yield batch

    class KillingEngine(SparkEngine):
        def smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
            own = Killing(*(getattr(smoother, field.name) for field in fields(smoother)))
            super().smooth(name, sql, own)

    return KillingEngine


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the parent of a process")
def test_an_executor_that_is_killed_in_mid_training_costs_nothing(
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker, text = tmp_path / "killed", tmp_path / "text.txt"
    rng = random.Random(0)
    words = [f"w{int(rng.paretovariate(0.7)) % 900}" for _ in range(32_000)]
    lines = (" ".join(words[place : place + 8]) for place in range(0, len(words), 8))
    text.write_text("\n".join(lines))

    def executor() -> int:
        """Return the process id of the JVM of a worker, which has started what starts workers."""
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        process = int(status.rpartition(")")[2].split()[1])
        assert Path(f"/proc/{process}/comm").read_text() == "java\n"
        marker.with_suffix(".pid").write_text(str(process))
        return process

    monkeypatch.setattr("seqtool.spark.ngrams.SparkEngine", killing(marker, executor))
    config = NgramConfig(order=3)
    temp = str(tmp_path / "temp")
    trained = package.spark.train_ngram(session, [str(text)], tmp_path / "spark", config, temp=temp)
    expected = package.train_ngram([text], tmp_path / "memory", config, engine="memory")
    assert not Path("/proc", marker.with_suffix(".pid").read_text()).exists()
    assert trained.statistics == expected.statistics
    weights = [path / "weights.safetensors" for path in (trained.path, expected.path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert [*(tmp_path / "temp").iterdir()] == []
