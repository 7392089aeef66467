"""Models with each output layer: training, resuming, opening, scoring and generating."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.train import train_lm
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

RUNS: dict[str, dict[str, Any]] = {
    "adaptive": {"output": {"layer": "adaptive", "cutoffs": [3, 6]}},
    "adaptive-tied-bf16": {"output": {"layer": "adaptive"}, "tied": True},
    "nce-sparse": {"output": {"layer": "nce", "noise_samples": 5}},
    "blackout-tied": {"output": {"layer": "blackout", "noise_samples": 5}, "tied": True},
    "maxent": {"output": {"layer": "maxent", "direct_size": 70}, "cell": "gru"},
    "maxent-tied-bf16": {"output": {"layer": "maxent", "direct_order": 2}, "tied": True},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(3)
    for name, num_lines in (("train", 40), ("valid", 10)):
        lines = (" ".join(rng.choice(list("aaabbcdefg"), size=5)) for _ in range(num_lines))
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return prepare([folder], folder / "corpus", PrepareConfig())


DATA = {"batch_size": 3, "bptt": 7}


def config(name: str) -> NeuralLMConfig:
    training: dict[str, Any] = {"epochs": 2, "learning_rate": 0.03}
    training["precision"] = "bf16" if "bf16" in name else "float32"
    if "sparse" in name:
        training["embedding_optimiser"] = "sparse-adam"
    model = {"hidden_size": 6, **RUNS[name]}
    return from_dict(NeuralLMConfig, {"model": model, "data": DATA, "training": training})


@pytest.mark.parametrize("name", RUNS)
def test_a_model_is_trained_resumed_opened_and_used(
    tmp_path: Path, corpus: PreparedCorpus, name: str
) -> None:
    whole = train_lm(corpus, tmp_path / "whole", config(name))
    with pytest.raises(Interrupted):
        train_lm(corpus, tmp_path / "parts", config(name), should_stop=lambda step: step == 4)
    train_lm(output=tmp_path / "parts", resume=True)
    first, second = (load_file(tmp_path / run / checkpoint.WEIGHTS) for run in ("whole", "parts"))
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert value.equal(second[key]), key

    model = checkpoint.load(tmp_path / "whole")
    assert isinstance(model, NeuralLanguageModel)
    perplexity = evaluate_lm(model, corpus.path, split="valid").perplexity
    assert perplexity == whole.scores["valid_perplexity"]
    # better than knowing nothing, by the distribution that is sampled from
    size = len(corpus.vocabulary)
    assert perplexity < size
    ids = np.asarray(corpus.ids("valid")).astype(np.int32)
    state, nats = model.start(1), 0.0
    for token in ids.tolist():
        log_probs = model.next_log_probs(state)
        assert np.exp(log_probs).sum() == pytest.approx(1.0, abs=1e-12)
        nats -= log_probs[0, token]
        state = model.advance(state, np.array([token], dtype=np.int32))
    assert perplexity == pytest.approx(np.exp(nats / len(ids)), rel=1e-5)
    assert ids[-1] == EOS_ID


def test_cutoffs_beyond_the_vocabulary(tmp_path: Path, corpus: PreparedCorpus) -> None:
    output = {"layer": "adaptive", "cutoffs": [10, 20]}
    given = from_dict(NeuralLMConfig, {"model": {"output": output}, "data": DATA})
    with pytest.raises(ConfigError, match="cutoffs has 20, but the vocabulary has 9 symbols"):
        train_lm(corpus, tmp_path / "m", given)
    assert not (tmp_path / "m").exists()
