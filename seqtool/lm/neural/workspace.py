"""Arrays that are used again from step to step.

Memory fresh from the system is mapped page by page at its first touch, which takes as long as what
is then computed in it: a few milliseconds per 10 MB.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seqtool.core.arrays import Reals

_TORCH: dict[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.bfloat16: np.uint16,  # NumPy has no type for it
}


def _references_alone() -> int:
    """Return the reference count of what only a local variable holds; Pythons differ in it."""
    flat = np.empty(0)
    return sys.getrefcount(flat)


_ALONE = _references_alone()


class Workspace:
    """Named arrays on the CPU, of which each is handed out when nobody holds it any more.

    A view, a tensor made of an array and whatever a graph saved all keep a reference to it, so its
    reference count says whether it is free. One that is not is left to its holders, and a new one
    takes its place: what was handed out is never overwritten.
    """

    def __init__(self) -> None:
        self._flat: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Reals:
        """Return an uninitialised array."""
        size = math.prod(shape)
        flat = self._flat.pop(name, None)
        if (
            flat is None
            or flat.size < size
            or flat.dtype != dtype
            or sys.getrefcount(flat) > _ALONE
        ):
            flat = np.empty(size, dtype)
        self._flat[name] = flat
        return flat[:size].reshape(shape)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor."""
        flat = torch.from_numpy(self.array(name, (math.prod(shape),), _TORCH[dtype]))
        return flat.view(dtype).view(shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> Workspace:
        """Return none: a copy of a module has its own."""
        return Workspace()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the arrays out of what is pickled."""
        return {"_flat": {}}
