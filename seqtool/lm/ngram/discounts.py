"""Discounts of absolute discounting and Kneser-Ney, from counts of counts.

n_c is the number of n-grams of one order that occur c times (or, for Kneser-Ney, that have c
different words before them); D_c is what each of them gives away to n-grams never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Formula = Callable[[Sequence[int]], tuple[float, float, float] | None]


@dataclass(frozen=True)
class Discounts:
    """What n-grams of one order give away, in counts.

    Attributes:
        values: D1, D2 and D3+, of n-grams with a count of 1, of 2, and of 3 or more.
        is_fallback: whether they are the stated ones, as the counts gave none.
        counts_of_counts: n1, n2, n3 and n4, which they are made from.
    """

    values: tuple[float, float, float]
    is_fallback: bool
    counts_of_counts: tuple[int, ...]


def single_discount(counts_of_counts: Sequence[int]) -> tuple[float, float, float] | None:
    """Return D = n1 / (n1 + 2 n2) for every count (Ney, Essen & Kneser 1994), or None.

    None where n1 or n2 is zero: D would be 0 or 1, which keeps nothing for the unseen or leaves
    nothing to what was seen once.
    """
    n1, n2 = counts_of_counts[:2]
    if n1 == 0 or n2 == 0:
        return None
    discount = n1 / (n1 + 2 * n2)
    return discount, discount, discount


def modified_discounts(counts_of_counts: Sequence[int]) -> tuple[float, float, float] | None:
    """Return D_c = c - (c + 1) Y n_(c+1) / n_c with Y = n1 / (n1 + 2 n2), or None.

    Chen & Goodman 1999, eq. 26. None where n1, n2 or n3 is zero or a D_c is not in [0, c], as in
    KenLM.
    """
    n1, n2, n3, n4 = counts_of_counts
    if 0 in (n1, n2, n3):
        return None
    y = n1 / (n1 + 2 * n2)
    values = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    if any(not 0 <= value <= count for count, value in enumerate(values, start=1)):
        return None
    return values


def discounts_of(
    formula: Formula, counts_of_counts: Sequence[int], fallback: tuple[float, ...]
) -> Discounts:
    """Return what the formula makes of the counts of counts, or else the fallback.

    Args:
        formula: `single_discount` or `modified_discounts`.
        counts_of_counts: n1 to n4.
        fallback: D1, D2 and D3+; of these, `single_discount` takes the first for all counts.
    """
    values = formula(counts_of_counts)
    is_fallback = values is None
    if values is None:
        d1, d2, d3 = fallback[:1] * 3 if formula is single_discount else fallback
        values = d1, d2, d3
    return Discounts(values, is_fallback, tuple(counts_of_counts))
