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

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.jit import compiled

DIRECTIONS = ("forwards", "backwards")  # of a layer

_ints = types.int32[::1]
_floats = types.float32[:, ::1]
_int = types.int64

# a number below 2^22 that is added to it is rounded, ties to even, and stands in its lower bits
SHIFT = np.float32(3 << 22)
ONE, TWO = np.float32(1.0), np.float32(2.0)
BITS_OF_ONE, NUM_BITS = np.int32(127 << 23), np.int32(23)  # those of a float32's fraction
FLATTEST = np.float32(9.0)  # from here on, tanh is 1 but for the last bit
DOUBLED = np.float32(2 / math.log(2))  # exp(2x) as a power of 2
# 2^x - 1 = x ln 2 + (x ln 2)^2 / 2! + ..., as exact as a float32 for |x| <= 1/2
C1, C2, C3, C4, C5, C6 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))


# the usual model of errors looks for divisions by zero, one number at a time
@compiled(types.float32(types.float32), error_model="numpy")
def tanh(x):  # type: ignore[no-untyped-def]
    """Return the hyperbolic tangent, for loops over many numbers at a time; that of NaN is NaN.

    It is (y - 1) / (y + 1) of y = exp(2x), with a relative error of 7e-7 at most. It takes 0.7 ns
    for a number, and NumPy's 2.7, on one core of an AMD EPYC without AVX-512 (Zen 3).
    """
    # comparisons are false for NaN, which stays
    bounded = FLATTEST if x > FLATTEST else x
    bounded = -FLATTEST if bounded < -FLATTEST else bounded
    power = bounded * DOUBLED
    shifted = np.float32(power + SHIFT)
    rest = power - (shifted - SHIFT)
    less_one = rest * (C1 + rest * (C2 + rest * (C3 + rest * (C4 + rest * (C5 + rest * C6)))))
    # the rounded power becomes the exponent of a number; what the shift has set leaves 32 bits
    bits = (np.float32(shifted).view(np.int32) << NUM_BITS) + BITS_OF_ONE
    whole = np.int32(bits).view(np.float32)
    # y - 1, which loses nothing where y is near 1
    above = whole * less_one + (whole - ONE)
    return above / (above + TWO)


@compiled(
    types.void(_floats, _floats, types.float32[::1], _ints, _int, _int, _floats, _floats, _int)
)
def _advance(gates, projected, bias, rows, begin, num_read, cells, states, column):  # type: ignore[no-untyped-def]
    """Make the states of a step, h = o tanh(c) of c = f c + i g.

    Args:
        gates: the recurrent products of the sentences, [B, G]; the rest of a step is added to them.
        projected: the products of inputs, [U, G].
        bias: of the gates.
        rows: of each token in `projected`.
        begin: the first token of the step.
        num_read: sentences that have been read from; those behind them begin here.
        cells: the memory, [B, H].
        states: is written from the token on, in the columns from `column` on.
        column: see above.
    """
    size = cells.shape[1]
    half = np.float32(0.5)
    for place in range(gates.shape[0]):
        gate, added, cell = gates[place], projected[rows[begin + place]], cells[place]
        if place < num_read:
            for unit in range(gates.shape[1]):
                gate[unit] = tanh(gate[unit] + added[unit] + bias[unit])
        else:  # in memory that is used again, so that something is left there
            for unit in range(gates.shape[1]):
                gate[unit] = tanh(added[unit] + bias[unit])
            for unit in range(size):
                cell[unit] = np.float32(0.0)
        # parts of their own: with a column added to it, a unit might be a number below 0, and Numba
        # makes a loop of one at a time
        entering, kept, candidate, opened = (
            gate[:size],
            gate[size : 2 * size],
            gate[2 * size : 3 * size],
            gate[3 * size :],
        )
        to = states[begin + place, column : column + size]
        for unit in range(size):
            # sigmoid(x) = 1/2 + 1/2 tanh(x/2): one tanh over all gates; the weights are halved
            kept_share, share = half + half * kept[unit], half + half * entering[unit]
            memory = kept_share * cell[unit] + share * candidate[unit]
            cell[unit] = memory
            to[unit] = (half + half * opened[unit]) * tanh(memory)


class _Direction:
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
        self._weight_DG, self._recurrent_HG = (
            np.ascontiguousarray((weights[name] * scale[:, None]).T)
            for name in ("weight_ih_l0", "weight_hh_l0")
        )
        self._bias_G: Floats = (weights["bias_ih_l0"] + weights["bias_hh_l0"]) * scale

    def run(
        self,
        inputs_UD: Floats,
        places: Ints,
        counts: list[int],
        states_TS: Floats,
        column: int,
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
            backwards: from the last token to the first.
        """
        # once for each row of inputs, before tokens that share it are told apart
        projected_UG = inputs_UD @ self._weight_DG
        states_TH = states_TS[:, column : column + self.size]
        cells_BH = np.empty((counts[0], self.size), np.float32)
        gates_BG = np.empty((counts[0], 4 * self.size), np.float32)
        begins = np.cumsum([0, *counts]).tolist()
        before, num_before = 0, 0  # where the states of the step before are
        for step in range(len(counts))[:: -1 if backwards else 1]:
            count, begin = counts[step], begins[step]
            gates = gates_BG[:count]
            # sentences end on the way forwards, and begin on the way backwards
            num_read = min(count, num_before)
            # the longest sentences are the first of every step: these are the same ones as now
            states = states_TH[before : before + num_read]
            np.matmul(states, self._recurrent_HG, out=gates[:num_read])
            inputs = projected_UG, self._bias_G, places, begin
            _advance(gates, *inputs, num_read, cells_BH, states_TS, column)
            before, num_before = begin, count


class Recurrence:
    """The layers of `encoder.ContextEncoder`.

    Args:
        weights: its arrays by their names there: `layers.0.forwards.weight_ih_l0` ...
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        layers = sorted({int(name.split(".")[1]) for name in weights})
        self._layers = [
            [_Direction(part_of(weights, f"layers.{number}.{way}.")) for way in DIRECTIONS]
            for number in layers
        ]

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self._layers)

    def states(
        self, inputs_UD: Floats, places: Ints, lengths: Ints, num_layers: int | None = None
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the states of all tokens, step by step.

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
        for layer in self._layers[:num_layers]:
            size = layer[0].size
            states_TS = np.empty((len(places), 2 * size), np.float32)
            for number, direction in enumerate(layer if len(counts) else ()):
                direction.run(
                    inputs_UD, places, counts.tolist(), states_TS, number * size,
                    backwards=number == 1,
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
