"""Output layers with their loss, forward and backward, beside the full softmax and torch's own.

    python tests/benchmarks/bench_output.py [--steps 10]

700 tokens (20 streams in windows of 35), 200 units, the vocabulary of WikiText-2, for torch's
linear layer that of PTB too, and targets as often as Zipf's law has them; on one thread, step by
step in turn. The last line is JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import report
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.output import OUTPUT_LAYERS, OutputLayer, Surroundings

NUM_TOKENS, HIDDEN = 700, 200
PTB, WIKITEXT2 = 10_000, 33_278  # words

Data = tuple[Tensor, Tensor]  # hidden states and targets


def make(name: str, counts: np.ndarray) -> OutputLayer:
    """Return a layer with drawn weights."""
    torch.manual_seed(0)
    config = OutputConfig(layer=name)  # type: ignore[arg-type]
    layer = OUTPUT_LAYERS[name](config, Surroundings(HIDDEN, len(counts), counts=counts))
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1)
    return layer.train()


def step(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], data: Data, *, half: bool
) -> Callable[[], None]:
    """Return what one program does: loss and gradients."""

    def run() -> None:
        module.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            value = loss(*data)
        value.backward()  # type: ignore[no-untyped-call]

    return run


def take_turns(table: report.Report, vocabulary_size: int, num_steps: int) -> None:
    """Let layers of one vocabulary take turns."""
    shares = 1 / np.arange(1, vocabulary_size + 1)
    counts, drawn = (1e6 * shares).astype(np.int64), np.random.default_rng(0)
    targets = torch.from_numpy(drawn.choice(len(shares), NUM_TOKENS, p=shares / shares.sum()))
    data = torch.randn(NUM_TOKENS, HIDDEN, requires_grad=True), targets
    layers = {name: make(name, counts) for name in ("full", "adaptive", "nce", "blackout")}
    linear = nn.Linear(HIDDEN, vocabulary_size)
    cutoffs = layers["adaptive"].get_buffer("cutoffs").tolist()
    torchs = nn.AdaptiveLogSoftmaxWithLoss(HIDDEN, vocabulary_size, cutoffs, head_bias=True)
    plain = {  # torch's adaptive one fails in bfloat16
        "torch's full": step(linear, lambda h, t: cross_entropy(linear(h), t), data, half=False),
        "torch's adaptive": step(torchs, lambda *both: torchs(*both).loss, data, half=False),
    }
    for precision, at_least in (("float32", 2.0), ("bf16", 3.0)):
        half = precision == "bf16"
        steps = plain | {
            name: step(layer, layer.loss, data, half=half) for name, layer in layers.items()
        }
        races = [("full", "torch's full", at_least)]
        if vocabulary_size == WIKITEXT2:
            races += [(name, "full", 5.0) for name in ("adaptive", "nce", "blackout")]
            races += [] if half else [("adaptive", "torch's adaptive", 1.5)]
        for ours, theirs, least in races:
            what = f"{ours} to {theirs}, {vocabulary_size:,} words, {precision}"
            race = report.take_turns(steps[ours], steps[theirs], num_steps)
            weights = HIDDEN * vocabulary_size if ours == "full" else None
            table.add(what, race, NUM_TOKENS, at_least=least, num_weights=weights, half=half)


def main(num_steps: int) -> None:
    """Print what came of the races."""
    table = report.Report("output layers", "the other")
    for vocabulary_size in (PTB, WIKITEXT2):
        take_turns(table, vocabulary_size, num_steps)
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of each that are timed")
    main(parser.parse_args().steps)
