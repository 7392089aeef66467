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
    assert curve.train == pytest.approx([300, 200])
    assert curve.valid == [250, 190]


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


def test_a_loss_beyond_all_bounds_is_an_infinite_perplexity(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    epoch = {"event": "epoch", "epoch": 1, "loss": 1e4, "scores": {"valid_perplexity": 9.0}}
    path.write_text(json.dumps(epoch) + "\n", encoding="utf-8")
    assert read_learning_curve(path).train == [math.inf]
