"""`seqtool train-parser` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from parsing.parser.tiny import write_treebank

import seqtool as package
from seqtool.cli.options import flattened
from seqtool.core import checkpoint

Run = Callable[..., Any]
TINY = (
    *("--hidden", "16", "--epochs", "2", "--device", "cpu", "--set", "learning.batch_size=64"),
    *("--set", "training.precision=float32", "--set", "model.lexical_size=6", "--lr", "0.02"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 60)
    write_treebank(folder / "dev.conllu", 12, seed=1)
    return folder


def test_training_says_what_it_does(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    output, train, dev = tmp_path / "p", folder / "train.conllu", folder / "dev.conllu"
    result = seqtool("train-parser", train, "--dev", dev, "-o", output, *TINY)
    assert (result.code, result.stdout) == (0, f"{output}\n")
    for words in (
        *("60 sentences", "validation: 12 sentences", "system arc-standard"),
        *("epoch 2/2  train loss", "dev las", f"next: seqtool parse FILE.conllu -m {output}"),
    ):
        assert words in result.stderr
    header = checkpoint.read_header(output)
    assert header.kind == "parser"
    assert 0 < header.scores["dev_las"] <= header.scores["dev_uas"] <= 100
    assert header.config["model"]["hidden_size"] == 16
    # of what cannot be meant, it says so
    words = ("--dev", train, "-o", output, *TINY, "--time-limit", "0.01s", "--force")
    shared = seqtool("train-parser", train, train, *words)
    for part in ("is trained on, too", "a file to train on is named twice", "not fit for use"):
        assert part in shared.stderr
    assert "next:" not in shared.stderr


def test_json_a_held_out_part_and_a_broken_sentence(
    seqtool: Run, folder: Path, tmp_path: Path
) -> None:
    path, broken = tmp_path / "mine.yaml", tmp_path / "broken.conllu"
    path.write_text("model:\n  hidden_size: 12\n  measures: []\n")
    text = (folder / "train.conllu").read_text()
    broken.write_text(text.replace("\t2\tnsubj", "\t31\tnsubj", 1))
    typed = ("--system", "swap", "--fields", "form,upos", "--seed", "3", "--config", path)
    command = ("train-parser", broken, "-o", tmp_path / "p", "--json", "--skip-invalid")
    result = seqtool(*command, *typed, *TINY[2:])
    assert result.code == 0
    assert f"left out: {broken}:1: token 1 has head 31" in result.stderr
    assert "every tenth sentence is held out as dev: 5 of 59" in result.stderr
    content = json.loads(result.stdout)
    assert (content["model"], content["system"]) == (str(tmp_path / "p"), "swap")
    assert {"dev_las", "dev_uas", "seconds", "parameters", "train_seconds"} <= content.keys()
    config = checkpoint.read_header(tmp_path / "p").config
    assert config["model"]["fields"] == ["form", "upos"]
    assert (config["model"]["hidden_size"], config["model"]["measures"]) == (12, [])
    assert (config["training"]["seed"], config["training"]["optimiser"]) == (3, "adamw")


def test_resume(seqtool: Run, refused: Callable[..., str], folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "p"
    command = ("train-parser", folder / "train.conllu", "-o", output, *TINY)
    stopped = seqtool(*command, "--max-minutes", "0")
    assert stopped.code == 130
    assert f"seqtool train-parser --resume -o {output}" in stopped.stderr
    result = seqtool("train-parser", "--resume", "-o", output)
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert "--force" in refused(" ".join(map(str, command)), "exists already")
    assert seqtool(*command, "--force").code == 0
    refused("train-parser --resume -o q", "no run to resume")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--preset fats", "no preset is called 'fats'"),
        ("--fast --preset accurate", "exclude each other"),
        ("--fields forms", "no field is called 'forms'"),
        ("--set hiden=3", "unknown setting hiden"),
        ("--unlabelled x.txt", "there are none"),
        ("--config fast", "no such"),  # the name of a preset is no file
        ("broken.conllu", "broken.conllu:1: token 1 has head 31"),
        ("-", "stdin"),
        # what this parser would not look at
        ("--decoder graph --system swap", "system counts only"),
        ("--preset mst --hidden 9", "hidden_size counts only"),
        ("--preset graph --classifier linear", "classifier is linear, which reads no bilstm"),
        ("--raw --preset accurate --classifier linear", "classifier is linear, which reads no"),
        ("--raw --fast --set graph.model.arc_size=8", "graph.model.arc_size counts only"),
        ("--raw --distil x", "--distil is not for"),
        # of one part
        ("--raw --only tagger", "no part that is trained alone is called 'tagger'"),
        ("--raw --only segmenter --hidden 8", "unknown setting model.hidden_size"),
    ],
)
def test_mistakes(refused: Callable[..., str], folder: Path, options: str, message: str) -> None:
    text = (folder / "train.conllu").read_text()
    Path("broken.conllu").write_text(text.replace("\t2\tnsubj", "\t31\tnsubj", 1))
    treebank = "" if options in ("-", "broken.conllu") else folder / "train.conllu"
    hint = refused(f"train-parser {treebank} -o p {options}", message)
    assert ("--skip-invalid" in hint) == (options == "broken.conllu")


@pytest.mark.parametrize(
    ("options", "preset"),
    [
        ("--fast", {"multiwords": 0, "parser.model.encoder": "none"}),
        ("--epochs 3 --set folds=4", {"parser.training.epochs": 3, "folds": 4}),
    ],
)
def test_listed_settings_are_those_that_run(
    seqtool: Run, tmp_path: Path, options: str, preset: dict[str, Any]
) -> None:
    result = seqtool("train-parser", "--raw", *options.split(), "--list-settings")
    listed = dict(flattened(yaml.safe_load(result.stdout)))
    assert {name: listed[name] for name in preset} == preset
    # what is listed is a file that --config takes, and it changes nothing
    (tmp_path / "a.yaml").write_text(result.stdout)
    again = seqtool("train-parser", "--raw", "--config", tmp_path / "a.yaml", "--list-settings")
    assert again.stdout == result.stdout


def test_a_parser_learns_from_others(
    seqtool: Run, refused: Callable[..., str], folder: Path, tmp_path: Path
) -> None:
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    command = ("train-parser", train, "--dev", dev, *TINY)
    for name, system in (("a", "arc-standard"), ("b", "arc-hybrid")):
        assert seqtool(*command, "--system", system, "-o", tmp_path / name).code == 0
    distil = ("--distil", f"{tmp_path / 'a'}, {tmp_path / 'b'}", "--set", "taught_words=0.5")
    output = ("-o", tmp_path / "c")
    result = seqtool(*command, *distil, *output, "--unlabelled", dev, "--json")
    assert result.code == 0
    assert "beside them 12 sentences of" in result.stderr
    shown = json.loads(seqtool("inspect", tmp_path / "c", "--json").stdout)
    assert shown["data"]["teachers"] == "a, b"
    # a run that is resumed knows what it learns from
    again = ("--resume", "--set", "taught_words=0.5", "--set", "teacher_weight=0.5")
    assert seqtool("train-parser", *again, *output).code == 0
    given = f"train-parser {train} --dev {dev} -o d"
    hint = refused(f"{given} --distil b", "probabilities of arc-standard")
    assert "--unlabelled" in hint
    (tmp_path / "text.txt").write_text("The dog sees a bone.")
    hint = refused(f"{given} --distil a --unlabelled text.txt", "is plain text")
    assert "train-parser --raw" in hint


def test_a_resumed_run_knows_its_gold_tags(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    """Of a graph-based parser on predicted tags, as --raw trains it."""
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    sizes = {"encoder_size": 4, "arc_size": 4, "relation_size": 3, "encoder": "bilstm"}
    config = {
        "model": {"decoder": "graph", **sizes},
        "learning": {"head_weight": 0.7},
        "training": {"epochs": 1},
    }
    package.train_parser(train, tmp_path / "graph", config, dev=dev, gold_tags=train)
    given = ("train-parser", "--resume", "--epochs", "2", "--set", "learning.head_weight=0.7")
    resumed = seqtool(*given, "-o", tmp_path / "graph")
    assert resumed.code == 0, resumed.stderr


def test_bf16_is_float32_where_the_processor_cannot(folder: Path, tmp_path: Path) -> None:
    """With the instructions of AVX2 alone, torch has no LSTM in bfloat16."""
    words = ["train-parser", folder / "dev.conllu", "-o", tmp_path / "p", "--preset", "accurate"]
    words += [*TINY, "--epochs", "1", "--set", "model.encoder_size=8"]
    words += ["--set", "training.precision=bf16", "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "seqtool", *words],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    is_bf16 = json.loads(ended.stdout)["precision"] == "bf16"  # where nothing reads the variable
    assert ended.stderr.count("cannot train in bf16") == (not is_bf16)
    assert checkpoint.read_header(tmp_path / "p").precision == ("bf16" if is_bf16 else "float32")
