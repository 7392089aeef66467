"""Products and the memory they are made in."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from seqtool.lm.neural import products
from seqtool.lm.neural.products import has_bf16_dot_products, one_blas_thread, product
from seqtool.lm.neural.workspace import Workspace


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


@pytest.mark.skipif(not has_bf16_dot_products(), reason="the processor has no such instruction")
@pytest.mark.parametrize("columns", [1, 20, 32, 69])
@pytest.mark.parametrize("inner", [1, 6, 257])
@pytest.mark.parametrize("rows", [1, 16, 21])
def test_pairs_make_the_product(rows: int, inner: int, columns: int) -> None:
    from seqtool.lm.neural import bf16_dot_products

    generator = torch.Generator().manual_seed(rows)
    left, right = (
        torch.randn(shape, generator=generator).bfloat16()
        for shape in ((2, rows, inner), (inner, columns))
    )
    out = np.full((rows, columns), np.nan, np.float32)
    bits = right.view(torch.uint16).numpy()
    for depth, weights in enumerate(bf16_dot_products.pack_pairs(left)):
        bf16_dot_products.multiply(weights, bits, out)
        expected = left[depth].double() @ right.double()
        sizes = left[depth].double().abs() @ right.double().abs()
        error = (torch.from_numpy(out).double() - expected).abs()
        # products are exact, and each of the sums is rounded by 2^-24 of itself or less
        assert (error <= inner * 2.0**-24 * sizes).all()


def test_the_number_of_blas_threads_is_given_back() -> None:
    def threads() -> list[int]:
        return [
            int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"
        ]

    before = threads()
    with one_blas_thread():
        assert set(threads()) <= {1}
    assert threads() == before


def test_memory_is_used_again_when_nobody_holds_it() -> None:
    workspace = Workspace()
    address = workspace.array("a", (3, 4), np.float32).ctypes.data
    assert workspace.array("a", (2, 5), np.float32).ctypes.data == address


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_what_is_held_is_not_overwritten(dtype: torch.dtype) -> None:
    workspace = Workspace()
    row = workspace.tensor("a", (3, 4), dtype).fill_(7)[1]
    other = workspace.tensor("a", (3, 4), dtype).fill_(8)
    assert row.tolist() == [7.0] * 4
    assert other.dtype == dtype


def test_a_gradient_holds_its_memory() -> None:
    # the only reference is the one of torch's graph to the tensor it accumulated
    workspace = Workspace()
    leaf = torch.zeros(4, requires_grad=True)
    leaf.grad = workspace.tensor("a", (4,), torch.float32).fill_(7)
    workspace.tensor("a", (4,), torch.float32).fill_(8)
    assert leaf.grad.tolist() == [7.0] * 4


def test_copies_leave_the_memory_behind() -> None:
    workspace = Workspace()
    workspace.array("a", (1000,), np.float64)
    assert len(pickle.dumps(workspace)) < 200
    copied = copy.deepcopy(workspace)
    assert copied.array("a", (3,), np.float64).shape == (3,)
