"""Output layers with their loss, forward and backward, beside the full softmax and torch's own.

    python tests/benchmarks/bench_output.py [--steps 10]

700 tokens (20 streams in windows of 35), 200 units, the vocabulary of WikiText-2, and targets as
often as Zipf's law has them; on one thread, step by step in turn. The last line is JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import report
import torch
from torch import Tensor, nn

from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.output import OUTPUT_LAYERS, OutputLayer, Surroundings

NUM_TOKENS, HIDDEN, VOCABULARY = 700, 200, 33_278

Data = tuple[Tensor, Tensor]  # hidden states and targets


def make(name: str, counts: np.ndarray) -> OutputLayer:
    """Return a layer with drawn weights."""
    torch.manual_seed(0)
    config = OutputConfig(layer=name)  # type: ignore[arg-type]
    layer = OUTPUT_LAYERS[name](config, Surroundings(HIDDEN, VOCABULARY, counts=counts))
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


def main(num_steps: int) -> None:
    """Print what came of the races."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, VOCABULARY + 1)
    counts = (1e6 * shares).astype(np.int64)
    hidden = torch.randn(NUM_TOKENS, HIDDEN, requires_grad=True)
    targets = torch.from_numpy(rng.choice(VOCABULARY, NUM_TOKENS, p=shares / shares.sum()))
    layers = {name: make(name, counts) for name in ("full", "adaptive", "nce", "blackout")}
    cutoffs = layers["adaptive"].get_buffer("cutoffs").tolist()
    torchs = nn.AdaptiveLogSoftmaxWithLoss(HIDDEN, VOCABULARY, cutoffs, head_bias=True)
    table = report.Report("output layers", "the other")
    for precision in ("float32", "bf16"):
        half = precision == "bf16"
        steps = {
            name: step(layer, layer.loss, (hidden, targets), half=half)
            for name, layer in layers.items()
        }
        steps["torch's adaptive"] = step(
            torchs, lambda *data: torchs(*data).loss, (hidden, targets), half=half
        )
        races = [("adaptive", "full", 5.0), ("nce", "full", 5.0), ("blackout", "full", 5.0)]
        if not half:  # torch's fails in bfloat16
            races.append(("adaptive", "torch's adaptive", 1.5))
        for ours, theirs, at_least in races:
            race = report.take_turns(steps[ours], steps[theirs], num_steps)
            table.add(f"{ours} to {theirs}, {precision}", race, NUM_TOKENS, at_least=at_least)
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of each that are timed")
    main(parser.parse_args().steps)
