"""The table of a backoff model: probabilities and backoff weights, whatever estimated them.

The n-grams of one order are rows in trie order: sorted by the row of their context (the n-gram
without its last word, a row of the order below), then by their last word. So the continuations of
a context are one range of rows, sorted by word:

    order n-1     row c   "of the"                  begins[c] .. begins[c + 1]
    order n       rows    "of the" + words[row]      log_probs[row], backoffs[row]

Words have the ids of `Vocabulary`; `<s>` has the id V, one more than the last, and at order 1 the
row V, so n-grams that begin with `<s>` are the last rows of each order.

Its arrays are kept in one safetensors file, mapped into memory when it is opened:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core.units import LN_10

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

BOS_NATS = -99 * LN_10  # what ARPA files give <s>, which is never predicted

_PIECE = 1 << 17


@dataclass(frozen=True)
class TableLevel:
    """The n-grams of one order, N rows; the order below has M.

    Attributes:
        words: int32 [N], the last word of each.
        begins: int32 [M + 1], the rows of context c are begins[c] to begins[c + 1] - 1.
        log_probs: float32 [N], nats; -inf where there is no probability.
        backoffs: float32 [N], nats, added when a longer n-gram is not there; 0 for a row that is
            no context; empty at the highest order.
    """

    words: Int32
    begins: Int32
    log_probs: Float32
    backoffs: Float32

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class BackoffTable:
    """Orders 1 to N of a backoff model.

    The log-probability of a word is that of the longest n-gram of the table that ends with it,
    plus the backoffs of all longer contexts of it that are in the table (Katz 1987). The context
    of every row is a row; its suffix need not be.

    Attributes:
        levels: one per order; order 1 has V + 1 rows, the row is the word.
        vocabulary_size: V.
    """

    levels: tuple[TableLevel, ...]
    vocabulary_size: int

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.levels)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a file holds: "2.words", "2.begins", "2.log_probs", "2.backoffs" ..."""
        result: dict[str, npt.NDArray[Any]] = {}
        for n, level in enumerate(self.levels, start=1):
            if n > 1:
                result[f"{n}.words"], result[f"{n}.begins"] = level.words, level.begins
            result[f"{n}.log_probs"] = level.log_probs
            if n < self.order:
                result[f"{n}.backoffs"] = level.backoffs
        return result

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], vocabulary_size: int
    ) -> BackoffTable:
        """Return the table that gave these arrays, none of them copied.

        Whatever the numbers, a table that is returned can be queried: no row that it names is
        outside. At some milliseconds per hundred million bytes, this can be done at every opening.

        Raises:
            ValueError: arrays are missing, of other types, or do not fit together.
        """
        order = sum(name.endswith(".log_probs") for name in arrays)
        num = vocabulary_size + 1
        words, begins = np.arange(num, dtype=np.int32), np.array([0, num], np.int32)
        levels = []
        for n in range(1, order + 1):
            if n > 1:
                begins = _vector(arrays, f"{n}.begins", np.int32, num + 1)
                num = int(begins[-1])
                if begins[0] != 0 or not _ascends(begins):
                    raise ValueError(f"{n}.begins does not go up from 0")
                words = _vector(arrays, f"{n}.words", np.int32, num)
                if num and words.view(np.uint32).max() > vocabulary_size:  # below 0 is far above
                    raise ValueError(f"{n}.words holds a word outside the vocabulary")
            backoffs = np.zeros(0, np.float32)
            if n < order:
                backoffs = _vector(arrays, f"{n}.backoffs", np.float32, num)
            log_probs = _vector(arrays, f"{n}.log_probs", np.float32, num)
            levels.append(TableLevel(words, begins, log_probs, backoffs))
        table = cls(tuple(levels), vocabulary_size)
        if not levels or table.arrays().keys() != arrays.keys():
            raise ValueError(f"it holds {', '.join(arrays)}")
        return table


def _vector(
    arrays: Mapping[str, npt.NDArray[Any]], name: str, dtype: type[np.generic], size: int
) -> npt.NDArray[Any]:
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.shape != (size,):
        found = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
        raise ValueError(f"{name} is {found} instead of {np.dtype(dtype)} [{size}]")
    return array


