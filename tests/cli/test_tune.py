"""`seqtool tune` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.lm.neural.config import resolve
from seqtool.lm.neural.train import train_lm
from seqtool.text.datasets import sample_treebank

Run = Callable[..., Any]
TINY = ("--set", "batch_size=4", "--set", "bptt=5", "--threads", "1", "--device", "cpu")


def test_a_search(seqtool: Run, letters: Path, tmp_path: Path) -> None:
    output = tmp_path / "검색"
    command = ("tune", "lm", letters, "-o", output, *TINY, "--set", "epochs=2", "--trials", "3")
    tried = ("--try", "hidden_size=4,8", "--try", "learning_rate=0.001..0.1:log")
    result = seqtool(*command, *tried, "--rounds", "2", "--factor", "2")
    assert result.code == 0
    header, *rows = result.stdout.splitlines()
    assert header.split() == [
        *("trial", "round", "valid_perplexity", "hidden_size", "learning_rate", "seconds")
    ]
    assert [row.split()[1] for row in rows] == ["2", "1", "1"]
    assert f"next: seqtool train-lm {letters} --config " in result.stderr.splitlines()[-1]
    # the same command has nothing left to do, and says the same
    again = seqtool(*command, *tried, "--rounds", "2", "--factor", "2", "--json")
    found = json.loads(again.stdout)
    assert "epoch" not in again.stderr
    assert [str(each["trial"]) for each in found["trials"]] == [row.split()[0] for row in rows]
    # the best one's file gives a training with the same score
    config = resolve(str(output / "best.yaml"), {}, ())
    assert config.training.learning_rate == found["best"]["settings"]["training.learning_rate"]
    trained = train_lm(letters, tmp_path / "best", config, device="cpu", threads=1)
    assert trained.scores["valid_perplexity"] == found["best"]["score"]
    other = seqtool(*command, "--try", "hidden_size=2,4")
    assert (other.code, "holds another search" in other.stderr) == (1, True)


def test_treebanks(seqtool: Run, tmp_path: Path) -> None:
    source = sample_treebank("en", "valid").read_text(encoding="utf-8")
    short, one = tmp_path / "train.conllu", ("--threads", "1")
    short.write_text("\n\n".join(source.split("\n\n")[:60]) + "\n\n", encoding="utf-8")
    options = "--config linear --set epochs=1 --set explore_after=0 --try exploration=0.0,0.9"
    command = ("tune", "parser", short, "--dev", short, "-o", tmp_path / "out", *one)
    result = seqtool(*command, *options.split(), "--json")
    assert result.code == 0
    tuned = json.loads(result.stdout)
    scores = [each["score"] for each in tuned["trials"]]
    assert len({*scores}) == 2
    assert tuned["best"]["score"] == max(scores) > 50
    best = (short, "--dev", short, "-o", tmp_path / "best", *one, "--config", tuned["config"])
    again = json.loads(seqtool("train-parser", *best, "--json").stdout)
    assert again["dev_las"] == tuned["best"]["score"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lms --try size=1", "nothing that is trained is called 'lms'"),
        ("lm", "nothing is to be tried"),
        ("lm - --try hidden_size=1", "stdin can be read once"),
        ("lm --try hidden_size", "is not settings and their values"),
        ("lm --try depth=2,4", "depth counts only where cell is rhn"),
        ("lm --try epochs=2,4 --time-limit 1m", "training.epochs is tried"),
        ("lm --try hidden_size=4,8 --set model.hidden_size=9", "--set gives it one value"),
        ("parser --config linear --try hidden_size=8,16", "hidden_size counts only"),
    ],
)
def test_mistakes(refused: Callable[..., str], words: str, message: str) -> None:
    refused(f"tune {words}", message)


def test_what_some_trials_read_may_be_searched_for_all(seqtool: Run, tmp_path: Path) -> None:
    settings = ("--set", "depth=3", "--set", "dropout_hidden=0.2", "--list-settings")
    command = ("tune", "lm", *settings, "-o", tmp_path / "tune", "--try", "layers=1,2")
    assert seqtool(*command, "--try", "cell=lstm,rhn").code == 0
    assert "depth counts only where" in seqtool(*command).stderr
