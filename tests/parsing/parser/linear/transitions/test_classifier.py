"""Sums of rows of weights, as NumPy makes them."""

from __future__ import annotations

import numpy as np
import pytest

from seqtool.parsing.encoding.sparse import score_rows


@pytest.mark.parametrize("num_rows", [0, 1, 3, 4, 11])
@pytest.mark.parametrize("num_transitions", [1, 33])
def test_rows_of_weights_are_added(num_rows: int, num_transitions: int) -> None:
    random = np.random.default_rng(0)
    size = 1000
    # whole numbers, whose sums are the same in any order and in half precision
    weights = random.integers(-30, 30, size + num_transitions - 1).astype(np.float32)
    rows = random.integers(0, size, (7, num_rows)).astype(np.int32)
    rows[0] = size - 1  # the last row there is
    wanted = weights[rows[:, :, None] + np.arange(num_transitions)].sum(axis=1)
    for given in (weights, weights.astype(np.float16).view(np.uint16)):
        scores = np.full((7, num_transitions), np.nan, np.float32)
        score_rows(rows, given, scores)
        np.testing.assert_array_equal(scores, wanted)


def test_halves_are_read_as_numpy_reads_them() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)  # subnormal numbers and infinities among them
    scores = np.empty((1, 1 << 16), np.float32)
    score_rows(np.zeros((1, 1), np.int32), every, scores)
    # 0 + -0 is 0
    np.testing.assert_array_equal(scores[0], every.view(np.float16).astype(np.float32))
