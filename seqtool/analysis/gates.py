"""Gates of recurrent cells over a text: how open they are, how long they keep, how many are stuck.

Dimensions in names: N tokens, H units.

A memory that is multiplied by k(t) in step t loses half of itself in ln 2 / -mean(ln k) steps: the
half-life of a unit, by the geometric mean of what keeps it. That is the forget gate of the LSTM,
the update gate of the GRU (as torch has it: h' = (1 - z) n + z h) and, of the RHN, the product of
the carry gates of all depths. It tells of the direct path, not of what goes through the candidate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqtool.analysis.recurrence import (
    as_tensor,
    inputs_of,
    layer_labels,
    make_steps,
    open_networks,
    read_text,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Ids
from seqtool.lm.neural.network import NeuralNetwork

NUM_BINS = 20  # of histograms
ACTIVATION = "activation"  # what a plain RNN has in the place of gates
NEAR = 0.1  # a gate within this of 0 or of 1 is saturated; of the range of an activation, too

Range = tuple[float, float]  # between which values lie
GATE: Range = (0.0, 1.0)
ACTIVATIONS: dict[str, Range] = {"tanh": (-1.0, 1.0), "logistic": GATE}  # of others, none


class GateName(NamedTuple):
    """Which gate; layers and depths from 0. That of a plain RNN is its activation."""

    layer: int
    depth: int
    gate: str


@torch.no_grad()
def values_of_gates(network: NeuralNetwork, ids: Ids) -> dict[GateName, Tensor]:
    """Return the values [N, H] of each gate over a text [N], which is read as one stream."""
    values: dict[GateName, list[Tensor]] = {}
    is_plain = network.config.cell == "rnn"
    for layers in make_steps(network, as_tensor(ids)[:, None], network.initial_state(1)):
        for number, layer in enumerate(layers):
            for depth, gates in enumerate(layer.cell.gates(layer.inputs_BI, layer.before)):
                for gate, values_1H in gates.items():
                    name = ACTIVATION if is_plain else gate
                    if name != "candidate":
                        values.setdefault(GateName(number, depth, name), []).append(values_1H)
    return {name: torch.cat(parts) for name, parts in values.items()}


def half_lives(values: Mapping[GateName, Tensor], cell: str) -> dict[int, Tensor]:
    """Return the half-life of each unit's memory in tokens [H], by layer, from 0.

    It is infinite where nothing is ever lost. A plain RNN has no gate that keeps.

    Args:
        values: of `values_of_gates`.
        cell: the name of the cell.
    """
    keeping = {"lstm": "forget", "gru": "update", "rhn": "carry"}.get(cell)
    sums: dict[int, Tensor] = {}
    for name, part_NH in values.items():
        kept_NH = part_NH if name.gate == keeping else None
        if cell == "rhn" and name.gate == "transform" and name._replace(gate="carry") not in values:
            kept_NH = 1 - part_NH
        if kept_NH is not None:
            logs_H = kept_NH.log().mean(dim=0)
            sums[name.layer] = sums.get(name.layer, torch.zeros_like(logs_H)) + logs_H
    return {layer: math.log(2) / -logs_H for layer, logs_H in sums.items()}


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 1000,
) -> Report:
    """Show how open the gates of recurrent language models are over a text."""
    report = Report("Gates")
    gate_rows: list[list[Cell]] = []
    life_rows: list[list[Cell]] = []
    life_series: list[Series] = []
    for name, model, network in open_networks(models):
        ids = read_text(name, model, text, split=split, num_tokens=num_tokens, needed=1)
        config, labels = network.config, layer_labels(name, network)
        gates = values_of_gates(network, inputs_of(ids))
        bounds = ACTIVATIONS.get(config.activation) if config.cell == "rnn" else GATE
        is_deep = len({gate.depth for gate in gates}) > 1
        summaries: dict[str, dict[str, Any]] = {}
        histograms: list[Series] = []
        for (layer, depth, gate), values_NH in gates.items():
            title = f"{labels[layer]}{f', depth {depth + 1}' if is_deep else ''}: {gate}"
            summaries[title] = summary = _summary(values_NH, bounds)
            shares = 100 * summary["share_low"], 100 * summary["share_high"]
            gate_rows.append([title, summary["mean"], summary["spread"], *shares])
            centres = [(low + high) / 2 for low, high in itertools.pairwise(summary["bin_edges"])]
            percents = [100 * share for share in summary["histogram"]]
            histograms.append(Series(title, centres, percents))
        note, y_label = f"Histograms of {NUM_BINS} bins.", "share of units and tokens (%)"
        x_label = "value of the gate"
        chart = Chart(f"Gates of {name}", "lines", x_label, y_label, histograms, note=note)
        report.charts.append(chart)
        lives = {labels[at]: part.tolist() for at, part in half_lives(gates, config.cell).items()}
        for label, lives_H in lives.items():
            ordered = sorted(lives_H)
            percents = [100 * (place + 0.5) / len(ordered) for place in range(len(ordered))]
            life_series.append(Series(label, percents, ordered))
            # a unit's own value each time: some may be infinite, which have no mean
            quarters = [ordered[round(part * (len(ordered) - 1))] for part in (0.25, 0.5, 0.75)]
            life_rows.append([label, *map(_or_none, quarters)])
        if not lives:
            what = "it has no gates; its activations are shown"
            report.remarks.append(f"{name} is a plain RNN: {what}.")
        report.values[name] = {
            "gates": summaries,
            "half_life": {label: list(map(_or_none, part)) for label, part in lives.items()},
        }
    columns = ["gate", "mean", "spread (standard deviation)", "nearly shut (%)", "nearly open (%)"]
    report.tables.append(Table("Gates over the text", columns, gate_rows))
    if life_rows:
        columns = ["layer", "lower quartile (tokens)", "median (tokens)", "upper quartile (tokens)"]
        report.tables.append(Table("Half-life of the memory, over units", columns, life_rows))
        title, units, tokens = "Half-life of the memory", "share of units (%)", "half-life (tokens)"
        note = "Units in the order of their half-lives, of the direct path alone."
        chart = Chart(title, "lines", units, tokens, life_series, y_scale="log", note=note)
        report.charts.append(chart)
    report.remarks.append(
        f"Nearly shut and nearly open are within {NEAR:.0%} of the ends of the range; ReLUs are "
        "shut at zero or below, and never open."
    )
    return report


def _summary(values_NH: Tensor, bounds: Range | None) -> dict[str, Any]:
    """Return the mean, spread, shares at the ends and histogram of a gate."""
    low, high = bounds or (float(values_NH.min().clamp(max=0)), float(values_NH.max().clamp(min=1)))
    margin = NEAR * (high - low)
    if bounds is None:  # a rectifier
        is_low, is_high = values_NH <= 0, torch.zeros_like(values_NH)
    else:
        is_low, is_high = values_NH < low + margin, values_NH > high - margin
    counts, edges = np.histogram(values_NH.numpy(), bins=NUM_BINS, range=(low, high))
    return {
        "mean": float(values_NH.mean()),
        "spread": float(values_NH.std(correction=0)),
        "share_low": float(is_low.double().mean()),
        "share_high": float(is_high.double().mean()),
        "bin_edges": edges.tolist(),
        "histogram": (counts / values_NH.numel()).tolist(),
    }


def _or_none(life: float) -> float | None:
    """Return None for a half-life without end."""
    return life if math.isfinite(life) else None
