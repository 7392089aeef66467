"""`seqtool train-tagger` and `seqtool tag` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parsing.tagger.toy import SIZES, write_treebank

from seqtool.core import checkpoint

Run = Callable[..., Any]
TINY = (
    *("--epochs", "1", "--device", "cpu", "--set", "training.precision=float32"),
    *(part for name, size in SIZES.items() for part in ("--set", f"model.{name}={size}")),
)

WITH_EVERYTHING = """\
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tvamos\tir\t_\t_\t_\t2\tx\t_\t_
2\tnos\t_\tNOUN\t_\t_\t99\ty\t1:a|3.1:b\t_
3\tmar\t_\t_\t_\t_\t_\t_\t_\tA=b
3.1\tghost\t_\t_\t_\t_\t_\t_\t1:a\t_

"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagging")
    write_treebank(folder / "train.conllu", 40)
    write_treebank(folder / "dev.conllu", 10, seed=1)
    return folder


def others(text: str) -> list[list[str]]:
    """All lines without the columns that are predicted."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [row[:2] + row[6:] if row[0].isdecimal() else row for row in lines]


@pytest.mark.usefixtures("here")
def test_only_what_is_missing_changes(seqtool: Run) -> None:
    Path("in.conllu").write_text(WITH_EVERYTHING, encoding="utf-8")
    result = seqtool("tag", "in.conllu", "-m", "tagger")
    assert (result.code, result.stderr) == (0, "")
    assert others(result.stdout) == others(WITH_EVERYTHING)
    rows = [line.split("\t") for line in result.stdout.splitlines() if line[0:2] in ("1\t", "2\t")]
    assert rows[0][2] == "ir"
    assert rows[1][3] == "NOUN"
    assert "_" not in [rows[0][3], rows[0][4], rows[1][2], rows[1][4]]
    again = seqtool("tag", "in.conllu", "-m", "tagger", "--retag")
    assert others(again.stdout) == others(WITH_EVERYTHING)
    assert again.stdout.splitlines()[3].split("\t")[2] != "ir"
    # in its place
    assert seqtool("tag", "in.conllu", "-m", "tagger", "--retag", "-o", "in.conllu").stdout == ""
    assert Path("in.conllu").read_text(encoding="utf-8") == again.stdout
    # all is there now
    kept = seqtool("tag", "in.conllu", "-m", "tagger")
    assert kept.stdout == again.stdout
    assert "--retag predicts all anew" in kept.stderr
    assert seqtool("tag", "in.conllu", "-m", "tagger", "--retag").stderr == ""


@pytest.mark.usefixtures("here")
def test_plain_text(seqtool: Run) -> None:
    """By rules, or by spaces; a tagger alone cannot split it."""
    Path("text.txt").write_text("the dogs walk .\nAnn jumped .\n", encoding="utf-8")
    by_spaces = seqtool("tag", "text.txt", "-m", "tagger", "--pretokenized")
    assert by_spaces.code == 0
    rows = [line.split("\t") for line in by_spaces.stdout.splitlines() if line[:1].isdecimal()]
    assert [row[1] for row in rows] == ["the", "dogs", "walk", ".", "Ann", "jumped", "."]
    assert all("_" not in (row[2], row[3], row[4]) for row in rows)
    by_rules = seqtool("tag", "text.txt", "-m", "tagger", "--rules")
    assert [line.split("\t")[:6] for line in by_rules.stdout.splitlines() if "\t" in line] == [
        row[:6] for row in rows
    ]
    result = seqtool("tag", "text.txt", "-m", "tagger")
    assert (result.code, result.stdout) == (1, "")
    assert "has no segmenter" in result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (["tag", "x.conllu"], "no model was given", "seqtool train-tagger"),
        (["tag", "nowhere.conllu", "-m", "tagger"], "no such file", "check the path"),
        (["parse", "x.conllu", "-m", "tagger"], "is no parser", "train-parser"),
        (["train-tagger", "x.conllu", "-o", "tagger"], "exists already", "--force"),
        (["train-tagger", "-", "-o", "new"], "from stdin", "file"),
        (["train-tagger", "--resume", "-o", "new"], "no run to resume", "without --resume"),
        (["train-tagger", "--preset", "quick"], "no preset", "fast"),
        (["train-tagger", "--set", "filter_width=4"], "must be odd", "add or take 1"),
    ],
)
def test_mistakes(command: list[str], message: str, hint: str, seqtool: Run, here: Path) -> None:
    before = {*here.iterdir()}
    result = seqtool(*command)
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert message in first
    assert hint in second
    assert {*here.iterdir()} == before


def test_training(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "t"
    given = (folder / "train.conllu", "--dev", folder / "dev.conllu", "-o", output, *TINY)
    result = seqtool("train-tagger", *given)
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert "40 sentences" in result.stderr
    assert "validation: 10 sentences" in result.stderr
    assert f"next: seqtool tag FILE.conllu -m {output}" in result.stderr
    header = checkpoint.read_header(output)
    assert header.kind == "tagger"
    assert header.config["training"]["epochs"] == 1
    assert not (output / "best").exists()
    result = seqtool("train-tagger", "--resume", "-o", output, "--epochs", "2", "--json")
    found = json.loads(result.stdout)
    assert (found["model"], found["epochs"]) == (str(output), 2)
    assert 0 <= found["dev_upos"] <= 100
    assert found["parameters"] == header.num_parameters
    shown = seqtool("inspect", output)
    assert shown.code == 0
    assert "tagger" in shown.stdout


def test_tags_that_share_morphemes_are_told(seqtool: Run, tmp_path: Path) -> None:
    words = [
        ["1", "고향은", "고향+은", "NOUN", "ncn+jxt"],
        ["2", "서울은", "서울+은", "NOUN", "nq+jxt"],
    ]
    rows = "\n".join("\t".join([*word, "_", "_", "_", "_", "_"]) for word in words)
    path = tmp_path / "ko.conllu"
    path.write_text(f"{rows}\n\n" * 9, encoding="utf-8")
    for smoothing in ("0.1", "0"):
        smooth = ("--set", f"label_smoothing={smoothing}", "--force", "-o", tmp_path / "t")
        result = seqtool("train-tagger", path, *TINY, *smooth)
        assert result.code == 0, result.stderr
        told = "tags share morphemes, so they are learnt without label_smoothing\n"
        assert (told in result.stderr) == (smoothing != "0")


def test_all_settings_are_listed(seqtool: Run) -> None:
    result = seqtool("train-tagger", "--list-settings")
    assert result.code == 0
    for name in ("encoder_size", "dropout_words", "lemma_weight", "learning_rate"):
        assert f"  {name}: " in result.stdout
