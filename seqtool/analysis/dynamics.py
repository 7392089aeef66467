"""Where a state settles: fixed points, cycles and basins of a map, and of a recurrent network.

Dimensions in names: B starts, S numbers of a state, T steps, N tokens.

A map f sends a state to the next, as a recurrent network does while its input stays the same. A
fixed point is f(x) = x. By the spectral radius of the Jacobian there, it is a sink (below 1: states
near it come to it), a source (every eigenvalue above 1 in size: they leave it) or a saddle. A cycle
of p states is a fixed point of f applied p times. The basin of a sink or a cycle is what comes to
it. While a text is read there is no fixed point, but two starts may still stay apart for ever: then
the perplexity depends on where the network began.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqtool.analysis.recurrence import (
    WINDOW,
    as_tensor,
    flatten,
    inputs_of,
    jacobians,
    open_networks,
    read_text,
    spread_out,
    states_at,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, counted
from seqtool.core.units import perplexity_of
from seqtool.core.vocabulary import EOS
from seqtool.lm.neural.network import NeuralNetwork

Map = Callable[[Tensor], Tensor]  # states [B, S] -> the next states [B, S], row by row

MOST_STEPS = 2000  # that a start is followed
LONGEST_CYCLE = 16
TOLERANCE = 1e-9  # by which two states are the same, as a share of their size or of 1
APART = 1e-5  # fixed points nearer than this, in the same measure, are one
NEWTON_STEPS = 30
UNEQUAL = 0.1  # perplexities of two basins that differ by more, a share of the smaller, are told
SAME_END = 1e-2  # states after a text nearer than this, in the same measure, are in one basin
NUM_PARTS = 10  # of a text, each with its perplexity


@dataclass(frozen=True)
class Orbit:
    """A fixed point or a cycle of a map.

    Attributes:
        states: in their order, [period, S].
        eigenvalues: complex, the largest first, of the product of the Jacobians over the cycle.
        starts: which starts came to it; none if Newton's method has found it.
    """

    states: Tensor
    eigenvalues: Tensor
    starts: Sequence[int] = ()

    @property
    def period(self) -> int:
        """Return the number of its states; 1 is a fixed point."""
        return len(self.states)

    @property
    def spectral_radius(self) -> float:
        """Return the largest absolute eigenvalue."""
        return float(self.eigenvalues.abs().max())

    @property
    def kind(self) -> str:
        """Return whether states near it come, leave, or both, or go round in a cycle."""
        if self.period > 1:
            return "cycle"
        if self.starts or self.spectral_radius < 1:
            return "sink"
        return "source" if float(self.eigenvalues.abs().min()) > 1 else "saddle"

    def is_at(self, state_S: Tensor) -> bool:
        """Return whether it is the fixed point at this state."""
        return self.period == 1 and float(_distances(state_S, self.states[0])) < APART


def _distances(one_BS: Tensor, other_BS: Tensor) -> Tensor:
    """Return how far states are apart [B], as a share of their size or of 1."""
    scale = torch.maximum(one_BS.norm(dim=-1), torch.ones(()).double())
    distances: Tensor = (one_BS - other_BS).norm(dim=-1) / scale
    return distances


def settle(step: Map, starts_BS: Tensor, *, most_steps: int = MOST_STEPS) -> tuple[Tensor, Tensor]:
    """Follow states until they repeat, and return a round of each and its period.

    Returns:
        The last states, [LONGEST_CYCLE + 1, B, S], and the shortest period of each start [B], 0
        where there is none: it wanders, is unbounded or needs more steps.
    """
    current_BS = starts_BS
    for number in range(most_steps):
        next_BS = step(current_BS)
        is_still = bool((_distances(next_BS, current_BS) < TOLERANCE / 100).all())
        current_BS = next_BS
        if is_still or (number % 100 == 99 and not bool(torch.isfinite(current_BS).any())):
            break
    rounds = [current_BS]
    for _ in range(LONGEST_CYCLE):
        rounds.append(step(rounds[-1]))
    rounds_PBS = torch.stack(rounds)
    periods_B = torch.zeros(len(starts_BS), dtype=torch.int64)
    for period in range(LONGEST_CYCLE, 0, -1):  # a shorter one wins
        is_same = _distances(rounds_PBS[period], rounds_PBS[0]) < TOLERANCE
        periods_B[is_same] = period
    return rounds_PBS, periods_B


def _orbit(step: Map, states_PS: Tensor, starts: Sequence[int] = ()) -> Orbit:
    """Return the orbit of a map through these states."""
    product_SS = torch.eye(states_PS.shape[1], dtype=torch.float64)
    for matrix_SS in jacobians(step, states_PS):
        product_SS = matrix_SS @ product_SS
    eigenvalues_S = torch.linalg.eigvals(product_SS)
    order_S = eigenvalues_S.abs().argsort(descending=True, stable=True)
    return Orbit(states_PS, eigenvalues_S[order_S], starts)


def attractors(step: Map, starts_BS: Tensor) -> list[Orbit]:
    """Return the fixed points and cycles that starts come to, those of many starts first."""
    with torch.no_grad():
        rounds_PBS, periods_B = settle(step, starts_BS)
    groups: list[tuple[Tensor, list[int]]] = []
    for start, period in enumerate(periods_B.tolist()):
        if not period:
            continue
        round_PS = rounds_PBS[:period, start]
        for states_PS, members in groups:
            if len(states_PS) == period:
                near = _distances(states_PS, round_PS[:1].expand(period, -1))
                if float(near.min()) < APART:
                    members.append(start)
                    break
        else:
            groups.append((round_PS, [start]))
    orbits = [_orbit(step, states_PS, members) for states_PS, members in groups]
    return sorted(orbits, key=lambda orbit: -len(orbit.starts))


def fixed_points(step: Map, starts_BS: Tensor) -> list[Orbit]:
    """Return the fixed points that Newton's method finds, sinks or not, by spectral radius.

    Each start x moves by the solution d of (J - I) d = x - f(x), or by half of it, a quarter and so
    on where the whole makes |f(x) - x| larger. That no more are returned proves nothing.
    """
    points: list[Orbit] = []
    for start_S in starts_BS:
        state_S = _newton(step, start_S)
        if state_S is not None and not any(point.is_at(state_S) for point in points):
            points.append(_orbit(step, state_S[None]))
    return sorted(points, key=lambda point: point.spectral_radius)


def _newton(step: Map, state_S: Tensor) -> Tensor | None:
    """Return the fixed point that Newton's method reaches; None where it fails."""
    identity = torch.eye(len(state_S), dtype=torch.float64)
    residual_S = step(state_S[None])[0] - state_S
    size = float(residual_S.norm())
    for _ in range(NEWTON_STEPS):
        matrix_SS = identity - jacobians(step, state_S[None])[0]
        move_S, info = torch.linalg.solve_ex(matrix_SS, residual_S)
        if int(info):  # an eigenvalue of exactly 1: no single point
            break
        for halving in range(8):
            moved_S = state_S + move_S / 2**halving
            moved_residual_S = step(moved_S[None])[0] - moved_S
            if float(moved_residual_S.norm()) < size:
                break
        else:  # as near as it comes
            break
        state_S, residual_S = moved_S, moved_residual_S
        size = float(residual_S.norm())
    return state_S if size < TOLERANCE * max(1.0, float(state_S.norm())) else None


