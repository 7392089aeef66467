"""Products in whole numbers against exact arithmetic, and the LSTM that is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types

from seqtool.core.arrays import Floats
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.lstm import Recurrence, tanh
from seqtool.parsing.encoding.products import (
    BLOCK,
    IS_FAST,
    NARROWEST,
    ROWS,
    WIDEST,
    Room,
    Weights,
    largest_whole,
)

_reals = types.float32[::1]
whole_numbers = pytest.mark.skipif(not IS_FAST, reason="this processor has no AVX2")


def whole_rows(values: Floats, limit: int) -> tuple[list[list[int]], list[np.float32]]:
    """Rows as whole numbers of Python, and their scales."""
    wholes, scales = [], []
    for row in values:
        top = np.abs(row).max()
        factor = np.float32(limit) / top if top else np.float32(0)
        wholes.append([int(number) for number in np.rint(row * factor)])
        scales.append(top / np.float32(limit))
    return wholes, scales


def exact(values_MK: Floats, values_KN: Floats) -> Floats:
    """The product as the module defines it, with Python's whole numbers, which never overflow."""
    limit = largest_whole(values_MK.shape[1])
    rows, by_row = whole_rows(values_MK, limit)
    columns, by_column = whole_rows(np.ascontiguousarray(values_KN.T), limit)
    product = np.empty((len(rows), len(columns)), np.float32)
    for m, row in enumerate(rows):
        for n, column in enumerate(columns):
            total = sum(a * b for a, b in zip(row, column, strict=True))
            assert abs(total) < 2**31
            product[m, n] = np.float32(total) * by_row[m] * by_column[n]
    return product


def product_of(values: Floats, weights: Weights, *, rows: slice, column: int = 0) -> Floats:
    begin, end, _ = rows.indices(len(values))
    out = np.full((end - begin, weights.shape[1]), np.nan, np.float32)
    weights.multiply(values, out, Room(), begin=begin, column=column)
    return out


def test_the_largest_whole_number() -> None:
    """448 x 2,189^2 = 2,146,691,008 is below 2^31 = 2,147,483,648, and 448 x 2,190^2 is not."""
    assert largest_whole(448) == 2189
    assert 448 * 2189**2 < 2**31 <= 448 * 2190**2


@whole_numbers
@settings(max_examples=25, deadline=None)
@given(
    num_rows=st.integers(1, 2 * ROWS + 3),
    inner=st.integers(NARROWEST, NARROWEST + 9),
    num_columns=st.integers(NARROWEST, NARROWEST + 35),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_those_of_whole_numbers_to_the_bit(
    num_rows: int, inner: int, num_columns: int, seed: int
) -> None:
    """All heights of tiles, odd inner sizes, columns that fill no panel; a part of an array."""
    rng = np.random.default_rng(seed)
    around = rng.normal(size=(num_rows + 3, inner + 5)).astype(np.float32)
    around *= rng.lognormal(0, 4, size=(len(around), 1)).astype(np.float32)
    values_KN = rng.normal(size=(inner, num_columns)).astype(np.float32)
    part = slice(2, 2 + num_rows)
    found = product_of(around, Weights(values_KN), rows=part, column=3)
    expected = exact(np.ascontiguousarray(around[part, 3 : 3 + inner]), values_KN)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("inner", [64, 447, 448, WIDEST, WIDEST + 1, 5000])
def test_the_largest_sums_do_not_overflow(inner: int) -> None:
    """All factors are the largest ones of their rows and columns."""
    signs = np.where(np.arange(NARROWEST) % 2, -1, 1).astype(np.float32)
    values_KN = np.tile(3 * signs, (inner, 1))
    values_MK = np.full((ROWS, inner), 2, np.float32)
    found = product_of(values_MK, Weights(values_KN), rows=slice(None))
    np.testing.assert_allclose(found, np.tile(6 * inner * signs, (ROWS, 1)), rtol=1e-6, atol=0)


@whole_numbers
def test_products_are_close_to_those_of_real_numbers() -> None:
    """A factor is off by half a step at most, so a product of K terms by a bound, and much less."""
    rng = np.random.default_rng(1)
    values_MK, values_KN = rng.normal(size=(20, 448)), rng.normal(size=(448, 100))
    reals = values_MK @ values_KN
    rounded = values_KN.astype(np.float32)
    found = product_of(values_MK.astype(np.float32), Weights(rounded), rows=slice(None))
    limit = largest_whole(448)
    row_steps = np.abs(values_MK).max(1, keepdims=True) / limit
    column_steps = np.abs(values_KN).max(0, keepdims=True) / limit
    bound = row_steps / 2 * np.abs(values_KN).sum(0) + column_steps / 2 * (
        np.abs(values_MK).sum(1, keepdims=True) + 448 * row_steps / 2
    )
    assert (np.abs(found - reals) <= 1.001 * bound).all()
    # errors of rounding are as often above as below: sqrt(K / 12) steps times the other factor
    expected = np.sqrt(448 / 12 * (row_steps**2 + column_steps**2))
    assert 0.8 < np.sqrt(np.mean(((found - reals) / expected) ** 2)) < 1.2


@whole_numbers
def test_a_row_is_alike_among_others() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(BLOCK + ROWS + 1, 100)).astype(np.float32)
    weights = Weights(rng.normal(size=(100, 70)).astype(np.float32))
    together = product_of(values, weights, rows=slice(None))
    for row in (0, ROWS, BLOCK - 1, BLOCK, len(values) - 1):
        alone = product_of(values, weights, rows=slice(row, row + 1))
        np.testing.assert_array_equal(alone[0], together[row])


