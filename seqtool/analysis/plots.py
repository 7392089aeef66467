"""Plots, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from seqtool.errors import ConfigError, DataError


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
                curve.train.append(math.exp(event["loss"]))
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
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, ScalarFormatter
    except ImportError as error:
        raise ConfigError(
            "matplotlib is not installed", hint="pip install 'seqtool[plot]'"
        ) from error
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
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
    try:
        figure.savefig(output, dpi=150)
    except ValueError as error:  # an unknown suffix
        raise ConfigError(str(error), hint="name a .png, .svg or .pdf file", path=output) from error
