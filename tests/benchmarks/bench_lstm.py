"""LSTM training, the whole step as `train-lm` makes it, beside a bare loop around torch.nn.LSTM.

    python tests/benchmarks/bench_lstm.py [--steps 20]

Both train two layers of 200 units on the 33,278 words of WikiText-2's vocabulary, untied, in 20
streams and windows of 35 tokens: from the same weights, with the same batches, clipping and fused
Adam, on one thread, step by step in turn, to the same losses; ours in float32 and with
--precision bf16, each also as a share of the processor's peak. The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import report
import torch
from torch import Tensor, nn

from seqtool.lm.neural.network import NeuralNetwork
from seqtool.training.hardware import resolve_precision

VOCABULARY, HIDDEN, LAYERS, BATCH, BPTT = 33_278, 200, 2, 20, 35


class BareModel(nn.Module):
    """Embedding, LSTM and linear layer, with the weights of one of our networks."""

    def initial_state(self) -> tuple[Tensor, Tensor]:
        return torch.zeros(LAYERS, BATCH, HIDDEN), torch.zeros(LAYERS, BATCH, HIDDEN)

    def forward(
        self, inputs: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        outputs, state = self.lstm(self.embedding(inputs), state)
        return self.linear(outputs), state

    def __init__(self, network: NeuralNetwork) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, num_layers=LAYERS)
        self.linear = nn.Linear(HIDDEN, VOCABULARY)
        own = {
            name.replace("softmax", "linear"): parameter.detach().clone()
            for name, parameter in network.named_parameters()
        }
        for layer in range(LAYERS):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                own[f"lstm.{name}_l{layer}"] = own.pop(f"cells.{layer}.inner.{name}_l0")
        self.load_state_dict(own)


def race(num_steps: int, precision: str) -> report.Race:
    """Let both take turns in training."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_ids = BATCH * BPTT * (num_steps + report.WARM_UP + 2)
        corpus = report.make_corpus(folder, VOCABULARY, num_ids)
        config = report.settings(
            cell="lstm",
            hidden_size=HIDDEN,
            layers=LAYERS,
            batch_size=BATCH,
            bptt=BPTT,
            precision=precision,
        )
        task = report.RecordedTask(corpus, config)
        bare = report.BareLoop(BareModel(task.module), corpus, config)
        (folder / "run").mkdir()
        turns = report.race_training(task, config, folder / "run", bare.step, num_steps)
        task.compare(bare.losses, first=1e-5 if precision == "float32" else 1e-3)
        return turns


def main(num_steps: int) -> None:
    """Print what came of the races."""
    table = report.Report("lstm", "bare torch loop")
    for precision, at_least in (("float32", 2.0), ("bf16", 3.0)):
        if resolve_precision(precision, "cpu") != precision:
            print(f"no training in {precision}: this processor cannot")
            continue
        turns = race(num_steps, precision)
        table.add(
            f"training, {precision}",
            turns,
            BATCH * BPTT,
            at_least=at_least,
            num_weights=LAYERS * 8 * HIDDEN**2 + HIDDEN * VOCABULARY,
            half=precision == "bf16",
        )
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    main(parser.parse_args().steps)
