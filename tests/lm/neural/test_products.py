"""Products by the library, and by the instruction, that is fast at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from seqtool.core.runtime import one_blas_thread
from seqtool.lm.neural import products
from seqtool.lm.neural.products import product, small_product


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "_LARGE", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 7), (64, 3, 5), (5, 3, 64), (17, 8, 16)])
@pytest.mark.usefixtures("three_threads")
def test_parts_make_the_whole(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    # small whole numbers: every sum is exact, in whatever order
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(rows)
    left = torch.randint(-3, 4, (rows, inner), generator=generator)
    right = torch.randint(-3, 4, (inner, columns), generator=generator)
    expected = (left @ right).to(dtype)
    for transposed in (False, True):
        factor = right.to(dtype)
        if transposed:
            factor = factor.t().contiguous().t()
        out = torch.empty(rows, columns, dtype=dtype)
        with one_blas_thread():
            assert product(left.to(dtype), factor, out) is out
        assert torch.equal(out, expected)


@pytest.mark.parametrize("by_torch", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_either_library_makes_the_product(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, by_torch: bool
) -> None:
    monkeypatch.setattr(products, "torch_is_faster", lambda: by_torch)
    generator = torch.Generator().manual_seed(1)
    left = torch.randint(-3, 4, (17, 8), generator=generator).to(dtype)
    right = torch.randint(-3, 4, (20, 8), generator=generator).to(dtype).t()
    expected = left @ right
    for num_threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(num_threads)
        outs = torch.full((2, 17, 20), torch.nan, dtype=dtype)
        product(left, right, outs[0])
        small_product(left.numpy(), right.numpy(), outs[1].numpy())
        torch.set_num_threads(before)
        assert torch.equal(outs[0], expected)
        assert torch.equal(outs[1], expected)
