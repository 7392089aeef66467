"""The state that a text begins with: measured in validation, and as good as one carried on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqtool.core import checkpoint
from seqtool.core.arrays import Doubles
from seqtool.core.config import from_dict
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.train import LanguageModelTask, train_lm
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

CELLS: dict[str, dict[str, Any]] = {
    "rnn": {"cell": "rnn", "layers": 2, "connection": "residual"},
    "rnn-maxent": {"cell": "rnn", "output": {"layer": "maxent", "direct_size": 500}},
    "irnn": {"cell": "rnn", "activation": "relu", "recurrent_init": "identity"},
    "lstm": {"cell": "lstm", "projection_size": 8},
    "gru": {"cell": "gru", "layers": 2, "connection": "dense"},
    "rhn": {"cell": "rhn", "depth": 3},
    "window": {"cell": "window"},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """Lines of one to four words that go round in a circle: how long they are is not known."""
    folder = tmp_path_factory.mktemp("starts")
    draw = np.random.default_rng(1)
    starts, lengths = draw.integers(0, 8, 900), draw.integers(1, 5, 900)
    lines = [
        " ".join("abcdefgh"[(start + place) % 8] for place in range(length)) + "\n"
        for start, length in zip(starts, lengths, strict=True)
    ]
    (folder / "train.txt").write_text("".join(lines[:700]))
    (folder / "valid.txt").write_text("".join(lines[700:]))
    return prepare([folder], folder / "corpus", PrepareConfig())


def config(model: dict[str, Any], **training: Any) -> NeuralLMConfig:
    values = {
        "model": {"hidden_size": 16, "init_range": 0.5, **model},
        "data": {"batch_size": 3, "bptt": 12},
        "training": {"epochs": 2, "learning_rate": 0.01, **training},
    }
    return from_dict(NeuralLMConfig, values)


def bits(model: NeuralLanguageModel, ids: np.ndarray, *, reset: bool) -> Doubles:
    (scores,) = model.score_ids([ids], reset_state=reset)
    return -scores.log_probs / np.log(2)


@pytest.mark.parametrize("name", CELLS)
def test_first_words_of_lines_are_as_likely_as_in_a_text(
    tmp_path: Path, corpus: PreparedCorpus, name: str
) -> None:
    train_lm(corpus, tmp_path / "m", config(CELLS[name]))
    model = checkpoint.load(tmp_path / "m", NeuralLanguageModel)
    ids = np.asarray(corpus.ids("valid")).astype(np.int32)
    is_first = np.concatenate(([True], ids[:-1] == EOS_ID))
    carried, anew = (bits(model, ids, reset=reset)[is_first].mean() for reset in (False, True))
    assert anew < carried + 0.1
    # a text of one line is the same line begun anew
    line = ids[: 1 + int(np.flatnonzero(ids == EOS_ID)[0])]
    assert bits(model, line, reset=False).tolist() == bits(model, line, reset=True).tolist()


@pytest.mark.parametrize("name", ["lstm", "rnn-maxent", "window"])
def test_the_number_of_streams_hardly_changes_the_perplexity(
    corpus: PreparedCorpus, name: str
) -> None:
    perplexities = []
    for num_streams in (1, 7):
        settings = from_dict(
            NeuralLMConfig,
            {
                "model": {"init_range": 0.3, **CELLS[name], "hidden_size": 16},
                "data": {"batch_size": 4, "bptt": 7, "eval_batch_size": num_streams},
            },
        )
        task = LanguageModelTask(corpus, settings, device="cpu")
        task.module.eval()
        with torch.no_grad():
            perplexities.append(task.validate()["valid_perplexity"])
            model = NeuralLanguageModel(task.module, corpus.tokenizer)
            one = evaluate_lm(model, corpus.path, split="valid").perplexity
            perplexities.append(one)
    assert perplexities == pytest.approx([perplexities[0]] * 4, rel=1e-3)
