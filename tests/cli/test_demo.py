from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from seqtool.cli import demo

Run = Callable[..., Any]

# later options win
TINY = {
    "train-lm": " --hidden 4 --epochs 1 --batch-size 64",
    "train-parser": " --hidden 16 --epochs 1 --set lexical_size=16 --set tag_size=8",
    "ngram": "",
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the demo's models as small as can be, one of each kind; return where it runs."""
    models = [
        model._replace(command=model.command + TINY[model.command.split()[0]])
        for model in demo.MODELS
        if model.name not in ("rhn-ko", "parser-en")
    ]
    monkeypatch.setattr(demo, "MODELS", models)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "demo"


def test_every_command_is_shown_and_tables_end_it(
    tiny: Path, seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = seqtool("demo")
    assert result.code == 0, result.stderr
    lines = result.stdout.splitlines()
    for model in demo.MODELS:
        assert (tiny / model.name / "model.json").is_file()
        line = next(one for one in lines if one.startswith(f"runs/demo/{model.name} "))
        if model.is_parser:
            uas, las, clas = (float(cell) for cell in line.split()[-4:-1])
            assert uas >= las > 50
            assert clas > 50
        else:
            perplexity, true_perplexity = (float(cell) for cell in line.split()[-4:-2])
            assert perplexity > true_perplexity > 1
    assert "runs/demo/rhn + lstm  English  mixture" in result.stdout
    commands: dict[str, list[str]] = {}
    for line in result.stderr.splitlines():
        name, _, text = line.partition(" | ")
        if text.startswith("$ seqtool "):
            commands.setdefault(name.strip(), []).append(shlex.split(text)[2])
    assert commands["rhn"] == ["train-lm", "eval-ppl", "generate"]
    assert commands["parser-ko"] == ["train-parser", "eval-parser", "parse"]
    assert (commands["ko"], commands["mixture"]) == (["prepare"], ["eval-ppl"])
    header = json.loads((tiny / "rhn" / "model.json").read_text())
    assert header["command"].startswith("seqtool train-lm runs/demo/corpus-en --cell rhn ")
    # the second run replaces what the first one made
    few = [model for model in demo.MODELS if model.name in ("rhn", "lstm")]
    ngrams = [model._replace(command="ngram train {corpus} --order 1") for model in few]
    monkeypatch.setattr(demo, "MODELS", ngrams)
    result = seqtool("demo", "--json")
    assert result.code == 0, result.stderr
    shown = json.loads(result.stdout)
    names = [Path(model["model"]).name for model in shown["models"]]
    assert (names, shown["parsers"]) == (["rhn", "lstm", "rhn + lstm"], [])
    assert [len(model["samples"]) for model in shown["models"]] == [3, 3, 0]


def test_a_command_that_fails_ends_it(
    tiny: Path, seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = demo.MODELS[0]._replace(command="train-lm nowhere")
    monkeypatch.setattr(demo, "MODELS", [failing])
    result = seqtool("demo")
    assert result.code == 1
    error, hint = result.stderr.splitlines()[-2:]
    assert error.startswith("error: the command failed: seqtool train-lm")
    assert hint.startswith("hint: ")
