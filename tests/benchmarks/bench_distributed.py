"""Training by one process and by two on the same machine, each on a thread of its own.

    python tests/benchmarks/bench_distributed.py [--steps 20]

An LSTM LM (2 x 200 units, 10,000 words, 20 streams, windows of 35 tokens, full softmax, float32).
One process makes its steps alone, then two share the streams of the same batches, and both once
more. Where the machine has fewer free cores than processes, two are no faster: processor
seconds per step, added over the processes, tell what sharing costs. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
from pathlib import Path
from typing import Any

import report

from seqtool.lm.neural.train import LanguageModelTask
from seqtool.text.prepared import PreparedCorpus
from seqtool.training import hardware
from seqtool.training.hardware import joined
from seqtool.training.loop import train

NUM_WORDS, BATCH, BPTT = 10_000, 20, 35
WARM_UP = 3


def train_steps(rank: int, size: int, port: int, folder: Path, num_steps: int, queue: Any) -> None:
    """Train as one of `size` processes; put its seconds by the clock and of the processor."""
    places = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()})
    hardware.set_threads(1)
    corpus = PreparedCorpus.open(folder / "corpus")
    config = report.settings(cell="lstm", hidden_size=200, layers=2, batch_size=BATCH, bptt=BPTT)
    started: list[report.Seconds] = []

    def stop(step: int) -> bool:
        if step == WARM_UP:
            started.append(report.now())
        return step == WARM_UP + num_steps

    with joined("cpu") as group:
        task = LanguageModelTask(corpus, config, device="cpu", group=group)
        run = folder / f"run-{port}"  # one for all processes of a run, another for each run
        run.mkdir(exist_ok=True)
        options: dict[str, Any] = {"fingerprint": {}, "should_stop": stop, "group": group}
        for _ in train(task, config.training, run, device="cpu", **options):
            pass
    queue.put(tuple(report.since(started[0])))


def measure(size: int, folder: Path, num_steps: int) -> tuple[float, float]:
    """Return milliseconds per step: by the clock, and of all processors together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=train_steps, args=(rank, size, port, folder, num_steps, queue))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    seconds = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    walls, used = zip(*seconds, strict=True)
    return 1e3 * max(walls) / num_steps, 1e3 * sum(used) / num_steps


def main(num_steps: int) -> None:
    """Print milliseconds and tokens per second of one and of two processes."""
    results: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report.make_corpus(folder, NUM_WORDS, BATCH * BPTT * (num_steps + WARM_UP + 2))
        for size in (1, 2, 1, 2):
            results[size].append(measure(size, folder, num_steps))
    print(f"{'processes':<12}{'ms per step':>14}{'processor ms':>14}{'tokens/s':>12}")
    summary: dict[str, Any] = {"benchmark": "distributed"}
    for size, turns in results.items():
        wall, used = (statistics.median(values) for values in zip(*turns, strict=True))
        speed = 1e3 * BATCH * BPTT / wall
        print(f"{size:<12}{wall:>14.1f}{used:>14.1f}{speed:>12,.0f}")
        summary[f"{size} processes"] = {
            "step_ms": round(wall, 1),
            "processor_ms": round(used, 1),
            "tokens_per_second": round(speed),
        }
    one, two = (summary[f"{size} processes"] for size in (1, 2))
    summary["speed_ratio"] = round(two["tokens_per_second"] / one["tokens_per_second"], 3)
    summary["processor_ratio"] = round(two["processor_ms"] / one["processor_ms"], 3)
    print(
        f"two against one: {summary['speed_ratio']} times as fast by the clock, "
        f"{summary['processor_ratio']} times the processor time"
    )
    print()
    print(json.dumps({**summary, "machine": hardware.describe_machine("cpu")}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    main(parser.parse_args().steps)
