"""n-gram models: speed on one core, peak memory, and scoring against the `kenlm` module.

    python tests/benchmarks/bench_ngram.py [--megabytes 125] [--order 5] [--folder DIR]

Each line of the table is one fresh process on one thread, which loads what is compiled first. A
text that `ngram_text.py` draws is counted, made into a model, and into an ARPA file; then the model
is opened, and another text scored with it, from its bytes on. Beside that, `kenlm` scores the same
lines with the same ARPA file, in the same process and in turn, if it is installed. Speeds are in
words per second, `</s>` counted; by the clock, and in processor seconds, which other work on the
machine disturbs less. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
import numpy as np

from seqtool.training.hardware import describe_machine

ROOT = Path(__file__).resolve().parents[2]
REPEATS = 3
QUERY_MEGABYTES = 10.0

# a stage is timed between `begin()` and `end(words)`; arguments: a text or a model, the order, more
PRELUDE = """
import json, resource, sys, time
source, order = sys.argv[1], int(sys.argv[2])
results = []

def begin():
    global clock, processor
    clock, processor = time.perf_counter(), time.process_time()

def end(words, **more):
    seconds = time.perf_counter() - clock, time.process_time() - processor
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    result = {"words": words, "seconds": seconds[0], "processor_seconds": seconds[1]}
    results.append({**result, "peak_bytes": peak, **more})
"""

READ = """
from seqtool.lm.ngram import counts
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import read_ids
begin()
reading = read_ids([source], NgramConfig(order=order))
end(len(reading.ids))
"""

COUNT = """
from seqtool.text import words
from seqtool.lm.ngram import counts
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.data import read_ids
begin()
reading = read_ids([source], NgramConfig(order=order))
counts = count_ngrams(reading.ids, order, len(reading.tokenizer.vocabulary))
end(counts.num_tokens, ngrams=[len(level) for level in counts.levels])
"""

TRAIN = """
from seqtool.text import words
from seqtool.lm.ngram import counts
from seqtool.lm.ngram import smoothing
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram
output, arpa = sys.argv[3], sys.argv[4] or None
begin()
training = train_ngram([source], output, NgramConfig(order=order), arpa=arpa, force=True, threads=1)
end(training.num_tokens, stages=training.seconds)
"""

OPEN = """
import seqtool
from seqtool.core import checkpoint
for _ in range(5):
    begin()
    model = seqtool.load(source)
    end(0)
    del model
"""

SCORE = """
import seqtool
from pathlib import Path
from seqtool.lm.evaluation import evaluate_lm
text, arpa = sys.argv[3], sys.argv[4]
model = seqtool.load(source)
lines = Path(text).read_text(encoding="utf-8").splitlines()
theirs = None
if arpa:
    import kenlm
    theirs = kenlm.Model(arpa)
evaluate_lm(model, text)  # maps the table into memory, and indexes some of it
for _ in range(3):
    begin()
    evaluation = evaluate_lm(model, text)
    end(evaluation.tokens, log10=evaluation.log10_probability)
    if theirs is not None:
        begin()
        log10 = sum(theirs.score(line) for line in lines)
        end(evaluation.tokens, log10=log10)
"""


def run(code: str, *arguments: object) -> list[dict[str, Any]]:
    """Run a stage in a process of its own, on one thread; return what it timed."""
    names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
    process = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}{code}\nprint(json.dumps(results))"]
        + [str(argument) for argument in arguments],
        cwd=ROOT,
        env={**os.environ, **{f"{name}_NUM_THREADS": "1" for name in names}},
        stdout=subprocess.PIPE,
        check=False,
    )
    if process.returncode:
        raise SystemExit(f"failed with code {process.returncode}")
    results: list[dict[str, Any]] = json.loads(process.stdout.splitlines()[-1])
    return results


class Table:
    """Prints a line for each stage, and keeps its figures."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        print(f"{'million words per second':<34}{'clock':>8}{'processor':>11}{'peak B/word':>13}")

    def add(
        self,
        name: str,
        runs: list[dict[str, Any]],
        *,
        at_least: float | None = None,
        with_peak: bool = True,
    ) -> None:
        """Print the best of some runs, beside the speed that is to be reached."""
        clock, processor = (
            max(run["words"] / run[key] / 1e6 for run in runs)
            for key in ("seconds", "processor_seconds")
        )
        self.figures[name] = {
            "million_words_per_second": round(clock, 2),
            "million_words_per_cpu_second": round(processor, 2),
        }
        shown = ""
        if with_peak:
            peak = min(run["peak_bytes"] / run["words"] for run in runs)
            self.figures[name]["peak_bytes_per_word"] = round(peak, 1)
            shown = f"{peak:.1f}"
        wanted = "" if at_least is None else f"   at least {at_least}"
        print(f"{name:<34}{clock:>8.2f}{processor:>11.2f}{shown:>13}{wanted}", flush=True)


