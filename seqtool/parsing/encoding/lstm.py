"""The contextual encoder at parsing time: a bidirectional LSTM, without torch.

Many sentences are read at once, the longest first, so that those that have a token at some step are
always the first ones; nothing is padded. What belongs to tokens lies step by step, so that a step
is one stretch of memory, one product and a little compiled code:

    step                      0        1        2     3
    token of sentence         0 1 2    0 1 2    0 1   0        of 4, 3 and 2 tokens

    T tokens of all sentences (ROOT is one), B sentences, U rows of inputs, D width of an input,
    H units of a direction, G = 4H

The gates are in torch's order: input, forget, candidate, output. One tanh serves all of them,
sigmoid(x) = (1 + tanh(x / 2)) / 2, and the halves are in the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from seqtool.core import types
from seqtool.core.arrays import Floats, Ints
from seqtool.core.compiled import compiled

DIRECTIONS = ("forwards", "backwards")  # of a layer

_ints = types.int32[::1]
_floats = types.float32[:, ::1]
_int = types.int64


@compiled(types.void(_floats, _floats, types.float32[::1], _ints, _int, _int))
def _add_inputs(gates, projected, bias, rows, begin, num_read):  # type: ignore[no-untyped-def]
    """Add inputs to the gates; those of sentences that begin, from `num_read` on, are empty yet."""
    for place in range(gates.shape[0]):
        row = rows[begin + place]
        if place < num_read:  # the recurrent products are there already
            for unit in range(gates.shape[1]):
                gates[place, unit] += projected[row, unit] + bias[unit]
        else:
            for unit in range(gates.shape[1]):
                gates[place, unit] = projected[row, unit] + bias[unit]


@compiled(types.void(_floats, _floats, _int))
def _update_cells(gates, cells, num_read):  # type: ignore[no-untyped-def]
    """Update the cells: c = f c + i g, of gates after the tanh; c is 0 where a sentence begins."""
    size = cells.shape[1]
    half = np.float32(0.5)
    for place in range(gates.shape[0]):
        if place >= num_read:  # in memory that is used again, so that something is left there
            for unit in range(size):
                cells[place, unit] = np.float32(0.0)
        for unit in range(size):
            # sigmoid(x) = 1/2 + 1/2 tanh(x/2): one tanh over all gates; the weights are halved
            entering = half + half * gates[place, unit]
            kept = half + half * gates[place, size + unit]
            candidate = gates[place, 2 * size + unit]
            cells[place, unit] = kept * cells[place, unit] + entering * candidate


@compiled(types.void(_floats, _floats, _floats, _int, _int))
def _write_states(gates, bounded, states, row, column):  # type: ignore[no-untyped-def]
    """Write the states, h = o tanh(c), into `states` from a row and a column on."""
    size = bounded.shape[1]
    half = np.float32(0.5)
    for place in range(gates.shape[0]):
        # a part of its own: with a column added to it, a unit might be a number below 0, and Numba
        # makes a loop of one at a time
        to = states[row + place, column : column + size]
        for unit in range(size):
            opened = half + half * gates[place, 3 * size + unit]
            to[unit] = opened * bounded[place, unit]


class Room:
    """Memory for arrays of numbers, used again: fresh memory costs as much as what fills it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Floats] = {}

    def array(self, name: str, num_rows: int, width: int) -> Floats:
        """Return an array of any numbers; it takes the memory of the last of its name."""
        size = num_rows * width
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size, np.float32)
        return self._arrays[name][:size].reshape(num_rows, width)


