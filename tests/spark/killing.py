"""An engine of which one process is killed while it smooths n-grams."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from seqtool.lm.ngram.engine.contexts import ContextSmoother
from seqtool.spark.ngrams import SparkEngine


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
