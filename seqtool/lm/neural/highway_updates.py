"""The elementwise part of the recurrent highway's micro-steps, as compiled loops.

Dimensions in names as in `features_first.py`. Factors of products are of the state's type, or of
bfloat16, which NumPy does not have: they are its bits then, in uint16. What is computed is summed,
rounded and laid out for all products in the same pass; short loops over flat arrays are what the
compiler makes vectors of. Imports Numba, so on use only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from seqtool.core.compiled import compiled

_int = types.int64
_NUMBERS = (types.float32, types.float64)
# types of the states, and of the factors of products
_FACTORS = (
    (types.float32, types.float32),
    (types.float32, types.uint16),
    (types.float64, types.float64),
)


def _factor(value: Any, factors: Any) -> Any:
    """Return a value as it is stored among factors; to bfloat16, ties are rounded to even."""


@overload(_factor)
def _factor_number(value, factors):  # type: ignore[no-untyped-def]
    def same(value, factors):  # type: ignore[no-untyped-def]
        return value

    def bits(value, factors):  # type: ignore[no-untyped-def]
        pattern = np.float32(value).view(np.uint32)
        is_odd = (pattern >> np.uint32(16)) & np.uint32(1)
        rounded = np.uint16((pattern + np.uint32(0x7FFF) + is_odd) >> np.uint32(16))
        return np.uint16(0x7FC0) if np.isnan(value) else rounded

    return bits if factors.dtype == types.uint16 else same


@compiled(
    [
        types.void(
            number[:, :, :, ::1],
            number[:, ::1],
            _int,
            _int,
            factor[:, ::1],
            factor[:, :, :, ::1],
        )
        for number, factor in _FACTORS
    ]
)
def enter(states_DTHB, mask_HB, level, at, factors_HB, entering_DHTB):  # type: ignore[no-untyped-def]
    """Write what enters a micro-step, masked, for its product and for that of the gradient."""
    state_HB = states_DTHB[level, at]
    for unit in range(state_HB.shape[0]):
        for stream in range(state_HB.shape[1]):
            factor = _factor(state_HB[unit, stream] * mask_HB[unit, stream], factors_HB)
            factors_HB[unit, stream] = factor
            entering_DHTB[level, unit, at, stream] = factor


@compiled(
    [
        types.void(number[:, ::1], number[:, :, ::1], number[:, ::1], _int, _int)
        for number in _NUMBERS
    ]
)
def add(product_GB, projected_GTB, bias_DG, level, step):  # type: ignore[no-untyped-def]
    """Add to a product what the input or the bias does, which makes it the pre-activations."""
    for row in range(product_GB.shape[0]):
        if level == 0:
            for stream in range(product_GB.shape[1]):
                product_GB[row, stream] += projected_GTB[row, step, stream]
        else:
            bias = bias_DG[level, row]
            for stream in range(product_GB.shape[1]):
                product_GB[row, stream] += bias


@compiled(
    [
        types.void(
            number[:, ::1],
            number[:, :, :, ::1],
            number[:, :, :, ::1],
            number[:, ::1],
            _int,
            _int,
        )
        for number in _NUMBERS
    ]
)
def update(bounded_GB, gates_DTGB, states_DTHB, last_HB, level, at):  # type: ignore[no-untyped-def]
    """Write the gates, of what came out of the tanh, and the next state; the last one is apart."""
    depth, _, size, batch = states_DTHB.shape
    bounded = bounded_GB.reshape(-1)
    gates, source = gates_DTGB[level, at].reshape(-1), states_DTHB[level, at].reshape(-1)
    target = (states_DTHB[level + 1, at] if level + 1 < depth else last_HB).reshape(-1)
    length, half = size * batch, bounded_GB.dtype.type(0.5)
    candidate, opened, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    for index in range(length):
        candidate[index] = bounded[index]
    sigmoids, halved = gates[length:], bounded[length:]
    for index in range(len(sigmoids)):
        sigmoids[index] = half * halved[index] + half
    if len(carry) == 0:
        for index in range(length):  # s + (h - s) t
            change = (candidate[index] - source[index]) * opened[index]
            target[index] = change + source[index]
    else:
        for index in range(length):  # h t + s c
            target[index] = candidate[index] * opened[index] + source[index] * carry[index]


@compiled(
    [
        types.void(
            number[:, :, :, ::1],
            number[:, :, :, ::1],
            number[:, ::1],
            _int,
            _int,
            number[:, :, ::1],
            factor[:, ::1],
            factor[:, :, :, ::1],
        )
        for number, factor in _FACTORS
    ]
)
def differentiate(  # type: ignore[no-untyped-def]
    gates_DTGB, states_DTHB, running_HB, level, at, summed_DGB, factors_GB, history_DGTB
):
    """Go back through an update: gradients of the pre-activations, and of what was carried.

    `running` is the gradient of the target, and becomes that of what the source carried to it.
    """
    length = running_HB.size
    gates, source = gates_DTGB[level, at].reshape(-1), states_DTHB[level, at].reshape(-1)
    candidate, opened, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    running, summed = running_HB.reshape(-1), summed_DGB[level].reshape(-1)
    factors, grads = factors_GB.reshape(-1), np.empty_like(gates)
    one = running_HB.dtype.type(1)
    first, second, third = grads[:length], grads[length : 2 * length], grads[2 * length :]
    for index in range(length):
        slope = (one - candidate[index] * candidate[index]) * opened[index]
        first[index] = slope * running[index]
    if len(carry) == 0:
        for index in range(length):
            closed = one - opened[index]
            slope = (candidate[index] - source[index]) * opened[index] * closed
            second[index] = slope * running[index]
        for index in range(length):
            running[index] *= one - opened[index]
    else:
        for index in range(length):
            slope = opened[index] * (one - opened[index]) * candidate[index]
            second[index] = slope * running[index]
        for index in range(length):
            slope = (one - carry[index]) * carry[index] * source[index]
            third[index] = slope * running[index]
        for index in range(length):
            running[index] *= carry[index]
    for index in range(len(grads)):
        summed[index] += grads[index]
        factors[index] = _factor(grads[index], factors)
    for row in range(len(factors_GB)):
        for stream in range(factors_GB.shape[1]):
            history_DGTB[level, row, at, stream] = factors_GB[row, stream]


@compiled([types.void(number[:, ::1], number[:, ::1], number[:, ::1]) for number in _NUMBERS])
def join(product_HB, mask_HB, running_HB):  # type: ignore[no-untyped-def]
    """Add what came through a product, and its mask, to the gradient of the state."""
    product, mask, running = product_HB.reshape(-1), mask_HB.reshape(-1), running_HB.reshape(-1)
    for index in range(len(running)):
        running[index] += product[index] * mask[index]
