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
    for model in demo.MODELS:
        assert (tiny / model.name / "model.json").is_file()
        assert f"\nruns/demo/{model.name} " in result.stdout
    assert "runs/demo/rhn + lstm  English  mixture" in result.stdout
    commands: dict[str, list[str]] = {}
    for line in result.stderr.splitlines():
        name, _, text = line.partition(" | ")
        if text.startswith("$ seqtool "):
            commands.setdefault(name.strip(), []).append(shlex.split(text)[2])
    assert commands["rhn"] == ["train-lm", "eval-ppl", "generate"]
    assert commands["parser-ko"] == ["train-parser", "eval-parser", "parse"]
    assert (commands["ko"], commands["mixture"]) == (["prepare"], ["eval-ppl"])
    # the second run replaces what the first one made
    few = [model for model in demo.MODELS if model.name in ("rhn", "lstm")]
    ngrams = [model._replace(command="ngram train {corpus} --order 1") for model in few]
    monkeypatch.setattr(demo, "MODELS", ngrams)
    shown = json.loads(seqtool("demo", "--json").stdout)
    names = [Path(model["model"]).name for model in shown["models"]]
    assert (names, shown["parsers"]) == (["rhn", "lstm", "rhn + lstm"], [])
    assert [len(model["samples"]) for model in shown["models"]] == [3, 3, 0]
    failing = demo.MODELS[0]._replace(command="train-lm nowhere")
    monkeypatch.setattr(demo, "MODELS", [failing])
    failed = seqtool("demo")
    error, hint = failed.stderr.splitlines()[-2:]
    assert failed.code == 1
    assert error.startswith("error: the command failed: seqtool train-lm")
    assert hint.startswith("hint: ")
