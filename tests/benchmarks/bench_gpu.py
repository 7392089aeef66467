"""The recurrent highway layer on a GPU: recorded windows beside a naive loop.

    python tests/benchmarks/bench_gpu.py [--steps 50]

Depth 10, 830 units, windows of 35 tokens, 20 and 128 streams, forward and backward, TF32 products
for both. Before, outputs and gradients of both are compared in full float32. Without a GPU that
CUDA knows, it says so and ends. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool import runtime
from seqtool.neural_lm.config import ModelConfig
from seqtool.neural_lm.highway import RecurrentHighwayCell

HIDDEN, DEPTH, BPTT = 830, 10, 35
AT_LEAST = 10.0
WARM_UP = 5
# of the largest value: float32 sums in another order, over 350 micro-steps
TOLERANCE = 1e-4


class NaiveLayer(nn.Module):
    """The equations as they are written: two products per micro-step."""

    def __init__(self, cell: RecurrentHighwayCell) -> None:
        super().__init__()
        self.weight_input = nn.Parameter(cell.weight_input.detach().clone())
        weights = cell.weight_state.detach()
        self.candidates = nn.ParameterList(weight[:, :HIDDEN].t().clone() for weight in weights)
        self.transforms = nn.ParameterList(weight[:, HIDDEN:].t().clone() for weight in weights)
        self.biases = nn.ParameterList(bias.clone() for bias in cell.bias.detach())

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        outputs = []
        for entering in inputs:
            projected = functional.linear(entering, self.weight_input)
            for level, bias in enumerate(self.biases):
                h = functional.linear(state, self.candidates[level], bias[:HIDDEN])
                t = functional.linear(state, self.transforms[level], bias[HIDDEN:])
                if level == 0:
                    h, t = h + projected[:, :HIDDEN], t + projected[:, HIDDEN:]
                h, t = torch.tanh(h), torch.sigmoid(t)
                state = h * t + state * (1 - t)
            outputs.append(state)
        return torch.stack(outputs)

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients as the cell lays its weights out."""
        grads = {
            name: [part.grad for part in parts]
            for name, parts in (
                ("candidates", self.candidates),
                ("transforms", self.transforms),
                ("biases", self.biases),
            )
        }
        pairs = zip(grads["candidates"], grads["transforms"], strict=True)
        state = [torch.cat([h.t(), t.t()], dim=1) for h, t in pairs]
        return {
            "weight_input": self.weight_input.grad,
            "weight_state": torch.stack(state),
            "bias": torch.stack(grads["biases"]),
        }


def milliseconds(step: Callable[[], object], num_steps: int) -> list[float]:
    """Return the time of each step on the GPU."""
    times = []
    for _ in range(num_steps):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times


def race(batch: int, num_steps: int, device: str) -> dict[str, Any]:
    """Compare both layers, then time them in turn."""
    torch.manual_seed(0)
    cell = RecurrentHighwayCell(HIDDEN, HIDDEN, ModelConfig(cell="rhn", depth=DEPTH)).to(device)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -0.04, 0.04)
    cell.initialise_biases(ModelConfig(cell="rhn", transform_bias=-2.0))
    naive = NaiveLayer(cell)
    inputs = torch.randn(BPTT, batch, HIDDEN, device=device)
    gradient = torch.randn(BPTT, batch, HIDDEN, device=device)
    state = torch.zeros(batch, HIDDEN, device=device)

    def ours() -> Tensor:
        cell.zero_grad()
        outputs, _ = cell(inputs, (state,))
        outputs.backward(gradient)
        return outputs.detach()

    def theirs() -> Tensor:
        naive.zero_grad()
        outputs: Tensor = naive(inputs, state)
        outputs.backward(gradient)
        return outputs.detach()

    differences = {}
    torch.set_float32_matmul_precision("highest")
    for _ in range(WARM_UP):  # the window is recorded among these
        found = ours()
    pairs = {"outputs": (found, theirs())}
    pairs |= {
        name: (cell.get_parameter(name).grad, grad) for name, grad in naive.gradients().items()
    }
    for name, (one, other) in pairs.items():
        differences[name] = float((one - other).abs().max() / other.abs().max())
        if not differences[name] <= TOLERANCE:
            raise SystemExit(f"batch {batch}: {name} differ by {differences[name]:.1e}")
    # a window recorded before keeps the products it was recorded with
    cell = RecurrentHighwayCell(HIDDEN, HIDDEN, ModelConfig(cell="rhn", depth=DEPTH)).to(device)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -0.04, 0.04)
    runtime.prepare_device(device)
    for step in (ours, theirs):
        milliseconds(step, WARM_UP)
    turns = [(milliseconds(ours, 1)[0], milliseconds(theirs, 1)[0]) for _ in range(num_steps)]
    mine, other = (statistics.median(side) for side in zip(*turns, strict=True))
    ratio = statistics.median(theirs / ours for ours, theirs in turns)
    print(f"{batch:<8}{mine:>14.2f}{other:>14.2f}{ratio:>8.1f}{AT_LEAST:>10.1f}", flush=True)
    return {
        "seqtool_ms": round(mine, 3),
        "naive_ms": round(other, 3),
        "ratio": round(ratio, 2),
        "at_least": AT_LEAST,
        "largest_difference": max(differences.values()),
        "recorded": cell.recorded.num_recorded > 0,
    }


def main(num_steps: int) -> None:
    """Print the races, if there is a GPU."""
    if not torch.cuda.is_available():
        print(json.dumps({"benchmark": "gpu", "skipped": "no GPU that CUDA knows is here"}))
        return
    device = "cuda:0"
    result: dict[str, Any] = {"benchmark": "gpu"}
    print(f"{'batch':<8}{'seqtool, ms':>14}{'naive, ms':>14}{'ratio':>8}{'at least':>10}")
    for batch in (20, 128):
        result[f"rhn, batch {batch}"] = race(batch, num_steps, device)
    print()
    print(json.dumps({**result, "machine": runtime.describe_machine(device)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50, help="steps of each that are timed")
    main(parser.parse_args().steps)
