"""The table of a backoff model: probabilities and backoff weights, whatever estimated them.

The n-grams of one order are rows in trie order: sorted by the row of their context (the n-gram
without its last word, a row of the order below), then by their last word. So the continuations of
a context are one range of rows, sorted by word:

    order n-1     row c   "of the"                  begins[c] .. begins[c + 1]
    order n       rows    "of the" + words[row]      log_probs[row], backoffs[row]

Words have the ids of `Vocabulary`; `<s>` has the id V, one more than the last, and at order 1 the
row V, so n-grams that begin with `<s>` are the last rows of each order.

Its arrays are kept in one file, see `array_file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        cls,
        arrays: Mapping[str, npt.NDArray[Any]],
        vocabulary_size: int,
        *,
        is_checked: bool = False,
    ) -> BackoffTable:
        """Return the table that gave these arrays, none of them copied.

        Whatever the numbers, a table that is returned can be queried: no row that it names is
        outside. At some milliseconds per hundred million bytes, this can be done at every opening;
        numbers that were just written (`is_checked`) are not read again, which takes memory.

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
                if not is_checked and (begins[0] != 0 or not _ascends(begins)):
                    raise ValueError(f"{n}.begins does not go up from 0")
                words = _vector(arrays, f"{n}.words", np.int32, num)
                # below 0 is far above
                if num and not is_checked and words.view(np.uint32).max() > vocabulary_size:
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


def table_shapes(sizes: Sequence[int]) -> dict[str, tuple[np.dtype[Any], int]]:
    """Return what `ArrayWriter` takes: the vectors of a table, by the n-grams of each order."""
    shapes: dict[str, tuple[np.dtype[Any], int]] = {}
    for n, size in enumerate(sizes, start=1):
        if n > 1:
            shapes[f"{n}.words"] = np.dtype(np.int32), size
            shapes[f"{n}.begins"] = np.dtype(np.int32), sizes[n - 2] + 1
        shapes[f"{n}.log_probs"] = np.dtype(np.float32), size
        if n < len(sizes):
            shapes[f"{n}.backoffs"] = np.dtype(np.float32), size
    return shapes


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
        KeyError, TypeError, ValueError: they are not that.
    """
    about = {order["order"]: order for order in (statistics or {}).get("orders", ())}
    num_orders = sum(name.endswith(".log_probs") for name in array_bytes)
    result, total = [], 0
    for n in range(1, 1 + num_orders):
        size = sum(num for name, num in array_bytes.items() if name.startswith(f"{n}."))
        total += size
        ngrams, order = array_bytes[f"{n}.log_probs"] // 4, about.get(n, {})
        counted = order.get("counted")
        result.append(
            OrderSize(
                order=n,
                ngrams=ngrams,
                pruned=None if counted is None else int(counted) - ngrams,
                singletons=order.get("singletons"),
                discounts=tuple(map(float, order.get("discounts") or ())),
                fallback=bool(order.get("fallback", False)),
                bytes=size,
                total_bytes=total,
            )
        )
    return result
