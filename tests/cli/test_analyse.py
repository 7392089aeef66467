"""`seqtool analyse`, `generate --next` and `inspect --plot` as a user meets them."""

from __future__ import annotations

import contextlib
import inspect
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CommandResult

import seqtool as library
from seqtool.cli import analyse
from seqtool.cli.app import main
from seqtool.text.datasets import sample_text, sample_treebank

KEPT = Path(__file__).parents[1] / "kept"
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


COMMANDS = (
    "analyse context test.txt -m runs/lm -m runs/ngram --lengths 1,2,4 -s dog",
    "analyse gradients test.txt --lags 5 --positions 4 --jacobians 1 --initial",
    "analyse spectrum test.txt --at the --positions 1",
    "analyse gates test.txt --tokens 60",
    "analyse dynamics test.txt --tokens 60 --starts 4 --newton 1",
    "analyse cells",
    "analyse surprisal test.txt -m runs/ngram -m runs/lm -s dog --initial --tokens 99",
    "analyse sparsity test.txt",
    "analyse errors trees.conllu",
    "analyse embeddings -m runs/lm -m runs/parser --names 9",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_analysis_in_every_form(here: Path, seqtool: Run, command: str) -> None:
    shown = seqtool(*command.split())
    assert shown.code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) < 200
    assert "\x1b" not in shown.stdout
    written = seqtool(*command.split(), "-o", "picture.svg", "--html", "page.html", "--json")
    assert written.code == 0, written.stderr
    title = json.loads(written.stdout)["title"]
    assert title in Path("page.html").read_text(encoding="utf-8")
    assert ElementTree.parse("picture.svg").getroot().tag.endswith("svg")


def test_the_group_alone_writes_one_page_of_all(here: Path, seqtool: Run) -> None:
    command = "analyse -o all.html --text test.txt --treebank trees.conllu --json"
    content = json.loads(seqtool(*command.split()).stdout)
    assert content["page"] == "all.html"
    titles = [report["title"] for report in content["reports"]]
    assert titles[0].startswith("What was trained")
    assert len(titles) >= 7
    remarks = [remark for report in content["reports"] for remark in report["remarks"]]
    assert not any(remark.startswith("Left out") for remark in remarks)
    html = Path("all.html").read_text(encoding="utf-8")
    assert all(f'href="#part-{number}"' in html for number in range(1, len(titles) + 1))


def test_help_says_the_defaults_of_the_functions() -> None:
    analyses = [each for each in vars(analyse).values() if isinstance(each, analyse.Analysis)]
    assert len(analyses) == 11
    for analysis in analyses:
        function = import_module(f"seqtool.analysis.{analysis.module}").analyse
        own = inspect.signature(function).parameters
        for name, default in analysis.settings.items():
            assert default in (None, own[name].default), name


def test_help_of_an_analysis_imports_no_torch() -> None:
    code = "import sys; from seqtool.cli.app import main; main(['analyse', 'gates', '--help'])"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_runs_stand_beside_each_other_in_a_picture(here: Path, seqtool: Run) -> None:
    drawn = seqtool("inspect", "runs/lm", "runs/parser", "--plot", "x.svg", "--json")
    run, other = json.loads(drawn.stdout)["runs"]
    assert (run["run"], other["run"]) == ("runs/lm", "runs/parser")
    assert len(run["epochs"]) == len(run["gradient_norm"]) == len(run["clipped"]) == 2
    assert all(0 <= share <= 1 for share in run["clipped"])
    texts = [node.text for node in ElementTree.parse("x.svg").getroot().iter()]
    assert {"Perplexity by epoch", "runs/lm: training (with any dropout)", "runs/parser"} <= set(
        texts
    )
    assert "Learning rate" not in texts  # the page of all models has it


@pytest.mark.parametrize("command", ["context", "surprisal"])
def test_sentences_are_looked_at_without_the_sample(
    here: Path, seqtool_process: Run, command: str
) -> None:
    typed = ("analyse", command, "-m", "runs/ngram", "-s", "the dog", "--json")
    result = seqtool_process(*typed)
    assert list(json.loads(result.stdout)) == ["title", "remarks", "sentences"], result.stderr
    assert "sample" not in result.stderr
    assert "using the shipped sample" in seqtool_process(*typed, "--tokens", 500).stderr


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("surprisal -m runs/lm -m runs/ngram", "test.txt"),
        ("context -m runs/lm -m runs/ngram --lengths 1,2", "test.txt"),
        ("errors -m runs/parser", "trees.conllu"),
    ],
)
def test_each_model_reads_all_of_stdin(
    seqtool: Run, seqtool_process: Run, here: Path, command: str, file: str
) -> None:
    words = ["analyse", *command.split(), "--json"]
    named = seqtool(*words[:2], file, *words[2:])
    piped = seqtool_process(*words, input=Path(file).read_bytes())
    assert (piped.code, piped.stdout) == (0, named.stdout)


