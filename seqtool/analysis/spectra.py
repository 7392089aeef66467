"""Spectra of recurrent weights and of temporal Jacobians, with the discs that hold them.

Dimensions in names: S numbers of a state (rows and columns of a square matrix).

The spectral radius (largest absolute eigenvalue) tells what a linear map does to a state in the
long run, and the largest singular value (the norm `||W||_2`) what it does at most in one step; they
agree for normal matrices alone. By Gersgorin (1931), every eigenvalue lies in one of S discs: that
of row i has the centre a_ii and as radius the sum of |a_ij| over the other columns. A cell that
carries its state has discs near 1 (Zilly et al. 2017, section 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.func import jacrev

from seqtool.analysis.recurrence import (
    as_tensor,
    inputs_of,
    layer_labels,
    make_steps,
    open_networks,
    read_text,
    spread_out,
    states_at,
    temporal_jacobians,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Ids
from seqtool.core.errors import DataError
from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.neural.cells import Cell as RecurrentCell
from seqtool.lm.neural.cells import RecurrentHighwayCell
from seqtool.lm.neural.network import NeuralNetwork

GATES = {
    "rnn": ("recurrent",),
    "lstm": ("input gate", "forget gate", "candidate", "output gate"),
    "gru": ("reset gate", "update gate", "candidate"),
    "rhn": ("candidate", "transform gate", "carry gate"),
}
MOST_DISCS = 48  # of a chart; more hide each other
COLUMNS = (
    *("matrix", "spectral radius", "largest singular value", "smallest singular value"),
    *("mean centre of discs", "mean radius of discs"),
)
HOW_TO_READ = (
    "The spectral radius is the largest absolute eigenvalue, the norm ||W||_2 the largest singular "
    "value. One step can stretch a state by the norm; the radius tells of many steps with the same "
    "matrix."
)


class Spectrum(NamedTuple):
    """What there is to be known of a square matrix.

    Attributes:
        eigenvalues: complex128 [S], the largest first.
        singular_values: [S], the largest first.
        centres, radii: of Gersgorin's discs, by row, [S].
    """

    eigenvalues: Tensor
    singular_values: Tensor
    centres: Tensor
    radii: Tensor

    @property
    def spectral_radius(self) -> float:
        """Return the largest absolute eigenvalue."""
        return float(self.eigenvalues.abs().max())

    @property
    def norm(self) -> float:
        """Return the largest singular value."""
        return float(self.singular_values[0])

    def row(self) -> list[Cell]:
        """Return cells under COLUMNS, but for the first."""
        discs = float(self.centres.mean()), float(self.radii.mean())
        return [self.spectral_radius, self.norm, float(self.singular_values[-1]), *discs]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "spectral_radius": self.spectral_radius,
            "largest_singular_value": self.norm,
            "eigenvalues": [[value.real, value.imag] for value in self.eigenvalues.tolist()],
            "singular_values": self.singular_values.tolist(),
            "disc_centres": self.centres.tolist(),
            "disc_radii": self.radii.tolist(),
        }


def spectrum_of(matrix_SS: Tensor) -> Spectrum:
    """Return the spectrum of a real square matrix, computed in float64."""
    matrix_SS = matrix_SS.double()
    eigenvalues_S = torch.linalg.eigvals(matrix_SS)
    order_S = eigenvalues_S.abs().argsort(descending=True, stable=True)
    centres_S = matrix_SS.diagonal()
    radii_S = (matrix_SS - torch.diag(centres_S)).abs().sum(dim=1)
    singular_S = torch.linalg.svdvals(matrix_SS)
    return Spectrum(eigenvalues_S[order_S], singular_S, centres_S, radii_S)


class Named(NamedTuple):
    """A matrix, and what it is: those of one group are drawn together.

    Attributes:
        group: such as a gate of a layer, or a step.
        part: a recurrence depth, or "" where there is one matrix.
        matrix: [S, S].
    """

    group: str
    part: str
    matrix: Tensor

    @property
    def label(self) -> str:
        """Return the whole name."""
        return f"{self.group}, {self.part}" if self.part else self.group


def recurrent_matrices(cell: RecurrentCell, cell_name: str, label: str) -> Iterator[Named]:
    """Yield the recurrent matrix of each gate, as `matrix @ state` reads it.

    That of an LSTM with a projection is times the projection: what makes of the gates' input of one
    step that of the next.
    """
    gates = GATES[cell_name]
    for number, block in enumerate(cell.recurrent_blocks()):
        if isinstance(cell, RecurrentHighwayCell):
            level, gate = divmod(number, cell.num_gates)
            part = f"depth {level + 1}" if cell.depth > 1 else ""
            yield Named(f"{label}: {gates[gate]}", part, block.t())  # it is used as state @ block
            continue
        matrix = block
        for projection_PH in cell.output_blocks():
            matrix = block @ projection_PH
        yield Named(f"{label}: {gates[number]}", "", matrix)


def depth_jacobians(
    cell: RecurrentHighwayCell, inputs_BI: Tensor, state_BH: Tensor
) -> Iterator[Tensor]:
    """Yield the Jacobian [H, H] of each micro-step of the first stream.

    The Jacobian of the whole step is their product, the last on the left.
    """
    state_BH = state_BH[:1]
    for level in range(cell.depth):

        def alone(state_H: Tensor, level: int = level) -> Tensor:
            return cell.micro_step(level, inputs_BI[:1], state_H[None])[0][0]

        yield jacrev(alone)(state_BH[0])
        state_BH, _ = cell.micro_step(level, inputs_BI[:1], state_BH)


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 2000,
    tokens: Sequence[str] = (),
    num_positions: int = 3,
) -> Report:
    """Show the spectra of recurrent matrices and of temporal Jacobians.

    Args, beside those of `seqtool.analysis`:
        text: a file or directory of text, or a prepared corpus; Jacobians are taken where it is
            read.
        tokens: take the Jacobians where these are first read, after a tenth of the text if they
            come again; none takes positions that are drawn.
        num_positions: how many are drawn.
    """
    report = Report("Spectra", [HOW_TO_READ])
    for name, model, network in open_networks(models):
        ids = read_text(name, model, text, split=split, num_tokens=num_tokens, needed=2)
        vocabulary, read = model.tokenizer.vocabulary, inputs_of(ids)
        if tokens:
            places = [_find(vocabulary, read.tolist(), token, text) for token in tokens]
        else:
            places = spread_out(len(read) // 2, len(read) - 1, num_positions, seed)
        labels = layer_labels(name, network)
        weights = [
            matrix
            for label, cell in zip(labels, network.cells, strict=True)
            for matrix in recurrent_matrices(
                cast("RecurrentCell", cell), network.config.cell, label
            )
        ]
        steps: list[Named] = []
        for place in sorted(set(places)):
            (word,) = vocabulary.decode([int(read[place])])
            steps += _jacobians(labels, network, read, place, f"token {place + 1} ({word})")
        report.values[name] = {}
        for key, title, matrices in (
            ("weights", "Recurrent weights", weights),
            ("jacobians", "Temporal Jacobians", steps),
        ):
            spectra = [(named, spectrum_of(named.matrix)) for named in matrices]
            rows = [[named.label, *spectrum.row()] for named, spectrum in spectra]
            report.tables.append(Table(f"{title} of {name}", COLUMNS, rows))
            report.charts += _planes(spectra)
            report.values[name][key] = {named.label: one.to_json() for named, one in spectra}
    return report


def _find(vocabulary: Vocabulary, read: Sequence[int], token: str, text: str | Path) -> int:
    """Return where a token is read, late enough for the state to be that of a text."""
    number = vocabulary.id(token) if token in vocabulary else None
    places = [place for place, other in enumerate(read) if other == number]
    if not places:
        what = f"the text, as far as it is read, has no token {token!r}"
        raise DataError(what, hint="choose a token of the text, or read more of it", path=text)
    return next((place for place in places if place >= len(read) // 10), places[0])


def _jacobians(
    labels: Sequence[str], network: NeuralNetwork, read: Ids, place: int, at: str
) -> Iterator[Named]:
    """Yield the Jacobian of each layer where a token is read, and of each depth."""
    with torch.no_grad():
        states = states_at(network, read, [place])
        (layers,) = make_steps(network, as_tensor(read[place : place + 1])[:, None], states)
    for label, layer in zip(labels, layers, strict=True):
        group = f"{label}: step at {at}"
        yield Named(group, "", temporal_jacobians(layer.cell, layer.inputs_BI, layer.before)[0])
        if isinstance(layer.cell, RecurrentHighwayCell) and layer.cell.depth > 1:
            parts = depth_jacobians(layer.cell, layer.inputs_BI, layer.before[0])
            for level, matrix in enumerate(parts, start=1):
                yield Named(group, f"depth {level}", matrix)


def _planes(spectra: Sequence[tuple[Named, Spectrum]]) -> Iterator[Chart]:
    """Yield a chart for each group, with the discs of a matrix that stands for all of it."""
    groups: dict[str, dict[str, Spectrum]] = {}
    for named, spectrum in spectra:
        groups.setdefault(named.group, {})[named.part] = spectrum
    for group, parts in groups.items():
        series = [
            Series(part or "eigenvalues", one.eigenvalues.real.tolist(),
                   one.eigenvalues.imag.tolist())
            for part, one in parts.items()
        ]  # fmt: skip
        discs: list[tuple[float, float]] = []
        note = ""
        if whole := parts.get(""):
            num = len(whole.radii)
            step = -(-num // MOST_DISCS)
            centres, radii = whole.centres[::step].tolist(), whole.radii[::step].tolist()
            discs = list(zip(centres, radii, strict=True))
            note = f"Spectral radius {whole.spectral_radius:.4g}, norm {whole.norm:.4g}."
            note += f" {len(discs)} of {num} discs are drawn." if len(discs) < num else ""
        title = f"Eigenvalues: {group}"
        yield Chart(title, "plane", "real part", "imaginary part", series, discs=discs, note=note)
