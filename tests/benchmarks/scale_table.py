"""Engines of `ngram train` in one table: time, memory and temporary disk, and growing texts.

    python tests/benchmarks/scale_table.py [--text FILE] [--parts 1 2 4 8] [--out DIR]

Each row is one run of the command in a process of its own, on all cores it may use: the shipped
sample or another text, and texts of several parts, each of which `ngram_text.py` draws. The peak of
memory is that of the whole process, pages of mapped files counted in. The temporary disk is looked
at while it runs. All models of one text have to be the same to the byte. The last line is JSON,
which is written to DIR/scale.json too, after each row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench_prepare import cpu_name
from ngram_text import SAMPLE, write_text

ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.5  # between two looks at the disk
QUARTERED = 4  # parts of the text that is counted in memory, and by DuckDB in a quarter of that
LEAST_BYTES = 700_000_000  # Python, DuckDB and pyarrow take most of that


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        text: its name.
        engine: and the memory that it was told.
        tokens: of the text, `</s>` counted.
        ngrams: of the model.
        seconds: by the clock.
        processor_seconds: of all threads.
        peak_bytes: the most memory that the process had.
        disk_bytes: the most that lay in the temporary folder.
        stages: seconds of each stage.
        model: the sum of the model's table.
    """

    text: str
    engine: str
    tokens: int
    ngrams: int
    seconds: float
    processor_seconds: float
    peak_bytes: int
    disk_bytes: int
    stages: dict[str, float]
    model: str


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder, some of which may go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def run(name: str, files: Sequence[Path], engine: str, out: Path, order: int, threads: int) -> Row:
    """Train a model, and drop it; `engine` may have a memory: `duckdb 1G`."""
    kind, _, memory = engine.partition(" ")
    model, temporary = out / "model", out / "temporary"
    shutil.rmtree(model, ignore_errors=True)
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seqtool", "ngram", "train", *map(str, files), "--json"]
    command += ["--order", str(order), "-o", str(model), "--engine", kind]
    command += ["--temp", str(temporary), "--threads", str(threads)]
    command += ["--memory", memory] if memory else []
    most, is_done = [0], threading.Event()

    def look() -> None:
        while not is_done.wait(LOOK_SECONDS):
            most[0] = max(most[0], _size(temporary))

    looking = threading.Thread(target=look)
    looking.start()
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    is_done.set()
    looking.join()
    if process.returncode:
        raise SystemExit(f"{engine} failed on {name} with code {process.returncode}")
    told: dict[str, Any] = json.loads(text)
    unit = 1 if sys.platform == "darwin" else 1024
    digest = sha256()
    with (model / "weights.safetensors").open("rb") as stream:
        while piece := stream.read(1 << 22):
            digest.update(piece)
    shutil.rmtree(model)
    return Row(
        text=name,
        engine=engine,
        tokens=told["tokens"],
        ngrams=told["ngrams"],
        seconds=round(seconds, 1),
        processor_seconds=round(usage.ru_utime + usage.ru_stime, 1),
        peak_bytes=usage.ru_maxrss * unit,
        disk_bytes=most[0],
        stages={stage: round(value, 1) for stage, value in told["stages"].items()},
        model=digest.hexdigest()[:16],
    )


def show(row: Row) -> None:
    """Print a line of the table."""
    print(
        f"{row.text:<12}{row.engine:<14}{row.tokens / 1e6:>9.1f}{row.ngrams / 1e6:>10.1f}"
        f"{row.seconds:>9.1f}{row.processor_seconds:>11.1f}"
        f"{row.peak_bytes / 1e9:>10.2f}{row.disk_bytes / 1e9:>10.2f}",
        flush=True,
    )


def main(options: argparse.Namespace) -> None:
    """Run all rows, print them, and write them as JSON."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    parts = []
    for number in range(max(options.parts, default=0)):
        parts.append(out / f"part-{number}-of-{options.megabytes:g}.txt")
        if not parts[-1].exists():
            write_text(parts[-1], int(options.megabytes * 1e6), number)
    texts = {options.text.stem: ([options.text], options.engines)}
    for num in options.parts:
        engines = list(options.engines) if num == min(options.parts) else []
        if num == QUARTERED:
            engines = ["memory", "quarter"]
        texts[f"{num * options.megabytes:g} MB"] = parts[:num], [*engines, options.growing]
    # what is compiled first is kept
    run("warm", [SAMPLE], "duckdb", out, options.order, 1)
    print(f"{'text':<12}{'engine':<14}{'M tokens':>9}{'M n-grams':>10}", end="")
    print(f"{'seconds':>9}{'processor':>11}{'peak GB':>10}{'disk GB':>10}")
    rows: list[Row] = []
    for name, (files, engines) in texts.items():
        for engine in dict.fromkeys(engines):
            if engine == "quarter":  # of what the row before took
                engine = f"duckdb {max(rows[-1].peak_bytes // 4, LEAST_BYTES) // 10**6}M"
            row = run(name, files, engine, out, options.order, options.threads)
            show(row)
            if any(row.text == other.text and row.model != other.model for other in rows):
                raise SystemExit(f"{engine} gives another model of {name}")
            rows.append(row)
            report = {
                "benchmark": "scale",
                "order": options.order,
                "threads": options.threads,
                "rows": [asdict(row) for row in rows],
                "cpu": cpu_name(),
                "python": platform.python_version(),
            }
            (out / "scale.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Engines of ngram train in one table.")
    parser.add_argument("--text", type=Path, default=SAMPLE)
    parser.add_argument("--megabytes", type=float, default=125.0, help="of a part")
    parser.add_argument("--parts", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--engines", nargs="*", default=["memory", "duckdb 1G", "duckdb 4G"])
    parser.add_argument("--growing", default="duckdb 2G", help="the engine of growing texts")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/scale"))
    main(parser.parse_args())