def has_kenlm() -> bool:
    """Whether the `kenlm` module is installed."""
    try:
        import kenlm
    except ImportError:
        return False
    return kenlm is not None


def main(megabytes: float, order: int, folder: Path, texts: list[Path]) -> None:
    """Time all stages and print a table, then JSON."""
    text, query, tiny = (folder / f"{name}.txt" for name in ("text", "query", "tiny"))
    model, arpa = folder / "model", folder / "model.arpa"
    for path, size, seed in ((text, megabytes, 0), (query, QUERY_MEGABYTES, 1), (tiny, 0.5, 2)):
        script = Path(__file__).parent / "ngram_text.py"
        # in a process of its own: a child's peak begins at what its parent holds
        subprocess.run([sys.executable, script, path, str(size), str(seed), *texts], check=True)
    run(TRAIN, tiny, order, folder / "tiny", folder / "tiny.arpa")  # compiles

    table = Table()
    table.add("read", [run(READ, text, order)[0] for _ in range(REPEATS)])
    counted = [run(COUNT, text, order)[0] for _ in range(REPEATS)]
    table.add("read and count", counted)
    trained = [run(TRAIN, text, order, model, "")[0] for _ in range(REPEATS)]
    table.add("text to saved model", trained, at_least=2.5)
    table.add("text to model and ARPA", run(TRAIN, text, order, model, arpa), at_least=1.3)
    opened = run(OPEN, model, order)
    both = run(SCORE, model, order, query, arpa if has_kenlm() else "")
    ours, theirs = (both[0::2], both[1::2]) if has_kenlm() else (both, [])
    table.add("score a text", ours, at_least=6.0, with_peak=False)
    figures = table.figures
    figures["opening_seconds"] = round(min(run["seconds"] for run in opened), 3)
    if theirs:
        if abs(ours[0]["log10"] / theirs[0]["log10"] - 1) > 1e-5:
            raise SystemExit("the two sides differ in the probability of the text")
        table.add("score lines with kenlm", theirs, with_peak=False)
        ratio = min(run["processor_seconds"] for run in theirs) / min(
            run["processor_seconds"] for run in ours
        )
        figures["times_kenlm"] = round(ratio, 2)
        print(f"\nscoring: {ratio:.2f} times as fast as kenlm (at least 2)")
    else:
        print("\nscoring: not compared, as the module kenlm is not installed")
    ngrams = counted[0]["ngrams"]
    print(f"opening the model: {figures['opening_seconds']:.3f} s (less than 0.3)")
    print(f"{counted[0]['words']:,} words; n-grams: {', '.join(f'{num:,}' for num in ngrams)}\n")
    report = {
        "benchmark": "ngram",
        "order": order,
        "megabytes": round(text.stat().st_size / 1e6, 1),
        "words": counted[0]["words"],
        "ngrams": ngrams,
        **figures,
        "stages": {name: round(took, 2) for name, took in trained[-1]["stages"].items()},
        "cpu": describe_machine("cpu")["processor"],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Speed and memory of n-gram models.")
    parser.add_argument("--megabytes", type=float, default=125.0)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep text and models here")
    parser.add_argument(
        "--texts", type=Path, nargs="*", default=[], help="draw the text from these"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        main(options.megabytes, options.order, folder, options.texts)
