"""How models were learned: the curves of one run, or of several beside each other.

What is drawn is read from `log.jsonl`, the events of a run (`seqtool.core.progress`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqtool.analysis.drawing.textual import sparkline
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core import storage
from seqtool.core.errors import DataError
from seqtool.core.units import perplexity_of

PERPLEXITY = "valid_perplexity"  # the score of a language model
MAX_LOG = 1 << 28  # bytes of a log
LOG = "log.jsonl"
# how scores are called in print; the others are words
ABBREVIATIONS = {
    **{name: name.upper() for name in ("uas", "las", "upos", "xpos", "feats")},
    "ufeats": "UFeats",
}
# of an epoch, where the log has them: key -> title, axis, scale of what is drawn
SETTINGS = {
    "learning_rate": ("Learning rate", "learning rate", 1.0),
    "gradient_norm": ("Gradient before clipping", "mean norm of the gradient", 1.0),
    "clipped": ("Clipping", "steps that were clipped (percent)", 100.0),
}


@dataclass(frozen=True)
class LearningCurve:
    """What `log.jsonl` records of each epoch.

    Attributes:
        epochs: their numbers, from 1.
        losses: mean training loss, nats, with what dropout there is.
        scores: of the validation part, by name: a perplexity, or percents.
        best: the index of the epoch whose weights the model has.
        settings: of `SETTINGS`, what every epoch has.
    """

    epochs: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)
    best: int = 0
    settings: dict[str, list[float]] = field(default_factory=dict)

    @property
    def is_perplexity(self) -> bool:
        """Whether it is of a language model."""
        return list(self.scores) == [PERPLEXITY]


def read_log(log_path: str | Path, take: Callable[[dict[str, Any]], None]) -> None:
    """Give the events of a run's `log.jsonl` to `take`, one after another.

    Args:
        log_path: the file.
        take: of an event that is none it raises what missing keys and wrong values lead to:
            ValueError, KeyError, TypeError or AttributeError.

    Raises:
        DataError: no such file, or a line that is no event.
    """
    path = Path(log_path)
    try:
        lines = storage.read_file(path, MAX_LOG).decode().split("\n")
    except FileNotFoundError as error:
        parts = ", ".join(str(part.parent) for part in sorted(path.parent.glob(f"*/{path.name}")))
        hint = f"name a part that was trained: {parts}" if parts else "name a trained model"
        raise DataError("no training log is there", hint=hint, path=path) from error
    except (OSError, ValueError) as error:
        raise DataError("no training log", hint="name a trained model", path=path) from error
    for number, line in enumerate(lines, start=1):
        if not line and number == len(lines):  # what stands after the last line end
            break
        try:
            take(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                "not a line of a training log", hint="name a trained model", path=path, line=number
            ) from error


def read_learning_curve(log_path: str | Path) -> LearningCurve:
    """Return the epochs of a run's `log.jsonl`.

    Raises:
        DataError: no such file, a line that is no JSON, or no epoch that was completed.
    """
    epochs: list[dict[str, Any]] = []

    def take(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            epochs.append(_epoch(event))
            if epochs[-1]["scores"].keys() != epochs[0]["scores"].keys():
                raise KeyError("scores")

    read_log(log_path, take)
    if not epochs:
        raise DataError("no epoch was completed", hint="train for longer", path=Path(log_path))
    return LearningCurve(
        epochs=[epoch["epoch"] for epoch in epochs],
        losses=[epoch["loss"] for epoch in epochs],
        scores={name: [epoch["scores"][name] for epoch in epochs] for name in epochs[0]["scores"]},
        best=max((i for i, epoch in enumerate(epochs) if epoch["is_best"]), default=0),
        settings={
            name: [epoch[name] for epoch in epochs]
            for name in SETTINGS
            if all(name in epoch for epoch in epochs)
        },
    )


def _epoch(event: dict[str, Any]) -> dict[str, Any]:
    """Return what is drawn of an epoch, all of it numbers."""
    scores = {name: _number(value) for name, value in event["scores"].items()}
    if not scores:
        raise KeyError("scores")
    found: dict[str, Any] = {
        "epoch": int(event["epoch"]),
        "loss": _number(event["loss"]),
        "scores": scores,
        "is_best": bool(event.get("is_best", False)),
    }
    # null in a run without them
    gradients = event.get("gradients") or {}
    values = {"learning_rate": event.get("learning_rate"), "gradient_norm": gradients.get("norm"),
            "clipped": gradients.get("clipped")}  # fmt: skip
    return found | {name: _number(value) for name, value in values.items() if value is not None}


def _number(value: float | None) -> float:
    """Return a number of the log, where null is one that was not finite."""
    return math.inf if value is None else float(value)


def find_logs(path: Path) -> list[tuple[str, Path]]:
    """Return the logs of a run, each with the name of what was trained: one, or a pipeline's parts.

    Raises:
        DataError: there is none.
    """
    if path.is_file() or (path / LOG).is_file():
        return [(str(path), path if path.is_file() else path / LOG)]
    parts = sorted(path.glob(f"*/{LOG}"))
    trained = [part for part in parts if part.parent.name not in ("best", "last")]
    if not path.exists():
        raise DataError("no such model or log", hint="check the path", path=path)
    if not trained:
        raise DataError(
            "no training log is there",
            hint="name a model of train-lm, train-parser, train-tagger or train-segmenter; for an "
            "n-gram model there is `seqtool inspect --plot`",
            path=path,
        )
    return [(str(part.parent), part) for part in trained]


def learning_curves(runs: Sequence[tuple[str, Path]]) -> Report:
    """Return how runs went, those of one kind on one chart.

    Of language models these are training and validation perplexity by epoch; of parsers, taggers
    and segmenters the training loss, and the scores of the validation part. Below them learning
    rate, gradient and clipping, as far as the logs have them.

    Args:
        runs: (name, its `log.jsonl`) of each.

    Raises:
        DataError: a log cannot be read.
    """
    curves = [(name, read_learning_curve(log)) for name, log in runs]
    models = [(name, curve) for name, curve in curves if curve.is_perplexity]
    others = [(name, curve) for name, curve in curves if not curve.is_perplexity]
    charts = [*([_perplexities(models)] if models else []), *_scores(others)]
    charts += [
        _by_epoch(
            title,
            label,
            [
                Series(_label(name, "", curves), curve.epochs, [scale * v for v in drawn])
                for name, curve in curves
                if (drawn := curve.settings.get(key))
            ],
        )
        for key, (title, label, scale) in SETTINGS.items()
        if any(key in curve.settings for _, curve in curves)
    ]
    return Report(
        title="Learning curves",
        tables=[_best_epochs(curves)],
        charts=charts,
        values={
            "runs": [
                {
                    "run": name,
                    "epochs": curve.epochs,
                    "losses": curve.losses,
                    "scores": curve.scores,
                    "best_epoch": curve.epochs[curve.best],
                    **curve.settings,
                }
                for name, curve in curves
            ]
        },
    )


def _best_epochs(curves: Sequence[tuple[str, LearningCurve]]) -> Table:
    rows: list[list[Cell]] = [
        [
            name,
            len(curve.epochs),
            curve.epochs[curve.best],
            curve.losses[curve.best],
            sparkline(next(iter(curve.scores.values()))),
            ", ".join(f"{shown_name(key)} {v[curve.best]:.2f}" for key, v in curve.scores.items()),
        ]
        for name, curve in curves
    ]
    columns = ["run", "epochs", "best epoch", "its training loss", "validation", "scores"]
    return Table("The epoch whose weights a model has", columns, rows)


def shown_name(score: str) -> str:
    """Return how a score is called in print."""
    shown = score.removeprefix("dev_").replace("_", " ")
    return ABBREVIATIONS.get(shown, shown)


def _label(name: str, what: str, curves: Sequence[object]) -> str:
    """Return the label of a curve: with the run's name, where there are several runs."""
    if len(curves) == 1:
        return what
    return f"{name}: {what}" if what else name


