"""The long suite, `make soak`: ends with a table of what was tried, how often, and what was found.

python -m faults.soak [--minutes N] [--inputs N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

from faults.runs import ROOT
from faults.targets import TARGETS

FILES = {
    "test_kills.py": "killed at a change of a file",
    "test_disks.py": "full disk, error of the disk, limits, too little memory",
    "test_signals.py": "SIGINT, SIGTERM, SIGHUP",
    "test_writers.py": "two writers of one output",
    "test_hostile.py": "hostile models, corpora, settings, treebanks",
    "test_fuzzing.py": "mutated files",
    "test_outputs.py": "terminals, full and closed outputs",
    "test_limits.py": "long, large and many",
    "test_machines.py": "training over two machines, of which one is lost",
}
FUZZING = "fuzzed by coverage"


def main() -> int:
    """Run all parts, and print the table; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=90, help="the tests are stopped after it")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for the fuzzer, in all")
    chosen = parser.parse_args()
    # nohup and the & of a shell have signals ignored, which programs that are started inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.environ.setdefault("SEQTOOL_SOAK_SEED", str(date.today()))  # samples differ by the day
    end = time.monotonic() + 60 * chosen.minutes
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for done, (name, words) in enumerate(FILES.items()):
            # the kills take most: they may have as much as all other parts
            parts = len(FILES) - done
            left = (end - time.monotonic()) / (2 if done == 0 else parts)
            if left <= 0:
                rows.append((words, "-", "not run: no time was left", "-"))
            else:
                rows.append((words, *_tests(name, Path(folder) / "tried", left)))
        rows.append((FUZZING, *_fuzz(chosen.inputs, Path(folder))))
    print(f"\n{date.today()}, {os.cpu_count()} processors, Python {platform.python_version()}\n")
    print("| what | tries | found | minutes |\n| --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return int(any(row[2] not in ("0", "-") for row in rows))


def _tests(name: str, record: Path, seconds: float) -> tuple[str, str, str]:
    """Run the tests of a file; return tries, failures and minutes.

    A test that samples does so for its share of the time; some need longer for their fewest tries,
    so all of them are given a little more before they are stopped.
    """
    start = time.monotonic()
    record.write_text("")
    environment = {
        **os.environ,
        "SEQTOOL_SOAK": "1",
        "SEQTOOL_SOAK_RECORD": str(record),
        "SEQTOOL_SOAK_SECONDS": str(0.8 * seconds),
    }
    command = ["-m", "pytest", "-q", "-n", "2", "--timeout", "3600", f"tests/faults/{name}"]
    running = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment)
    try:
        code = running.wait(seconds)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)  # the tests that have run are counted
        running.wait()
        code = None
    tried: Counter[str] = Counter()
    for line in record.read_text().splitlines():
        tried.update(json.loads(line))
    found = "stopped: no time was left" if code is None else str(tried["failed"])
    if code not in (0, 1, None):
        found = f"the tests ended with exit code {code}"
    return f"{tried['tries']:,}", found, f"{(time.monotonic() - start) / 60:.0f}"


def _fuzz(inputs: int, folder: Path) -> tuple[str, str, str]:
    """Fuzz every reader, two at a time; return inputs, readers with a fault, and minutes."""
    try:
        import atheris  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return "-", "not run: atheris is not installed (pip install 'seqtool[soak]')", "-"
    start = time.monotonic()
    each, found, waiting = inputs // len(TARGETS), [], list(TARGETS)
    running: dict[str, subprocess.Popen[bytes]] = {}
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            name = waiting.pop()
            running[name] = subprocess.Popen(
                [sys.executable, "-m", "faults.fuzz", name, str(each), str(int(time.time()))],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                stderr=(folder / f"{name}.log").open("wb"),
            )
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                if process.returncode:
                    found.append(name)
                    sys.stderr.write((folder / f"{name}.log").read_text("utf-8", "replace")[-3000:])
        time.sleep(0.5)
    told = f"{len(found)}: {', '.join(sorted(found))}" if found else "0"
    return f"{each * len(TARGETS):,}", told, f"{(time.monotonic() - start) / 60:.0f}"


if __name__ == "__main__":
    sys.exit(main())
