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
from seqtool.core.errors import ConfigError

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


def assert_error(result: Any, message: str, hint: str = "") -> None:
    """It failed with two lines that hold these words, and printed nothing else."""
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()[-2:]
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


def test_fast_is_a_preset(
    seqtool: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ("train-parser", folder / "train.conllu", "-o", tmp_path / "p", "--fast")
    assert_error(seqtool(*train, "--preset", "accurate"), "exclude each other", "only one")
    # with --raw another one is the default
    chosen = []

    def refuse(treebank: Any, output: Any, config: Any, **rest: Any) -> None:
        chosen.append(config.parser.model.encoder)
        raise ConfigError("enough", hint="none")

    monkeypatch.setattr("seqtool.parsing.pipeline.train.train_pipeline", refuse)
    assert_error(seqtool(*train, "--raw"), "enough")
    assert_error(seqtool(*train[:-1], "--raw"), "enough")
    assert chosen == ["none", "bilstm"]


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


def test_too_short_a_time_gives_no_model_to_use(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    words = ("train-parser", folder / "train.conllu", "-o", tmp_path / "p", *TINY)
    short = seqtool(*words, "--time-limit", "0.01s")
    assert short.code == 0
    assert "not fit for use" in short.stderr
    assert "next:" not in short.stderr
    limited = seqtool(*words, "--time-limit", "4s", "--force")
    assert "not fit for use" not in limited.stderr
    assert "next:" in limited.stderr


def test_training_says_what_it_does(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "p"
    result = seqtool(
        "train-parser", folder / "train.conllu", "--dev", folder / "dev.conllu", "-o", output, *TINY
    )
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert "60 sentences" in result.stderr
    assert "validation: 12 sentences" in result.stderr
    assert "system arc-standard" in result.stderr
    assert "epoch 2/2  train loss" in result.stderr
    assert "dev las" in result.stderr
    assert "perplexity" not in result.stderr
    assert f"next: seqtool parse FILE.conllu -m {output}" in result.stderr
    header = checkpoint.read_header(output)
    assert header.kind == "parser"
    assert header.scores["dev_las"] == pytest.approx(header.scores["dev_uas"], abs=50)
    assert 0 < header.scores["dev_las"] <= 100
    assert "configurations_per_second" in header.scores
    assert header.config["model"]["hidden_size"] == 16
    assert not (output / "best").exists()
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    curve = tmp_path / "curve.png"
    assert seqtool("inspect", output, "--plot", curve) == (0, f"{curve}\n", "")


@pytest.mark.parametrize(
    ("options", "is_told"),
    [((), True), (("--epochs", "2"), False), (("--time-limit", "1s"), False)],
)
def test_epochs_of_a_small_treebank_are_told(
    seqtool: Run, folder: Path, tmp_path: Path, options: tuple[str, ...], is_told: bool
) -> None:
    """They count in place of `training.epochs`, also of a file that somebody has changed."""
    whole = seqtool("train-parser", "--list-settings").stdout
    assert "  epochs: 8 " in whole
    path = tmp_path / "my.yaml"
    changed = whole.replace("  epochs: 8 ", "  epochs: 2 ")
    path.write_text(changed.replace("small_epochs: 16", "small_epochs: 1"), encoding="utf-8")
    small = ("--hidden", "8", "--set", "model.lexical_size=6", "--threads", "1", "--config", path)
    treebank = ("--dev", folder / "dev.conllu", "-o", tmp_path / "p")
    result = seqtool("train-parser", folder / "train.conllu", *treebank, *small, *options)
    assert result.code == 0, result.stderr
    note = "1 epoch by learning.small_epochs, as of any treebank of fewer than 4,000 sentences\n"
    assert (note in result.stderr) == is_told
    assert ("epoch 1/1 " in result.stderr) == is_told


def test_json_and_a_held_out_part(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    result = seqtool(
        "train-parser", folder / "train.conllu", "-o", tmp_path / "p", "--json",
        "--system", "swap", "--fields", "form,upos", "--seed", "3", *TINY,
    )  # fmt: skip
    assert result.code == 0
    assert (
        "every tenth sentence is held out as dev: 6 of 60; give --dev for another" in result.stderr
    )
    content = json.loads(result.stdout)
    assert content["model"] == str(tmp_path / "p")
    assert content["system"] == "swap"
    assert content["epochs"] == 2
    assert {"dev_las", "dev_uas", "seconds", "parameters", "train_seconds"} <= content.keys()
    config = checkpoint.read_header(tmp_path / "p").config
    assert config["model"]["fields"] == ["form", "upos"]
    assert config["training"]["seed"] == 3


def test_resume(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "p"
    command = ("train-parser", folder / "train.conllu", "-o", output, *TINY)
    stopped = seqtool(*command, "--max-minutes", "0")
    assert stopped.code == 130
    assert f"seqtool train-parser --resume -o {output}" in stopped.stderr
    result = seqtool("train-parser", "--resume", "-o", output)
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert_error(seqtool(*command), "exists already", "--force")
    assert seqtool(*command, "--force").code == 0
    assert_error(
        seqtool("train-parser", "--resume", "-o", tmp_path / "q"), "no run to resume", "--resume"
    )


def test_chen_manning_is_the_paper(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    result = seqtool(
        "train-parser", folder / "train.conllu", "-o", tmp_path / "p", "--preset", "chen-manning",
        "--epochs", "1", "--device", "cpu",
    )  # fmt: skip
    assert result.code == 0
    model = checkpoint.read_header(tmp_path / "p").config["model"]
    # Chen & Manning 2014: 18 words, 18 tags, 12 labels, vectors of 50, 200 units, the cube
    assert (len(model["slots"]), len(model["label_slots"]), model["measures"]) == (18, 12, [])
    assert {model[f"{kind}_size"] for kind in ("lexical", "tag", "label")} == {50}
    assert (model["hidden_size"], model["activation"]) == (200, "cube")
    weights = checkpoint.load(tmp_path / "p").weights
    assert weights["first.weight"].shape == (200, 18 * 50 + 18 * 50 + 12 * 50)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--preset", "fats"), "no preset is called 'fats'", "fast"),
        (("--system", "arc-hybird"), "'arc-hybird'", "arc-hybrid"),
        (("--fields", "forms"), "no field is called 'forms'", "form"),
        (("--set", "model.slots=[s0,q1]"), "'q1' is no place", "s0"),
        (("--set", "hiden=3"), "unknown setting hiden", ""),
        (("--hidden", "0"), "hidden_size is 0", "hidden_size"),
        # what this parser would not look at
        (("--decoder", "graph", "--system", "swap"), "model.system counts only", "model.decoder"),
        (("--preset", "mst", "--hidden", "9"), "model.hidden_size counts only", "change"),
        (("--set", "encoder_size=9"), "model.encoder_size counts only", "change"),
        (("--set", "taught_words=9"), "learning.taught_words counts only", "with --distil"),
    ],
)
def test_mistakes(
    options: tuple[str, ...],
    message: str,
    hint: str,
    seqtool: Run,
    folder: Path,
    tmp_path: Path,
) -> None:
    result = seqtool("train-parser", folder / "train.conllu", "-o", tmp_path / "p", *options)
    assert_error(result, message, hint)
    assert not (tmp_path / "p").exists()


def test_what_cannot_be_meant_is_noted(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    train = folder / "train.conllu"
    command = ("train-parser", train, train, "--dev", folder / "x" / ".." / "train.conllu")
    options = (*TINY, "-o", tmp_path / "p", "--time-limit", "1s")
    (folder / "x").mkdir()
    result = seqtool(*command, *options)
    assert result.code == 0
    assert "train.conllu is trained on, too: its scores say nothing of other text" in result.stderr
    assert "a file to train on is named twice" in result.stderr
    assert "--time-limit takes the place of --epochs" in result.stderr
    quiet = seqtool("train-parser", train, "--dev", folder / "dev.conllu", *options[:-2], "--force")
    assert quiet.code == 0
    assert "note:" not in quiet.stderr


def test_a_broken_treebank(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.conllu"
    text = (folder / "train.conllu").read_text()
    path.write_text(text.replace("\t2\tnsubj", "\t31\tnsubj", 1))
    command = ("train-parser", path, "-o", tmp_path / "p", *TINY)
    assert_error(seqtool(*command), f"{path}:1: token 1 has head 31", "--skip-invalid")
    result = seqtool(*command, "--skip-invalid", "--epochs", "1")
    assert result.code == 0
    assert f"left out: {path}:1: token 1 has head 31" in result.stderr
    assert_error(seqtool("train-parser", "-", "-o", tmp_path / "q"), "stdin", "file")


def test_settings_are_listed(seqtool: Run) -> None:
    result = seqtool("train-parser", "--list-settings")
    assert result.code == 0
    assert "  hidden_size: 192" in result.stdout
    assert "  exploration: 0.9" in result.stdout


def test_settings_from_a_file(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("model:\n  hidden_size: 12\n  measures: []\n")
    result = seqtool(
        "train-parser", folder / "train.conllu", "-o", tmp_path / "p", "--config", path, *TINY[2:]
    )
    assert result.code == 0
    config = checkpoint.read_header(tmp_path / "p").config
    assert (config["model"]["hidden_size"], config["model"]["measures"]) == (12, [])
    assert config["training"]["optimiser"] == "adamw"


def test_the_sample_is_there_for_nothing(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seqtool("train-parser", "--epochs", "1", "--max-minutes", "0")
    assert result.code == 130
    assert "no TRAIN given: training on the shipped English sample" in result.stderr
    assert (tmp_path / "runs" / "parser" / "last").is_dir()


@pytest.mark.parametrize(
    "command", ["train-parser", "train-parser --raw", "train-tagger", "train-classifier"]
)
def test_the_name_of_a_preset_is_no_file_of_settings(
    command: str, seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "linear" if command == "train-classifier" else "fast"
    result = seqtool(*command.split(), "--config", name, "--list-settings")
    assert (result.code, result.stderr.count("\n")) == (1, 2)
    assert "name a preset with --preset: " in result.stderr
    assert name in result.stderr.splitlines()[1]


@pytest.mark.parametrize(
    ("options", "preset"),
    [
        (
            ["--fast"],
            {"tagger.training.epochs": 15, "multiwords": 0, "parser.model.encoder": "none"},
        ),
        ([], {"tagger.training.epochs": 18, "taggers": 2, "parser.model.encoder": "bilstm"}),
        (["--epochs", "3", "--set", "folds=4"], {"parser.training.epochs": 3, "folds": 4}),
    ],
)
def test_listed_settings_are_those_that_run(
    seqtool: Run, tmp_path: Path, options: list[str], preset: dict[str, Any]
) -> None:
    result = seqtool("train-parser", "--raw", *options, "--list-settings")
    listed = dict(flattened(yaml.safe_load(result.stdout)))
    assert {name: listed[name] for name in preset} == preset
    # what is listed is a file that --config takes, and it changes nothing
    (tmp_path / "a.yaml").write_text(result.stdout)
    again = seqtool("train-parser", "--raw", "--config", tmp_path / "a.yaml", "--list-settings")
    assert again.stdout == result.stdout


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("graph", "--classifier linear", "classifier is linear, which reads no bilstm"),
        ("accurate", "--classifier linear", "classifier is linear, which reads no bilstm"),
        ("mst2", "--classifier neural", "decoder is graph, but encoder is none"),
    ],
)
@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_a_preset_and_options_that_contradict_each_other(
    seqtool: Run, preset: str, options: str, message: str, raw: list[str]
) -> None:
    given = ("train-parser", *raw, "--list-settings", "--preset", preset, *options.split())
    assert_error(seqtool(*given), message, "--")


def test_a_parser_learns_from_others(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    train = ("train-parser", folder / "train.conllu", "--dev", folder / "dev.conllu", *TINY)
    names = [tmp_path / "a", tmp_path / "b"]
    for name, system in zip(names, ("arc-standard", "arc-hybrid"), strict=True):
        assert seqtool(*train, "--system", system, "-o", name).code == 0
    distil = ("--distil", f"{names[0]}, {names[1]}", "-o", tmp_path / "c")
    result = seqtool(*train, *distil, "--unlabelled", folder / "dev.conllu", "--json")
    assert result.code == 0
    assert "beside them 12 sentences of" in result.stderr
    assert "words that a, b parsed" in result.stderr
    assert "1 parser among the teachers with probabilities of transitions" in result.stderr
    shown = json.loads(seqtool("inspect", tmp_path / "c", "--json").stdout)
    assert shown["data"]["teachers"] == "a, b"
    output = ("-o", tmp_path / "d")
    eager = ("--distil", names[1], *output)
    assert_error(seqtool(*train, *eager), "probabilities of arc-standard", "--unlabelled")
    assert_error(seqtool(*train, "--unlabelled", "x.txt", *output), "there are none", "--distil")
    text = tmp_path / "text.txt"
    text.write_text("The dog sees a bone.")
    for nothing in ("", ","):
        assert_error(seqtool(*train, "--distil", nothing, *output), "names no parser", "runs/a")
    with_text = (*train, *distil[:2], "--unlabelled", text)
    assert_error(seqtool(*with_text, *output), "is plain text", "train-parser --raw")
    raw = ("train-parser", folder / "train.conllu", *distil[:2], *with_text[-2:], "--raw")
    assert_error(seqtool(*raw, *output), "for a parser alone", "--raw first")
    assert not (tmp_path / "d").exists()


def test_a_resumed_run_knows_what_it_learns_from(
    seqtool: Run, folder: Path, tmp_path: Path
) -> None:
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    short = ("--dev", dev, "--hidden", "8", "--threads", "1")
    teacher = seqtool("train-parser", train, *short, "--epochs", "1", "-o", tmp_path / "teacher")
    assert teacher.code == 0, teacher.stderr
    taught = ("--distil", tmp_path / "teacher", "--unlabelled", dev, "--set", "taught_words=0.5")
    output = ("-o", tmp_path / "taught")
    begun = seqtool("train-parser", train, *short, *taught, "--epochs", "1", *output)
    assert begun.code == 0, begun.stderr
    again = ("--resume", "--set", "taught_words=0.5", "--set", "teacher_weight=0.5")
    resumed = seqtool("train-parser", *again, *output)
    assert resumed.code == 0, resumed.stderr
    # of a graph-based parser on predicted tags, as --raw trains it
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


@pytest.mark.parametrize(
    ("options", "name", "hint"),
    [
        (["--preset", "linear", "--hidden", "8"], "parser.model.hidden_size", "change model.dec"),
        (["--set", "parser.model.trees=all"], "parser.model.trees", "change model.decoder"),
        (["--set", "graph.model.hidden_size=8"], "graph.model.hidden_size", "change model.decoder"),
        (["--fast", "--set", "graph.model.arc_size=8"], "graph.model.arc_size", "change graphs"),
        (["--set", "graph.model.lm_size=8"], "graph.model.lm_size", "with --lm"),
        (["--set", "tagger.model.lm_size=8"], "tagger.model.lm_size", "with --lm"),
        (["--fast", "--set", "multiword.training.epochs=2"], "multiword.training.epochs", "words"),
        (["--preset", "linear", "--lr", "0.2"], "parser.training.learning_rate", "change model"),
        (["--preset", "linear", "--lr", "0.2", "--set", "graphs=1"], "", ""),
        (["--set", "graph.learning.head_weight=0.7"], "", ""),
    ],
)
def test_what_no_part_of_a_pipeline_reads_is_refused(
    seqtool: Run, options: list[str], name: str, hint: str
) -> None:
    result = seqtool("train-parser", "--raw", *options, "--list-settings")
    if name:
        assert_error(result, f"{name} counts only where", hint)
    assert bool(result.stdout) == (not name)
