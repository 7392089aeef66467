"""Plots, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqtool.core.errors import ConfigError, DataError
from seqtool.core.units import perplexity_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from seqtool.lm.ngram.table import OrderSize


@dataclass(frozen=True)
class LearningCurve:
    """Perplexity per epoch, as `log.jsonl` records it; epochs count from 1."""

    epochs: list[int]
    train: list[float]
    valid: list[float]


def read_learning_curve(log_path: str | Path) -> LearningCurve:
    """Read the epochs of a run's `log.jsonl`.

    Raises:
        DataError: no such file, a line that is no JSON, or no epoch that was completed.
    """
    path = Path(log_path)
    curve = LearningCurve([], [], [])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise DataError("no training log is there", hint="name a trained model", path=path) from (
            error
        )
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            if event["event"] == "epoch":
                curve.epochs.append(event["epoch"])
                curve.train.append(perplexity_of(event["loss"]))
                curve.valid.append(event["scores"]["valid_perplexity"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                "not a line of a training log", hint="name a trained model", path=path, line=number
            ) from error
    if not curve.epochs:
        raise DataError("no epoch was completed", hint="train for longer", path=path)
    return curve


def plot_learning_curve(log_path: str | Path, output: str | Path) -> None:
    """Draw training and validation perplexity by epoch, on a log scale; the suffix says the format.

    Raises:
        ConfigError: matplotlib is not installed, or it cannot write that format.
        DataError: the log cannot be read.
    """
    curve = read_learning_curve(log_path)
    figure, axes = _figure()
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    axes.plot(curve.epochs, curve.train, marker=".", label="training (with dropout)")
    axes.plot(curve.epochs, curve.valid, marker=".", label="validation")
    best = min(range(len(curve.valid)), key=curve.valid.__getitem__)
    axes.annotate(
        f"{curve.valid[best]:.1f}",
        (curve.epochs[best], curve.valid[best]),
        textcoords="offset points",
        xytext=(0, 8),
        ha="right",
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("perplexity")
    axes.legend()
    _save(figure, output)


def plot_sizes(sizes: Sequence[OrderSize], output: str | Path) -> None:
    """Draw the bytes of each order of an n-gram model, and of all orders up to it.

    Raises:
        ConfigError: matplotlib is not installed, or it cannot write that format.
    """
    figure, axes = _figure()
    orders = [size.order for size in sizes]
    axes.bar(orders, [size.bytes / 1e6 for size in sizes], label="this order")
    totals = [size.total_bytes / 1e6 for size in sizes]
    axes.plot(orders, totals, color="black", marker=".", label="all orders up to it")
    for size, total in zip(sizes, totals, strict=True):
        axes.annotate(
            f"{size.ngrams:,}",
            (size.order, total),
            textcoords="offset points",
            xytext=(0, 6),
            ha="center",
            fontsize="small",
        )
    axes.set_xticks(orders)
    axes.margins(y=0.1)
    axes.set_xlabel("order (and its n-grams)")
    axes.set_ylabel("megabytes")
    axes.legend(loc="upper left")
    _save(figure, output)


def _figure() -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "matplotlib is not installed", hint="pip install 'seqtool[plot]'"
        ) from error
    figure = Figure(figsize=(6, 4), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Figure, output: str | Path) -> None:
    try:
        figure.savefig(output, dpi=150)
    except ValueError as error:  # an unknown suffix
        raise ConfigError(str(error), hint="name a .png, .svg or .pdf file", path=output) from error
