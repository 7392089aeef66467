"""How many n-grams a model has per order, and what they cost: the storage problem made visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True)
class OrderSize:
    """What one order of a model holds; None where the model does not say.

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
                discounts=tuple(order.get("discounts", ())),
                fallback=bool(order.get("fallback", False)),
                bytes=size,
                total_bytes=total,
            )
        )
    return result


def _by_order(orders: Any) -> dict[int, Mapping[str, Any]]:
    if not isinstance(orders, Sequence):
        return {}
    return {order["order"]: order for order in orders if isinstance(order, Mapping)}
