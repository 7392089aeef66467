"""Small products of bfloat16, beside those of the same numbers in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtool.lm.neural import bf16_product

pytestmark = pytest.mark.skipif(not bf16_product.is_fast(), reason="no AVX-512 with bf16, or AMX")


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 40), inner=st.integers(1, 70), batch=st.integers(1, 70))
def test_products_of_all_shapes(rows: int, inner: int, batch: int) -> None:
    """Whole tiles, narrow ones and edges; nothing beyond the product is written."""
    generator = torch.Generator().manual_seed(rows * inner + batch)
    weights_DMK, factors_KB = (
        torch.randn(shape, generator=generator).bfloat16()
        for shape in ((2, rows, inner), (inner, batch))
    )
    pairs_DMP = bf16_product.pack_pairs(weights_DMK)
    bits_KB = factors_KB.view(torch.uint16).numpy()
    whole = np.full((rows + 2, batch), 7.0, np.float32)
    for pairs_MP, weights_MK in zip(pairs_DMP, weights_DMK, strict=True):
        bf16_product.multiply()(pairs_MP, bits_KB, whole[1:-1])
        expected = (weights_MK.double() @ factors_KB.double()).numpy()
        np.testing.assert_allclose(whole[1:-1], expected, rtol=1e-4, atol=1e-4)
    assert (whole[[0, -1]] == 7.0).all()
