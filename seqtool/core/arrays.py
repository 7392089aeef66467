"""The types of arrays, by what one element is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int32]
Ids = Ints  # of symbols of a vocabulary
Longs = npt.NDArray[np.int64]
CodePoints = npt.NDArray[np.uint32]
Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Reals = npt.NDArray[np.floating[Any]]  # of any precision
