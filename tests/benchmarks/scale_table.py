"""Engines of `ngram train` in one table: time, memory, disk and shuffle, and growing texts.

    python tests/benchmarks/scale_table.py [--text FILE] [--real FILE ...] [--out DIR]

Each row is one run of the command in processes of its own, on all cores it may use: a text at hand,
one that `ngram_text.py` draws, and mixed texts of several parts, which `mixed_text.py` draws from
the sample's grammar and the real texts. `spark 2G` is Spark on this machine, whose JVM has so much.

Seconds of the processor are those of all processes of a row; so is Spark's peak of memory, where
pages that several share are counted once (Linux; elsewhere both are of the first process alone). It
and the temporary disk are looked at while a row runs. The shuffle is what Spark's tasks wrote for
other tasks, as its own record of events tells. All models of one text have to be the same to the
byte. The last line is JSON, which is written to DIR/scale.json too, after each row; DIR/scale.svg
shows how the cost grows.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench_prepare import cpu_name
from ngram_text import ROOT, SAMPLE

from seqtool.analysis.drawing import save_charts
from seqtool.analysis.report import Chart, Series

PROCESSES = Path("/proc")
ADOPT = 36  # of prctl: processes whose parent has ended become this one's
LOOK_SECONDS = 0.5  # between two looks at the disk
QUARTERED = 4  # parts of the text that is counted in memory, and by DuckDB in a quarter of that
LEAST_BYTES = 500_000_000  # less than `LEAST_IN_ALL` of the engine is refused


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
        peak_bytes: the most memory that its processes had.
        disk_bytes: the most that lay in the temporary folder.
        shuffle_bytes: that Spark's tasks wrote for others.
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
    shuffle_bytes: int
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


def _descendants() -> Iterator[int]:
    """Give the processes that this one has started, and those that they have."""
    parents = {}
    for path in PROCESSES.glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    for process in parents:
        above = process
        while (above := parents.get(above, 0)) not in (0, os.getpid()):
            pass
        if above:
            yield process


def _memory() -> int:
    """Return the bytes that all of them have; of pages that several share, each has its part."""
    total = 0
    for process in _descendants():
        try:
            text = (PROCESSES / str(process) / "smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024


def _wait_for_all() -> None:
    """Wait for processes that outlive their parent, as Spark's JVM does for a moment."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def _shuffled(events: Path) -> int:
    """Return the bytes that tasks wrote for other tasks, by Spark's record of events."""
    total = 0
    for path in events.rglob("events_*"):
        with path.open() as lines:
            for line in lines:
                event = json.loads(line)
                if event["Event"] == "SparkListenerTaskEnd" and (
                    metrics := event.get("Task Metrics")
                ):
                    total += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return total


def _options(kind: str, memory: str, threads: int, temporary: Path, events: Path) -> list[str]:
    """Return what the command is told of an engine."""
    if kind != "spark":
        return ["--threads", str(threads), *(["--memory", memory] if memory else [])]
    settings = {
        "spark.local.dir": str(temporary),
        "spark.driver.memory": memory.lower() or "1g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.absolute().as_uri(),
    }
    pairs = [word for item in settings.items() for word in ("--spark-conf", "=".join(item))]
    return ["--master", f"local[{threads}]", *pairs]


def run(name: str, files: Sequence[Path], engine: str, out: Path, order: int, threads: int) -> Row:
    """Train a model, and drop it; `engine` may have a memory: `duckdb 1G`."""
    kind, _, memory = engine.partition(" ")
    model, temporary, events = out / "model", out / "temporary", out / "events"
    for folder in (model, temporary, events):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (temporary, events):
        folder.mkdir()
    command = [sys.executable, "-m", "seqtool", "ngram", "train", *map(str, files), "--json"]
    command += ["--order", str(order), "-o", str(model), "--engine", kind, "--temp", str(temporary)]
    command += _options(kind, memory, threads, temporary, events)
    is_linux = PROCESSES.is_dir()
    if is_linux:
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    most, largest, is_done = [0], [0], threading.Event()

    def look() -> None:
        while not is_done.wait(LOOK_SECONDS):
            most[0] = max(most[0], _size(temporary))
            if is_linux:
                largest[0] = max(largest[0], _memory())

    looking = threading.Thread(target=look)
    looking.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        told = errors.read()
    seconds = time.perf_counter() - began
    _wait_for_all()
    is_done.set()
    looking.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{engine} failed on {name} with code {process.returncode}:\n{told}")
    found: dict[str, Any] = json.loads(text)
    unit = 1 if sys.platform == "darwin" else 1024
    digest = sha256()
    with (model / "weights.safetensors").open("rb") as stream:
        while piece := stream.read(1 << 22):
            digest.update(piece)
    shuffled = _shuffled(events)
    for folder in (model, temporary, events):
        shutil.rmtree(folder)
    return Row(
        text=name,
        engine=engine,
        tokens=found["tokens"],
        ngrams=found["ngrams"],
        seconds=round(seconds, 1),
        processor_seconds=round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        # of one process, the system knows the peak between two looks, too
        peak_bytes=(kind == "spark" and largest[0]) or usage.ru_maxrss * unit,
        disk_bytes=most[0],
        shuffle_bytes=shuffled,
        stages={stage: round(value, 1) for stage, value in found["stages"].items()},
        model=digest.hexdigest()[:16],
    )


