"""`seqtool train-snm` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

SMALL = ("--order", "3", "--remote", "1", "--gap", "1", "--adjacent", "0", "--table-bits", "10")


@pytest.fixture(autouse=True)
def _texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text("a b c\nb a\n" * 30, encoding="utf-8")
    (folder / "valid.txt").write_text("a b\n", encoding="utf-8")


def test_a_model_from_training_to_use(seqtool: Run) -> None:
    result = seqtool("train-snm", "texts", "-o", "snm", *SMALL)
    assert (result.code, result.stdout) == (0, "snm\n")
    lines = result.stderr.splitlines()
    assert lines[0] == "60 sentences, 210 tokens with </s>, 0 unknown (0.00%), vocabulary of 5"
    assert lines[1].split() == ["remote", "skipped", "adjacent", "features", "pairs"]
    # one feature of no words with 4 targets; <s>, a, b and c with what follows each
    assert [line.split() for line in lines[2:4]] == [
        ["0", "0", "0", "1", "4"],
        ["0", "0", "1", "4", "7"],
    ]
    assert [line.split(":")[0] for line in lines[6:8]] == ["epoch 1", "epoch 2"]
    assert lines[-2].startswith("valid perplexity ")
    assert lines[-1] == "next: seqtool eval-ppl -m snm  or  seqtool inspect snm"
    evaluation = json.loads(seqtool("eval-ppl", "-m", "snm", "--json").stdout)
    assert f"{evaluation['perplexity']:.2f}" == lines[-2].split()[-1]
    assert "Sparse non-negative matrix" in Path("snm", "README.md").read_text(encoding="utf-8")
    told = json.loads(seqtool("inspect", "snm", "--json").stdout)
    assert (told["kind"], told["kinds"][1]["pairs"]) == ("snm", 7)
    shown = [line.split() for line in seqtool("inspect", "snm").stdout.splitlines()]
    assert ["0", "0", "1", "4", "7"] in shown
    per_token = seqtool("eval-ppl", "-m", "snm", "--per-token", "-").stdout.splitlines()
    assert per_token[0].split("\t") == ["sentence", "token", "surprisal", "oov", "features"]
    assert seqtool("generate", "-m", "snm", "--prompt", "a", "--seed", "1").code == 0
    assert seqtool("generate", "-m", "snm", "--prompt", "a", "--next", "2").code == 0
    assert seqtool("surprisal", "texts/valid.txt", "-m", "snm").code == 0
    assert seqtool("analyse", "context", "texts/train.txt", "-m", "snm", "--json").code == 0


def test_json(seqtool: Run) -> None:
    result = json.loads(seqtool("train-snm", "texts", "-o", "snm", *SMALL, "--json").stdout)
    assert (result["model"], result["tokens"], result["sentences"]) == ("snm", 210, 60)
    assert [kind["skipped"] for kind in result["kinds"]] == [0, 0, 0, 1]
    assert len(result["losses"]) == 2
    assert {"valid_perplexity", "train_seconds"} <= result.keys()


def test_a_limit_of_time_and_epochs(seqtool: Run) -> None:
    both = seqtool("train-snm", "texts", "-o", "snm", "--epochs", "3", "--time-limit", "1s")
    assert "note: --time-limit takes the place of --epochs" in both.stderr.splitlines()
    timed = ("--epochs", "0", "--time-limit", "1s", "--lr", "0.1")
    assert seqtool("train-snm", "texts", "-o", "learnt", *timed).code == 0
    one = seqtool("train-snm", "texts", "-o", "timed", "--time-limit", "1s")
    assert "takes the place" not in one.stderr


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--gap", "0"), "error: remote is 2, but gap is 0"),
        (("--remote", "3", "--order", "1"), "error: remote is set, but features of order 1"),
        (("--vocab-size", "2"), "error: vocab_size is 2, but must be at least 3"),
        (("--lr", "0"), "error: learning_rate is 0.0, but must be more than 0"),
        (("--remote", "0", "--gap", "2"), "error: gap counts only where"),
        (("--remote", "0", "--adjacent", "1"), "error: adjacent counts only where"),
        (("--epochs", "0", "--lr", "0.1"), "error: learning_rate counts only where"),
        (("--epochs", "0", "--table-bits", "9"), "error: table_bits counts only where"),
    ],
)
def test_a_mistake_is_two_lines_and_nothing_is_written(
    seqtool: Run, typed: tuple[str, ...], message: str
) -> None:
    result = seqtool("train-snm", "texts", "-o", "snm", *typed)
    assert result.code == 1
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith(message)
    assert second.startswith("hint: ")
    assert not Path("snm").exists()
