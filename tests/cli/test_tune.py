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
from seqtool.training.tuning import tune

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


def test_a_training_that_was_stopped_goes_on(letters: Path, tmp_path: Path) -> None:
    config = resolve(None, {}, ["batch_size=4", "bptt=5", "epochs=2"])
    more: dict[str, Any] = {"threads": 1, "device": "cpu", "on_event": lambda event, name: None}
    space = {"hidden_size": [4, 8]}
    whole = tune(train_lm, letters, config, space, output=tmp_path / "whole", **more)
    asked: list[int] = []

    def stop(step: int) -> bool:
        asked.append(step)
        return len(asked) in (5, 40)

    out = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(Exception, match="search was interrupted in trial"):
            tune(train_lm, letters, config, space, output=out, should_stop=stop, **more)
    tuned = tune(train_lm, letters, config, space, output=out, should_stop=stop, **more)
    assert [(each.trial, each.score, each.epochs) for each in tuned.outcomes] == [
        (each.trial, each.score, each.epochs) for each in whole.outcomes
    ]


def test_an_unknown_score_is_found_after_an_epoch(
    seqtool: Run, letters: Path, tmp_path: Path
) -> None:
    command = ("tune", "lm", letters, "-o", tmp_path / "out", *TINY, "--set", "epochs=9")
    result = seqtool(*command, "--try", "hidden_size=4", "--score", "test_perplexity")
    assert (result.code, "no score 'test_perplexity'" in result.stderr) == (1, True)
    assert "valid_perplexity, train_seconds, tokens_per_second" in result.stderr
    assert "epoch 2" not in result.stderr


def test_treebanks(seqtool: Run, tmp_path: Path) -> None:
    source = sample_treebank("en", "valid").read_text(encoding="utf-8")
    short, one = tmp_path / "train.conllu", ("--threads", "1")
    short.write_text("\n\n".join(source.split("\n\n")[:60]) + "\n\n", encoding="utf-8")
    command = (
        *("tune", "parser", short, "--dev", short, "-o", tmp_path / "out", *one),
        *("--config", "linear", "--set", "epochs=1", "--set", "explore_after=0"),
        *("--try", "exploration=0.0,0.9"),
    )
    result = seqtool(*command, "--json")
    assert result.code == 0
    found = json.loads(result.stdout)
    scores = [each["score"] for each in found["trials"]]
    assert len({*scores}) == 2
    assert found["best"]["score"] == max(scores) > 50
    assert f"next: seqtool train-parser {short} --dev {short} --config" in seqtool(*command).stderr
    best = (short, "--dev", short, "-o", tmp_path / "best", *one, "--config", found["config"])
    again = json.loads(seqtool("train-parser", *best, "--json").stdout)
    assert again["dev_las"] == found["best"]["score"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lms --try size=1", "nothing that is trained is called 'lms'"),
        ("lm", "nothing is to be tried"),
        ("lm - --try hidden_size=1", "stdin can be read once"),
        ("lm a b --try hidden_size=1", "a language model has one DATA"),
        ("lm --try hidden_size", "not settings and their values"),
        ("lm --try hiden_size=1", "unknown setting hiden_size"),
        ("lm --try depth=2,4", "depth counts only where cell is rhn"),
        ("lm --try schedule_cycle=3,4 --try hidden_size=4,8", "schedule_cycle counts only"),
        ("lm --try hidden_size=4,8 --set model.hidden_size=9", "--set gives it one value"),
        ("parser --config linear --try hidden_size=8,16", "hidden_size counts only"),
        (
            "parser --config linear --set hidden_size=8 --try hash_bits=14,15",
            "hidden_size counts only",
        ),
        ("tagger --set model.lm_size=64 --try lexical_size=8,9", "lm_size counts only"),
        ("parser --list-settings --try nosuch=3", "unknown setting nosuch"),
    ],
)
def test_mistakes(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seqtool("tune", *words.split())
    assert (result.code, result.stdout) == (1, "")
    *notes, error, hint = result.stderr.splitlines()
    assert all(note.startswith("no DATA given") for note in notes)
    assert error.startswith("error: ")
    assert message in error
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


def test_what_some_trials_read_may_be_searched_for_all(seqtool: Run, tmp_path: Path) -> None:
    command = ("tune", "lm", "--list-settings", "-o", tmp_path / "tune")
    some = ("--try", "cell=lstm,rhn", "--try", "layers=1,2", "--set", "model.depth=3")
    assert seqtool(*command, *some).code == 0
    parsers = ("--config", "linear", "--try", "hidden_size=8,16")
    parsers += ("--try", "classifier=neural,linear")  # one of which reads hidden_size
    assert seqtool("tune", "parser", *parsers, "--list-settings").code == 0


def test_a_search_in_which_nothing_was_trained_is_no_other(
    seqtool: Run, letters: Path, tmp_path: Path
) -> None:
    command = ("--try", "hidden_size=4,8", "--trials", "1", *TINY, "--set", "epochs=1")
    output = ("-o", tmp_path / "tune")
    assert seqtool("tune", "lm", tmp_path / "none.txt", *command, *output).code == 1
    assert seqtool("tune", "lm", letters, *command, *output).code == 0
