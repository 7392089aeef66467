"""The elementwise part of the recurrent highway's micro-steps, as compiled loops.

Dimensions in names as in `features_first.py`. Factors of products are of the state's type, or bfloat16,
which NumPy does not have: then they and what comes of them are its bits, in uint16. Each array is
gone through once: what is computed is also summed, rounded and laid out for the products.
Imports Numba, so on use only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from seqtool.compiled import compiled

_int = types.int64
# types of the states, and of the factors of products
_TYPES = (
    (types.float32, types.float32),
    (types.float32, types.uint16),
    (types.float64, types.float64),
)


def _widened(number):  # type: ignore[no-untyped-def]
    """Return a number of a product as one that is computed with."""


@overload(_widened)
def _widened_number(number):  # type: ignore[no-untyped-def]
    def same(number):  # type: ignore[no-untyped-def]
        return number

    def of_bits(number):  # type: ignore[no-untyped-def]
        return np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)

    return of_bits if number == types.uint16 else same


def _factor(value, factors):  # type: ignore[no-untyped-def]
    """Return a value as it is stored among factors: bfloat16 is rounded to nearest, ties to even."""


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


def _signatures(make: Any) -> list[Any]:
    return [make(number, factor) for number, factor in _TYPES]


@compiled(
    _signatures(
        lambda number, factor: types.void(
            number[:, :, :, ::1],
            number[:, ::1],
            _int,
            _int,
            factor[:, ::1],
            factor[:, :, :, ::1],
        )
    )
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
    _signatures(
        lambda number, factor: types.void(
            factor[:, ::1],
            number[:, :, ::1],
            number[:, ::1],
            _int,
            _int,
            number[:, ::1],
        )
    )
)
def add(product_GB, projected_GTB, bias_DG, level, step, sums_GB):  # type: ignore[no-untyped-def]
    """Write pre-activations: the product, and what the input or the bias adds."""
    for row in range(product_GB.shape[0]):
        if level == 0:
            for stream in range(product_GB.shape[1]):
                number = _widened(product_GB[row, stream])
                sums_GB[row, stream] = number + projected_GTB[row, step, stream]
        else:
            bias = bias_DG[level, row]
            for stream in range(product_GB.shape[1]):
                sums_GB[row, stream] = _widened(product_GB[row, stream]) + bias


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
        for number in (types.float32, types.float64)
    ]
)
def update(bounded_GB, gates_DTGB, states_DTHB, last_HB, level, at):  # type: ignore[no-untyped-def]
    """Write the gates, of what came out of the tanh, and the next state; the last one is apart."""
    depth, _, size, batch = states_DTHB.shape
    gates, source = gates_DTGB[level, at].reshape(-1), states_DTHB[level, at].reshape(-1)
    target = (states_DTHB[level + 1, at] if level + 1 < depth else last_HB).reshape(-1)
    length = size * batch
    candidate, opened, carry = gates[:length], gates[length : 2 * length], gates[2 * length :]
    half = bounded_GB.dtype.type(0.5)
    bounded, squashed = bounded_GB.reshape(-1), gates[length:]
    for index in range(length):
        candidate[index] = bounded[index]
    halves = bounded[length:]
    for index in range(len(squashed)):
        squashed[index] = half * halves[index] + half
    if len(carry) == 0:
        for index in range(length):  # s + (h - s) t
            change = (candidate[index] - source[index]) * opened[index]
            target[index] = change + source[index]
    else:
        for index in range(length):  # h t + s c
            target[index] = candidate[index] * opened[index] + source[index] * carry[index]


@compiled(
    _signatures(
        lambda number, factor: types.void(
            number[:, :, :, ::1],
            number[:, :, :, ::1],
            number[:, ::1],
            _int,
            _int,
            number[:, :, ::1],
            factor[:, ::1],
            factor[:, :, :, ::1],
        )
    )
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


@compiled(
    _signatures(
        lambda number, factor: types.void(factor[:, ::1], number[:, ::1], number[:, ::1])
    )
)
def join(product_HB, mask_HB, running_HB):  # type: ignore[no-untyped-def]
    """Add what came through a product, and its mask, to the gradient of the state."""
    for unit in range(running_HB.shape[0]):
        for stream in range(running_HB.shape[1]):
            through = _widened(product_HB[unit, stream]) * mask_HB[unit, stream]
            running_HB[unit, stream] += through
