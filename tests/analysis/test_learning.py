from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from seqtool.analysis.learning import PERPLEXITY, find_logs, learning_curves, read_learning_curve
from seqtool.core.errors import DataError


def write(path: Path, *events: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def epoch(number: int, loss: float | None, scores: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"event": "epoch", "epoch": number, "loss": loss, "scores": scores, **more}


def write_log(path: Path) -> Path:
    return write(
        path,
        {"event": "run_started", "step": 0},
        {"event": "step", "loss": 5.0},
        epoch(1, math.log(300), {PERPLEXITY: 250}),
        epoch(2, math.log(200), {PERPLEXITY: 190}),
    )


def test_perplexities_and_the_best_value(tmp_path: Path) -> None:
    report = learning_curves([("runs/lm", write_log(tmp_path / "log.jsonl"))])
    (chart,) = report.charts
    valid, train = chart.series
    assert list(valid.y) == [250, 190]
    assert list(train.y) == pytest.approx([300, 200])
    assert (valid.label, train.label) == (
        "validation, 190.0 at best", "training (with any dropout)"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("nonsense\n", 1, "not a line"),
        ('{"event": "step"}\n{"event": "epoch"}\n', 2, "not a line"),
        ("[]\n", 1, "not a line"),
        ("", None, "no epoch"),
    ],
)
def test_a_broken_log(content: str, line: int | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_learning_curve(path)
    assert (caught.value.path, caught.value.line) == (str(path), line)


def test_what_is_not_finite_is_null_in_the_log(tmp_path: Path) -> None:
    epochs = epoch(1, 1e4, {PERPLEXITY: None}), epoch(2, None, {PERPLEXITY: 9.0})
    curve = read_learning_curve(write(tmp_path / "log.jsonl", *epochs))
    assert curve.losses == [1e4, math.inf]
    assert curve.scores == {PERPLEXITY: [math.inf, 9.0]}


# scores of the first and third, and of the second epoch, which is the best; how they are shown
SCORES = {
    "parser": ({"dev_uas": 80.0, "dev_las": 70.0}, {"dev_uas": 91.5, "dev_las": 88.25},
               ("UAS 91.50", "LAS 88.25")),
    "tagger": ({"dev_upos": 90.0, "dev_lemmas": 91.0}, {"dev_upos": 95.0, "dev_lemmas": 96.0},
               ("UPOS 95.00", "lemmas 96.00")),
}  # fmt: skip


def write_scores(path: Path, kind: str) -> Path:
    worse, best, _ = SCORES[kind]
    return write(
        path,
        epoch(1, 2.0, worse, is_best=True),
        epoch(2, 1.0, best, is_best=True),
        epoch(3, 0.9, worse, is_best=False),
    )


@pytest.mark.parametrize("kind", SCORES)
def test_scores_of_what_is_trained_on_treebanks(tmp_path: Path, kind: str) -> None:
    report = learning_curves([("run", write_scores(tmp_path / "log.jsonl", kind))])
    labels = [series.label for series in report.charts[-1].series]
    assert labels == [f"{text} (epoch 2)" for text in SCORES[kind][2]]
    assert report.values["runs"][0]["best_epoch"] == 2


def test_several_runs_stand_on_one_chart_for_each_kind(tmp_path: Path) -> None:
    runs = [(kind, write_scores(tmp_path / kind / "log.jsonl", kind)) for kind in SCORES]
    runs += [("one", write_log(tmp_path / "one.jsonl")), ("two", write_log(tmp_path / "two.jsonl"))]
    charts = {chart.title: chart for chart in learning_curves(runs).charts}
    assert list(charts) == [
        "Perplexity by epoch", "Training loss by epoch: parser", "Training loss by epoch: tagger",
        "Validation scores by epoch: parser", "Validation scores by epoch: tagger",
    ]  # fmt: skip
    labels = [series.label for series in charts["Perplexity by epoch"].series]
    assert labels == [
        "one: validation, 190.0 at best", "one: training (with any dropout)",
        "two: validation, 190.0 at best", "two: training (with any dropout)",
    ]  # fmt: skip


def test_what_clipping_did_stands_below(tmp_path: Path) -> None:
    epochs = [
        epoch(number, 1.0, {PERPLEXITY: 9.0}, learning_rate=0.1 / number,
              gradients={"norm": 3.0 * number, "clipped": 0.25})
        for number in (1, 2)
    ]  # fmt: skip
    path = write(tmp_path / "log.jsonl", *epochs)
    charts = learning_curves([("run", path)]).charts[1:]
    assert [(chart.title, list(chart.series[0].y)) for chart in charts] == [
        ("Learning rate", [0.1, 0.05]),
        ("Gradient before clipping", [3.0, 6.0]),
        ("Clipping", [25.0, 25.0]),
    ]


def test_logs_of_a_run_and_of_the_parts_of_a_pipeline(tmp_path: Path) -> None:
    for part in ("tagger", "parser", "last"):
        write_scores(tmp_path / "mine" / part / "log.jsonl", "parser")
    found = find_logs(tmp_path / "mine")
    assert [Path(name).name for name, _ in found] == ["parser", "tagger"]
    log = tmp_path / "mine" / "parser" / "log.jsonl"
    assert find_logs(log) == [(str(log), log)]
    assert find_logs(log.parent) == [(str(log.parent), log)]
    with pytest.raises(DataError, match="no training log is there"):
        find_logs(tmp_path)
