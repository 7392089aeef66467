"""Products of matrices on the CPU, by the library that is fast at them.

torch's own library for float32 (MKL) runs at half its speed on processors that are not Intel's;
NumPy's (OpenBLAS) knows them all. In GFLOP/s of one core, float32, and bfloat16 by torch:

                             EPYC (Zen 5)               Xeon (AVX-512)
    rows x inner x columns   torch   NumPy   bfloat16   torch   NumPy
      350 x 256 x 33,278        93     242        462
      512 x 256 x 32           106     214        316     179     109
    1,600 x 800 x 32                                      162     109

So NumPy makes those of float32 and float64 wherever it was built with a fast library, but on
Intel's processors torch does, where it has MKL; torch makes those of bfloat16. The library and the
processor decide, nothing is timed: a run that is resumed on the same machine, with the same
threads, ends with the same bits. A run's log names both.

OpenBLAS's own threads wait for each other by spinning: beside torch's, or where another program has
one of the cores, a small product then takes many times as long. So they are left unused: within
`runtime.one_blas_thread`, small products are made by the calling thread, and large ones in parts by
as many threads as torch is given.

Each step of a recurrent loop waits for the one before, and its products are too small for several
threads. But streams know nothing of each other within a window: so each thread takes some of them
through all its steps, and back (`parts_of`, `in_threads`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqtool.core import runtime
from seqtool.core.arrays import Reals
from seqtool.lm.neural import bf16_product
from seqtool.training import hardware

T = TypeVar("T")

_LARGE = 10_000_000  # multiplications from which a product is worth waking another thread
FEWEST = 16  # streams of a part: products of fewer columns take nearly as long
# multiplications of each product of a part: threads take turns in Python, and shorter ones wait
LEAST_WORK = 3_000_000


def factor_type(numbers: Tensor) -> torch.dtype:
    """Return the type of the factors of products with these numbers.

    It is bfloat16 within `hardware.autocast` of that precision, else the numbers' own. Nothing else
    under `lm.neural` chooses a precision, but `Cell.bf16_on_cpu` may keep a layer out of it.
    """
    device = numbers.device.type
    return torch.bfloat16 if torch.is_autocast_enabled(device) else numbers.dtype


@cache
def numpy_is_fast() -> bool:
    """Return whether NumPy was built with a fast library, as its own record of the build says."""
    name = hardware.blas_of_numpy().lower()
    return any(fast in name for fast in ("openblas", "mkl", "accelerate"))


@cache
def torch_is_faster() -> bool:
    """Return whether torch's products are the faster ones: MKL's, on a processor of Intel's."""
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return has_mkl and runtime.cpu_vendor() == "GenuineIntel"


@cache
def workers(num: int) -> ThreadPoolExecutor:
    """Return so many threads, which wait for work."""
    return ThreadPoolExecutor(num, thread_name_prefix="product")


def small_product(left_MK: Reals, right_KN: Reals, out_MN: Reals) -> None:
    """Write a product of arrays into `out`, by the calling thread."""
    # with several threads torch would wake them, for which a small product is too short
    if torch_is_faster() and torch.get_num_threads() == 1:
        left, right, out = map(torch.from_numpy, (left_MK, right_KN, out_MN))
        torch.mm(left, right, out=out)
    else:
        np.matmul(left_MK, right_KN, out=out_MN)


def product(left_MK: Tensor, right_KN: Tensor, out_MN: Tensor) -> Tensor:
    """Write a product into `out`, and return it; no gradient is recorded.

    Tensors are all of one type and on the CPU.
    """
    num_threads = torch.get_num_threads()
    is_large = left_MK.numel() * right_KN.shape[1] >= _LARGE
    by_torch = torch_is_faster() and (num_threads == 1 or is_large)
    if left_MK.dtype == torch.bfloat16 or by_torch or not numpy_is_fast():
        return torch.mm(left_MK, right_KN, out=out_MN)
    left, right, out = left_MK.detach().numpy(), right_KN.detach().numpy(), out_MN.numpy()
    if num_threads == 1 or not is_large:
        np.matmul(left, right, out=out)
        return out_MN
    # along the longer side, so that each thread's part is as square as can be
    by_rows = len(left) > right.shape[1]
    size = max(out.shape)
    step = -(-size // num_threads)
    parts = [slice(start, min(start + step, size)) for start in range(0, size, step)]

    def make(part: slice) -> None:
        if by_rows:
            np.matmul(left[part], right, out=out[part])
        else:
            np.matmul(left, right[:, part], out=out[:, part])

    in_threads(make, parts)
    return out_MN


def parts_of(num_streams: int, num_weights: int, *, bf16: bool) -> list[slice]:
    """Return the streams of each part; one part where dividing does not pay.

    Args:
        num_streams: of the batch.
        num_weights: of each product in the loop.
        bf16: whether products are of bfloat16.
    """
    # torch's products, of bfloat16 and MKL's, would wake threads of their own in each of ours
    is_ours = not torch_is_faster() and (bf16_product.is_fast() or not bf16)
    # a tile of bfloat16 has 16 columns or more, whether they are used or not
    num_parts = -(-num_streams // bf16_product.LANES) if bf16 else num_streams // FEWEST
    num_parts = min(num_parts, num_streams * num_weights // LEAST_WORK)
    num = max(1, min(torch.get_num_threads(), num_parts)) if is_ours else 1
    borders = [num_streams * place // num for place in range(num + 1)]
    return [slice(*pair) for pair in itertools.pairwise(borders)]


def in_threads(function: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
    """Return what a function makes of each part, a thread for each; as `map`.

    No gradient is recorded. What torch does by several threads does not belong in it: each of these
    threads would get others of its own.
    """
    first, *others = zip(*arguments, strict=True)

    def call(*of_part: Any) -> T:
        with torch.no_grad():  # which each thread has for itself
            return function(*of_part)

    if not others:
        return [call(*first)]
    pending = [workers(len(others)).submit(call, *of_part) for of_part in others]
    try:
        # the calling thread takes a part, too: it would only wait
        return [call(*first), *(other.result() for other in pending)]
    finally:
        wait(pending)  # also after an error: they write into what is the caller's
