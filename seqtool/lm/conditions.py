"""Means by condition, and differences that are paired by item, with Student's t at 95%."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COLUMNS = ("condition", "items", "mean", "95% interval", "pairs", "difference", "95% interval", "p")


def condition_means(rows: Iterable[tuple[float, str, str]]) -> list[dict[str, Any]]:
    """Compare conditions; figures of one item in one condition are averaged first.

    Args:
        rows: a figure, or nan for none, its condition and its item.

    Returns:
        Of each condition its name, what `mean_of` says of its items, and what it says of their
        differences to the first condition; None for the first, and where no item has both.
    """
    values_of: dict[str, dict[str, list[float]]] = {}
    for value, condition, item in rows:
        if not math.isnan(value):
            values_of.setdefault(condition, {}).setdefault(item, []).append(value)
    means = {
        name: {item: math.fsum(of) / len(of) for item, of in items.items()}
        for name, items in values_of.items()
    }
    first, result = next(iter(means.values()), {}), list[dict[str, Any]]()
    for name, items in means.items():
        pairs = [value - first[item] for item, value in items.items() if item in first]
        difference = mean_of(pairs) if pairs and items is not first else None
        mean = mean_of([*items.values()])
        result.append({"condition": name, **mean, "difference": difference})
    return result


def cells_of(means: Mapping[str, Any]) -> list[str]:
    """Return the cells of `COLUMNS` of what `condition_means` says of a condition."""
    cells, other = [means["condition"]], means["difference"]
    for each in (means, other or {}):
        interval = "{:.3f} to {:.3f}".format(*each["interval"]) if each.get("interval") else ""
        cells += [f"{each['num']}", f"{each['mean']:.3f}", interval] if each else [""] * 3
    return [*cells, f"{other['p_value']:.4f}" if other and other["p_value"] is not None else ""]


def mean_of(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean of figures, its interval, and the p-value of the t test that it is 0.

    There is no interval of one figure or of infinite ones, nor a p-value of figures all alike.
    """
    num, mean = len(values), sum(values) / len(values)
    interval = p_value = None
    if num > 1 and math.isfinite(mean):
        error = math.sqrt(sum((value - mean) ** 2 for value in values) / (num - 1) / num)
        half = t_95(num - 1) * error
        interval = (mean - half, mean + half)
        if error > 1e-12 * abs(mean):  # else all are alike but for rounding
            p_value = max(0.0, 1.0 - t_share(abs(mean) / error, num - 1))
    return {"num": num, "mean": mean, "interval": interval, "p_value": p_value}


def t_share(t: float, freedom: int) -> float:
    """Return how likely Student's t is between -t and t (Abramowitz & Stegun 26.7.3 and 26.7.4).

    >>> t_share(1.0, 1), round(t_share(4.302653, 2), 6)
    (0.5, 0.95)
    """
    angle, odd = math.atan(t / math.sqrt(freedom)), freedom % 2
    term, total = math.sin(angle) * (math.cos(angle) if odd else 1.0), 0.0
    for place in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (place - 1) / place
    return 2 / math.pi * (angle + total) if odd else total


def t_95(freedom: int) -> float:
    """Return the t that 95% lie within."""
    low, high = 1.9, 13.0
    for _ in range(60):  # halving
        middle = (low + high) / 2
        low, high = (middle, high) if t_share(middle, freedom) < 0.95 else (low, middle)
    return high
