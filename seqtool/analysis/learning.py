"""How models were learned: the curves of one run, or of several beside each other.

What is drawn is read from `log.jsonl`, the events of a run (`seqtool.core.progress`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


@dataclass
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


def read_learning_curve(log_path: str | Path) -> LearningCurve:
    """Return the epochs of a run's `log.jsonl`.

    Raises:
        DataError: no such file, a line that is no event, or no epoch that was completed.
    """
    path = Path(log_path)
    try:
        lines = storage.read_file(path, MAX_LOG).decode().split("\n")
    except (OSError, ValueError) as error:
        raise DataError("no training log", hint="name a trained model", path=path) from error
    if not lines[-1]:  # what stands after the last line end
        lines.pop()
    curve = LearningCurve()
    settings: list[dict[str, float]] = []
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            if event["event"] == "epoch":
                settings.append(_add_epoch(curve, event))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                "not a line of a training log", hint="name a trained model", path=path, line=number
            ) from error
    if not curve.epochs:
        raise DataError("no epoch was completed", hint="train for longer", path=path)
    for name in SETTINGS:
        if all(name in epoch for epoch in settings):
            curve.settings[name] = [epoch[name] for epoch in settings]
    return curve


def _add_epoch(curve: LearningCurve, event: dict[str, Any]) -> dict[str, float]:
    """Add an epoch to a curve, and return what the log has of its settings."""
    scores = {name: _number(value) for name, value in event["scores"].items()}
    if not scores or (curve.epochs and scores.keys() != curve.scores.keys()):
        raise KeyError("scores")
    for name, value in scores.items():
        curve.scores.setdefault(name, []).append(value)
    curve.losses.append(_number(event["loss"]))
    curve.epochs.append(int(event["epoch"]))
    if event.get("is_best", False):
        curve.best = len(curve.epochs) - 1
    # a run without norms has null
    gradients = event.get("gradients") or {}
    logged = {"learning_rate": event.get("learning_rate"), "gradient_norm": gradients.get("norm"),
              "clipped": gradients.get("clipped")}  # fmt: skip
    return {name: float(value) for name, value in logged.items() if value is not None}


def _number(value: float | None) -> float:
    """Return a number of the log, where null is one that was not finite."""
    return math.inf if value is None else float(value)


def logs_of(path: Path) -> list[Path]:
    """Return the logs of a run: its own, or those of the parts of a pipeline."""
    own = path if path.is_file() else path / LOG
    parts = sorted(path.glob(f"*/{LOG}"))
    return [own] if own.is_file() else [p for p in parts if p.parent.name not in ("best", "last")]


def find_logs(path: Path) -> list[tuple[str, Path]]:
    """Return the logs of a run, each with the name of what was trained.

    Raises:
        DataError: there is none.
    """
    if not path.exists():
        raise DataError("no such model or log", hint="check the path", path=path)
    logs = logs_of(path)
    if not logs:
        hint = "name a model that was trained in epochs; an n-gram model alone"
        raise DataError("no training log is there", hint=hint, path=path)
    own = (path, path / LOG)
    return [(str(path if log in own else log.parent), log) for log in logs]


def learning_curves(runs: Sequence[tuple[str, Path]], *, settings: bool = True) -> Report:
    """Return how runs went, those of one kind on one chart.

    Of language models these are training and validation perplexity by epoch; of parsers, taggers
    and segmenters the training loss, and the scores of the validation part.

    Args:
        runs: (name, its `log.jsonl`) of each.
        settings: also draw learning rate, gradient and clipping, as far as the logs have them.

    Raises:
        DataError: a log cannot be read.
    """
    curves = {name: read_learning_curve(log) for name, log in runs}
    named = len(curves) > 1
    rows: list[list[Cell]] = []
    for name, curve in curves.items():
        best = curve.best
        scores = (f"{shown_name(key)} {values[best]:.2f}" for key, values in curve.scores.items())
        figures = [len(curve.epochs), curve.epochs[best], curve.losses[best]]
        rows.append([name, *figures, ", ".join(scores)])
    columns = ["run", "epochs", "best epoch", "its training loss", "scores"]
    table = Table("The epoch whose weights a model has", columns, rows)
    report = Report("Learning curves", tables=[table])
    models = {name: curve for name, curve in curves.items() if curve.is_perplexity}
    if models:
        report.charts.append(_perplexities(models, named))
    others = {name: curve for name, curve in curves.items() if not curve.is_perplexity}
    report.charts += _scores(others, named)
    for key, (title, label, scale) in SETTINGS.items() if settings else ():
        series = [
            Series(_label(name, "", named), curve.epochs, [scale * value for value in values])
            for name, curve in curves.items()
            if (values := curve.settings.get(key))
        ]
        if series:
            report.charts.append(Chart(title, "lines", "epoch", label, series))
    report.values["runs"] = [
        {
            "run": name,
            "epochs": curve.epochs,
            "losses": curve.losses,
            "scores": curve.scores,
            "best_epoch": curve.epochs[curve.best],
            **curve.settings,
        }
        for name, curve in curves.items()
    ]
    return report


def shown_name(score: str) -> str:
    """Return how a score is called in print."""
    shown = score.removeprefix("dev_").replace("_", " ")
    return ABBREVIATIONS.get(shown, shown)


def _label(name: str, what: str, named: bool) -> str:
    """Return the label of a curve: with the run's name, where there are several runs."""
    if not named:
        return what
    return f"{name}: {what}" if what else name


def _perplexities(models: Mapping[str, LearningCurve], named: bool) -> Chart:
    series = []
    for name, curve in models.items():
        train = [perplexity_of(loss) for loss in curve.losses]
        valid = curve.scores[PERPLEXITY]
        best = _label(name, f"validation, {min(valid):.1f} at best", named)
        series.append(Series(best, curve.epochs, valid))
        trained = _label(name, "training (with any dropout)", named)
        series.append(Series(trained, curve.epochs, train, style="dashed"))
    title, label = "Perplexity by epoch", "perplexity per token"
    return Chart(title, "lines", "epoch", label, series, y_scale="log")


def _scores(runs: Mapping[str, LearningCurve], named: bool) -> list[Chart]:
    """Return the losses and the scores of runs that have the same scores, a chart each."""
    groups: dict[tuple[str, ...], dict[str, LearningCurve]] = {}
    for name, curve in runs.items():
        groups.setdefault(tuple(curve.scores), {})[name] = curve
    losses, scores = [], []
    note = "The numbers beside the names are those of the best epoch."
    for alike in groups.values():
        which = f": {', '.join(alike)}" if len(groups) > 1 else ""
        of_losses, of_scores = [], []
        for name, curve in alike.items():
            of_losses.append(Series(_label(name, "", named), curve.epochs, curve.losses))
            for key, values in curve.scores.items():
                best = f"{values[curve.best]:.2f} (epoch {curve.epochs[curve.best]})"
                label = _label(name, f"{shown_name(key)} {best}", named)
                of_scores.append(Series(label, curve.epochs, values))
        title, label = f"Training loss by epoch{which}", "training loss, with any dropout (nats)"
        losses.append(Chart(title, "lines", "epoch", label, of_losses))
        title, label = f"Validation scores by epoch{which}", "validation score (percent)"
        scores.append(Chart(title, "lines", "epoch", label, of_scores, note=note))
    return [*losses, *scores]
