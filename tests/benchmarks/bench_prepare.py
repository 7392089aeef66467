"""`prepare` on words: speed on one core, and peak memory for a text ten times as long.

    python tests/benchmarks/bench_prepare.py [--megabytes 100] [--text FILE]

The whole command is timed in a fresh process, start-up and imports included: reading, SHA-256, the
check of UTF-8, counting, writing ids, flushing to disk. Beside it runs plain Python (`split`, a
dictionary), and both must write the same ids. Seconds of processor time are given too, which other
work on the machine disturbs less. The text is WikiText-2 from ../shared/data where it is there,
otherwise drawn from a Zipf distribution; it is repeated, and in each copy one word in fifty gets a
number appended, so that the vocabulary keeps growing. The last line is JSON.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
WIKITEXT = ROOT.parent / "shared" / "data" / "wikitext-2" / "train.txt"
REPEATS = 3

SEQTOOL = """
import sys
from seqtool.cli.app import main
sys.exit(main(["prepare", sys.argv[1], "-o", sys.argv[2], "--split", "100", "--json"]))
"""


def plain_python(source: Path, output: Path) -> None:
    """The same work in plain Python, line by line: two passes, as its memory must not grow."""
    blanks = re.compile(r"[ \t\r\n]+")
    counts: Counter[str] = Counter()
    with source.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            counts.update(word for word in blanks.split(line) if word)
    ids = {"<unk>": 0, "</s>": 1}
    for word, _ in counts.most_common():
        ids.setdefault(word, len(ids))
    dtype = np.uint16 if len(ids) <= 1 << 16 else np.uint32
    with source.open(encoding="utf-8", newline="\n") as file, output.open("wb") as out:
        for line in file:
            row = [ids[word] for word in blanks.split(line) if word]
            out.write(np.array([*row, 1], dtype).tobytes())


class Run(NamedTuple):
    """What one process needed."""

    seconds: float
    processor_seconds: float
    peak_mb: float


def run(*command: str) -> Run:
    """Run Python with these arguments on one thread."""
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **one_thread},
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)


def base_text(path: Path | None) -> bytes:
    """Return about 10 MB of text."""
    if path is not None:
        return path.read_bytes()
    if WIKITEXT.is_file():
        return WIKITEXT.read_bytes()
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, 2_000_000), 60_000)
    letters = np.array([f"w{i:x}" for i in range(60_001)])
    lines = [" ".join(letters[words[i : i + 25]]) for i in range(0, len(words), 25)]
    return "\n".join([*lines, ""]).encode()


def write_text(path: Path, base: bytes, num_bytes: int) -> None:
    """Write perturbed copies of a text until there is enough of it."""
    words = re.split(rb"( )", base)
    written = 0
    with path.open("wb") as file:
        for copy in range(1 << 30):
            suffix = f"-{copy}".encode()
            part = list(words)
            for i in range(2 * (copy % 50), len(part), 100):
                if part[i] and not part[i].endswith(b"\n"):
                    part[i] += suffix
            data = b"".join(part)[: num_bytes - written]
            if b"\n" not in data:
                return
            written += file.write(data[: data.rfind(b"\n") + 1])


def main(megabytes: float, text: Path | None) -> None:
    """Time both sides and print a table, then JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, short = str(folder / "text"), str(folder / "short")
        # in a process of its own: a child's peak begins at what its parent holds
        for path, share in ((source, 1.0), (short, 0.1)):
            run(__file__, "--write", path, str(megabytes * share), str(text or ""))
        run("-c", SEQTOOL, short, str(folder / "warm"))  # compiles, and fills the page cache
        ours = [run("-c", SEQTOOL, source, str(folder / f"out{i}")) for i in range(REPEATS)]
        tenth = run("-c", SEQTOOL, short, str(folder / "short-out"))
        plain = run(__file__, "--plain", source, str(folder / "plain"))
        if not filecmp.cmp(folder / "out0" / "train.bin", folder / "plain", shallow=False):
            raise SystemExit("the two sides differ in their ids")
        info = json.loads((folder / "out0" / "corpus.json").read_text())
        size = Path(source).stat().st_size / 1e6
    best = Run(*(min(values) for values in zip(*ours, strict=True)))
    print(f"{size:.0f} MB, {info['vocabulary_size']:,} words, one core, whole command\n")
    print(f"{'':<22}{'MB/s':>8}{'MB per CPU s':>14}{'peak MB':>10}")
    for label, result in (("seqtool prepare", best), ("plain Python", plain)):
        speeds = size / result.seconds, size / result.processor_seconds
        print(f"{label:<22}{speeds[0]:>8.1f}{speeds[1]:>14.1f}{result.peak_mb:>10.0f}")
    print(f"{'seqtool, a tenth of it':<44}{tenth.peak_mb:>10.0f}\n")
    report = {
        "benchmark": "prepare",
        "megabytes": round(size, 1),
        "vocabulary_size": info["vocabulary_size"],
        "mb_per_second": round(size / best.seconds, 1),
        "mb_per_cpu_second": round(size / best.processor_seconds, 1),
        "plain_mb_per_second": round(size / plain.seconds, 1),
        "plain_mb_per_cpu_second": round(size / plain.processor_seconds, 1),
        "ratio": round(plain.processor_seconds / best.processor_seconds, 2),
        "peak_mb": round(best.peak_mb, 1),
        "peak_mb_a_tenth": round(tenth.peak_mb, 1),
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }
    print(json.dumps(report))


def cpu_name() -> str:
    """Return the processor's name."""
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain"]:
        plain_python(Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--write"]:
        base = base_text(Path(sys.argv[4]) if sys.argv[4] else None)
        write_text(Path(sys.argv[2]), base, int(float(sys.argv[3]) * 1e6))
    else:
        parser = argparse.ArgumentParser(description="Speed and memory of `seqtool prepare`.")
        parser.add_argument("--megabytes", type=float, default=100.0)
        parser.add_argument("--text", type=Path, help="the text to repeat")
        options = parser.parse_args()
        main(options.megabytes, options.text and options.text.resolve())
