"""The recurrent highway layer on a GPU: recorded windows beside a naive loop.

    python tests/benchmarks/bench_gpu.py [--steps 50]

Depth 10, 830 units, windows of 35 tokens, 20 and 128 streams, forward and backward, TF32 products
for all. The layer's windows are recorded from torch's operations and from the Triton kernels; it is
said which are faster, and which a layer chooses by itself. Before, outputs and gradients are
compared in full float32. Without a GPU that CUDA knows, it says so and ends. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.highway import RecurrentHighwayCell
from seqtool.lm.neural.highway_graphs import RecordedLoops, load_kernels
from seqtool.lm.neural.highway_loops import StreamsFirst
from seqtool.training import hardware

HIDDEN, DEPTH, BPTT = 830, 10, 35
AT_LEAST = 10.0
COLUMNS = ("torch", "triton", "naive")
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

    def forward(self, inputs: Tensor, states: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        (state,) = states
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
        return torch.stack(outputs), (state,)

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


def make(loop: type[torch.autograd.Function] | None, device: str) -> RecurrentHighwayCell:
    """Return a layer whose windows are recorded from this loop if it can be; None: it chooses."""
    torch.manual_seed(0)
    cell = RecurrentHighwayCell(HIDDEN, HIDDEN, ModelConfig(cell="rhn", depth=DEPTH)).to(device)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -0.04, 0.04)
    cell.initialise_biases(ModelConfig(cell="rhn", transform_bias=-2.0))
    if loop is not None:
        cell.recorded = RecordedLoops(cost=lambda window: float(window.loop is not loop))
    return cell


def race(batch: int, num_steps: int, device: str) -> dict[str, Any]:
    """Compare all layers, then time them in turn."""
    loops: dict[str, type[torch.autograd.Function]] = {"torch": StreamsFirst}
    with suppress(ImportError):  # one line of the log says so
        loops["triton"] = load_kernels()
    torch.manual_seed(0)
    inputs = torch.randn(BPTT, batch, HIDDEN, device=device)
    gradient = torch.randn(BPTT, batch, HIDDEN, device=device)
    state = torch.zeros(batch, HIDDEN, device=device)

    def step(layer: nn.Module) -> Tensor:
        layer.zero_grad()
        outputs = layer(inputs, (state,))[0]
        outputs.backward(gradient)
        return outputs.detach()

    torch.set_float32_matmul_precision("highest")
    naive = NaiveLayer(make(None, device))
    differences = {}
    expected = {"outputs": step(naive), **naive.gradients()}
    for column, loop in loops.items():
        cell = make(loop, device)
        for _ in range(WARM_UP):  # the window is recorded among these
            outputs = step(cell)
        if cell.recorded.loop is not loop:
            continue  # one line of the log has said why
        differences[column] = 0.0
        for name, other in expected.items():
            one = outputs if name == "outputs" else cell.get_parameter(name).grad
            difference = float((one - other).abs().max() / other.abs().max())
            if not difference <= TOLERANCE:
                raise SystemExit(f"batch {batch}, {column}: {name} differ by {difference:.1e}")
            differences[column] = max(differences[column], difference)
    # a window recorded before keeps the products it was recorded with
    hardware.prepare_device(device)
    layers: dict[str, nn.Module] = {
        column: make(loop, device) for column, loop in loops.items() if column in differences
    }
    recorded = [layer.recorded for layer in layers.values()]
    chooser = make(None, device)
    for layer in (*layers.values(), naive, chooser):
        milliseconds(lambda layer=layer: step(layer), WARM_UP)
    layers["naive"] = naive
    times: dict[str, list[float]] = {column: [] for column in layers}
    for _ in range(num_steps):
        for column, layer in layers.items():
            times[column] += milliseconds(lambda layer=layer: step(layer), 1)
    medians = {column: statistics.median(side) for column, side in times.items()}
    faster = min(differences, key=lambda column: medians[column])
    ratio = medians["naive"] / medians[faster]
    chosen = {loop: column for column, loop in loops.items()}[chooser.recorded.loop]
    columns = [f"{medians[name]:.2f}" if name in medians else "-" for name in COLUMNS]
    print(f"{batch:<8}" + "".join(f"{column:>12}" for column in columns), end="")
    print(f"{faster:>10}{chosen:>10}{ratio:>8.1f}{AT_LEAST:>10.1f}", flush=True)
    return {
        **{f"{column}_ms": round(median, 3) for column, median in medians.items()},
        "faster": faster,
        "chosen": chosen,
        "ratio": round(ratio, 2),
        "at_least": AT_LEAST,
        "largest_difference": differences,
        "recorded": all(loop.num_recorded > 0 for loop in recorded),
    }


def main(num_steps: int) -> None:
    """Print the races, if there is a GPU."""
    if not torch.cuda.is_available():
        print(json.dumps({"benchmark": "gpu", "skipped": "no GPU that CUDA knows is here"}))
        return
    device = "cuda:0"
    result: dict[str, Any] = {"benchmark": "gpu"}
    columns = "".join(f"{name + ', ms':>12}" for name in COLUMNS)
    print(f"{'batch':<8}{columns}{'faster':>10}{'chosen':>10}{'ratio':>8}{'at least':>10}")
    for batch in (20, 128):
        result[f"rhn, batch {batch}"] = race(batch, num_steps, device)
    print()
    print(json.dumps({**result, "machine": hardware.describe_machine(device)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50, help="steps of each that are timed")
    main(parser.parse_args().steps)