class Direction:
    """One direction of one layer.

    Args:
        weights: `weight_ih_l0` [G, D], `weight_hh_l0` [G, H] and the two biases [G] of
            `torch.nn.LSTM`.
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        scale = np.full(len(weights["bias_ih_l0"]), 0.5, np.float32)
        self.size = len(scale) // 4
        # the candidate is a tanh itself, of the whole sum
        scale[2 * self.size : 3 * self.size] = 1.0
        self._weight_DG = np.ascontiguousarray((weights["weight_ih_l0"] * scale[:, None]).T)
        self._recurrent_HG = np.ascontiguousarray((weights["weight_hh_l0"] * scale[:, None]).T)
        self._bias_G: Floats = (weights["bias_ih_l0"] + weights["bias_hh_l0"]) * scale

    def run(
        self,
        inputs_UD: Floats,
        places: Ints,
        counts: list[int],
        states_TS: Floats,
        column: int,
        room: Room,
        *,
        backwards: bool,
    ) -> None:
        """Read sentences, and write the states into columns of `states`.

        Args:
            inputs_UD: what tokens are read as; tokens may share rows.
            places: the row of each token in `inputs`, [T], step by step.
            counts: how many sentences have a token at each step, one or more.
            states_TS: is written, in the columns from `column` on.
            column: see above.
            room: for what is needed on the way.
            backwards: from the last token to the first.
        """
        size = self.size
        # once for each row of inputs, before tokens that share it are told apart
        projected_UG = room.array("projected", len(inputs_UD), 4 * size)
        np.matmul(inputs_UD, self._weight_DG, out=projected_UG)
        cells_BH, bounded_BH = (room.array(name, counts[0], size) for name in ("cells", "bounded"))
        gates_BG = room.array("gates", counts[0], 4 * size)
        begins = np.cumsum([0, *counts]).tolist()
        before, num_before = 0, 0  # where the states of the step before are
        for step in range(len(counts))[:: -1 if backwards else 1]:
            count, begin = counts[step], begins[step]
            gates = gates_BG[:count]
            # sentences end on the way forwards, and begin on the way backwards
            num_read = min(count, num_before)
            # the longest sentences are the first of every step: these are the same ones as now
            states = states_TS[before : before + num_read, column : column + size]
            np.matmul(states, self._recurrent_HG, out=gates[:num_read])
            _add_inputs(gates, projected_UG, self._bias_G, places, begin, num_read)
            np.tanh(gates, out=gates)
            _update_cells(gates, cells_BH, num_read)
            np.tanh(cells_BH[:count], out=bounded_BH[:count])
            _write_states(gates, bounded_BH, states_TS, begin, column)
            before, num_before = begin, count


class Recurrence:
    """The layers of `encoder.ContextEncoder`.

    Args:
        weights: its arrays by their names there: `layers.0.forwards.weight_ih_l0` ...
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        layers = sorted({int(name.split(".")[1]) for name in weights})
        self._layers = [
            [Direction(part_of(weights, f"layers.{number}.{way}.")) for way in DIRECTIONS]
            for number in layers
        ]
        self._room = Room()

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self._layers)

    def states(
        self, inputs_UD: Floats, places: Ints, lengths: Ints, num_layers: int | None = None
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the states of all tokens, step by step, in memory that the next call takes again.

        Args:
            inputs_UD: what tokens are read as; tokens may share rows.
            places: the row of each token in `inputs`, [T], one sentence after another.
            lengths: tokens of each sentence, one or more.
            num_layers: read only so many; all of them when not given.

        Returns:
            States [T, 2H], and which token each of them is of.
        """
        order = np.argsort(-lengths, kind="stable")
        sizes = lengths[order]
        # how many sentences are longer than each step: sizes fall, so their negatives are sorted
        counts = np.searchsorted(-sizes, -np.arange(sizes.max(initial=0)))
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        ranks = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        tokens = begins[order][ranks] + np.repeat(np.arange(len(counts)), counts)
        places = places[tokens]
        for level, layer in enumerate(self._layers[:num_layers]):
            size = layer[0].size
            # two memories in turn: a layer reads the states of the one before
            states_TS = self._room.array(f"states {level % 2}", len(places), 2 * size)
            for number, direction in enumerate(layer if len(counts) else ()):
                direction.run(
                    inputs_UD, places, counts.tolist(), states_TS, number * size,
                    self._room, backwards=number == 1,
                )  # fmt: skip
            # for the next layer: states are step by step already
            inputs_UD, places = states_TS, np.arange(len(places), dtype=np.int32)
        return inputs_UD, tokens


def part_of(weights: Mapping[str, Floats], prefix: str) -> dict[str, Floats]:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    names = [name for name in weights if name.startswith(prefix)]
    return {name.removeprefix(prefix): weights[name] for name in names}


def bilstm_shapes(name: str, width: int, units: int, num_layers: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of an `encoder.ContextEncoder`, by their names in a network.

    The encoder, of so many units a direction, has a name there, and reads inputs of a width.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(num_layers):
        for direction in DIRECTIONS:
            prefix = f"{name}.layers.{layer}.{direction}"
            shapes[f"{prefix}.weight_ih_l0"] = (4 * units, 2 * units if layer else width)
            shapes[f"{prefix}.weight_hh_l0"] = (4 * units, units)
            shapes[f"{prefix}.bias_ih_l0"] = shapes[f"{prefix}.bias_hh_l0"] = (4 * units,)
    return shapes
