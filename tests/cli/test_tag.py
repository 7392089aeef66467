"""`seqtool train-tagger` and `seqtool tag` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parsing.tagger.toy import SIZES, random_tagger, random_treebank, write_treebank

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
    random_tagger().save(folder / "tagger", scores={}, data={})
    return folder


def others(text: str) -> list[list[str]]:
    """All lines without the columns that are predicted."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [row[:2] + row[6:] if row[0].isdecimal() else row for row in lines]


def test_only_what_is_missing_changes(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text(WITH_EVERYTHING, encoding="utf-8")
    result = seqtool("tag", path, "-m", folder / "tagger")
    assert result.code == 0
    assert others(result.stdout) == others(WITH_EVERYTHING)
    rows = [line.split("\t") for line in result.stdout.splitlines() if line[0:2] in ("1\t", "2\t")]
    assert rows[0][2] == "ir"
    assert rows[1][3] == "NOUN"
    assert "_" not in [rows[0][3], rows[0][4], rows[1][2], rows[1][4]]
    again = seqtool("tag", path, "-m", folder / "tagger", "--retag")
    assert others(again.stdout) == others(WITH_EVERYTHING)
    assert again.stdout.splitlines()[3].split("\t")[2] != "ir"


def test_it_says_that_all_tags_were_there(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    tag = ("tag", "-m", folder / "tagger")
    kept = seqtool(*tag, folder / "dev.conllu")
    assert kept.stdout == (folder / "dev.conllu").read_text(encoding="utf-8")
    told = "all words had UPOS and a lemma already, which are kept; --retag predicts all anew\n"
    assert kept.stderr == told
    assert seqtool(*tag, "--retag", folder / "dev.conllu").stderr == ""
    path = tmp_path / "in.conllu"
    path.write_text(WITH_EVERYTHING, encoding="utf-8")
    assert seqtool(*tag, path).stderr == ""


def test_a_file_in_its_place(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text("".join(s.to_conllu() for s in random_treebank(9)), encoding="utf-8")
    expected = seqtool("tag", path, "-m", folder / "tagger", "--retag").stdout
    assert seqtool("tag", path, "-m", folder / "tagger", "--retag", "-o", path).stdout == ""
    assert path.read_text(encoding="utf-8") == expected


def test_plain_text(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    """By rules, or by spaces; a tagger alone cannot split it."""
    path = tmp_path / "text.txt"
    path.write_text("the dogs walk .\nAnn jumped .\n", encoding="utf-8")
    by_spaces = seqtool("tag", path, "-m", folder / "tagger", "--pretokenized")
    assert by_spaces.code == 0
    rows = [line.split("\t") for line in by_spaces.stdout.splitlines() if line[:1].isdecimal()]
    assert [row[1] for row in rows] == ["the", "dogs", "walk", ".", "Ann", "jumped", "."]
    assert all("_" not in (row[2], row[3], row[4]) for row in rows)
    by_rules = seqtool("tag", path, "-m", folder / "tagger", "--rules")
    assert [line.split("\t")[:6] for line in by_rules.stdout.splitlines() if "\t" in line] == [
        row[:6] for row in rows
    ]
    result = seqtool("tag", path, "-m", folder / "tagger")
    assert (result.code, result.stdout) == (1, "")
    assert "has no segmenter" in result.stderr.splitlines()[0]


def test_broken_sentences(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    nine = "1\ta\ta\tX\t_\t_\t_\t_\t_\n\n"
    path.write_text(nine + WITH_EVERYTHING, encoding="utf-8")
    result = seqtool("tag", path, "-m", folder / "tagger")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0].endswith("9 columns, where CoNLL-U has 10")
    result = seqtool("tag", path, "-m", folder / "tagger", "--skip-invalid")
    assert result.code == 0
    assert result.stdout.startswith(nine)
    assert "passed through" in result.stderr


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (["tag", "x.conllu"], "no model was given", "seqtool train-tagger"),
        (["tag", "nowhere.conllu", "-m", "TAGGER"], "no such file", "check the path"),
        (["parse", "x.conllu", "-m", "TAGGER"], "is no parser", "train-parser"),
        (["train-tagger", "x.conllu", "-o", "TAGGER"], "exists already", "--force"),
        (["train-tagger", "-", "-o", "new"], "from stdin", "file"),
        (["train-tagger", "--resume", "-o", "new"], "no run to resume", "without --resume"),
        (["train-tagger", "--preset", "quick"], "no preset", "fast"),
        (["train-tagger", "--set", "filter_width=4"], "must be odd", "add or take 1"),
    ],
)
def test_mistakes(
    command: list[str],
    message: str,
    hint: str,
    seqtool: Run,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seqtool(*(folder / "tagger" if part == "TAGGER" else part for part in command))
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert message in first
    assert hint in second
    assert list(tmp_path.iterdir()) == []


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


def test_torch_is_not_imported(folder: Path) -> None:
    text, model = str(folder / "dev.conllu"), str(folder / "tagger")
    code = (
        "import sys; from seqtool.cli.app import main; "
        f"code = main(['tag', {text!r}, '-m', {model!r}, '-o', {os.devnull!r}]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_an_earlier_run_wrote_does_not_stay(
    seqtool: Run, folder: Path, tmp_path: Path
) -> None:
    trees, output = tmp_path / "trees", tmp_path / "out"
    trees.mkdir()
    text = (folder / "dev.conllu").read_text()
    for name in ("a", "b"):
        (trees / f"{name}.conllu").write_text(text)
    tag = ("tag", trees, "-m", folder / "tagger", "--skip-invalid", "-o")
    assert seqtool(*tag, f"{output}/").code == 0
    assert (output / "b.conllu").read_text() == (output / "a.conllu").read_text() != ""
    (trees / "b.conllu").write_bytes(damaged := b"\xff" + text.encode())
    for target in (output, trees):
        result = seqtool(*tag, f"{target}/")
        assert result.code == 0, result.stderr
        assert "b.conllu" in result.stderr
        assert (output / "b.conllu").read_text() == ""
        # but nothing is done to a file that is read itself
        assert (trees / "b.conllu").read_bytes() == damaged
