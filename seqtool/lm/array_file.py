"""Vectors in one safetensors file, mapped into memory when it is opened.

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

_DTYPES = {
    name: np.dtype(code)
    for name, code in {"I32": "<i4", "F32": "<f4", "U64": "<u8", "F64": "<f8"}.items()
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write vectors of int32, float32, uint64 or float64, none of them copied in memory.

    Those of eight bytes are to come first: compiled code wants them at a multiple of eight.

    Raises:
        OSError: it cannot be written; names the file.
    """
    shapes = {name: (array.dtype, len(array)) for name, array in arrays.items()}
    with ArrayWriter(path, shapes) as writer:
        for name, array in arrays.items():
            writer.append(name, array)


class ArrayWriter:
    """Writes a file of vectors piece by piece; a context that closes it.

    Args:
        path: the file.
        shapes: the type and the length of each vector.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[np.dtype[Any], int]]) -> None:
        header: dict[str, Any] = {}
        end = 0
        for name, (dtype, num) in shapes.items():
            begin, end = end, end + num * dtype.itemsize
            header[name] = {"dtype": _NAMES[dtype], "shape": [num], "data_offsets": [begin, end]}
        text = json.dumps(header).encode("ascii")
        text += b" " * (-(len(text) + 8) % ALIGNMENT)
        start = 8 + len(text)
        self._places = {name: start + entry["data_offsets"][0] for name, entry in header.items()}
        self._stream = path.open("wb")
        self._stream.write(len(text).to_bytes(8, "little") + text)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def append(self, name: str, piece: npt.NDArray[Any]) -> None:
        """Write what comes next in a vector; all of it is to be written in the end."""
        self._stream.seek(self._places[name])  # pieces of several vectors come by turns
        self._stream.write(np.ascontiguousarray(piece).view(np.uint8).data)
        self._places[name] += piece.nbytes


def map_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file, read-only, mapped from disk and shared between processes.

    Raises:
        ValueError: it is no such file, or holds other arrays than `write_arrays` writes.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        start = 8 + length
        if size < 8 or length > MAX_HEADER or start > size:
            raise ValueError("its header is cut off")
        header = stream.read(length)
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    data, arrays = np.frombuffer(mapped, np.uint8)[start:], {}
    try:
        for name, entry in json.loads(header).items():
            if name == "__metadata__":
                continue
            dtype, (num,), (begin, end) = (
                _DTYPES[entry["dtype"]],
                entry["shape"],
                entry["data_offsets"],
            )
            # JSON's true would be an int to isinstance()
            if not all(type(value) is int for value in (num, begin, end)):
                raise TypeError(f"the sizes of {name}")
            if not 0 <= begin <= end <= len(data) or end - begin != num * dtype.itemsize:
                raise ValueError(f"{name} lies outside the file")
            # compiled code wants whole numbers where they belong; ours always are
            arrays[name] = np.require(data[begin:end].view(dtype), requirements="A")
            arrays[name].flags.writeable = False
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}") from error
    return arrays


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view: compiled code takes one type of array only, and tables may be mapped files."""
    view = array.view()
    view.flags.writeable = False
    return view
