from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.cli import demo, demo_parser, train_lm
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.recipes import resolve
from seqtool.lm.ngram.config import NgramConfig

Run = Callable[..., Any]

TINY = {"model.hidden_size": 4, "training.epochs": 1, "data.batch_size": 64}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the demo's models as small as can be; return the folder that it runs in."""
    models = [
        model if model.is_ngram else dataclasses.replace(model, settings={**model.settings, **TINY})
        for model in demo.MODELS
    ]
    monkeypatch.setattr(demo, "MODELS", models)
    monkeypatch.setattr(demo_parser, "EPOCHS", dict.fromkeys(demo_parser.EPOCHS, 1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_demo_runs_and_ends_with_a_table(seqtool: Run, tiny: Path) -> None:
    result = seqtool("demo", "--threads", 1)
    assert result.code == 0, result.stderr
    for model in demo.MODELS:
        line = next(
            line for line in result.stdout.splitlines() if f"runs/demo/{model.name} " in line
        )
        perplexity, true_perplexity = (float(cell) for cell in line.split()[-4:-2])
        assert perplexity > true_perplexity > 1
        assert (tiny / "runs" / "demo" / model.name / "model.json").is_file()
    commands = [line for line in result.stderr.splitlines() if line.startswith("$ seqtool ")]
    names = [shlex.split(command)[2] for command in commands[: 2 + 3 * len(demo.MODELS)]]
    assert names[:2] == ["prepare"] * len(demo.LANGUAGES)
    for i, model in enumerate(demo.MODELS):
        train = "ngram" if model.is_ngram else "train-lm"
        assert names[2 + 3 * i : 5 + 3 * i] == [train, "eval-ppl", "generate"]
    for language in demo.LANGUAGES:
        path = Path("runs", "demo", f"parser-{language}")
        assert (path / "model.json").is_file()
        line = next(line for line in result.stdout.splitlines() if line.startswith(str(path)))
        uas, las, clas = (float(cell) for cell in line.split()[-4:-1])
        assert uas >= las > 50
        assert clas > 50
    parser_steps = [shlex.split(line)[2] for line in commands[2 + 3 * len(demo.MODELS) :]]
    assert parser_steps[:6] == ["train-parser", "eval-parser", "parse"] * 2


def test_demo_as_json_and_again(seqtool: Run, tiny: Path) -> None:
    for _ in range(2):  # the second run replaces what the first one made
        result = seqtool("demo", "--json", "-o", "here", "--threads", 1)
        assert result.code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert [Path(model["model"]).name for model in shown["models"]] == [
        model.name for model in demo.MODELS
    ]
    for model in shown["models"]:
        assert model["test"]["perplexity"] > model["test"]["true_perplexity"]
        assert len(model["samples"]) == 3
    assert [parser["language"] for parser in shown["parsers"]] == list(demo.LANGUAGES)


@pytest.mark.parametrize("model", demo.MODELS, ids=lambda model: model.name)
def test_narrated_command_trains_the_same_model(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch, model: demo.DemoModel
) -> None:
    typed = {}

    def train(corpus: object, output: Path, settings: object, **options: object) -> None:
        typed["it"] = settings
        raise ConfigError("seen enough")

    monkeypatch.setattr(train_lm, "_train", train)
    monkeypatch.setattr("seqtool.lm.ngram.train.train_ngram", train)
    command = ["ngram", "train"] if model.is_ngram else ["train-lm"]
    result = seqtool(*command, "corpus", *demo._options(model))
    assert "seen enough" in result.stderr
    ngram = NgramConfig(**model.settings) if model.is_ngram else None
    assert typed["it"] == (ngram or resolve(None, model.settings, []))
