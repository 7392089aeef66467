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
from seqtool.core import storage

VERSIONS = sorted(path for path in (Path(__file__).parent / "versions").iterdir() if path.is_dir())
NEWER = {"class-ngram", "classifier", "labeller", "snm"}  # kinds that no release has yet
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
    assert kinds | NEWER == set(LOADERS)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("kept", "file", "words"),
    [
        ("lm-rnn", "model.json", ("eval-ppl", "valid.txt", "-m", "x")),
        ("lm-rnn", "vocabulary.json", ("eval-ppl", "valid.txt", "-m", "x")),
        ("parser", "model.json", ("parse", "dev.conllu", "-m", "x")),
        ("corpus", "corpus.json", ("ngram", "train", "x", "-o", "out")),
        ("corpus", "vocabulary.json", ("ngram", "train", "x", "-o", "out")),
        ("lm-stopped", "run.json", ("train-lm", "corpus", "--resume", "-o", "x")),
        ("lm-stopped", "last/state.json", ("train-lm", "corpus", "--resume", "-o", "x")),
    ],
)
def test_a_newer_format_is_refused(
    version: Path,
    kept: str,
    file: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(version / kept, tmp_path / "x")
    for text in ("valid.txt", "dev.conllu"):
        shutil.copy(version / text, tmp_path / text)
    shutil.copytree(version / "corpus", tmp_path / "corpus")  # that the stopped run reads
    path = tmp_path / "x" / file
    content = json.loads(path.read_text(encoding="utf-8"))
    content["format_version"] = 99
    if storage.SEAL in content:
        del content[storage.SEAL]
        content = storage.sealed(content)
    storage.write_json(path, content)
    header = tmp_path / "x" / "model.json"
    if path.name == "vocabulary.json" and header.is_file():  # whose sum stands there
        content = json.loads(header.read_text(encoding="utf-8"))
        size, sum_ = path.stat().st_size, storage.sum_of(path)
        content["files"]["vocabulary.json"] = {"bytes": size, "sha256": sum_}
        del content[storage.SEAL]
        storage.write_json(header, storage.sealed(content))
    monkeypatch.chdir(tmp_path)
    assert main(list(words)) == 1
    told = capsys.readouterr().err
    assert "newer" in told, told
    assert "upgrade" in told, told