def test_zeros_and_what_is_no_number() -> None:
    values = np.ones((4, 64), np.float32)
    values[0] = 0
    values[1, 5], values[2, 5] = np.nan, np.inf
    ones = Weights(np.ones((64, 64), np.float32))
    found = product_of(values, ones, rows=slice(None))
    np.testing.assert_array_equal(found[0], 0)
    assert np.isnan(found[1]).all()
    assert not np.isfinite(found[2]).any()
    np.testing.assert_allclose(found[3], 64, rtol=1e-6)


def test_short_products_are_of_real_numbers() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(9, 200)).astype(np.float32)
    values_KN = rng.normal(size=(200, NARROWEST - 1)).astype(np.float32)
    around = np.hstack([np.ones((9, 3), np.float32), values])
    found = product_of(around, Weights(values_KN), rows=slice(2, 7), column=3)
    expected = values[2:7].astype(float) @ values_KN
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    of_few_rows = Weights(np.ascontiguousarray(values_KN[: NARROWEST - 1].T))
    short = product_of(around, of_few_rows, rows=slice(0, 2), column=3)
    of_real = values[:2, : NARROWEST - 1].astype(float) @ values_KN[: NARROWEST - 1].T
    np.testing.assert_allclose(short, of_real, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("rows", "column", "width"), [(slice(0, 6), 0, 70), (slice(0, 2), 9, 70), (slice(0, 2), 0, 71)]
)
def test_no_product_goes_beyond_its_arrays(rows: slice, column: int, width: int) -> None:
    values, weights = np.ones((5, 72), np.float32), Weights(np.ones((64, 70), np.float32))
    with pytest.raises(AssertionError):
        weights.multiply(
            values, np.empty((rows.stop, width), np.float32), Room(), begin=0, column=column
        )


@compiled(types.void(_reals, _reals))
def tanh_of_all(values, results):  # type: ignore[no-untyped-def]
    for place in range(len(values)):
        results[place] = tanh(values[place])


def test_tanh() -> None:
    near_zero = np.logspace(-30, 0, 5001)
    values = np.concatenate([np.linspace(-12, 12, 500_001), near_zero, -near_zero])
    values = np.append(values, [0, 1e30, -np.inf, np.inf]).astype(np.float32)
    found = np.empty_like(values)
    tanh_of_all(values, found)
    np.testing.assert_allclose(found, np.tanh(values.astype(np.float64)), rtol=7e-7, atol=0)
    unknown = np.asarray([np.nan], np.float32)
    tanh_of_all(unknown, unknown)
    assert np.isnan(unknown[0])


def logistic(x: Floats) -> Floats:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


@whole_numbers
def test_the_lstm_is_one_of_whole_numbers() -> None:
    """Against the equations of one direction, token by token, with products as above."""
    size, width, length = 64, 80, 7
    rng = np.random.default_rng(4)
    shapes = {"weight_ih_l0": width, "weight_hh_l0": size, "bias_ih_l0": 0, "bias_hh_l0": 0}
    weights = {
        f"layers.0.{way}.{name}": rng.normal(0, 0.2, (4 * size, n) if n else 4 * size)
        for way in ("forwards", "backwards")
        for name, n in shapes.items()
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    inputs = rng.normal(size=(length, width)).astype(np.float32)
    places = np.arange(length, dtype=np.int32)
    states, _ = Recurrence(weights).states(inputs, places, np.asarray([length], np.int32))
    # gates but the candidate are halved before they are rounded
    scale = np.repeat(np.asarray([0.5, 0.5, 1, 0.5], np.float32), size)[:, None]
    for column, way in ((0, "forwards"), (size, "backwards")):
        own = {name: weights[f"layers.0.{way}.{name}"] for name in shapes}
        of_inputs = np.ascontiguousarray((own["weight_ih_l0"] * scale).T)
        of_states = np.ascontiguousarray((own["weight_hh_l0"] * scale).T)
        state, cell = np.zeros((1, size), np.float32), np.zeros(size, np.float32)
        for token in range(length)[:: 1 if way == "forwards" else -1]:
            sums = exact(inputs[token : token + 1], of_inputs) + exact(state, of_states)
            sums = sums[0] / scale[:, 0] + own["bias_ih_l0"] + own["bias_hh_l0"]
            entering, kept, candidate, opened = np.split(sums, 4)
            cell = logistic(kept) * cell + logistic(entering) * np.tanh(candidate)
            state = (logistic(opened) * np.tanh(cell))[None].astype(np.float32)
            own_states = states[token, column : column + size]
            np.testing.assert_allclose(own_states, state[0], rtol=0, atol=3e-6)
            # an error of a bit may round a whole number another way
            state = own_states[None].copy()
