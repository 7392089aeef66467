"""Output layers on one vocabulary: what a step of each costs, and its perplexity after some steps.

    python tests/benchmarks/output_table.py DATA [--steps 150] [--rows full,class] [--out FILE]

DATA is a folder with train.txt and valid.txt. An LSTM of 200 units is trained with each layer for
as many steps (20 streams, windows of 35 tokens, Adam, clipping), each in a process of its own on
one thread. The milliseconds of a step, forward, backward and update, are of the processor, medians;
the memory is the peak of the process; the perplexity is of the first lines of valid.txt. The table
is in Markdown; the last line is JSON. With --out, rows that the file has are not made again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import report
from tables import kept_figures

from seqtool.core import checkpoint, storage
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare
from seqtool.training import hardware
from seqtool.training.loop import count_parameters

HIDDEN, BATCH, BPTT, RATE = 200, 20, 35, 0.003
TIED = {"tied": True}


def layer(name: str, **settings: Any) -> dict[str, Any]:
    """Return the settings of a tied model with an output layer."""
    return {**TIED, "output": {"layer": name, **settings}}


ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "untied": ("full, not tied", {}),
    "full": ("full", TIED),
    "adaptive": ("adaptive", layer("adaptive")),
    "nce": ("NCE, 500 samples", layer("nce")),
    "blackout": ("BlackOut, 500 samples", layer("blackout")),
    "maxent": ("maxent, order 3", layer("maxent")),
}
COLUMNS = ("output layer", "parameters", "ms a step", "peak MB", "valid perplexity")


def measured(name: str, corpus: Path, num_steps: int) -> dict[str, float]:
    """Train with a layer; return its figures."""
    network = {"cell": "lstm", "hidden_size": HIDDEN, **ROWS[name][1]}
    loop = {"batch_size": BATCH, "bptt": BPTT, "learning_rate": RATE, "clip_norm": 1.0}
    training = report.Training(PreparedCorpus.open(corpus), report.settings(**network, **loop))
    times = [report.timed(training.step).processor for _ in range(num_steps)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes; bytes on macOS
    training.task.module.eval()
    with report.torch.inference_mode():
        (perplexity,) = training.task.validate().values()
    return {
        "parameters": count_parameters(training.task.module),
        "ms": 1000 * statistics.median(times[min(report.WARM_UP, num_steps - 1) :]),
        "megabytes": peak * (1 if sys.platform == "darwin" else 1024) / 1e6,
        "perplexity": perplexity,
    }


def main(data: Path, num_steps: int, rows: list[str], valid_lines: int, out: Path | None) -> None:
    """Measure the rows in turn; print the table and a line of JSON."""
    about = {"steps": num_steps, "valid_lines": valid_lines}
    found = {} if out is None else kept_figures(out, about, "rows of another training")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (data / "valid.txt").open(encoding="utf-8") as file:
            (folder / "valid.txt").write_text("".join(islice(file, valid_lines)), encoding="utf-8")
        prepare(
            [data / "train.txt"],
            folder / "corpus",
            PrepareConfig(),
            valid=folder / "valid.txt",
        )
        spawn = multiprocessing.get_context("spawn")  # a fresh process, whose peak is its own
        for row in rows:
            if row in found:
                continue
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                found[row] = pool.submit(measured, row, folder / "corpus", num_steps).result()
            print(f"{row}: {found[row]}", file=sys.stderr, flush=True)
            if out is not None:
                storage.write_json(out, {"about": about, "figures": found})
    lines = [
        (
            ROWS[row][0],
            f"{found[row]['parameters']:,.0f}",
            f"{found[row]['ms']:.1f}",
            f"{found[row]['megabytes']:.0f}",
            f"{found[row]['perplexity']:.1f}",
        )
        for row in ROWS
        if row in found
    ]
    print(checkpoint.table(COLUMNS, lines))
    machine = hardware.describe_machine("cpu")
    print(json.dumps({"steps": num_steps, "rows": found, "machine": machine}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with train.txt and valid.txt")
    parser.add_argument("--steps", type=int, default=150, help="of each training")
    parser.add_argument("--rows", default=",".join(ROWS), help="some of %(default)s")
    parser.add_argument("--valid-lines", type=int, default=1000, help="that are measured")
    parser.add_argument("--out", type=Path, help="a file of figures, to go on with")
    given = parser.parse_args()
    main(given.data, given.steps, given.rows.split(","), given.valid_lines, given.out)
