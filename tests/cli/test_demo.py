from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.cli import demo
from seqtool.cli.app import main

Run = Callable[..., Any]

# later options win
TINY = {
    "train-lm": " --hidden 4 --epochs 1 --batch-size 64",
    "train-parser": " --hidden 16 --epochs 1 --set lexical_size=16 --set tag_size=8",
    "ngram": "",
}
# of each kind and language one; `make demo` runs all
FEW = [model for model in demo.MODELS if model.name not in ("rhn-ko", "parser-en")]
LANGUAGE_MODELS = [model for model in FEW if not model.is_parser]
PARSERS = [model for model in FEW if model.is_parser]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the demo's models as small as can be; return the folder that it runs in."""
    models = [
        dataclasses.replace(model, command=model.command + TINY[model.command.split()[0]])
        for model in FEW
    ]
    monkeypatch.setattr(demo, "MODELS", models)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_demo_ends_with_a_table_and_runs_again(
    tiny: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = main(["demo", "--threads", "1"])
    printed, said = capfd.readouterr()  # what the processes that run the commands say too
    assert code == 0, said
    for model in LANGUAGE_MODELS:
        line = next(line for line in printed.splitlines() if f"runs/demo/{model.name} " in line)
        perplexity, true_perplexity = (float(cell) for cell in line.split()[-4:-2])
        assert perplexity > true_perplexity > 1
        assert (tiny / "runs" / "demo" / model.name / "model.json").is_file()
    assert "runs/demo/rhn + lstm  English  mixture" in printed
    for model in PARSERS:
        path = Path("runs", "demo", model.name)
        assert (path / "model.json").is_file()
        line = next(line for line in printed.splitlines() if line.startswith(str(path)))
        uas, las, clas = (float(cell) for cell in line.split()[-4:-1])
        assert uas >= las > 50
        assert clas > 50
    commands: dict[str, list[str]] = {}
    for line in said.splitlines():
        name, _, text = line.partition(" | ")
        if text.startswith("$ seqtool "):
            commands.setdefault(name.strip(), []).append(shlex.split(text)[2])
    assert commands == {
        **{language: ["prepare"] for language in demo.LANGUAGES},
        **{
            model.name: [model.command.split()[0], "eval-ppl", "generate"]
            for model in LANGUAGE_MODELS
        },
        **{model.name: ["train-parser", "eval-parser", "parse"] for model in PARSERS},
        "mixture": ["eval-ppl"],
    }
    header = json.loads((tiny / "runs" / "demo" / "rhn" / "model.json").read_text())
    assert header["command"].startswith("seqtool train-lm runs/demo/corpus-en --cell rhn ")
    # the second run replaces what the first one made
    few = [model for model in demo.MODELS if model.name in ("rhn", "lstm")]
    monkeypatch.setattr(demo, "MODELS", few)
    monkeypatch.setattr(demo, "LANES", 1)  # so that torch is loaded once
    assert main(["demo", "--threads", "1", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert [Path(model["model"]).name for model in shown["models"]] == [
        "rhn",
        "lstm",
        "rhn + lstm",
    ]
    for model in shown["models"]:
        assert model["test"]["perplexity"] > model["test"]["true_perplexity"]
        assert len(model["samples"]) == (0 if model["kind"] == "mixture" else 3)
    assert shown["parsers"] == []


def test_a_command_that_fails_ends_the_demo(
    seqtool: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [dataclasses.replace(model, command="train-lm nowhere") for model in demo.MODELS[:1]]
    monkeypatch.setattr(demo, "MODELS", models)
    monkeypatch.setattr(demo, "LANES", 1)
    result = seqtool("demo")
    assert result.code == 1
    error, hint = result.stderr.splitlines()[-2:]
    assert error.startswith("error: the command failed: seqtool train-lm")
    assert hint.startswith("hint: ")


def test_the_sample_is_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    far = tmp_path / "far" / "en" / "test.txt"
    far.parent.mkdir(parents=True)
    far.write_text("the old dog\n")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for _ in range(2):
        assert demo._at_hand(far, Path("runs/demo")) == "runs/demo/sample/en/test.txt"
        assert Path("runs/demo/sample/en/test.txt").read_text() == "the old dog\n"
        far.write_text("the old cat\n" if _ else "the old dog\n")
    monkeypatch.chdir(tmp_path)
    assert demo._at_hand(far, Path("runs/demo")) == "far/en/test.txt"
