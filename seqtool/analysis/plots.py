"""Plots, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core.errors import ConfigError, DataError
from seqtool.lm.perplexity import perplexity_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from seqtool.lm.ngram.sizes import OrderSize

PERPLEXITY = "valid_perplexity"  # the score of a language model
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
    epochs: list[dict[str, Any]] = []
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
                numbers = (event["epoch"], event["loss"], *event["scores"].values())
                if not all(isinstance(value, int | float) for value in numbers):
                    raise TypeError("not a number")
                if epochs and event["scores"].keys() != epochs[0]["scores"].keys():
                    raise KeyError("other scores than those of the first epoch")
                epochs.append(event)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                "not a line of a training log", hint="name a trained model", path=path, line=number
            ) from error
    if not epochs:
        raise DataError("no epoch was completed", hint="train for longer", path=path)
    return LearningCurve(
        [event["epoch"] for event in epochs],
        [event["loss"] for event in epochs],
        {name: [event["scores"][name] for event in epochs] for name in epochs[0]["scores"]},
        max(i for i, event in enumerate(epochs) if i == 0 or event.get("is_best")),
    )


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
    axes.annotate(
        f"{valid[best]:.1f}",
        (curve.epochs[best], valid[best]),
        textcoords="offset points",
        xytext=(0, 8),
        ha="right",
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    _label(axes, "perplexity")
    axes.legend()
    _save(figure, output)


def _plot_scores(curve: LearningCurve, output: str | Path) -> None:
    figure, (left, right) = _figure(2)
    left.plot(curve.epochs, curve.losses, marker=".", color="black")
    _label(left, "training loss (with dropout)")
    left.set_ylim(bottom=0)
    for name, values in curve.scores.items():
        shown = name.removeprefix("dev_")
        shown = ABBREVIATIONS.get(shown, shown.replace("_", " "))
        label = f"{shown} {values[curve.best]:.2f}"
        right.plot(curve.epochs, values, marker=".", label=label)
    _label(right, "validation score, percent")
    epoch = curve.epochs[curve.best]
    right.axvline(epoch, color="grey", linestyle=":", zorder=0)
    right.legend(title=f"in epoch {epoch}, the best")
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
    figure = Figure(figsize=(6 if num_panels == 1 else 4.5 * num_panels, 4), layout="constrained")
    return figure, figure.subplots(1, num_panels, squeeze=False)[0]


def _save(figure: Figure, output: str | Path) -> None:
    try:
        figure.savefig(output, dpi=150)
    except ValueError as error:  # an unknown suffix
        raise ConfigError(str(error), hint="name a .png, .svg or .pdf file", path=output) from error
