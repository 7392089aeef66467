"""Named arrays in one safetensors file, mapped into memory when it is opened.

    8 bytes    length of the header, little-endian
    header     JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]}, filled up with blanks
    data       the arrays, one after another; offsets count from here

The format is that of https://github.com/huggingface/safetensors, whose own functions copy every
array when they write and when they read.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64  # of the data: a cache line
MAX_HEADER = 100_000_000  # as safetensors has it

_DTYPES = {"I32": np.dtype("<i4"), "F32": np.dtype("<f4")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write vectors of int32 or float32, none of them copied in memory.

    Raises:
        OSError: it cannot be written; names the file.
    """
    header: dict[str, Any] = {}
    position = 0
    for name, array in arrays.items():
        end = position + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header).encode("ascii")
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            stream.write(np.ascontiguousarray(array).view(np.uint8).data)


def array_sizes(path: Path) -> dict[str, int]:
    """Return the bytes of each array, from the header alone.

    Raises:
        ValueError: it is no such file.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        entries, _ = _read_header(stream.read, os.fstat(stream.fileno()).st_size)
    return {name: end - begin for name, (_, begin, end) in entries.items()}


def map_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file, read-only, mapped from disk and shared between processes.

    Raises:
        ValueError: it is no such file, or holds other arrays than vectors of int32 and float32.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        entries, start = _read_header(stream.read, size)
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8)[start:]
    arrays = {}
    for name, (dtype, begin, end) in entries.items():
        # compiled code wants whole numbers where they belong; ours always are
        arrays[name] = np.require(data[begin:end].view(dtype), requirements="A")
        arrays[name].flags.writeable = False
    return arrays


def _read_header(read: Any, size: int) -> tuple[dict[str, tuple[np.dtype[Any], int, int]], int]:
    """Return name -> (dtype, begin, end), and where the data begins in a file of `size` bytes."""
    length = int.from_bytes(read(8), "little")
    start = 8 + length
    if size < 8 or length > MAX_HEADER or start > size:
        raise ValueError("its header is cut off")
    try:
        content = json.loads(read(length))
        content.pop("__metadata__", None)
        entries = {}
        for name, entry in content.items():
            dtype = _DTYPES[entry["dtype"]]
            (num,) = entry["shape"]
            begin, end = entry["data_offsets"]
            if not all(type(value) is int for value in (num, begin, end)):
                raise TypeError(f"the sizes of {name}")
            if not 0 <= begin <= end <= size - start or end - begin != num * dtype.itemsize:
                raise ValueError(f"{name} lies outside the file")
            entries[name] = dtype, begin, end
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}") from error
    return entries, start
