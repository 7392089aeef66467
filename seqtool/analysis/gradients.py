"""How far back a recurrent network learns: gradients and temporal Jacobians.

Dimensions in names: T steps, B positions of the text, S numbers of a layer's state, K lags.

With L(t) the loss of the token after step t, in nats, d L(t) / d state(t-k) is what k steps of
back-propagation leave of its gradient: the product of k temporal Jacobians. It vanishes or explodes
with k (Bengio, Simard & Frasconi 1994; Pascanu, Mikolov & Bengio 2013), and no faster than the
product of the bounds of the steps (Zilly et al. 2017, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqtool.analysis.recurrence import (
    as_tensor,
    cut,
    inputs_of,
    jacobian_bounds,
    layer_labels,
    losses,
    make_steps,
    open_networks,
    products,
    quantiles,
    read_text,
    spectral_norms,
    spectral_radii,
    spread_out,
    states_at,
    temporal_jacobians,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Style, Table
from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, counted
from seqtool.lm.neural.network import NeuralNetwork

SHOWN_LAGS = (1, 2, 3, 5, 10, 20, 50, 100, 200)  # of tables
QUARTILES = "Line: median over positions of the text; band: quartiles."
EVERY_LAG = 10  # up to it, norms of products are taken at every lag, then at every fifth


@dataclass(frozen=True)
class JacobianSteps:
    """The temporal Jacobians of one layer, over T steps before each of B positions.

    Attributes:
        radii, largest, smallest: spectral radius, largest and smallest singular value of the last
            step's, [B].
        norms: lag k -> largest singular values of the products of k, [B].
        bounds: lag k -> the product of the bounds of these steps, [B].
    """

    radii: Tensor
    largest: Tensor
    smallest: Tensor
    norms: Mapping[int, Tensor]
    bounds: Mapping[int, Tensor]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "spectral_radius": self.radii.tolist(),
            "largest_singular_value": self.largest.tolist(),
            "smallest_singular_value": self.smallest.tolist(),
            "lags": list(self.norms),
            "product_norm": [norms_B.tolist() for norms_B in self.norms.values()],
            "product_bound": [bounds_B.tolist() for bounds_B in self.bounds.values()],
        }


def loss_gradients(network: NeuralNetwork, ids: Ids, positions: Sequence[int], lags: int) -> Tensor:
    """Return the norm of d L(t) / d state(t-k) for k from 0 to `lags`, [K + 1, B].

    The state is that of all layers together, after step t-k; L(t) is minus the log-probability of
    the token after step t, in nats. For k = 0 it is the gradient of what the output layer reads:
    the output of the last layer.

    Args:
        network: in float64.
        ids: a text, [N].
        positions: steps t, ascending, each from `lags` - 1 to N - 1; step t reads the token before
            `ids[t]`, which is the target.
        lags: the largest k, 1 or more.
    """
    starts = [position - lags + 1 for position in positions]
    read = inputs_of(ids)
    current, ids_TB = states_at(network, read, starts), cut(read, starts, lags)
    taken: list[list[Tensor]] = []
    top_BH = torch.empty(0)
    for ids_B in ids_TB.unbind(0):
        # views, so that the gradient of a state holds what goes through the next step alone: not
        # what its layer gives to those above in the same step
        current = [
            tuple((part if taken else part.requires_grad_()).view_as(part) for part in layer)
            for layer in current[: network.config.layers]
        ]
        taken.append([part for layer in current for part in layer])
        done = list(network.steps(network.embedding(ids_B), current))
        current, top_BH = [after for _, _, after, _ in done], done[-1][-1]
    targets_B = as_tensor(ids[list(positions)])
    total = losses(network, ids_TB, top_BH, targets_B).sum()
    gradients = torch.autograd.grad(total, [top_BH, *(part for parts in taken for part in parts)])
    num_parts = len(taken[0])
    norms = [gradients[0].norm(dim=1)]
    for end in range(len(gradients), 1, -num_parts):
        norms.append(torch.cat(gradients[end - num_parts : end], dim=1).norm(dim=1))
    return torch.stack(norms)


def layer_jacobians(
    network: NeuralNetwork, ids: Ids, positions: Sequence[int], lags: int
) -> list[JacobianSteps]:
    """Return the temporal Jacobians of each layer, over the `lags` steps up to each position.

    Args: as of `loss_gradients`.
    """
    starts = [position - lags + 1 for position in positions]
    read = inputs_of(ids)
    with torch.no_grad():
        states, ids_TB = states_at(network, read, starts), cut(read, starts, lags)
        steps = list(make_steps(network, ids_TB, states))
    wanted = {k for k in range(1, lags + 1) if k <= EVERY_LAG or k % 5 == 0 or k == lags}
    layers = []
    for of_layer in zip(*steps, strict=True):
        matrices = [temporal_jacobians(at.cell, at.inputs_BI, at.before) for at in of_layer]
        with torch.no_grad():
            by_step = [jacobian_bounds(at.cell, at.inputs_BI, at.before) for at in of_layer]
        singular = torch.linalg.svdvals(matrices[-1])
        together = zip(products(matrices), accumulate(reversed(by_step), torch.mul), strict=True)
        norms, bounds = {}, {}
        for k, (product, bound_B) in enumerate(together, start=1):
            if k in wanted:
                norms[k], bounds[k] = spectral_norms(product), bound_B
        layers.append(
            JacobianSteps(
                spectral_radii(matrices[-1]), singular[:, 0], singular[:, -1], norms, bounds
            )
        )
    return layers


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 2000,
    lags: int = 50,
    num_positions: int = 64,
    num_jacobians: int = 4,
) -> Report:
    """Measure how far back the gradients of recurrent language models reach.

    Args, beside those of `seqtool.analysis`:
        lags: the largest lag k, in tokens.
        num_positions: of the text, drawn, where the loss is taken; the more, the surer.
        num_jacobians: of these, where the temporal Jacobians of all lags are taken: slow.
    """
    if lags < 1 or num_positions < 1 or num_jacobians < 1:
        what = "lags, num_positions and num_jacobians must be at least 1"
        raise ConfigError(what, hint="give larger numbers")
    every = list(range(lags + 1))
    values: dict[str, Any] = {}
    report = Report("Gradients through time", values={"lags": every, "models": values})
    gradient_rows: list[list[Cell]] = []
    jacobian_rows: list[list[Cell]] = []
    norms_of: list[Series] = []
    shares_of: list[Series] = []
    products_of: list[Series] = []
    for name, model, network in open_networks(models):
        ids = read_text(name, model, text, split=split, num_tokens=num_tokens, needed=lags + 1)
        positions = spread_out(lags, len(ids) - 1, num_positions, seed)
        norms_KB = loss_gradients(network, ids, positions, lags)
        spread = _quartiles(norms_KB)
        shares = _quartiles(norms_KB / norms_KB[0])
        for series, (low, middle, high) in ((norms_of, spread), (shares_of, shares)):
            series.append(Series(name, every, middle, low=low, high=high))
        for k in (k for k in (0, *SHOWN_LAGS) if k <= lags):
            gradient_rows.append([name, k, *(part[k] for part in spread), shares[1][k]])
        report.remarks.append(_half_way(name, shares[1]))
        chosen = positions[:: max(1, len(positions) // num_jacobians)][:num_jacobians]
        layers = layer_jacobians(network, ids, chosen, lags)
        for label, steps in zip(layer_labels(name, network), layers, strict=True):
            measured = (steps.radii, steps.largest, steps.smallest)
            jacobian_rows.append([label, *(quantiles(part.tolist())[1] for part in measured)])
            at = list(steps.norms)
            for suffix, by_lag in (("", steps.norms), (": bound", steps.bounds)):
                middles = [quantiles(by_lag[k].tolist())[1] for k in at]
                style: Style = "dashed" if suffix else "solid"
                products_of.append(Series(f"{label}{suffix}", at, middles, style=style))
        names = ("lower_quartile", "median", "upper_quartile")
        values[name] = {
            "positions": len(positions),
            "gradient_norm": dict(zip(names, spread, strict=True)),
            "share_of_lag_0": dict(zip(names, shares, strict=True)),
            "layers": [steps.to_json() for steps in layers],
        }
    lag, norm = "lag k (tokens)", "norm of d loss(t) / d state(t-k) (nats)"
    columns = ["model", lag, "lower quartile (nats)", "median (nats)", "upper quartile (nats)"]
    columns.append("median share of lag 0")
    report.tables.append(Table("Norm of d loss(t) / d state(t-k)", columns, gradient_rows))
    columns = ["layer", "spectral radius", "largest singular value", "smallest singular value"]
    title = "Temporal Jacobian d state(t) / d state(t-1), medians over positions"
    report.tables.append(Table(title, columns, jacobian_rows))
    straight = f"{QUARTILES} A straight line falls by the same factor with each token."
    at_most = "Dashed: what the weights and gates of these steps allow at most."
    share, multiplied = "norm at lag k / norm at lag 0", "steps multiplied (tokens)"
    report.charts = [
        Chart(title, "lines", x_label, y_label, series, y_scale="log", note=note)
        for title, x_label, y_label, series, note in (
            ("Gradient of the loss by an earlier state", lag, norm, norms_of, QUARTILES),
            ("The same as a share of lag 0", lag, share, shares_of, straight),
            ("Products of temporal Jacobians", multiplied, columns[2], products_of, at_most),
        )
    ]
    return report


def _half_way(name: str, shares: Sequence[float]) -> str:
    """Say where the gradient has shrunk to a hundredth, or grown a hundredfold."""
    for k, share in enumerate(shares):
        if share <= 0.01 or share >= 100:
            verb = "shrunk to a hundredth" if share <= 0.01 else "grown a hundredfold"
            return f"{name}: the median gradient has {verb} after {counted(k, 'token')}."
    tokens = counted(len(shares) - 1, "token")
    return f"{name}: after {tokens}, the median gradient has {shares[-1]:.3g} of its norm."


def _quartiles(values_KB: Tensor) -> tuple[list[float], list[float], list[float]]:
    """Return the lower quartile, the median and the upper quartile by lag, [K + 1] each."""
    low, middle, high = zip(*(quantiles(row) for row in values_KB.tolist()), strict=True)
    return list(low), list(middle), list(high)
