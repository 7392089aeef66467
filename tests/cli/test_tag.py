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
    """By rules, or by spaces."""
    Path("text.txt").write_text("the dogs walk .\nAnn jumped .\n", encoding="utf-8")
    tagged = []
    for option in ("--pretokenized", "--rules"):
        result = seqtool("tag", "text.txt", "-m", "tagger", option)
        assert result.code == 0
        rows = [line.split("\t") for line in result.stdout.splitlines() if "\t" in line]
        tagged.append([row[:6] for row in rows])
    assert [row[1] for row in tagged[0]] == ["the", "dogs", "walk", ".", "Ann", "jumped", "."]
    assert all("_" not in row[2:5] for row in tagged[0])
    assert tagged[0] == tagged[1]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("command", "message", "advice"),
    [
        ("tag x.conllu", "no model was given", "seqtool train-tagger"),
        ("tag nowhere.conllu -m tagger", "no such file", "check the path"),
        ("tag letter.txt -m tagger", "has no segmenter", ""),
        ("parse x.conllu -m tagger", "is no parser", "train-parser"),
        ("train-tagger x.conllu -o tagger", "exists already", "--force"),
        ("train-tagger --resume -o new", "no run to resume", "without --resume"),
        ("train-tagger --preset quick", "no preset", "fast"),
        ("train-tagger --set filter_width=4", "must be odd", "add or take 1"),
    ],
)
def test_mistakes(refused: Callable[..., str], command: str, message: str, advice: str) -> None:
    assert advice in refused(command, message)


def test_training(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "t"
    given = (folder / "train.conllu", "--dev", folder / "dev.conllu", "-o", output, *TINY)
    result = seqtool("train-tagger", *given)
    assert (result.code, result.stdout) == (0, f"{output}\n")
    for words in (
        "40 sentences",
        "validation: 10 sentences",
        f"next: seqtool tag FILE.conllu -m {output}",
    ):
        assert words in result.stderr
    header = checkpoint.read_header(output)
    assert (header.kind, header.config["training"]["epochs"]) == ("tagger", 1)
    result = seqtool("train-tagger", "--resume", "-o", output, "--epochs", "2", "--json")
    content = json.loads(result.stdout)
    assert (content["model"], content["epochs"]) == (str(output), 2)
    assert content["parameters"] == header.num_parameters
    assert "dev_upos" in content
    assert "tagger" in seqtool("inspect", output).stdout