def show(row: Row) -> None:
    """Print a line of the table."""
    print(
        f"{row.text:<17}{row.engine:<14}{row.tokens / 1e6:>9.1f}{row.ngrams / 1e6:>10.1f}"
        f"{row.seconds:>9.1f}{row.processor_seconds:>11.1f}"
        f"{row.peak_bytes / 1e9:>10.2f}{row.disk_bytes / 1e9:>10.2f}"
        f"{row.shuffle_bytes / 1e9:>12.2f}",
        flush=True,
    )


def growth(rows: Sequence[Row]) -> list[Chart]:
    """Return charts of how time and disk grow with a text, for each engine that had it grow."""
    charts = []
    for title, label, figure in (
        ("Time of ngram train as a text grows", "processor (s)", "processor_seconds"),
        ("Temporary disk as a text grows", "disk (GB)", "disk_bytes"),
    ):
        unit = 1e9 if figure.endswith("bytes") else 1.0
        series = []
        for engine in dict.fromkeys(row.engine for row in rows):
            own = [row for row in rows if row.engine == engine and getattr(row, figure)]
            if len(own) < 2:
                continue
            tokens = [row.tokens / 1e6 for row in own]
            costs = [getattr(row, figure) / unit for row in own]
            series.append(Series(engine, tokens, costs))
            linear = [costs[0] * num / tokens[0] for num in tokens]
            series.append(Series(f"{engine}, if linear", tokens, linear, style="dashed"))
        if series:
            axes = ("tokens (millions)", label)
            charts.append(Chart(title, "lines", *axes, series, x_scale="log", y_scale="log"))
    return charts


def _write(script: str, path: Path, *more: object) -> None:
    """Write a text if it is not there, in a process of its own.

    What this one holds would be the least that the system tells of the memory of those it starts.
    """
    if not path.exists():
        file = Path(__file__).with_name(f"{script}.py")
        written = path.with_suffix(".part")
        subprocess.run([sys.executable, str(file), *map(str, (written, *more))], check=True)
        written.rename(path)


def texts_of(options: argparse.Namespace) -> dict[str, tuple[list[Path], list[str]]]:
    """Return the texts by name: their files, which are written if they are not there, and engines.

    Files are named after what they are drawn from, so a run that was stopped finds its own again.
    """
    out: Path = options.out
    texts = {options.text.stem: ([options.text], list(options.engines))}
    size = f"{options.megabytes:g}"
    if options.drawn:
        path = out / f"drawn-{size}.txt"
        _write("ngram_text", path, size, 0)
        texts[f"drawn, {size} MB"] = [path], list(options.engines)
    real = "-".join(path.parent.name for path in options.real) or "at-hand"
    parts = [
        out / f"mixed-{real}-{size}-{number}.txt" for number in range(max(options.parts, default=0))
    ]
    for number, path in enumerate(parts):
        _write("mixed_text", path, size, number, *options.real)
    for num in options.parts:
        engines = list(options.engines) if num == min(options.parts) else []
        if num == QUARTERED:
            engines = ["memory", "quarter"]
        name = f"mixed, {num * options.megabytes:g} MB"
        texts[name] = parts[:num], [*engines, *options.growing]
    return texts


def main(options: argparse.Namespace) -> None:
    """Run all rows, print them, and write them as JSON."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    texts = texts_of(options)
    # what is compiled first is kept
    run("warm", [SAMPLE], "duckdb", out, options.order, 1)
    heads = f"{'text':<17}{'engine':<14}{'M tokens':>9}{'M n-grams':>10}{'seconds':>9}"
    print(f"{heads}{'processor':>11}{'peak GB':>10}{'disk GB':>10}{'shuffle GB':>12}", flush=True)
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
    if charts := growth([row for row in rows if row.text.startswith("mixed")]):
        save_charts(charts, out / "scale.svg")
    print(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Engines of ngram train in one table.")
    engines = ["memory", "duckdb 1G", "duckdb 4G", "spark 2G"]
    parser.add_argument("--text", type=Path, default=SAMPLE)
    parser.add_argument("--real", type=Path, nargs="*", default=[], help="what is mixed in")
    parser.add_argument("--megabytes", type=float, default=125.0, help="of a part")
    parser.add_argument("--parts", type=int, nargs="*", default=[1, 2, 4, 8], help="mixed")
    parser.add_argument("--no-drawn", dest="drawn", action="store_false")
    parser.add_argument("--engines", nargs="*", default=engines)
    parser.add_argument("--growing", nargs="*", default=["duckdb 2G"], help="of growing texts")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/scale"))
    main(parser.parse_args())