def state_map(network: NeuralNetwork, input_E: Tensor) -> Map:
    """Return what a network makes of the states of all layers, its input being fixed.

    Args:
        network: in float64.
        input_E: an embedding.
    """

    def step(flat_BS: Tensor) -> Tensor:
        walk = network.steps(input_E.expand(len(flat_BS), -1), network.state_from(flat_BS))
        return torch.cat([flatten(after) for _, _, after, _ in walk], dim=1)

    return step


@torch.no_grad()
def nats_by_start(network: NeuralNetwork, ids: Ids, starts_BS: Tensor) -> tuple[Tensor, Tensor]:
    """Return the surprisal of each token of a text from each initial state, and the last states.

    Args:
        network: in float64.
        ids: the text, [N].
        starts_BS: states of all layers; each reads the whole text.

    Returns:
        Nats [N, B], and states [B, S].
    """
    num_starts, states = len(starts_BS), network.state_from(starts_BS)
    read, nats = inputs_of(ids), []
    for begin in range(0, len(ids), WINDOW):
        inputs_TB = as_tensor(read[begin : begin + WINDOW])[:, None].repeat(1, num_starts)
        targets_TB = as_tensor(ids[begin : begin + WINDOW])[:, None].repeat(1, num_starts)
        output = network.output(inputs_TB, states)
        hidden_TBH, states = network(inputs_TB, states)
        logs_N = output.target_log_probs(hidden_TBH.flatten(0, 1), targets_TB.flatten())
        nats.append(-logs_N.view(targets_TB.shape))
    return torch.cat(nats), network.flat_state(states)


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 500,
    tokens: Sequence[str] = ("</s>",),
    num_starts: int = 24,
    num_newton: int = 8,
) -> Report:
    """Show where recurrent language models settle, and whether it matters where they begin.

    Args, beside those of `seqtool.analysis`:
        num_tokens: of the text, that are read from each initial state.
        tokens: each is a fixed input; the mean embedding over the text is one more.
        num_starts: states that are followed for each input: zero, some of the text, drawn ones.
        num_newton: of these, from which Newton's method looks for fixed points that are no sinks.
    """
    if num_starts < 4 or num_newton < 1:
        hint = "follow at least 4 starts, and 1 by Newton's method"
        raise ConfigError(f"num_starts is {num_starts}, num_newton {num_newton}", hint=hint)
    report = Report("Dynamics")
    point_rows: list[list[Cell]] = []
    start_rows: list[list[Cell]] = []
    for name, model, network in open_networks(models):
        ids = read_text(name, model, text, split=split, num_tokens=num_tokens, needed=20)
        read = inputs_of(ids)
        inputs = {token: _embedding(network, model, token) for token in tokens}
        inputs["mean input"] = network.embedding(as_tensor(read)).mean(dim=0)
        starts_BS = _draw_starts(network, read, num_starts, seed)
        initial_states = {"zero": starts_BS[:1], "start of a text": network.start_S[None]}
        initial_states["after the text"] = starts_BS[1:2]
        report.values[name] = {"inputs": {}}
        for label, input_E in inputs.items():
            step = state_map(network, input_E)
            settled = attractors(step, starts_BS)
            points = fixed_points(step, starts_BS[:: max(1, num_starts // num_newton)])
            others = [
                point
                for point in points
                if not any(orbit.is_at(point.states[0]) for orbit in settled)
            ]
            report.values[name]["inputs"][label] = _to_json(settled, points, num_starts)
            rows = _rows([*settled, *others], num_starts)
            point_rows += [[name, label, *row] for row in rows]
            report.charts.append(_plane(f"{name}, {label}", settled, others))
            for number, orbit in enumerate(settled[:3], start=1):
                initial_states[f"{orbit.kind} {number} of {label}"] = orbit.states[:1]
        initial_states["drawn"] = starts_BS[num_starts // 2 :][:6]
        start_rows += _by_start(report, name, network, ids, initial_states)
    columns = ["model", "input", "what", "period (steps)", "spectral radius"]
    columns += ["norm of the state", "starts that come to it (%)"]
    title = "Where states settle while the input stays the same"
    report.tables.append(Table(title, columns, point_rows))
    columns = ["model", "initial state", "perplexity, first half", "second half", "ends in basin"]
    report.tables.append(Table("Perplexity by initial state", columns, start_rows))
    report.remarks.sort(key=lambda remark: not remark.startswith("warning"))
    report.remarks.append(
        "Starts of one basin end in the same state, whatever they began with; a text drives all."
    )
    return report


def _embedding(network: NeuralNetwork, model: Any, token: str) -> Tensor:
    vocabulary = model.tokenizer.vocabulary
    if token not in vocabulary:
        hint = f"choose another, such as {' or '.join(vocabulary.nearest(token)) or EOS}"
        raise ConfigError(f"no token of the model is {token!r}", hint=hint)
    return network.embedding.weight[vocabulary.id(token)]


def _draw_starts(network: NeuralNetwork, read: Ids, num: int, seed: int) -> Tensor:
    """Return states to start from, [num, S]: zero, the last of a text, others of it, drawn ones.

    Half are zero, states of the text, and these with the opposite sign; the other half is drawn
    from a normal distribution, each number with twice the root mean square that it has in the text.
    """
    places = [*spread_out(0, len(read) - 1, max(1, num // 4), seed), len(read)]
    visited_BS = network.flat_state(states_at(network, read, places))
    scale_S = 2 * visited_BS.square().mean(dim=0).sqrt()
    generator = torch.Generator().manual_seed(seed)
    drawn_BS = scale_S * torch.randn(num, len(scale_S), generator=generator, dtype=torch.float64)
    zero_1S = torch.zeros_like(scale_S)[None]
    known_BS = torch.cat([zero_1S, visited_BS[-1:], visited_BS[:-1], -visited_BS])[: num // 2]
    return torch.cat([known_BS, drawn_BS[: num - len(known_BS)]])


def _rows(orbits: Sequence[Orbit], num_starts: int) -> list[list[Cell]]:
    """Return rows of the table: each orbit, and the starts that came to none."""
    rows: list[list[Cell]] = []
    for orbit in orbits:
        share, norm = 100 * len(orbit.starts) / num_starts, float(orbit.states[0].norm())
        rows.append([orbit.kind, orbit.period, orbit.spectral_radius, norm, share])
    wandering = num_starts - sum(len(orbit.starts) for orbit in orbits)
    if wandering:
        rows.append(["not settled", None, None, None, 100 * wandering / num_starts])
    return rows


def _to_json(settled: Sequence[Orbit], points: Sequence[Orbit], num_starts: int) -> dict[str, Any]:
    return {
        "attractors": [
            {"period": one.period, "spectral_radius": one.spectral_radius, "starts": one.starts}
            for one in settled
        ],
        "fixed_points": [
            {"kind": point.kind, "spectral_radius": point.spectral_radius,
             "norm": float(point.states[0].norm())}
            for point in points
        ],
        "num_starts": num_starts,
    }  # fmt: skip


def _plane(label: str, settled: Sequence[Orbit], others: Sequence[Orbit]) -> Chart:
    """Draw the eigenvalues at sinks and at the other fixed points."""
    sinks = [orbit for orbit in settled if orbit.period == 1][:4]
    shown = {f"sink {number}": sink for number, sink in enumerate(sinks, start=1)}
    shown |= {f"{point.kind}, radius {point.spectral_radius:.3g}": point for point in others[:4]}
    series = [
        Series(name, orbit.eigenvalues.real.tolist(), orbit.eigenvalues.imag.tolist())
        for name, orbit in shown.items()
    ]
    title, note = f"Eigenvalues at fixed points: {label}", "All inside the unit circle: a sink."
    return Chart(title, "plane", "real part", "imaginary part", series, note=note)


def _by_start(
    report: Report,
    name: str,
    network: NeuralNetwork,
    ids: Ids,
    initial_states: Mapping[str, Tensor],
) -> list[list[Cell]]:
    """Add the perplexity by initial state to a report, and return rows of its table."""
    labels = [
        f"{label} {number}" if len(states_BS) > 1 else label
        for label, states_BS in initial_states.items()
        for number in range(1, len(states_BS) + 1)
    ]
    nats_NB, ends_BS = nats_by_start(network, ids, torch.cat(list(initial_states.values())))
    half = len(ids) // 2
    halves = nats_NB[:half].mean(dim=0).tolist(), nats_NB[half:].mean(dim=0).tolist()
    first, second = (list(map(perplexity_of, nats)) for nats in halves)
    basins: list[int] = []
    for end, state_S in enumerate(ends_BS):
        is_near = (_distances(state_S.expand(end, -1), ends_BS[:end]) < SAME_END).tolist()
        new = max(basins, default=0) + 1
        basins.append(basins[is_near.index(True)] if any(is_near) else new)
    edges = np.linspace(0, len(ids), NUM_PARTS + 1).astype(int)
    parts = [nats_NB[low:high].mean(dim=0).tolist() for low, high in pairwise(edges)]
    ends = edges[1:].tolist()
    series = [
        Series(label, ends, list(map(perplexity_of, nats)))
        for label, nats in zip(labels, zip(*parts, strict=True), strict=True)
    ]
    title, y_label = f"Perplexity by initial state: {name}", "perplexity of the last"
    y_label += f" {len(ids) // NUM_PARTS:,} tokens"
    report.charts.append(Chart(title, "lines", "tokens read", y_label, series, y_scale="log"))
    low, high = second.index(min(second)), second.index(max(second))
    remark = _since_when(name, ends, parts)
    if basins[low] != basins[high] and second[high] > (1 + UNEQUAL) * second[low]:
        remark = (
            f"warning: {name} has {counted(len(set(basins)), 'basin')}: after {half:,} tokens its "
            f"perplexity is still {second[high]:.1f} from the start {labels[high]!r}, and "
            f"{second[low]:.1f} from {labels[low]!r}. What it scores depends on where it begins."
        )
    report.remarks.append(remark)
    rows = list(zip(labels, first, second, basins, strict=True))
    keys = "start", "first_half", "second_half", "basin"
    report.values[name]["starts"] = [dict(zip(keys, row, strict=True)) for row in rows]
    return [[name, *row] for row in rows]


def _since_when(name: str, ends: Sequence[int], parts: Sequence[Sequence[float]]) -> str:
    """Say after how many tokens the nats of all starts are alike, by those of parts of the text."""
    is_unequal = [math.exp(max(nats) - min(nats)) > 1 + UNEQUAL for nats in parts]
    matters = [end for end, unequal in zip(ends, is_unequal, strict=True) if unequal]
    where = "for the perplexity where it begins"
    if matters[-1:] == [ends[-1]]:
        return f"{name}: after {ends[-1]:,} tokens it still matters {where}."
    after = f"after {matters[-1]:,} tokens" if matters else f"within the first {ends[0]:,} tokens"
    return f"{name}: {after} it no longer matters {where}, within {UNEQUAL:.0%}."
