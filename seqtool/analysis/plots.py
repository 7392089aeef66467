"""Plots, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seqtool.core import storage
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.storage import atomic_file
from seqtool.core.units import perplexity_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from seqtool.lm.ngram.table import OrderSize

PERPLEXITY = "valid_perplexity"  # the score of a language model
MAX_LOG = 1 << 28  # bytes of a log
# how scores are called in print; the others are words
ABBREVIATIONS = {"uas": "UAS", "las": "LAS", "upos": "UPOS", "xpos": "XPOS", "feats": "FEATS"}


@dataclass(frozen=True)
class LearningCurve:
    """What `log.jsonl` records of each epoch.

    Attributes:
        epochs: their numbers, from 1.
        losses: mean training loss, nats, with dropout.
        scores: of the validation part, by name: a perplexity, or percents.
        best: the index of the epoch whose weights the model has.
    """

    epochs: list[int]
    losses: list[float]
    scores: dict[str, list[float]]
    best: int


def read_learning_curve(log_path: str | Path) -> LearningCurve:
    """Return the epochs of a run's `log.jsonl`.

    Raises:
        DataError: no such file, a line that is no JSON, or no epoch that was completed.
    """
    path = Path(log_path)
    curve = LearningCurve([], [], {}, 0)
    try:
        lines = storage.read_file(path, MAX_LOG).decode().splitlines()
    except FileNotFoundError as error:
        parts = ", ".join(str(part.parent) for part in sorted(path.parent.glob(f"*/{path.name}")))
        hint = f"name a part that was trained: {parts}" if parts else "name a trained model"
        raise DataError("no training log is there", hint=hint, path=path) from error
    except ValueError as error:
        raise DataError("no training log", hint="name a trained model", path=path) from error
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            if event["event"] == "epoch":
                scores = {name: _number(value) for name, value in event["scores"].items()}
                if not scores or (curve.epochs and scores.keys() != curve.scores.keys()):
                    raise KeyError("scores")
                if event.get("is_best", False):
                    curve = replace(curve, best=len(curve.epochs))
                curve.epochs.append(event["epoch"])
                curve.losses.append(_number(event["loss"]))
                for name, value in scores.items():
                    curve.scores.setdefault(name, []).append(value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                "not a line of a training log", hint="name a trained model", path=path, line=number
            ) from error
    if not curve.epochs:
        raise DataError("no epoch was completed", hint="train for longer", path=path)
    return curve


def _number(value: float | None) -> float:
    """Return a number of the log, where null is one that was not finite."""
    return math.inf if value is None else float(value)


def plot_learning_curve(log_path: str | Path, output: str | Path) -> None:
    """Draw how a model was learned; the suffix of the file says the format.

    Of a language model these are training and validation perplexity by epoch, on a log scale; of a
    parser, tagger or segmenter the training loss, and beside it the scores of the validation part.

    Raises:
        ConfigError: matplotlib is not installed, or it cannot write that format.
        DataError: the log cannot be read.
    """
    curve = read_learning_curve(log_path)
    if list(curve.scores) == [PERPLEXITY]:
        _plot_perplexity(curve, output)
    else:
        _plot_scores(curve, output)


def _plot_perplexity(curve: LearningCurve, output: str | Path) -> None:
    figure, (axes,) = _figure()
    from matplotlib.ticker import ScalarFormatter

    valid = curve.scores[PERPLEXITY]
    train = [perplexity_of(loss) for loss in curve.losses]
    axes.plot(curve.epochs, train, marker=".", label="training (with dropout)")
    axes.plot(curve.epochs, valid, marker=".", label="validation")
    best = min(range(len(valid)), key=valid.__getitem__)
    at = (curve.epochs[best], valid[best])
    axes.annotate(f"{valid[best]:.1f}", at, textcoords="offset points", xytext=(0, 8), ha="right")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    _label(axes, "perplexity")
    axes.legend()
    _save(figure, output)


def _plot_scores(curve: LearningCurve, output: str | Path) -> None:
    figure, (left, right) = _figure(2)
    left.plot(curve.epochs, curve.losses, marker=".", color="black")
    left.set_ylim(bottom=0)
    _label(left, "training loss (with dropout)")
    for name, values in curve.scores.items():
        shown = name.removeprefix("dev_").replace("_", " ")
        label = f"{ABBREVIATIONS.get(shown, shown)} {values[curve.best]:.2f}"
        right.plot(curve.epochs, values, marker=".", label=label)
    # no axis goes far beyond 100 percent, or shows less than one percent
    lowest = min(map(min, curve.scores.values()))
    highest = max(map(max, curve.scores.values()))
    margin = max(highest - lowest, 1.0) / 20
    right.set_ylim(min(lowest, highest - 1) - margin, min(highest, 100.0) + margin)
    epoch = curve.epochs[curve.best]
    right.axvline(epoch, color="grey", linestyle=":", zorder=0)
    _label(right, "validation score, percent")
    figure.legend(loc="outside right upper", title=f"epoch {epoch}, the best")
    _save(figure, output)


def _label(axes: Axes, quantity: str) -> None:
    """Name a quantity that is drawn by epoch."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel(quantity)


def plot_sizes(sizes: Sequence[OrderSize], output: str | Path) -> None:
    """Draw the bytes of each order of an n-gram model, and of all orders up to it.

    Raises:
        ConfigError: matplotlib is not installed, or it cannot write that format.
    """
    figure, (axes,) = _figure()
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


def _figure(num_panels: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure and its panels, side by side."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "matplotlib is not installed", hint="pip install 'seqtool[plot]'"
        ) from error
    width = 6.0 if num_panels == 1 else 5.0 * num_panels
    figure = Figure(figsize=(width, 4), layout="constrained")
    return figure, figure.subplots(1, num_panels, squeeze=False)[0]


def _save(figure: Figure, output: str | Path) -> None:
    path = Path(output) if Path(output).suffix else Path(f"{output}.png")
    try:
        with atomic_file(path) as stream:
            figure.savefig(stream, dpi=150, format=path.suffix[1:])
    except ValueError as error:  # an unknown suffix
        raise ConfigError(str(error), hint="name a .png, .svg or .pdf file", path=output) from error
