"""RHN training beside a naive loop of two linear layers per micro-step.

    python tests/benchmarks/bench_rhn.py [--steps 20]

First the layer alone, forward and backward (256 units, depth 5, 32 streams, windows of 35 tokens),
in float32 and with products in bfloat16, then the training of whole models of characters and of
words, from the same weights, with the same batches, clipping and fused Adam, on one thread, step by
step in turn, to the same losses. Then a layer of 800 units and depth 8 in bfloat16 on two threads,
if there are two cores, and by the clock. The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import report
import torch
from torch import Tensor, nn

from seqtool.core.runtime import available_threads
from seqtool.lm.neural.cells import RecurrentHighwayCell
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork

HIDDEN, DEPTH, BATCH, BPTT = 256, 5, 32, 35
LARGE_HIDDEN, LARGE_DEPTH, LARGE_STEPS = 800, 8, 5


class NaiveLayer(nn.Module):
    """Two linear layers per micro-step; those of the first read the input and the state."""

    def __init__(self, cell: RecurrentHighwayCell) -> None:
        super().__init__()
        self.candidates, self.transforms = nn.ModuleList(), nn.ModuleList()
        units = cell.weight_state.shape[1]
        for depth in range(len(cell.weight_state)):
            for gate, layers in enumerate((self.candidates, self.transforms)):
                rows = slice(gate * units, (gate + 1) * units)
                weight = cell.weight_state[depth][:, rows].t()
                if depth == 0:
                    weight = torch.cat([cell.weight_input[rows], weight], dim=1)
                linear = nn.Linear(weight.shape[1], units)
                with torch.no_grad():
                    linear.weight.copy_(weight)
                    linear.bias.copy_(cell.bias[depth, rows])
                layers.append(linear)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for entering in inputs:
            for depth in range(len(self.candidates)):
                read = torch.cat([entering, state], dim=1) if depth == 0 else state
                h = torch.tanh(self.candidates[depth](read))
                t = torch.sigmoid(self.transforms[depth](read))
                state = h * t + state * (1 - t)
            outputs.append(state)
        return torch.stack(outputs), state


class NaiveModel(nn.Module):
    """Embedding, naive layer and linear layer, with the weights of one of our networks."""

    def __init__(self, network: NeuralNetwork) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(
            network.embedding.weight.detach().clone(), freeze=False
        )
        (cell,) = network.cells
        assert isinstance(cell, RecurrentHighwayCell)
        self.layer = NaiveLayer(cell)
        self.linear = nn.Linear(HIDDEN, network.embedding.num_embeddings)
        self.linear.load_state_dict(network.softmax.state_dict())

    def initial_state(self) -> tuple[Tensor, ...]:
        return (torch.zeros(BATCH, HIDDEN),)

    def forward(
        self, inputs: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        outputs, last = self.layer(self.embedding(inputs), state[0])
        return self.linear(outputs), (last,)


def weights_of(units: int, depth: int) -> int:
    """Return the weights of a layer: those of the input, and of each micro-step."""
    return 2 * units**2 * (1 + depth)


def race_layers(
    num_steps: int, *, half: bool, units: int = HIDDEN, depth: int = DEPTH
) -> report.Race:
    """Let both layers take turns in running forward and backward."""
    torch.manual_seed(0)
    cell = RecurrentHighwayCell(units, units, ModelConfig(cell="rhn", depth=depth))
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)
    naive = NaiveLayer(cell)
    inputs = torch.randn(BPTT, BATCH, units, requires_grad=True)
    state, gradient = torch.zeros(BATCH, units), torch.randn(BPTT, BATCH, units)
    torch.testing.assert_close(cell(inputs, (state,))[0], naive(inputs, state)[0])

    def ours() -> None:
        cell.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            outputs, _ = cell(inputs, (state,))
        outputs.backward(gradient)

    def theirs() -> None:
        naive.zero_grad()
        naive(inputs, state)[0].backward(gradient)

    return report.take_turns(ours, theirs, num_steps)


def race_models(vocabulary_size: int, num_steps: int) -> report.Race:
    """Let both models take turns in training."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_ids = BATCH * BPTT * (num_steps + report.WARM_UP + 2)
        corpus = report.make_corpus(folder, vocabulary_size, num_ids)
        config = report.settings(
            cell="rhn", hidden_size=HIDDEN, depth=DEPTH, batch_size=BATCH, bptt=BPTT
        )
        task = report.RecordedTask(corpus, config)
        naive = report.BareLoop(NaiveModel(task.module), corpus, config)
        race = report.race_training(task, config, folder, naive.step, num_steps)
        task.compare(naive.losses)
        return race


def main(num_steps: int) -> None:
    """Print what came of the three races."""
    table = report.Report("rhn", "two linear layers")
    for precision, at_least in (("float32", 2.3), ("bf16", 3.5)):
        half = precision == "bf16"
        race = race_layers(num_steps, half=half)
        weights = weights_of(HIDDEN, DEPTH)
        table.add(
            f"layer, {precision}",
            race,
            BATCH * BPTT,
            at_least=at_least,
            num_weights=weights,
            half=half,
        )
    for size, what in ((200, "characters"), (10_000, "words")):
        table.add(
            f"training, {size:,} {what}",
            race_models(size, num_steps),
            BATCH * BPTT,
            at_least=1.3,
            num_weights=weights + HIDDEN * size,
        )
    if available_threads() > 1:
        with report.threads(2):
            race = race_layers(LARGE_STEPS, half=True, units=LARGE_HIDDEN, depth=LARGE_DEPTH)
            table.add(
                f"layer of {LARGE_HIDDEN}, depth {LARGE_DEPTH}, bf16, 2 threads",
                race,
                BATCH * BPTT,
                at_least=3.0,
                num_weights=weights_of(LARGE_HIDDEN, LARGE_DEPTH),
                half=True,
            )
    table.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps of each that are timed")
    main(parser.parse_args().steps)
