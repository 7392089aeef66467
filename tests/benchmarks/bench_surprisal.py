"""Surprisal of words: `seqtool surprisal` beside `seqtool eval-ppl`, with n-gram models.

    python tests/benchmarks/bench_surprisal.py [--text FILE] [--units bpe,char] [--repeats 5]

For each unit, a model of order 5 is trained on the first four fifths of a text; the last fifth is
then measured by both commands in turn, each a whole process on one thread: `eval-ppl` without a
table, and `surprisal` with a table of all words. Seconds are of the processor, user and system, as
other work on the machine disturbs them less. The ratio is the median over the turns: that of the
speeds, eval-ppl's seconds over surprisal's. Without a text, `ngram_text.py` draws one. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_prepare import cpu_name

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("word", "bpe", "unigram", "char", "byte")
AT_LEAST = 0.8
MEGABYTES = 10.0  # of a text that is drawn
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA")


class Cost(NamedTuple):
    """What a command took: processor seconds, seconds by the clock, bytes at its peak."""

    processor: float
    clock: float
    peak: int


def run(*arguments: object) -> Cost:
    """Run `seqtool` in a process of its own, on one thread."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **{f"{name}_NUM_THREADS": "1" for name in THREADS}},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    told = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"seqtool {arguments[0]} failed: {told}")
    unit = 1 if sys.platform == "darwin" else 1024
    seconds = used.ru_utime + used.ru_stime
    return Cost(seconds, time.perf_counter() - began, used.ru_maxrss * unit)


def split(text: Path, folder: Path) -> tuple[Path, Path]:
    """Write the first four fifths of a text, and the rest, each of whole lines."""
    content = text.read_bytes()
    cut = content.rfind(b"\n", 0, len(content) * 4 // 5) + 1
    train, test = folder / "train.txt", folder / "test.txt"
    train.write_bytes(content[:cut])
    test.write_bytes(content[cut:])
    return train, test


def race(unit: str, train: Path, test: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """Train a model of a unit, and let both commands take turns."""
    source = train
    if unit != "word":
        source = folder / f"corpus-{unit}"
        run("prepare", train, "--unit", unit, "-o", source)
    model, table = folder / unit, folder / "surprisal.tsv"
    run("ngram", "train", source, "--order", 5, "-o", model)
    commands = ("eval-ppl", test, "-m", model), ("surprisal", test, "-m", model, "-o", table)
    for command in commands:  # compiles, and brings the files into memory
        run(*command)
    turns = [(run(*commands[0]), run(*commands[1])) for _ in range(repeats)]
    figures: dict[str, Any] = {}
    for name, costs in zip(("eval_ppl", "surprisal"), zip(*turns, strict=True), strict=True):
        processor, clock, peak = map(statistics.median, zip(*costs, strict=True))
        figures[name] = {"seconds": round(processor, 3), "clock": round(clock, 3), "peak": peak}
    ratio = statistics.median(plain.processor / words.processor for plain, words in turns)
    figures["ratio"] = round(ratio, 3)
    plain, words = figures["eval_ppl"], figures["surprisal"]
    print(
        f"{unit:<10}{plain['seconds']:>10.2f}{words['seconds']:>11.2f}{ratio:>8.2f}"
        f"{AT_LEAST:>10.2f}{plain['peak'] / 1e6:>10.0f}{words['peak'] / 1e6:>8.0f}",
        flush=True,
    )
    return figures


def main(text: Path | None, units: Sequence[str], repeats: int, folder: Path) -> None:
    """Print a line for each unit, then JSON."""
    if text is None:
        text = folder / "text.txt"
        script = Path(__file__).parent / "ngram_text.py"
        subprocess.run([sys.executable, script, text, str(MEGABYTES), "0"], check=True)
    train, test = split(text, folder)
    print(f"{'processor seconds, medians':<31}{'':>8}{'':>10}{'peak, MB':>18}")
    print(
        f"{'unit':<10}{'eval-ppl':>10}{'surprisal':>11}{'ratio':>8}{'at least':>10}"
        f"{'eval-ppl':>10}{'surp.':>8}"
    )
    figures = {unit: race(unit, train, test, folder, repeats) for unit in units}
    report = {
        "benchmark": "surprisal",
        "megabytes": round(test.stat().st_size / 1e6, 2),
        "words": sum(len(line.split()) for line in test.read_text("utf-8").split("\n")),
        **figures,
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    print()
    print(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Speed of surprisal beside eval-ppl.")
    parser.add_argument("--text", type=Path, help="one sentence per line")
    parser.add_argument("--units", default=",".join(UNITS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        main(options.text, options.units.split(","), options.repeats, Path(name))
