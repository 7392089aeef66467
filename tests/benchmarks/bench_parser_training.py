"""Training of parsers in bfloat16: products of few shapes, beside products of whatever shape comes.

    python tests/benchmarks/bench_parser_training.py --train en_ewt-ud-train.conllu [--steps 60]

Batches of words differ in size, and oneDNN compiles a product for each shape that it meets, so
inputs are filled up with rows of zeros (`encoding.encoder.linear`). Here the same steps are made
with them and without, in turn, from the same weights to losses that agree; on one thread, the speed
in words or configurations per second. The treebank is the shipped English sample where none is
given, whose batches are small. The last line is JSON.
"""

from __future__ import annotations

import argparse

import report
import torch

from seqtool.parsing.encoding import encoder
from seqtool.parsing.parser.config import PRESETS
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.graph.task import GraphTask
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.text.datasets import sample_treebank
from seqtool.training.hardware import has_bf16_layers
from seqtool.training.optimisers import Optimisers

FILLED = encoder.ROW_MULTIPLE


class Training:
    """Steps of one parser, with products filled up to a multiple of rows."""

    def __init__(self, preset: str, train: str, multiple: int) -> None:
        data = prepare_data([train], None, PRESETS.chosen(preset) or PRESETS.configuration())
        self.config, self._multiple = data.config, multiple
        family = GraphTask if self.config.model.decoder == "graph" else ParserTask
        self.task = family(self.config, data)
        self._optimisers = Optimisers(self.task.module, self.config.training)
        self._index, self._num = 0, self.task.start_epoch(0)
        self.losses: list[float] = []
        self.items = 0

    def step(self) -> None:
        """Make the next step."""
        encoder.ROW_MULTIPLE = self._multiple
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, self.items = self.task.loss(self._index % self._num)
        self._index += 1
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimisers.step(self.config.training.learning_rate)
        self.losses.append(float(loss.detach()))


def race(preset: str, train: str, num_steps: int) -> tuple[report.Race, int]:
    """Let both take turns; return what came of it, and the items of a step."""
    filled, plain = (Training(preset, train, multiple) for multiple in (FILLED, 1))
    turns = report.take_turns(filled.step, plain.step, num_steps)
    for step, (ours, theirs) in enumerate(zip(filled.losses, plain.losses, strict=True)):
        if abs(ours - theirs) > 0.02 * abs(theirs):
            raise SystemExit(f"step {step + 1}: losses {ours} and {theirs} do not agree")
    return turns, filled.items


def main(train: str, num_steps: int) -> None:
    """Print what came of the races."""
    if not has_bf16_layers():
        raise SystemExit("this processor cannot train in bf16")
    table = report.Report("parser-training", "shapes as they come")
    for preset, at_least in (("graph", 1.2), ("accurate", 1.1)):
        turns, num_items = race(preset, train, num_steps)
        table.add(f"{preset}, bf16", turns, num_items, at_least=at_least)
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", default="", help="CoNLL-U with trees")
    parser.add_argument("--steps", type=int, default=60, help="steps that are timed")
    given = parser.parse_args()
    main(given.train or str(sample_treebank()), given.steps)
