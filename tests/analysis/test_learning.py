from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from seqtool.analysis.plots import plot_learning_curve, read_learning_curve
from seqtool.core.errors import ConfigError, DataError


def write_log(path: Path) -> Path:
    events = [
        {"event": "run_started", "step": 0},
        {"event": "step", "loss": 5.0},
        {"event": "epoch", "epoch": 1, "loss": math.log(300), "scores": {"valid_perplexity": 250}},
        {"event": "epoch", "epoch": 2, "loss": math.log(200), "scores": {"valid_perplexity": 190}},
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def test_curve_holds_the_epochs_and_nothing_else(tmp_path: Path) -> None:
    curve = read_learning_curve(write_log(tmp_path / "log.jsonl"))
    assert curve.epochs == [1, 2]
    assert curve.losses == pytest.approx([math.log(300), math.log(200)])
    assert curve.scores == {"valid_perplexity": [250, 190]}


def test_svg_shows_both_curves_and_the_best_value(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    plot_learning_curve(write_log(tmp_path / "log.jsonl"), tmp_path / "curve.svg")
    drawing = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    for words in ("training (with dropout)", "validation", "190.0", "epoch", "perplexity"):
        assert f"<!-- {words} -->" in drawing  # matplotlib draws text as paths and names it so


def test_unknown_format_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    with pytest.raises(ConfigError) as caught:
        plot_learning_curve(write_log(tmp_path / "log.jsonl"), tmp_path / "curve.nonsense")
    assert ".png" in caught.value.hint
    assert not (tmp_path / "curve.nonsense").exists()


@pytest.mark.parametrize(
    ("content", "line"),
    [("nonsense\n", 1), ('{"event": "step"}\n{"event": "epoch"}\n', 2), ("[]\n", 1)],
)
def test_broken_log_names_the_line(content: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_learning_curve(path)
    assert (caught.value.path, caught.value.line) == (str(path), line)


def test_missing_log_and_no_epoch(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no training log"):
        read_learning_curve(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="no epoch"):
        read_learning_curve(tmp_path / "log.jsonl")


def test_a_pipeline_names_its_parts(tmp_path: Path) -> None:
    (tmp_path / "parser").mkdir()
    write_log(tmp_path / "parser" / "log.jsonl")
    with pytest.raises(DataError, match="no training log") as caught:
        read_learning_curve(tmp_path / "log.jsonl")
    assert caught.value.hint == f"name a part that was trained: {tmp_path / 'parser'}"


def test_a_loss_beyond_all_bounds_is_an_infinite_perplexity(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    path = tmp_path / "log.jsonl"
    events = [
        {"event": "epoch", "epoch": 1, "loss": 1e4, "scores": {"valid_perplexity": None}},
        {"event": "epoch", "epoch": 2, "loss": None, "scores": {"valid_perplexity": 9.0}},
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    curve = read_learning_curve(path)
    assert curve.losses == [1e4, math.inf]
    assert curve.scores == {"valid_perplexity": [math.inf, 9.0]}
    plot_learning_curve(path, tmp_path / "curve.svg")
    assert "<!-- 9.0 -->" in (tmp_path / "curve.svg").read_text(encoding="utf-8")


SCORES = {
    "parser": ({"dev_uas": 80.0, "dev_las": 70.0}, {"dev_uas": 91.5, "dev_las": 88.25}),
    "tagger": ({"dev_upos": 90.0, "dev_lemmas": 91.0}, {"dev_upos": 95.0, "dev_lemmas": 96.0}),
    "segmenter": ({"dev_words": 100.0, "dev_mean": 100.0}, {"dev_words": 100.0, "dev_mean": 100.0}),
}
SHOWN = {
    "parser": ("UAS 91.50", "LAS 88.25"),
    "tagger": ("UPOS 95.00", "lemmas 96.00"),
    "segmenter": ("words 100.00", "mean 100.00"),
}


@pytest.mark.parametrize("kind", SCORES)
def test_scores_of_what_is_trained_on_treebanks(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    first, second = SCORES[kind]
    events = [
        {"event": "epoch", "epoch": 1, "loss": 2.0, "scores": first, "is_best": True},
        {"event": "epoch", "epoch": 2, "loss": 1.0, "scores": second, "is_best": True},
        {"event": "epoch", "epoch": 3, "loss": 0.9, "scores": first, "is_best": False},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    plot_learning_curve(log, tmp_path / "curve.svg")
    drawing = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    words = ("training loss (with dropout)", "validation score, percent", "epoch 2, the best")
    for text in (*words, *SHOWN[kind]):
        assert f"<!-- {text} -->" in drawing


def test_epochs_with_other_scores_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        {"event": "epoch", "epoch": number, "loss": 1.0, "scores": {name: 1.0}}
        for number, name in ((1, "dev_las"), (2, "dev_words"))
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_learning_curve(log)
    assert caught.value.line == 2