# states


def test_files_that_nobody_named_stay(
    refused: Callable[..., str], seqtool: Run, tmp_path: Path
) -> None:
    Path("report.html").write_text("edited")
    assert f"-o {tmp_path}/report.html" in refused(f"analyse report {tmp_path}")
    states = f"analyse states {KEPT / 'valid.txt'} -m {KEPT / 'lm-rnn'}"
    table = Path("states.tsv")
    table.write_text("mine")
    for options in ("", "-o states.npy"):
        refused(f"{states} {options}")
    table.unlink()
    assert [seqtool(*states.split()).code for _ in range(2)] == [0, 1]
    assert seqtool(*states.split(), "-o", "states.npy").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("analyse report nothing", "there is no model in it"),
        ("analyse context -m runs/parser", "is no language model"),
        ("analyse context -m runs/lm -m runs/lm", "is given twice"),
        ("analyse gradients -m runs/ngram", "is no recurrent network"),
        ("analyse context --lengths 1,x", "no list of whole numbers"),
        ("analyse sparsity -m runs/lm", "is no n-gram model"),
        ("analyse errors -m runs/lm", "is no parser"),
        ("analyse embeddings -m runs/ngram", "has no vectors"),
        ("inspect runs/lm runs/ngram --plot x.svg", "no training log is there"),
        ("inspect runs/lm runs/parser", "several models are for --plot"),
        ("inspect runs/lm --plot x.nonsense", "cannot be drawn"),
        ("analyse states test.txt -m runs/ngram", "a model of kind ngram has no states"),
        ("analyse states test.txt -m runs/lm --layer 2", "there is no layer 2"),
        ("analyse states trees.conllu -m runs/parser", "the parser has no encoder"),
        ("analyse states trees.conllu -m runs/parser --pool mean", "pool is for language models"),
    ],
)
@pytest.mark.usefixtures("here")
def test_mistakes(refused: Callable[..., str], words: str, message: str) -> None:
    refused(words, message)


def test_the_next_word_of_a_mixture(here: Path, seqtool: Run) -> None:
    assert seqtool("ngram", "train", "train.txt", "--order", 2, "-o", "two").code == 0
    words = "generate -m runs/ngram -m two --weights 0.4,0.6 -p the --next 10 --json"
    content = json.loads(seqtool(*words.split()).stdout)
    for one in content["tokens"]:
        parts = sum(part["weight"] * part["probability"] for part in one["parts"])
        assert one["probability"] == pytest.approx(parts)
    total = content["rest"] + sum(one["probability"] for one in content["tokens"])
    assert total == pytest.approx(1)


def test_states_of_a_language_model(seqtool: Run, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("the old dog\na cat\n")
    output, lm = tmp_path / "x.npy", library.load(KEPT / "lm-bpe")
    given: dict[str, Any]
    for given in ({}, {"layer": 0}, {"pool": "mean"}):
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        words = ("analyse", "states", tmp_path / "x.txt", "-m", KEPT / "lm-bpe", "-o", output)
        result = seqtool(*words, *options)
        states = np.load(output)
        assert result.stdout.startswith(f"{output}: 5 words of 2 sentences, {states.shape[1]} ")
        expected = np.concatenate(lm.states(["the old dog", "a cat"], **given))
        np.testing.assert_array_equal(states, expected)
    table = (tmp_path / "x.tsv").read_text().splitlines()
    assert table[0].split("\t") == ["row", "sentence", "number", "word", "start", "end"]
    assert table[5].split("\t") == ["4", "2", "2", "cat", "2", "5"]


@pytest.mark.parametrize(
    ("model", "text", "options"),
    [
        ("parser-bilstm", "dev.conllu", []),
        ("tagger", "dev.conllu", ["--layer", "1"]),
        ("pipeline", "raw.txt", ["--part", "tagger"]),
    ],
)
def test_states_of_parsers_and_taggers(
    model: str, text: str, options: list[str], seqtool: Run, tmp_path: Path
) -> None:
    words = ("analyse", "states", KEPT / text, "-m", KEPT / model, "-o", tmp_path / "x.npy")
    result = seqtool(*words, "--json", *options)
    assert result.code == 0, result.stderr
    content = json.loads(result.stdout)
    assert (content["rows"], content["width"]) == np.load(tmp_path / "x.npy").shape
    table = (tmp_path / "x.tsv").read_text().splitlines()
    assert len(table) == 1 + content["rows"]
    assert int(table[-1].split("\t")[1]) == content["sentences"]