def _by_epoch(title: str, quantity: str, series: Sequence[Series], **more: Any) -> Chart:
    return Chart(title, "lines", "epoch", quantity, series, **more)


def _perplexities(models: Sequence[tuple[str, LearningCurve]]) -> Chart:
    series = []
    for name, curve in models:
        train = [perplexity_of(loss) for loss in curve.losses]
        valid = curve.scores[PERPLEXITY]
        best = f"validation, {min(valid):.1f} at best"
        series.append(Series(_label(name, best, models), curve.epochs, valid))
        trained = _label(name, "training (with any dropout)", models)
        series.append(Series(trained, curve.epochs, train, style="dashed"))
    return _by_epoch("Perplexity by epoch", "perplexity per token", series, y_scale="log")


def _scores(runs: Sequence[tuple[str, LearningCurve]]) -> list[Chart]:
    """Return the losses and the scores of runs that have the same scores, a chart each."""
    groups: dict[tuple[str, ...], list[tuple[str, LearningCurve]]] = {}
    for name, curve in runs:
        groups.setdefault(tuple(curve.scores), []).append((name, curve))
    losses, scores = [], []
    for alike in groups.values():
        of = f": {', '.join(name for name, _ in alike)}" if len(groups) > 1 else ""
        series = [Series(_label(name, "", alike), curve.epochs, curve.losses)
                  for name, curve in alike]  # fmt: skip
        title = f"Training loss by epoch{of}"
        losses.append(_by_epoch(title, "training loss, with any dropout (nats)", series))
        series = [
            Series(_label(name, _best(key, values, curve), alike), curve.epochs, values)
            for name, curve in alike
            for key, values in curve.scores.items()
        ]
        note = "The numbers beside the names are those of the best epoch."
        title = f"Validation scores by epoch{of}"
        scores.append(_by_epoch(title, "validation score (percent)", series, note=note))
    return [*losses, *scores]


def _best(score: str, values: Sequence[float], curve: LearningCurve) -> str:
    """Return a score with its value of the epoch whose weights the model has."""
    return f"{shown_name(score)} {values[curve.best]:.2f} (epoch {curve.epochs[curve.best]})"
