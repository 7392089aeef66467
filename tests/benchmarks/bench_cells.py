"""Training with what is added to a cell, beside the plain LSTM or RHN.

    python tests/benchmarks/bench_cells.py [--steps 20]

All train one layer of 256 units on 10,000 words, as many as the Penn Treebank has, in 20 streams
and windows of 35 tokens, with clipping and fused Adam, on one thread, step by step in turn. Weights
are tied, but where words are read by their characters. The ratio is a share of the plain one's
speed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import report
import torch

VOCABULARY, HIDDEN, BATCH, BPTT = 10_000, 256, 20, 35
LSTM: dict[str, Any] = {"cell": "lstm", "tied": True}
RHN: dict[str, Any] = {"cell": "rhn", "tied": True}
# what is trained, what it takes turns with, and the share of the other's speed to be reached
RACES: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "LSTM, dropped updates": ({**LSTM, "dropout_update": 0.1}, LSTM, 0.7),
    "RHN, dropped updates": ({**RHN, "dropout_update": 0.1}, RHN, 0.9),
}


def race(num_steps: int, ours: dict[str, Any], plain: dict[str, Any]) -> report.Race:
    """Let two models take turns."""
    with tempfile.TemporaryDirectory() as name:
        num_ids = BATCH * BPTT * (num_steps + report.WARM_UP + 2)
        corpus = report.make_corpus(Path(name), VOCABULARY, num_ids)
        common: dict[str, Any] = {"hidden_size": HIDDEN, "batch_size": BATCH, "bptt": BPTT}
        common["dropout"] = "variational"
        one, other = (
            report.Training(corpus, report.settings(**common, **settings))
            for settings in (ours, plain)
        )
        return report.take_turns(one.step, other.step, num_steps)


def main(num_steps: int) -> None:
    """Print what came of the races."""
    torch.set_num_threads(1)
    table = report.Report("cells", "plain")
    for name, (ours, plain, at_least) in RACES.items():
        table.add(name, race(num_steps, ours, plain), BATCH * BPTT, at_least=at_least)
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    main(parser.parse_args().steps)
