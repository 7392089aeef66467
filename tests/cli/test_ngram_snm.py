"""`seqtool ngram snm` as a user meets it."""

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
    result = seqtool("ngram", "snm", "texts", "-o", "snm", *SMALL)
    assert (result.code, result.stdout) == (0, "snm\n")
    lines = result.stderr.splitlines()
    assert lines[0] == "60 sentences, 210 tokens with </s>, 0 unknown (0.00%), vocabulary of 5"
    # one feature of no words with 4 targets; <s>, a, b and c with what follows each
    assert [line.split() for line in lines[2:4]] == [
        ["0", "0", "0", "1", "4"],
        ["0", "0", "1", "4", "7"],
    ]
    assert [line.split(":")[0] for line in lines[6:8]] == ["epoch 1", "epoch 2"]
    assert lines[-1] == "next: seqtool eval-ppl -m snm  or  seqtool inspect snm"
    evaluation = json.loads(seqtool("eval-ppl", "-m", "snm", "--json").stdout)
    assert lines[-2] == f"valid perplexity {evaluation['perplexity']:.2f}"
    shown = json.loads(seqtool("inspect", "snm", "--json").stdout)
    assert (shown["kind"], shown["kinds"][1]["pairs"]) == ("snm", 7)
    rows = [line.split() for line in seqtool("inspect", "snm").stdout.splitlines()]
    assert ["0", "0", "1", "4", "7"] in rows
    per_token = seqtool("eval-ppl", "-m", "snm", "--per-token", "-").stdout.splitlines()
    assert per_token[0].split("\t") == ["sentence", "token", "surprisal", "oov", "features"]
    for command in (
        "generate --prompt a --seed 1",
        "generate --prompt a --next 2",
        "surprisal texts/valid.txt",
        "analyse context texts/train.txt --json",
    ):
        assert seqtool(*command.split(), "-m", "snm").code == 0
    again = seqtool("ngram", "snm", "texts", "-o", "again", *SMALL, "--json")
    content = json.loads(again.stdout)
    assert (content["model"], content["tokens"], content["sentences"]) == ("again", 210, 60)
    assert [kind["skipped"] for kind in content["kinds"]] == [0, 0, 0, 1]
    assert len(content["losses"]) == 2
    assert {"valid_perplexity", "train_seconds"} <= content.keys()
    timed = ("--epochs", "0", "--time-limit", "1s", "--lr", "0.1")
    assert seqtool("ngram", "snm", "texts", "-o", "learnt", *timed).code == 0


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--gap 0", "gap is 0"),
        ("--remote 3 --order 1", "order 1"),
        ("--vocab-size 2", "vocab_size is 2"),
        ("--lr 0", "learning_rate"),
        ("--remote 0 --gap 2", "gap"),
        ("--epochs 0 --lr 0.1", "learning_rate"),
        ("--epochs 0 --table-bits 9", "table_bits"),
    ],
)
def test_a_mistake_is_two_lines_and_nothing_is_written(
    seqtool: Run, typed: str, message: str
) -> None:
    result = seqtool("ngram", "snm", "texts", "-o", "snm", *typed.split())
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert not Path("snm").exists()
