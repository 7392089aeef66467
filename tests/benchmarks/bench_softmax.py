"""The output layer with its loss, forward and backward, beside torch's linear layer and loss.

    python tests/benchmarks/bench_softmax.py [--steps 10]

700 tokens (20 streams in windows of 35), 200 units, the vocabularies of the Penn Treebank and of
WikiText-2; on one thread, step by step in turn, the same gradients. The last line is JSON.
"""

from __future__ import annotations

import argparse

import report
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.output import FullSoftmax, Surroundings

NUM_TOKENS, HIDDEN = 700, 200


def race(vocabulary_size: int, num_steps: int, *, half: bool) -> report.Race:
    """Let both take turns."""
    torch.manual_seed(0)
    softmax = FullSoftmax(OutputConfig(), Surroundings(HIDDEN, vocabulary_size))
    for parameter in softmax.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1)
    linear = nn.Linear(HIDDEN, vocabulary_size)
    linear.load_state_dict(softmax.state_dict())
    hidden = torch.randn(NUM_TOKENS, HIDDEN, requires_grad=True)
    targets = torch.randint(vocabulary_size, (NUM_TOKENS,))

    def differentiate(module: nn.Module, *, ours: bool) -> list[Tensor]:
        module.zero_grad()
        hidden.grad = None
        if ours:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                loss = softmax.loss(hidden, targets)
        else:
            loss = functional.cross_entropy(linear(hidden), targets)
        loss.backward()
        assert hidden.grad is not None
        return [hidden.grad, *(part.grad for part in module.parameters() if part.grad is not None)]

    pairs = zip(differentiate(softmax, ours=True), differentiate(linear, ours=False), strict=True)
    for one, other in pairs:
        error = torch.linalg.vector_norm(one - other) / torch.linalg.vector_norm(other)
        if error > (2e-2 if half else 1e-5):
            raise SystemExit(f"gradients do not agree: {error:.1e}")
    return report.take_turns(
        lambda: differentiate(softmax, ours=True),
        lambda: differentiate(linear, ours=False),
        num_steps,
    )


def main(num_steps: int) -> None:
    """Print what came of the races."""
    table = report.Report("softmax", "torch")
    for vocabulary_size in (10_000, 33_278):
        for precision, at_least in (("float32", 2.0), ("bf16", 3.0)):
            table.add(
                f"{vocabulary_size:,} words, {precision}",
                race(vocabulary_size, num_steps, half=precision == "bf16"),
                NUM_TOKENS,
                at_least=at_least,
                num_weights=HIDDEN * vocabulary_size,
                half=precision == "bf16",
            )
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of each that are timed")
    main(parser.parse_args().steps)