def _ascends(numbers: Int32) -> bool:
    """Return whether none is below the one before; in pieces that stay in the cache."""
    # each with the first of the next, so that the steps between pieces count too
    pieces = (numbers[i : i + _PIECE + 1] for i in range(0, len(numbers), _PIECE))
    return all(bool((piece[1:] >= piece[:-1]).all()) for piece in pieces)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view: compiled code takes one type of array only, and tables may be mapped files."""
    view = array.view()
    view.flags.writeable = False
    return view


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
    text, _ = _header({name: (array.dtype, len(array)) for name, array in arrays.items()})
    with path.open("wb") as stream:
        stream.write(text)
        for array in arrays.values():
            stream.write(np.ascontiguousarray(array).view(np.uint8).data)


def _header(shapes: Mapping[str, tuple[np.dtype[Any], int]]) -> tuple[bytes, dict[str, int]]:
    """Return the header of a file of vectors, and where each of them begins in the file."""
    header: dict[str, Any] = {}
    begins: dict[str, int] = {}
    position = 0
    for name, (dtype, num) in shapes.items():
        end = position + num * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": [num], "data_offsets": [position, end]}
        begins[name] = position
        position = end
    text = json.dumps(header).encode("ascii")
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    text = len(text).to_bytes(8, "little") + text
    return text, {name: len(text) + begin for name, begin in begins.items()}


class ArrayWriter:
    """Writes a file of vectors piece by piece; a context that closes it.

    Args:
        path: the file.
        shapes: the type and the length of each vector.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[np.dtype[Any], int]]) -> None:
        text, self._begins = _header(shapes)
        self._path, self._shapes, self._places = path, dict(shapes), dict(self._begins)
        self._stream = path.open("wb")
        self._stream.write(text)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def append(self, name: str, piece: npt.NDArray[Any]) -> None:
        """Write what comes next in a vector; all of it is to be written in the end."""
        self._stream.seek(self._places[name])  # pieces of several vectors come by turns
        self._stream.write(np.ascontiguousarray(piece).view(np.uint8).data)
        self._places[name] += piece.nbytes

    def begin_again(self, *names: str) -> None:
        """Give up what was written of some vectors."""
        for name in names:
            self._places[name] = self._begins[name]

    def mapped(self, name: str) -> npt.NDArray[Any]:
        """Return a vector that was written, mapped from the file."""
        self._stream.flush()
        dtype, num = self._shapes[name]
        if not num:  # nothing can be mapped
            return np.empty(0, dtype)
        begin = self._begins[name]
        return np.asarray(np.memmap(self._path, dtype, mode="c", offset=begin, shape=(num,)))


def table_shapes(sizes: Sequence[int]) -> dict[str, tuple[np.dtype[Any], int]]:
    """Return the vectors of a table, in order, by the n-grams of each order; see `ArrayWriter`."""
    shapes: dict[str, tuple[np.dtype[Any], int]] = {}
    for n, size in enumerate(sizes, start=1):
        if n > 1:
            shapes[f"{n}.words"] = _DTYPES["I32"], size
            shapes[f"{n}.begins"] = _DTYPES["I32"], sizes[n - 2] + 1
        shapes[f"{n}.log_probs"] = _DTYPES["F32"], size
        if n < len(sizes):
            shapes[f"{n}.backoffs"] = _DTYPES["F32"], size
    return shapes


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
        ValueError: it is no such file, or holds other arrays than `write_arrays` writes.
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
            # JSON's true would be an int to isinstance()
            if not all(type(value) is int for value in (num, begin, end)):
                raise TypeError(f"the sizes of {name}")
            if not 0 <= begin <= end <= size - start or end - begin != num * dtype.itemsize:
                raise ValueError(f"{name} lies outside the file")
            entries[name] = dtype, begin, end
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}") from error
    return entries, start


@dataclass(frozen=True)
class OrderSize:
    """Size and statistics of one order of a model; None where the model does not say.

    Attributes:
        order: n.
        ngrams: n-grams in the table.
        pruned: n-grams that were counted and left out.
        singletons: n-grams that were counted once.
        discounts: what was taken from counts 1, 2, and 3 or more; empty if the smoothing takes
            nothing.
        fallback: whether these are stated values, as the counts gave none that are valid.
        bytes: of its arrays.
        total_bytes: the same for this order and all below: the size of a model of this order.
    """

    order: int
    ngrams: int
    pruned: int | None
    singletons: int | None
    discounts: tuple[float, ...]
    fallback: bool
    bytes: int
    total_bytes: int


def order_sizes(
    array_bytes: Mapping[str, int], statistics: Mapping[str, Any] | None = None
) -> list[OrderSize]:
    """Return what every order of a model holds.

    Args:
        array_bytes: the bytes of each array of its table, by the names of `BackoffTable.arrays`.
        statistics: of its header.

    Raises:
        KeyError, TypeError: they are not that.
    """
    told = _by_order((statistics or {}).get("orders", ()))
    orders = range(1, 1 + sum(name.endswith(".log_probs") for name in array_bytes))
    sizes = [
        sum(num for name, num in array_bytes.items() if name.startswith(f"{n}.")) for n in orders
    ]
    result = []
    for n, size, total in zip(orders, sizes, accumulate(sizes), strict=True):
        ngrams = array_bytes[f"{n}.log_probs"] // 4
        order = told.get(n, {})
        counted = order.get("counted")
        result.append(
            OrderSize(
                order=n,
                ngrams=ngrams,
                pruned=counted - ngrams if isinstance(counted, int) else None,
                singletons=order.get("singletons"),
                discounts=tuple(order.get("discounts") or ()),
                fallback=bool(order.get("fallback", False)),
                bytes=size,
                total_bytes=total,
            )
        )
    return result


def _by_order(orders: Any) -> dict[int, Mapping[str, Any]]:
    for order in orders:
        numbers = [order["order"], *(order.get("discounts") or ())]
        numbers += [order[name] for name in ("counted", "singletons") if order.get(name)]
        if {*map(type, numbers)} - {int, float}:
            raise TypeError("its statistics are no numbers")
    return {order["order"]: order for order in orders}
