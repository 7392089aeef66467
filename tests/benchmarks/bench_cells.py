"""Training with a Mogrifier and with words by their characters, beside the plain LSTM.

    python tests/benchmarks/bench_cells.py [--steps 20]

All train one layer of 256 units on 10,000 words, as many as the Penn Treebank has, in 20 streams
and windows of 35 tokens, with clipping and fused Adam, on one thread, step by step in turn.
What is to be reached is a share of the plain LSTM's speed: 1 / 1.6. The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import report
import torch

from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.task import LanguageModelTask
from seqtool.text.prepared import PreparedCorpus

VOCABULARY, HIDDEN, BATCH, BPTT = 10_000, 256, 20, 35
AT_LEAST = 1 / 1.6
OTHERS: dict[str, dict[str, Any]] = {
    "mogrifier, 5 rounds": {"mogrifier_rounds": 5, "tied": True},
    "words by characters": {"input": {"kind": "char-cnn"}},
}


class Training:
    """Steps of one model as `train-lm` makes them."""

    def __init__(self, corpus: PreparedCorpus, config: NeuralLMConfig) -> None:
        self._task, self._clip_norm = LanguageModelTask(corpus, config, device="cpu"), 1.0
        self._weights = list(self._task.module.parameters())
        self._optimiser = torch.optim.Adam(self._weights, lr=0.001, fused=True)
        self._window = 0
        self._task.module.train()

    def step(self) -> None:
        """Train on the next window."""
        loss, _ = self._task.loss(self._window)
        self._window += 1
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights, self._clip_norm)
        self._optimiser.step()
        self._optimiser.zero_grad()


def race(num_steps: int, settings: dict[str, Any]) -> report.Race:
    """Let a model and the plain LSTM take turns."""
    with tempfile.TemporaryDirectory() as name:
        num_ids = BATCH * BPTT * (num_steps + report.WARM_UP + 2)
        corpus = report.make_corpus(Path(name), VOCABULARY, num_ids)
        common = {"cell": "lstm", "hidden_size": HIDDEN, "batch_size": BATCH, "bptt": BPTT}
        ours, plain = (
            Training(corpus, report.settings(**common, **more))
            for more in (settings, {"tied": True})
        )
        turns = report.Race([], [])
        for _ in range(report.WARM_UP + num_steps):
            turns.ours.append(report.timed(ours.step))
            turns.theirs.append(report.timed(plain.step))
        return report.Race(turns.ours[report.WARM_UP :], turns.theirs[report.WARM_UP :])


def main(num_steps: int) -> None:
    """Print what came of the races."""
    torch.set_num_threads(1)
    table = report.Report("cells", "plain LSTM")
    for name, settings in OTHERS.items():
        table.add(name, race(num_steps, settings), BATCH * BPTT, at_least=AT_LEAST)
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    main(parser.parse_args().steps)
