"""The streams of a batch, divided among the threads of the CPU.

Each step of a recurrent loop waits for the one before, and its products are too small for several
threads. But streams know nothing of each other within a window: so each thread takes some of them
through all its steps, and back. Products over all steps, before and after the loop, are large, and
have several threads each.

Parts depend on the sizes and the type of the products, on the number of threads and on the
processor, and on nothing that is timed: a run that is resumed on the same machine, with the same
threads, ends with the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqtool.lm.neural.products import has_bf16_dot_products, torch_is_faster, workers
from seqtool.lm.neural.recurrent_products import LANES

T = TypeVar("T")

FEWEST = 16  # streams of a part: products of fewer columns take nearly as long
# multiplications of each product of a part: threads take turns in Python, and shorter ones wait
LEAST_WORK = 3_000_000


def parts_of(num_streams: int, num_weights: int, *, bf16: bool) -> list[slice]:
    """Return the streams of each part; one part where dividing does not pay.

    Args:
        num_streams: of the batch.
        num_weights: of each product in the loop.
        bf16: whether products are of bfloat16.
    """
    # torch's own products wake threads by themselves, MKL's in each of ours
    is_ours = not torch_is_faster() and (has_bf16_dot_products() or not bf16)
    # a tile of bfloat16 has 16 columns or more, whether they are used or not
    num_parts = -(-num_streams // LANES) if bf16 else num_streams // FEWEST
    num_parts = min(num_parts, num_streams * num_weights // LEAST_WORK)
    num = max(1, min(torch.get_num_threads(), num_parts)) if is_ours else 1
    borders = [num_streams * place // num for place in range(num + 1)]
    return [slice(*pair) for pair in itertools.pairwise(borders)]


def joined(parts_TBI: Sequence[Tensor]) -> Tensor:
    """Return the streams of all parts, (T, B, I)."""
    return parts_TBI[0] if len(parts_TBI) == 1 else torch.cat(list(parts_TBI), dim=1)


def in_threads(function: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
    """Return what a function makes of each part, a thread for each; as `map`.

    No gradient is recorded. What torch does by several threads does not belong in it: each of these
    threads would get others of its own.
    """

    def call(*of_part: Any) -> T:
        with torch.no_grad():  # which each thread has for itself
            return function(*of_part)

    first, *others = zip(*arguments, strict=True)
    pending = [workers(len(others)).submit(call, *of_part) for of_part in others]
    try:
        # the calling thread takes a part, too: it would only wait
        return [call(*first), *(other.result() for other in pending)]
    finally:
        wait(pending)  # also after an error: they write into what is the caller's
