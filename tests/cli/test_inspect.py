from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.core import checkpoint

Run = Callable[..., Any]

HEADER = checkpoint.Header(
    kind="neural-lm",
    config={"model": {"cell": "rhn", "depth": 5, "tied": True}, "training": {"rate": 0.002}},
    tokenizer={"unit": "word", "lowercase": False},
    scores={"valid_perplexity": 98.7654321},
    data={
        "unit": "word",
        "splits": {
            "train": {"sentences": 1000, "tokens": 23456},
            "valid": {"sentences": 50, "tokens": 1170},
        },
        "sources": [{"path": "뉴스.txt", "sha256": "abc"}],
    },
    command="seqtool train-lm --cell rhn",
    num_parameters=1234567,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    def fill(directory: Path) -> None:
        (directory / "weights.safetensors").write_bytes(bytes(2_500_000))
        (directory / "vocabulary.json").write_bytes(b"{}")

    checkpoint.save(tmp_path / "model", HEADER, "# A model\n", fill)
    return tmp_path / "model"


def test_model_is_shown(seqtool: Run, model: Path) -> None:
    result = seqtool("inspect", model)
    assert (result.code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for expected in (
        str(model),
        "kind neural-lm",
        "parameters 1,234,567",
        "size 2.5 MB",
        "made by seqtool train-lm --cell rhn",
        "valid_perplexity 98.7654",
        "split sentences tokens",
        "train 1,000 23,456",
        "valid 50 1,170",
        "뉴스.txt abc",
        "unit word",
        "lowercase no",
        "model.cell rhn",
        "model.tied yes",
        "training.rate 0.002",
        "weights.safetensors 2.5 MB",
        "vocabulary.json 2 bytes",
    ):
        assert expected in lines


def test_model_as_json(seqtool: Run, model: Path) -> None:
    result = seqtool("inspect", model, "--json")
    assert (result.code, result.stderr) == (0, "")
    shown = json.loads(result.stdout)
    assert shown["path"] == str(model)
    assert shown["bytes"] == 2_500_002
    assert {key: shown[key] for key in ("kind", "config", "scores", "data", "num_parameters")} == {
        "kind": HEADER.kind,
        "config": HEADER.config,
        "scores": HEADER.scores,
        "data": HEADER.data,
        "num_parameters": HEADER.num_parameters,
    }


def test_default_model_is_inspected(
    seqtool: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    (model.parent / "runs").mkdir()
    model.rename(model.parent / "runs" / "lm")
    result = seqtool("inspect")
    assert result.code == 0
    assert "runs/lm" in result.stderr


def test_damaged_model_is_an_error(seqtool: Run, model: Path) -> None:
    with (model / "weights.safetensors").open("r+b") as stream:
        stream.seek(1_000_000)
        stream.write(b"\x01")
    result = seqtool("inspect", model)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {model / 'weights.safetensors'}: damaged")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("name", ["nowhere", "folder", "file.txt"])
def test_no_model_is_two_lines(seqtool: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").touch()
    result = seqtool("inspect", tmp_path / name)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {tmp_path / name}: ")
    assert hint.startswith("hint: ")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    from seqtool.text.prepared import PrepareConfig, prepare

    (tmp_path / "text.txt").write_text("a b a\nb\n" * 50, encoding="utf-8")
    text, output = tmp_path / "text.txt", tmp_path / "corpus"
    prepare([text], output, PrepareConfig(lowercase=True), valid=text)
    return output


def test_prepared_corpus_is_shown(seqtool: Run, corpus: Path) -> None:
    result = seqtool("inspect", corpus)
    assert (result.code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    # 50 times "a b a </s> b </s>": 6 tokens, 2 sentences, 8 bytes
    assert "train 300 100 400 0" in lines
    assert "kind prepared corpus" in lines
    assert "vocabulary_size 4" in lines
    assert "lowercase yes" in lines


def test_prepared_corpus_as_json(seqtool: Run, corpus: Path) -> None:
    shown = json.loads(seqtool("inspect", corpus, "--json").stdout)
    assert shown["kind"] == "prepared corpus"
    assert shown["vocabulary_size"] == 4  # a, b, <unk>, </s>
    assert shown["splits"]["train"]["tokens"] == 300
