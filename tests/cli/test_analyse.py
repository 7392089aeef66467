"""`seqtool analyse`, `generate --next` and `inspect --plot` as a user meets them."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import CommandResult

from seqtool.cli.app import complete, main
from seqtool.text.datasets import sample_text, sample_treebank

Run = Callable[..., CommandResult]
TINY = "--set training.epochs=1 --set learning.min_steps=2 --hidden 16"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models of all kinds in runs/, of the beginning of the sample."""
    folder = tmp_path_factory.mktemp("trained")
    for split, lines in (("train", 120), ("test", 30)):
        text = sample_text("en", split).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / f"{split}.txt").write_text("".join(text[:lines]), encoding="utf-8")
    trees = sample_treebank("en", "test").read_text(encoding="utf-8").split("\n\n")
    (folder / "trees.conllu").write_text("\n\n".join(trees[:40]) + "\n\n", encoding="utf-8")
    commands = (
        "ngram train train.txt --order 3 -o runs/ngram",
        "train-lm train.txt --hidden 8 --embedding 8 --layers 1 --epochs 2 --batch-size 4 "
        "--bptt 10 --threads 1 -o runs/lm",
        f"train-parser trees.conllu --dev trees.conllu {TINY} --threads 1 -o runs/parser",
    )
    with contextlib.chdir(folder):
        for command in commands:
            assert main([*command.split(), "--json"]) == 0, command
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder to work in: runs/ and the texts."""
    monkeypatch.chdir(tmp_path)
    for name in ("train.txt", "test.txt", "trees.conllu"):
        shutil.copy(trained / name, tmp_path)
    (tmp_path / "runs").symlink_to(trained / "runs")
    return tmp_path


COMMANDS = {
    "analyse context test.txt -m runs/lm -m runs/ngram --lengths 1,2,4 -s": "the old dog",
    "analyse gradients test.txt --lags 5 --positions 4 --jacobians 1 --initial": "",
    "analyse spectrum test.txt --at the --positions 1": "",
    "analyse gates test.txt --tokens 60": "",
    "analyse dynamics test.txt --tokens 60 --starts 4 --newton 1": "",
    "analyse cells": "",
    "analyse context test.txt --lengths 1,2 --targets 9 --initial": "",
    "analyse surprisal test.txt -m runs/ngram -m runs/lm -s": "the old dog sleeps",
    "analyse sparsity test.txt": "",
    "analyse errors trees.conllu": "",
    "analyse surprisal test.txt -m runs/lm --initial --tokens 99": "",
    "analyse embeddings -m runs/lm --initial --names 5": "",
    "analyse embeddings -m runs/lm -m runs/parser --names 9": "",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_analysis_in_every_form(here: Path, seqtool: Run, command: str) -> None:
    words = [*command.split(), *([COMMANDS[command]] if COMMANDS[command] else [])]
    shown = seqtool(*words)
    assert shown.code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) < 200
    assert "\x1b" not in shown.stdout
    written = seqtool(*words, "-o", "picture.svg", "--html", "page.html", "--json")
    assert written.code == 0, written.stderr
    title = json.loads(written.stdout)["title"]
    assert title in Path("page.html").read_text(encoding="utf-8")
    assert ElementTree.parse("picture.svg").getroot().tag.endswith("svg")


def test_the_group_alone_writes_one_page_of_all(here: Path, seqtool: Run) -> None:
    result = seqtool("analyse", "-o", "all.html", "--text", "test.txt", "--treebank",
                     "trees.conllu", "--json")  # fmt: skip
    assert result.code == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["page"] == "all.html"
    titles = [report["title"] for report in content["reports"]]
    for title in ("What was trained, and how well", "Learning curves", "How far back a model looks",
                  "Surprisal word by word", "Sparsity and size of n-gram models",
                  "Where parsers err", "Vectors of words, tags and labels"):  # fmt: skip
        assert any(found.startswith(title) for found in titles), title
    assert [one for one in content["reports"] for remark in one["remarks"]
            if remark.startswith("Left out")] == []  # fmt: skip
    html = Path("all.html").read_text(encoding="utf-8")
    assert all(f'href="#part-{number}"' in html for number in range(1, len(titles) + 1))


def test_a_page_that_nobody_named_stays(seqtool: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("edited")
    result = seqtool("analyse", "report", tmp_path)
    assert (result.code, page.read_text()) == (1, "edited")
    assert f"-o {page}" in result.stderr.splitlines()[1]


def test_a_page_leaves_out_what_has_no_vectors_and_mixtures_of_other_models(
    here: Path, seqtool: Run
) -> None:
    for command in (
        "ngram train train.txt --order 2 -o models/two",
        "ngram train train.txt --order 3 -o models/three",
        "eval-ppl test.txt -m models/two -m models/three --save-mixture models/mix",
        "ngram train test.txt --order 3 -o models/three --force",
        "train-parser trees.conllu --dev trees.conllu --preset linear --epochs 1 -o models/linear",
        "train-parser trees.conllu --dev trees.conllu --preset mst --epochs 1 -o models/mst",
    ):
        assert seqtool(*command.split()).code == 0, command
    result = seqtool("analyse", "report", "models", "--text", "test.txt", "--treebank",
                     "trees.conllu", "--json")  # fmt: skip
    assert result.code == 0, result.stderr
    remarks = [
        remark for report in json.loads(result.stdout)["reports"] for remark in report["remarks"]
    ]
    found = [remark for remark in remarks if "eft out" in remark]
    what = "this part of the mixture models/mix has changed since it was mixed"
    assert [remark.partition(": ")[2].partition(".")[0] for remark in found] == [
        f"left out: models/three: {what}",
        "linear has no vectors",
        "mst has no vectors",
    ]


def test_a_page_shows_the_parts_of_a_pipeline(here: Path, seqtool: Run) -> None:
    short = " ".join(
        f"--set {part}.training.epochs=1 --set {part}.learning.min_steps=2"
        for part in ("segmenter", "tagger", "parser")
    )
    train = "train-parser trees.conllu --dev trees.conllu --raw --fast --threads 1 --set folds=2 "
    assert seqtool(*f"{train} {short} -o pipelines/mine".split()).code == 0
    result = seqtool("analyse", "report", "pipelines", "--treebank", "trees.conllu", "--json")
    assert result.code == 0, result.stderr
    trained, curves = json.loads(result.stdout)["reports"][:2]
    inspected = json.loads(seqtool("inspect", "pipelines/mine", "--json").stdout)
    (model,) = trained["models"]
    assert model["size (MB)"] == inspected["bytes"] / 1e6 > 0
    assert [run["run"] for run in curves["runs"]] == [
        "mine/parser",
        "mine/segmenter",
        "mine/tagger",
    ]


def test_a_group_alone_is_its_own_command() -> None:
    assert complete(["analyse"]) == ["analyse", "report"]
    assert complete(["analyse", "-o", "x"]) == ["analyse", "report", "-o", "x"]
    assert complete(["analyse", "--help"]) == ["analyse", "--help"]
    assert complete(["analyse", "context", "-h"]) == ["analyse", "context", "-h"]
    assert complete(["ngram"]) == ["ngram"]
    assert complete([]) == []


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("analyse report nothing", "there is no model in it", "seqtool ngram train"),
        ("analyse context -m runs/parser", "is no language model", "-m"),
        ("analyse context -m runs/lm -m runs/lm", "is given twice", "once"),
        ("analyse gradients -m runs/ngram", "is no recurrent network", "train-lm"),
        ("analyse context --lengths 1,x", "no list of whole numbers", "1,2,5"),
        ("analyse sparsity -m runs/lm", "is no n-gram model", "ngram train"),
        ("analyse errors -m runs/lm", "is no parser", "train-parser"),
        ("analyse embeddings -m runs/ngram", "has no vectors", "network"),
        ("analyse embeddings -m runs/lm -w dgo", "no vector of 'dgo'", ""),
        ("generate --next 3 --seed 1 --top-k 2", "top-k and seed cannot apply", "drop --next"),
        ("generate --next 3 -p dgo", "outside the model's vocabulary", "--allow-unknown"),
        ("inspect runs/lm runs/ngram --plot x.svg", "no training log is there", "alone"),
        ("inspect runs/lm runs/parser", "several models are for --plot", "name one"),
        ("inspect runs/nothing --plot x.svg", "no such model or log", "check the path"),
        ("inspect runs/lm --plot x.nonsense", "cannot be drawn", ".svg"),
        ("inspect runs/lm --plot no/x.svg", "directory to write to is not there", "make it"),
        ("analyse cells -o x --html x", "the same file", "two names"),
        ("analyse cells --html x.SVG", "x.SVG would be a picture", "with -o"),
    ],
)
def test_errors_are_two_lines(
    here: Path, seqtool: Run, words: str, message: str, hint: str
) -> None:
    before = sorted(here.iterdir())
    result = seqtool(*words.split())
    assert (result.code, result.stdout) == (1, ""), result.stderr
    *_, error, advice = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert advice.startswith("hint: ")
    assert hint in advice
    assert sorted(here.iterdir()) == before


def test_a_hostile_token_stays_a_text(here: Path, seqtool: Run) -> None:
    token = '<script>"&'
    Path("hostile.txt").write_text(f"a {token} b\n" * 9, encoding="utf-8")
    assert seqtool("ngram", "train", "hostile.txt", "--order", 2, "-o", "hostile").code == 0
    typed = ("analyse", "surprisal", "hostile.txt", "-m", "hostile")
    result = seqtool(*typed, "--html", "p.html", "-o", "p.svg")
    assert result.code == 0, result.stderr
    for name in ("p.html", "p.svg"):
        written = Path(name).read_text(encoding="utf-8")
        assert "<script" not in written
        assert "&lt;script&gt;" in written
    shown: Any = ElementTree.parse("p.svg").getroot()
    assert any(token in (node.text or "") for node in shown.iter())


def test_of_a_mixture(here: Path, seqtool: Run) -> None:
    assert seqtool("ngram", "train", "train.txt", "--order", 2, "-o", "two").code == 0
    words = ["generate", "-m", "runs/ngram", "-m", "two", "--weights", "0.4,0.6", "-p", "the",
             "--next", "10"]  # fmt: skip
    result = seqtool(*words, "--json")
    assert result.code == 0, result.stderr
    content = json.loads(result.stdout)
    for one in content["tokens"]:
        parts = sum(part["weight"] * part["probability"] for part in one["parts"])
        assert one["probability"] == pytest.approx(parts)
    total = content["rest"] + sum(one["probability"] for one in content["tokens"])
    assert total == pytest.approx(1)


def test_one_analysis_imports_no_other(here: Path) -> None:
    script = here / "imports.py"
    script.write_text(
        "import sys\nfrom seqtool.cli.app import main\n"
        "main(['analyse', 'sparsity', 'test.txt', '--json'])\n"
        "own = [name for name in sys.modules if name.startswith('seqtool.analysis.')]\n"
        "loaded = {name.rpartition('.')[2] for name in own}\n"
        "print(*sorted(loaded), 'torch' in sys.modules, file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, cwd=here
    )
    loaded = run.stderr.splitlines()[-1].split()
    assert "sparsity" in loaded
    assert loaded[-1] == "False"  # no torch
    assert {"context", "surprisal", "errors", "embeddings"} & set(loaded) == set()


def test_runs_stand_beside_each_other_in_a_picture(here: Path, seqtool: Run) -> None:
    drawn = seqtool("inspect", "runs/lm", "runs/parser", "--plot", "x.svg", "--json")
    run, other = json.loads(drawn.stdout)["runs"]
    assert (run["run"], other["run"]) == ("runs/lm", "runs/parser")
    assert len(run["epochs"]) == len(run["gradient_norm"]) == len(run["clipped"]) == 2
    assert all(0 <= share <= 1 for share in run["clipped"])
    texts = [node.text for node in ElementTree.parse("x.svg").getroot().iter()]
    assert {"Perplexity by epoch", "Learning rate", "runs/lm", "runs/parser"} <= set(texts)


@pytest.mark.parametrize("command", ["context", "surprisal"])
def test_sentences_are_looked_at_without_the_sample(
    here: Path, seqtool: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtool.cli.analyse.is_stdin_given", lambda: False)
    monkeypatch.setattr("seqtool.cli.options.is_stdin_given", lambda: False)
    typed = ("analyse", command, "-m", "runs/ngram", "-s", "the dog", "--json")
    result = seqtool(*typed)
    assert list(json.loads(result.stdout)) == ["title", "remarks", "sentences"], result.stderr
    assert "sample" not in result.stderr
    assert "using the shipped sample" in seqtool(*typed, "--tokens", 500).stderr


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("surprisal -m runs/lm -m runs/ngram", "test.txt"),
        ("context -m runs/lm -m runs/ngram --lengths 1,2", "test.txt"),
        ("errors -m runs/parser", "trees.conllu"),
    ],
)
def test_each_model_reads_all_of_stdin(
    seqtool: Run, here: Path, monkeypatch: pytest.MonkeyPatch, command: str, file: str
) -> None:
    words = ["analyse", *command.split(), "--json"]
    named = seqtool(*words[:2], file, *words[2:])
    assert named.code == 0, named.stderr
    with open(here / file, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        piped = seqtool(*words)
    assert (piped.code, piped.stdout) == (0, named.stdout)
