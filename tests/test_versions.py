"""Models, corpora and runs that earlier versions wrote: they load, and give what they gave then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import seqtool
from seqtool.cli.app import main

VERSIONS = sorted(path for path in (Path(__file__).parent / "versions").iterdir() if path.is_dir())
PERPLEXITIES = [
    pytest.param(version, name, value, id=f"{version.name}-{name}")
    for version in VERSIONS
    for name, value in json.loads((version / "expected.json").read_text())["perplexity"].items()
]
PREDICTIONS = [
    pytest.param(version, *case, id=f"{version.name}-{case[1]}")
    for version in VERSIONS
    for case in (
        ("parse", "parser", "dev.conllu"),
        ("parse", "parser-bilstm", "dev.conllu"),
        ("tag", "tagger", "dev.conllu"),
        ("segment", "segmenter", "raw.txt"),
        ("parse", "pipeline", "raw.txt"),
    )
]


@pytest.mark.parametrize(("version", "name", "perplexity"), PERPLEXITIES)
def test_perplexity(version: Path, name: str, perplexity: float) -> None:
    model = seqtool.load(version / name)
    result = seqtool.evaluate_lm(model, [version / "valid.txt"])
    assert result.perplexity == pytest.approx(perplexity, rel=1e-6)  # processors round differently


@pytest.mark.parametrize(("version", "command", "model", "text"), PREDICTIONS)
def test_predictions(
    version: Path,
    command: str,
    model: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(version)  # the name of a raw text is written as it was given
    output = tmp_path / "output.conllu"
    assert main([command, text, "-m", model, "-o", str(output)]) == 0
    expected = version / f"expected-{model}.conllu"
    assert output.read_text(encoding="utf-8") == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_a_stopped_run_goes_on(version: Path, tmp_path: Path) -> None:
    shutil.copytree(version / "lm-stopped", tmp_path / "run")
    seqtool.train_lm(version / "corpus", output=tmp_path / "run", resume=True)
    resumed, whole = (
        load_file(path)
        for path in (tmp_path / "run" / "weights.safetensors", version / "lm-whole.safetensors")
    )
    assert resumed.keys() == whole.keys()
    for name, weights in whole.items():
        np.testing.assert_allclose(resumed[name], weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["corpus", "corpus-bpe"])
def test_a_prepared_corpus_is_trained_on(version: Path, name: str, tmp_path: Path) -> None:
    model = seqtool.train_ngram(version / name, tmp_path / "model", seqtool.NgramConfig(order=2))
    assert model.path.is_dir()


def test_every_kind_of_model_is_kept() -> None:
    from seqtool.core.checkpoint import LOADERS

    kinds = {
        json.loads(path.read_text(encoding="utf-8"))["kind"]
        for path in VERSIONS[-1].rglob("model.json")
    }
    assert kinds == set(LOADERS)
