"""A mixture on disk: found again wherever both are moved, and refused when a part is another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_networks import save_lm

import seqtool
from seqtool.core import checkpoint
from seqtool.core.errors import ModelError, OutputError
from seqtool.core.terminal import short_path
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.config import CacheConfig
from seqtool.lm.mixture.model import (
    MixedModel,
    save_model,
)
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

CACHE: dict[str, Any] = {"kind": "cache", "weight": 1.0, "settings": {}}
BLOCK = np.array([2, 3, 1, 0, 2, 1, 1], dtype=np.int32)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("a b\nb\n" * 30)
    return prepare([folder / "text.txt"], folder / "corpus", PrepareConfig(split=(80.0, 20.0)))


@pytest.fixture
def runs(tmp_path: Path, corpus: PreparedCorpus) -> Path:
    """The folder runs with the models one and two, and their mixture mix."""
    for number, name in enumerate(("one", "two"), start=1):
        save_lm(tmp_path / "runs" / name, corpus, number)
    mix(tmp_path / "runs" / "mix", *(tmp_path / "runs" / name for name in ("one", "two")))
    return tmp_path / "runs"


def mix(path: Path, *parts: Path) -> None:
    model = MixedModel([checkpoint.load(part) for part in parts], [0.25, 0.75])
    save_model(path, model, parts, scores={"perplexity": 2.25}, command="seqtool eval-ppl")


def log_probs(model: Any) -> list[float]:
    (scores,) = model.score_ids([BLOCK])
    return [float(value) for value in scores.log_probs]


def test_round_trip(runs: Path) -> None:
    loaded = seqtool.load(runs / "mix")
    assert isinstance(loaded, MixedModel)
    parts = [seqtool.load(runs / name) for name in ("one", "two")]
    assert log_probs(loaded) == log_probs(MixedModel(parts, [0.25, 0.75]))
    assert log_probs(parts[0]) != log_probs(parts[1])


def test_a_cache_is_found_again(runs: Path) -> None:
    parts = [seqtool.load(runs / name) for name in ("one", "two")]
    cache = CacheModel(parts[0], CacheConfig(window=3, theta=0.7, decay=0.1))
    model = MixedModel([*parts, cache], [0.25, 0.25, 0.5])
    save_model(runs / "cached", model, [runs / "one", runs / "two"])
    loaded = seqtool.load(runs / "cached")
    assert log_probs(loaded) == log_probs(model)
    assert loaded.names[2] == f"cache of {short_path(runs / 'one')}"
    assert [dict(found.settings) for found in loaded.adaptations] == [
        {"window": 3, "theta": 0.7, "decay": 0.1}
    ]
    card = (runs / "cached" / "README.md").read_text()
    assert "| window 3, theta 0.7, decay 0.1 | cache | 0.5000 |" in card


def refused(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        seqtool.load(path)
    return caught.value


@pytest.mark.parametrize(
    "parts",
    [
        None,
        {},
        {"1": {}},
        {"1": {"path": "../one", "sha256": "0", "weight": "much"}},
        {"1": CACHE, "2": CACHE},
        {"1": {**CACHE, "settings": {"window": 0}}},
        {"1": {**CACHE, "settings": {"window": 9, "theta": 1.0, "depth": 2}}},
    ],
)
def test_a_header_made_by_other_means(runs: Path, parts: Any) -> None:
    path = runs / "mix" / "model.json"
    content = json.loads(path.read_text())
    content["config"] = {"parts": parts} if parts is not None else {}
    path.write_text(json.dumps(content))
    assert "damaged model header" in str(refused(runs / "mix"))


def test_a_mixture_never_replaces_what_it_is_made_of(runs: Path) -> None:
    before = sorted(runs.rglob("*"))
    for output in (runs / "one", runs, runs / "two" / ".." / "two"):
        with pytest.raises(OutputError, match="a part of the mixture is there"):
            mix(output, runs / "one", runs / "two")
    assert sorted(runs.rglob("*")) == before


def test_saved_by_eval_ppl_and_used(
    runs: Path, seqtool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs.parent)
    Path("tune.txt").write_text("b\na b\n")
    Path("text.txt").write_text("a a b\nb c\n")
    options = ("-m", "runs/one", "-m", "runs/two", "--tune", "tune.txt", "--json")
    made = seqtool("eval-ppl", "text.txt", *options, "--save-mixture", "runs/new")
    assert (made.code, made.stderr) == (0, "")
    content = json.loads(made.stdout)
    again = json.loads(seqtool("eval-ppl", "text.txt", "-m", "runs/new", "--json").stdout)
    assert again["weights"] == pytest.approx(content["weights"], rel=1e-12)
    assert again["perplexity"] == pytest.approx(content["perplexity"], rel=1e-12)
    assert again["parts"] == content["parts"]
    assert [part["model"] for part in again["parts"]] == ["runs/one", "runs/two"]
    header = checkpoint.read_header("runs/new")
    assert header.scores == {
        "perplexity": content["perplexity"],
        "tuning_perplexity": content["tuning"]["perplexity"],
    }
    assert header.data == {
        "measured_on": ["text.txt"],
        "tuned_on": "tune.txt",
        "tuning_tokens": 5,
    }
    assert header.command.startswith("seqtool")
    shown = seqtool("eval-ppl", "text.txt", "-m", "runs/new").stdout.splitlines()
    assert shown[1].split() == ["model", "runs/new", "(mixture)"]
    assert shown[2].split()[2:4] == ["runs/one", "(neural-lm):"]
    text = seqtool("generate", "-m", "runs/new", "--seed", 1, "--prompt", "a b")
    assert (text.code, text.stdout[:3]) == (0, "a b")
